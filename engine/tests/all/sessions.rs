//! Sessions: a declared conversation with a server that keeps it, and with servers that do not.

use crate::support::server::*;
use crate::support::session::{answering, result, rpc, session};
use crate::support::{closed, engine, folder, open, run, with};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn replies_are_matched_by_number() {
    let run = run(&session(answering(result), rpc(), json!({"loop": closed(3)})));
    run.errors_are(json!({}));
    run.ledger_is(100, 0, 0);
    assert_eq!([run.count("service"), run.count("step_0"), run.count("setup")], [100, 100, 0]);
}

#[test]
fn replies_may_come_in_another_order() {
    // One connection: of several that share a count of messages, each may be left with half a pair, which is never answered.
    let waiting: Mutex<Vec<(u64, String)>> = Mutex::default();
    let pairs = answering(move |peer, id, params| {
        let mut calls = waiting.lock().unwrap();
        calls.push((id, params.to_string()));
        if calls.len() == 2 {
            for (id, params) in calls.drain(..).rev() {
                result(peer, id, &params)?;
            }
        }
        Ok(())
    });
    let one = json!({"loop": closed(2), "connections": 1, "threads": 1, "measure": {"messages": 96}});
    let run = run(&session(pairs, rpc(), one));
    run.errors_are(json!({}));
    run.ledger_is(96, 0, 0);
}

#[test]
fn wrong_replies_have_names() {
    // Calls 2 to 6 of one connection; the others are answered.
    let odd = answering(|peer, id, params| match id {
        2 => peer.send(TEXT, b"{\"id\":2,\"error\":{\"code\":-32601}}"),
        3 => result(peer, 3, "[]"),
        4 => {
            result(peer, 4, params)?;
            result(peer, 4, params)
        }
        5 => {
            result(peer, 77, params)?;
            result(peer, 5, params)
        }
        6 => {
            peer.send(TEXT, b"{\"method\":\"news\"}")?;
            result(peer, 6, params)
        }
        _ => result(peer, id, params),
    });
    let one = json!({"connections": 1, "threads": 1, "measure": {"messages": 10}});
    let run = run(&session(odd, rpc(), one));
    run.errors_are(json!({"reply_error": 1, "reply_content": 1, "unexpected_reply": 2}));
    run.ledger_is(8, 2, 0);
    assert_eq!(run.session("pushes_in_window"), 1);
}

#[test]
fn what_is_no_record_ends_the_connection() {
    for (reply, kind) in [
        (&b"not JSON"[..], "bad_record"),
        (b"{\"id\":", "bad_record"),
        (b"{\"id\":\"\xff\"}", "bad_utf8"),
        (&[b'x'; 5000], "oversized"),
    ] {
        let odd = answering(move |peer, id, params| match id {
            3 => peer.send(TEXT, reply),
            _ => result(peer, id, params),
        });
        let one = json!({"connections": 1, "threads": 1, "measure": {"messages": 10}});
        let run = run(&session(odd, rpc(), one));
        run.errors_are(json!({kind: 1}));
        run.ledger_is(2, 1, 0);
    }
}

/// A login whose token is needed later, a subscription, and a keep-alive of either side.
fn with_setup() -> Value {
    json!({
        "kind": "session", "opcode": "text", "records": {"kind": "separated", "by": 30, "always": true}, "longest": 4096,
        "fields": [{"kind": "json", "path": ["t"]}, {"kind": "json", "path": ["token"]}, {"kind": "json", "path": ["id"]}],
        "rules": [
            {"name": "welcome", "when": [{"kind": "is", "field": 0, "text": "welcome"}], "does": {"kind": "ignore"}, "captures": []},
            {"name": "ping", "when": [{"kind": "is", "field": 0, "text": "ping"}], "does": {"kind": "answer", "template": 2}, "captures": []},
            {"name": "token", "when": [{"kind": "has", "field": 1}], "does": {"kind": "reply", "by": 2, "marked": false, "last": true}, "captures": [[1, 0]]},
            {"name": "refused", "when": [{"kind": "is", "field": 0, "text": "refused"}], "does": {"kind": "fail", "by": null, "last": true}, "captures": []},
            {"name": "done", "when": [{"kind": "has", "field": 2}], "does": {"kind": "reply", "by": 2, "marked": false, "last": true}, "captures": []},
        ],
        "templates": [
            [{"text": "{\"t\":\"login\",\"user\":\""}, {"column": 1}, {"text": "\",\"id\":"}, {"number": "sequence"}, {"text": "}\u{1e}"}],
            [{"text": "{\"t\":\"do\",\"token\":\""}, {"captured": 0}, {"text": "\",\"id\":"}, {"number": "sequence"}, {"text": "}\u{1e}"}],
            [{"text": "{\"t\":\"pong\"}\u{1e}"}],
            [{"text": "{\"t\":\"alive\"}\u{1e}"}],
        ],
        "steps": [
            {"name": "welcome", "sends": null, "awaits": {"kind": "rule", "rule": 0}},
            {"name": "login", "sends": 0, "awaits": {"kind": "rule", "rule": 2}},
            {"name": "first", "sends": 1, "awaits": {"kind": "rule", "rule": 4}},
            {"name": "second", "sends": 1, "awaits": {"kind": "rule", "rule": 4}},
        ],
        "setup": 2, "keepalives": [{"every_s": 0.1, "template": 3}], "data": null, "captured": 1, "rooms": null, "traced": false,
    })
}

