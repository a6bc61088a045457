//! Observations that a worker has not yet handed over: counters, errors by kind, and one histogram
//! for each tag. Only the worker has access to its record. At every tick it hands over the
//! interval's part and starts the next with empty histograms.

use crate::failure::{Failure, Kind};
use crate::lending::{Lent, Sets};
use crate::tags::{Part, Tag};
use std::collections::BTreeMap;

/// Cumulative since the worker began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub open: u64,
    pub established: u64,
    pub sent: u64,
    pub answered: u64,
    pub failed: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub pings_answered: u64,
    pub fragmented_replies: u64,
    pub reconnects: u64,
    /// Messages of a session that keep its connection alive: sent of the engine's own accord, or as an answer.
    pub keepalives: u64,
    /// Broadcasts that arrived twice, or after a later one.
    pub out_of_order: u64,
    /// Broadcasts triggered by another process.
    pub foreign: u64,
    /// The largest shift of the wall clock against the monotonic one between two ticks.
    pub wall_moved_ns: u64,
}

/// The ledger over messages sent in the measured window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger {
    pub sent: u64,
    pub answered: u64,
    pub failed: u64,
    pub replies_in_window: u64,
    /// Due in the measured window and never sent.
    pub unsent: u64,
}

/// Messages of a session that arrived without a request, and copies of published messages, of the measured window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pushes {
    /// Messages that arrived in the window, whenever they were published.
    pub in_window: u64,
    /// Copies of the messages published in the window: for every member of the room, and those that arrived.
    pub expected: u64,
    pub received: u64,
    /// At any time: twice, or behind a later one of the same publisher.
    pub out_of_order: u64,
    /// At any time: for a member of another room or, where publishers receive nothing of their own, at their publisher.
    pub misplaced: u64,
    /// Messages of the window of which it is not known when their last copy came.
    pub last_unknown: u64,
}

/// A server's answer to an opening handshake that is not 101.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The beginning of what came with the head.
    pub body: String,
    pub location: Option<String>,
    pub retry_after: Option<String>,
}

/// How servers ended connections and refused them, in their own words: those of the first of each code and status.
#[derive(Clone, Debug, Default)]
pub struct Partings {
    /// By code, with the reason.
    pub closes: Counted<Option<u16>, String>,
    pub refusals: Counted<u16, Refusal>,
}

/// How often something came, and an example.
pub type Counted<Key, Example> = BTreeMap<Key, (u64, Example)>;

pub fn count<Key: Ord, Example>(
    all: &mut Counted<Key, Example>,
    key: Key,
    count: u64,
    first: impl FnOnce() -> Example,
) {
    all.entry(key).or_insert_with(|| (0, first())).0 += count;
}

/// Further codes and statuses are not kept.
const MOST_PARTINGS: usize = 16;

impl Partings {
    #[cold]
    pub fn closed(&mut self, code: Option<u16>, reason: &[u8]) {
        if self.closes.len() < MOST_PARTINGS || self.closes.contains_key(&code) {
            count(&mut self.closes, code, 1, || printable(reason));
        }
    }

    #[cold]
    pub fn refused(&mut self, status: u16, refusal: Refusal) {
        if self.refusals.len() < MOST_PARTINGS || self.refusals.contains_key(&status) {
            count(&mut self.refusals, status, 1, || refusal);
        }
    }

    /// Those of another worker too.
    pub fn add(&mut self, other: &Partings) {
        for (&code, (times, reason)) in &other.closes {
            count(&mut self.closes, code, *times, || reason.clone());
        }
        for (&status, (times, refusal)) in &other.refusals {
            count(&mut self.refusals, status, *times, || refusal.clone());
        }
    }
}

/// The beginning of a server's words, on one line.
pub fn printable(bytes: &[u8]) -> String {
    // A character has at most four bytes.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LONGEST_EXAMPLE)]);
    let printed = text.chars().take(LONGEST_EXAMPLE).map(|found| if found.is_control() { ' ' } else { found });
    printed.collect::<String>().trim().to_string()
}

