//! Hostile servers. A server that floods, stalls or hangs up ends only its own connection: memory stays bounded, the
//! deadline ends the run, and its record is complete. A server that answers without a request is detected.

use crate::support::server::*;
use crate::support::{Run, closed, doc, echo, open, plan, run, thinking, with};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

fn ping(address: SocketAddr, transport: &str) -> Value {
    plan(json!({"kind": "ping"}), transport, address, if transport == "tcp" { "/" } else { "/ping" })
}

/// Writes this for as long as the engine reads it, or a few seconds.
fn flood(peer: &Peer, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    let mut writer = peer.writer();
    std::thread::spawn(move || while writer.write_all(&bytes).is_ok() {})
}

// ---- floods and hang-ups -----------------------------------------------------------------------------------------------

#[test]
fn a_reset_behind_the_last_reply_of_a_connection_ends_only_that_connection() {
    for more in [frame(0x81, b"and more"), frame(0x89, b""), vec![0x81]] {
        let address = serve(move |peer| {
            peer.upgrade()?;
            let (opcode, payload) = peer.frame()?;
            peer.raw(&[frame(0x80 | opcode, &payload), more.repeat(1000)].concat())?;
            peer.reset()
        });
        let run = run(&with(
            echo(address, "text", 32),
            json!({"loop": thinking(1, Value::Null, Some(1)), "connections": 4, "measure": {"messages": 200}}),
        ));
        assert_eq!(run.measured("sent"), 200, "{}", run.end());
    }
}

#[test]
fn pings_that_nobody_reads_the_answers_of_fill_nothing() {
    for scenario in [json!({"kind": "idle"}), json!({"kind": "echo", "opcode": "text", "bytes": 32, "content": null})] {
        let address = serve(|peer| {
            peer.upgrade()?;
            flood(peer, frame(0x89, &[b'p'; 125]).repeat(500)).join().expect("it only writes");
            Ok(())
        });
        let idle = scenario["kind"] == "idle";
        let pace = if idle { json!({"kind": "none"}) } else { open("constant", 5000.0, None) };
        let changes = json!({"loop": pace, "measure": {"seconds": 2.0}, "drain_s": 0.1, "connections": 2});
        let run = run(&with(plan(scenario, "websocket", address, "/echo"), changes));
        assert_eq!(run.end()["outcome"], "completed");
        assert!(run.measured("bytes_received") > 1 << 20, "it was flooded: {}", run.end());
        assert!((1..100).contains(&run.most_memory_mb), "{} MB", run.most_memory_mb);
    }
}

#[test]
fn floods_end_when_the_run_does() {
    let empty = [frame(TEXT, b""), frame(CONTINUATION, b"").repeat(60_000)].concat();
    let answers = frame(0x81, b"nobody asked").repeat(5000);
    for bytes in [frame(0x89, b"").repeat(30_000), empty, answers] {
        let address = serve(move |peer| {
            peer.upgrade()?;
            let flood = flood(peer, bytes.clone());
            peer.ignore()?;
            flood.join().expect("it only writes");
            Ok(())
        });
        let limits = json!({"connect_s": 5.0, "reply_s": 5.0, "deadline_s": 3.0});
        let changes = json!({"measure": {"seconds": 60.0}, "connections": 2, "limits": limits});
        let run = run(&with(echo(address, "text", 32), changes));
        assert!(["deadline", "connections_lost"].contains(&run.end()["outcome"].as_str().unwrap()), "{}", run.end());
        assert!((1..100).contains(&run.most_memory_mb), "{} MB", run.most_memory_mb);
    }
}

#[test]
fn a_flood_of_documents_ends_when_the_run_does() {
    let address = serve(|peer| {
        peer.head()?;
        let flood = flood(peer, ok(0, "").repeat(5000));
        peer.ignore()?;
        flood.join().expect("it only writes");
        Ok(())
    });
    let limits = json!({"connect_s": 5.0, "reply_s": 5.0, "deadline_s": 3.0});
    let run = run(&with(doc(address, true, 0), json!({"measure": {"seconds": 60.0}, "limits": limits})));
    assert_eq!(run.end()["outcome"], "deadline");
    assert!(unexpected(&run) > 1000, "{}", run.end());
}

#[test]
fn what_the_kernel_does_not_take_is_not_sent() {
    let address = serve(|peer| {
        peer.upgrade()?;
        std::thread::sleep(Duration::from_secs(4));
        Ok(())
    });
    let changes = json!({"loop": open("constant", 20_000.0, None), "measure": {"seconds": 1.0}, "drain_s": 0.0});
    let run = run(&with(echo(address, "binary", 16_000), changes));
    let (sent, unsent) = (run.measured("sent"), run.measured("unsent"));
    assert!((19_900..=20_100).contains(&(sent + unsent)), "all that were due: {}", run.end());
    let left = run.all("tick").last().unwrap()["bytes_sent"].as_u64().unwrap();
    assert!(unsent > 0 && sent * 16_000 <= left, "{sent} sent, {left} bytes left");
    assert!((1..100).contains(&run.most_memory_mb), "{} MB", run.most_memory_mb);
}

// ---- unrequested answers -----------------------------------------------------------------------------------------------

fn unexpected(run: &Run) -> u64 {
    run.end()["errors"]["unexpected_reply"].as_u64().unwrap_or(0)
}

