//! One thread and its connections. Nothing is shared with other workers, and nothing is allocated for a message: a reply is
//! read into one buffer that all connections share, checked where it lies, and answered by the next message from inside the
//! same read. A message costs one recv, one send and its share of an epoll.
//!
//! This file is the loop: what is due, what has come, what is overdue. The time of a trial is in phases.rs, how connections
//! come and go in opening.rs, what passes over them in sending.rs and receiving.rs.

use crate::accounts::Accounts;
use crate::connection::{Connection, State};
use crate::control::{Control, Phase, Report, Window};
use crate::handshake::Offer;
use crate::http;
use crate::pacing::Pacer;
use crate::plan::{Plan, Scenario};
use crate::push::{Board, Delivery};
use crate::record::Kind;
use crate::scenario::Script;
use crate::schedule::{self, Change};
use crate::system::System;
use crate::tls;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

pub const SECOND_NS: u64 = 1_000_000_000;
/// Room for what is read at once: for the replies that can be under way on a connection, as far as that helps. A peer that floods
/// holds up the others for as long as it takes to read so much of it.
const LEAST_ROOM_BYTES: usize = 16 << 10;
const MOST_ROOM_BYTES: usize = 256 << 10;
/// How long a server may take to close after our goodbye: then we do.
const CLOSING_S: f64 = 2.0;
/// So many first messages, or late ones, are sent before what has come meanwhile is read.
const SENDS_AT_ONCE: usize = 64;

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
    /// Why the kernel refused a piece of the message that is being written; nothing between connections.
    pub refused: Option<io::Error>,
    /// Room for what TLS has opened, for a message that is compressed or cut, and for what it becomes.
    pub plain: Vec<u8>,
    pub whole: Vec<u8>,
    pub small: Vec<u8>,
    pub random: fastrand::Rng,
    pub accounts: Accounts,
    pub pacer: Pacer,

    pub phase: Phase,
    /// The measured window; what is not known yet never comes.
    pub measure_ns: u64,
    pub drain_ns: u64,
    pub origin_ns: u64,
    pub ticks: u64,
    /// The next tick or the next phase, whichever comes first.
    pub moment_ns: u64,
    swept_ns: u64,
    cursor: usize,

    /// Users who are to come or to go, in the order of time.
    pub changes: VecDeque<(u64, u32, Change)>,
    /// Connections that are to be opened, and since when.
    pub asked: VecDeque<(u32, u64)>,
    pub broadcasts: Vec<Delivery>,
    /// By address of the target: the connection that triggers broadcasts there.
    pub senders: Vec<Option<usize>>,
    /// Connections that have yet to begin this phase.
    pub unstarted: Range<usize>,
    /// When something was read last.
    pub read_ns: u64,
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
        let script = Script::new(&plan)?;
        let reply_bytes = match plan.scenario {
            Scenario::Doc { bytes, .. } => bytes as usize,
            _ => script.length.saturating_mul(plan.depth().min(64)),
        };
        let room = reply_bytes.saturating_mul(2).clamp(LEAST_ROOM_BYTES, MOST_ROOM_BYTES);
        Ok(Worker {
            index,
            script,
            offer: Offer { deflate: plan.deflate, subprotocols: plan.subprotocols.clone() },
            tls,
            request: http::request(&plan, !plan.connection_per_request()),
            pacer: Pacer::new(&plan, index, seed),
            accounts: Accounts::default(),
            control,
            board,
            reports,
            connections,
            buffer: vec![0; room],
            out: Vec::new(),
            refused: None,
            plain: Vec::new(),
            whole: Vec::new(),
            small: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            phase: Phase::Connect,
            measure_ns: u64::MAX,
            drain_ns: u64::MAX,
            origin_ns: 0,
            ticks: 0,
            moment_ns: 0,
            swept_ns: system.now_ns(),
            cursor: 0,
            changes: VecDeque::new(),
            asked: VecDeque::new(),
            broadcasts: Vec::new(),
            senders: vec![None; plan.addresses()],
            unstarted: 0..0,
            read_ns: 0,
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
        self.start_some();
        self.send_due(now);
        self.sweep(now);
        self.open_asked();
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
        self.pacer.begin(t_ns);
    }

    /// The first messages of the next few connections, where a phase has begun: what comes back of the first is not to wait until
    /// the last has sent.
    fn start_some(&mut self) {
        for _ in 0..SENDS_AT_ONCE {
            let Some(index) = self.unstarted.next() else { return };
            self.start(index, self.system.now_ns());
            self.open_asked();
        }
    }

    /// Sends what is due by now; what no connection can take yet stands in line, and its due time stays what it is.
    fn send_due(&mut self, now: u64) {
        let mut sends = SENDS_AT_ONCE;
        while sends > 0
            && let Some((due, index, life)) = self.pacer.over(now)
        {
            sends -= 1;
            if life == self.connections[index].life {
                self.send(index, due, self.system.now_ns());
                self.flush(index);
            }
        }
        self.pacer.fall_due(now, self.drain_ns, self.counted_from_ns());
        while let Some(&due) = self.pacer.late.front()
            && sends > 0
        {
            sends -= 1;
            if self.script.is_notice() {
                if !self.trigger(due) {
                    return;
                }
                self.pacer.late.pop_front();
                continue;
            }
            let Some(index) = self.first_in_line() else { return };
            self.pacer.late.pop_front();
            self.send(index, due, self.system.now_ns());
            self.flush(index);
            self.stand_in_line(index);
        }
        self.open_asked();
    }

    fn wait(&mut self, now: u64) {
        let mut until = self.moment_ns.min(self.pacer.next_ns());
        if let Some(&(due, ..)) = self.changes.front()
            && self.accounts.opening < self.at_once()
        {
            until = until.min(due);
        }
        if self.accounts.awaited() > 0 {
            until = until.min(now + self.sweep_period() / 4);
        }
        let goes_on = !self.unstarted.is_empty() || !self.pacer.late.is_empty() && !self.pacer.line.is_empty();
        let polls = goes_on || self.finished || self.plan.busy_poll && self.phase != Phase::Connect;
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
            self.open_asked();
            // A thousand events take milliseconds; what is due does not wait for the last of them.
            if self.pacer.next_ns() <= self.read_ns {
                self.send_due(self.read_ns);
            }
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
        if self.accounts.awaited() == 0 {
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
        let failure = match connection.state {
            State::Connecting if later_than(connection.opened_ns, limits.connect_s) => {
                (Kind::ConnectTimeout, format!("not connected within {} s", limits.connect_s))
            }
            State::Securing | State::Handshaking if later_than(connection.opened_ns, limits.connect_s) => {
                (Kind::HandshakeTimeout, format!("no answer within {} s", limits.connect_s))
            }
            State::AwaitingClose if later_than(oldest_ns, limits.reply_s) => {
                (Kind::HttpNotClosed, format!("still open after {} s", limits.reply_s))
            }
            State::Open if later_than(oldest_ns, limits.reply_s) => {
                (Kind::Timeout, format!("no complete reply within {} s", limits.reply_s))
            }
            State::Leaving if later_than(connection.replied_ns, limits.reply_s) => {
                return self.say_goodbye(index, now);
            }
            State::Closing if later_than(connection.replied_ns, limits.connect_s.min(CLOSING_S)) => {
                return self.gone(index, now);
            }
            _ => return,
        };
        self.fail(index, failure);
    }
}
