//! One thread and its connections. It shares nothing with other workers and allocates nothing for a
//! message. A reply is read into one buffer that all connections share, checked in place, and
//! answered by the next message from inside the same read. A message costs one recv, one send and
//! its share of an epoll.
//!
//! This file is the loop. What has a state of its own is in its own type: `Timeline` (phases and windows), `Pacer` (what is
//! due), `Accounts` (what is counted), `Outbox` (what is written), `Broadcasts`, `Users` (of a session), `Stops` (what this
//! worker is late by), `Sweep` (what may be overdue). The other methods of the worker connect them, by subject: phases.rs,
//! opening.rs, ending.rs, sending.rs, receiving.rs, conversing.rs, broadcasting.rs, overdue.rs.
//!
//! When may what be called?
//!
//! - `begin` once, then `act` and `wait` in turn while `goes_on`, then `finish`. `act` does what is due, `wait` what has come.
//! - `on_readable`, `on_writable` and `read` only from `wait` and from the end of the run; `read` also before a connection
//!   is overdue. Input is handled in them and nowhere else.
//! - `send`, `write_…` and `frame` only write to the outbox; `flush` sends it. The outbox is one connection's: whoever writes
//!   also flushes before another connection is served.
//! - `fail`, `flush`, `reply`, `go_on` and `close_handshake_done` may close the connection. Then its socket is gone, nothing
//!   is under way on it, and its generation may have ended: whoever holds an index looks at `state` again, whoever holds a
//!   time looks at `generation`. Connections are opened by `make_changes` and `open_asked` only, between two inputs, so that no
//!   input belongs to a later generation than its own.
//! - `keep_time` may end a phase and with it the run: `finished`, the window and the slices are to be read again afterwards.
//! - `now` is when the read or the wait ended that a method serves. It is older than the clock.

use crate::accounts::Accounts;
use crate::connection::Connection;
use crate::control::{self, Control, Report, Reports, Tick};
use crate::handshake::Offer;
use crate::http;
use crate::outbox::Outbox;
use crate::pacing::Pacer;
use crate::plan::{Loop, Plan, Scenario};
use crate::push::{Board, Broadcasts};
use crate::rooms::RoomBoard;
use crate::scenario::{Message, Script};
use crate::schedule::{self, Change};
use crate::session::Table;
use crate::stops::Stops;
use crate::sweep::Sweep;
use crate::system::{Event, System};
use crate::timeline::Timeline;
use crate::tls;
use crate::users::Users;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Size of the read buffer: for the replies that can be in flight on a connection, as far as that
/// helps: what was read is still in the core's cache when it is checked. A peer that floods delays the others by the time
/// for reading this much.
const LEAST_ROOM_BYTES: usize = 16 << 10;
const MOST_ROOM_BYTES: usize = 64 << 10;
/// Events that are not of a connection: the waker, and a timer.
const OTHER_EVENTS: usize = 2;
/// This many first or late messages are sent before replies are read.
const SENDS_AT_ONCE: usize = 64;

pub struct Worker<S: System> {
    pub index: usize,
    pub plan: Arc<Plan>,
    pub script: Script,
    /// The plan is a plain closed loop of echoes: see receiving.rs.
    pub is_plain: bool,
    pub request: Vec<u8>,
    pub offer: Offer,
    /// If the plan is a session.
    pub users: Option<Box<Users>>,
    pub tls: Option<tls::Client>,
    pub control: Arc<Control>,
    pub board: Arc<Board>,
    reports: Reports,
    pub system: S,
    pub connections: Vec<Connection<S::Socket>>,
    /// Connections that may have more to read, of which no event will tell.
    pub unread: VecDeque<u32>,
    pub buffer: Vec<u8>,
    pub outbox: Outbox,
    /// Decrypted input.
    pub plain: Vec<u8>,
    pub random: fastrand::Rng,
    pub accounts: Accounts,
    pub pacer: Pacer,

    pub timeline: Timeline,
    /// Ticks that are reported at the next change of phase, so that this process is silent while another one measures.
    pub deferred: Vec<Tick>,
    pub sweep: Sweep,
    pub stops: Stops,

    /// Users due to join or leave, in order of time.
    pub changes: VecDeque<(u64, u32, Change)>,
    /// Connections to be opened, and since when.
    pub asked: VecDeque<(u32, u64)>,
    pub broadcasts: Broadcasts,
    /// Connections that have yet to begin this phase.
    pub unstarted: Range<usize>,
    pub read_ns: u64,
    /// Offset from `CLOCK_MONOTONIC` to the epoch.
    pub to_unix_ns: u64,
    pub settled: bool,
    /// In the drain, once it has nothing more to send: how many copies it said that it is owed.
    pub owed: Option<i64>,
    pub lost: bool,
    pub finished: bool,
}

