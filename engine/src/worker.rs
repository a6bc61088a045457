//! One thread and its connections. Nothing is shared with other workers, and nothing is allocated for a message: a reply is
//! read into one buffer that all connections share, checked where it lies, and answered by the next message from inside the
//! same read. A message costs one recv, one send and its share of an epoll.
//!
//! This file is the loop: what is due, what has come, what is overdue. The time of a trial is in phases.rs, how connections
//! come and go in opening.rs, what passes over them in sending.rs and receiving.rs.

use crate::connection::{Connection, Stage};
use crate::control::{Control, Phase, Report, Window};
use crate::handshake::Offer;
use crate::http;
use crate::plan::{Loop, Plan, Scenario};
use crate::push::{Board, Delivery};
use crate::record::{Kind, Record};
use crate::scenario::Script;
use crate::schedule::{self, Change, Due};
use crate::system::System;
use crate::tls;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

pub const SECOND_NS: u64 = 1_000_000_000;
const BUFFER_BYTES: usize = 512 << 10;

pub struct Worker<S: System> {
    pub index: usize,
    pub plan: Arc<Plan>,
    pub script: Script,
    pub request: Vec<u8>,
    pub offer: Offer,
    pub tls: Option<tls::Client>,
    pub control: Arc<Control>,
    pub board: Arc<Board>,
    reports: Sender<(usize, Report)>,
    pub system: S,
    pub connections: Vec<Connection<S::Socket>>,
    pub buffer: Vec<u8>,
    /// What is to be sent on the connection that is being served; empty between connections.
    pub out: Vec<u8>,
    /// Room for what TLS has opened, for a message that is compressed or cut, and for what it becomes.
    pub plain: Vec<u8>,
    pub whole: Vec<u8>,
    pub small: Vec<u8>,
    pub random: fastrand::Rng,
    pub record: Record,

    pub phase: Phase,
    /// The measured window; what is not known yet never comes.
    pub measure_ns: u64,
    pub drain_ns: u64,
    /// Messages that may still be sent in this phase, or, by a schedule, fall due in it.
    pub quota: u64,
    /// This phase ends by count, and the count has not been reached.
    pub counting: bool,
    pub origin_ns: u64,
    pub ticks: u64,
    /// The next tick or the next phase, whichever comes first.
    pub moment_ns: u64,
    swept_ns: u64,
    cursor: usize,

    /// Users who are to come or to go, in the order of time.
    pub changes: VecDeque<(u64, u32, Change)>,
    /// Connections whose next message has a due time of its own, after a pause or a failure: when, who, in which life.
    pub timers: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// The schedule of an open loop, and the due time that it gave last.
    pub schedule: Option<Due>,
    pub start_ns: u64,
    pub due_ns: u64,
    /// Due times that have passed while no connection could take a message.
    pub late: VecDeque<u64>,
    /// Connections that can take a message, longest idle first.
    pub line: VecDeque<u32>,

    pub opening: usize,
    pub closing: usize,
    pub in_flight: u64,
    pub measured_in_flight: u64,
    pub last_reply_ns: u64,
    pub failures_in_a_row: u32,
    pub broadcasts: Vec<Delivery>,
    /// From `CLOCK_MONOTONIC` to the epoch.
    pub to_unix_ns: u64,
    pub settled: bool,
    pub begun: Option<Window>,
    pub ended: Option<Window>,
    pub lost: bool,
    pub finished: bool,
}

/// What all workers of a process have in common.
#[derive(Clone)]
pub struct Common {
    pub plan: Arc<Plan>,
    pub tls: Option<tls::Client>,
    pub control: Arc<Control>,
    pub board: Arc<Board>,
    pub reports: Sender<(usize, Report)>,
}

impl<S: System> Worker<S> {
    pub fn new(index: usize, common: Common, system: S) -> io::Result<Worker<S>> {
        let Common { plan, tls, control, board, reports } = common;
        let (first, step) = plan.place(index);
        let numbers = (first as u32..plan.connections as u32).step_by(step);
        let connections = numbers.map(|number| Connection::new(number, plan.transport)).collect();
        let seed = schedule::stream(plan.seed, first);
        Ok(Worker {
            index,
            script: Script::new(&plan)?,
            offer: Offer { deflate: plan.deflate, subprotocols: plan.subprotocols.clone() },
            tls,
            request: http::request(&plan, !plan.connection_per_request()),
            schedule: schedule_of(&plan, index, seed),
            control,
            board,
            reports,
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
            origin_ns: 0,
            ticks: 0,
            moment_ns: 0,
            swept_ns: system.now_ns(),
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
            to_unix_ns: system.to_unix_ns(),
            settled: false,
            begun: None,
            ended: None,
            lost: false,
            finished: false,
            plan,
            system,
        })
    }

