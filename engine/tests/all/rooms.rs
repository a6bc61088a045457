//! Rooms: a copy counts if it is for the member that has it, and once, and the slow ones are timed too.

use crate::support::server::*;
use crate::support::session::session;
use crate::support::{Run, open, run, with};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Every member joins its room, then says what all members are to hear, and is told that it was said.
fn chat(count: u32, publishers: Option<u32>, own: bool) -> Value {
    json!({
        "kind": "session", "opcode": "text", "records": {"kind": "message"}, "longest": 4096,
        "fields": [{"kind": "json", "path": ["id"]}],
        "rules": [
            {"name": "said", "when": [{"kind": "has", "field": 0}], "does": {"kind": "reply", "by": 0, "marked": false, "last": true}, "captures": []},
            {"name": "joined", "when": [{"kind": "begins", "text": "joined"}], "does": {"kind": "ignore"}, "captures": []},
            {"name": "copy", "when": [], "does": {"kind": "push"}, "captures": []},
        ],
        "templates": [
            [{"text": "join "}, {"number": "room"}],
            [{"text": "say "}, {"number": "room"}, {"text": " "}, {"number": "sequence"}, {"text": " {\"m\":\""}, {"postmark": {}}, {"text": "\"}"}],
        ],
        "steps": [
            {"name": "join", "sends": 0, "awaits": {"kind": "rule", "rule": 1}},
            {"name": "say", "sends": 1, "awaits": {"kind": "rule", "rule": 0}},
        ],
        "setup": 1, "keepalives": [], "data": null, "captured": 0,
        "rooms": {"count": count, "publishers": publishers, "own": own}, "traced": false,
    })
}

/// One copy of one message, as the server decides about it.
struct Copy {
    /// The room in which it was said, and that of the member.
    said: usize,
    room: usize,
    /// Who said it, and the member.
    publisher: usize,
    member: usize,
    /// Messages before it, in all rooms.
    number: usize,
}

/// So many copies, so much later.
type Fate = (usize, Duration);

const ONCE: Fate = (1, Duration::ZERO);
const NEVER: Fate = (0, Duration::ZERO);
const TWICE: Fate = (2, Duration::ZERO);

/// Writes what it is given at its time, in order.
fn delay_line() -> Sender<(Instant, TcpStream, Vec<u8>)> {
    let (sender, receiver) = channel::<(Instant, TcpStream, Vec<u8>)>();
    std::thread::spawn(move || {
        for (at, mut stream, bytes) in receiver {
            std::thread::sleep(at.saturating_duration_since(now()));
            let _ = stream.write_all(&bytes);
        }
    });
    sender
}

/// Only for the delays of a server.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

fn hub(fate: impl Fn(&Copy) -> Fate + Send + Sync + 'static) -> SocketAddr {
    let members: Mutex<Vec<(usize, usize, TcpStream)>> = Mutex::default();
    let said = AtomicUsize::new(0);
    let delayed = delay_line();
    websocket(move |peer, _, _, payload| {
        let text = String::from_utf8(payload).unwrap();
        let words: Vec<&str> = text.splitn(4, ' ').collect();
        let room: usize = words[1].parse().unwrap();
        let mut members = members.lock().unwrap();
        if words[0] == "join" {
            members.push((room, peer.number, peer.writer()));
            return peer.send(TEXT, b"joined");
        }
        let number = said.fetch_add(1, SeqCst);
        for (of, member, stream) in members.iter_mut() {
            let (count, late) = fate(&Copy { said: room, room: *of, publisher: peer.number, member: *member, number });
            let bytes = frame(0x80 | TEXT, words[3].as_bytes()).repeat(count);
            if late.is_zero() {
                stream.write_all(&bytes)?;
            } else if count > 0 {
                delayed.send((now() + late, stream.try_clone()?, bytes)).unwrap();
            }
        }
        // The answer follows the copies, as to everybody.
        drop(members);
        peer.send(TEXT, format!("{{\"id\":{}}}", words[2]).as_bytes())
    })
}

/// 60 messages in rooms of 6 members together.
fn sixty(address: SocketAddr, scenario: Value, changes: Value) -> Run {
    let usual = json!({"measure": {"messages": 60}, "drain_s": 0.3, "connections": 6, "threads": 1});
    run(&with(session(address, scenario, usual), changes))
}

