//! Several processes of one trial: the gates at which they wait for each other, and the part of the
//! whole that each takes.

use crate::support::server::*;
use crate::support::{Run, Running, closed, echo, engine, open, plan, start_as, with};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn gated(plan: Value, shard: (u32, u32), gate_s: f64) -> Value {
    with(plan, json!({"shard": [shard.0, shard.1], "gate_s": gate_s}))
}

fn start(plan: &Value) -> Running {
    let mut command: Command = engine();
    command.stdin(Stdio::piped());
    start_as(command, plan)
}

fn tell(running: &mut Running, line: &str) {
    writeln!(running.child.stdin.as_mut().expect("a pipe"), "{line}").expect("it listens");
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec for the call to fill.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn wait_at(running: &Running, gate: &str) {
    for _ in 0..1000 {
        if running.events_so_far().iter().any(|event| event["event"] == "gate" && event["gate"] == gate) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never stood at {gate}: {:?}", running.events_so_far());
}

/// One connection for each of two shards.
fn pair() -> Value {
    with(echo(echo_server(), "text", 32), json!({"connections": 2}))
}

/// Runs all shards of a plan: each gate opens when all wait there, for one time, which is returned.
fn together(plans: &[Value]) -> (Vec<Run>, [u64; 2]) {
    let mut all: Vec<Running> = plans.iter().map(start).collect();
    let mut instants = [0; 2];
    for (place, gate) in ["connect", "begin"].into_iter().enumerate() {
        all.iter().for_each(|running| wait_at(running, gate));
        instants[place] = now_ns() + 300_000_000;
        all.iter_mut().for_each(|running| tell(running, &format!("{gate} {}", instants[place])));
    }
    let runs: Vec<Run> = all.into_iter().map(Running::finish).collect();
    runs.iter().for_each(Run::lawful);
    (runs, instants)
}

fn begin_of(run: &Run, phase: &str) -> u64 {
    let found = run.all("phase").into_iter().find(|event| event["phase"] == phase).expect("the phase began");
    assert!(found["entered_ns"].as_u64().unwrap() >= found["t_ns"].as_u64().unwrap(), "{found}");
    found["t_ns"].as_u64().unwrap()
}

#[test]
fn all_shards_connect_and_measure_at_the_instants_that_they_are_told() {
    let base = with(echo(echo_server(), "text", 32), json!({"connections": 7, "measure": {"seconds": 0.6}}));
    let plans: Vec<Value> = (0..3).map(|shard| gated(base.clone(), (shard, 3), 20.0)).collect();
    let (runs, [connect, begin]) = together(&plans);
    for run in &runs {
        assert_eq!([begin_of(run, "connect"), begin_of(run, "measure")], [connect, begin]);
        assert_eq!(begin_of(run, "drain"), begin + 600_000_000);
        assert_eq!(run.all("gate").len(), 2);
        assert_eq!(run.end()["outcome"], "completed");
    }
    let asked: Vec<u64> = runs.iter().map(|run| run.end()["connections"]["asked"].as_u64().unwrap()).collect();
    assert_eq!(asked, [3, 2, 2], "each takes its part of the connections");
}

#[test]
fn shards_share_messages_and_connection_numbers_and_nothing_twice() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let address = websocket(move |peer, _, opcode, payload| {
        record.lock().unwrap().push(String::from_utf8(payload.clone()).unwrap());
        peer.send(opcode, &payload)
    });
    let changes = json!({"connections": 5, "measure": {"messages": 11}, "loop": closed(1)});
    let base = with(echo(address, "text", 16), changes);
    let plans: Vec<Value> = (0..2).map(|shard| gated(base.clone(), (shard, 2), 20.0)).collect();
    let (runs, _) = together(&plans);
    assert_eq!(runs.iter().map(|run| run.measured("answered")).collect::<Vec<_>>(), [6, 5]);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 11, "no two messages are the same: {seen:?}");
}

