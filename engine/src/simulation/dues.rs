//! What is due, by the schedule itself.

use crate::plan::{Loop, Plan, Scenario, Until};
use crate::schedule::{self, Due};
use crate::slices::Slices;

/// What is due on a worker until the drain, by the schedule itself, and not by what the worker made of it.
pub struct Dues {
    pub all: Vec<u64>,
    /// Those in the window, or in any of the slices'.
    pub measured: Vec<u64>,
}

impl Dues {
    /// If they are known when the schedule begins.
    pub fn new(plan: &Plan, index: usize, from_ns: u64) -> Option<Dues> {
        let (Loop::Open { arrivals, rate, .. }, Until::Seconds(measure_s)) = (&plan.pace, plan.measure) else {
            return None;
        };
        let warmup_s = match plan.warmup {
            None => 0.0,
            Some(Until::Seconds(seconds)) => seconds,
            Some(Until::Messages(_)) => return None,
        };
        if let Scenario::Push { .. } = plan.scenario {
            return None;
        }
        let slices = plan.slices.as_ref().map(|slices| Slices::new(slices, from_ns, warmup_s, measure_s));
        let measured_ns = from_ns + (warmup_s * 1e9) as u64;
        let drain_ns = measured_ns + (measure_s * 1e9) as u64;
        let stride = plan.messages_of(index)?;
        let mut due = Due::new(rate, *arrivals, stride, schedule::stream(plan.seed, stride.0));
        let at = |own_ns| slices.as_ref().map_or(from_ns.saturating_add(own_ns), |slices| slices.at(own_ns));
        let all: Vec<u64> = std::iter::from_fn(|| due.next().map(at)).take_while(|&at_ns| at_ns < drain_ns).collect();
        let is_measured =
            |at_ns: &&u64| slices.as_ref().map_or(**at_ns >= measured_ns, |slices| slices.measures(**at_ns));
        let measured = all.iter().filter(is_measured).copied().collect();
        Some(Dues { all, measured })
    }
}