/// As an echo that reads nothing would send it: the numbers in order, and a tag that it cannot know.
fn guessed(number: u32) -> Vec<u8> {
    let mut payload = format!("{number:08x}{:08x}", 0).into_bytes();
    payload.resize(32, b'x');
    frame(0x81, &payload)
}

#[test]
fn an_echo_made_ahead_is_never_an_answer() {
    let ahead = serve(|peer| {
        peer.upgrade()?;
        let flood = flood(peer, (1..50_000).flat_map(guessed).collect());
        peer.ignore()?;
        flood.join().expect("it only writes");
        Ok(())
    });
    let run = run(&with(echo(ahead, "text", 32), json!({"measure": {"messages": 1000}})));
    assert_eq!(run.measured("answered"), 0, "{}", run.end());
}

#[test]
fn an_echo_of_what_came_on_another_connection_is_no_answer() {
    let elsewhere = Mutex::new(vec![b'0'; 32]);
    let address = websocket(move |peer, _, opcode, payload| {
        let other = std::mem::replace(&mut *elsewhere.lock().unwrap(), payload);
        peer.send(opcode, &other)
    });
    let run = run(&with(echo(address, "text", 32), json!({"connections": 2, "measure": {"messages": 50}})));
    let (wrong, early) = (run.end()["errors"]["reply_content"].as_u64().unwrap_or(0), unexpected(&run));
    assert!(wrong + early >= 1 && run.measured("answered") < 50, "{}", run.end());
}

#[test]
fn a_constant_echo_is_no_answer() {
    let first = Mutex::new(Vec::new());
    let address = websocket(move |peer, number, opcode, payload| {
        let mut first = first.lock().unwrap();
        if number == 1 {
            *first = payload;
        }
        peer.send(opcode, &first)
    });
    let limits = json!({"connect_s": 1.0, "reply_s": 0.2, "deadline_s": 30.0});
    let run = run(&with(echo(address, "text", 32), json!({"limits": limits})));
    assert_eq!(run.measured("answered"), 1);
    assert!(unexpected(&run) >= 1, "{}", run.end());
}

/// A server that sends `ahead` before anything else, and then answers every request `times` times.
fn eager(transport: &'static str, ahead: usize, times: usize) -> SocketAddr {
    let answer = match transport {
        "websocket" => frame(0x81, b"Pong"),
        "tcp" => b"Pong".to_vec(),
        _ => ok(64, ""),
    };
    serve(move |peer| {
        if transport == "websocket" {
            peer.upgrade()?;
        }
        peer.raw(&answer.repeat(ahead))?;
        loop {
            match transport {
                "websocket" => {
                    if peer.frame()?.0 == CLOSE {
                        return peer.finish();
                    }
                }
                "tcp" => drop(peer.read_exactly(4)?),
                _ => drop(peer.head()?),
            }
            peer.raw(&answer.repeat(times))?;
        }
    })
}

#[test]
fn pongs_and_documents_made_ahead_or_twice_are_seen_at_every_pace() {
    for (transport, ahead, times) in
        ["websocket", "tcp", "http"].iter().flat_map(|t| [(*t, 1, 1), (*t, 50, 1), (*t, 0, 2)])
    {
        for pace in [closed(1), open("constant", 200.0, Some(1))] {
            let address = eager(transport, ahead, times);
            let load = if transport == "http" { doc(address, true, 64) } else { ping(address, transport) };
            let run = run(&with(load, json!({"loop": pace, "measure": {"messages": 100}})));
            assert!(unexpected(&run) >= 1, "{transport}, {ahead} ahead, {times} times: {}", run.end());
        }
    }
}

#[test]
fn honest_servers_are_above_suspicion_at_every_depth() {
    for transport in ["websocket", "tcp", "http"] {
        for pace in [closed(1), open("constant", 200.0, Some(1))] {
            let address = eager(transport, 0, 1);
            let load = if transport == "http" { doc(address, true, 64) } else { ping(address, transport) };
            run(&with(load, json!({"loop": pace, "measure": {"messages": 100}}))).errors_are(json!({}));
        }
    }
    for (depth, bytes) in [(16, 32), (16, 1 << 20), (300, 20_000)] {
        let address = echo_server();
        let load = with(echo(address, "binary", bytes), json!({"loop": closed(depth), "measure": {"messages": 400}}));
        run(&load).errors_are(json!({}));
    }
}

#[test]
fn broadcasts_that_nobody_triggered_are_foreign_and_a_second_copy_is_out_of_order() {
    let address = websocket(|peer, number, _, payload| {
        let token = String::from_utf8_lossy(&payload).replace("broadcast ", "");
        let copy = |token: &str| frame(0x81, format!("1700000000000000 {token}").as_bytes());
        let forged = format!("0000-{number:08x}-00000000");
        peer.raw(&[copy(&token), copy(&token), copy(&forged)].concat())
    });
    let load = plan(json!({"kind": "push", "slow_readers": 0.0}), "websocket", address, "/push");
    let changes = json!({"loop": open("constant", 20.0, None), "measure": {"seconds": 1.0}, "drain_s": 0.2});
    let run = run(&with(load, changes));
    assert!(run.control("foreign") >= 19 && run.control("out_of_order") >= 19, "{}", run.end());
    assert_eq!(run.measured("answered"), run.measured("sent"));
}
