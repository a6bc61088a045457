//! The two gates of a process that starts together with others: one before it connects, one before its first phase. An
//! event reports that the process waits. The parent opens the gate by a line on standard input with a time: `connect T`
//! or `begin T`, in nanoseconds of this host's `CLOCK_MONOTONIC`.

use crate::clock;
use crate::console;
use crate::leash;
use crate::names::named;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

named!(Gate { Connect "connect", Begin "begin" });

/// When to pass each gate; 0 is "not set".
static INSTANTS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Reads a line of standard input. A line that opens no gate is reported and has no effect.
pub fn hear(line: &str) {
    match parse(line.trim()) {
        Some((gate, t_ns)) => INSTANTS[gate as usize].store(t_ns, SeqCst),
        None if line.trim().is_empty() => {}
        None => console::complain(&format!("`{}` on standard input; allowed: connect T, begin T", line.trim())),
    }
}

fn parse(line: &str) -> Option<(Gate, u64)> {
    let (name, t_ns) = line.split_once(' ')?;
    let gate = Gate::ALL.iter().find(|gate| gate.name() == name)?;
    Some((*gate, t_ns.parse().ok().filter(|&t_ns| t_ns > 0)?))
}

/// When to pass the gate; `None` if no line came in time, or if this process is about to end.
pub fn wait(gate: Gate, seconds: f64) -> Option<u64> {
    let until = clock::now_ns() + (seconds * 1e9) as u64;
    while leash::outcome().is_none() {
        match INSTANTS[gate as usize].load(SeqCst) {
            0 if clock::now_ns() >= until => leash::not_begun(),
            0 => std::thread::sleep(LOOK_EVERY),
            t_ns => return Some(t_ns),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_opens_one_gate_at_one_instant() {
        assert_eq!(parse("connect 17"), Some((Gate::Connect, 17)));
        assert_eq!(parse("begin 18446744073709551615"), Some((Gate::Begin, u64::MAX)));
        for wrong in ["", "begin", "begin 0", "begin -1", "begin 1 2", "measure 5", "connect soon"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
