//! Open loops: due times do not depend on the replies, and unsent messages are counted. The numbers of messages are
//! exactly the schedule's. A time is asserted only if lateness could not make it true.

use crate::support::server::*;
use crate::support::{Run, doc, echo, open, run, start, with};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

fn honest() -> SocketAddr {
    websocket(|peer, _, opcode, payload| match opcode {
        CLOSE => Ok(()),
        _ => peer.send(opcode, &payload),
    })
}

fn due(run: &Run) -> u64 {
    run.measured("sent") + run.measured("unsent")
}

#[test]
fn a_constant_rate_sends_its_schedule() {
    let changes = json!({
        "loop": open("constant", 200.0, None), "connections": 5, "threads": 2, "measure": {"seconds": 1.0},
    });
    let run = run(&with(echo(honest(), "text", 32), changes));
    run.errors_are(json!({}));
    run.ledger_is(200, 0, 0);
    assert_eq!(run.measured("unsent"), 0);
    assert_eq!([run.count("response"), run.count("send_lag")], [200, 200]);
}

#[test]
fn what_the_kernel_has_no_room_for_is_sent_when_it_has_some() {
    // 30 MiB fall due while the server does not read, more than two sockets hold; then it reads them in small steps.
    let address = serve(|peer| {
        peer.upgrade()?;
        std::thread::sleep(Duration::from_millis(350));
        loop {
            let (opcode, payload) = peer.frame()?;
            if opcode == CLOSE {
                peer.send(CLOSE, &payload)?;
                return peer.finish();
            }
            std::thread::sleep(Duration::from_millis(5));
            peer.send(opcode, &payload)?;
        }
    });
    let changes = json!({"loop": open("constant", 100.0, None), "measure": {"messages": 30}});
    let run = run(&with(echo(address, "binary", 1 << 20), changes));
    run.errors_are(json!({}));
    run.ledger_is(30, 0, 0);
}

#[test]
fn a_ramp_sends_its_area_and_the_warmup_has_its_own_part_of_it() {
    let rate = json!([
        {"from_per_s": 0.0, "to_per_s": 200.0, "for_s": 1.0}, {"from_per_s": 100.0, "to_per_s": 100.0, "for_s": 0.1},
    ]);
    let pace = json!({"kind": "open", "arrivals": "constant", "rate": rate, "depth": null});
    let changes = json!({
        "loop": pace, "connections": 3, "threads": 3, "warmup": {"seconds": 1.0}, "measure": {"seconds": 1.0},
    });
    let run = run(&with(echo(honest(), "text", 32), changes));
    run.errors_are(json!({}));
    assert!((99..=101).contains(&run.count("warmup-service")), "half of 200: {}", run.count("warmup-service"));
    assert!((99..=101).contains(&due(&run)), "the last rate holds for ever: {}", due(&run));
}

#[test]
fn poisson_arrivals_come_from_the_seed_alone() {
    let sent = |seed: u64, address| {
        let pace = open("poisson", 400.0, None);
        let changes = json!({"loop": pace, "connections": 4, "threads": 2, "measure": {"seconds": 1.0}, "seed": seed});
        let run = run(&with(echo(address, "text", 32), changes));
        run.errors_are(json!({}));
        assert_eq!(run.measured("unsent"), 0);
        run.measured("sent")
    };
    let address = honest();
    let found = [1, 1, 2, 3].map(|seed| sent(seed, address));
    assert_eq!(found[0], found[1], "the same seed");
    assert!(found[0] != found[2] || found[0] != found[3], "another seed: {found:?}");
    // Six deviations of a Poisson count of 400.
    assert!(found.iter().all(|sent| (280..=520).contains(sent)), "{found:?}");
}

const STALL: Duration = Duration::from_millis(600);

/// 200 messages a second for 1.5 seconds on one connection, whose server stalls once.
fn stalled(depth: Option<usize>) -> Run {
    let address = websocket(|peer, number, opcode, payload| {
        if number == 60 {
            std::thread::sleep(STALL);
        }
        peer.send(opcode, &payload)
    });
    let changes = json!({"loop": open("constant", 200.0, depth), "measure": {"seconds": 1.5}});
    let run = run(&with(echo(address, "text", 32), changes));
    run.errors_are(json!({}));
    run.ledger_is(300, 0, 0);
    assert!(run.histograms["response"].max() >= STALL.as_nanos() as u64 * 99 / 100, "the stall is seen whole");
    // Due in the first two thirds of the stall: 80 messages, minus one at either end.
    assert!(run.at_least("response", STALL / 3) >= 78, "and by every message that was due in it");
    run
}

#[test]
fn a_stall_does_not_keep_messages_from_being_sent() {
    let run = stalled(None);
    let late = run.at_least("send_lag", STALL / 3);
    assert!(late <= 30, "nearly everything was sent when it was due, but {late} were not");
    assert!(run.at_least("service", STALL / 3) >= 48, "so the wait is the server's");
}

#[test]
fn with_a_depth_of_one_the_wait_is_in_the_send_lag_and_still_in_the_response() {
    let run = stalled(Some(1));
    assert!(run.at_least("send_lag", STALL / 3) >= 76, "nothing can be sent while a reply is awaited");
    assert!(run.at_least("service", STALL / 3) < 30, "only one message was with the server");
}

#[test]
fn what_no_connection_could_take_is_unsent() {
    let address = serve(|peer| {
        peer.upgrade()?;
        peer.ignore()
    });
    let limits = json!({"connect_s": 5.0, "reply_s": 20.0, "deadline_s": 30.0});
    let changes = json!({
        "loop": open("constant", 100.0, Some(2)), "connections": 3, "threads": 3, "measure": {"seconds": 0.5},
        "drain_s": 0.2, "limits": limits,
    });
    let run = run(&with(echo(address, "text", 32), changes));
    run.ledger_is(0, 0, 6);
    assert_eq!(run.measured("unsent"), 44);
}