/// Says welcome, logs in whom `admits` admits, and serves those that have their token.
fn setting_up(admits: fn(&str) -> bool, heard: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let say = |peer: &mut Peer, text: String| peer.send(TEXT, format!("{text}\u{1e}").as_bytes());
    serve(move |peer| {
        peer.upgrade()?;
        // Two records in one message.
        peer.send(TEXT, b"{\"t\":\"welcome\"}\x1e{\"t\":\"ping\"}\x1e")?;
        loop {
            let (opcode, payload) = peer.frame()?;
            if opcode == CLOSE {
                peer.send(CLOSE, &payload)?;
                return peer.finish();
            }
            let text = String::from_utf8(payload).unwrap();
            let call: Value = serde_json::from_str(text.strip_suffix('\u{1e}').expect("an end")).unwrap();
            heard.lock().unwrap().push(call["t"].as_str().unwrap().into());
            match call["t"].as_str() {
                Some("login") if admits(call["user"].as_str().unwrap()) => {
                    say(peer, format!("{{\"id\":{},\"token\":\"t{}\"}}", call["id"], call["user"].as_str().unwrap()))?;
                }
                Some("login") => say(peer, "{\"t\":\"refused\"}".into())?,
                Some("do") if call["token"].as_str().unwrap().starts_with("tuser") => {
                    say(peer, format!("{{\"id\":{}}}", call["id"]))?;
                }
                Some("do") => say(peer, "{\"t\":\"refused\"}".into())?,
                _ => {}
            }
        }
    })
}

/// The session, with a file of two users.
fn with_users(scenario: Value) -> Value {
    let file = folder().join("users.csv");
    std::fs::write(&file, "number,name\n1,user-a\n2,\"user,b\"\n").unwrap();
    with(scenario, json!({"data": file}))
}

#[test]
fn the_setup_comes_before_the_measurement_and_the_steps_take_turns() {
    let heard = Arc::default();
    let address = setting_up(|user| user == "user-a" || user == "user,b", Arc::clone(&heard));
    let run = run(&session(address, with_users(with_setup()), json!({"measure": {"seconds": 0.35}})));
    run.errors_are(json!({}));
    assert_eq!([run.count("setup"), run.count("step_0"), run.count("step_1")], [4, 4, 4]);
    let (first, second) = (run.count("step_2"), run.count("step_3"));
    assert!(first >= second && first <= second + 4 && second > 0, "{first} and {second}");
    assert_eq!(first + second, run.measured("answered"));
    let heard = heard.lock().unwrap();
    let count = |what: &str| heard.iter().filter(|text| *text == what).count();
    assert_eq!([count("login"), count("pong")], [4, 4]);
    assert!((4..=4 * 4).contains(&count("alive")), "{} keep-alives in 0.35 s", count("alive"));
    assert_eq!(run.session("keepalives"), (count("alive") + count("pong")) as u64);
}

#[test]
fn a_refused_setup_has_a_name_and_its_connection_is_not_open() {
    let address = setting_up(|user| user == "user-a", Arc::default());
    let run = run(&session(address, with_users(with_setup()), json!({"measure": {"seconds": 0.2}})));
    run.errors_are(json!({"setup_failed": 2}));
    assert_eq!(run.end()["connections"]["established"], 2);
    let example = run.all("error")[0]["example"].as_str().unwrap();
    assert!(example.contains("\"login\"") && example.contains("\"refused\""), "{example}");
}

