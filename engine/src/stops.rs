//! What a worker is late by itself. A stop of it, or too much to do, is no delay of a server.

use std::collections::VecDeque;

const MOST: usize = 16;

#[derive(Default)]
pub struct Stops {
    /// Every event of this time or earlier has been handled: what a server is late by is counted up to it.
    pub looked_ns: u64,
    /// Since when events are handled that are not yet all, and how many have been.
    round_ns: u64,
    round_events: usize,
    /// When the last wait had to be over. If the worker comes back later, it was stopped, had no CPU, or had too much to do.
    back_ns: u64,
    /// The longest such time in the measured window.
    pub held_up_ns: u64,
    /// The last long ones, in which no server could be heard.
    last: VecDeque<(u64, u64)>,
}

impl Stops {
    pub fn new() -> Stops {
        Stops { back_ns: u64::MAX, last: VecDeque::with_capacity(MOST), ..Stops::default() }
    }

    /// The worker acts again. A stop of more than `long_ns` is remembered.
    #[inline]
    pub fn went_on(&mut self, now: u64, in_window: bool, long_ns: u64) {
        let late_ns = now.saturating_sub(self.back_ns);
        if in_window {
            self.held_up_ns = self.held_up_ns.max(late_ns);
        }
        if late_ns > long_ns {
            if self.last.len() == MOST {
                self.last.pop_front();
            }
            self.last.push_back((self.back_ns, now));
        }
    }

    /// The worker waits from `begun_ns` on, and has to be back at `back_ns`.
    #[inline]
    pub fn waits(&mut self, begun_ns: u64, back_ns: u64) {
        self.back_ns = back_ns;
        if self.round_events == 0 {
            self.round_ns = begun_ns;
        }
    }

    /// It has handled so many events. `all` there were, or more than there can be at once.
    #[inline]
    pub fn handled(&mut self, events: usize, all: impl FnOnce(usize) -> bool) {
        self.round_events += events;
        if all(self.round_events) {
            (self.looked_ns, self.round_events) = (self.round_ns, 0);
        }
    }

    /// For how long of the time between these two the worker stood still.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> u64 {
        let stops = self.last.iter();
        stops.map(|&(stopped_ns, went_on_ns)| went_on_ns.min(to_ns).saturating_sub(stopped_ns.max(from_ns))).sum()
    }
}
