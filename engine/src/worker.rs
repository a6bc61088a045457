//! One thread and its connections. Nothing is shared with other workers, and nothing is allocated for a message: a reply is
//! read into one buffer that all connections share, checked where it lies, and answered by the next message from inside the
//! same read. A message costs one recv, one send and its share of an epoll.
//!
//! This file is the loop: what time it is, which phase, what is due, what has come. How connections come and go is in
//! opening.rs, what passes over them in exchange.rs.

use crate::clock::{self, Usage};
use crate::connection::{Connection, Stage};
use crate::control::{Control, Final, Moment, Phase, Report, Tick, Window};
use crate::handshake::Offer;
use crate::http;
use crate::plan::{Loop, Plan, Scenario, Until};
use crate::poll::{Poll, Waker};
use crate::push::{Board, Delivery};
use crate::record::{Kind, Record};
use crate::scenario::Script;
use crate::schedule::{self, Change, Due};
use crate::tls;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

pub const SECOND_NS: u64 = 1_000_000_000;
const BUFFER_BYTES: usize = 512 << 10;
/// A server that refuses this many times in a row is not there.
const FAILURES_IN_A_ROW: u32 = 1000;

pub struct Worker {
    pub(crate) index: usize,
    pub(crate) plan: Arc<Plan>,
    pub(crate) script: Script,
    pub(crate) request: Vec<u8>,
    pub(crate) offer: Offer,
    pub(crate) tls: Option<tls::Client>,
    pub(crate) control: Arc<Control>,
    pub(crate) board: Arc<Board>,
    reports: Sender<(usize, Report)>,
    pub(crate) poll: Poll,
    pub(crate) connections: Vec<Connection>,
    pub(crate) buffer: Vec<u8>,
    /// What is to be sent on the connection that is being served; empty between connections.
    pub(crate) out: Vec<u8>,
    /// Room for what TLS has opened, for a message that is compressed or cut, and for what it becomes.
    pub(crate) plain: Vec<u8>,
    pub(crate) whole: Vec<u8>,
    pub(crate) small: Vec<u8>,
    pub(crate) random: fastrand::Rng,
    pub(crate) record: Record,

    pub(crate) phase: Phase,
    /// The measured window; what is not known yet never comes.
    pub(crate) measure_ns: u64,
    pub(crate) drain_ns: u64,
    /// Messages that may still be sent in this phase.
    pub(crate) quota: u64,
    /// This phase ends by count, and the count has not been reached.
    counting: bool,
    origin_ns: u64,
    ticks: u64,
    /// The next tick or the next phase, whichever comes first.
    pub(crate) moment_ns: u64,
    swept_ns: u64,
    cursor: usize,

    /// Users who are to come or to go, in the order of time.
    pub(crate) changes: VecDeque<(u64, u32, Change)>,
    /// Connections whose next message has a due time of its own: after a pause, or after a failure.
    pub(crate) timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// The schedule of an open loop, and the due time that it gave last.
    pub(crate) schedule: Option<Due>,
    pub(crate) start_ns: u64,
    pub(crate) due_ns: u64,
    /// Due times that have passed while no connection could take a message.
    pub(crate) late: VecDeque<u64>,
    /// Connections that can take a message, longest idle first.
    pub(crate) line: VecDeque<u32>,

    pub(crate) opening: usize,
    pub(crate) closing: usize,
    pub(crate) in_flight: u64,
    pub(crate) measured_in_flight: u64,
    pub(crate) last_reply_ns: u64,
    pub(crate) failures_in_a_row: u32,
    pub(crate) broadcasts: Vec<Delivery>,
    /// From `CLOCK_MONOTONIC` to the epoch.
    pub(crate) to_unix_ns: u64,
    settled: bool,
    begun: Option<Window>,
    ended: Option<Window>,
    pub(crate) lost: bool,
    pub(crate) finished: bool,
}

/// What all workers of a process have in common.
#[derive(Clone)]
pub struct Common {
    pub plan: Arc<Plan>,
    pub tls: Option<tls::Client>,
    pub control: Arc<Control>,
    pub board: Arc<Board>,
    pub reports: Sender<(usize, Report)>,
    pub origin_ns: u64,
}

