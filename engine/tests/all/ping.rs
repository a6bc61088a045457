//! `Ping` and `Pong`, over bare TCP and over WebSocket: correct answers, and the names of incorrect ones.

use crate::support::server::*;
use crate::support::{Run, plan, run};
use serde_json::{Value, json};
use std::io;
use std::time::Duration;

fn tcp(answer: impl Fn(&mut Peer, usize) -> io::Result<()> + Send + Sync + 'static) -> Run {
    let address = serve(move |peer| {
        for number in 1.. {
            assert_eq!(peer.read_exactly(4)?, b"Ping");
            answer(peer, number)?;
        }
        Ok(())
    });
    run(&plan(json!({"kind": "ping"}), "tcp", address, "/"))
}

#[test]
fn a_bare_ping_is_answered_by_pong_in_any_pieces() {
    let run = tcp(|peer, _| {
        for byte in b"Pong" {
            peer.raw(&[*byte])?;
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(())
    });
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn four_other_bytes_are_reply_content() {
    let run = tcp(|peer, number| peer.raw(if number == 3 { b"Pang" } else { b"Pong" }));
    run.errors_are(json!({"reply_content": 1}));
    run.ledger_is(4, 1, 0);
}

#[test]
fn a_ping_over_websocket_is_text() {
    let address = websocket(|peer, _, opcode, payload| {
        assert_eq!((opcode, payload.as_slice()), (TEXT, b"Ping".as_slice()));
        peer.send(TEXT, b"Pong")
    });
    let run = run(&plan(json!({"kind": "ping"}), "websocket", address, "/ping"));
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn a_ping_answered_by_itself_is_reply_content() {
    let address = echo_server();
    let run = run(&plan(json!({"kind": "ping"}), "websocket", address, "/ping"));
    run.errors_are(json!({"reply_content": 5}));
    let nothing: Value = json!(0);
    assert_eq!(run.end()["measured"]["answered"], nothing);
}
