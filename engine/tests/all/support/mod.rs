//! The base of the tests: a way to run the engine as a program, a reader of its output, and (in `server`) a server that
//! misbehaves on request; `session` has a conversation. It checks only the contract, which `Run::lawful` does in every test.

pub mod server;
pub mod session;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// An engine that has not ended by then counts as hung.
const PATIENCE: Duration = Duration::from_secs(40);

pub fn engine() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wsbench-engine"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A new folder that no other test uses.
pub fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("wsbench-engine-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

/// A closed loop without pauses, with `depth` messages in flight on each connection.
pub fn closed(depth: usize) -> Value {
    json!({"kind": "closed", "depth": depth, "think": null, "messages_per_connection": null})
}

/// An open loop with a constant rate.
pub fn open(arrivals: &str, per_s: f64, depth: Option<usize>) -> Value {
    let rate = json!([{"from_per_s": per_s, "to_per_s": per_s, "for_s": 1.0}]);
    json!({"kind": "open", "arrivals": arrivals, "rate": rate, "depth": depth})
}

/// A closed loop whose connections pause before each message, and are exchanged after that many replies.
pub fn thinking(depth: usize, think: Value, messages_per_connection: Option<u64>) -> Value {
    json!({"kind": "closed", "depth": depth, "think": think, "messages_per_connection": messages_per_connection})
}

/// A small valid plan; tests change the keys they need.
pub fn plan(scenario: Value, transport: &str, address: SocketAddr, path: &str) -> Value {
    json!({
        "format": 1,
        "scenario": scenario,
        "transport": transport,
        "target": {"address": address.to_string(), "replicas": [], "host": address.to_string(), "path": path},
        "loop": closed(1),
        "connections": 1,
        "connect": {"per_s": null, "at_once": 100},
        "stages": null,
        "mask": "random",
        "tls": null,
        "deflate": null,
        "fragment_bytes": null,
        "subprotocols": [],
        "warmup": null,
        "measure": {"messages": 5},
        "slices": null,
        "drain_s": 10.0,
        "tick_s": 1.0,
        "limits": {"connect_s": 5.0, "reply_s": 5.0, "deadline_s": 30.0},
        "threads": 1,
        "cpus": [],
        "busy_poll": false,
        "receive_stamps": null,
        "source_addresses": ["127.0.0.1"],
        "headers": [],
        "seed": 7,
        "shard": [0, 1],
        "gate_s": null,
    })
}

pub fn echo(address: SocketAddr, opcode: &str, bytes: usize) -> Value {
    plan(json!({"kind": "echo", "opcode": opcode, "bytes": bytes, "content": null}), "websocket", address, "/echo")
}

pub fn doc(address: SocketAddr, persistent: bool, bytes: usize) -> Value {
    plan(json!({"kind": "doc", "persistent": persistent, "bytes": bytes}), "http", address, "/doc")
}

pub fn with(mut plan: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().expect("changes are keys and values") {
        plan[key] = value.clone();
    }
    plan
}

/// A running engine; it is killed if the test ends first.
pub struct Running {
    pub child: Child,
    pub folder: PathBuf,
    most_memory_mb: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

pub fn start(plan: &Value) -> Running {
    start_as(engine(), plan)
}

pub fn start_as(mut command: Command, plan: &Value) -> Running {
    let folder = folder();
    let path = folder.join("plan.json");
    std::fs::write(&path, plan.to_string()).expect("the plan is written");
    let child = command.arg(&path).arg(folder.join("out")).spawn().expect("the engine starts");
    Running { child, folder, most_memory_mb: 0 }
}

impl Running {
    /// Waits for the end; a hanging engine fails the test.
    pub fn status(&mut self) -> ExitStatus {
        let steps = PATIENCE.as_millis() / 10;
        for _ in 0..steps {
            self.most_memory_mb = self.most_memory_mb.max(most_memory_mb(self.child.id()));
            if let Some(status) = self.child.try_wait().expect("the engine can be waited for") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the engine hangs: {}", self.folder.display());
    }

    pub fn stderr(&mut self) -> String {
        std::io::read_to_string(self.child.stderr.take().expect("stderr is piped")).expect("stderr is text")
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
    }

    /// The file's lines so far, as a reader that follows a live run sees them.
    pub fn events_so_far(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("out/events.jsonl")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    pub fn wait_for_phase(&self, phase: &str) {
        for _ in 0..1000 {
            if self.events_so_far().iter().any(|event| event["event"] == "tick" && event["phase"] == phase) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no tick of {phase} came: {:?}", self.events_so_far());
    }

    pub fn finish(mut self) -> Run {
        let status = self.status();
        assert_eq!(status.code(), Some(0), "{}", self.stderr());
        Run { most_memory_mb: self.most_memory_mb, ..Run::read(&self.folder.join("out")) }
    }
}

/// The largest resident memory of a process so far; 0 after its end.
fn most_memory_mb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") >> 10
}

/// Carries out the plan, and checks that the output is lawful.
pub fn run(plan: &Value) -> Run {
    let run = start(plan).finish();
    run.lawful();
    run
}

/// The output of a finished engine.
pub struct Run {
    pub events: Vec<Value>,
    pub histograms: BTreeMap<String, Histogram<u64>>,
    /// Until shortly before its end; 0 if nobody looked.
    pub most_memory_mb: u64,
}

impl Run {
    pub fn read(folder: &Path) -> Run {
        let text = std::fs::read_to_string(folder.join("events.jsonl")).expect("events.jsonl is there");
        let events = text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
        Run { events, histograms: histograms(&folder.join("latency.hlog")), most_memory_mb: 0 }
    }

    pub fn end(&self) -> &Value {
        let last = self.events.last().expect("there are events");
        assert_eq!(last["event"], "end", "the last line is the end");
        last
    }

    pub fn all(&self, event: &str) -> Vec<&Value> {
        self.events.iter().filter(|found| found["event"] == event).collect()
    }

    pub fn phases(&self) -> Vec<&str> {
        self.all("phase").iter().map(|event| event["phase"].as_str().expect("a name")).collect()
    }

    pub fn measured(&self, key: &str) -> u64 {
        self.end()["measured"][key].as_u64().unwrap_or_else(|| panic!("no {key}: {}", self.end()))
    }

    /// Asserts that exactly these errors are in `end` and, summed, in the error events.
    pub fn errors_are(&self, expected: Value) {
        assert_eq!(self.end()["errors"], expected, "{:?}", self.all("error"));
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        for error in self.all("error") {
            assert!(!error["example"].as_str().expect("an example").is_empty(), "an example in words: {error}");
            *seen.entry(error["kind"].as_str().expect("a kind")).or_default() +=
                error["count"].as_u64().expect("a count");
        }
        assert_eq!(json!(seen), expected, "the error events say the same as the end");
    }

    pub fn session(&self, key: &str) -> u64 {
        self.end()["session"][key].as_u64().unwrap_or_else(|| panic!("no {key}: {}", self.end()))
    }

    pub fn control(&self, key: &str) -> u64 {
        self.end()["control"][key].as_u64().unwrap_or_else(|| panic!("no {key}: {}", self.end()))
    }

    /// How many values of a histogram are at least this long.
    pub fn at_least(&self, tag: &str, time: Duration) -> u64 {
        let Some(histogram) = self.histograms.get(tag) else { return 0 };
        histogram.count_between(time.as_nanos() as u64, u64::MAX / 2)
    }

    pub fn ledger_is(&self, answered: u64, failed: u64, unanswered: u64) {
        let found = ["answered", "failed", "unanswered"].map(|key| self.measured(key));
        assert_eq!(
            found,
            [answered, failed, unanswered],
            "answered, failed, unanswered; errors {}",
            self.end()["errors"]
        );
    }

    pub fn count(&self, tag: &str) -> u64 {
        self.histograms.get(tag).map_or(0, Histogram::len)
    }

    /// The requirements of the contract for every run, whatever happened in it.
    pub fn lawful(&self) {
        assert_eq!(self.events[0]["event"], "anchor", "the first line is the anchor");
        for event in &self.events {
            keys_are_lawful(event);
        }
        assert_eq!(self.all("anchor").len() + self.all("end").len(), 2);
        let sent = self.measured("answered") + self.measured("failed") + self.measured("unanswered");
        assert_eq!(self.measured("sent"), sent, "the ledger: {}", self.end());
        let answered = self.measured("answered");
        let broadcasts = self.end()["session"].is_null() && self.histograms.contains_key("push");
        let tag = if broadcasts { "push" } else { "service" };
        assert_eq!(self.count(tag), answered, "one `{tag}` value for each answered message");
        if self.histograms.contains_key("request") {
            assert_eq!(self.count("request"), answered, "one `request` value for each answered request");
        }
        let times: Vec<u64> = self.all("phase").iter().map(|event| event["t_ns"].as_u64().expect("a time")).collect();
        assert!(times.is_sorted(), "phases come in order: {times:?}");
        for key in ["t_ns", "sent", "answered", "failed", "bytes_sent", "bytes_received", "cpu_ns"] {
            let values: Vec<u64> = self.all("tick").iter().map(|tick| tick[key].as_u64().expect("a count")).collect();
            assert!(values.is_sorted(), "cumulative {key} never falls: {values:?}");
        }
    }
}

const EVENTS: [(&str, &[&str]); 10] = [
    ("anchor", &["engine", "event", "pid", "t_ns", "unix_ns"]),
    ("phase", &["entered_ns", "event", "phase", "t_ns"]),
    ("gate", &["event", "gate", "t_ns"]),
    ("copies", &["event", "last_ns", "number", "received", "t_ns"]),
    ("receivers", &["event", "reading", "t_ns"]),
    ("broadcast", &["event", "expected", "first_ns", "last_ns", "number", "received", "t_ns"]),
    (
        "tick",
        &[
            "answered",
            "bytes_received",
            "bytes_sent",
            "cpu_ns",
            "event",
            "failed",
            "open",
            "phase",
            "sent",
            "t_ns",
            "wait_ns",
        ],
    ),
    ("error", &["count", "event", "example", "kind", "phase", "t_ns"]),
    ("exchange", &["connection", "content", "event", "sent", "t_ns", "what"]),
    (
        "end",
        &[
            "closes",
            "connections",
            "control",
            "errors",
            "event",
            "measured",
            "outcome",
            "refusals",
            "session",
            "t_ns",
            "threads",
            "wall_moved_ns",
        ],
    ),
];

const END: [(&str, &[&str]); 3] = [
    ("connections", &["asked", "established", "open"]),
    (
        "measured",
        &[
            "answered",
            "bytes_received",
            "bytes_sent",
            "failed",
            "replies_in_window",
            "sent",
            "unanswered",
            "unsent",
            "window_ns",
        ],
    ),
    ("control", &["foreign", "fragmented_replies", "out_of_order", "pings_answered", "reconnects"]),
];

fn keys_are_lawful(event: &Value) {
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        keys.sort();
        keys
    };
    let (_, expected) =
        EVENTS.iter().find(|(name, _)| event["event"] == *name).unwrap_or_else(|| panic!("unknown {event}"));
    assert_eq!(keys(event), *expected, "{event}");
    if event["event"] == "end" {
        for (part, expected) in END {
            assert_eq!(keys(&event[part]), expected, "{part}");
        }
        for thread in event["threads"].as_array().expect("a list") {
            let expected = ["cpu_ns", "held_up_ns", "involuntary_switches", "voluntary_switches", "wait_ns", "wall_ns"];
            assert_eq!(keys(thread), expected);
        }
    }
}

/// The sum of each tag's intervals, by the library's own reader.
fn histograms(path: &Path) -> BTreeMap<String, Histogram<u64>> {
    let log = std::fs::read(path).expect("latency.hlog is there");
    let mut sums: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
    for entry in IntervalLogIterator::new(&log) {
        let LogEntry::Interval(interval) = entry.expect("a lawful interval log") else { continue };
        let tag = interval.tag().expect("every interval has a tag").as_str().to_string();
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, interval.encoded_histogram());
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.expect("base64").as_slice()).expect("a V2 histogram");
        let empty = || Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("bounds");
        sums.entry(tag).or_insert_with(empty).add(&histogram).expect("the same bounds");
    }
    sums
}
