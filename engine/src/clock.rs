//! The only module that reads a clock. Every measurement is `CLOCK_MONOTONIC` in nanoseconds. The
//! wall clock is read for the anchor, and for comparison with timestamps of the kernel or a server.
//! This module also reads a thread's CPU time, run-queue time and context switches.

use sha1::{Digest, Sha1};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

pub const SECOND_NS: u64 = 1_000_000_000;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "clock_gettime failed");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The CPU time of the calling thread.
pub fn thread_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

pub fn unix_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// How far the wall clock is ahead of the monotonic one, from the closest of a few readings of
/// both. A thread that loses its CPU between the two readings would get a wrong offset.
pub fn to_unix_ns() -> u64 {
    let readings = (0..4).map(|_| {
        let (before, wall, after) = (now_ns(), unix_ns(), now_ns());
        (after - before, wall.saturating_sub(before + (after - before) / 2))
    });
    readings.min().map_or(0, |(_, ahead)| ahead)
}

/// Sleeps until then, in pieces of at most 50 ms, while `goes_on` returns true.
pub fn sleep_until(t_ns: u64, goes_on: impl Fn() -> bool) {
    while goes_on() {
        let left = t_ns.saturating_sub(now_ns());
        if left == 0 {
            return;
        }
        std::thread::sleep(Duration::from_nanos(left.min(50_000_000)));
    }
}

/// Distinguishes the clocks of different hosts. The same number means the same `CLOCK_MONOTONIC`,
/// which belongs to one boot and one time namespace (time_namespaces(7)).
pub fn id() -> u32 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let digest = Sha1::new().chain_update(boot).chain_update(namespace.as_os_str().as_encoded_bytes()).finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

thread_local! {
    /// Open as long as the thread lives: to open it takes longer than to read it.
    static SCHEDSTAT: Option<File> = File::open("/proc/thread-self/schedstat").ok();
}

/// Usage of the calling thread since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu_ns: u64,
    /// Ready to run but not running; `None` where the kernel keeps no schedstat.
    pub wait_ns: Option<u64>,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

impl Usage {
    pub fn of_this_thread() -> Usage {
        // SAFETY: an all-zero rusage is valid, and the kernel fills it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid for the call to fill.
        let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
        assert_eq!(result, 0, "getrusage failed");
        // Second field of schedstat: nanoseconds in the run queue (Documentation/scheduler/sched-stats.rst).
        let mut text = [0; 64];
        let wait_ns = SCHEDSTAT.with(|file| {
            let length = file.as_ref()?.read_at(&mut text, 0).ok()?;
            std::str::from_utf8(&text[..length]).ok()?.split_whitespace().nth(1)?.parse().ok()
        });
        Usage {
            cpu_ns: thread_ns(),
            wait_ns,
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    pub fn plus(&self, more: &Usage) -> Usage {
        self.with(more, |one, other| one + other)
    }

    pub fn since(&self, earlier: &Usage) -> Usage {
        self.with(earlier, |now, before| now - before)
    }

    fn with(&self, other: &Usage, of: impl Fn(u64, u64) -> u64) -> Usage {
        Usage {
            cpu_ns: of(self.cpu_ns, other.cpu_ns),
            wait_ns: self.wait_ns.zip(other.wait_ns).map(|(one, other)| of(one, other)),
            voluntary_switches: of(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: of(self.involuntary_switches, other.involuntary_switches),
        }
    }
}
