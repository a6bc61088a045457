//! Output of the engine: `events.jsonl` and `latency.hlog`, merged over the workers and flushed at
//! every tick. A reader can follow a live run, and a crash loses at most a second.

use crate::clock;
use crate::control::{Final, Phase, Window};
use crate::counts::{Counts, new_histogram};
use crate::gate::Gate;
use crate::lending::Key;
use crate::merge::Merged;
use crate::plan::Plan;
use crate::push::{Board, Delivery};
use crate::record::{Counters, Exchange, Partings};
use crate::tags::Part;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub struct Emit {
    events: BufWriter<File>,
    latency: BufWriter<File>,
    serializer: V2Serializer,
    /// The one that is being written.
    histogram: Histogram<u64>,
    origin_ns: u64,
    /// The time of the last tick.
    pub last_ns: u64,
    used: (u64, Option<u64>),
}

impl Emit {
    /// Opens both files and writes the anchor.
    pub fn open(folder: &Path) -> io::Result<Emit> {
        std::fs::create_dir_all(folder)?;
        let now_ns = clock::now_ns();
        let mut emit = Emit {
            events: BufWriter::new(File::create(folder.join("events.jsonl"))?),
            latency: BufWriter::new(File::create(folder.join("latency.hlog"))?),
            serializer: V2Serializer::new(),
            histogram: new_histogram(),
            origin_ns: now_ns,
            last_ns: now_ns,
            used: (0, None),
        };
        emit.event(json!({
            "event": "anchor", "t_ns": now_ns, "unix_ns": clock::unix_ns(),
            "engine": env!("CARGO_PKG_VERSION"), "pid": std::process::id(),
        }))?;
        emit.flush()?;
        Ok(emit)
    }

    /// Sets the origin of ticks and intervals.
    pub fn begin(&mut self, origin_ns: u64) -> io::Result<()> {
        (self.origin_ns, self.last_ns) = (origin_ns, origin_ns);
        let start = (clock::to_unix_ns() + origin_ns) as f64 / 1e9;
        writeln!(
            self.latency,
            "#[wsbench-engine {}; nanoseconds]\n#[Histogram log format version 1.3]\n\
             #[StartTime: {start:.3} (seconds since epoch)]\n#[BaseTime: {start:.3} (seconds since epoch)]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"",
            env!("CARGO_PKG_VERSION")
        )?;
        self.flush()
    }

    pub fn gate(&mut self, gate: Gate) -> io::Result<()> {
        self.event(json!({"event": "gate", "t_ns": clock::now_ns(), "gate": gate.name()}))?;
        self.flush()
    }

    pub fn phase(&mut self, phase: Phase, t_ns: u64, entered_ns: u64) -> io::Result<()> {
        self.event(json!({"event": "phase", "t_ns": t_ns, "phase": phase.name(), "entered_ns": entered_ns}))
    }

    /// Since the engine began.
    pub fn seconds(&self, t_ns: u64) -> f64 {
        t_ns.saturating_sub(self.origin_ns) as f64 / 1e9
    }

    /// One tick of all workers: the sums, the errors since the last tick, and the interval's histograms.
    pub fn tick(&mut self, phase: Phase, tick: &mut Merged) -> io::Result<Counters> {
        let t_ns = tick.t_ns;
        let counters = sum(tick.states().map(|(counters, _)| counters));
        let wait_ns: Option<u64> = tick.states().map(|(_, usage)| usage.wait_ns).sum();
        // The end of a phase that ends by count is known only afterwards. Its CPU usage was read
        // later, perhaps later than that of a tick further down in the file.
        let cpu_ns = tick.states().map(|(_, usage)| usage.cpu_ns).sum::<u64>().max(self.used.0);
        self.used = (cpu_ns, wait_ns.map(|wait_ns| wait_ns.max(self.used.1.unwrap_or(0))));
        self.event(json!({
            "event": "tick", "t_ns": t_ns, "phase": phase.name(), "open": counters.open,
            "sent": counters.sent, "answered": counters.answered, "failed": counters.failed,
            "bytes_sent": counters.bytes_sent, "bytes_received": counters.bytes_received,
            "cpu_ns": self.used.0, "wait_ns": self.used.1,
        }))?;
        tick.exchanges.sort_by_key(|exchange| exchange.t_ns);
        for Exchange { t_ns, connection, sent, what, content } in &tick.exchanges {
            self.event(json!({
                "event": "exchange", "t_ns": t_ns, "connection": connection, "sent": sent, "what": what,
                "content": STANDARD.encode(content),
            }))?;
        }
        for (kind, (count, example)) in &tick.errors {
            self.event(json!({
                "event": "error", "t_ns": t_ns, "phase": phase.name(),
                "kind": kind.name(), "count": count, "example": example,
            }))?;
        }
        let mut written = Ok(());
        tick.set.each(|key, counts| {
            if written.is_ok() {
                written = self.interval(key, counts, t_ns);
            }
        });
        written?;
        self.last_ns = t_ns;
        self.flush()?;
        Ok(counters)
    }

