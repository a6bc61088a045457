//! What a worker counts: every message once, under one name, in the phase in which it was due, and
//! every connection in one state.

use crate::connection::Counted;
use crate::failure::Failure;
use crate::record::{Ledger, Record};

#[derive(Default)]
pub struct Accounts {
    pub record: Record,
    pub opening: usize,
    pub closing: usize,
    /// Messages that are neither answered nor failed, and those of the measured window.
    pub in_flight: u64,
    pub measured_in_flight: u64,
    /// When the last measured message was answered, or failed.
    pub last_reply_ns: u64,
    pub failures_in_a_row: u32,
}

impl Accounts {
    /// Connections that need attention: they wait for something, or are opening or closing.
    pub fn awaited(&self) -> usize {
        self.in_flight as usize + self.opening + self.closing
    }

    pub fn moved(&mut self, before: Counted, after: Counted) {
        match before {
            Counted::Nowhere => {}
            Counted::Opening => self.opening -= 1,
            Counted::Open => self.record.counters.open -= 1,
            Counted::Closing => self.closing -= 1,
        }
        match after {
            Counted::Nowhere => {}
            Counted::Opening => self.opening += 1,
            Counted::Open => self.record.counters.open += 1,
            Counted::Closing => self.closing += 1,
        }
    }

    #[inline]
    pub fn sent(&mut self, count: u64, measured: bool) {
        self.in_flight += count;
        self.record.counters.sent += count;
        if measured {
            self.measured_in_flight += count;
            self.record.ledger.sent += count;
        }
    }

    /// That many messages were answered, some of them measured.
    #[inline]
    pub fn answered(&mut self, count: u64, measured: u64, in_window: bool, now: u64) {
        self.in_flight -= count;
        self.record.counters.answered += count;
        self.record.ledger.replies_in_window += if in_window { count } else { 0 };
        if measured > 0 {
            self.measured_in_flight -= measured;
            self.record.ledger.answered += measured;
            self.last_reply_ns = now;
        }
    }

    /// That many messages failed for one reason, some of them measured. If there were none, a
    /// connection failed, and `alone_measured` states whether it belongs to the measurement.
    pub fn failed(&mut self, failure: Failure, hit: u64, measured: u64, alone_measured: bool, now: u64) {
        self.in_flight -= hit;
        self.record.counters.failed += hit;
        if measured > 0 {
            self.measured_in_flight -= measured;
            self.record.ledger.failed += measured;
            self.last_reply_ns = now;
        }
        let alone = u64::from(hit == 0);
        let alone_measured = if alone_measured { alone } else { 0 };
        self.record.error(failure, hit + alone, measured + alone_measured);
    }

    /// The ledger at the end. `kept` messages were written but never accepted by the kernel, so they were not sent.
    /// `late` messages fell due in the window, and no connection could take them.
    pub fn close(&mut self, kept: u64, late: u64, is_push: bool) -> Ledger {
        let ledger = &mut self.record.ledger;
        ledger.unsent += late + kept;
        ledger.sent -= kept;
        let unanswered = self.measured_in_flight - kept;
        let lawful = ledger.sent == ledger.answered + ledger.failed + unanswered;
        assert!(lawful || is_push, "a message was lost count of: {ledger:?}, {unanswered} under way");
        *ledger
    }
}
