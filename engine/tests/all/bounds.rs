//! What the engine bounds, whatever its server and its host do: what it keeps, how much it opens at once, and what a stop
//! of its own, a lost output or an older kernel does to a measurement.

use crate::support::server::*;
use crate::support::session::session;
use crate::support::{Run, echo, engine, folder, open, run, start, start_as, with};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

#[test]
fn a_stop_of_the_engine_is_no_timeout_of_the_server() {
    let address = websocket(|peer, _, opcode, payload| {
        std::thread::sleep(Duration::from_millis(20));
        peer.send(opcode, &payload)
    });
    let limits = json!({"connect_s": 5.0, "reply_s": 0.3, "deadline_s": 30.0});
    let changes = json!({"connections": 20, "measure": {"seconds": 2.0}, "limits": limits, "drain_s": 1.0});
    let mut running = start(&with(echo(address, "text", 32), changes));
    running.wait_for_phase("measure");
    running.signal("-STOP");
    std::thread::sleep(Duration::from_millis(600));
    running.signal("-CONT");
    running.status();
    let run = Run::read(&running.folder.join("out"));
    run.lawful();
    run.errors_are(json!({}));
    assert_eq!(run.end()["connections"]["open"], 20);
    let held_up_ns = run.end()["threads"][0]["held_up_ns"].as_u64().unwrap();
    assert!(held_up_ns > 400_000_000, "it says so: {held_up_ns}");
}

#[test]
fn a_server_that_is_too_late_times_out_as_ever() {
    let address = websocket(|peer, number, opcode, payload| {
        std::thread::sleep(Duration::from_millis(if number == 3 { 2000 } else { 1 }));
        peer.send(opcode, &payload)
    });
    let limits = json!({"connect_s": 5.0, "reply_s": 0.3, "deadline_s": 30.0});
    let run = run(&with(echo(address, "text", 32), json!({"limits": limits})));
    run.errors_are(json!({"timeout": 1}));
}

/// A session whose server asks with `p` and is answered by the engine, and one call.
fn asking() -> Value {
    json!({
        "kind": "session", "opcode": "text", "records": {"kind": "message"}, "longest": 4096, "fields": [],
        "rules": [
            {"name": "ping", "when": [{"kind": "begins", "text": "p"}], "does": {"kind": "answer", "template": 1}, "captures": []},
            {"name": "done", "when": [], "does": {"kind": "reply", "by": null, "marked": false, "last": true}, "captures": []},
        ],
        "templates": [[{"text": "call "}, {"number": "sequence"}], [{"text": "pong"}]],
        "steps": [{"name": "call", "sends": 0, "awaits": {"kind": "rule", "rule": 1}}],
        "setup": 0, "keepalives": [], "data": null, "captured": 0, "rooms": null, "traced": false,
    })
}

fn resident_mib(id: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{id}/statm")).unwrap_or_default();
    (pages.split(' ').nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 4096) >> 20
}

