//! Connections that join and leave by a plan, connections that open at a rate, and idle connections.

use crate::support::server::*;
use crate::support::{Run, echo, plan, run, with};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn idle(address: SocketAddr) -> Value {
    with(plan(json!({"kind": "idle"}), "websocket", address, "/echo"), json!({"loop": {"kind": "none"}}))
}

fn stage(to: usize, over_s: f64, chunk: usize) -> Value {
    json!({"to": to, "over_s": over_s, "chunk": chunk})
}

type Closed = Arc<Mutex<Vec<usize>>>;

/// An echo that answers each handshake and each message after a delay, and records which connections closed properly.
fn slow_echo(handshake: Duration, reply: Duration) -> (SocketAddr, Closed) {
    let closed = Closed::default();
    let seen = closed.clone();
    let address = serve(move |peer| {
        let head = peer.head()?;
        std::thread::sleep(handshake);
        peer.raw(switching(&accept_for(&head)).as_bytes())?;
        loop {
            let (opcode, payload) = peer.frame()?;
            if opcode == CLOSE {
                seen.lock().unwrap().push(peer.number);
                peer.send(CLOSE, &payload)?;
                return peer.finish();
            }
            std::thread::sleep(reply);
            peer.send(opcode, &payload)?;
        }
    });
    (address, closed)
}

fn open_at_ticks(run: &Run, phase: &str) -> Vec<u64> {
    run.all("tick").iter().filter(|tick| tick["phase"] == phase).map(|tick| tick["open"].as_u64().unwrap()).collect()
}

#[test]
fn connections_follow_the_stages_up_and_down_and_leave_politely() {
    let (address, closed) = slow_echo(Duration::ZERO, Duration::ZERO);
    let stages = json!([stage(8, 0.8, 1), stage(8, 1.0, 1), stage(2, 0.6, 2)]);
    let run = run(&with(idle(address), json!({"connections": 8, "stages": stages, "measure": {"seconds": 3.5}})));
    run.errors_are(json!({}));
    assert_eq!(run.end()["connections"], json!({"asked": 8, "established": 8, "open": 2}));
    let open = open_at_ticks(&run, "measure");
    let highest = open.iter().position(|&open| open == 8).expect("all of them were there between the stages");
    assert!(open[..highest].is_sorted() && open[highest..].is_sorted_by(|a, b| a >= b), "up, then down: {open:?}");
    assert_eq!(*open.last().unwrap(), 2, "{open:?}");
    let closed = closed.lock().unwrap();
    let mut first_six = closed[..6].to_vec();
    for pair in first_six.chunks_mut(2) {
        pair.sort();
    }
    assert_eq!(first_six, [6, 7, 4, 5, 2, 3], "the last to come is the first to go, two at a time");
}

#[test]
fn who_is_to_leave_while_shaking_hands_leaves_when_that_is_done() {
    let (address, closed) = slow_echo(Duration::from_millis(600), Duration::ZERO);
    for (change, name) in [(json!({"kind": "none"}), "idle"), (crate::support::closed(1), "echo")] {
        let base = if name == "idle" { idle(address) } else { echo(address, "text", 32) };
        let stages = json!([stage(4, 0.1, 1), stage(0, 0.1, 1)]);
        let changes = json!({"loop": change, "connections": 4, "stages": stages, "measure": {"seconds": 2.5}});
        let run = run(&with(base, changes));
        run.errors_are(json!({}));
        assert_eq!(run.end()["connections"], json!({"asked": 4, "established": 4, "open": 0}), "{name}");
        assert_eq!(closed.lock().unwrap().drain(..).count(), 4, "{name}");
        assert_eq!(run.measured("sent"), 0);
    }
}

#[test]
fn who_comes_back_before_the_last_reply_stays() {
    let (address, _) = slow_echo(Duration::ZERO, Duration::from_millis(500));
    let stages = json!([stage(3, 0.1, 1), stage(0, 0.1, 1), stage(3, 0.1, 1)]);
    for pace in [crate::support::closed(1), crate::support::open("constant", 30.0, Some(1))] {
        let changes = json!({
            "loop": pace, "connections": 3, "stages": stages, "measure": {"seconds": 2.5},
        });
        let run = run(&with(echo(address, "text", 32), changes));
        run.errors_are(json!({}));
        assert_eq!(run.end()["connections"]["open"], 3);
        assert!(open_at_ticks(&run, "measure").iter().all(|&open| open <= 3));
        assert!(run.measured("answered") >= 6, "they go on: {}", run.end());
    }
}