pub type Errors = Counted<Kind, String>;

/// A message of a traced session that was sent, or a record that arrived.
#[derive(Debug)]
pub struct Exchange {
    pub t_ns: u64,
    pub connection: u32,
    pub sent: bool,
    /// The step or the rule; `None` for a record without a rule.
    pub what: Option<String>,
    pub content: Vec<u8>,
}

/// The part of a record that is handed over at a tick.
pub struct Interval {
    pub lent: Lent,
    pub errors: Errors,
    pub exchanges: Vec<Exchange>,
}

/// More in an interval are not kept: a trace is for a few messages.
const MOST_EXCHANGES: usize = 10_000;

#[derive(Default)]
pub struct Record {
    pub counters: Counters,
    pub ledger: Ledger,
    pub pushes: Pushes,
    pub partings: Partings,
    pub measured_errors: BTreeMap<Kind, u64>,
    sets: Sets,
    last: [Alike; 2],
    errors: Errors,
    exchanges: Vec<Exchange>,
}

/// Equal consecutive durations that are not in their histogram yet: messages that left together and
/// returned together are one entry.
struct Alike {
    tag: Tag,
    part: Part,
    ns: u64,
    count: u64,
}

impl Default for Alike {
    fn default() -> Alike {
        Alike { tag: Tag::Service, part: Part::Measured, ns: 0, count: 0 }
    }
}

const LONGEST_EXAMPLE: usize = 200;

impl Record {
    /// Never fails: a value beyond the range is recorded as the highest, but such a reply has timed out long before.
    #[inline]
    pub fn duration(&mut self, tag: Tag, part: Part, from_ns: u64, to_ns: u64) {
        let ns = to_ns.saturating_sub(from_ns).max(1);
        // A session's message has the time of its step too: the two do not end each other's row of equal ones.
        let last = &mut self.last[usize::from(tag >= Tag::Step0)];
        if last.ns == ns && last.tag == tag && last.part == part {
            last.count += 1;
            return;
        }
        let before = std::mem::replace(last, Alike { tag, part, ns, count: 1 });
        self.enter(before);
    }

    #[inline]
    fn enter(&mut self, alike: Alike) {
        let Alike { tag, part, ns, count } = alike;
        if count > 0 {
            self.sets.current.of((tag, part)).record(ns, count);
        }
    }

    /// The same failure this many times, this many of them part of the measurement.
    pub fn error(&mut self, Failure { kind, example }: Failure, times: u64, measured: u64) {
        // The words may come from the server.
        count(&mut self.errors, kind, times, || example.chars().take(LONGEST_EXAMPLE).collect());
        if measured > 0 {
            *self.measured_errors.entry(kind).or_insert(0) += measured;
        }
    }

    pub fn exchange(&mut self, exchange: Exchange) {
        if self.exchanges.len() < MOST_EXCHANGES {
            self.exchanges.push(exchange);
        }
    }

    /// A record that continues with the same counters, for data that must not enter this one.
    pub fn beside(&self) -> Record {
        Record { counters: self.counters, ..Record::default() }
    }

    pub fn take_errors(&mut self, kind: Kind) -> Option<(u64, String)> {
        self.errors.remove(&kind)
    }

    fn enter_last(&mut self) {
        for last in std::mem::take(&mut self.last) {
            self.enter(last);
        }
    }

    /// Whether a tick can be handed over. If not, what it would have is part of the next one.
    pub fn can_hand_over(&mut self) -> bool {
        self.enter_last();
        self.sets.can_lend()
    }

    pub fn hand_over(&mut self) -> Interval {
        self.enter_last();
        let (errors, exchanges) = (std::mem::take(&mut self.errors), std::mem::take(&mut self.exchanges));
        Interval { lent: self.sets.lend(), errors, exchanges }
    }

    /// This interval is kept for long.
    pub fn list(&mut self, interval: &mut Interval) {
        self.sets.list(&mut interval.lent);
    }
}
