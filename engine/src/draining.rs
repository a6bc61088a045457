//! The end of the drain where copies come that no worker asked for: it has come when all workers of the process have sent
//! what they had to send, and together have as many copies as they expect.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// So long after the last copy a copy too many is still seen.
pub const BEYOND_NS: u64 = 250_000_000;
/// So often a worker that awaits copies looks whether the others have theirs.
pub const LOOK_NS: u64 = 5_000_000;

pub struct Draining {
    /// Workers that may still send.
    sending: AtomicUsize,
    /// Copies that the other workers expect and do not have. One worker sends what others receive, so that a worker's own
    /// part may be negative.
    owed: AtomicI64,
    /// When a worker first saw that all copies had come; 0 before.
    complete_ns: AtomicU64,
}

impl Draining {
    pub fn new(workers: usize) -> Draining {
        Draining { sending: AtomicUsize::new(workers), owed: AtomicI64::new(0), complete_ns: AtomicU64::new(0) }
    }

    /// A worker that has told what it is owed will send nothing more.
    pub fn stops_sending(&self) {
        self.sending.fetch_sub(1, SeqCst);
    }

    /// A worker is owed so many more copies than when it told it last.
    pub fn owes(&self, more: i64) {
        self.owed.fetch_add(more, SeqCst);
    }

    /// When all copies had come, if they have.
    pub fn complete_ns(&self, now: u64) -> Option<u64> {
        // In this order: what is owed only shrinks once nobody sends.
        if self.sending.load(SeqCst) > 0 || self.owed.load(SeqCst) > 0 {
            return None;
        }
        let first = self.complete_ns.compare_exchange(0, now, SeqCst, SeqCst);
        Some(first.map_or_else(|earlier_ns| earlier_ns, |_| now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_complete_when_nobody_sends_and_nothing_is_owed() {
        let draining = Draining::new(2);
        draining.owes(3);
        draining.stops_sending();
        draining.owes(-3);
        assert_eq!(draining.complete_ns(10), None, "the other one may still send");
        // The other one sent two of which the first has had none, and had one of the first's.
        draining.owes(2);
        draining.stops_sending();
        assert_eq!(draining.complete_ns(20), None);
        draining.owes(-2);
        assert_eq!(draining.complete_ns(30), Some(30));
        assert_eq!(draining.complete_ns(40), Some(30), "for every worker the same");
    }
}