impl Worker {
    pub fn new(index: usize, common: Common) -> io::Result<Worker> {
        let Common { plan, tls, control, board, reports, origin_ns } = common;
        let numbers = (index as u32..plan.connections as u32).step_by(plan.threads);
        let connections: Vec<Connection> = numbers.map(|number| Connection::new(number, plan.transport)).collect();
        let seed = plan.seed ^ (index as u64) << 48;
        let now = clock::now_ns();
        let mut worker = Worker {
            index,
            script: Script::new(&plan)?,
            offer: Offer { deflate: plan.deflate, subprotocols: plan.subprotocols.clone() },
            tls,
            request: http::request(&plan, !plan.connection_per_request()),
            schedule: schedule_of(&plan, index, seed),
            control,
            board,
            reports,
            poll: Poll::new()?,
            connections,
            buffer: vec![0; BUFFER_BYTES],
            out: Vec::new(),
            plain: Vec::new(),
            whole: Vec::new(),
            small: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            record: Record::default(),
            phase: Phase::Connect,
            measure_ns: u64::MAX,
            drain_ns: u64::MAX,
            quota: 0,
            counting: false,
            origin_ns,
            ticks: 0,
            moment_ns: 0,
            swept_ns: now,
            cursor: 0,
            changes: VecDeque::new(),
            timers: BinaryHeap::new(),
            start_ns: 0,
            due_ns: u64::MAX,
            late: VecDeque::new(),
            line: VecDeque::new(),
            opening: 0,
            closing: 0,
            in_flight: 0,
            measured_in_flight: 0,
            last_reply_ns: 0,
            failures_in_a_row: 0,
            broadcasts: Vec::new(),
            to_unix_ns: clock::unix_ns() - now,
            settled: false,
            begun: None,
            ended: None,
            lost: false,
            finished: false,
            plan,
        };
        if worker.plan.stages.is_none() && !worker.plan.connection_per_request() {
            worker.ask_for_all(now);
        }
        Ok(worker)
    }

    pub fn waker(&self) -> Waker {
        self.poll.waker()
    }

    pub fn run(mut self) {
        while !self.finished && !self.control.stopped() {
            let now = clock::now_ns();
            self.keep_time(now);
            self.make_changes(now);
            self.send_due(now);
            self.sweep(now);
            self.check_end();
            self.wait(now);
        }
        self.finish();
    }

    pub(crate) fn report(&self, report: Report) {
        // The receiver is gone only when the process is ending.
        let _ = self.reports.send((self.index, report));
    }

    pub(crate) fn host_cannot(&mut self, what: String) {
        self.report(Report::HostCannot(what));
        self.finished = true;
    }

    // ---- time ------------------------------------------------------------------------------------------------------

    /// Takes the ticks and enters the phases that `now` has reached, in the order of time.
    pub(crate) fn keep_time(&mut self, now: u64) {
        while !self.finished {
            let tick_ns = self.origin_ns + (self.ticks + 1) * SECOND_NS;
            let (next, begins_ns) = self.next_phase();
            self.moment_ns = tick_ns.min(begins_ns);
            if now < self.moment_ns {
                return;
            }
            if begins_ns <= tick_ns {
                self.enter(next, begins_ns);
            } else {
                self.ticks += 1;
                self.tick(Moment::At(tick_ns), tick_ns, None);
            }
        }
    }

    /// The phase after this one, and when it begins; `None` is the end.
    fn next_phase(&self) -> (Option<Phase>, u64) {
        let next = match self.phase {
            Phase::Connect if self.plan.warmup.is_some() => Phase::Warmup,
            Phase::Connect | Phase::Warmup => Phase::Measure,
            Phase::Measure => Phase::Drain,
            Phase::Drain => return (None, self.drain_ns + (self.plan.drain_s * 1e9) as u64),
        };
        (Some(next), self.control.begins_ns(next).unwrap_or(u64::MAX))
    }

    fn enter(&mut self, phase: Option<Phase>, t_ns: u64) {
        let Some(phase) = phase else {
            self.finished = true;
            return;
        };
        self.tick(Moment::At(t_ns), t_ns, Some(phase));
        let before = std::mem::replace(&mut self.phase, phase);
        match phase {
            Phase::Connect => unreachable!("the run begins with it"),
            Phase::Warmup => self.limit(self.plan.warmup.expect("this phase is in the plan")),
            Phase::Measure => {
                self.begin_window(t_ns);
                self.limit(self.plan.measure);
            }
            Phase::Drain => {
                self.end_window(t_ns);
                self.quota = u64::MAX;
            }
        }
        if before == Phase::Connect {
            self.start_ns = t_ns;
            self.begin_schedule(t_ns);
        }
        // Who waited for this phase begins; who is in the middle of something goes on.
        if before == Phase::Connect || phase == Phase::Measure && matches!(self.plan.warmup, Some(Until::Messages(_))) {
            for index in 0..self.connections.len() {
                self.start(index, clock::now_ns());
            }
        }
    }