#[test]
fn the_schedules_of_all_shards_are_one_evenly_spaced_schedule() {
    let base = with(
        echo(echo_server(), "text", 32),
        json!({"connections": 6, "loop": open("constant", 100.0, None), "measure": {"seconds": 1.0}}),
    );
    // Shards may have different numbers of workers.
    let plans: Vec<Value> =
        (0..2).map(|shard| with(gated(base.clone(), (shard, 2), 20.0), json!({"threads": shard + 1}))).collect();
    let (runs, _) = together(&plans);
    assert_eq!(runs.iter().map(|run| run.measured("sent")).collect::<Vec<_>>(), [50, 50]);
    runs.iter().for_each(|run| run.ledger_is(50, 0, 0));
}

#[test]
fn one_that_is_not_told_when_ends_and_says_so() {
    for told in [0, 1] {
        let mut running = start(&gated(pair(), (0, 2), 0.5));
        if told == 1 {
            wait_at(&running, "connect");
            tell(&mut running, "connect 1");
        }
        let status = running.status();
        assert_eq!(status.code(), Some(0), "{}", running.stderr());
        let run = Run::read(&running.folder.join("out"));
        run.lawful();
        assert_eq!(run.end()["outcome"], "not_begun");
        assert_eq!(run.end()["connections"]["established"], told);
        run.ledger_is(0, 0, 0);
        assert!(run.end()["measured"]["window_ns"].is_null());
    }
}

#[test]
fn a_closed_pipe_ends_one_that_waits() {
    let mut running = start(&gated(pair(), (0, 2), 30.0));
    wait_at(&running, "connect");
    drop(running.child.stdin.take());
    assert_eq!(running.status().code(), Some(0), "{}", running.stderr());
    assert_eq!(Run::read(&running.folder.join("out")).end()["outcome"], "interrupted");
}

#[test]
fn gates_without_a_pipe_are_refused() {
    let mut running = crate::support::start(&gated(pair(), (0, 2), 30.0));
    assert_eq!(running.status().code(), Some(2));
    assert!(running.stderr().contains("`gate_s` is set, but standard input is no pipe"));
}

#[test]
fn what_shards_cannot_do_together_is_refused() {
    let base = with(echo(nobody(), "text", 32), json!({"connections": 4}));
    let push = with(
        plan(json!({"kind": "push", "slow_readers": 0.0}), "websocket", nobody(), "/push"),
        json!({"connections": 4, "loop": open("constant", 20.0, None), "measure": {"seconds": 0.5}}),
    );
    let stages = json!([{"to": 2, "over_s": 0.1, "chunk": 1}]);
    for (plan, key) in [
        (with(base.clone(), json!({"shard": [0, 5]})), "`shard`"),
        (with(base.clone(), json!({"shard": [1, 2], "threads": 3})), "`threads`"),
        (with(base.clone(), json!({"shard": [1, 2], "warmup": {"messages": 5}})), "`warmup`"),
        (with(base.clone(), json!({"gate_s": 0.0})), "`gate_s`"),
        (with(push, json!({"shard": [1, 2], "stages": stages})), "`stages`"),
    ] {
        let mut running = crate::support::start(&plan);
        assert_eq!(running.status().code(), Some(2), "{key}");
        let said = running.stderr();
        assert!(said.contains(key), "{key}: {said}");
    }
}

#[test]
fn connections_go_to_every_address_of_the_target_in_turn() {
    let served = Arc::new(Mutex::new([0; 3]));
    let addresses: Vec<SocketAddr> = (0..3)
        .map(|place| {
            let served = served.clone();
            serve(move |peer| {
                peer.upgrade()?;
                served.lock().unwrap()[place] += 1;
                peer.ignore()
            })
        })
        .collect();
    let mut idle = with(
        plan(json!({"kind": "idle"}), "websocket", addresses[0], "/echo"),
        json!({"connections": 8, "loop": {"kind": "none"}, "measure": {"seconds": 0.2},
               "source_addresses": ["127.0.0.1", "127.0.0.2"]}),
    );
    idle["target"]["replicas"] = json!(addresses[1..].iter().map(SocketAddr::to_string).collect::<Vec<_>>());
    let run = crate::support::run(&idle);
    assert_eq!(run.end()["connections"]["established"], 8);
    assert_eq!(*served.lock().unwrap(), [3, 3, 2]);
}

