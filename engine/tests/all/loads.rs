//! Closed loops: many messages in flight, pauses, exchanged connections. Counts and orders are exact. A time is only a
//! lower bound, which a slow machine cannot break, or a bound many times the expected value.

use crate::support::server::*;
use crate::support::{Run, closed, doc, echo, run, thinking, with};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn deep(address: SocketAddr, depth: usize, messages: u64) -> Run {
    run(&with(echo(address, "text", 32), json!({"loop": closed(depth), "measure": {"messages": messages}})))
}

/// The sequence number in a message's stamp.
fn sequence(payload: &[u8]) -> u64 {
    u64::from_str_radix(std::str::from_utf8(&payload[..8]).unwrap(), 16).unwrap()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

#[test]
fn sixteen_messages_are_under_way_at_once_and_stay_in_order() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server_saw = seen.clone();
    let pause = Duration::from_millis(20);
    let address = serve(move |peer| {
        peer.upgrade()?;
        loop {
            let mut batch = Vec::new();
            while batch.len() < 16 {
                match peer.frame()? {
                    (CLOSE, payload) => {
                        peer.send(CLOSE, &payload)?;
                        return peer.finish();
                    }
                    (_, payload) => batch.push(payload),
                }
            }
            std::thread::sleep(pause);
            for payload in batch {
                server_saw.lock().unwrap().push(sequence(&payload));
                peer.send(TEXT, &payload)?;
            }
        }
    });
    let run = deep(address, 16, 160);
    run.errors_are(json!({}));
    run.ledger_is(160, 0, 0);
    assert_eq!(*seen.lock().unwrap(), (1..=160).collect::<Vec<u64>>());
    assert_eq!(run.at_least("service", pause * 9 / 10), 160, "each waited for the whole batch");
    assert_eq!(
        [run.count("response"), run.count("send_lag")],
        [0, 0],
        "nothing is due in a closed loop without pauses"
    );
}

#[test]
fn a_dropped_reply_is_missing_and_the_rest_go_on() {
    let address = websocket(|peer, number, opcode, payload| match number {
        7 => Ok(()),
        _ => peer.send(opcode, &payload),
    });
    let run = deep(address, 4, 40);
    run.errors_are(json!({"reply_missing": 1}));
    run.ledger_is(39, 1, 0);
    assert_eq!(run.end()["outcome"], "completed");
}

#[test]
fn a_dropped_reply_is_missing_however_the_next_is_cut() {
    for cut in [1, 3, 10, 17] {
        let address = websocket(move |peer, number, opcode, payload| match number {
            7 => Ok(()),
            8 => {
                let bytes = frame(0x80 | opcode, &payload);
                peer.raw(&bytes[..cut])?;
                std::thread::sleep(Duration::from_millis(50));
                peer.raw(&bytes[cut..])
            }
            _ => peer.send(opcode, &payload),
        });
        let run = deep(address, 4, 40);
        run.errors_are(json!({"reply_missing": 1}));
        run.ledger_is(39, 1, 0);
    }
}

#[test]
fn a_duplicated_reply_is_unexpected_and_harms_no_message() {
    let address = websocket(|peer, number, opcode, payload| {
        if number == 7 {
            peer.send(opcode, &payload)?;
        }
        peer.send(opcode, &payload)
    });
    let run = deep(address, 4, 40);
    run.errors_are(json!({"unexpected_reply": 1}));
    run.ledger_is(40, 0, 0);
}

#[test]
fn two_replies_in_the_wrong_order_are_named_both() {
    let held = Mutex::new(Vec::new());
    let address = websocket(move |peer, number, opcode, payload| match number {
        7 => {
            *held.lock().unwrap() = payload;
            Ok(())
        }
        8 => {
            peer.send(opcode, &payload)?;
            peer.send(opcode, &held.lock().unwrap())
        }
        _ => peer.send(opcode, &payload),
    });
    let run = deep(address, 4, 40);
    run.errors_are(json!({"reply_missing": 1, "unexpected_reply": 1}));
    run.ledger_is(39, 1, 0);
}

#[test]
fn a_connection_that_dies_takes_all_that_was_under_way_with_it() {
    let address = serve(|peer| {
        peer.upgrade()?;
        for number in 0.. {
            let (opcode, payload) = peer.frame()?;
            if peer.number == 0 && number == 10 {
                return peer.reset();
            }
            peer.send(opcode, &payload)?;
        }
        Ok(())
    });
    let changes = json!({"loop": closed(8), "connections": 2, "measure": {"messages": 400}});
    let run = run(&with(echo(address, "text", 32), changes));
    let failed = run.measured("failed");
    assert!((1..=8).contains(&failed), "{failed} were under way");
    run.errors_are(json!({"reset": failed}));
    run.ledger_is(400 - failed, failed, 0);
}

#[test]
fn think_time_sets_the_rate_and_the_response_counts_from_the_due_time() {
    let service = Duration::from_millis(20);
    let kinds = [
        (json!({"kind": "constant", "mean_s": 0.1}), 0.1),
        (json!({"kind": "gaussian", "mean_s": 0.1, "deviation_s": 0.01}), 0.09),
    ];
    for (think, least_s) in kinds {
        let address = websocket(move |peer, _, opcode, payload| {
            std::thread::sleep(service);
            peer.send(opcode, &payload)
        });
        let changes = json!({"loop": thinking(1, think, None), "connections": 5, "measure": {"seconds": 2.0}});
        let run = run(&with(echo(address, "text", 32), changes));
        run.errors_are(json!({}));
        // Five users, each with a pause and a reply in alternation; half the rate on a machine that
        // is three times too slow.
        let most = 5.0 * 2.0 / (least_s + 0.02) + 5.0;
        let sent = run.measured("sent") as f64;
        assert!(sent <= most && sent > most / 3.0, "{sent} of {most}");
        let answered = run.measured("answered");
        assert_eq!([run.count("response"), run.count("send_lag")], [answered, answered]);
        assert_eq!(run.at_least("response", service * 9 / 10), answered);
    }
}

