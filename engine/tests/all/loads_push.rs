//! Broadcasts: every copy is counted for its broadcast, and unexpected copies are counted separately.

use crate::support::server::*;
use crate::support::{Run, engine, folder, open, plan, run, with};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Members = Arc<Mutex<Vec<(usize, TcpStream)>>>;

/// Sends every broadcast to all members, as many copies as `copies` gives for the member and the
/// broadcast, then passes the member's connection to `after`.
fn push_server(
    copies: impl Fn(usize, u64) -> usize + Send + Sync + 'static,
    after: impl Fn(usize, &mut TcpStream, &str) + Send + Sync + 'static,
) -> SocketAddr {
    let members = Members::default();
    serve(move |peer| {
        {
            // No broadcast occurs between the answer and the member's entry in the list.
            let mut members = members.lock().unwrap();
            peer.upgrade()?;
            members.push((peer.number, peer.writer()));
        }
        loop {
            let (opcode, payload) = peer.frame()?;
            if opcode == CLOSE {
                members.lock().unwrap().retain(|(number, _)| *number != peer.number);
                peer.send(CLOSE, &payload)?;
                return peer.finish();
            }
            let text = String::from_utf8(payload).unwrap();
            let token = text.strip_prefix("broadcast ").expect("nothing else is sent");
            let broadcast = u64::from_str_radix(token.split('-').nth(1).unwrap(), 16).unwrap();
            for (number, stream) in members.lock().unwrap().iter_mut() {
                for _ in 0..copies(*number, broadcast) {
                    // A member that has left does not affect the others.
                    let _ = stream.write_all(&frame(0x80 | TEXT, format!("1700000000000000 {token}").as_bytes()));
                }
                after(*number, stream, token);
            }
        }
    })
}

/// Ten broadcasts to six connections of two threads.
fn push(address: SocketAddr, slow_readers: f64) -> Value {
    let changes = json!({
        "loop": open("constant", 20.0, None), "connections": 6, "threads": 2, "measure": {"seconds": 0.5}, "drain_s": 3.0,
    });
    with(plan(json!({"kind": "push", "slow_readers": slow_readers}), "websocket", address, "/push"), changes)
}

/// The expected and received copies of each broadcast.
fn reach(run: &Run) -> Vec<(u64, u64)> {
    let broadcasts = run.all("broadcast");
    broadcasts.iter().map(|one| (one["expected"].as_u64().unwrap(), one["received"].as_u64().unwrap())).collect()
}

#[test]
fn every_receiver_of_all_threads_is_counted() {
    let run = run(&push(push_server(|_, _| 1, |_, _, _| ()), 0.0));
    run.errors_are(json!({}));
    run.ledger_is(60, 0, 0);
    assert_eq!(reach(&run), [(6, 6); 10]);
    for (number, broadcast) in run.all("broadcast").into_iter().enumerate() {
        let times = ["t_ns", "first_ns", "last_ns"].map(|key| broadcast[key].as_u64().unwrap());
        assert!(times.is_sorted(), "{broadcast}");
        assert_eq!(broadcast["number"], number);
    }
    assert_eq!(["push", "push_stamp", "send_lag"].map(|tag| run.count(tag)), [60, 60, 10]);
    assert_eq!([run.control("out_of_order"), run.control("foreign")], [0, 0]);
}

#[test]
fn a_copy_that_comes_twice_is_out_of_order() {
    let run = run(&push(push_server(|member, _| 1 + usize::from(member == 3), |_, _, _| ()), 0.0));
    run.errors_are(json!({}));
    run.ledger_is(60, 0, 0);
    assert_eq!(reach(&run), [(6, 6); 10]);
    assert_eq!(run.control("out_of_order"), 10);
}

#[test]
fn a_member_that_is_left_out_lowers_the_reach() {
    let run =
        run(&push(push_server(|member, broadcast| usize::from(member != 3 || broadcast != 4), |_, _, _| ()), 0.0));
    run.errors_are(json!({}));
    run.ledger_is(59, 0, 1);
    let mut expected = [(6, 6); 10];
    expected[4] = (6, 5);
    assert_eq!(reach(&run), expected);
}

#[test]
fn a_broadcast_that_nobody_receives_has_no_times() {
    let run = run(&push(push_server(|_, broadcast| usize::from(broadcast != 2), |_, _, _| ()), 0.0));
    run.ledger_is(54, 0, 6);
    let broadcast = run.all("broadcast")[2];
    assert_eq!([&broadcast["first_ns"], &broadcast["last_ns"]], [&Value::Null, &Value::Null]);
    assert_eq!(broadcast["received"], 0);
}

