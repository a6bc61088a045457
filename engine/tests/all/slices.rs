//! Slices: the engine loads its server in windows, counts only in them, and is silent in between.

use crate::support::server::*;
use crate::support::{Run, closed, doc, echo, open, run, start, thinking, with};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const WINDOWS: [[f64; 2]; 3] = [[0.15, 0.25], [0.45, 0.55], [0.75, 0.85]];
const LEAD_S: f64 = 0.05;
const TAIL_S: f64 = 0.05;

/// The first window is in the warm-up, which ends after 0.35 s.
fn sliced(pace: Value, frozen: bool) -> Value {
    json!({
        "loop": pace, "connections": 4, "threads": 2, "warmup": {"seconds": 0.35}, "measure": {"seconds": 0.65},
        "slices": {"windows": WINDOWS, "lead_s": LEAD_S, "tail_s": TAIL_S, "frozen": frozen},
    })
}

fn honest() -> SocketAddr {
    websocket(|peer, _, opcode, payload| match opcode {
        CLOSE => Ok(()),
        _ => peer.send(opcode, &payload),
    })
}

/// The tick at this instant after the first phase began.
fn at(run: &Run, seconds: f64, key: &str) -> u64 {
    let began = run.all("phase").iter().find(|phase| phase["phase"] == "warmup").expect("it warms up")["t_ns"].clone();
    let t_ns = began.as_u64().unwrap() + (seconds * 1e9).round() as u64;
    let ticks = run.all("tick");
    let tick = ticks.iter().find(|tick| tick["t_ns"].as_u64() == Some(t_ns));
    tick.unwrap_or_else(|| panic!("no tick after {seconds} s: {ticks:?}"))[key].as_u64().unwrap()
}

#[test]
fn a_closed_loop_is_silent_between_its_slices() {
    let run = run(&with(echo(honest(), "text", 32), sliced(closed(2), false)));
    run.errors_are(json!({}));
    for [opens, closes] in WINDOWS {
        assert!(at(&run, opens, "sent") > at(&run, opens - LEAD_S, "sent"), "it sends in the lead");
        assert!(at(&run, closes, "answered") > at(&run, opens, "answered"), "and in the window");
    }
    for (before, after) in WINDOWS.iter().zip(&WINDOWS[1..]) {
        let rested = ["sent", "bytes_sent"].map(|key| at(&run, after[0] - LEAD_S, key) - at(&run, before[1], key));
        assert_eq!(rested, [0, 0], "and nowhere else");
    }
    let counted: u64 = WINDOWS[1..].iter().map(|w| at(&run, w[1], "answered") - at(&run, w[0], "answered")).sum();
    assert_eq!(run.measured("replies_in_window"), counted, "replies in the measured windows");
    assert_eq!(run.measured("window_ns"), 200_000_000, "the sum of the measured windows");
    assert_eq!(run.measured("unanswered"), 0);
    let led: u64 = WINDOWS[1..].iter().map(|w| at(&run, w[0], "sent") - at(&run, w[0] - LEAD_S, "sent")).sum();
    let warmed = at(&run, WINDOWS[0][1], "sent");
    assert_eq!(run.count("warmup-service"), warmed + led, "what was sent in a lead is not measured");
    for worker in run.end()["threads"].as_array().unwrap() {
        assert_eq!(worker["wall_ns"], 200_000_000);
    }
}

#[test]
fn the_schedule_of_an_open_loop_pauses_between_slices() {
    let run = run(&with(echo(honest(), "text", 32), sliced(open("constant", 1000.0, None), false)));
    run.errors_are(json!({}));
    let due = run.measured("sent") + run.measured("unsent");
    assert_eq!(due, 200, "1,000 a second for two windows of 100 ms");
    let in_leads = run.count("warmup-response");
    assert!(in_leads <= 250, "the leads, and the slice of the warm-up: {in_leads}");
    assert_eq!(run.count("response"), run.measured("answered"));
}

#[test]
fn a_backlog_does_not_leave_in_the_turn_of_another() {
    // One connection, one message at a time, 20 ms each: of 100 due in a window, 95 cannot leave in it.
    let slow = websocket(|peer, _, opcode, payload| {
        std::thread::sleep(Duration::from_millis(20));
        peer.send(opcode, &payload)
    });
    let mut changes = sliced(open("constant", 1000.0, Some(1)), false);
    (changes["connections"], changes["threads"]) = (json!(1), json!(1));
    let run = run(&with(echo(slow, "text", 32), changes));
    let (sent, unsent) = (run.measured("sent"), run.measured("unsent"));
    assert_eq!(sent + unsent, 200);
    assert!(unsent > 150, "{sent} sent, {unsent} unsent");
    assert_eq!(at(&run, WINDOWS[2][0] - LEAD_S, "sent"), at(&run, WINDOWS[1][1], "sent"));
}

