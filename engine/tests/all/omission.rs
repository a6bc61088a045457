//! No event may be omitted: a stall is in the tail, a slow connection is awaited, a late reply counts in its own
//! interval. Delays are lower bounds of the expected values; no speed is asserted.

use crate::support::server::*;
use crate::support::{doc, echo, run, with};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const STALL: Duration = Duration::from_millis(300);

#[test]
fn a_stalled_server_is_seen_in_the_tail() {
    let address = websocket(|peer, number, opcode, payload| {
        if number == 40 {
            std::thread::sleep(STALL);
        }
        peer.send(opcode, &payload)
    });
    let run = run(&with(echo(address, "text", 32), json!({"measure": {"messages": 200}})));
    run.ledger_is(200, 0, 0);
    let service = &run.histograms["service"];
    assert!(service.max() >= STALL.as_nanos() as u64, "{} ns", service.max());
    assert_eq!(service.count_between(STALL.as_nanos() as u64 / 2, u64::MAX / 2), 1, "and only there");
}

#[test]
fn a_stall_that_hits_every_connection_is_seen_once_for_each() {
    let gate = Arc::new((Mutex::new(()), AtomicUsize::new(0)));
    let address = websocket(move |peer, _, opcode, payload| {
        let (lock, count) = &*gate;
        let guard = lock.lock().unwrap();
        if count.fetch_add(1, Ordering::Relaxed) == 400 {
            std::thread::sleep(STALL);
        }
        drop(guard);
        peer.send(opcode, &payload)
    });
    let plan = with(echo(address, "text", 32), json!({"connections": 8, "threads": 2, "measure": {"messages": 4000}}));
    let run = run(&plan);
    run.ledger_is(4000, 0, 0);
    let slow = run.histograms["service"].count_between(STALL.as_nanos() as u64 / 2, u64::MAX / 2);
    assert_eq!(slow, 8, "a closed loop shows a stall once for each connection");
}

#[test]
fn a_stall_in_the_warmup_is_not_in_the_result() {
    let address = websocket(|peer, number, opcode, payload| {
        if number == 10 {
            std::thread::sleep(STALL);
        }
        peer.send(opcode, &payload)
    });
    let run = run(&with(echo(address, "text", 32), json!({"warmup": {"messages": 50}, "measure": {"messages": 50}})));
    assert!(run.histograms["warmup-service"].max() >= STALL.as_nanos() as u64);
    assert!(run.histograms["service"].max() < STALL.as_nanos() as u64);
    assert_eq!([run.count("warmup-service"), run.count("service")], [50, 50]);
    assert!(run.measured("window_ns") < STALL.as_nanos() as u64, "the window begins after the warm-up");
}

#[test]
fn a_slow_handshake_is_awaited_before_anything_is_sent() {
    let used = Arc::new(AtomicUsize::new(0));
    let seen = used.clone();
    let address = serve(move |peer| {
        let head = peer.head()?;
        std::thread::sleep(Duration::from_millis(20 * (peer.number as u64 + 1)));
        peer.raw(switching(&accept_for(&head)).as_bytes())?;
        let (opcode, payload) = peer.frame()?;
        if opcode == TEXT {
            seen.fetch_add(1, Ordering::Relaxed);
        }
        peer.send(opcode, &payload)?;
        loop {
            let (opcode, payload) = peer.frame()?;
            peer.send(opcode, &payload)?;
        }
    });
    let run = run(&with(echo(address, "text", 32), json!({"connections": 10, "measure": {"seconds": 0.5}})));
    run.errors_are(json!({}));
    assert_eq!(run.count("connect"), 10);
    assert_eq!(used.load(Ordering::Relaxed), 10, "every connection takes part");
    assert!(run.histograms["connect"].max() >= 200_000_000, "the slowest handshake took 200 ms");
}

#[test]
fn connects_that_wait_for_the_accept_queue_are_in_the_connect_times() {
    let address = serve(|peer| {
        std::thread::sleep(Duration::from_millis(150));
        peer.upgrade()?;
        loop {
            let (opcode, payload) = peer.frame()?;
            peer.send(opcode, &payload)?;
        }
    });
    let limits = json!({"connect_s": 10.0, "reply_s": 1.0, "deadline_s": 30.0});
    let run = run(&with(
        echo(address, "text", 32),
        json!({"connections": 250, "threads": 2, "measure": {"messages": 500}, "limits": limits}),
    ));
    run.errors_are(json!({}));
    run.ledger_is(500, 0, 0);
    assert_eq!(run.count("connect"), 250);
    assert!(run.histograms["connect"].min() >= 140_000_000);
}

#[test]
fn all_workers_together_leave_room_in_a_backlog_of_128() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let address = serve(move |peer| {
        seen.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(150));
        now.fetch_sub(1, Ordering::Relaxed);
        peer.upgrade()?;
        loop {
            let (opcode, payload) = peer.frame()?;
            peer.send(opcode, &payload)?;
        }
    });
    let limits = json!({"connect_s": 10.0, "reply_s": 1.0, "deadline_s": 30.0});
    let changes = json!({"connections": 400, "threads": 2, "measure": {"messages": 400}, "limits": limits});
    run(&with(echo(address, "text", 32), changes)).ledger_is(400, 0, 0);
    assert!(most.load(Ordering::Relaxed) <= 128, "{} at once", most.load(Ordering::Relaxed));
}