#[test]
fn a_setup_without_an_answer_times_out_by_name() {
    let silent = websocket(|_, _, _, _| Ok(()));
    let changes = json!({
        "measure": {"seconds": 0.2}, "limits": {"connect_s": 1.0, "reply_s": 0.3, "deadline_s": 10.0},
    });
    let run = run(&session(silent, with_users(with_setup()), changes));
    run.errors_are(json!({"setup_timeout": 4}));
    let example = run.all("error")[0]["example"].as_str().unwrap();
    assert!(example.contains("\"welcome\""), "{example}");
    assert_eq!(run.end()["outcome"], "no_connection");
}

/// MQTT's packets in streams: nothing is aligned with messages.
fn packets() -> Value {
    json!({
        "kind": "session", "opcode": "binary", "records": {"kind": "packets"}, "longest": 4096,
        "fields": [{"kind": "byte", "at": 0, "mask": 240}, {"kind": "number", "at": 0}],
        "rules": [
            {"name": "puback", "when": [{"kind": "is", "field": 0, "text": "64"}], "does": {"kind": "reply", "by": 1, "marked": false, "last": true}, "captures": []},
            {"name": "publish", "when": [{"kind": "is", "field": 0, "text": "48"}], "does": {"kind": "push"}, "captures": []},
        ],
        "templates": [[
            {"bytes": "32"},
            {"counted": {"by": "sevens", "pieces": [
                {"counted": {"by": "two", "pieces": [{"text": "room/"}, {"number": "room"}]}}, {"identifier": {}}, {"postmark": {}}, {"letters": 150},
            ]}},
        ]],
        "steps": [{"name": "publish", "sends": 0, "awaits": {"kind": "rule", "rule": 0}}],
        "setup": 0, "keepalives": [], "data": null, "captured": 0, "rooms": {"count": 2, "publishers": null, "own": true}, "traced": false,
    })
}

type Members = Arc<Mutex<Vec<(String, TcpStream)>>>;

/// A broker with rooms: acknowledges a packet, and sends it to the members of its room in pieces of `piece` bytes.
/// `copies`: of the message with this identifier, for the member with this number.
fn broker(piece: usize, copies: fn(u16, usize) -> usize) -> SocketAddr {
    let members = Members::default();
    let joined: Mutex<BTreeMap<usize, String>> = Mutex::default();
    websocket(move |peer, _, opcode, payload| {
        assert_eq!(opcode, BINARY);
        let body = if payload[1] & 0x80 == 0 { 2 } else { 3 };
        let topic_length = usize::from(u16::from_be_bytes([payload[body], payload[body + 1]]));
        let topic = String::from_utf8(payload[body + 2..body + 2 + topic_length].to_vec()).unwrap();
        let after = body + 2 + topic_length;
        let id = u16::from_be_bytes([payload[after], payload[after + 1]]);
        let mut members = members.lock().unwrap();
        if joined.lock().unwrap().insert(peer.number, topic.clone()).is_none() {
            members.push((topic.clone(), peer.writer()));
        }
        // At most once needs no identifier.
        let content = [&payload[body..after], &payload[after + 2..]].concat();
        let length = [(content.len() & 0x7f) as u8 | 0x80, (content.len() >> 7) as u8];
        let push = [&[0x30][..], &length, &content].concat();
        for (number, (room, stream)) in members.iter_mut().enumerate() {
            for _ in 0..if *room == topic { copies(id, number) } else { 0 } {
                for piece in push.chunks(piece) {
                    stream.write_all(&frame(0x80 | BINARY, piece))?;
                }
            }
        }
        peer.send(BINARY, &[0x40, 2, payload[after], payload[after + 1]])
    })
}

#[test]
fn records_may_be_cut_anywhere_in_a_stream() {
    for piece in [1, 3, 100, 10_000] {
        let changes = json!({"measure": {"messages": 60}, "drain_s": 0.2});
        let run = run(&session(broker(piece, |_, _| 1), packets(), changes));
        run.errors_are(json!({}));
        run.ledger_is(60, 0, 0);
        assert!(run.session("pushes_in_window") > 0);
        assert_eq!(run.session("copies_out_of_order"), 0);
    }
}

/// The members are known to the broker with their first message: warm up.
fn in_rooms() -> Value {
    json!({"warmup": {"messages": 40}, "measure": {"messages": 60}, "drain_s": 0.3, "connections": 6, "threads": 2})
}