#[test]
fn a_frozen_rest_is_not_part_of_a_reply() {
    // The first message of the second slice is answered in the third, 0.3 s later, after a rest of 0.1 s.
    let longest = |frozen| {
        let late = websocket(|peer, number, opcode, payload| {
            std::thread::sleep(Duration::from_millis(if number == 2 { 320 } else { 110 }));
            peer.send(opcode, &payload)
        });
        let mut changes = sliced(closed(1), frozen);
        (changes["connections"], changes["threads"]) = (json!(1), json!(1));
        let run = run(&with(echo(late, "text", 32), changes));
        run.errors_are(json!({}));
        run.histograms.values().map(|found| found.max()).max().unwrap()
    };
    let (awake, frozen) = (longest(false), longest(true));
    assert!(awake >= 317_000_000, "{awake}");
    // A rest is from the end of a tail to the next start.
    assert!(frozen + 90_000_000 <= awake + 60_000_000, "{frozen} of {awake}");
}

#[test]
fn a_frozen_server_owes_no_reply() {
    let timeouts = |frozen| {
        let late = websocket(|peer, number, opcode, payload| {
            std::thread::sleep(Duration::from_millis(if number == 1 { 1000 } else { 1 }));
            peer.send(opcode, &payload)
        });
        let mut changes = sliced(closed(1), frozen);
        (changes["connections"], changes["threads"]) = (json!(1), json!(1));
        (changes["warmup"], changes["measure"]) = (json!({"seconds": 0.3}), json!({"seconds": 1.2}));
        changes["slices"]["windows"] = json!([[0.05, 0.1], [1.1, 1.2]]);
        (changes["slices"]["lead_s"], changes["slices"]["tail_s"]) = (json!(0.02), json!(0.02));
        changes["limits"] = json!({"connect_s": 0.6, "reply_s": 0.6, "deadline_s": 10});
        run(&with(echo(late, "text", 32), changes)).all("error").len()
    };
    // It rests from 0.12 to 1.08 s, and answers about 1 s late.
    assert_eq!((timeouts(false), timeouts(true)), (1, 0));
}

#[test]
fn connections_that_come_and_go_rest_too() {
    let page = http(|peer, _, _| {
        peer.raw(&ok(64, "Connection: close\r\n"))?;
        peer.finish()
    });
    let exchanged = thinking(1, Value::Null, Some(1));
    for (plan, pace) in [(echo(honest(), "text", 32), exchanged), (doc(page, false, 64), closed(1))] {
        let mut changes = sliced(pace, false);
        changes["measure"] = json!({"seconds": 1.2});
        changes["slices"]["windows"] = json!([[0.15, 0.25], [1.3, 1.4]]);
        let run = run(&with(plan, changes));
        run.errors_are(json!({}));
        assert_eq!(run.end()["outcome"], "completed");
        assert!(run.measured("answered") > 0, "{}", run.end());
        assert_eq!(at(&run, 1.3 - LEAD_S, "sent"), at(&run, 0.25, "sent"), "silent in the rest");
        assert!(run.count("connect") + run.count("warmup-connect") >= run.measured("answered"));
        let tags = ["connect", "warmup-connect", "service", "warmup-service"];
        let slow: u64 = tags.iter().map(|tag| run.at_least(tag, Duration::from_millis(800))).sum();
        assert_eq!(slow, 0, "nobody waits through the rest of a second");
    }
}

#[test]
fn slices_that_cannot_be_kept_are_refused() {
    let good = with(echo(nobody(), "text", 32), sliced(closed(1), false));
    for (windows, why) in [
        (json!([]), "slices.windows"),
        (json!([[0.15, 0.25]]), "slices.windows"),
        (json!([[0.15, 0.25], [0.3, 0.4]]), "slices.windows"),
        (json!([[0.45, 0.55], [0.6, 0.7]]), "slices.windows"),
        (json!([[0.45, 0.97]]), "slices.windows"),
        (json!([[0.04, 0.1], [0.45, 0.5]]), "slices.windows"),
        (json!([[0.5, 0.45]]), "slices.windows"),
    ] {
        let mut plan = good.clone();
        plan["slices"]["windows"] = windows.clone();
        refused(&plan, why, &windows);
    }
    for (key, value) in [
        ("measure", json!({"messages": 5})),
        ("stages", json!([{"to": 4, "over_s": 0.1, "chunk": 1}])),
        ("scenario", json!({"kind": "push", "slow_readers": 0.0})),
    ] {
        let mut changes = json!({key: value.clone()});
        if key == "scenario" {
            changes["loop"] = open("constant", 10.0, None);
        }
        refused(&with(good.clone(), changes), if key == "stages" { "stages" } else { "slices" }, &value);
    }
}

fn refused(plan: &Value, key: &str, what: &Value) {
    let mut running = start(plan);
    assert_eq!(running.status().code(), Some(2), "{what}");
    let said = running.stderr();
    assert!(said.contains(&format!("`{key}")), "{what}: {said}");
}