#[test]
fn the_first_message_waits_for_a_first_pause() {
    let address = echo_server();
    let think = json!({"kind": "constant", "mean_s": 60.0});
    let changes = json!({"loop": thinking(1, think, None), "measure": {"seconds": 0.3}});
    let run = run(&with(echo(address, "text", 32), changes));
    run.ledger_is(0, 0, 0);
    assert_eq!(run.measured("unsent"), 0, "what is due after the window is not part of it");
}

#[test]
fn pauses_begun_in_a_counted_warmup_do_not_double_the_pace() {
    let address = echo_server();
    let think = json!({"kind": "constant", "mean_s": 0.25});
    let changes = json!({
        "loop": thinking(1, think, None), "connections": 2, "warmup": {"messages": 4}, "measure": {"seconds": 2.0},
    });
    let run = run(&with(echo(address, "text", 32), changes));
    assert_eq!(run.count("warmup-service"), 4);
    let sent = run.measured("sent");
    assert!((2..=16).contains(&sent), "two users, at most eight pauses each in two seconds: {sent}");
}

/// An echo that counts connections, the most messages on one of them, and Close frames.
fn counting_echo() -> (SocketAddr, Arc<[AtomicUsize; 3]>) {
    let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let seen = counts.clone();
    let address = serve(move |peer| {
        seen[0].fetch_add(1, Ordering::SeqCst);
        peer.upgrade()?;
        for number in 1.. {
            let (opcode, payload) = peer.frame()?;
            if opcode == CLOSE {
                seen[2].fetch_add(1, Ordering::SeqCst);
                peer.send(CLOSE, &payload)?;
                return peer.finish();
            }
            seen[1].fetch_max(number, Ordering::SeqCst);
            peer.send(opcode, &payload)?;
        }
        Ok(())
    });
    (address, counts)
}

#[test]
fn every_three_messages_a_connection_is_exchanged_with_a_close_handshake() {
    for depth in [1, 2] {
        let (address, counts) = counting_echo();
        let pace = thinking(depth, json!(null), Some(3));
        let run =
            run(&with(echo(address, "text", 32), json!({"loop": pace, "connections": 2, "measure": {"messages": 30}})));
        run.errors_are(json!({}));
        run.ledger_is(30, 0, 0);
        // A busy server may accept the last connection after the engine has ended.
        wait_until("every connection ended with a Close frame", || {
            counts[2].load(Ordering::SeqCst) == counts[0].load(Ordering::SeqCst)
        });
        let accepted = counts[0].load(Ordering::SeqCst);
        assert!((10..=12).contains(&accepted), "30 messages on connections of three: {accepted}");
        assert_eq!(counts[1].load(Ordering::SeqCst), 3, "at most three on each");
        assert!(run.count("connect") as usize >= 10 && run.count("connect") as usize <= accepted);
        assert_eq!(run.control("reconnects"), 0, "these are the plan's, not the server's");
    }
}

#[test]
fn a_connection_exchanged_at_the_end_of_a_counted_warmup_is_there_for_the_measurement() {
    let (address, _) = counting_echo();
    let pace = thinking(1, json!(null), Some(5));
    let changes = json!({"loop": pace, "warmup": {"messages": 5}, "measure": {"messages": 10}});
    let run = run(&with(echo(address, "text", 32), changes));
    run.errors_are(json!({}));
    run.ledger_is(10, 0, 0);
    assert_eq!(run.end()["outcome"], "completed");
}

#[test]
fn a_new_connection_begins_with_a_pause_of_its_own() {
    let (address, _) = counting_echo();
    let think = json!({"kind": "uniform", "from_s": 0.1, "to_s": 0.4});
    let changes = json!({"loop": thinking(3, think, Some(1)), "measure": {"messages": 8}});
    let run = run(&with(echo(address, "text", 32), changes));
    run.ledger_is(8, 0, 0);
    let window = run.measured("window_ns");
    assert!(window >= 800_000_000, "eight connections, each idle for at least 100 ms: {window} ns");
}

#[test]
fn connections_announced_to_close_in_the_warmup_are_established_once() {
    let address = http(|peer, number, _| match number {
        2 => {
            peer.raw(&ok(64, "Connection: close\r\n"))?;
            peer.finish()
        }
        _ => peer.raw(&ok(64, "")),
    });
    let changes = json!({"connections": 2, "warmup": {"messages": 20}, "measure": {"messages": 20}});
    let run = run(&with(doc(address, true, 64), changes));
    run.errors_are(json!({}));
    run.ledger_is(20, 0, 0);
    assert_eq!(run.end()["connections"], json!({"asked": 2, "established": 2, "open": 2}));
}

#[test]
fn two_workers_count_what_one_counts() {
    for threads in [1, 2] {
        let changes = json!({
            "threads": threads, "connections": 10, "loop": closed(4), "measure": {"messages": 4000}, "tick_s": 0.05,
        });
        let run = run(&with(echo(echo_server(), "text", 32), changes));
        run.errors_are(json!({}));
        run.ledger_is(4000, 0, 0);
        assert_eq!([run.count("service"), run.count("connect")], [4000, 10]);
        assert_eq!(run.end()["threads"].as_array().unwrap().len(), threads);
    }
}