#[test]
fn who_comes_back_before_the_goodbye_is_answered_is_connected_anew() {
    let address = serve(|peer| {
        peer.upgrade()?;
        loop {
            let (opcode, payload) = peer.frame()?;
            if opcode == CLOSE {
                std::thread::sleep(Duration::from_millis(600));
                peer.send(CLOSE, &payload)?;
                return peer.finish();
            }
        }
    });
    let stages = json!([stage(3, 0.1, 1), stage(0, 0.1, 1), stage(3, 0.1, 1)]);
    let changes = json!({"connections": 3, "stages": stages, "measure": {"seconds": 2.5}});
    let run = run(&with(idle(address), changes));
    run.errors_are(json!({}));
    assert_eq!(run.end()["connections"], json!({"asked": 3, "established": 6, "open": 3}));
}

#[test]
fn who_comes_back_thinks_once() {
    let (address, _) = slow_echo(Duration::ZERO, Duration::ZERO);
    let mut stages = vec![stage(1, 0.01, 1)];
    for _ in 0..5 {
        stages.extend([stage(0, 0.05, 1), stage(1, 0.05, 1)]);
    }
    let think = json!({"kind": "constant", "mean_s": 0.5});
    let changes = json!({
        "loop": crate::support::thinking(1, think, None), "connections": 1, "stages": stages, "measure": {"seconds": 2.5},
    });
    let run = run(&with(echo(address, "text", 32), changes));
    run.errors_are(json!({}));
    let sent = run.measured("sent");
    assert!(
        (1..=4).contains(&sent),
        "one user, who pauses for 500 ms, in the two seconds after the last return: {sent}"
    );
}

#[test]
fn connects_keep_their_pace() {
    let (address, _) = slow_echo(Duration::ZERO, Duration::ZERO);
    let connect = json!({"per_s": 20.0, "at_once": 100});
    let changes = json!({"connections": 10, "threads": 2, "connect": connect, "measure": {"seconds": 0.2}});
    let run = run(&with(idle(address), changes));
    run.errors_are(json!({}));
    assert_eq!(run.count("connect"), 10);
    let phases = run.all("phase");
    let took = phases[1]["t_ns"].as_u64().unwrap() - phases[0]["t_ns"].as_u64().unwrap();
    assert!(took >= 449_000_000, "the tenth is due 450 ms after the first: {took} ns");
    assert!(took < 5_000_000_000, "{took} ns");
}

#[test]
fn idle_connections_answer_pings_and_send_nothing() {
    let (data, pongs) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (saw_data, saw_pongs) = (data.clone(), pongs.clone());
    let address = serve(move |peer| {
        peer.upgrade()?;
        for number in 0..3u8 {
            peer.send(PING, &[b'p', number])?;
        }
        loop {
            match peer.frame()? {
                (PONG, payload) => saw_pongs.lock().unwrap().push(payload),
                (CLOSE, payload) => {
                    peer.send(CLOSE, &payload)?;
                    return peer.finish();
                }
                (opcode, _) => saw_data.lock().unwrap().push(opcode),
            }
        }
    });
    let run = run(&with(idle(address), json!({"connections": 4, "measure": {"seconds": 0.5}})));
    run.errors_are(json!({}));
    run.ledger_is(0, 0, 0);
    assert_eq!(run.control("pings_answered"), 12);
    let mut pongs = pongs.lock().unwrap().clone();
    pongs.sort();
    assert_eq!(pongs, [[b'p', 0]; 4].into_iter().chain([[b'p', 1]; 4]).chain([[b'p', 2]; 4]).collect::<Vec<_>>());
    assert!(data.lock().unwrap().is_empty(), "nothing but pongs");
    assert_eq!(run.end()["connections"], json!({"asked": 4, "established": 4, "open": 4}));
}

#[test]
fn idle_connections_that_die_are_seen() {
    for transport in ["websocket", "tcp"] {
        let address = serve(move |peer| {
            if transport == "websocket" {
                peer.upgrade()?;
            }
            std::thread::sleep(Duration::from_millis(300));
            match peer.number {
                0 => peer.finish(),
                1 => peer.reset(),
                _ => peer.ignore(),
            }
        });
        let path = if transport == "tcp" { "/" } else { "/echo" };
        let base = plan(json!({"kind": "idle"}), transport, address, path);
        let changes = json!({"loop": {"kind": "none"}, "connections": 4, "measure": {"seconds": 2.0}});
        let run = run(&with(base, changes));
        run.errors_are(json!({"closed_early": 1, "reset": 1}));
        assert_eq!(run.end()["connections"], json!({"asked": 4, "established": 4, "open": 2}));
        assert_eq!(run.end()["outcome"], "completed");
    }
}