#[test]
fn answers_that_a_server_asks_for_and_does_not_read_are_bounded() {
    let address = serve(|peer| {
        peer.upgrade()?;
        let flood = frame(0x80 | TEXT, b"p").repeat(20_000);
        loop {
            peer.raw(&flood)?;
        }
    });
    // It ends when both have failed, however long their sockets take what nobody reads.
    let limits = json!({"connect_s": 5.0, "reply_s": 30.0, "deadline_s": 30.0});
    let changes = json!({"measure": {"messages": 2}, "connections": 2, "threads": 1, "limits": limits});
    let mut running = start(&session(address, asking(), changes));
    let mut most = 0;
    while running.child.try_wait().unwrap().is_none() {
        most = most.max(resident_mib(running.child.id()));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(most < 60, "{most} MiB resident");
    let run = Run::read(&running.folder.join("out"));
    run.lawful();
    run.errors_are(json!({"session_failed": 2}));
}

#[test]
fn answers_that_are_read_have_no_bound() {
    let address = websocket(|peer, number, _, _| {
        if number == 1 {
            for _ in 0..10 {
                peer.raw(&frame(0x80 | TEXT, b"p").repeat(10_000))?;
                for _ in 0..10_000 {
                    peer.frame()?;
                }
            }
        }
        peer.send(TEXT, b"done")
    });
    let run = run(&session(address, asking(), json!({"connections": 1, "threads": 1, "measure": {"messages": 2}})));
    run.errors_are(json!({}));
    assert_eq!(run.session("keepalives"), 100_000);
}

#[test]
fn a_line_that_never_ends_starves_nobody() {
    let scenario = json!({
        "kind": "session", "opcode": "text", "records": {"kind": "lines", "counted": "MSG "}, "longest": 16 << 20,
        "fields": [{"kind": "word", "number": 1, "after": null}],
        "rules": [{"name": "ok", "when": [{"kind": "begins", "text": "OK"}], "does": {"kind": "reply", "by": 0, "marked": false, "last": true}, "captures": []}],
        "templates": [[{"text": "DO "}, {"number": "sequence"}, {"text": "\r\n"}]],
        "steps": [{"name": "do", "sends": 0, "awaits": {"kind": "rule", "rule": 0}}],
        "setup": 0, "keepalives": [], "data": null, "captured": 0, "rooms": null, "traced": false,
    });
    let address = websocket(|peer, number, _, payload| {
        if peer.number == 0 && number == 2 {
            // A long beginning in few messages, then one byte a message.
            for _ in 0..15 {
                peer.raw(&frame(0x80 | TEXT, &vec![b'x'; 1 << 20]))?;
            }
            let flood = frame(0x80 | TEXT, b"x").repeat(5000);
            for _ in 0..100 {
                peer.raw(&flood)?;
            }
            return peer.ignore();
        }
        let text = String::from_utf8(payload).unwrap();
        let id = text.trim().split(' ').nth(1).unwrap();
        peer.send(TEXT, format!("OK {id}\r\n").as_bytes())
    });
    let changes = json!({
        "measure": {"seconds": 2.0}, "connections": 10, "threads": 1, "drain_s": 0.2,
        "loop": open("constant", 500.0, Some(1)), "limits": {"connect_s": 5.0, "reply_s": 4.0, "deadline_s": 20.0},
    });
    let run = run(&session(address, scenario, changes));
    // The starved trial sent 89 of 1,000. A busy machine costs some, but never half.
    assert!(run.measured("answered") > 500, "{}", run.end());
}

#[test]
fn connections_that_are_exchanged_open_no_more_at_once_than_the_plan_says() {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let address = serve(move |peer| {
        let head = peer.head()?;
        seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(Duration::from_millis(10));
        now.fetch_sub(1, SeqCst);
        peer.raw(switching(&accept_for(&head)).as_bytes())?;
        loop {
            match peer.frame()? {
                (CLOSE, payload) => {
                    peer.send(CLOSE, &payload)?;
                    return peer.finish();
                }
                (opcode, payload) => peer.send(opcode, &payload)?,
            }
        }
    });
    let pace = json!({"kind": "closed", "depth": 1, "think": null, "messages_per_connection": 1});
    let changes = json!({
        "loop": pace, "measure": {"messages": 200}, "connections": 60, "connect": {"per_s": null, "at_once": 5},
    });
    let run = run(&with(echo(address, "text", 32), changes));
    run.errors_are(json!({}));
    assert!(most.load(SeqCst) <= 5, "{} at once", most.load(SeqCst));
    assert_eq!(
        run.at_least("connect", Duration::from_secs(1)),
        0,
        "what one waits for its turn is no time of the server"
    );
}

/// Carries out a short plan with this standard output, and reads the record.
fn telling(output: Stdio, plan: &Value) -> (Run, String) {
    let place = folder();
    std::fs::write(place.join("plan.json"), plan.to_string()).unwrap();
    let mut command = engine();
    command.arg(place.join("plan.json")).arg(place.join("out")).stdout(output);
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{words}");
    let run = Run::read(&place.join("out"));
    run.lawful();
    std::fs::remove_dir_all(place).unwrap();
    (run, words)
}

#[test]
fn a_standard_output_that_is_closed_or_full_costs_no_measurement() {
    let plan = with(echo(echo_server(), "text", 32), json!({"measure": {"seconds": 0.3}, "tick_s": 0.1}));
    for output in [Stdio::piped(), Stdio::from(File::options().write(true).open("/dev/full").unwrap())] {
        let (run, words) = telling(output, &plan);
        assert_eq!((run.end()["outcome"].as_str(), words.as_str()), (Some("completed"), ""));
        assert!(run.all("tick").len() >= 4);
    }
}

/// Files have no more than so many bytes from now on: a write beyond that is cut short, the next one is an error.
fn limit_files(bytes: u64) -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: a valid limit, and no handler of a signal.
    let done = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN) != libc::SIG_ERR && libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// An output that fails after any number of bytes, in the middle of a line or of a character: four times a number.
