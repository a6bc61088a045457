//! The engine ends by itself when it should, and writes its measurements before it exits.

use crate::support::server::*;
use crate::support::{Run, Running, echo, engine, start, start_as, with};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn long(address: SocketAddr) -> Value {
    with(echo(address, "text", 32), json!({"connections": 4, "threads": 2, "measure": {"seconds": 60.0}}))
}

fn honest() -> SocketAddr {
    websocket(|peer, _, opcode, payload| {
        std::thread::sleep(Duration::from_millis(2));
        peer.send(opcode, &payload)
    })
}

fn complete(mut running: Running, outcome: &str) -> Run {
    let status = running.status();
    assert_eq!(status.code(), Some(0), "{}", running.stderr());
    let run = Run::read(&running.folder.join("out"));
    run.lawful();
    assert_eq!(run.end()["outcome"], outcome);
    run
}

/// Times are compared only with the waits that the engine was told, never with a speed.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_signal_ends_it_with_what_was_measured() {
    for signal in ["-TERM", "-INT"] {
        let running = start(&long(honest()));
        running.wait_for_phase("measure");
        running.signal(signal);
        let run = complete(running, "interrupted");
        assert!(run.measured("answered") > 0);
        assert!(run.measured("window_ns") > 100_000_000);
        assert_eq!(run.phases(), ["connect", "measure", "drain"], "the window is closed");
        assert_eq!(
            run.all("tick").last().unwrap()["answered"],
            run.measured("answered"),
            "the last tick has everything"
        );
    }
}

#[test]
fn a_signal_in_the_warmup_measures_nothing() {
    let running = start(&with(long(honest()), json!({"warmup": {"seconds": 60.0}})));
    running.wait_for_phase("warmup");
    running.signal("-TERM");
    let mut running = running;
    assert_eq!(running.status().code(), Some(0));
    let run = Run::read(&running.folder.join("out"));
    assert_eq!(run.end()["outcome"], "interrupted");
    assert_eq!(run.phases(), ["connect", "warmup"], "a phase that never began is not written");
    assert_eq!(run.measured("sent"), 0);
    assert_eq!(run.end()["measured"]["window_ns"], Value::Null, "a missing number is null, never 0");
    run.lawful();
}

#[test]
fn a_signal_while_connecting_ends_it() {
    let address = serve(|peer| peer.ignore());
    let limits = json!({"connect_s": 60.0, "reply_s": 1.0, "deadline_s": 90.0});
    let running = start(&with(long(address), json!({"limits": limits})));
    std::thread::sleep(Duration::from_millis(500));
    running.signal("-INT");
    let run = complete(running, "interrupted");
    assert_eq!(run.phases(), ["connect"]);
}

#[test]
fn the_deadline_ends_it() {
    let limits = json!({"connect_s": 1.0, "reply_s": 1.0, "deadline_s": 1.5});
    let began = now();
    let run = complete(start(&with(long(honest()), json!({"limits": limits}))), "deadline");
    assert!(began.elapsed() >= Duration::from_millis(1500));
    assert!(run.measured("answered") > 0);
}

#[test]
fn the_deadline_ends_it_even_if_nothing_ever_answers() {
    let address = serve(|peer| peer.ignore());
    let limits = json!({"connect_s": 60.0, "reply_s": 60.0, "deadline_s": 1.0});
    complete(start(&with(long(address), json!({"limits": limits}))), "deadline");
}

#[test]
fn a_closed_input_pipe_ends_it() {
    let mut command = engine();
    command.stdin(Stdio::piped());
    let mut running = start_as(command, &long(honest()));
    let mut pipe = running.child.stdin.take().unwrap();
    running.wait_for_phase("measure");
    pipe.write_all(b"what is said is not heard").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(running.child.try_wait().unwrap().is_none(), "it goes on while the pipe is open");
    drop(pipe);
    let run = complete(running, "interrupted");
    assert!(run.measured("answered") > 0);
}

#[test]
fn no_input_at_all_does_not_end_it() {
    // Standard input is /dev/null, which is at its end from the start.
    let run = start(&with(long(honest()), json!({"measure": {"seconds": 0.5}}))).finish();
    assert_eq!(run.end()["outcome"], "completed");
}

#[test]
fn a_dead_parent_ends_it() {
    let plan = long(honest());
    let folder = crate::support::folder();
    let path = folder.join("plan.json");
    std::fs::write(&path, plan.to_string()).unwrap();
    // The shell is the parent; it is killed and cannot close anything.
    let script = format!(
        "{} {} {} </dev/null >/dev/null 2>&1 & echo $!; wait",
        env!("CARGO_BIN_EXE_wsbench-engine"),
        path.display(),
        folder.join("out").display()
    );
    let mut shell = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
    let id: u32 = line.trim().parse().unwrap();
    let status = format!("/proc/{id}/stat");
    std::thread::sleep(Duration::from_millis(500));
    assert!(std::fs::exists(&status).unwrap(), "it runs");
    shell.kill().unwrap();
    shell.wait().unwrap();
    // A zombie whose new parent has not collected it yet is dead too.
    let alive = || std::fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z "));
    for _ in 0..500 {
        if !alive() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!alive(), "the engine outlived its parent");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_live_run_can_be_followed() {
    let running = start(&long(honest()));
    running.wait_for_phase("measure");
    let ticks = |running: &Running| running.events_so_far().iter().filter(|event| event["event"] == "tick").count();
    let before = ticks(&running);
    std::thread::sleep(Duration::from_millis(2200));
    let after = ticks(&running);
    assert!(after >= before + 2, "a tick a second: {before}, then {after}");
    let log = std::fs::read_to_string(running.folder.join("out/latency.hlog")).unwrap();
    let intervals = log.lines().filter(|line| line.starts_with("Tag=service,")).count();
    assert!(intervals >= after.min(2), "the histograms are written with the ticks");
    running.signal("-TERM");
    complete(running, "interrupted");
}