    fn limit(&mut self, until: Until) {
        (self.quota, self.counting) = match until {
            Until::Seconds(_) => (u64::MAX, false),
            Until::Messages(messages) => (self.plan.share(messages, self.index), true),
        };
    }

    fn begin_window(&mut self, t_ns: u64) {
        self.measure_ns = t_ns;
        self.drain_ns = self.control.begins_ns(Phase::Drain).unwrap_or(u64::MAX);
        let counters = &self.record.counters;
        self.begun = Some(Window {
            begin_ns: t_ns,
            end_ns: t_ns,
            usage: Usage::of_this_thread(),
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
        });
    }

    fn end_window(&mut self, t_ns: u64) {
        self.drain_ns = t_ns;
        let Some(begun) = self.begun else { return };
        self.ended = Some(Window {
            begin_ns: begun.begin_ns,
            end_ns: t_ns.max(begun.begin_ns),
            usage: Usage::of_this_thread().since(&begun.usage),
            bytes_sent: self.record.counters.bytes_sent - begun.bytes_sent,
            bytes_received: self.record.counters.bytes_received - begun.bytes_received,
        });
    }

    /// A phase that ends by count has ended when nothing of it is left to send or to await, or nobody to send it.
    fn check_end(&mut self) {
        if self.phase == Phase::Connect && !self.settled && self.changes.is_empty() && self.opening == 0 {
            self.settled = true;
            self.report(Report::Settled);
        }
        if self.phase == Phase::Drain && self.in_flight == 0 && self.late.is_empty() && !self.script.is_notice() {
            self.finished = true;
        }
        let gave_up = self.failures_in_a_row >= FAILURES_IN_A_ROW;
        if !self.counting {
            self.finished |= gave_up;
            return;
        }
        let under_way = if self.phase == Phase::Measure { self.measured_in_flight } else { self.in_flight };
        let nobody =
            !self.plan.connection_per_request() && self.record.counters.open == 0 && self.opening + self.closing == 0;
        if under_way == 0 && (self.quota == 0 || nobody || gave_up) {
            self.counting = false;
            self.lost |= self.quota > 0;
            self.quota = 0;
            let t_ns = self.last_reply_ns.max(self.begun.map_or(self.start_ns, |begun| begun.begin_ns));
            self.report(Report::Counted { phase: self.phase, t_ns });
        }
    }

    fn tick(&mut self, moment: Moment, t_ns: u64, begins: Option<Phase>) {
        let tick = Tick {
            moment,
            t_ns,
            phase: self.phase,
            begins,
            counters: self.record.counters,
            usage: Usage::of_this_thread(),
            interval: self.record.hand_over(),
        };
        self.report(Report::Tick(tick));
    }

    fn finish(mut self) {
        let now = clock::now_ns();
        if self.phase == Phase::Measure {
            self.end_window(now);
            self.tick(Moment::Cut, now, Some(Phase::Drain));
            self.phase = Phase::Drain;
        }
        let window = self.measure_ns..self.drain_ns;
        self.record.ledger.unsent = self.late.iter().filter(|due| window.contains(due)).count() as u64;
        let unanswered = self.measured_in_flight;
        let ledger = self.record.ledger;
        let lawful = ledger.sent == ledger.answered + ledger.failed + unanswered;
        assert!(lawful || self.script.is_notice(), "a message was lost count of: {ledger:?}, {unanswered} under way");
        self.tick(Moment::Last, now, None);
        let last = Final {
            counters: self.record.counters,
            usage: Usage::of_this_thread(),
            ledger,
            errors: std::mem::take(&mut self.record.measured_errors),
            window: self.ended,
            broadcasts: std::mem::take(&mut self.broadcasts),
            lost: self.lost || self.failures_in_a_row >= FAILURES_IN_A_ROW,
        };
        self.say_goodbye_to_all();
        self.report(Report::Finished(Box::new(last)));
    }

    // ---- what is due -----------------------------------------------------------------------------------------------

    fn begin_schedule(&mut self, t_ns: u64) {
        if let Some(stages) = &self.plan.stages {
            let threads = self.plan.threads;
            let mine = schedule::changes(stages).into_iter().filter(|(_, user, _)| user % threads == self.index);
            self.changes = mine.map(|(due, user, change)| (t_ns + due, (user / threads) as u32, change)).collect();
        }
        self.advance_schedule();
    }

    fn advance_schedule(&mut self) {
        let due = self.schedule.as_mut().and_then(Due::next).map(|due| self.start_ns + due);
        self.due_ns = due.unwrap_or(u64::MAX);
    }