    fn interval(&mut self, (tag, part): Key, counts: &Counts, t_ns: u64) -> io::Result<()> {
        counts.copy_to(&mut self.histogram);
        let bytes = self.compressed()?;
        let start = self.seconds(self.last_ns);
        let length = (t_ns - self.last_ns) as f64 / 1e9;
        let warmup = if part == Part::Warmup { "warmup-" } else { "" };
        let (tag, max, payload) = (tag.name(), self.histogram.max(), STANDARD.encode(bytes));
        writeln!(self.latency, "Tag={warmup}{tag},{start:.3},{length:.3},{max},{payload}")
    }

    /// HdrHistogram's compressed V2 format: a cookie, a length, a zlib stream. zlib runs at its
    /// fastest level, because this thread takes time from a worker's CPU if there is no other CPU.
    fn compressed(&mut self) -> io::Result<Vec<u8>> {
        const COOKIE: u32 = 0x1c84_9314;
        let mut plain = Vec::new();
        let serialized = self.serializer.serialize(&self.histogram, &mut plain);
        serialized.map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut zlib = ZlibEncoder::new([0; 8].to_vec(), Compression::fast());
        zlib.write_all(&plain)?;
        let mut bytes = zlib.finish()?;
        let length = bytes.len() as u32 - 8;
        bytes[..4].copy_from_slice(&COOKIE.to_be_bytes());
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        Ok(bytes)
    }

    /// The copies that all workers received of broadcasts by another shard, and the number of receivers over time.
    pub fn copies(&mut self, board: &Board, finals: &[Final]) -> io::Result<()> {
        let most = finals.iter().map(|end| end.broadcasts.len()).max().unwrap_or(0);
        for number in 0..most {
            let all = merged(number, finals);
            if all.received > 0 {
                self.event(json!({
                    "event": "copies", "t_ns": all.first_ns, "number": number, "received": all.received,
                    "last_ns": all.last_ns,
                }))?;
            }
        }
        for (t_ns, reading) in board.changes() {
            self.event(json!({"event": "receivers", "t_ns": t_ns, "reading": reading}))?;
        }
        Ok(())
    }

    /// Every broadcast of this process, with the copies received by all its workers.
    pub fn broadcasts(&mut self, board: &Board, finals: &[Final]) -> io::Result<()> {
        for (number, (sent_ns, expected)) in board.all().enumerate() {
            let all = merged(number, finals);
            let came = |t_ns: u64| (all.received > 0).then_some(t_ns);
            self.event(json!({
                "event": "broadcast", "t_ns": sent_ns, "number": number, "expected": expected,
                "received": all.received, "first_ns": came(all.first_ns), "last_ns": came(all.last_ns),
            }))?;
        }
        Ok(())
    }