/// State shared by all workers of a process.
#[derive(Clone)]
pub struct Common {
    pub plan: Arc<Plan>,
    pub tls: Option<tls::Client>,
    pub control: Arc<Control>,
    pub board: Arc<Board>,
    pub reports: Reports,
}

impl Common {
    /// With the other end of the workers' reports. An error is the plan's or this host's, in one line.
    pub fn new(plan: &Arc<Plan>) -> Result<(Common, Receiver<(usize, Report)>), String> {
        let (reports, receiver) = control::channel(plan.threads);
        let (tls, board) = (tls::Client::new(plan)?, Arc::new(Board::new(plan)));
        Ok((Common { plan: plan.clone(), tls, control: Arc::default(), board, reports }, receiver))
    }
}

impl<S: System> Worker<S> {
    pub fn new(index: usize, common: Common, system: S) -> io::Result<Worker<S>> {
        let Common { plan, tls, control, board, reports } = common;
        let (first, step) = plan.stride(index);
        let numbers = (first as u32..plan.connections as u32).step_by(step);
        let connections: Vec<_> = numbers.map(|number| Connection::new(number, plan.transport)).collect();
        let publishers = board.rooms.as_ref().map_or(0, RoomBoard::publishers);
        let table = plan.session().map(|session| Table::new(session, plan.seed)).transpose()?;
        let users = table.map(|table| Box::new(Users::new(table, connections.len(), publishers)));
        let seed = schedule::stream(plan.seed, first);
        let script = Script::new(&plan)?;
        let reply_bytes = match plan.scenario {
            Scenario::Doc { bytes, .. } => bytes as usize,
            Scenario::Session(_) => LEAST_ROOM_BYTES,
            _ => script.length.saturating_mul(plan.depth().min(64)),
        };
        let room = reply_bytes.saturating_mul(2).clamp(LEAST_ROOM_BYTES, MOST_ROOM_BYTES);
        let is_plain = matches!(plan.pace, Loop::Closed { think: None, messages_per_connection: None, .. })
            && plan.deflate.is_none()
            && plan.fragment_bytes.is_none()
            && script.mark(Message::default()).is_some();
        Ok(Worker {
            index,
            is_plain,
            users,
            offer: Offer { deflate: plan.deflate, subprotocols: plan.subprotocols.clone() },
            tls,
            request: http::request(&plan, !plan.connection_per_request()),
            pacer: Pacer::new(&plan, index, seed),
            accounts: Accounts::default(),
            control,
            board,
            reports,
            connections,
            unread: VecDeque::new(),
            buffer: vec![0; room],
            outbox: Outbox::new(&plan, &script),
            script,
            plain: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            timeline: Timeline::new(),
            deferred: Vec::new(),
            sweep: Sweep::new(&plan.limits),
            stops: Stops::new(),
            changes: VecDeque::new(),
            asked: VecDeque::new(),
            broadcasts: Broadcasts::new(plan.addresses()),
            unstarted: 0..0,
            read_ns: 0,
            to_unix_ns: system.to_unix_ns(),
            settled: false,
            owed: None,
            lost: false,
            finished: false,
            plan,
            system,
        })
    }

    /// Runs until it has finished, or is stopped. Ticks and connects count from `origin_ns`.
    pub fn run(mut self, origin_ns: u64) {
        self.begin(origin_ns);
        while self.goes_on() {
            self.step();
        }
        self.finish();
    }

    pub fn begin(&mut self, origin_ns: u64) {
        self.timeline.origin_ns = origin_ns;
        self.sweep.begin(origin_ns);
        if self.plan.stages.is_none() && !self.plan.connection_per_request() {
            self.ask_for_all(origin_ns);
        }
    }

    pub fn goes_on(&self) -> bool {
        !self.finished && !self.control.stopped()
    }

    pub fn step(&mut self) {
        let now = self.act();
        self.wait(now);
    }

    /// Does what is due; returns when it began.
    pub fn act(&mut self) -> u64 {
        let now = self.system.now_ns();
        self.stops.went_on(now, self.timeline.in_window, self.sweep.period_ns / 4);
        self.keep_time(now);
        self.make_changes(now);
        self.start_some();
        self.send_due(now);
        self.keep_alive(now);
        self.check_some(now);
        self.open_asked();
        self.check_end();
        now
    }

    pub fn report(&self, report: Report) {
        self.reports.send(self.index, report);
    }

    pub fn host_cannot(&mut self, what: String) {
        self.report(Report::HostCannot(what));
        self.finished = true;
    }