    /// Sends what is due by now; what no connection can take yet stands in line, and its due time stays what it is.
    fn send_due(&mut self, now: u64) {
        while let Some(&Reverse((due, index))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            self.send(index as usize, due, clock::now_ns());
            self.flush(index as usize);
        }
        while self.due_ns <= now {
            if self.due_ns < self.drain_ns && self.quota > self.late.len() as u64 {
                self.late.push_back(self.due_ns);
            }
            self.advance_schedule();
        }
        while let Some(&due) = self.late.front() {
            if self.script.is_notice() {
                if !self.trigger(due) {
                    return;
                }
                self.late.pop_front();
                continue;
            }
            let Some(index) = self.first_in_line() else { return };
            self.late.pop_front();
            self.send(index, due, clock::now_ns());
            self.flush(index);
            self.stand_in_line(index);
        }
    }

    fn wait(&mut self, now: u64) {
        let mut until = self.moment_ns.min(self.due_ns);
        if let Some(&Reverse((due, _))) = self.timers.peek() {
            until = until.min(due);
        }
        if let Some(&(due, ..)) = self.changes.front()
            && self.opening < self.at_once()
        {
            until = until.min(due);
        }
        if self.in_flight as usize + self.opening + self.closing > 0 {
            until = until.min(now + self.sweep_period() / 4);
        }
        let timeout = if self.finished { 0 } else { until.saturating_sub(now) };
        let count = match self.poll.wait(timeout) {
            Ok(count) => count,
            Err(error) => return self.host_cannot(format!("epoll: {error}")),
        };
        for at in 0..count {
            let Some((index, writable)) = self.poll.event(at) else { continue };
            if writable {
                self.writable(index);
            }
            self.readable(index);
        }
    }

    // ---- what is overdue -------------------------------------------------------------------------------------------

    /// A timeout is noticed after at most its time and a quarter; looking for it more often would only cost.
    fn sweep_period(&self) -> u64 {
        let shortest = self.plan.limits.connect_s.min(self.plan.limits.reply_s);
        ((shortest / 4.0 * 1e9) as u64).clamp(5_000_000, SECOND_NS)
    }

    /// Looks for timeouts among so many connections as the time since the last look allows: all of them once in a period,
    /// and never all of them at once, which would delay the messages of a million others.
    fn sweep(&mut self, now: u64) {
        let total = self.connections.len();
        if self.in_flight as usize + self.opening + self.closing == 0 {
            self.swept_ns = now;
            return;
        }
        let share = (now - self.swept_ns) as u128 * total as u128 / u128::from(self.sweep_period());
        if share == 0 {
            return;
        }
        self.swept_ns = now;
        for _ in 0..(share as usize).min(total) {
            self.cursor = if self.cursor + 1 < total { self.cursor + 1 } else { 0 };
            self.check_overdue(self.cursor, now);
        }
    }

    fn check_overdue(&mut self, index: usize, now: u64) {
        let limits = self.plan.limits;
        let connection = &self.connections[index];
        let later_than = |from: u64, seconds: f64| now.saturating_sub(from) as f64 > seconds * 1e9;
        let oldest_ns = connection.pending.front().map_or(u64::MAX, |oldest| oldest.sent_ns);
        let failure = match connection.stage {
            Stage::Connecting if later_than(connection.opened_ns, limits.connect_s) => {
                (Kind::ConnectTimeout, format!("not connected within {} s", limits.connect_s))
            }
            Stage::Securing | Stage::Handshaking if later_than(connection.opened_ns, limits.connect_s) => {
                (Kind::HandshakeTimeout, format!("no answer within {} s", limits.connect_s))
            }
            Stage::AwaitingClose if later_than(oldest_ns, limits.reply_s) => {
                (Kind::HttpNotClosed, format!("still open after {} s", limits.reply_s))
            }
            Stage::Open if later_than(oldest_ns, limits.reply_s) => {
                (Kind::Timeout, format!("no complete reply within {} s", limits.reply_s))
            }
            Stage::Closing if later_than(connection.replied_ns, limits.connect_s) => return self.gone(index, now),
            _ => return,
        };
        self.fail(index, failure);
    }
}

/// The part of an open loop's schedule that this worker keeps; broadcasts are all triggered by the first.
fn schedule_of(plan: &Plan, index: usize, seed: u64) -> Option<Due> {
    let Loop::Open { arrivals, rate, .. } = &plan.pace else { return None };
    match plan.scenario {
        Scenario::Push { .. } => (index == 0).then(|| Due::new(rate, *arrivals, (0, 1), seed)),
        _ => Some(Due::new(rate, *arrivals, (index, plan.threads), seed)),
    }
}