fn after_any_number_of_bytes(most: u64, check: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let check = &check;
            scope.spawn(move || (0..4).for_each(|round| check(fastrand::Rng::with_seed(4 * seed + round).u64(..most))));
        }
    });
}

#[test]
fn a_record_that_cannot_be_written_is_a_named_error_and_has_no_end() {
    let plan = with(echo(echo_server(), "text", 32), json!({"measure": {"seconds": 0.2}, "tick_s": 0.05}));
    after_any_number_of_bytes(6000, |bytes| {
        let mut command = engine();
        // SAFETY: only system calls, between fork and exec.
        unsafe { command.pre_exec(move || limit_files(bytes)) };
        let mut running = start_as(command, &plan);
        let (status, words) = (running.status(), running.stderr());
        let text = std::fs::read_to_string(running.folder.join("out/events.jsonl")).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let events: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let has_ended = events.last().is_some_and(|last| last["event"] == "end");
        if has_ended {
            assert_eq!((status.code(), words.as_str()), (Some(0), ""), "{bytes} bytes");
            Run::read(&running.folder.join("out")).lawful();
        } else {
            assert_eq!(status.code(), Some(3), "{bytes} bytes: {words}");
            assert!(words.contains("File too large"), "{bytes} bytes: {words}");
        }
    });
}

#[test]
fn a_standard_output_that_closes_in_the_middle_of_a_line_costs_no_measurement() {
    let plan = with(echo(echo_server(), "text", 32), json!({"measure": {"seconds": 0.2}, "tick_s": 0.05}));
    after_any_number_of_bytes(200, |bytes| {
        let mut running = start(&plan);
        let mut output = running.child.stdout.take().unwrap();
        output.read_exact(&mut vec![0; bytes as usize]).unwrap();
        drop(output);
        let (status, words) = (running.status(), running.stderr());
        assert_eq!((status.code(), words.as_str()), (Some(0), ""), "{bytes} bytes");
        let run = Run::read(&running.folder.join("out"));
        run.lawful();
        assert_eq!(run.end()["outcome"], "completed");
    });
}

/// A pipe that has no room and is never read.
fn stuck() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: plain system calls on an open descriptor.
    unsafe {
        libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096);
        libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
    }
    while writer.write(b"x").is_ok() {}
    // SAFETY: as above; what is written to it waits again.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, 0) };
    (reader, writer)
}

#[test]
fn a_standard_output_that_nobody_reads_delays_nothing() {
    let (_reader, writer) = stuck();
    let plan = with(echo(echo_server(), "text", 32), json!({"measure": {"seconds": 0.3}, "tick_s": 0.1}));
    let (run, words) = telling(writer.into(), &plan);
    assert_eq!((run.end()["outcome"].as_str(), words.as_str()), (Some("completed"), ""));
    assert!(run.all("tick").len() >= 4);
}

