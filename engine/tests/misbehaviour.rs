//! A server that breaks a rule is counted under the name of that rule, once, and every message stays accounted for.
//! Every test is a server that answers two messages and misbehaves at the third.

mod support;

use serde_json::json;
use std::io;
use std::time::Duration;
use support::server::*;
use support::{Run, echo, run, with};

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
    for length in [1u64 << 62, u64::MAX] {
        let run = text(move |peer, opcode, _| {
            peer.raw(&[0x80 | opcode, 127])?;
            peer.raw(&length.to_be_bytes())?;
            peer.ignore()
        });
        spoils_the_connection(&run, "oversized");
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