#[test]
fn every_member_of_a_room_is_expected_to_hear_it() {
    let run = run(&session(broker(10_000, |_, _| 1), packets(), in_rooms()));
    run.errors_are(json!({}));
    assert_eq!([run.session("copies_expected"), run.session("copies_received")], [180, 180]);
    assert_eq!([run.count("push"), run.count("push_last")], [180, 60]);
    assert_eq!(run.session("copies_out_of_order"), 0);
}

#[test]
fn copies_that_are_lost_or_come_twice_are_seen() {
    let run = run(&session(broker(10_000, |id, number| usize::from(!(id > 10 && number == 0))), packets(), in_rooms()));
    let lost = run.session("copies_expected") - run.session("copies_received");
    assert!(lost > 0 && run.count("push_last") < 60, "{lost} lost");
    let run =
        crate::support::run(&session(broker(10_000, |_, number| 1 + usize::from(number == 0)), packets(), in_rooms()));
    assert!(run.session("copies_out_of_order") > 0);
}

#[test]
fn only_publishers_publish() {
    let mut scenario = packets();
    scenario["rooms"]["publishers"] = json!(1);
    let changes = json!({"connections": 6, "threads": 1, "measure": {"messages": 40}, "drain_s": 0.2});
    let run = run(&session(broker(10_000, |_, _| 1), scenario, changes));
    run.errors_are(json!({}));
    run.ledger_is(40, 0, 0);
    // The others never told the broker that they are there.
    assert_eq!([run.session("copies_expected"), run.session("copies_received")], [120, 40]);
}

#[test]
fn a_traced_session_tells_every_message() {
    let mut scenario = with_users(with_setup());
    scenario["traced"] = json!(true);
    let address = setting_up(|_| true, Arc::default());
    let changes = json!({"connections": 1, "threads": 1, "measure": {"messages": 2}});
    let run = run(&session(address, scenario, changes));
    let exchanges = run.all("exchange");
    let told = exchanges.iter().map(|one| (one["sent"].as_bool().unwrap(), one["what"].as_str().unwrap()));
    let mut told: Vec<_> = told.filter(|(_, what)| *what != "keep-alive").collect();
    // The ping may be answered before or behind the login. Both steps have one template.
    told.sort();
    let (received, sent) = (["done", "done", "ping", "token", "welcome"], ["first", "first", "login", "ping"]);
    let right = received.map(|what| (false, what)).into_iter().chain(sent.map(|what| (true, what)));
    assert_eq!(told, right.collect::<Vec<_>>());
    let first = exchanges[0]["content"].as_str().unwrap();
    let content = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, first).unwrap();
    assert_eq!(content, b"{\"t\":\"welcome\"}");
}

#[test]
fn an_open_loop_measures_steps_from_their_due_times() {
    let slow = answering(|peer, id, params| {
        std::thread::sleep(Duration::from_millis(20));
        result(peer, id, params)
    });
    let changes =
        json!({"loop": open("constant", 100.0, Some(1)), "measure": {"seconds": 0.5}, "connections": 1, "threads": 1});
    let run = run(&session(slow, rpc(), changes));
    run.errors_are(json!({}));
    // They wait for each other, so that the two clocks differ.
    assert_eq!(run.histograms["step_0"], run.histograms["response"]);
    assert_ne!(run.histograms["step_0"], run.histograms["service"]);
}

#[test]
fn a_plan_with_a_wrong_session_is_refused_with_its_key() {
    for (path, value, says) in [
        ("/scenario/rules/1/does/by", json!(7), "`scenario.rules` is 7; allowed: a field"),
        ("/scenario/steps/0/sends", json!(3), "`scenario.steps` is 3; allowed: a template"),
        (
            "/scenario/steps/0/awaits",
            json!({"kind": "nothing"}),
            "`scenario.steps` is nothing; allowed: a rule, or own",
        ),
        ("/scenario/templates/0/1", json!({"column": 0}), "no column without `data`"),
        ("/scenario/rooms", json!({"count": 9, "publishers": null, "own": true}), "`scenario.rooms.count` is 9"),
        ("/transport", json!("tcp"), "`transport` is Tcp"),
    ] {
        let mut plan = session(nobody(), rpc(), json!({}));
        *plan.pointer_mut(path).expect("the key is there") = value;
        let place = folder();
        std::fs::write(place.join("plan.json"), plan.to_string()).unwrap();
        let output = engine().arg(place.join("plan.json")).arg(place.join("out")).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(says) && text.lines().count() == 1, "{text}");
    }
}
