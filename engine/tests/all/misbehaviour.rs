//! A server that breaks a rule is counted under the name of that rule, once, and every message stays accounted for.
//! Every test is a server that answers two messages and misbehaves at the third.

use crate::support::server::*;
use crate::support::session::{result, rpc, session};
use crate::support::{Run, echo, run, with};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

fn text(misbehave: impl Fn(&mut Peer, u8, Vec<u8>) -> io::Result<()> + Send + Sync + 'static) -> Run {
    run(&echo(echo_until_third(misbehave), "text", 32))
}

/// The connection ended at the third message.
fn spoils_the_connection(run: &Run, kind: &str) {
    run.errors_are(json!({kind: 1}));
    run.ledger_is(2, 1, 0);
    assert_eq!(run.end()["connections"], json!({"asked": 1, "established": 1, "open": 0}));
    assert_eq!(run.end()["outcome"], "connections_lost");
}

/// Only the third message failed; the connection continued.
fn spoils_the_message(run: &Run, kind: &str) {
    run.errors_are(json!({kind: 1}));
    run.ledger_is(4, 1, 0);
    assert_eq!(run.end()["connections"], json!({"asked": 1, "established": 1, "open": 1}));
}

#[test]
fn a_server_that_does_as_it_should_has_no_errors() {
    let run = text(|peer, opcode, payload| peer.send(opcode, &payload));
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
    assert_eq!(run.measured("replies_in_window"), 5);
    assert_eq!(run.count("connect"), 1);
}