#[test]
fn a_standard_error_that_nobody_reads_does_not_keep_it_from_ending() {
    let (_reader, writer) = stuck();
    let mut command = engine();
    command.stderr(writer);
    let mut running = start_as(command, &with(echo(echo_server(), "text", 32), json!({"tick_s": 0.0})));
    assert_eq!(running.status().code(), Some(2));
}

#[test]
fn a_record_that_cannot_be_written_in_time_has_fewer_ticks_and_loses_nothing() {
    let place = folder();
    let (plan, out) = (place.join("plan.json"), place.join("out"));
    let log = out.join("latency.hlog");
    let changes = json!({"measure": {"seconds": 2.0}, "tick_s": 0.05, "threads": 2, "connections": 4});
    std::fs::write(&plan, with(echo(echo_server(), "text", 32), changes).to_string()).unwrap();
    std::fs::create_dir(&out).unwrap();
    // The times go to somebody who does not read for more than a second.
    let name = std::ffi::CString::new(log.to_str().unwrap()).unwrap();
    // SAFETY: a valid path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let mut child = engine().arg(&plan).arg(&out).stdout(Stdio::null()).spawn().unwrap();
    let mut pipe = File::open(&log).unwrap();
    // SAFETY: a plain system call on an open descriptor.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    std::thread::sleep(Duration::from_millis(1300));
    let mut times = String::new();
    pipe.read_to_string(&mut times).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    std::fs::remove_file(&log).unwrap();
    std::fs::write(&log, times).unwrap();
    let run = Run::read(&out);
    run.lawful();
    run.errors_are(json!({}));
    assert_eq!(run.phases(), ["connect", "measure", "drain"]);
    let ticks = run.all("tick");
    assert!(ticks.len() < 30, "{} of more than 40", ticks.len());
    assert_eq!(ticks.last().unwrap()["answered"], run.measured("answered"));
    std::fs::remove_dir_all(place).unwrap();
}

/// The kernel answers a wait with nanoseconds with an error from now on, as an older one or a sandbox does, and one of
/// milliseconds too: those are too coarse for what is due.
fn refuse_waits(error: i32) -> std::io::Result<()> {
    let line = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equals = |k, jt, jf| line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let gives = |k| line(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let refuses = |error: i32| gives(libc::SECCOMP_RET_ERRNO | error as u32);
    #[cfg(target_arch = "x86_64")]
    const WAIT: libc::c_long = libc::SYS_epoll_wait;
    #[cfg(not(target_arch = "x86_64"))]
    const WAIT: libc::c_long = libc::SYS_epoll_pwait;
    let (number, timeout) = (0, std::mem::offset_of!(libc::seccomp_data, args) as u32 + 3 * 8);
    let mut lines = [
        load(number),
        equals(libc::SYS_epoll_pwait2 as u32, 0, 1),
        refuses(error),
        equals(WAIT as u32, 0, 4),
        load(timeout),
        equals(0, 2, 0),
        line(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 1, 0, 1 << 31),
        refuses(libc::EINVAL),
        gives(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    // SAFETY: a valid filter, for this process alone.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn a_kernel_without_epoll_pwait2_carries_out_every_plan() {
    for error in [libc::ENOSYS, libc::EPERM] {
        for pace in [crate::support::closed(4), open("constant", 1000.0, None)] {
            let mut command = engine();
            // SAFETY: only system calls, between fork and exec.
            unsafe { command.pre_exec(move || refuse_waits(error)) };
            let changes = json!({
                "loop": pace, "connections": 4, "threads": 2, "measure": {"seconds": 0.5}, "tick_s": 0.1,
                "limits": {"connect_s": 1.0, "reply_s": 1.0, "deadline_s": 10.0},
            });
            let run = start_as(command, &with(echo(echo_server(), "text", 32), changes)).finish();
            run.lawful();
            run.errors_are(json!({}));
            assert_eq!(run.end()["outcome"], "completed");
            assert!(run.measured("answered") > 0, "{}", run.end());
        }
    }
}
