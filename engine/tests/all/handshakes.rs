//! The opening handshake: every failure has its own name, and correct handshakes have none.

use crate::support::server::*;
use crate::support::{echo, run, with};
use serde_json::json;
use std::io;
use std::time::Duration;
fn handshake(answer: impl Fn(&mut Peer, String) -> io::Result<()> + Send + Sync + 'static, kind: &str) {
    let address = serve(move |peer| {
        let head = peer.head()?;
        answer(peer, head)
    });
    let run = run(&with(echo(address, "text", 32), json!({"measure": {"seconds": 0.2}})));
    run.errors_are(json!({kind: 1}));
    assert_eq!(run.end()["outcome"], "no_connection");
    assert_eq!(run.end()["connections"], json!({"asked": 1, "established": 0, "open": 0}));
    run.ledger_is(0, 0, 0);
}

#[test]
fn a_wrong_accept_is_handshake_accept() {
    handshake(|peer, _| peer.raw(switching("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=").as_bytes()), "handshake_accept");
}

#[test]
fn a_status_403_is_handshake_status() {
    handshake(|peer, _| peer.raw(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"), "handshake_status");
}

#[test]
fn a_refusal_is_told_in_the_words_of_the_server() {
    let address = serve(|peer| {
        peer.head()?;
        match peer.number % 2 {
            0 => {
                peer.raw(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\nContent-Length: 10\r\n\r\nslow\x00 down")
            }
            _ => peer.raw(&[&b"HTTP/1.1 302 Found\r\nLocation: /ws\r\n\r\n"[..], &[b'x'; 1000]].concat()),
        }?;
        peer.ignore()
    });
    let run = run(&with(echo(address, "text", 32), json!({"connections": 6, "threads": 2})));
    run.errors_are(json!({"handshake_status": 6}));
    let refusals = [
        json!({"status": 302, "count": 3, "body": "x".repeat(200), "location": "/ws", "retry_after": null}),
        json!({"status": 429, "count": 3, "body": "slow  down", "location": null, "retry_after": "5"}),
    ];
    assert_eq!(run.end()["refusals"], json!(refusals));
}

#[test]
fn what_a_second_line_adds_or_contradicts_is_refused() {
    for (lines, deflate, kind) in [
        ("Sec-WebSocket-Extensions: x-unknown", true, "handshake_invalid"),
        ("Sec-WebSocket-Extensions: permessage-deflate", true, "handshake_invalid"),
        ("Sec-WebSocket-Extensions:\r\nSec-WebSocket-Extensions: x-unknown", false, "handshake_invalid"),
        ("Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: chat", false, "handshake_invalid"),
        ("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", false, "handshake_accept"),
    ] {
        let address = serve(move |peer| {
            let head = peer.head()?;
            let first = if deflate { "Sec-WebSocket-Extensions: permessage-deflate\r\n" } else { "" };
            let answer = switching(&accept_for(&head));
            peer.raw(format!("{}{first}{lines}\r\n\r\n", answer.strip_suffix("\r\n").unwrap()).as_bytes())?;
            peer.ignore()
        });
        let wanted = json!({"client_context_takeover": true, "server_context_takeover": true, "level": 1});
        let deflate = if deflate { wanted } else { json!(null) };
        let changes = json!({"measure": {"seconds": 0.2}, "deflate": deflate, "subprotocols": ["chat"]});
        let run = run(&with(echo(address, "text", 32), changes));
        run.errors_are(json!({kind: 1}));
    }
}

#[test]
fn garbage_instead_of_101_is_handshake_invalid() {
    handshake(|peer, _| peer.raw(b"\x00\x01\x02 hello\r\n\r\n"), "handshake_invalid");
}

#[test]
fn a_101_that_does_not_upgrade_is_handshake_invalid() {
    handshake(
        |peer, head| {
            let answer = switching(&accept_for(&head)).replace("Upgrade: websocket\r\n", "");
            peer.raw(answer.as_bytes())
        },
        "handshake_invalid",
    );
    handshake(
        |peer, head| {
            let answer = switching(&accept_for(&head)).replace("Connection: Upgrade", "Connection: close");
            peer.raw(answer.as_bytes())
        },
        "handshake_invalid",
    );
}

#[test]
fn no_answer_to_the_handshake_is_handshake_timeout() {
    handshake(|peer, _| peer.ignore(), "handshake_timeout");
}

#[test]
fn a_close_instead_of_101_is_handshake_closed() {
    handshake(|peer, _| peer.finish(), "handshake_closed");
}

#[test]
fn a_101_that_comes_byte_by_byte_is_a_handshake() {
    let address = serve(|peer| {
        let head = peer.head()?;
        for byte in switching(&accept_for(&head)).bytes() {
            peer.raw(&[byte])?;
            std::thread::sleep(Duration::from_micros(200));
        }
        loop {
            let (opcode, payload) = peer.frame()?;
            peer.send(opcode, &payload)?;
        }
    });
    let run = run(&echo(address, "text", 32));
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn every_connection_has_a_key_of_its_own() {
    let keys = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = keys.clone();
    let address = serve(move |peer| {
        let head = peer.head()?;
        seen.lock().unwrap().push(accept_for(&head));
        peer.raw(switching(&accept_for(&head)).as_bytes())?;
        loop {
            let (opcode, payload) = peer.frame()?;
            peer.send(opcode, &payload)?;
        }
    });
    run(&with(echo(address, "text", 32), json!({"connections": 8, "measure": {"messages": 40}})));
    let mut keys = keys.lock().unwrap().clone();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 8);
}

#[test]
fn nobody_there_is_connect_refused() {
    for measure in [json!({"messages": 5}), json!({"seconds": 0.3})] {
        let run = run(&with(echo(nobody(), "text", 32), json!({"connections": 3, "measure": measure})));
        run.errors_are(json!({"connect_refused": 3}));
        assert_eq!(run.end()["outcome"], "no_connection");
        assert_eq!(run.end()["connections"], json!({"asked": 3, "established": 0, "open": 0}));
        run.ledger_is(0, 0, 0);
    }
}