#[test]
fn bytes_behind_urgent_data_are_read() {
    let run = text(|peer, opcode, payload| {
        let reply = frame(0x80 | opcode, &payload);
        let (front, rest) = reply.split_at(20);
        let urgent = [front, b"!"].concat();
        // SAFETY: valid bytes of a socket that is open.
        let sent = unsafe {
            let flags = libc::MSG_OOB | libc::MSG_MORE;
            libc::send(peer.writer().as_raw_fd(), urgent.as_ptr().cast(), urgent.len(), flags)
        };
        assert_eq!(sent, 21);
        peer.raw(rest)
    });
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn other_content_of_the_same_length_is_reply_content() {
    let run = text(|peer, opcode, mut payload| {
        payload[31] = b'!';
        peer.send(opcode, &payload)
    });
    spoils_the_message(&run, "reply_content");
}

#[test]
fn the_reply_to_an_earlier_message_is_unexpected_and_the_right_one_is_awaited() {
    let earlier = std::sync::Mutex::new(Vec::new());
    let run = run(&echo(
        websocket(move |peer, number, opcode, payload| {
            let mut earlier = earlier.lock().unwrap();
            if number == 3 {
                return peer.send(opcode, &earlier);
            }
            *earlier = payload.clone();
            peer.send(opcode, &payload)
        }),
        "binary",
        32,
    ));
    run.errors_are(json!({"unexpected_reply": 1, "timeout": 1}));
    run.ledger_is(2, 1, 0);
}

#[test]
fn even_a_message_of_one_byte_differs_from_the_one_before() {
    let earlier = std::sync::Mutex::new(Vec::new());
    let address = websocket(move |peer, number, opcode, payload| {
        let mut earlier = earlier.lock().unwrap();
        let answer = if number == 3 { earlier.clone() } else { payload.clone() };
        *earlier = payload;
        peer.send(opcode, &answer)
    });
    spoils_the_message(&run(&echo(address, "text", 1)), "reply_content");
}

#[test]
fn binary_for_text_is_reply_opcode() {
    spoils_the_message(&text(|peer, _, payload| peer.send(BINARY, &payload)), "reply_opcode");
}

#[test]
fn a_byte_less_is_reply_length() {
    spoils_the_message(&text(|peer, opcode, payload| peer.send(opcode, &payload[..31])), "reply_length");
}

#[test]
fn a_byte_more_is_reply_length() {
    let run = text(|peer, opcode, mut payload| {
        payload.push(b'x');
        peer.send(opcode, &payload)
    });
    spoils_the_message(&run, "reply_length");
}

#[test]
fn an_empty_reply_is_reply_length() {
    spoils_the_message(&text(|peer, opcode, _| peer.send(opcode, &[])), "reply_length");
}

#[test]
fn a_fin_without_a_close_frame_is_closed_early() {
    spoils_the_connection(&text(|peer, _, _| peer.finish()), "closed_early");
}

#[test]
fn a_fin_in_the_middle_of_a_frame_is_closed_early() {
    let run = text(|peer, opcode, payload| {
        let bytes = frame(0x80 | opcode, &payload);
        peer.raw(&bytes[..20])?;
        peer.finish()
    });
    spoils_the_connection(&run, "closed_early");
}

#[test]
fn a_close_frame_is_close_frame_and_is_answered() {
    let answered = std::sync::Arc::new(std::sync::Mutex::new(None));
    let seen = answered.clone();
    let run = text(move |peer, _, _| {
        peer.send(CLOSE, &1001u16.to_be_bytes())?;
        *seen.lock().unwrap() = Some(peer.frame()?);
        peer.finish()
    });
    spoils_the_connection(&run, "close_frame");
    assert_eq!(*answered.lock().unwrap(), Some((CLOSE, vec![3, 233])), "RFC 6455 §5.5.1: the code is echoed");
}

#[test]
fn a_close_frame_just_after_a_reply_is_close_frame() {
    let run = text(|peer, opcode, payload| {
        peer.send(opcode, &payload)?;
        peer.send(CLOSE, &[])?;
        peer.finish()
    });
    assert_eq!(run.end()["errors"].as_object().unwrap().keys().collect::<Vec<_>>(), ["close_frame"]);
    run.errors_are(json!({"close_frame": 1}));
}

#[test]
fn a_close_frame_with_the_socket_gone_is_counted_once() {
    // A reset follows the answer to the Close frame: that is not a second error.
    let run = run(&with(
        echo(
            echo_until_third(|peer, _, _| {
                peer.send(CLOSE, &1000u16.to_be_bytes())?;
                peer.reset()
            }),
            "text",
            32,
        ),
        json!({"connections": 20, "measure": {"messages": 100}}),
    ));
    let errors = run.end()["errors"].as_object().unwrap();
    let counted: u64 = errors.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((counted, run.measured("failed")), (20, 20), "{errors:?}");
}

#[test]
fn a_reset_is_reset() {
    spoils_the_connection(&text(|peer, _, _| peer.reset()), "reset");
}

#[test]
fn no_reply_is_timeout() {
    let run = text(|peer, _, _| peer.ignore());
    spoils_the_connection(&run, "timeout");
}

#[test]
fn half_a_reply_is_timeout() {
    let run = text(|peer, opcode, payload| {
        peer.raw(&frame(0x80 | opcode, &payload)[..20])?;
        peer.ignore()
    });
    spoils_the_connection(&run, "timeout");
}

#[test]
fn a_masked_frame_is_masked_frame() {
    let run = text(|peer, _, payload| {
        peer.raw(&[0x81, 0x80 | 32, 0, 0, 0, 0])?;
        peer.raw(&payload)?;
        peer.ignore()
    });
    spoils_the_connection(&run, "masked_frame");
}

#[test]
fn reserved_bits_are_reserved_bits() {
    for bit in [0x40, 0x20, 0x10] {
        let run = text(move |peer, opcode, payload| {
            peer.raw(&frame(0x80 | bit | opcode, &payload))?;
            peer.ignore()
        });
        spoils_the_connection(&run, "reserved_bits");
    }
}

#[test]
fn an_unknown_opcode_is_bad_opcode() {
    for opcode in [3, 7, 11, 15] {
        let run = text(move |peer, _, payload| {
            peer.raw(&frame(0x80 | opcode, &payload))?;
            peer.ignore()
        });
        spoils_the_connection(&run, "bad_opcode");
    }
}

#[test]
fn a_ping_that_is_cut_in_pieces_or_too_long_is_bad_control() {
    for bytes in [frame(PING, b"half"), frame(0x80 | PING, &[b'x'; 126])] {
        let run = text(move |peer, _, _| {
            peer.raw(&bytes)?;
            peer.ignore()
        });
        spoils_the_connection(&run, "bad_control");
    }
}

#[test]
fn a_close_frame_of_one_byte_is_bad_control() {
    let run = text(|peer, _, _| {
        peer.send(CLOSE, &[3])?;
        peer.ignore()
    });
    spoils_the_connection(&run, "bad_control");
}

#[test]
fn a_close_frame_that_no_endpoint_may_send_is_bad_control() {
    let code = |code: u16, reason: &[u8]| [&code.to_be_bytes(), reason].concat();
    let codes = [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535].map(|number| code(number, b""));
    for payload in codes.into_iter().chain([code(1000, b"\xff\xfe")]) {
        let run = text(move |peer, _, _| {
            peer.send(CLOSE, &payload)?;
            peer.ignore()
        });
        spoils_the_connection(&run, "bad_control");
        assert_eq!(run.end()["closes"], json!([]));
    }
}

#[test]
fn a_close_frame_is_told_with_its_code_and_its_reason() {
    for (payload, expected) in [
        (&b"\x03\xf0too many\nmessages"[..], json!({"code": 1008, "count": 1, "reason": "too many messages"})),
        (b"\x0f\xa0", json!({"code": 4000, "count": 1, "reason": ""})),
        (b"", json!({"code": null, "count": 1, "reason": ""})),
    ] {
        let run = text(move |peer, _, _| {
            peer.send(CLOSE, payload)?;
            peer.finish()
        });
        spoils_the_connection(&run, "close_frame");
        assert_eq!(run.end()["closes"], json!([expected]));
    }
}

#[test]
fn closes_are_counted_by_code_over_all_workers() {
    let address = echo_until_third(|peer, _, _| {
        peer.send(CLOSE, if peer.number % 3 == 0 { b"\x03\xe9away" } else { b"\x03\xf3oops" })?;
        peer.finish()
    });
    let run =
        run(&with(echo(address, "text", 32), json!({"connections": 6, "threads": 2, "measure": {"messages": 60}})));
    run.errors_are(json!({"close_frame": 6}));
    let expected = [(1001, 2, "away"), (1011, 4, "oops")]
        .map(|(code, count, reason)| json!({"code": code, "count": count, "reason": reason}));
    assert_eq!(run.end()["closes"], json!(expected));
}

#[test]
fn a_length_in_more_bytes_than_it_takes_is_bad_frame() {
    for wide in [2, 8] {
        let run = text(move |peer, opcode, payload| {
            peer.raw(&[0x80 | opcode, if wide == 2 { 126 } else { 127 }])?;
            peer.raw(&(payload.len() as u64).to_be_bytes()[8 - wide..])?;
            peer.raw(&payload)?;
            peer.ignore()
        });
        spoils_the_connection(&run, "bad_frame");
    }
}

#[test]
fn text_that_is_no_utf8_is_bad_utf8() {
    let run = text(|peer, opcode, mut payload| {
        payload[20] = 0xff;
        peer.send(opcode, &payload)
    });
    spoils_the_connection(&run, "bad_utf8");
}

#[test]
fn text_that_ends_in_half_a_character_is_bad_utf8() {
    let run = text(|peer, opcode, mut payload| {
        payload[31] = 0xc3;
        peer.send(opcode, &payload)
    });
    spoils_the_connection(&run, "bad_utf8");
}

#[test]
fn text_that_first_differs_and_is_broken_in_a_later_fragment_is_bad_utf8() {
    let run = text(|peer, opcode, mut payload| {
        payload[1] = b'!';
        payload[20] = 0xff;
        peer.send_part(opcode, &payload[..10])?;
        peer.send(CONTINUATION, &payload[10..])
    });
    spoils_the_connection(&run, "bad_utf8");
}

#[test]
fn the_same_bytes_in_a_binary_message_are_reply_content() {
    let address = echo_until_third(|peer, opcode, mut payload| {
        payload[20] = 0xff;
        peer.send(opcode, &payload)
    });
    spoils_the_message(&run(&echo(address, "binary", 32)), "reply_content");
}

#[test]
fn a_continuation_of_nothing_is_bad_fragment() {
    spoils_the_connection(&text(|peer, _, payload| peer.send(CONTINUATION, &payload)), "bad_fragment");
}

#[test]
fn a_new_message_inside_a_fragmented_one_is_bad_fragment() {
    let run = text(|peer, opcode, payload| {
        peer.send_part(opcode, &payload[..5])?;
        peer.send(opcode, &payload[5..])
    });
    spoils_the_connection(&run, "bad_fragment");
}

#[test]
fn an_enormous_length_is_refused_from_the_header() {
    for (length, kind) in [(1u64 << 62, "oversized"), (u64::MAX, "bad_frame")] {
        let run = text(move |peer, opcode, _| {
            peer.raw(&[0x80 | opcode, 127])?;
            peer.raw(&length.to_be_bytes())?;
            peer.ignore()
        });
        spoils_the_connection(&run, kind);
        assert!(run.measured("window_ns") < 900_000_000, "it was not waited for");
    }
}

#[test]
fn fragments_without_end_are_oversized() {
    let run = text(|peer, opcode, _| {
        peer.send_part(opcode, &[b'x'; 65_536])?;
        loop {
            peer.send_part(CONTINUATION, &[b'x'; 65_536])?;
        }
    });
    spoils_the_connection(&run, "oversized");
}

#[test]
fn fragments_with_pings_between_them_are_a_right_reply() {
    let pongs = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = pongs.clone();
    let run = text(move |peer, opcode, payload| {
        peer.send_part(opcode, &payload[..1])?;
        peer.send(PING, b"are you there")?;
        peer.send_part(CONTINUATION, &[])?;
        peer.send_part(CONTINUATION, &payload[1..17])?;
        peer.send(PING, &[b'p'; 125])?;
        peer.send(PONG, b"nobody asked")?;
        peer.send(CONTINUATION, &payload[17..])?;
        let two = [peer.frame()?, peer.frame()?];
        seen.lock().unwrap().extend(two);
        Ok(())
    });
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
    assert_eq!(run.end()["control"]["pings_answered"], 2);
    assert_eq!(run.end()["control"]["fragmented_replies"], 1);
    let expected = [(PONG, b"are you there".to_vec()), (PONG, vec![b'p'; 125])];
    assert_eq!(*pongs.lock().unwrap(), expected, "a pong carries the ping's payload");
}

#[test]
fn frames_that_come_byte_by_byte_are_a_right_reply() {
    let run = text(|peer, opcode, payload| {
        let bytes = [frame(0x89, b"ping"), frame(opcode, &payload[..9]), frame(0x80, &payload[9..])].concat();
        for byte in bytes {
            peer.raw(&[byte])?;
            std::thread::sleep(Duration::from_micros(300));
        }
        peer.frame().map(drop)
    });
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
    assert_eq!(run.end()["control"]["pings_answered"], 1);
    assert_eq!(run.end()["control"]["fragmented_replies"], 1);
}

#[test]
fn a_greeting_that_nothing_waited_for_is_unexpected_reply() {
    let address = serve(|peer| {
        let head = peer.head()?;
        let greeting = [switching(&accept_for(&head)).into_bytes(), frame(0x81, b"welcome")].concat();
        peer.raw(&greeting)?;
        loop {
            let (opcode, payload) = peer.frame()?;
            peer.send(opcode, &payload)?;
        }
    });
    let run = run(&echo(address, "text", 32));
    run.errors_are(json!({"unexpected_reply": 1}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn a_second_reply_to_one_message_is_unexpected_reply() {
    let run = text(|peer, opcode, payload| {
        let twice = [frame(0x80 | opcode, &payload), frame(0x80 | opcode, &payload)].concat();
        peer.raw(&twice)
    });
    run.errors_are(json!({"unexpected_reply": 1}));
    run.ledger_is(5, 0, 0);
}

#[test]
fn a_reply_while_the_connection_is_closing_is_unexpected_reply() {
    let address = serve(|peer| {
        peer.upgrade()?;
        let (opcode, message) = peer.frame()?;
        peer.send(opcode, &message)?;
        let (_, close) = peer.frame()?;
        peer.send(opcode, &message)?;
        peer.send(PING, b"still there?")?;
        peer.send(opcode, &message)?;
        peer.send(CLOSE, &close)?;
        peer.finish()
    });
    let pace = json!({"kind": "closed", "depth": 1, "think": null, "messages_per_connection": 1});
    let run = run(&with(echo(address, "text", 32), json!({"loop": pace})));
    run.ledger_is(5, 0, 0);
    // The last connection may be closed by the end of the run in place of its count.
    let count = run.end()["errors"]["unexpected_reply"].as_u64().unwrap_or(0);
    assert!((8..=10).contains(&count), "{}", run.end());
}

#[test]
fn an_answer_while_a_session_is_closing_is_unexpected_and_a_push_is_not() {
    let pace = json!({"kind": "closed", "depth": 1, "think": null, "messages_per_connection": 1});
    for (more, unexpected) in [("{\"method\":\"news\"}", false), ("{\"id\":1,\"result\":0}", true), ("no JSON", false)]
    {
        let address = serve(move |peer| {
            peer.upgrade()?;
            let (opcode, message) = peer.frame()?;
            let call: serde_json::Value = serde_json::from_slice(&message).unwrap();
            result(peer, call["id"].as_u64().unwrap(), &call["params"].to_string())?;
            let (_, close) = peer.frame()?;
            peer.send(opcode, more.as_bytes())?;
            peer.send(CLOSE, &close)?;
            peer.finish()
        });
        let changes = json!({"loop": pace, "connections": 1, "threads": 1, "measure": {"messages": 5}});
        let run = run(&session(address, rpc(), changes));
        run.ledger_is(5, 0, 0);
        let count = run.end()["errors"]["unexpected_reply"].as_u64().unwrap_or(0);
        assert_eq!(count >= 4, unexpected, "{more}: {}", run.end());
    }
}

/// A TLS echo; `end` makes what is written from the records with the third reply.
fn sealed(end: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    const CERTIFICATE: &[u8] = include_bytes!("../../src/simulation/server.pem");
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let key = PrivateKeyDer::from_pem_slice(CERTIFICATE).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    serve(move |peer| {
        let mut session = rustls::ServerConnection::new(config.clone()).unwrap();
        let mut stream = peer.writer();
        let mut head = Vec::new();
        let mut tls = rustls::Stream::new(&mut session, &mut stream);
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tls.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        tls.write_all(switching(&accept_for(&String::from_utf8(head).unwrap())).as_bytes())?;
        for number in 1.. {
            // A header of two bytes, the key, and 32 bytes.
            let mut frame = [0; 2 + 4 + 32];
            tls.read_exact(&mut frame)?;
            let (front, payload) = frame.split_at(6);
            let payload: Vec<u8> =
                payload.iter().zip(front[2..].iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            let reply = crate::support::server::frame(0x81, &payload);
            if number < 3 {
                tls.write_all(&reply)?;
                continue;
            }
            let mut last = Vec::new();
            tls.conn.writer().write_all(&reply)?;
            tls.conn.write_tls(&mut last)?;
            tls.sock.write_all(&end(last))?;
            return peer.ignore();
        }
        Ok(())
    })
}

#[test]
fn a_reply_before_what_breaks_the_connection_counts_with_and_without_tls() {
    let run = text(|peer, opcode, payload| peer.raw(&[&frame(0x80 | opcode, &payload)[..], &[0xf1, 1, b'x']].concat()));
    assert_eq!(run.measured("answered"), 3);
    let address = sealed(|mut last| {
        last.extend([0x17, 3, 3, 0, 32]);
        last.extend([7; 32]);
        last
    });
    let run = crate::support::run(&with(echo(address, "text", 32), json!({"tls": {"verify": false, "ca": null}})));
    assert_eq!(run.measured("answered"), 3, "{}", run.end());
    run.errors_are(json!({"tls_failed": 1}));
}

#[test]
fn every_connection_that_misbehaves_is_counted() {
    let address = echo_until_third(|peer, _, _| peer.finish());
    let run =
        run(&with(echo(address, "text", 32), json!({"connections": 9, "threads": 2, "measure": {"messages": 90}})));
    run.errors_are(json!({"closed_early": 9}));
    run.ledger_is(18, 9, 0);
}

#[test]
fn an_error_in_the_warmup_is_an_event_but_no_result() {
    let address = websocket(|peer, number, opcode, mut payload| {
        if number == 3 {
            payload[20] = b'!';
        }
        peer.send(opcode, &payload)
    });
    let run = run(&with(echo(address, "text", 32), json!({"warmup": {"messages": 5}})));
    assert_eq!(run.end()["errors"], json!({}));
    assert_eq!(run.all("error").len(), 1);
    assert_eq!(run.all("error")[0]["kind"], "reply_content");
    run.ledger_is(5, 0, 0);
    assert_eq!(run.count("warmup-service"), 4);
}
