//! Misbehaviour with documents: with one connection for all requests, and with one for each.

use crate::support::server::*;
use crate::support::{Run, doc, run, with};
use serde_json::json;
use std::io;
use std::time::Duration;

const BYTES: usize = 300;

/// Serves persistent connections; `misbehave` answers the third request.
fn kept(misbehave: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static) -> Run {
    let address = http(move |peer, number, _| match number {
        3 => misbehave(peer),
        _ => peer.raw(&ok(BYTES, "")),
    });
    run(&doc(address, true, BYTES))
}

/// Serves a connection for each request; `misbehave` answers on the third connection.
fn closed(misbehave: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static) -> Run {
    let address = serve(move |peer| {
        let head = peer.head()?.to_ascii_lowercase();
        assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
        if peer.number == 2 {
            return misbehave(peer);
        }
        peer.raw(&ok(BYTES, "Connection: close\r\n"))?;
        peer.finish()
    });
    run(&doc(address, false, BYTES))
}

#[test]
fn a_persistent_connection_carries_every_request() {
    let run = kept(|peer| peer.raw(&ok(BYTES, "")));
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
    assert_eq!(run.end()["connections"], json!({"asked": 1, "established": 1, "open": 1}));
    assert_eq!(run.phases(), ["connect", "measure", "drain"]);
}

#[test]
fn a_connection_for_each_request_is_opened_and_closed() {
    let run = closed(|peer| {
        peer.raw(&ok(BYTES, ""))?;
        peer.finish()
    });
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
    assert_eq!(run.end()["connections"], json!({"asked": 1, "established": 5, "open": 0}));
    assert_eq!(run.phases(), ["measure", "drain"]);
    assert_eq!(["connect", "service", "request"].map(|tag| run.count(tag)), [5, 5, 5]);
    assert!(run.histograms["request"].max() >= run.histograms["service"].min());
}