#[test]
fn nobody_to_send_them_leaves_all_unsent() {
    let address = serve(|peer| {
        peer.upgrade()?;
        std::thread::sleep(Duration::from_millis(100));
        peer.reset()
    });
    let changes = json!({"loop": open("constant", 100.0, None), "connections": 2, "measure": {"seconds": 1.0}});
    let run = run(&with(echo(address, "text", 32), changes));
    assert_eq!(due(&run), 100);
    assert!(run.measured("unsent") >= 50, "{}", run.end());
    assert_eq!(run.measured("answered"), 0);
    assert_eq!(run.measured("failed"), run.measured("sent"));
}

#[test]
fn the_others_take_over_from_connections_that_die() {
    let address = serve(|peer| {
        peer.upgrade()?;
        for number in 1.. {
            let (opcode, payload) = peer.frame()?;
            if peer.number % 2 == 0 && number == 3 {
                return peer.reset();
            }
            peer.send(opcode, &payload)?;
        }
        Ok(())
    });
    let changes = json!({
        "loop": open("constant", 200.0, None), "connections": 6, "measure": {"seconds": 1.0},
    });
    let run = run(&with(echo(address, "text", 32), changes));
    assert_eq!([due(&run), run.measured("unsent")], [200, 0]);
    let failed = run.measured("failed");
    assert!(failed >= 3, "each of the three that died lost at least one: {failed}");
    run.errors_are(json!({"reset": failed}));
    run.ledger_is(200 - failed, failed, 0);
    assert_eq!(run.end()["connections"]["open"], 3);
}

#[test]
fn a_count_ends_an_open_loop_too() {
    for arrivals in ["constant", "poisson"] {
        let changes = json!({
            "loop": open(arrivals, 200.0, None), "connections": 4, "threads": 2, "warmup": {"messages": 11},
            "measure": {"messages": 51},
        });
        let run = run(&with(echo(honest(), "text", 32), changes));
        run.errors_are(json!({}));
        run.ledger_is(51, 0, 0);
        assert_eq!(run.count("warmup-service"), 11);
        if arrivals == "constant" {
            assert!(run.measured("window_ns") >= 200_000_000, "the schedule is not overtaken: {}", run.end());
        }
    }
}

#[test]
fn a_signal_ends_an_open_loop_with_an_honest_ledger() {
    let address = websocket(|peer, number, opcode, payload| match number {
        1..20 => peer.send(opcode, &payload),
        _ => peer.ignore(),
    });
    let limits = json!({"connect_s": 5.0, "reply_s": 60.0, "deadline_s": 90.0});
    let changes = json!({
        "loop": open("poisson", 300.0, Some(4)), "connections": 4, "threads": 2, "measure": {"seconds": 60.0},
        "limits": limits,
    });
    let running = start(&with(echo(address, "text", 32), changes));
    running.wait_for_phase("measure");
    running.signal("-INT");
    let run = running.finish();
    run.lawful();
    assert_eq!(run.end()["outcome"], "interrupted");
    assert_eq!(run.phases(), ["connect", "measure", "drain"]);
    assert_eq!(run.measured("answered"), 4 * 19);
    assert_eq!(run.measured("unanswered"), 4 * 4, "as deep as allowed");
    assert!(run.measured("unsent") > 50, "about 200 were due in the first second: {}", run.end());
}

#[test]
fn documents_over_kept_connections_keep_the_schedule() {
    let address = http(|peer, number, _| match number % 5 {
        0 => {
            peer.raw(&ok(100, "Connection: close\r\n"))?;
            peer.finish()
        }
        _ => peer.raw(&ok(100, "")),
    });
    let changes = json!({
        "loop": open("constant", 100.0, Some(1)), "connections": 4, "threads": 2, "measure": {"seconds": 1.0},
    });
    let run = run(&with(doc(address, true, 100), changes));
    run.errors_are(json!({}));
    run.ledger_is(100, 0, 0);
    assert_eq!([run.count("response"), run.count("send_lag")], [100, 100]);
    assert!(run.control("reconnects") >= 16, "every fifth reply of a connection: {}", run.end());
    assert_eq!(run.end()["connections"], json!({"asked": 4, "established": 4, "open": 4}));
}

#[test]
fn documents_with_a_connection_each_keep_the_schedule() {
    let address = serve(|peer| {
        let head = peer.head()?;
        assert!(head.contains("Connection: close"), "{head}");
        peer.raw(&ok(100, "Connection: close\r\n"))?;
        peer.finish()
    });
    let changes = json!({
        "loop": open("constant", 100.0, Some(1)), "connections": 4, "threads": 2, "measure": {"seconds": 1.0},
    });
    let run = run(&with(doc(address, false, 100), changes));
    run.errors_are(json!({}));
    run.ledger_is(100, 0, 0);
    let counts = ["response", "send_lag", "request", "connect"].map(|tag| run.count(tag));
    assert_eq!(counts, [100; 4]);
    assert_eq!(run.end()["connections"], json!({"asked": 4, "established": 100, "open": 0}));
}

#[test]
fn documents_that_fail_do_not_stop_the_schedule() {
    let address = serve(|peer| {
        peer.head()?;
        if peer.number % 4 == 0 {
            return peer.reset();
        }
        peer.raw(&ok(100, "Connection: close\r\n"))?;
        peer.finish()
    });
    let changes = json!({"loop": open("constant", 100.0, Some(1)), "connections": 4, "measure": {"messages": 100}});
    let run = run(&with(doc(address, false, 100), changes));
    run.errors_are(json!({"reset": 25}));
    run.ledger_is(75, 25, 0);
}
