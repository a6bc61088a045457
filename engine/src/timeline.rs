//! Where a worker is in its trial: the phase, the measured window, the slices, and what comes next. Times come in, times go
//! out: it knows neither connections nor messages.

use crate::clock::Usage;
use crate::control::{Control, Phase, Window};
use crate::plan::{Plan, Until};
use crate::record::Counters;
use crate::slices::{Edge, Slices};

#[derive(Default)]
pub struct Timeline {
    pub phase: Phase,
    /// The measured window, or that of the current slice; unknown times are "never".
    pub measure_ns: u64,
    pub drain_ns: u64,
    /// Messages may be due: always after connecting, but only in its slices for a process that takes turns.
    pub loads: bool,
    /// A reply that arrives now counts.
    pub in_window: bool,
    pub slices: Option<Slices>,
    /// The next tick or the next phase, whichever comes first.
    pub moment_ns: u64,
    /// What was measured in all windows that have closed.
    pub measured: Option<Window>,
    /// Ticks count from here.
    pub origin_ns: u64,
    ticks: u64,
    /// The state at the start of the window that is open.
    opened: Option<Window>,
}

/// What a worker has reached.
pub enum Reached {
    Tick(u64),
    /// The next phase, or the end.
    Phase(Option<Phase>, u64),
    /// An edge of a slice.
    Edge(u64),
}

impl Timeline {
    pub fn new() -> Timeline {
        Timeline { measure_ns: u64::MAX, drain_ns: u64::MAX, ..Timeline::default() }
    }

    /// What comes next, if `now` has reached it. A tick, or a phase that begins at the same time, has then been taken.
    pub fn reached(&mut self, now: u64, plan: &Plan, control: &Control) -> Option<Reached> {
        let tick_ns = self.origin_ns + (self.ticks + 1) * (plan.tick_s * 1e9) as u64;
        let (next, begins_ns) = self.next_phase(plan, control);
        let (tick_ns, edge_ns) = match &self.slices {
            None => (tick_ns, u64::MAX),
            Some(slices) => (u64::MAX, slices.next_ns()),
        };
        self.moment_ns = tick_ns.min(begins_ns).min(edge_ns);
        if now < self.moment_ns {
            return None;
        }
        self.ticks += u64::from(tick_ns == self.moment_ns);
        Some(match self.moment_ns {
            at if at == begins_ns => Reached::Phase(next, at),
            at if at == edge_ns => Reached::Edge(at),
            at => Reached::Tick(at),
        })
    }

    /// The phase after this one, and its start; `None` is the end.
    fn next_phase(&self, plan: &Plan, control: &Control) -> (Option<Phase>, u64) {
        let next = match self.phase {
            Phase::Connect if plan.warmup.is_some() => Phase::Warmup,
            Phase::Connect | Phase::Warmup => Phase::Measure,
            Phase::Measure => Phase::Drain,
            Phase::Drain => return (None, self.drain_ns + (plan.drain_s * 1e9) as u64),
        };
        (Some(next), control.begins_ns(next).unwrap_or(u64::MAX))
    }

    /// If the process takes turns: its slices, when the first phase after connecting begins.
    pub fn take_turns(&mut self, plan: &Plan, t_ns: u64) {
        if let Some(slices) = &plan.slices {
            let seconds = |until| if let Some(Until::Seconds(seconds)) = until { seconds } else { 0.0 };
            let (warmup_s, measure_s) = (seconds(plan.warmup), seconds(Some(plan.measure)));
            self.slices = Some(Slices::new(slices, t_ns, warmup_s, measure_s));
            self.drain_ns = 0;
        }
    }

    pub fn pass_edge(&mut self) -> Edge {
        let (edge, slice) = self.slices.as_mut().expect("it has edges").pass();
        if edge == Edge::Start {
            self.measure_ns = if self.phase == Phase::Measure { slice.open_ns } else { u64::MAX };
            self.drain_ns = slice.close_ns;
        }
        self.loads = edge != Edge::Close;
        edge
    }

    pub fn open_window(&mut self, t_ns: u64, usage: Usage, counters: &Counters) {
        self.in_window = true;
        self.opened = Some(Window {
            begin_ns: t_ns,
            usage,
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            ..Window::default()
        });
    }

    pub fn close_window(&mut self, t_ns: u64, usage: Usage, counters: &Counters, held_up_ns: u64) {
        self.in_window = false;
        let Some(opened) = self.opened.take() else { return };
        let end_ns = t_ns.max(opened.begin_ns);
        let used = usage.since(&opened.usage);
        let before = self.measured;
        let sum = before.unwrap_or_default();
        self.measured = Some(Window {
            begin_ns: before.map_or(opened.begin_ns, |before| before.begin_ns),
            end_ns,
            wall_ns: sum.wall_ns + end_ns - opened.begin_ns,
            usage: before.map_or(used, |before| before.usage.plus(&used)),
            held_up_ns,
            bytes_sent: sum.bytes_sent + counters.bytes_sent - opened.bytes_sent,
            bytes_received: sum.bytes_received + counters.bytes_received - opened.bytes_received,
        });
    }

    pub fn opened_ns(&self) -> Option<u64> {
        self.opened.map(|opened| opened.begin_ns)
    }

    /// The due time from which a message takes a place of this phase's count. Only a message from
    /// before the window that is sent late in it takes none.
    #[inline]
    pub fn counted_from_ns(&self) -> u64 {
        if self.phase == Phase::Measure { self.measure_ns } else { 0 }
    }

    /// Whether a message published at this time is part of the measurement: in the window, or in any of the slices'.
    #[inline]
    pub fn is_measured(&self, t_ns: u64) -> bool {
        (self.measure_ns..self.drain_ns).contains(&t_ns)
            || self.slices.as_ref().is_some_and(|slices| slices.measures(t_ns))
    }

    /// `to_ns` without the rests of a frozen server since `from_ns`: they are part of no server's time.
    #[inline]
    pub fn awake(&self, from_ns: u64, to_ns: u64) -> u64 {
        to_ns - self.slices.as_ref().map_or(0, |slices| slices.frozen_between(from_ns, to_ns))
    }
}