#[test]
fn a_member_that_dies_is_no_longer_expected() {
    let address = push_server(
        |_, _| 1,
        |member, stream, token| {
            if member == 5 && token.contains("-00000004-") {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        },
    );
    let run = run(&push(address, 0.0));
    run.errors_are(json!({"closed_early": 1}));
    let reach = reach(&run);
    assert_eq!(reach[..5], [(6, 6); 5]);
    assert_eq!(reach[9], (5, 5), "half a second later at the latest: {reach:?}");
    assert_eq!(run.end()["connections"]["open"], 5);
}

#[test]
fn slow_readers_answer_no_ping() {
    let address = serve(|peer| {
        let head = peer.head()?;
        // Both in one read.
        peer.raw(&[switching(&accept_for(&head)).as_bytes(), &frame(0x80 | PING, b"")].concat())?;
        while peer.frame()?.0 != CLOSE {}
        peer.send(CLOSE, b"")?;
        peer.finish()
    });
    let run = run(&with(push(address, 0.5), json!({"drain_s": 0.2})));
    run.errors_are(json!({}));
    assert_eq!(run.control("pings_answered"), 3, "half of six");
}

#[test]
fn slow_readers_are_not_expected_and_never_read() {
    // Data that they do not read has to stay with the server: more than both sockets hold.
    let stuck = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let seen = stuck.clone();
    let address = push_server(
        |_, _| 1,
        move |member, stream, token| {
            if !token.contains("-00000009-") {
                return;
            }
            stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
            // Only Pings: this test is not about the scenario's limit on message length.
            let pings = frame(0x80 | PING, &[b'p'; 125]).repeat(100_000);
            if stream.write_all(&pings).is_err() {
                seen.lock().unwrap().insert(member);
            }
        },
    );
    let changes = json!({"connect": {"per_s": 50.0, "at_once": 2}});
    let run = run(&with(push(address, 0.5), changes));
    assert_eq!(reach(&run)[..9], [(3, 3); 9], "half of six, the first of all among them");
    let stuck = stuck.lock().unwrap();
    assert!([1, 3, 5].iter().all(|member| stuck.contains(member)), "every second of the six: {stuck:?}");
}

#[test]
fn broadcasts_of_other_processes_are_foreign() {
    let address = push_server(
        |_, _| 1,
        |_, stream, _| {
            let _ = stream.write_all(&frame(0x80 | TEXT, b"1700000000000000 0007-00000000-00000005"));
        },
    );
    let run = run(&push(address, 0.0));
    run.errors_are(json!({}));
    run.ledger_is(60, 0, 0);
    assert_eq!(run.control("foreign"), 60);
    assert_eq!(reach(&run), [(6, 6); 10]);
}

#[test]
fn a_notice_that_is_none_is_reply_content() {
    let address = push_server(
        |_, _| 1,
        |member, stream, token| {
            if member == 0 && token.contains("-00000001-") {
                let _ = stream.write_all(&frame(0x80 | TEXT, b"hello"));
                let _ = stream.write_all(&frame(0x80 | TEXT, b"1700000000000000 0000-0000ffff"));
            }
        },
    );
    let run = run(&push(address, 0.0));
    run.errors_are(json!({"reply_content": 2}));
    run.ledger_is(60, 0, 0);
}

#[test]
fn who_joins_after_a_broadcast_was_triggered_is_not_counted_for_it() {
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let members = Members::default();
    let address = serve(move |peer| {
        peer.upgrade()?;
        let mut own = peer.writer();
        {
            // Like a server that adds a member to its list before the member knows: here with every broadcast so far.
            let mut members = members.lock().unwrap();
            for token in tokens.lock().unwrap().iter() {
                own.write_all(&frame(0x80 | TEXT, format!("1700000000000000 {token}").as_bytes()))?;
            }
            members.push((peer.number, own));
        }
        loop {
            let (opcode, payload) = peer.frame()?;
            if opcode == CLOSE {
                peer.send(CLOSE, &payload)?;
                return peer.finish();
            }
            let text = String::from_utf8(payload).unwrap();
            let token = text.strip_prefix("broadcast ").unwrap();
            let mut members = members.lock().unwrap();
            tokens.lock().unwrap().push(token.to_string());
            for (_, stream) in members.iter_mut() {
                let _ = stream.write_all(&frame(0x80 | TEXT, format!("1700000000000000 {token}").as_bytes()));
            }
        }
    });
    let stages = json!([{"to": 2, "over_s": 0.2, "chunk": 2}, {"to": 6, "over_s": 0.8, "chunk": 1}]);
    let run = run(&with(push(address, 0.0), json!({"stages": stages, "measure": {"seconds": 1.5}})));
    run.errors_are(json!({}));
    assert!(reach(&run).iter().all(|(expected, received)| received <= expected), "{:?}", reach(&run));
    assert_eq!(run.measured("answered"), run.measured("sent"), "{}", run.end());
    assert_eq!(run.control("out_of_order"), 0);
}

#[test]
fn more_broadcasts_than_can_be_kept_are_unsent() {
    let address = serve(|peer| {
        peer.upgrade()?;
        peer.ignore()
    });
    let changes = json!({
        "loop": open("constant", 200_000.0, None), "connections": 1, "threads": 1, "measure": {"seconds": 0.5},
        "drain_s": 0.2,
    });
    let run = run(&with(push(address, 0.0), changes));
    run.ledger_is(0, 0, 65_536);
    assert_eq!(run.measured("unsent"), 100_000 - 65_536);
}

#[test]
fn a_push_that_ends_by_count_is_refused() {
    let folder = folder();
    for key in ["measure", "warmup"] {
        let plan = with(push(nobody(), 0.0), json!({key: {"messages": 10}}));
        let path = folder.join("plan.json");
        std::fs::write(&path, plan.to_string()).unwrap();
        let output = engine().arg(&path).arg(folder.join("out")).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains("`measure`") && line.contains("seconds"), "{line}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
