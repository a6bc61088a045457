//! What is due, and when: the schedule of an open loop, pauses, the count that ends a phase, and the queue of
//! connections that wait for a message. It sends nothing, and identifies a connection only by its index.

use crate::plan::{Loop, Plan, Scenario, Until};
use crate::schedule::Due;
use crate::slices::Slices;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Default)]
pub struct Pacer {
    schedule: Option<Due>,
    /// If the process takes turns, the schedule goes on only in its slices.
    slices: Option<Slices>,
    /// When the first phase after connecting began: the origin of the schedule's times.
    pub start_ns: u64,
    /// The due time that the schedule gave last; never, if it has no more.
    due_ns: u64,
    /// Due times that passed while no connection could take a message.
    pub backlog: VecDeque<u64>,
    /// Connections that can take a message, longest idle first.
    pub line: VecDeque<u32>,
    /// Connections whose next message has its own due time, after a pause or a failure: when, which one, in which generation.
    pub pauses: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Messages that may still be sent in this phase or, with a schedule, fall due in it.
    pub quota: u64,
    /// This phase ends by count, and the count has not been reached.
    pub counting: bool,
}

impl Pacer {
    /// The part of the plan's schedule for this worker. The first worker of the first shard triggers all broadcasts.
    pub fn new(plan: &Plan, index: usize, seed: u64) -> Pacer {
        let schedule = match &plan.pace {
            Loop::Open { arrivals, rate, .. } => match plan.scenario {
                Scenario::Push { .. } => (plan.stride(index).0 == 0).then(|| Due::new(rate, *arrivals, (0, 1), seed)),
                _ => plan.messages_of(index).map(|stride| Due::new(rate, *arrivals, stride, seed)),
            },
            _ => None,
        };
        Pacer { schedule, due_ns: u64::MAX, ..Pacer::default() }
    }

    pub fn begin(&mut self, t_ns: u64, slices: Option<Slices>) {
        (self.start_ns, self.slices) = (t_ns, slices);
        self.advance();
    }

    fn advance(&mut self) {
        let due = self.schedule.as_mut().and_then(Due::next);
        let at = |due| self.slices.as_ref().map_or(self.start_ns + due, |slices| slices.at(due));
        self.due_ns = due.map_or(u64::MAX, at);
    }

    /// Begins a phase that ends this way; `share` is this worker's part of its messages.
    pub fn limit(&mut self, until: Until, share: impl Fn(u64) -> u64) {
        (self.quota, self.counting) = match until {
            Until::Seconds(_) => (u64::MAX, false),
            Until::Messages(messages) => (share(messages), true),
        };
    }

    // ---- the count -------------------------------------------------------------------------------------------------

    /// Takes a place of the count for a message that is sent now; returns whether there was one. A
    /// scheduled message took its place when it fell due.
    #[inline]
    pub fn take_place(&mut self, due_ns: u64, counted_from_ns: u64) -> bool {
        self.take_places(1, due_ns, counted_from_ns) > 0
    }

    /// The same for so many messages; returns how many places there were.
    #[inline]
    pub fn take_places(&mut self, wanted: usize, due_ns: u64, counted_from_ns: u64) -> usize {
        if self.schedule.is_some() || due_ns < counted_from_ns {
            return wanted;
        }
        let free = self.quota.min(wanted as u64);
        self.quota -= free;
        free as usize
    }

    /// No message of this phase's count is left to send.
    pub fn is_complete(&self) -> bool {
        self.quota == 0 && self.backlog.is_empty()
    }

    // ---- time ------------------------------------------------------------------------------------------------------

    /// Every message that has fallen due is late until it is sent; its due time does not change. It
    /// takes its place of the count now, so a later due message cannot displace it. A message that
    /// falls due while a counted phase waits for the next one belongs to neither.
    pub fn fall_due(&mut self, now: u64, drain_ns: u64, counted_from_ns: u64) {
        while self.due_ns <= now {
            let between = self.counting && self.due_ns < counted_from_ns;
            if self.due_ns < drain_ns && !between && self.quota > 0 {
                self.quota -= 1;
                self.backlog.push_back(self.due_ns);
            }
            self.advance();
        }
    }

    pub fn pause(&mut self, until_ns: u64, index: usize, generation: u32) {
        self.pauses.push(Reverse((until_ns, index as u32, generation)));
    }

    /// A pause that is over: when it ended, for which connection, in which generation.
    pub fn over(&mut self, now: u64) -> Option<(u64, usize, u32)> {
        let &Reverse((due, index, generation)) = self.pauses.peek()?;
        if due > now {
            return None;
        }
        self.pauses.pop();
        Some((due, index as usize, generation))
    }

    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.due_ns.min(self.pauses.peek().map_or(u64::MAX, |&Reverse((due, ..))| due))
    }
}
