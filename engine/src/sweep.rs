//! Which connections are looked at next, in case something has taken too long.

use crate::clock::SECOND_NS;
use crate::plan::Limits;

/// All connections are checked for timeouts no more often than this.
const LEAST_SWEEP_NS: u64 = 5_000_000;

/// How far the connections have been looked at: all of them once in a period.
pub struct Sweep {
    /// A timeout is detected after at most 1.25 times its duration; more frequent checks would only cost CPU.
    pub period_ns: u64,
    pub swept_ns: u64,
    cursor: usize,
}

impl Sweep {
    pub fn new(limits: &Limits) -> Sweep {
        let shortest = limits.connect_s.min(limits.reply_s);
        Sweep { period_ns: ((shortest / 4.0 * 1e9) as u64).clamp(LEAST_SWEEP_NS, SECOND_NS), swept_ns: 0, cursor: 0 }
    }

    pub fn begin(&mut self, origin_ns: u64) {
        self.swept_ns = origin_ns;
    }

    /// The connections that are to be looked at, out of so many: as many as the time since the last ones allows, and never
    /// all at once, which would delay the messages of a million others.
    pub fn due(&mut self, now: u64, total: usize) -> usize {
        let share = (now - self.swept_ns) as u128 * total as u128 / u128::from(self.period_ns);
        if share > 0 {
            self.swept_ns = now;
        }
        (share as usize).min(total)
    }

    pub fn next(&mut self, total: usize) -> usize {
        self.cursor = if self.cursor + 1 < total { self.cursor + 1 } else { 0 };
        self.cursor
    }
}