#[test]
fn a_reply_that_comes_in_the_drain_is_answered_but_not_in_the_window() {
    let address = websocket(|peer, number, opcode, payload| {
        if number == 3 {
            std::thread::sleep(Duration::from_millis(600));
        }
        peer.send(opcode, &payload)
    });
    let plan = with(echo(address, "text", 32), json!({"measure": {"seconds": 0.3}, "drain_s": 5.0}));
    let run = run(&plan);
    run.errors_are(json!({}));
    run.ledger_is(3, 0, 0);
    assert_eq!(run.measured("replies_in_window"), 2);
    let window = run.measured("window_ns");
    assert!((299_000_000..302_000_000).contains(&window), "the window is the plan's, not the reply's: {window}");
}

#[test]
fn a_reply_that_never_comes_is_unanswered_when_the_drain_ends() {
    let address = echo_until_third(|peer, _, _| peer.ignore());
    let plan = with(
        echo(address, "text", 32),
        json!({"connections": 4, "measure": {"seconds": 0.3}, "drain_s": 0.3, "limits": {"connect_s": 1.0, "reply_s": 20.0, "deadline_s": 30.0}}),
    );
    let run = run(&plan);
    run.errors_are(json!({}));
    run.ledger_is(8, 0, 4);
}

#[test]
fn a_warmup_by_time_runs_into_the_measurement_without_a_pause() {
    let address = websocket(|peer, _, opcode, payload| {
        std::thread::sleep(Duration::from_millis(100));
        peer.send(opcode, &payload)
    });
    let plan = with(
        echo(address, "text", 32),
        json!({"warmup": {"seconds": 0.25}, "measure": {"seconds": 0.5}, "drain_s": 2.0}),
    );
    let run = run(&plan);
    assert_eq!(run.phases(), ["connect", "warmup", "measure", "drain"]);
    let measures = run.all("phase").into_iter().find(|event| event["phase"] == "measure").expect("it measures");
    let begins = run.all("tick").into_iter().find(|tick| tick["t_ns"] == measures["t_ns"]).expect("its tick");
    let [sent, answered] = ["sent", "answered"].map(|key| begins[key].as_u64().expect("a count"));
    assert_eq!(sent, answered + 1, "one was under way when the measurement began");
    assert_eq!(run.count("warmup-service"), sent, "it was sent in the warm-up, its reply came in the measurement");
    assert_eq!(run.measured("sent"), run.count("service"));
    assert_eq!(
        run.measured("replies_in_window"),
        run.measured("answered"),
        "one reply from the warm-up came, one is late"
    );
    assert_eq!(run.measured("unanswered"), 0);
}

#[test]
fn a_count_is_shared_among_workers_and_met_exactly() {
    let address = echo_server();
    let plan = with(
        echo(address, "binary", 32),
        json!({"connections": 7, "threads": 3, "warmup": {"messages": 100}, "measure": {"messages": 1001}}),
    );
    let run = run(&plan);
    run.ledger_is(1001, 0, 0);
    assert_eq!(run.count("warmup-service"), 100);
    assert_eq!(run.end()["threads"].as_array().unwrap().len(), 3);
}

#[test]
fn a_worker_that_ends_first_stays_in_the_cumulative_counts() {
    let address = serve(|peer| {
        peer.upgrade()?;
        loop {
            let (opcode, payload) = peer.frame()?;
            if peer.number == 0 {
                std::thread::sleep(Duration::from_millis(60));
            }
            peer.send(opcode, &payload)?;
        }
    });
    let plan = with(echo(address, "text", 32), json!({"connections": 2, "threads": 2, "measure": {"messages": 60}}));
    let run = run(&plan);
    run.ledger_is(60, 0, 0);
    assert_eq!(run.all("tick").last().unwrap()["sent"], 60);
}

#[test]
fn fewer_messages_than_workers_are_sent_exactly() {
    let address = echo_server();
    let run =
        run(&with(echo(address, "text", 32), json!({"connections": 4, "threads": 4, "measure": {"messages": 2}})));
    run.ledger_is(2, 0, 0);
}

#[test]
fn a_request_that_was_not_closed_in_time_is_unanswered() {
    let address = serve(|peer| {
        peer.head()?;
        peer.raw(&ok(100, "Connection: close\r\n"))?;
        peer.ignore()
    });
    let limits = json!({"connect_s": 1.0, "reply_s": 20.0, "deadline_s": 30.0});
    let run =
        run(&with(doc(address, false, 100), json!({"measure": {"seconds": 0.3}, "drain_s": 0.3, "limits": limits})));
    run.ledger_is(0, 0, 1);
}
