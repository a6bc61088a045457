//! What passes between the worker threads and the thread that runs them: the instants of the phases one way, reports the other.

use crate::clock::Usage;
use crate::record::{Counters, Interval, Kind, Ledger};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Connect,
    Warmup,
    Measure,
    Drain,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connect => "connect",
            Phase::Warmup => "warmup",
            Phase::Measure => "measure",
            Phase::Drain => "drain",
        }
    }
}

/// Common instants, in clock nanoseconds; 0 is "not yet".
#[derive(Default)]
pub struct Control {
    start_ns: AtomicU64,
    measure_ns: AtomicU64,
    stop: AtomicU64,
}

impl Control {
    pub fn start_at(&self, t_ns: u64) {
        self.start_ns.store(t_ns, SeqCst);
    }

    pub fn start_ns(&self) -> Option<u64> {
        Some(self.start_ns.load(SeqCst)).filter(|&t| t > 0)
    }

    /// Begins the measurement after a warm-up that ended by count.
    pub fn measure_at(&self, t_ns: u64) {
        self.measure_ns.store(t_ns, SeqCst);
    }

    pub fn measure_ns(&self) -> Option<u64> {
        Some(self.measure_ns.load(SeqCst)).filter(|&t| t > 0)
    }

    /// Everything ends now; what was measured is kept.
    pub fn stop(&self) {
        self.stop.store(1, SeqCst);
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(SeqCst) > 0
    }
}

/// A worker's state at tick `number`.
pub struct Tick {
    pub number: u64,
    pub phase: Phase,
    pub counters: Counters,
    pub usage: Usage,
    pub interval: Interval,
}

/// What a worker knows when it has finished.
pub struct Final {
    pub counters: Counters,
    pub usage: Usage,
    pub ledger: Ledger,
    pub unanswered: u64,
    pub errors: BTreeMap<Kind, u64>,
    pub window: Option<Window>,
    pub gave_up: bool,
}

/// A worker's measured window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub usage: Usage,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

pub enum Report {
    /// Connections asked for are open or have failed.
    Settled,
    WarmedUp,
    Tick(Tick),
    Finished(Box<Final>),
    /// This host cannot carry out the plan; the text says what to do.
    HostCannot(String),
}
