//! The time line of a trial: the current phase, the start of the next, the ticks and the final
//! report of a worker. Part of the worker.

use crate::connection::Counted;
use crate::control::{Final, Moment, Phase, Report, Tick};
use crate::draining::{BEYOND_NS, LOOK_NS};
use crate::plan::{Loop, Until};
use crate::slices::Edge;
use crate::system::System;
use crate::timeline::Reached;
use crate::worker::Worker;

/// A server that refuses this many connections in a row is considered absent.
const FAILURES_IN_A_ROW: u32 = 1000;

impl<S: System> Worker<S> {
    /// Takes the ticks and enters the phases that `now` has reached, in order of time.
    pub fn keep_time(&mut self, now: u64) {
        while !self.finished
            && let Some(reached) = self.timeline.reached(now, &self.plan, &self.control)
        {
            match reached {
                Reached::Phase(next, t_ns) => self.enter(next, t_ns),
                Reached::Edge(t_ns) => self.pass_edge(t_ns),
                Reached::Tick(t_ns) => self.tick(Moment::At(t_ns), t_ns, None),
            }
        }
    }

    fn enter(&mut self, phase: Option<Phase>, t_ns: u64) {
        let Some(phase) = phase else {
            self.finished = true;
            return;
        };
        self.tick(Moment::At(t_ns), t_ns, Some(phase));
        let before = std::mem::replace(&mut self.timeline.phase, phase);
        match phase {
            Phase::Connect => unreachable!("the run begins with it"),
            Phase::Warmup | Phase::Measure => {
                let until = self.plan.warmup.filter(|_| phase == Phase::Warmup).unwrap_or(self.plan.measure);
                self.pacer.limit(until, |messages| self.plan.share_of_messages(messages, self.index));
            }
            Phase::Drain => {
                self.lost |= matches!(self.plan.measure, Until::Seconds(_)) && self.is_deserted();
                self.close_window(t_ns);
                self.timeline.drain_ns = t_ns;
                // Messages due in the window are still sent; if a count ended it, all of them have been.
                self.pacer.quota = if matches!(self.plan.measure, Until::Seconds(_)) { u64::MAX } else { 0 };
            }
        }
        if before == Phase::Connect {
            self.begin_schedule(t_ns);
        }
        if self.timeline.slices.is_some() {
            // The windows are those of the slices.
            return;
        }
        self.timeline.loads = true;
        if phase == Phase::Measure {
            self.timeline.measure_ns = t_ns;
            self.timeline.drain_ns = self.control.begins_ns(Phase::Drain).unwrap_or(u64::MAX);
            self.open_window(t_ns);
        }
        // Connections that waited for this phase begin; busy ones continue.
        if before == Phase::Connect || phase == Phase::Measure && matches!(self.plan.warmup, Some(Until::Messages(_))) {
            self.pacer.pauses.clear();
            let all = 0..self.connections.len();
            if let Loop::Closed { think: None, .. } = self.plan.pace {
                // Each sends at once as many messages as it can have in flight.
                self.unstarted = all;
                return;
            }
            for index in all {
                // A leaving user has left, or leaves with its last reply.
                if !self.connections[index].leaving {
                    self.start(index, t_ns);
                }
            }
        }
    }

    /// The turn of this process begins, its lead is over, or its turn ends.
    fn pass_edge(&mut self, t_ns: u64) {
        self.tick(Moment::At(t_ns), t_ns, None);
        let edge = self.timeline.pass_edge();
        let measures = self.timeline.phase == Phase::Measure;
        match edge {
            Edge::Start => {
                // Nothing is measured here, and nothing under way.
                self.deferred.iter_mut().for_each(|tick| self.accounts.record.list(&mut tick.interval));
                self.unstarted = 0..self.connections.len();
            }
            Edge::Open if measures => self.open_window(t_ns),
            Edge::Open => {}
            Edge::Close => {
                self.close_window(t_ns);
                self.unstarted = 0..0;
                // A message that was due in this slice and could not leave in it does not leave in another one's.
                self.pacer.fall_due(t_ns, self.timeline.drain_ns, self.timeline.counted_from_ns());
                let late = self.pacer.backlog.drain(..).filter(|&due| due >= self.timeline.measure_ns).count();
                self.accounts.record.ledger.unsent += late as u64;
            }
        }
    }

    fn open_window(&mut self, t_ns: u64) {
        self.timeline.open_window(t_ns, self.system.usage(), &self.accounts.record.counters);
    }

    fn close_window(&mut self, t_ns: u64) {
        self.timeline.close_window(t_ns, self.system.usage(), &self.accounts.record.counters, self.stops.held_up_ns);
    }

    /// A phase that ends by count has ended when nothing of it is left to send or to await, or no
    /// connection is left to send it.
    pub fn check_end(&mut self) {
        if self.timeline.phase == Phase::Connect
            && !self.settled
            && self.changes.is_empty()
            && self.accounts.opening == 0
        {
            self.settled = true;
            self.report(Report::Settled { open: self.accounts.record.counters.open });
        }
        if self.timeline.phase == Phase::Drain && self.accounts.in_flight == 0 && self.pacer.backlog.is_empty() {
            self.finished |= !self.awaits_copies() || self.has_all_copies();
        }
        let gave_up = self.accounts.failures_in_a_row >= FAILURES_IN_A_ROW;
        if !self.pacer.counting {
            self.finished |= gave_up;
            return;
        }
        let under_way = if self.timeline.phase == Phase::Measure {
            self.accounts.measured_in_flight
        } else {
            self.accounts.in_flight
        };
        let complete = self.pacer.is_complete();
        if under_way == 0 && (complete || self.is_deserted() || gave_up) {
            self.pacer.counting = false;
            self.lost |= !complete;
            self.pacer.quota = 0;
            let t_ns = self.accounts.last_reply_ns.max(self.timeline.opened_ns().unwrap_or(self.pacer.start_ns));
            self.report(Report::Counted { phase: self.timeline.phase, t_ns });
        }
    }