/// Copies expected, received, out of order, misplaced; times of copies and of last copies.
fn copies_are(run: &Run, expected: [u64; 6]) {
    let counts = ["copies_expected", "copies_received", "copies_out_of_order", "copies_misplaced"];
    let [a, b, c, d] = counts.map(|key| run.session(key));
    assert_eq!([a, b, c, d, run.count("push"), run.count("push_last")], expected, "{}", run.end());
    assert_eq!(run.session("last_unknown"), 0);
}

#[test]
fn every_member_has_every_message_of_its_room_once() {
    for threads in [1, 2] {
        let address = hub(|copy| if copy.said == copy.room { ONCE } else { NEVER });
        let run = sixty(address, chat(2, None, true), json!({"threads": threads}));
        run.errors_are(json!({}));
        copies_are(&run, [180, 180, 0, 0, 180, 60]);
    }
}

#[test]
fn a_copy_for_another_room_is_no_copy() {
    let address = hub(|copy| if copy.said == copy.room { NEVER } else { ONCE });
    copies_are(&sixty(address, chat(2, None, true), json!({})), [180, 0, 0, 180, 0, 0]);
    let leaks = hub(|_| ONCE);
    copies_are(&sixty(leaks, chat(2, None, true), json!({"threads": 2})), [180, 180, 0, 180, 180, 60]);
}

#[test]
fn a_second_copy_stands_in_for_no_other() {
    let address = hub(|copy| match copy.member {
        _ if copy.said != copy.room => NEVER,
        0 | 1 => TWICE,
        2 | 3 => NEVER,
        _ => ONCE,
    });
    copies_are(&sixty(address, chat(2, None, true), json!({})), [180, 120, 60, 0, 120, 0]);
}

#[test]
fn a_publisher_has_its_own_message_only_if_the_plan_says_so() {
    let address = hub(|copy| match copy.member == copy.publisher {
        true => TWICE,
        false => NEVER,
    });
    copies_are(&sixty(address, chat(2, None, false), json!({})), [120, 0, 0, 120, 0, 0]);
    let others = hub(|copy| if copy.said == copy.room && copy.member != copy.publisher { ONCE } else { NEVER });
    copies_are(&sixty(others, chat(2, None, false), json!({})), [120, 120, 0, 0, 120, 60]);
}

#[test]
fn a_copy_that_is_overtaken_counts_and_is_out_of_order() {
    // One publisher; each third message comes to everybody behind the two that follow it.
    let held: Mutex<Vec<(TcpStream, Vec<u8>)>> = Mutex::default();
    let members: Mutex<Vec<TcpStream>> = Mutex::default();
    let said = AtomicUsize::new(0);
    let address = websocket(move |peer, _, _, payload| {
        let text = String::from_utf8(payload).unwrap();
        let words: Vec<&str> = text.splitn(4, ' ').collect();
        let mut members = members.lock().unwrap();
        if words[0] == "join" {
            members.push(peer.writer());
            return peer.send(TEXT, b"joined");
        }
        let number = said.fetch_add(1, SeqCst) % 3;
        let bytes = frame(0x80 | TEXT, words[3].as_bytes());
        let mut held = held.lock().unwrap();
        for stream in members.iter_mut() {
            match number {
                0 => held.push((stream.try_clone()?, bytes.clone())),
                _ => stream.write_all(&bytes)?,
            }
        }
        if number == 2 {
            for (mut stream, bytes) in held.drain(..) {
                stream.write_all(&bytes)?;
            }
        }
        peer.send(TEXT, format!("{{\"id\":{}}}", words[2]).as_bytes())
    });
    let run = sixty(address, chat(1, Some(1), true), json!({}));
    copies_are(&run, [360, 360, 120, 0, 360, 60]);
}

#[test]
fn a_worker_without_publishers_holds_up_nobody() {
    let address = || hub(|_| ONCE);
    let by_count = sixty(address(), chat(1, Some(1), true), json!({"threads": 2}));
    copies_are(&by_count, [360, 360, 0, 0, 360, 60]);
    let pace = json!({"loop": open("constant", 100.0, None), "measure": {"seconds": 0.6}, "threads": 3});
    let by_rate = sixty(address(), chat(1, Some(2), true), pace);
    let copies = by_rate.session("copies_expected");
    copies_are(&by_rate, [copies, copies, 0, 0, copies, copies / 6]);
    assert!(copies > 0 && by_rate.measured("unsent") == 0, "{}", by_rate.end());
}

