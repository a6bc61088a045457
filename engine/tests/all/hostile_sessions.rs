//! Servers that answer a session wrongly: every fault has a name, the ledger closes, and the engine ends in time.

use crate::support::run;
use crate::support::server::*;
use crate::support::session::{answering, result, rpc, session};
use serde_json::{Value, json};
use std::io::Result;

/// What the server does with the third of ten calls.
struct Row {
    name: &'static str,
    does: fn(&mut Peer, &str) -> Result<()>,
    errors: Value,
    /// Answered, failed.
    ledger: [u64; 2],
}

fn row(name: &'static str, does: fn(&mut Peer, &str) -> Result<()>, errors: Value, answered: u64, failed: u64) -> Row {
    Row { name, does, errors, ledger: [answered, failed] }
}

fn text(peer: &mut Peer, text: &str) -> Result<()> {
    peer.send(TEXT, text.as_bytes())
}

/// An object of this kind before the postmark, as the answer of call 3.
fn with_more(peer: &mut Peer, more: &str, params: &str) -> Result<()> {
    text(peer, &format!("{{\"more\":{more},\"result\":{params},\"id\":3}}"))
}

/// The postmark of another user: its number is behind the front.
fn of_another(params: &str) -> String {
    params.replacen("wsb100000000", "wsb100000001", 1)
}

fn rows() -> Vec<Row> {
    vec![
        row(
            "another number",
            |peer, params| result(peer, 77, params),
            json!({"unexpected_reply": 1, "timeout": 1}),
            2,
            1,
        ),
        row(
            "the number of a call that is still to come",
            |peer, params| {
                result(peer, 4, params)?;
                result(peer, 3, params)
            },
            json!({"unexpected_reply": 1}),
            10,
            0,
        ),
        row(
            "the number twice",
            |peer, params| {
                result(peer, 3, params)?;
                result(peer, 3, params)
            },
            json!({"unexpected_reply": 1}),
            10,
            0,
        ),
        row("no number", |peer, _| text(peer, r#"{"result":1}"#), json!({"timeout": 1}), 2, 1),
        row(
            "the number null",
            |peer, _| text(peer, r#"{"id":null}"#),
            json!({"unexpected_reply": 1, "timeout": 1}),
            2,
            1,
        ),
        row(
            "a negative number",
            |peer, _| text(peer, r#"{"id":-3}"#),
            json!({"unexpected_reply": 1, "timeout": 1}),
            2,
            1,
        ),
        row("a fraction", |peer, _| text(peer, r#"{"id":3.0}"#), json!({"unexpected_reply": 1, "timeout": 1}), 2, 1),
        row(
            "a number of 100 digits",
            |peer, _| text(peer, &format!("{{\"id\":{}}}", "9".repeat(100))),
            json!({"unexpected_reply": 1, "timeout": 1}),
            2,
            1,
        ),
        row(
            "the number as a string, which some protocols have",
            |peer, params| text(peer, &format!("{{\"id\":\"3\",\"result\":{params}}}")),
            json!({}),
            10,
            0,
        ),
        row("an error", |peer, _| text(peer, r#"{"id":3,"error":{"code":-32601}}"#), json!({"reply_error": 1}), 9, 1),
        row("no JSON", |peer, _| text(peer, "id: 3"), json!({"bad_record": 1}), 2, 1),
        row("an empty message, which has no record", |peer, _| text(peer, ""), json!({"timeout": 1}), 2, 1),
        row("half of an object", |peer, _| text(peer, r#"{"id":3,"result":["#), json!({"bad_record": 1}), 2, 1),
        row(
            "two objects in one message",
            |peer, params| text(peer, &format!("{{\"id\":3,\"result\":{params}}}{{\"id\":4}}")),
            json!({"bad_record": 1}),
            2,
            1,
        ),
        row(
            "brackets in brackets, 1,500 deep",
            |peer, params| with_more(peer, &format!("{}{}", "[".repeat(1500), "]".repeat(1500)), params),
            json!({}),
            10,
            0,
        ),
        row(
            "brackets that are never closed",
            |peer, params| with_more(peer, &"[".repeat(3000), params),
            json!({"bad_record": 1}),
            2,
            1,
        ),
        row(
            "a string full of quotes behind backslashes",
            |peer, params| with_more(peer, &format!("\"{}\"", "\\\\\\\"".repeat(500)), params),
            json!({}),
            10,
            0,
        ),
        row("more than the longest record", |peer, _| text(peer, &"x".repeat(5000)), json!({"oversized": 1}), 2, 1),
        row("bytes that are no text", |peer, _| peer.send(TEXT, b"{\"id\":\"\xff\"}"), json!({"bad_utf8": 1}), 2, 1),
        row(
            "the postmark of another user",
            |peer, params| result(peer, 3, &of_another(params)),
            json!({"reply_content": 1}),
            9,
            1,
        ),
        row("no postmark", |peer, _| result(peer, 3, "[]"), json!({"reply_content": 1}), 9, 1),
        row(
            "20,000 messages that nobody asked for",
            |peer, params| {
                for _ in 0..20_000 {
                    text(peer, r#"{"method":"news"}"#)?;
                }
                result(peer, 3, params)
            },
            json!({}),
            10,
            0,
        ),
        row(
            "the answer in frames of one byte",
            |peer, params| {
                let whole = format!("{{\"id\":3,\"result\":{params}}}");
                let (first, rest) = whole.as_bytes().split_first().unwrap();
                peer.raw(&frame(TEXT, &[*first]))?;
                for byte in &rest[..rest.len() - 1] {
                    peer.raw(&frame(CONTINUATION, &[*byte]))?;
                }
                peer.raw(&frame(0x80 | CONTINUATION, &rest[rest.len() - 1..]))
            },
            json!({}),
            10,
            0,
        ),
        row(
            "half of a frame, then the end",
            |peer, params| {
                let whole = frame(0x80 | TEXT, format!("{{\"id\":3,\"result\":{params}}}").as_bytes());
                peer.raw(&whole[..whole.len() / 2])?;
                peer.finish()
            },
            json!({"closed_early": 1}),
            2,
            1,
        ),
        row("a Close", |peer, _| peer.send(CLOSE, &1008u16.to_be_bytes()), json!({"close_frame": 1}), 2, 1),
        row("silence", |_, _| Ok(()), json!({"timeout": 1}), 2, 1),
    ]
}

#[test]
fn every_wrong_answer_has_a_name_and_the_ledger_closes() {
    for Row { name, does, errors, ledger } in rows() {
        let odd =
            answering(move |peer, id, params| if id == 3 { does(peer, params) } else { result(peer, id, params) });
        let changes = json!({
            "connections": 1, "threads": 1, "measure": {"messages": 10},
            "limits": {"connect_s": 1.0, "reply_s": 0.3, "deadline_s": 20.0},
        });
        println!("{name}");
        let run = run(&session(odd, rpc(), changes));
        run.errors_are(errors);
        run.ledger_is(ledger[0], ledger[1], 0);
    }
}