    /// Until it has finished, or is stopped. Ticks and connects count from `origin_ns`.
    pub fn run(mut self, origin_ns: u64) {
        self.begin(origin_ns);
        while self.goes_on() {
            self.step();
        }
        self.finish();
    }

    pub fn begin(&mut self, origin_ns: u64) {
        (self.origin_ns, self.swept_ns) = (origin_ns, origin_ns);
        if self.plan.stages.is_none() && !self.plan.connection_per_request() {
            self.ask_for_all(origin_ns);
        }
    }

    pub fn goes_on(&self) -> bool {
        !self.finished && !self.control.stopped()
    }

    /// What is due by now, then one wait for what comes.
    pub fn step(&mut self) {
        let now = self.system.now_ns();
        self.keep_time(now);
        self.make_changes(now);
        self.send_due(now);
        self.sweep(now);
        self.check_end();
        self.wait(now);
    }

    pub fn report(&self, report: Report) {
        // The receiver is gone only when the process is ending.
        let _ = self.reports.send((self.index, report));
    }

    pub fn host_cannot(&mut self, what: String) {
        self.report(Report::HostCannot(what));
        self.finished = true;
    }

    // ---- what is due -----------------------------------------------------------------------------------------------

    pub fn begin_schedule(&mut self, t_ns: u64) {
        if let Some(stages) = &self.plan.stages {
            let (first, step) = self.plan.place(self.index);
            let mine = schedule::changes(stages).into_iter().filter(|(_, user, _)| user % step == first);
            self.changes = mine.map(|(due, user, change)| (t_ns + due, (user / step) as u32, change)).collect();
        }
        self.advance_schedule();
    }

    fn advance_schedule(&mut self) {
        let due = self.schedule.as_mut().and_then(Due::next).map(|due| self.start_ns + due);
        self.due_ns = due.unwrap_or(u64::MAX);
    }

    /// Sends what is due by now; what no connection can take yet stands in line, and its due time stays what it is.
    fn send_due(&mut self, now: u64) {
        while let Some(&Reverse((due, index, life))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            if life == self.connections[index as usize].life {
                self.send(index as usize, due, self.system.now_ns());
                self.flush(index as usize);
            }
        }
        while self.due_ns <= now {
            // Whatever is due takes its place of the count now: one that is sent later is not left out for one that is due later.
            // What fell due while a counted phase waited for the next one belongs to neither.
            let between = self.counting && !self.is_counted(self.due_ns);
            if self.due_ns < self.drain_ns && !between && self.quota > 0 {
                self.quota -= 1;
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
            self.send(index, due, self.system.now_ns());
            self.flush(index);
            self.stand_in_line(index);
        }
    }

    fn wait(&mut self, now: u64) {
        let mut until = self.moment_ns.min(self.due_ns);
        if let Some(&Reverse((due, ..))) = self.timers.peek() {
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
        let polls = self.finished || self.plan.busy_poll && self.phase != Phase::Connect;
        // What was sent meanwhile took its time.
        let timeout = if polls { 0 } else { until.saturating_sub(self.system.now_ns()) };
        let count = match self.system.wait(timeout) {
            Ok(count) => count,
            Err(error) => return self.host_cannot(format!("epoll: {error}")),
        };
        for at in 0..count {
            // A peer that never stops is no reason to go on.
            if self.finished || self.control.stopped() {
                return;
            }
            let Some((index, writable)) = self.system.event(at) else { continue };
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
        let oldest_ns = connection.under_way.oldest().map_or(u64::MAX, |oldest| oldest.sent_ns);
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

/// The part of an open loop's schedule that this worker keeps; broadcasts are all triggered by the first of the first shard.
fn schedule_of(plan: &Plan, index: usize, seed: u64) -> Option<Due> {
    let Loop::Open { arrivals, rate, .. } = &plan.pace else { return None };
    match plan.scenario {
        Scenario::Push { .. } => (plan.place(index).0 == 0).then(|| Due::new(rate, *arrivals, (0, 1), seed)),
        _ => Some(Due::new(rate, *arrivals, plan.place(index), seed)),
    }
}