    pub fn end(&mut self, plan: &Plan, outcome: &str, finals: &[Final]) -> io::Result<()> {
        let counters = sum(finals.iter().map(|end| end.counters));
        let total = |part: fn(&Final) -> u64| finals.iter().map(part).sum::<u64>();
        let windows: Vec<Window> = finals.iter().filter_map(|end| end.window).collect();
        let begin_ns = windows.iter().map(|window| window.begin_ns).min();
        let end_ns = windows.iter().map(|window| window.end_ns).max();
        let wall_ns = windows.iter().map(|window| window.wall_ns).max();
        let window_ns =
            if plan.slices.is_some() { wall_ns } else { end_ns.zip(begin_ns).map(|(end, begin)| end - begin) };
        let (sent, answered, failed) =
            (total(|end| end.ledger.sent), total(|end| end.ledger.answered), total(|end| end.ledger.failed));
        let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
        for (kind, count) in finals.iter().flat_map(|end| &end.errors) {
            *errors.entry(kind.name()).or_default() += count;
        }
        let threads: Vec<Value> = windows.iter().map(thread).collect();
        let mut partings = Partings::default();
        finals.iter().for_each(|end| partings.add(&end.partings));
        self.event(json!({
            "event": "end", "t_ns": clock::now_ns(), "outcome": outcome,
            "connections": {"asked": plan.own_connections(), "established": counters.established, "open": counters.open},
            "measured": {
                "sent": sent, "answered": answered, "failed": failed, "unanswered": sent - answered - failed,
                "unsent": total(|end| end.ledger.unsent),
                "window_ns": window_ns,
                "replies_in_window": total(|end| end.ledger.replies_in_window),
                "bytes_sent": windows.iter().map(|window| window.bytes_sent).sum::<u64>(),
                "bytes_received": windows.iter().map(|window| window.bytes_received).sum::<u64>(),
            },
            "control": {
                "pings_answered": counters.pings_answered, "fragmented_replies": counters.fragmented_replies,
                "reconnects": counters.reconnects, "out_of_order": counters.out_of_order, "foreign": counters.foreign,
            },
            "session": plan.session().map(|_| json!({
                "keepalives": counters.keepalives, "pushes_in_window": total(|end| end.pushes.in_window),
                "copies_expected": total(|end| end.pushes.expected), "copies_received": total(|end| end.pushes.received),
                "copies_out_of_order": total(|end| end.pushes.out_of_order),
                "copies_misplaced": total(|end| end.pushes.misplaced), "last_unknown": total(|end| end.pushes.last_unknown),
            })),
            "errors": errors,
            "closes": partings.closes.iter().map(|(code, (count, reason))| json!({
                "code": code, "count": count, "reason": reason,
            })).collect::<Vec<_>>(),
            "refusals": partings.refusals.iter().map(|(status, (count, refusal))| json!({
                "status": status, "count": count, "body": refusal.body,
                "location": refusal.location, "retry_after": refusal.retry_after,
            })).collect::<Vec<_>>(),
            "threads": threads,
            "wall_moved_ns": counters.wall_moved_ns,
        }))?;
        self.flush()
    }

    fn event(&mut self, event: Value) -> io::Result<()> {
        writeln!(self.events, "{event}")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.events.flush()?;
        self.latency.flush()
    }
}

fn merged(number: usize, finals: &[Final]) -> Delivery {
    let mut all = Delivery::default();
    for delivery in finals.iter().filter_map(|end| end.broadcasts.get(number)) {
        all.merge(delivery);
    }
    all
}

fn thread(window: &Window) -> Value {
    json!({
        "cpu_ns": window.usage.cpu_ns, "wait_ns": window.usage.wait_ns, "wall_ns": window.wall_ns,
        "held_up_ns": window.held_up_ns,
        "voluntary_switches": window.usage.voluntary_switches, "involuntary_switches": window.usage.involuntary_switches,
    })
}

fn sum(parts: impl Iterator<Item = Counters>) -> Counters {
    parts.fold(Counters::default(), |a, b| Counters {
        open: a.open + b.open,
        established: a.established + b.established,
        sent: a.sent + b.sent,
        answered: a.answered + b.answered,
        failed: a.failed + b.failed,
        bytes_sent: a.bytes_sent + b.bytes_sent,
        bytes_received: a.bytes_received + b.bytes_received,
        pings_answered: a.pings_answered + b.pings_answered,
        fragmented_replies: a.fragmented_replies + b.fragmented_replies,
        reconnects: a.reconnects + b.reconnects,
        keepalives: a.keepalives + b.keepalives,
        out_of_order: a.out_of_order + b.out_of_order,
        foreign: a.foreign + b.foreign,
        wall_moved_ns: a.wall_moved_ns.max(b.wall_moved_ns),
    })
}