/// The copies of one publisher's messages are late, so that many of them are on their way at once.
#[test]
fn the_last_copies_of_slow_messages_are_timed_too() {
    let address = hub(|_| (1, Duration::from_millis(400)));
    let pace =
        json!({"loop": open("constant", 300.0, None), "measure": {"seconds": 1.0}, "drain_s": 1.5, "connections": 4});
    let run = sixty(address, chat(1, Some(1), true), pace);
    // The last one may have been due in the window, and sent after it.
    let copies = run.session("copies_expected");
    assert!(copies > 4 * 200, "{}", run.end());
    assert_eq!([run.count("push"), run.count("push_last")], [copies, copies / 4], "{}", run.end());
    assert_eq!(run.session("last_unknown"), 0);
}

/// Whether the drain lasted to its limit, by the engine's own record.
fn lasted(run: &Run, drain_s: f64) -> bool {
    let at = |event: &Value| event["t_ns"].as_u64().expect("a time");
    let (phases, ticks) = (run.all("phase"), run.all("tick"));
    at(ticks.last().expect("a tick")) - at(phases.last().expect("the drain")) >= (drain_s * 1e9) as u64
}

#[test]
fn the_drain_ends_when_all_copies_have_come() {
    for threads in [1, 2] {
        // The last copies of some come late, and are awaited.
        let address = hub(|copy| match copy.said == copy.room {
            true if copy.number > 50 && copy.member > 2 => (1, Duration::from_millis(300)),
            true => ONCE,
            false => NEVER,
        });
        let run = sixty(address, chat(2, None, true), json!({"threads": threads, "drain_s": 25.0}));
        copies_are(&run, [180, 180, 0, 0, 180, 60]);
        assert!(!lasted(&run, 25.0));
    }
}

#[test]
fn a_copy_too_many_behind_the_last_one_is_seen() {
    let address = hub(|copy| match (copy.said == copy.room, copy.number == 59 && copy.member < 2) {
        (true, true) => TWICE,
        (true, false) => ONCE,
        (false, _) => NEVER,
    });
    let run = sixty(address, chat(2, None, true), json!({"drain_s": 25.0}));
    copies_are(&run, [180, 180, 1, 0, 180, 60]);
    assert!(!lasted(&run, 25.0));
}

#[test]
fn a_copy_that_never_comes_is_awaited_to_the_limit_of_the_drain() {
    let address = hub(|copy| if copy.said != copy.room || copy.number == 30 { NEVER } else { ONCE });
    let run = sixty(address, chat(2, None, true), json!({"threads": 2, "drain_s": 0.8}));
    copies_are(&run, [180, 177, 0, 0, 177, 59]);
    assert!(lasted(&run, 0.8));
}

#[test]
fn a_copy_that_comes_in_a_later_slice_belongs_to_its_own() {
    let address = hub(|copy| {
        let is_late = copy.member % 3 == 0 && copy.number % 4 == 0;
        (1, if is_late { Duration::from_millis(250) } else { Duration::ZERO })
    });
    let slices =
        json!({"windows": [[0.05, 0.10], [0.30, 0.35], [0.55, 0.60]], "lead_s": 0.02, "tail_s": 0.02, "frozen": false});
    let changes = json!({
        "measure": {"seconds": 0.9}, "slices": slices, "drain_s": 1.0, "loop": open("constant", 400.0, Some(1)),
    });
    let run = sixty(address, chat(1, None, true), changes);
    let [expected, received] = ["copies_expected", "copies_received"].map(|key| run.session(key));
    assert!(expected > 0 && expected == received, "{}", run.end());
    assert_eq!(run.count("push"), received);
    assert!(run.at_least("push", Duration::from_millis(200)) > 0, "the late ones are measured");
}

#[test]
fn nobody_expects_copies_of_what_no_step_sends() {
    let mut scenario = chat(2, None, true);
    scenario["keepalives"] = json!([{"every_s": 1.0, "template": 1}]);
    let mut running = crate::support::start(&session(nobody(), scenario, json!({"connections": 6})));
    assert_eq!(running.status().code(), Some(2));
    let words = running.stderr();
    assert!(
        words.contains("`scenario.templates` is 1; allowed: in rooms, a postmark only in what a step sends"),
        "{words}"
    );
}
