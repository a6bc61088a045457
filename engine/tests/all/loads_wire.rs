//! The bytes on the wire: mask keys, fragments, and content from a file.

use crate::support::server::*;
use crate::support::{echo, engine, folder, open, run, with};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A frame of the engine: first byte, key, payload.
type Frame = (u8, [u8; 4], Vec<u8>);

/// The frames of all messages that the engine sends for this plan to an echo; its Close frame is not among them.
fn frames(plan: impl Fn(std::net::SocketAddr) -> Value) -> Vec<Frame> {
    let frames = Arc::new(Mutex::new(Vec::new()));
    let seen = frames.clone();
    let address = serve(move |peer| {
        peer.upgrade()?;
        let (mut message, mut opcode) = (Vec::new(), 0);
        loop {
            let (first, key, payload) = peer.any_frame()?;
            if first & 0x0f == CLOSE {
                peer.send(CLOSE, &payload)?;
                return peer.finish();
            }
            opcode = if first & 0x0f == CONTINUATION { opcode } else { first & 0x0f };
            message.extend_from_slice(&payload);
            seen.lock().unwrap().push((first, key, payload));
            if first & 0x80 != 0 {
                peer.send(opcode, &std::mem::take(&mut message))?;
            }
        }
    });
    let run = run(&plan(address));
    run.errors_are(json!({}));
    run.ledger_is(5, 0, 0);
    frames.lock().unwrap().clone()
}

#[test]
fn the_mask_is_what_the_plan_says() {
    let keys = |mask: &str| -> Vec<[u8; 4]> {
        let frames = frames(|address| with(echo(address, "text", 32), json!({"mask": mask})));
        frames.iter().map(|(_, key, _)| *key).collect()
    };
    assert_eq!(keys("zero"), [[0; 4]; 5]);
    let fixed = keys("fixed");
    assert_eq!(BTreeSet::from_iter(fixed.clone()).len(), 1);
    assert_ne!(fixed[0], [0; 4]);
    let random = BTreeSet::from_iter(keys("random"));
    assert!(random.len() >= 4, "fresh keys: {random:?}");
}

#[test]
fn long_messages_are_cut_into_fragments() {
    for (bytes, lengths) in [(100, vec![30, 30, 30, 10]), (90, vec![30, 30, 30]), (30, vec![30]), (0, vec![0])] {
        for (name, opcode) in [("text", TEXT), ("binary", BINARY)] {
            let frames = frames(|address| with(echo(address, name, bytes), json!({"fragment_bytes": 30})));
            for message in frames.chunks(lengths.len()) {
                let found: Vec<usize> = message.iter().map(|(_, _, payload)| payload.len()).collect();
                assert_eq!(found, lengths);
                for (at, (first, ..)) in message.iter().enumerate() {
                    let fin = if at + 1 == lengths.len() { 0x80 } else { 0 };
                    assert_eq!(
                        *first,
                        fin | if at == 0 { opcode } else { CONTINUATION },
                        "frame {at} of {bytes} bytes"
                    );
                }
                let keys: BTreeSet<_> = message.iter().map(|(_, key, _)| *key).collect();
                assert_eq!(keys.len(), lengths.len(), "every fragment has its own key");
            }
        }
    }
}

#[test]
fn content_comes_from_the_file_behind_the_stamp() {
    let folder = folder();
    let path = folder.join("content.txt");
    let text = "0123456789abcdef, und dann: größer, łódź, 日本語 🙂";
    std::fs::write(&path, text).unwrap();
    let scenario =
        |opcode: &str, bytes: usize| json!({"kind": "echo", "opcode": opcode, "bytes": bytes, "content": path});
    let frames =
        frames(|address| with(echo(address, "text", text.len()), json!({"scenario": scenario("text", text.len())})));
    let stamps: BTreeSet<_> = frames.iter().map(|(_, _, payload)| payload[..16].to_vec()).collect();
    assert_eq!(stamps.len(), 5, "every message has its own stamp");
    assert!(frames.iter().all(|(_, _, payload)| payload[16..] == text.as_bytes()[16..]));

    let refused = |scenario: Value| -> String {
        let plan = with(echo(nobody(), "text", 1), json!({"scenario": scenario}));
        let path = folder.join("plan.json");
        std::fs::write(&path, plan.to_string()).unwrap();
        let output = engine().arg(&path).arg(folder.join("out")).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        line
    };
    assert!(refused(scenario("text", 1)).contains("`scenario.bytes`"));
    let missing = folder.join("missing");
    assert!(
        refused(json!({"kind": "echo", "opcode": "text", "bytes": 1, "content": missing}))
            .contains("`scenario.content`")
    );
    std::fs::write(&path, [0xff; 20]).unwrap();
    assert!(refused(scenario("text", 20)).contains("`scenario.content`"), "text must be UTF-8");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_wrong_reply_with_content_from_a_file_is_reply_content_however_it_is_cut() {
    let folder = folder();
    let path = folder.join("content.txt");
    let text = format!("0123456789abcdef{}", "é".repeat(50));
    std::fs::write(&path, &text).unwrap();
    for cut in 1..6 {
        // Cut inside or between two-byte characters; the last one differs.
        let address = echo_until_third(move |peer, opcode, mut payload| {
            let last = payload.len() - 1;
            payload[last] ^= 1;
            let bytes = frame(0x80 | opcode, &payload);
            peer.raw(&bytes[..60 + cut])?;
            std::thread::sleep(std::time::Duration::from_millis(30));
            peer.raw(&bytes[60 + cut..])
        });
        let scenario = json!({"kind": "echo", "opcode": "text", "bytes": text.len(), "content": path});
        let run = run(&with(echo(address, "text", 1), json!({"scenario": scenario})));
        run.errors_are(json!({"reply_content": 1}));
        run.ledger_is(4, 1, 0);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_kernel_says_when_the_bytes_of_sampled_connections_came() {
    let address = echo_server();
    let plan = with(echo(address, "text", 32), json!({"connections": 4, "measure": {"messages": 400}}));
    assert_eq!(run(&plan).count("receive_delay"), 0);
    let all = run(&with(plan.clone(), json!({"receive_stamps": 1})));
    assert!(all.count("receive_delay") >= 400, "every read has one: {}", all.count("receive_delay"));
    // On one clock, a read never precedes its data; a second of difference would mean that two clocks were mixed up.
    assert!(all.histograms["receive_delay"].max() < 1_000_000_000);
    // By a schedule every connection gets a quarter of the messages, which a closed loop does not guarantee.
    let half = run(&with(plan, json!({"receive_stamps": 2, "loop": open("constant", 400.0, None)})));
    half.ledger_is(400, 0, 0);
    assert!((1..=200).contains(&half.count("receive_delay")), "0 and 2 only: {}", half.count("receive_delay"));
}
