//! CPU time burnt for every message, if asked for: a difference of known size, to check what a benchmark can tell apart.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

pub fn set(nanoseconds: u64) {
    NANOSECONDS.store(nanoseconds, Relaxed);
}

pub fn burn() {
    let nanoseconds = NANOSECONDS.load(Relaxed);
    if nanoseconds == 0 {
        return;
    }
    let until = Instant::now() + Duration::from_nanos(nanoseconds);
    while Instant::now() < until {
        hint::spin_loop();
    }
}