/// Sends every broadcast to all members except `left_out`, who are counted in order of arrival.
fn push_server(left_out: impl Fn(usize, u64) -> bool + Send + Sync + 'static) -> SocketAddr {
    let members: Arc<Mutex<Vec<(usize, std::net::TcpStream)>>> = Arc::default();
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
                if !left_out(*number, broadcast) {
                    let _ = stream.write_all(&frame(0x80 | TEXT, format!("1700000000000000 {token}").as_bytes()));
                }
            }
        }
    })
}

#[test]
fn one_shard_triggers_and_the_others_time_their_copies_by_the_same_clock() {
    let address = push_server(|_, broadcast| broadcast == 3);
    let base = with(
        plan(json!({"kind": "push", "slow_readers": 0.0}), "websocket", address, "/push"),
        json!({"loop": open("constant", 20.0, None), "connections": 7, "measure": {"seconds": 0.5}, "drain_s": 1.0}),
    );
    let plans: Vec<Value> = (0..2).map(|shard| gated(base.clone(), (shard, 2), 20.0)).collect();
    let (runs, _) = together(&plans);
    let [first, second] = runs.as_slice() else { unreachable!("two plans") };
    first.ledger_is(36, 0, 4);
    second.ledger_is(27, 0, 0);
    assert_eq!([first.count("push"), second.count("push")], [36, 27]);
    assert_eq!([first.all("broadcast").len(), second.all("broadcast").len()], [10, 0]);
    let copies: Vec<_> =
        second.all("copies").iter().map(|one| (one["number"].clone(), one["received"].clone())).collect();
    let expected: Vec<_> = (0..10).filter(|&number| number != 3).map(|number| (json!(number), json!(3))).collect();
    assert_eq!(copies, expected);
    for one in second.all("copies") {
        let triggered = first.all("broadcast")[one["number"].as_u64().unwrap() as usize]["t_ns"].as_u64().unwrap();
        assert!(one["t_ns"].as_u64().unwrap() > triggered && one["last_ns"].as_u64() >= one["t_ns"].as_u64(), "{one}");
    }
    let reading: Vec<_> = second.all("receivers").iter().map(|one| one["reading"].clone()).collect();
    assert_eq!(reading, [json!(3)], "all were there before anything was triggered");
    assert_eq!([second.control("foreign"), second.control("out_of_order")], [0, 0]);
}

#[test]
fn a_broadcast_is_triggered_once_at_every_address_whatever_the_number_of_workers() {
    for (addresses, threads, shards) in [(2, 2, 1), (3, 1, 2), (4, 2, 2)] {
        let servers: Vec<SocketAddr> = (0..addresses).map(|_| push_server(|_, _| false)).collect();
        let mut base = with(
            plan(json!({"kind": "push", "slow_readers": 0.0}), "websocket", servers[0], "/push"),
            json!({"loop": open("constant", 20.0, None), "connections": 24, "measure": {"seconds": 0.5},
                   "drain_s": 1.0, "threads": threads}),
        );
        base["target"]["replicas"] = json!(servers[1..].iter().map(SocketAddr::to_string).collect::<Vec<_>>());
        let plans: Vec<Value> = (0..shards).map(|shard| gated(base.clone(), (shard, shards), 20.0)).collect();
        let (runs, _) = together(&plans);
        for run in &runs {
            run.ledger_is(240 / u64::from(shards), 0, 0);
            assert_eq!([run.control("foreign"), run.control("out_of_order")], [0, 0]);
        }
        let all = runs[0].all("broadcast");
        assert!(all.len() == 10 && all.iter().all(|one| one["received"] == 24 / shards), "{all:?}");
    }
}

#[test]
fn a_first_worker_that_cannot_reach_every_address_is_refused() {
    let mut push = with(
        plan(json!({"kind": "push", "slow_readers": 0.0}), "websocket", nobody(), "/push"),
        json!({"connections": 4, "loop": open("constant", 20.0, None), "threads": 2, "measure": {"seconds": 0.5}}),
    );
    push["target"]["replicas"] = json!(["127.0.0.1:2", "127.0.0.1:3"]);
    let mut running = crate::support::start(&push);
    assert_eq!(running.status().code(), Some(2));
    assert!(running.stderr().contains("one from the first worker to each of 3 addresses"), "{}", running.stderr());
}