    /// Reads what had come when the drain ended, which a worker that was not there has not seen.
    fn read_the_last(&mut self) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let awaits = self.awaits_copies() || !connection.under_way.is_empty();
            if awaits && connection.state.counted() != Counted::Opening && self.reads(index) {
                self.read_what_is_there(index);
            }
        }
    }

    /// Whether messages may arrive that nobody asked for.
    fn awaits_copies(&self) -> bool {
        self.script.is_notice() || self.board.rooms.is_some()
    }

    /// Whether all copies have come that the workers of this process expect, and then no more of them for a while. This
    /// worker has nothing more to send.
    #[cold]
    fn has_all_copies(&mut self) -> bool {
        let record = &self.accounts.record;
        let (expected, received) = match self.board.rooms {
            // Nobody joins or leaves a room (check.rs), so that no copy comes that was not expected.
            Some(_) => (record.pushes.expected, record.pushes.received),
            None => (record.counters.sent, record.counters.answered),
        };
        let owed = expected as i64 - received as i64;
        let draining = &self.board.draining;
        draining.owes(owed - self.owed.unwrap_or(0));
        if self.owed.replace(owed).is_none() {
            draining.stops_sending();
        }
        let now = self.system.now_ns();
        // What another shard triggers is known only when it comes.
        let known = self.board.rooms.is_some() || self.plan.shard.1 == 1;
        let end_ns = draining.complete_ns(now).filter(|_| known).map(|complete_ns| complete_ns + BEYOND_NS);
        self.timeline.moment_ns = self.timeline.moment_ns.min(end_ns.unwrap_or(now + LOOK_NS));
        end_ns.is_some_and(|end_ns| end_ns <= now)
    }

    /// Whether no connection is left that could continue the plan.
    fn is_deserted(&self) -> bool {
        let any = self.accounts.record.counters.open as usize
            + self.accounts.opening
            + self.accounts.closing
            + self.changes.len()
            + self.asked.len()
            > 0;
        !any && !self.plan.connection_per_request() && self.plan.stages.is_none()
    }

    fn tick(&mut self, moment: Moment, t_ns: u64, begins: Option<Phase>) {
        // The wall clock is adjusted while the engine runs; comparisons with it must follow.
        let to_unix_ns = self.system.to_unix_ns();
        let moved_ns = &mut self.accounts.record.counters.wall_moved_ns;
        *moved_ns = to_unix_ns.abs_diff(self.to_unix_ns).max(*moved_ns);
        self.to_unix_ns = to_unix_ns;
        let is_edge = self.timeline.slices.is_some() && begins.is_none() && moment != Moment::Last;
        let is_end = begins.is_some() || matches!(moment, Moment::Cut | Moment::Last);
        let is_fixed = is_edge || is_end;
        if !is_fixed && !self.accounts.record.can_hand_over() {
            return;
        }
        let tick = Tick {
            moment,
            t_ns,
            is_fixed,
            phase: self.timeline.phase,
            begins,
            taken_ns: self.system.now_ns(),
            counters: self.accounts.record.counters,
            usage: self.system.usage(),
            interval: self.accounts.record.hand_over(),
        };
        if is_edge {
            return self.deferred.push(tick);
        }
        if !self.deferred.is_empty() {
            let kept = std::mem::take(&mut self.deferred);
            self.report(Report::Deferred(kept));
        }
        self.report(Report::Tick(tick));
    }

    pub fn finish(mut self) {
        self.finished = true;
        if self.timeline.phase == Phase::Drain {
            self.read_the_last();
        }
        self.tell_copies();
        let now = self.system.now_ns();
        if self.timeline.phase == Phase::Measure {
            self.close_window(now);
            self.timeline.drain_ns = now;
            self.tick(Moment::Cut, now, Some(Phase::Drain));
            self.timeline.phase = Phase::Drain;
        }
        // A worker that was not there when the window ended has not yet seen what fell due in it.
        if self.timeline.slices.is_none() {
            self.pacer.fall_due(
                self.timeline.drain_ns.min(now),
                self.timeline.drain_ns,
                self.timeline.counted_from_ns(),
            );
        }
        let window = self.timeline.measure_ns..self.timeline.drain_ns;
        let late = self.pacer.backlog.iter().filter(|due| window.contains(due)).count() as u64;
        let kept = self.connections.iter().filter(|connection| connection.unsent.is_some());
        let kept =
            kept.flat_map(|connection| connection.under_way.all().filter(|message| !connection.has_left(message)));
        let kept = kept.filter(|message| message.measured).count() as u64;
        let ledger = self.accounts.close(kept, late, self.script.is_notice());
        let broadcasts = std::mem::take(&mut self.broadcasts.deliveries);
        self.say_goodbye_to_all();
        self.tick(Moment::Last, self.system.now_ns(), None);
        let last = Final {
            counters: self.accounts.record.counters,
            usage: self.system.usage(),
            ledger,
            errors: std::mem::take(&mut self.accounts.record.measured_errors),
            window: self.timeline.measured,
            broadcasts,
            pushes: self.accounts.record.pushes,
            partings: std::mem::take(&mut self.accounts.record.partings),
            lost: self.lost || self.accounts.failures_in_a_row >= FAILURES_IN_A_ROW,
        };
        self.report(Report::Finished(Box::new(last)));
    }
}
