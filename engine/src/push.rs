//! Broadcasts: what the workers of a process share about them, what each has received, and the few words on the wire.
//! This process times only the broadcasts that it triggered itself: one clock, read twice.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// More than this in one run are not triggered.
pub const MOST: usize = 1 << 16;

/// When each broadcast was triggered, and how many should receive it.
pub struct Board {
    sent_ns: Box<[AtomicU64]>,
    expected: Box<[AtomicU64]>,
    count: AtomicUsize,
    /// Open connections that read, of all workers. Held while a broadcast is triggered, so that each of them either is
    /// expected to receive it or knows that it is not.
    readers: Mutex<u64>,
}

impl Board {
    pub fn new() -> Board {
        let zeros = || (0..MOST).map(|_| AtomicU64::new(0)).collect();
        Board { sent_ns: zeros(), expected: zeros(), count: AtomicUsize::new(0), readers: Mutex::new(0) }
    }

    /// One more receiver; the number of the first broadcast that it is expected to receive.
    pub fn join(&self) -> u64 {
        let mut readers = self.readers.lock().expect("no holder panics");
        *readers += 1;
        self.count.load(SeqCst) as u64
    }

    pub fn leave(&self) {
        *self.readers.lock().expect("no holder panics") -= 1;
    }

    /// The number of a new broadcast and how many should receive it; `None` when there have been too many.
    pub fn trigger(&self, t_ns: u64) -> Option<(usize, u64)> {
        let readers = self.readers.lock().expect("no holder panics");
        let (number, expected) = (self.count.load(SeqCst), *readers);
        self.expected.get(number)?.store(expected, SeqCst);
        self.sent_ns[number].store(t_ns, SeqCst);
        self.count.store(number + 1, SeqCst);
        Some((number, expected))
    }

    pub fn sent_ns(&self, number: usize) -> Option<u64> {
        (number < self.count.load(SeqCst)).then(|| self.sent_ns[number].load(SeqCst))
    }

    /// Every broadcast: when it was triggered, and how many should have received it.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count.load(SeqCst))
            .map(|number| (self.sent_ns[number].load(SeqCst), self.expected[number].load(SeqCst)))
    }
}

/// What a worker's connections have received of one broadcast.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    pub received: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

impl Delivery {
    pub fn add(&mut self, t_ns: u64) {
        self.first_ns = if self.received == 0 { t_ns } else { self.first_ns };
        self.last_ns = t_ns;
        self.received += 1;
    }

    pub fn merge(&mut self, other: &Delivery) {
        if other.received > 0 {
            self.first_ns = if self.received == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
            self.last_ns = self.last_ns.max(other.last_ns);
            self.received += other.received;
        }
    }
}

/// What triggers broadcast `number` of this shard.
pub fn request(shard: u32, number: usize) -> String {
    format!("broadcast {shard:04x}-{number:08x}")
}

/// A notice: the server's stamp in microseconds since the epoch, the shard that triggered it, and its number.
pub fn parse(text: &[u8]) -> Option<(u64, u32, usize)> {
    let (micros, token) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let (shard, number) = token.split_once('-')?;
    Some((micros.parse().ok()?, u32::from_str_radix(shard, 16).ok()?, usize::from_str_radix(number, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_back_and_anything_else_is_none() {
        let token = request(3, 77);
        let token = token.strip_prefix("broadcast ").unwrap();
        assert_eq!(parse(format!("1700000000000000 {token}").as_bytes()), Some((1_700_000_000_000_000, 3, 77)));
        for wrong in ["", "1 2", "x 0001-00000001", "1 0001-", "\u{e9}"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