#[test]
fn a_chunked_document_is_a_document() {
    let chunked = |peer: &mut Peer| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = ["64\r\n", &"x".repeat(100), "\r\nc8;why=not\r\n", &"y".repeat(200), "\r\n0\r\nTrailer: t\r\n\r\n"]
            .concat();
        peer.raw(&[head, body.as_bytes()].concat())
    };
    kept(chunked).errors_are(json!({}));
    let run = closed(move |peer| {
        chunked(peer)?;
        peer.finish()
    });
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn a_document_that_comes_in_small_pieces_is_a_document() {
    let run = kept(|peer| {
        for piece in ok(BYTES, "").chunks(7) {
            peer.raw(piece)?;
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(())
    });
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn a_document_that_ends_with_its_connection_is_a_document() {
    let run = closed(|peer| {
        peer.raw(&[b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n".as_slice(), &[b'x'; BYTES]].concat())?;
        peer.finish()
    });
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn another_status_is_http_status() {
    let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone";
    let kept = kept(|peer| peer.raw(missing));
    assert_eq!((kept.end()["errors"].clone(), kept.measured("failed")), (json!({"http_status": 1}), 1));
    let closed = closed(|peer| {
        peer.raw(missing)?;
        peer.finish()
    });
    closed.errors_are(json!({"http_status": 1}));
    closed.ledger_is(4, 1, 0);
}

#[test]
fn another_length_is_http_length() {
    for bytes in [BYTES - 1, BYTES + 1, 0] {
        let kept = kept(move |peer| peer.raw(&ok(bytes, "")));
        assert_eq!((kept.end()["errors"].clone(), kept.measured("failed")), (json!({"http_length": 1}), 1));
        let closed = closed(move |peer| {
            peer.raw(&ok(bytes, ""))?;
            peer.finish()
        });
        closed.errors_are(json!({"http_length": 1}));
        closed.ledger_is(4, 1, 0);
    }
}

#[test]
fn an_enormous_length_is_refused_from_the_head() {
    let run = kept(|peer| {
        peer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\nx")?;
        peer.ignore()
    });
    run.errors_are(json!({"oversized": 1}));
}

#[test]
fn a_close_in_the_middle_of_a_reply_is_closed_early() {
    let half = |peer: &mut Peer| {
        peer.raw(&ok(BYTES, "")[..150])?;
        peer.finish()
    };
    let kept = kept(half);
    kept.errors_are(json!({"closed_early": 1}));
    kept.ledger_is(2, 1, 0);
    let closed = closed(half);
    closed.errors_are(json!({"closed_early": 1}));
    closed.ledger_is(4, 1, 0);
}

#[test]
fn a_close_without_a_reply_is_closed_early() {
    let run = closed(|peer| peer.finish());
    run.errors_are(json!({"closed_early": 1}));
    run.ledger_is(4, 1, 0);
}

#[test]
fn a_reset_is_reset() {
    let run = closed(|peer| peer.reset());
    run.errors_are(json!({"reset": 1}));
    run.ledger_is(4, 1, 0);
}

#[test]
fn garbage_is_http_invalid() {
    let run = kept(|peer| {
        peer.raw(b"\x00\x01 what\r\n\r\n")?;
        peer.ignore()
    });
    run.errors_are(json!({"http_invalid": 1}));
    run.ledger_is(2, 1, 0);
}

#[test]
fn left_open_after_connection_close_is_http_not_closed() {
    let run = closed(|peer| {
        peer.raw(&ok(BYTES, "Connection: close\r\n"))?;
        peer.ignore()
    });
    run.errors_are(json!({"http_not_closed": 1}));
    run.ledger_is(4, 1, 0);
}

#[test]
fn no_reply_is_timeout() {
    let run = closed(|peer| peer.ignore());
    run.errors_are(json!({"timeout": 1}));
    run.ledger_is(4, 1, 0);
}

#[test]
fn an_announced_close_loses_nothing() {
    let address = http(|peer, number, _| {
        if number < 10 {
            return peer.raw(&ok(BYTES, ""));
        }
        peer.raw(&ok(BYTES, "Connection: close\r\n"))?;
        peer.finish()?;
        Err(io::ErrorKind::UnexpectedEof.into())
    });
    let run = run(&with(doc(address, true, BYTES), json!({"connections": 3, "measure": {"messages": 300}})));
    run.errors_are(json!({}));
    run.ledger_is(300, 0, 0);
    let reconnects = run.end()["control"]["reconnects"].as_u64().unwrap();
    assert!((27..=30).contains(&reconnects), "about one for ten replies: {reconnects}");
    assert_eq!(run.end()["connections"]["established"], 3);
}

#[test]
fn http_1_0_that_keeps_alive_is_not_opened_again() {
    let address = http(|peer, _, _| {
        let reply = String::from_utf8(ok(BYTES, "Connection: keep-alive\r\n")).unwrap();
        peer.raw(reply.replacen("HTTP/1.1", "HTTP/1.0", 1).as_bytes())
    });
    let run = run(&doc(address, true, BYTES));
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
    assert_eq!(run.end()["control"]["reconnects"], 0);
}

#[test]
fn nobody_there_ends_with_no_connection() {
    let run = run(&with(doc(nobody(), false, BYTES), json!({"measure": {"seconds": 20.0}})));
    assert_eq!(run.end()["outcome"], "no_connection");
    let failed = run.measured("failed");
    assert!((1000..1100).contains(&failed), "it gives up after a thousand in a row: {failed}");
    assert_eq!(run.end()["errors"], json!({"connect_refused": failed}));
}

#[test]
fn a_refused_request_is_a_failed_one() {
    let run = run(&with(doc(nobody(), false, BYTES), json!({"measure": {"messages": 50}})));
    assert_eq!(run.end()["outcome"], "no_connection");
    run.errors_are(json!({"connect_refused": 50}));
    run.ledger_is(0, 50, 0);
}