    // ---- what is due -----------------------------------------------------------------------------------------------

    pub fn begin_schedule(&mut self, t_ns: u64) {
        if let Some(stages) = &self.plan.stages {
            let (first, step) = self.plan.stride(self.index);
            let mine = schedule::changes(stages).into_iter().filter(|(_, user, _)| user % step == first);
            self.changes = mine.map(|(due, user, change)| (t_ns + due, (user / step) as u32, change)).collect();
        }
        self.timeline.take_turns(&self.plan, t_ns);
        self.pacer.begin(t_ns, self.timeline.slices.clone());
    }

    /// Sends the first messages of the next few connections when a phase begins. Replies to the
    /// first ones must not wait until the last has sent.
    fn start_some(&mut self) {
        for _ in 0..SENDS_AT_ONCE {
            let Some(index) = self.unstarted.next() else { return };
            self.start(index, self.system.now_ns());
            self.open_asked();
        }
    }

    /// Sends what is due. A message that no connection can take yet waits, and its due time does not change.
    fn send_due(&mut self, now: u64) {
        if self.finished {
            // What is late is told to be unsent.
            return;
        }
        let mut sends = SENDS_AT_ONCE;
        while sends > 0
            && let Some((due, index, generation)) = self.pacer.over(now)
        {
            sends -= 1;
            if generation == self.connections[index].generation {
                self.send(index, due, self.system.now_ns());
                self.flush(index);
            }
        }
        self.pacer.fall_due(now, self.timeline.drain_ns, self.timeline.counted_from_ns());
        while let Some(&due) = self.pacer.backlog.front()
            && sends > 0
        {
            sends -= 1;
            if self.script.is_notice() {
                if !self.trigger(due) {
                    return;
                }
                self.pacer.backlog.pop_front();
                continue;
            }
            let Some(index) = self.first_in_line() else { break };
            self.pacer.backlog.pop_front();
            self.send(index, due, self.system.now_ns());
            self.flush(index);
            self.stand_in_line(index);
        }
        self.open_asked();
    }

    /// Waits once for events, and reads what has come. `now` is when what was due was done.
    pub fn wait(&mut self, now: u64) {
        let alive_ns = self.users.as_ref().map_or(u64::MAX, |users| users.next_ns());
        let mut until = self.timeline.moment_ns.min(self.pacer.next_ns()).min(alive_ns);
        if let Some(&(due, ..)) = self.changes.front()
            && self.accounts.opening < self.at_once()
        {
            until = until.min(due);
        }
        if self.accounts.awaited() > 0 {
            until = until.min(now + self.sweep.period_ns / 4);
        }
        let unread = self.unread.len();
        let goes_on = !self.unstarted.is_empty() || !self.pacer.backlog.is_empty() && !self.pacer.line.is_empty();
        let polls = goes_on || unread > 0 || self.finished || self.plan.busy_poll && self.timeline.loads;
        // The sends above took time.
        let begun_ns = if polls { now } else { self.system.now_ns() };
        let timeout = if polls { 0 } else { until.saturating_sub(begun_ns) };
        self.stops.waits(begun_ns, if polls { now } else { until.max(now) });
        let count = match self.system.wait(timeout) {
            Ok(count) => count,
            Err(error) => return self.host_cannot(format!("epoll: {error}")),
        };
        for at in 0..count + unread {
            // A peer that never stops sending does not stop the loop.
            if self.finished || self.control.stopped() {
                return;
            }
            if at < count {
                self.handle_event(at);
            } else if let Some(index) = self.next_unread() {
                self.read(index);
            }
            self.open_asked();
            // A thousand events take milliseconds; due messages do not wait for the last of them.
            if self.pacer.next_ns() <= self.read_ns {
                self.send_due(self.read_ns);
            }
        }
        self.tell_copies();
        let (system, most) = (&self.system, self.connections.len() + OTHER_EVENTS);
        self.stops.handled(count, |events| system.reported_all() || events > most);
    }

    #[inline]
    fn handle_event(&mut self, at: usize) {
        let Some(Event { index, writable, .. }) = self.event(at) else { return };
        if writable {
            self.on_writable(index);
        }
        self.on_readable(index);
    }

    /// An event of the last wait. It is told only once.
    #[inline]
    pub fn event(&mut self, at: usize) -> Option<Event> {
        let event = self.system.event(at)?;
        if event.goes_on {
            self.connections[event.index].goes_on = true;
        }
        Some(event)
    }

    /// A connection that may have more to read: each of them once.
    #[cold]
    pub fn next_unread(&mut self) -> Option<usize> {
        let index = self.unread.pop_front()? as usize;
        self.connections[index].unread = false;
        Some(index)
    }
}
