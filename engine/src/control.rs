//! Communication between the worker threads and the thread that runs them: start times of the
//! phases one way, reports the other.

use crate::clock::Usage;
use crate::failure::Kind;
use crate::lending::{MOST_ENDS, MOST_LENT};
use crate::names::named;
use crate::push::Delivery;
use crate::record::{Counters, Interval, Ledger, Partings, Pushes};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

named!(#[derive(Default)] Phase { #[default] Connect "connect", Warmup "warmup", Measure "measure", Drain "drain" });

/// The start times of phases, in clock nanoseconds, once they are known; 0 is "not yet".
#[derive(Default)]
pub struct Control {
    begins_ns: [AtomicU64; 4],
    stop: AtomicBool,
}

impl Control {
    pub fn begin_at(&self, phase: Phase, t_ns: u64) {
        self.begins_ns[phase as usize].store(t_ns, SeqCst);
    }

    pub fn begins_ns(&self, phase: Phase) -> Option<u64> {
        Some(self.begins_ns[phase as usize].load(SeqCst)).filter(|&t| t > 0)
    }

    /// Ends everything now; measurements are kept.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }
}

/// When a tick is taken, in order of time. The last two differ from worker to worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    At(u64),
    /// The measured window was cut short.
    Cut,
    Last,
}

/// A worker's state at a moment.
pub struct Tick {
    pub moment: Moment,
    pub t_ns: u64,
    /// Never left out: a phase ends here, or a slice begins or ends.
    pub is_fixed: bool,
    pub phase: Phase,
    pub begins: Option<Phase>,
    /// When the worker took it.
    pub taken_ns: u64,
    pub counters: Counters,
    pub usage: Usage,
    pub interval: Interval,
}

/// The results of a worker that has finished.
#[derive(Default)]
pub struct Final {
    pub counters: Counters,
    pub usage: Usage,
    pub ledger: Ledger,
    pub errors: BTreeMap<Kind, u64>,
    pub window: Option<Window>,
    pub broadcasts: Vec<Delivery>,
    pub pushes: Pushes,
    pub partings: Partings,
    /// No connection was left to continue the plan.
    pub lost: bool,
}

/// What a worker measured: one window, or the sum of its slices' windows. `wall_ns` is their length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub wall_ns: u64,
    pub usage: Usage,
    pub held_up_ns: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// Ticks are of about the size of everything else together, and a box for each would be made between two messages.
#[expect(clippy::large_enum_variant)]
pub enum Report {
    /// All requested connections are open or have failed; `open` is how many are open.
    Settled {
        open: u64,
    },
    /// The worker's part of a phase that ends by count is done; the last reply came at `t_ns`.
    Counted {
        phase: Phase,
        t_ns: u64,
    },
    Tick(Tick),
    /// Ticks that were kept back, in order of time.
    Deferred(Vec<Tick>),
    Finished(Box<Final>),
    /// This host cannot carry out the plan; the text says what to do.
    HostCannot(String),
}

/// Reports of a worker that are under way besides its ticks: it has settled, its part of two phases is done, ticks were
/// kept until the end of a phase, the host cannot, and the last one.
const MOST_OTHERS: usize = 5 + MOST_ENDS;

/// The way of the workers' reports. It has room for all of them, so that no worker ever waits for the thread that reads.
#[derive(Clone)]
pub struct Reports(SyncSender<(usize, Report)>);

pub fn channel(workers: usize) -> (Reports, Receiver<(usize, Report)>) {
    let (sender, receiver) = sync_channel(workers * (MOST_LENT + MOST_ENDS + MOST_OTHERS));
    (Reports(sender), receiver)
}

impl Reports {
    pub fn send(&self, worker: usize, report: Report) {
        // The receiver is gone only if the process is ending.
        if let Err(TrySendError::Full(_)) = self.0.try_send((worker, report)) {
            unreachable!("a worker has more reports under way than there can be");
        }
    }
}
