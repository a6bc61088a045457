//! The CPU time that a message costs the worker itself: sockets are queues, their server is a function, and there is no
//! kernel. A measurement, not a test: `cargo test --release --lib -- --ignored --nocapture without_a_kernel`.

use super::frames::{client_frame, frame_of};
use crate::clock::{Usage, thread_ns};
use crate::control::{Phase, Report};
use crate::handshake;
use crate::plan::Plan;
use crate::run::{AHEAD_NS, begin_from};
use crate::system::{Event, Interest, System};
use crate::worker::{Common, Worker};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

const MESSAGES: u64 = 1_000_000;
const REPEATS: usize = 7;

#[derive(Default)]
struct Wire {
    index: usize,
    is_open: bool,
    sent: VecDeque<u8>,
    replies: VecDeque<u8>,
}

impl Wire {
    /// Shakes hands, then returns every message.
    fn serve(&mut self) {
        if !self.is_open {
            self.is_open = true;
            let head = String::from_utf8(self.sent.drain(..).collect()).expect("a request is text");
            let key = head.split("Sec-WebSocket-Key: ").nth(1).and_then(|rest| rest.lines().next()).expect("a key");
            let accept = handshake::accept(key);
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            return self.replies.extend(answer.as_bytes());
        }
        while let Some((first, payload)) = client_frame(&mut self.sent) {
            self.replies.extend(frame_of(first, &payload));
        }
    }
}

#[derive(Default)]
struct Memory {
    wires: Vec<Wire>,
    news: Vec<usize>,
    now: Cell<u64>,
    served_ns: u64,
}

impl System for Memory {
    type Socket = usize;
    type Handle = usize;

    fn handle(socket: &usize) -> usize {
        *socket
    }

    fn now_ns(&self) -> u64 {
        self.now.set(self.now.get() + 100);
        self.now.get()
    }

    fn unix_ns(&self) -> u64 {
        self.now_ns()
    }

    fn to_unix_ns(&self) -> u64 {
        0
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn connect(&mut self, _: &Plan, _: u32) -> io::Result<usize> {
        self.wires.push(Wire::default());
        Ok(self.wires.len() - 1)
    }

    fn watch(&mut self, wire: usize, index: usize, _: Interest) -> io::Result<()> {
        self.wires[wire].index = index;
        Ok(())
    }

    fn change(&mut self, _: usize, _: usize, _: Interest) -> io::Result<()> {
        Ok(())
    }

    fn error_of(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn send(&mut self, wire: usize, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.wires[wire].sent.extend(bytes);
        Ok(Some(bytes.len()))
    }

    fn receive(&mut self, wire: usize, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let count = io::Read::read(&mut self.wires[wire].replies, buffer)?;
        Ok((count > 0).then_some(count))
    }

    fn ask_for_stamps(&mut self, _: usize) -> io::Result<()> {
        unreachable!("the plan asks for none")
    }

    fn receive_stamped(&mut self, _: usize, _: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
        unreachable!("the plan asks for none")
    }

    fn end_sending(&mut self, _: usize) {}

    fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        let begun_ns = thread_ns();
        self.wires.iter_mut().filter(|wire| !wire.sent.is_empty()).for_each(Wire::serve);
        self.news.clear();
        self.news.extend(self.wires.iter().filter(|wire| !wire.replies.is_empty()).map(|wire| wire.index));
        if self.news.is_empty() {
            self.now.set(self.now.get() + timeout_ns.min(1_000_000));
        }
        self.served_ns += thread_ns() - begun_ns;
        Ok(self.news.len())
    }

    fn reported_all(&self) -> bool {
        true
    }

    fn event(&mut self, at: usize) -> Option<Event> {
        Some(Event { index: self.news[at], writable: false, goes_on: false })
    }
}

/// The worker's CPU time for a message, in nanoseconds.
fn cost_ns(scenario: &Value, depth: usize, messages: u64) -> f64 {
    let plan = json!({
        "format": 1, "scenario": scenario, "transport": "websocket",
        "target": {"address": "127.0.0.1:9", "replicas": [], "host": "x", "path": "/"},
        "loop": {"kind": "closed", "depth": depth, "think": null, "messages_per_connection": null},
        "connections": 50, "connect": {"per_s": null, "at_once": 50}, "stages": null, "mask": "random", "tls": null,
        "deflate": null, "fragment_bytes": null, "subprotocols": [], "warmup": null, "measure": {"messages": messages},
        "slices": null, "drain_s": 1.0, "tick_s": 1.0,
        "limits": {"connect_s": 500.0, "reply_s": 500.0, "deadline_s": 2000.0}, "threads": 1, "cpus": [], "busy_poll": false,
        "receive_stamps": null, "source_addresses": ["127.0.0.1"], "headers": [], "seed": 1, "shard": [0, 1], "gate_s": null,
    });
    let plan: Arc<Plan> = Arc::new(serde_json::from_value(plan).expect("a plan"));
    let (common, reports) = Common::new(&plan).expect("there is no TLS");
    let control = common.control.clone();
    let mut worker = Worker::new(0, common, Memory::default()).expect("a worker");
    worker.begin(worker.system.now_ns());
    let own_ns = |worker: &Worker<Memory>| thread_ns() - worker.system.served_ns;
    let mut begun_ns = 0;
    loop {
        worker.step();
        for (_, report) in reports.try_iter() {
            match report {
                Report::Settled { .. } => {
                    begin_from(&plan, &control, worker.system.now_ns() + AHEAD_NS);
                    begun_ns = own_ns(&worker);
                }
                Report::Counted { phase, .. } => {
                    assert_eq!(phase, Phase::Measure);
                    return (own_ns(&worker) - begun_ns) as f64 / messages as f64;
                }
                _ => {}
            }
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn without_a_kernel() {
    let echo = |bytes: usize| json!({"kind": "echo", "opcode": "binary", "bytes": bytes, "content": null});
    let session = json!({
        "kind": "session", "opcode": "text", "records": {"kind": "message"}, "longest": 1 << 20,
        "fields": [{"kind": "json", "path": ["id"]}, {"kind": "json", "path": ["error", "code"]}],
        "rules": [
            {"name": "error", "when": [{"kind": "has", "field": 1}], "does": {"kind": "fail", "by": 0, "last": true}, "captures": []},
            {"name": "result", "when": [{"kind": "has", "field": 0}], "does": {"kind": "reply", "by": 0, "marked": true, "last": true}, "captures": []},
        ],
        "templates": [[
            {"text": "{\"jsonrpc\":\"2.0\",\"method\":\"echo\",\"params\":[\""}, {"postmark": {}}, {"letters": 17},
            {"text": "\"],\"id\":"}, {"number": "sequence"}, {"text": "}"},
        ]],
        "steps": [{"name": "call", "sends": 0, "awaits": {"kind": "rule", "rule": 1}}],
        "setup": 0, "keepalives": [], "data": null, "captured": 0, "rooms": null, "traced": false,
    });
    let scenarios = [
        ("echo of 16 B", echo(16)),
        ("echo of 128 B", echo(128)),
        ("echo of 16 KiB", echo(16 << 10)),
        ("a session's call", session),
    ];
    for (name, scenario) in scenarios {
        for depth in [1, 16] {
            let messages = if name.contains("KiB") { MESSAGES / 50 } else { MESSAGES };
            let costs = (0..REPEATS).map(|_| cost_ns(&scenario, depth, messages));
            println!("{name}, depth {depth}: {:.1} ns a message", costs.fold(f64::INFINITY, f64::min));
        }
    }
}
