//! Broadcasts: the state that the workers of a process share about them, the copies received, and their text on the
//! wire. A process times the broadcasts that its own clock triggered, in this process or in another shard of this host.

use crate::clock;
use crate::draining::Draining;
use crate::plan::Plan;
use crate::rooms::RoomBoard;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// The shard that triggers all broadcasts of a trial.
pub const TRIGGERING: u32 = 0;
/// Further broadcasts in one run are not triggered.
pub const MOST: usize = 1 << 16;

/// When each broadcast was triggered, and its expected number of receivers.
pub struct Board {
    sent_ns: Box<[AtomicU64]>,
    expected: Box<[AtomicU64]>,
    count: AtomicUsize,
    /// Open connections that read, over all workers. Locked while a broadcast is triggered, so that
    /// for each of them it is defined whether it is expected to receive it.
    readers: Mutex<Readers>,
    pub rooms: Option<RoomBoard>,
    pub draining: Draining,
    /// Identifies this process's clock; processes on other hosts have different ones.
    pub clock: u32,
}

#[derive(Default)]
struct Readers {
    count: u64,
    /// The number of receivers from a time on. Consecutive arrivals share one entry.
    changes: Vec<(u64, u64)>,
    rising: bool,
}

impl Board {
    pub fn new(plan: &Plan) -> Board {
        let zeros = || (0..MOST).map(|_| AtomicU64::new(0)).collect();
        Board {
            sent_ns: zeros(),
            expected: zeros(),
            count: AtomicUsize::new(0),
            readers: Mutex::default(),
            rooms: plan.session().and_then(|session| Some(RoomBoard::new(plan, session.rooms?))),
            draining: Draining::new(plan.threads),
            clock: clock::id(),
        }
    }

    /// Adds a receiver; returns the number of the first broadcast that it is expected to receive.
    pub fn join(&self, t_ns: u64) -> u32 {
        self.change(t_ns, true)
    }

    /// Removes a receiver; returns the number of the first broadcast that it is not expected to receive.
    pub fn leave(&self, t_ns: u64) -> u32 {
        self.change(t_ns, false)
    }

    fn change(&self, t_ns: u64, joins: bool) -> u32 {
        let readers = &mut *self.readers.lock().expect("no holder panics");
        readers.count = if joins { readers.count + 1 } else { readers.count - 1 };
        if joins && readers.rising {
            readers.changes.pop();
        }
        readers.changes.push((t_ns, readers.count));
        readers.rising = joins;
        self.count.load(SeqCst) as u32
    }

    /// The number of receivers, from each time on.
    pub fn changes(&self) -> Vec<(u64, u64)> {
        self.readers.lock().expect("no holder panics").changes.clone()
    }

    /// The number of a new broadcast and its expected number of receivers; `None` if there have been too many.
    pub fn trigger(&self, t_ns: u64) -> Option<(usize, u64)> {
        let readers = self.readers.lock().expect("no holder panics");
        let (number, expected) = (self.count.load(SeqCst), readers.count);
        self.expected.get(number)?.store(expected, SeqCst);
        self.sent_ns[number].store(t_ns, SeqCst);
        self.count.store(number + 1, SeqCst);
        Some((number, expected))
    }

    pub fn sent_ns(&self, number: usize) -> Option<u64> {
        (number < self.count.load(SeqCst)).then(|| self.sent_ns[number].load(SeqCst))
    }

    /// For every broadcast: when it was triggered, and its expected number of receivers.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count.load(SeqCst))
            .map(|number| (self.sent_ns[number].load(SeqCst), self.expected[number].load(SeqCst)))
    }
}

/// The copies of one broadcast received by a worker's connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    pub received: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

impl Delivery {
    pub fn merge(&mut self, other: &Delivery) {
        if other.received > 0 {
            self.first_ns = if self.received == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
            self.last_ns = self.last_ns.max(other.last_ns);
            self.received += other.received;
        }
    }
}

/// The broadcasts of a worker.
pub struct Broadcasts {
    /// By number: the copies that came.
    pub deliveries: Vec<Delivery>,
    /// By address of the target: the connection that triggers there.
    pub senders: Vec<Option<usize>>,
}

impl Broadcasts {
    pub fn new(addresses: usize) -> Broadcasts {
        Broadcasts { deliveries: Vec::new(), senders: vec![None; addresses] }
    }

    pub fn came(&mut self, number: usize, now: u64) {
        if self.deliveries.len() <= number {
            self.deliveries.resize(number + 1, Delivery::default());
        }
        self.deliveries[number].merge(&Delivery { received: 1, first_ns: now, last_ns: now });
    }
}

/// The text that triggers broadcast `number` of this shard, with a tag that identifies its origin. If there are other
/// shards, it also has the time and the clock, so that shards of the same host can time their copies.
pub fn request(shard: (u32, u32), number: usize, tag: u32, clock: u32, t_ns: u64) -> String {
    let token = format!("broadcast {:04x}-{number:08x}-{tag:08x}", shard.0);
    if shard.1 == 1 { token } else { format!("{token}-{clock:08x}-{t_ns:016x}") }
}

/// A copy of a broadcast.
#[derive(Debug, PartialEq)]
pub struct Notice {
    /// The server's stamp, since the epoch.
    pub micros: u64,
    pub shard: u32,
    pub number: usize,
    pub tag: u32,
    /// A clock, and the time on it at which the broadcast was triggered.
    pub triggered: Option<(u32, u64)>,
}

pub fn parse(text: &[u8]) -> Option<Notice> {
    let (micros, token) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let mut parts = token.split('-');
    let mut hexadecimal = || u64::from_str_radix(parts.next()?, 16).ok();
    let (shard, number) = (u32::try_from(hexadecimal()?).ok()?, usize::try_from(hexadecimal()?).ok()?);
    let tag = u32::try_from(hexadecimal()?).ok()?;
    let triggered = hexadecimal().zip(hexadecimal()).map(|(clock, t_ns)| (clock as u32, t_ns));
    Some(Notice { micros: micros.parse().ok()?, shard, number, tag, triggered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_back_and_anything_else_is_none() {
        for (shards, triggered) in [(1, None), (4, Some((0xdead_beef, u64::MAX)))] {
            let token = request((0, shards), 77, 5, 0xdead_beef, u64::MAX);
            let token = token.strip_prefix("broadcast ").unwrap();
            let notice = Notice { micros: 1_700_000_000_000_000, shard: 0, number: 77, tag: 5, triggered };
            assert_eq!(parse(format!("1700000000000000 {token}").as_bytes()), Some(notice));
        }
        for wrong in ["", "1 2", "x 0001-00000001-00000005", "1 0001-00000001", "1 0001-", "\u{e9}"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
