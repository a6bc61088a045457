//! One thread and its connections: the only room that does network I/O. Nothing is shared with other workers, and nothing
//! is allocated for a message: a reply is read into one buffer that all connections share, checked where it lies, and
//! answered by the next message from inside the same read. A message costs one recv, one send and its share of an epoll.

use crate::clock::{self, Usage};
use crate::connection::{Connection, Reader, Stage};
use crate::control::{Control, Final, Phase, Report, Tick, Window};
use crate::frame;
use crate::handshake;
use crate::http;
use crate::message::Incoming;
use crate::plan::{Plan, Scenario, Transport, Until};
use crate::poll::{self, Poll, Waker};
use crate::record::{Failure, Kind, Record, Tag};
use crate::scenario::{Message, Script};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

const SECOND_NS: u64 = 1_000_000_000;
const BUFFER_BYTES: usize = 512 << 10;
/// More connects at once than this overrun the accept queue of a server with default settings.
const CONNECTS_AT_ONCE: usize = 100;
/// A server that refuses this many times in a row is not there.
const FAILURES_IN_A_ROW: u32 = 1000;

pub struct Worker {
    index: usize,
    plan: Arc<Plan>,
    script: Script,
    request: Vec<u8>,
    control: Arc<Control>,
    reports: Sender<(usize, Report)>,
    poll: Poll,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    out: Vec<u8>,
    random: fastrand::Rng,
    record: Record,
    phase: Phase,
    phase_ends_ns: u64,
    /// Messages that may still be sent in this phase.
    quota: u64,
    in_flight: u64,
    measured_in_flight: u64,
    last_reply_ns: u64,
    origin_ns: u64,
    ticks: u64,
    /// Connections whose next step is due outside of an event: next request, or next message after a pause.
    ready: Vec<usize>,
    begun: Option<Window>,
    ended: Option<Window>,
    failures_in_a_row: u32,
    finished: bool,
}

impl Worker {
    pub fn new(
        index: usize,
        plan: Arc<Plan>,
        control: Arc<Control>,
        reports: Sender<(usize, Report)>,
        origin_ns: u64,
    ) -> io::Result<Worker> {
        let first: u64 = (0..index).map(|earlier| plan.share(plan.connections as u64, earlier)).sum();
        let count = plan.share(plan.connections as u64, index);
        let numbers = (first as u32..).take(count as usize);
        let persistent = !plan.connection_per_request();
        Ok(Worker {
            index,
            script: Script::new(&plan),
            request: http::request(&plan, persistent),
            control,
            reports,
            poll: Poll::new()?,
            connections: numbers.map(|number| Connection::new(number, plan.transport)).collect(),
            buffer: vec![0; BUFFER_BYTES],
            out: Vec::new(),
            random: fastrand::Rng::with_seed(plan.seed ^ (index as u64) << 48),
            record: Record::default(),
            phase: Phase::Connect,
            phase_ends_ns: u64::MAX,
            quota: 0,
            in_flight: 0,
            measured_in_flight: 0,
            last_reply_ns: 0,
            origin_ns,
            ticks: 0,
            ready: Vec::new(),
            begun: None,
            ended: None,
            failures_in_a_row: 0,
            finished: false,
            plan,
        })
    }

    pub fn waker(&self) -> Waker {
        self.poll.waker()
    }

    pub fn run(mut self) {
        if !self.plan.connection_per_request() {
            self.settle();
        }
        self.report(Report::Settled);
        while !self.finished && !self.control.stopped() {
            let now = clock::now_ns();
            self.advance(now);
            self.tick(now);
            self.go_on(now);
            self.wait(now);
        }
        self.finish();
    }

    fn report(&self, report: Report) {
        // The receiver is gone only when the process is ending.
        let _ = self.reports.send((self.index, report));
    }

    // ---- phases ----------------------------------------------------------------------------------------------------

    /// Opens every connection, a limited number at once, until each is open or has failed.
    fn settle(&mut self) {
        let under_way =
            |connection: &&Connection| matches!(connection.stage, Stage::Connecting | Stage::Handshaking(_));
        let at_once = (CONNECTS_AT_ONCE / self.plan.threads).max(1);
        let mut next = 0;
        let mut swept_ns = 0;
        while !self.control.stopped() && !self.finished {
            let now = clock::now_ns();
            let mut pending = self.connections[..next].iter().filter(under_way).count();
            while pending < at_once && next < self.connections.len() {
                self.open(next, now);
                next += 1;
                pending += 1;
            }
            if pending == 0 {
                return;
            }
            if now - swept_ns > SECOND_NS / 10 {
                self.sweep(now);
                swept_ns = now;
            }
            self.tick(now);
            self.wait_at_most(SECOND_NS / 10);
        }
    }

    /// Moves to the phase that `now` belongs to.
    fn advance(&mut self, now: u64) {
        if now < self.phase_ends_ns && self.phase_ends_ns != u64::MAX {
            return;
        }
        match self.phase {
            Phase::Connect => {
                let Some(start) = self.control.start_ns().filter(|&start| start <= now) else { return };
                match self.plan.warmup {
                    None => self.begin_measure(start),
                    Some(until) => {
                        self.phase = Phase::Warmup;
                        self.limit(until, start);
                    }
                }
                self.ready = (0..self.connections.len()).collect();
            }
            Phase::Warmup => match self.plan.warmup {
                Some(Until::Seconds(_)) => self.begin_measure(self.phase_ends_ns),
                _ => {
                    let Some(begin) = self.control.measure_ns().filter(|&begin| begin <= now) else { return };
                    self.begin_measure(begin);
                    self.ready = (0..self.connections.len()).collect();
                }
            },
            Phase::Measure => {
                if let Until::Seconds(_) = self.plan.measure {
                    self.end_window(self.phase_ends_ns);
                    self.phase = Phase::Drain;
                    self.limit(Until::Seconds(self.plan.drain_s), self.phase_ends_ns);
                    self.quota = 0;
                }
            }
            Phase::Drain => self.finished = true,
        }
    }

    fn begin_measure(&mut self, t_ns: u64) {
        self.phase = Phase::Measure;
        self.limit(self.plan.measure, t_ns);
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
        let (Some(begun), None) = (self.begun, self.ended) else { return };
        self.ended = Some(Window {
            begin_ns: begun.begin_ns,
            end_ns: t_ns,
            usage: Usage::of_this_thread().since(&begun.usage),
            bytes_sent: self.record.counters.bytes_sent - begun.bytes_sent,
            bytes_received: self.record.counters.bytes_received - begun.bytes_received,
        });
    }

    fn limit(&mut self, until: Until, from_ns: u64) {
        (self.quota, self.phase_ends_ns) = match until {
            Until::Seconds(seconds) => (u64::MAX, from_ns + (seconds * 1e9) as u64),
            Until::Messages(messages) => (self.plan.share(messages, self.index), u64::MAX),
        };
    }

    /// A phase that ends by count has ended when nothing of it is left to send or to await.
    fn check_count(&mut self) {
        if self.in_flight > 0 && !(self.phase == Phase::Measure && self.measured_in_flight == 0) {
            return;
        }
        let nothing_left = self.quota == 0
            || self.connections.iter().all(|c| matches!(c.stage, Stage::Closed)) && self.ready.is_empty();
        match self.phase {
            Phase::Warmup if nothing_left && self.phase_ends_ns == u64::MAX => self.report(Report::WarmedUp),
            Phase::Measure if nothing_left && self.phase_ends_ns == u64::MAX => {
                let begin_ns = self.begun.map_or(0, |begun| begun.begin_ns);
                self.end_window(self.last_reply_ns.max(begin_ns));
                self.finished = true;
            }
            Phase::Drain if self.in_flight == 0 => self.finished = true,
            _ => {}
        }
    }

    fn tick(&mut self, now: u64) {
        while now >= self.origin_ns + (self.ticks + 1) * SECOND_NS {
            self.ticks += 1;
            let tick = self.state();
            self.report(Report::Tick(tick));
            self.sweep(now);
        }
    }

    fn state(&mut self) -> Tick {
        Tick {
            number: self.ticks,
            phase: self.phase,
            counters: self.record.counters,
            usage: Usage::of_this_thread(),
            interval: self.record.hand_over(),
        }
    }

    fn finish(mut self) {
        self.end_window(clock::now_ns());
        let gave_up = self.failures_in_a_row >= FAILURES_IN_A_ROW;
        let measured = |connection: &&Connection| connection.in_flight && connection.measured;
        let unanswered = self.connections.iter().filter(measured).count() as u64;
        let ledger = self.record.ledger;
        assert_eq!(
            ledger.sent,
            ledger.answered + ledger.failed + unanswered,
            "a message was lost count of: {ledger:?}"
        );
        let counters = self.record.counters;
        self.goodbye();
        self.ticks += 1;
        let mut last = self.state();
        last.counters = counters;
        self.report(Report::Tick(last));
        let errors = std::mem::take(&mut self.record.measured_errors);
        let window = self.ended;
        let usage = Usage::of_this_thread();
        let last = Final { counters, usage, ledger, unanswered, errors, window, gave_up };
        self.report(Report::Finished(Box::new(last)));
    }

    /// Closes politely: a Close frame, then our side of the connection, so that no server is left with a reset.
    fn goodbye(&mut self) {
        let open = |connection: &Connection| matches!(connection.stage, Stage::Open);
        for index in 0..self.connections.len() {
            if !open(&self.connections[index]) {
                continue;
            }
            if self.plan.transport == Transport::Websocket && self.connections[index].unsent.is_empty() {
                self.control_frame(index, frame::CLOSE, &1000u16.to_be_bytes());
            }
            if let Some(socket) = &self.connections[index].socket {
                let _ = socket.shutdown(std::net::Shutdown::Write);
            }
        }
        let until = clock::now_ns() + SECOND_NS / 2;
        while self.connections.iter().any(open) && clock::now_ns() < until && !self.control.stopped() {
            let Ok(count) = self.poll.wait(SECOND_NS / 20) else { return };
            for at in 0..count {
                let Some((index, _)) = self.poll.event(at) else { continue };
                let Some(descriptor) = self.connections[index].descriptor() else { continue };
                if !matches!(poll::receive(descriptor, &mut self.buffer), Ok(None) | Ok(Some(1..))) {
                    self.connections[index].close();
                }
            }
        }
    }

    // ---- waiting ---------------------------------------------------------------------------------------------------

    fn wait(&mut self, now: u64) {
        let next_tick = self.origin_ns + (self.ticks + 1) * SECOND_NS;
        let mut until = next_tick.min(self.phase_ends_ns);
        if self.phase == Phase::Connect {
            until = until.min(self.control.start_ns().unwrap_or(u64::MAX));
        }
        if self.phase == Phase::Warmup && self.phase_ends_ns == u64::MAX {
            until = until.min(self.control.measure_ns().filter(|&begin| begin > now).unwrap_or(u64::MAX));
        }
        let timeout = if self.ready.is_empty() { until.saturating_sub(now) } else { 0 };
        self.wait_at_most(timeout);
    }

    fn wait_at_most(&mut self, timeout_ns: u64) {
        let count = match self.poll.wait(timeout_ns) {
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

    fn host_cannot(&mut self, what: String) {
        self.report(Report::HostCannot(what));
        self.finished = true;
    }

    /// Timeouts, to the second: connects, handshakes, replies.
    fn sweep(&mut self, now: u64) {
        let limits = self.plan.limits;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let later_than = |from: u64, seconds: f64| now.saturating_sub(from) as f64 > seconds * 1e9;
            let failure = match connection.stage {
                Stage::Connecting if later_than(connection.opened_ns, limits.connect_s) => {
                    (Kind::ConnectTimeout, format!("not connected within {} s", limits.connect_s))
                }
                Stage::Handshaking(_) if later_than(connection.opened_ns, limits.connect_s) => {
                    (Kind::HandshakeTimeout, format!("no answer within {} s", limits.connect_s))
                }
                Stage::AwaitingClose if later_than(connection.sent_ns, limits.reply_s) => {
                    (Kind::HttpNotClosed, format!("still open after {} s", limits.reply_s))
                }
                Stage::Open if connection.in_flight && later_than(connection.sent_ns, limits.reply_s) => {
                    (Kind::Timeout, format!("no complete reply within {} s", limits.reply_s))
                }
                _ => continue,
            };
            self.fail(index, failure);
        }
    }

    // ---- opening ---------------------------------------------------------------------------------------------------

    /// Begins to connect. On loopback the connection is made before `connect` returns, so what comes first is sent at
    /// once; only where that is too early does the connection wait to become writable.
    fn open(&mut self, index: usize, now: u64) {
        self.connections[index].opened_ns = now;
        match self.connections[index].open(&self.plan) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {
                return self.host_cannot(
                    "no local port is left for this target: give more `source_addresses`, or widen net.ipv4.ip_local_port_range".into(),
                );
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                return self.host_cannot("no file descriptor is left: raise the file limit (ulimit -n)".into());
            }
            Err(error) => return self.fail(index, connect_failure(&error)),
        }
        let descriptor = self.connections[index].descriptor().expect("just opened");
        let connected = self.connections[index].connect_error();
        if let Some(error) = connected {
            return self.fail(index, connect_failure(&error));
        }
        let established = self.connections[index].socket.as_ref().is_some_and(|socket| socket.peer_addr().is_ok());
        let interest = if established { poll::READ } else { poll::READ_WRITE };
        if let Err(error) = self.poll.add(descriptor, index, interest) {
            return self.host_cannot(format!("epoll: {error}"));
        }
        if established {
            self.connected(index, clock::now_ns());
        }
    }

    fn connected(&mut self, index: usize, now: u64) {
        if self.plan.transport == Transport::Websocket {
            let key = handshake::key(self.plan.seed, self.connections[index].message.connection);
            self.out.clear();
            self.out.extend_from_slice(&handshake::request(&self.plan, &key));
            self.connections[index].stage = Stage::Handshaking(Vec::new());
            self.transmit(index);
        } else {
            self.usable(index, now);
            if self.connections[index].in_flight {
                self.send_request(index, now);
            }
        }
    }

    fn usable(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        connection.stage = Stage::Open;
        let (opened, in_warmup) = (connection.opened_ns, connection.in_flight && !connection.measured);
        let tag = if in_warmup { Tag::Connect.in_warmup() } else { Tag::Connect };
        self.record.duration(tag, opened, now);
        self.record.counters.open += 1;
        self.failures_in_a_row = 0;
        if !in_warmup {
            self.record.counters.established += 1;
        }
    }

    fn upgrade(&mut self, index: usize, bytes: &[u8], now: u64) -> Result<usize, Failure> {
        let connection = &mut self.connections[index];
        let Stage::Handshaking(head) = &mut connection.stage else { unreachable!("called while handshaking") };
        let carried = head.len();
        head.extend_from_slice(bytes);
        let key = handshake::key(self.plan.seed, connection.message.connection);
        match handshake::verify(head, &key)? {
            None => Ok(bytes.len()),
            Some(size) => {
                self.usable(index, now);
                Ok(size - carried)
            }
        }
    }

    // ---- sending ---------------------------------------------------------------------------------------------------

    /// Gives every connection that waits for it its next message.
    fn go_on(&mut self, now: u64) {
        if !matches!(self.phase, Phase::Warmup | Phase::Measure) {
            return;
        }
        for index in std::mem::take(&mut self.ready) {
            self.next_message(index, now);
        }
        self.check_count();
    }

    fn next_message(&mut self, index: usize, now: u64) {
        if self.quota == 0 || self.finished || self.connections[index].in_flight {
            return;
        }
        let reopens = self.plan.connection_per_request();
        match self.connections[index].stage {
            Stage::Open => {}
            Stage::Closed if reopens => {}
            _ => return,
        }
        self.quota -= 1;
        let measured = self.phase == Phase::Measure;
        let connection = &mut self.connections[index];
        connection.message.sequence += 1;
        connection.in_flight = true;
        connection.measured = measured;
        connection.sent_ns = now;
        self.in_flight += 1;
        self.record.counters.sent += 1;
        if measured {
            self.measured_in_flight += 1;
            self.record.ledger.sent += 1;
        }
        match self.plan.transport {
            Transport::Http if reopens => self.open(index, now),
            Transport::Http => self.send_request(index, now),
            Transport::Websocket => {
                let connection = &self.connections[index];
                let mut stamp = Default::default();
                let (front, rest) = self.script.payload(connection.message, &mut stamp);
                let key = self.random.u32(..).to_ne_bytes();
                self.out.clear();
                frame::write_header(&mut self.out, self.script.opcode, self.script.length, key);
                frame::write_masked(&mut self.out, front, key, 0);
                frame::write_masked(&mut self.out, rest, key, front.len());
                self.transmit(index);
            }
            Transport::Tcp => {
                self.out.clear();
                self.out.extend_from_slice(b"Ping");
                self.transmit(index);
            }
        }
    }

    fn send_request(&mut self, index: usize, now: u64) {
        self.connections[index].sent_ns = now;
        self.out.clear();
        self.out.extend_from_slice(&self.request);
        self.transmit(index);
    }

    fn control_frame(&mut self, index: usize, opcode: u8, payload: &[u8]) {
        let key = self.random.u32(..).to_ne_bytes();
        self.out.clear();
        frame::write(&mut self.out, opcode, payload, key);
        self.transmit(index);
    }

    /// Sends `out`; what the kernel does not take now is kept until the socket is writable.
    fn transmit(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(descriptor) = connection.descriptor() else { return };
        self.record.counters.bytes_sent += self.out.len() as u64;
        if !connection.unsent.is_empty() {
            connection.unsent.extend_from_slice(&self.out);
            return;
        }
        match poll::send(descriptor, &self.out) {
            Ok(Some(sent)) if sent == self.out.len() => {}
            Ok(sent) => {
                connection.unsent = self.out[sent.unwrap_or(0)..].to_vec();
                if let Err(error) = self.poll.change(descriptor, index, poll::READ_WRITE) {
                    self.host_cannot(format!("epoll: {error}"));
                }
            }
            Err(error) => self.fail(index, broken(&error)),
        }
    }

    fn writable(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(descriptor) = connection.descriptor() else { return };
        if matches!(connection.stage, Stage::Connecting) {
            if let Some(error) = connection.connect_error() {
                return self.fail(index, connect_failure(&error));
            }
            if let Err(error) = self.poll.change(descriptor, index, poll::READ) {
                return self.host_cannot(format!("epoll: {error}"));
            }
            return self.connected(index, clock::now_ns());
        }
        match poll::send(descriptor, &connection.unsent) {
            Ok(sent) => drop(connection.unsent.drain(..sent.unwrap_or(0))),
            Err(error) => return self.fail(index, broken(&error)),
        }
        if connection.unsent.is_empty() {
            connection.unsent = Vec::new();
            if let Err(error) = self.poll.change(descriptor, index, poll::READ) {
                self.host_cannot(format!("epoll: {error}"));
            }
        }
    }

    // ---- receiving -------------------------------------------------------------------------------------------------

    fn readable(&mut self, index: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(descriptor) = self.connections[index].descriptor() {
            if matches!(self.connections[index].stage, Stage::Connecting) {
                break;
            }
            match poll::receive(descriptor, &mut buffer) {
                Ok(None) => break,
                Ok(Some(0)) => {
                    self.peer_closed(index);
                    break;
                }
                Ok(Some(count)) => {
                    let now = clock::now_ns();
                    self.record.counters.bytes_received += count as u64;
                    if now >= self.phase_ends_ns {
                        self.advance(now);
                    }
                    if let Err(failure) = self.take_in(index, &buffer[..count], now) {
                        self.fail(index, failure);
                    }
                    // A short read has emptied the socket; another would only say so.
                    if count < buffer.len() {
                        break;
                    }
                }
                Err(error) => {
                    self.fail(index, broken(&error));
                    break;
                }
            }
        }
        self.buffer = buffer;
        self.check_count();
    }

    /// Everything that has come on a connection, one complete thing after the other.
    #[inline]
    fn take_in(&mut self, index: usize, bytes: &[u8], now: u64) -> Result<(), Failure> {
        let mut input = bytes;
        if matches!(self.connections[index].stage, Stage::Handshaking(_)) {
            input = &input[self.upgrade(index, bytes, now)?..];
        }
        while !input.is_empty() {
            let connection = &mut self.connections[index];
            let message: Message = connection.message;
            match &mut connection.reader {
                Reader::Frames(reader) => match reader.feed(&mut input, &self.script, message)? {
                    None => {}
                    Some(Incoming::Reply { wrong, fragmented }) => {
                        self.record.counters.fragmented_replies += u64::from(fragmented);
                        self.reply(index, wrong, now);
                    }
                    Some(Incoming::Ping(payload)) => {
                        self.record.counters.pings_answered += 1;
                        self.control_frame(index, frame::PONG, &payload);
                    }
                    Some(Incoming::Close(payload)) => return Err(self.close_reply(index, &payload)),
                },
                Reader::Http(reader) => {
                    if let Some(reply) = reader.feed(&mut input)? {
                        self.http_reply(index, reply, now);
                    }
                }
                Reader::Tcp(seen, right) => {
                    let taken = input.len().min(4 - *seen);
                    *right &= self.script.matches(message, *seen, &input[..taken]);
                    *seen += taken;
                    input = &input[taken..];
                    if *seen == 4 {
                        let wrong = (!*right).then(|| (Kind::ReplyContent, "not `Pong`".to_string()));
                        (*seen, *right) = (0, true);
                        self.reply(index, wrong, now);
                    }
                }
            }
            if self.connections[index].socket.is_none() {
                return Ok(());
            }
        }
        // Only now: what else came with a reply was sent before our next message and cannot be its answer.
        self.next_message(index, now);
        Ok(())
    }

    /// Answers a Close frame, as far as the socket still takes it; the failure that the frame is.
    fn close_reply(&mut self, index: usize, payload: &[u8]) -> Failure {
        let code = match payload {
            [] => "no code".to_string(),
            [_] => return (Kind::BadControl, "a Close frame of one byte".into()),
            [high, low, ..] => format!("code {}", u16::from_be_bytes([*high, *low])),
        };
        self.out.clear();
        let key = self.random.u32(..).to_ne_bytes();
        frame::write(&mut self.out, frame::CLOSE, &payload[..payload.len().min(2)], key);
        if let Some(descriptor) = self.connections[index].descriptor() {
            // The connection ends here either way: a peer that is gone already is no second failure.
            let _ = poll::send(descriptor, &self.out);
        }
        (Kind::CloseFrame, code)
    }

    #[inline]
    fn reply(&mut self, index: usize, wrong: Option<Failure>, now: u64) {
        if !self.connections[index].in_flight {
            return self.fail(index, (Kind::UnexpectedReply, "a message that nothing was waiting for".into()));
        }
        match wrong {
            Some(failure) => self.fail(index, failure),
            None => self.answered(index, Tag::Service, now),
        }
    }

    fn http_reply(&mut self, index: usize, reply: http::Reply, now: u64) {
        let Scenario::Doc { persistent, bytes } = self.plan.scenario else { unreachable!("http is doc") };
        if !self.connections[index].in_flight || matches!(self.connections[index].stage, Stage::AwaitingClose) {
            return self.fail(index, (Kind::UnexpectedReply, format!("status {}", reply.status)));
        }
        let wrong = if reply.status != 200 {
            Some((Kind::HttpStatus, format!("status {}", reply.status)))
        } else if reply.length != bytes {
            Some((Kind::HttpLength, format!("{} bytes instead of {bytes}", reply.length)))
        } else {
            None
        };
        match wrong {
            Some(failure) => self.fail(index, failure),
            None if !persistent => {
                let connection = &mut self.connections[index];
                connection.stage = Stage::AwaitingClose;
                connection.replied_ns = now;
            }
            None => {
                self.answered(index, Tag::Service, now);
                if reply.closes {
                    self.reconnect(index, now);
                }
            }
        }
    }

    /// The server announced that it closes: the only case in which a connection is opened again.
    fn reconnect(&mut self, index: usize, now: u64) {
        self.record.counters.reconnects += 1;
        self.record.counters.open -= 1;
        self.record.counters.established -= 1;
        self.connections[index].close();
        self.open(index, now);
        self.ready.push(index);
    }

    #[inline]
    fn answered(&mut self, index: usize, tag: Tag, now: u64) {
        let connection = &mut self.connections[index];
        connection.in_flight = false;
        self.in_flight -= 1;
        self.record.counters.answered += 1;
        let from = if tag == Tag::Request { connection.opened_ns } else { connection.sent_ns };
        if tag == Tag::Request {
            let service = if connection.measured { Tag::Service } else { Tag::WarmupService };
            self.record.duration(service, connection.sent_ns, connection.replied_ns);
        }
        if self.phase == Phase::Measure {
            self.record.ledger.replies_in_window += 1;
        }
        if connection.measured {
            self.measured_in_flight -= 1;
            self.record.ledger.answered += 1;
            self.last_reply_ns = now;
            self.record.duration(tag, from, now);
        } else {
            self.record.duration(tag.in_warmup(), from, now);
        }
    }

    fn peer_closed(&mut self, index: usize) {
        let connection = &self.connections[index];
        match connection.stage {
            Stage::AwaitingClose => {
                let now = clock::now_ns();
                self.answered(index, Tag::Request, now);
                self.record.counters.open -= 1;
                self.connections[index].close();
                self.next_message(index, now);
            }
            Stage::Handshaking(_) => self.fail(index, (Kind::HandshakeClosed, "closed before its answer".into())),
            _ if connection.reader.in_reply() => {
                self.fail(index, (Kind::ClosedEarly, "in the middle of a reply".into()))
            }
            _ => self.fail(index, (Kind::ClosedEarly, "no Close frame, no announcement".into())),
        }
    }

    // ---- failing ---------------------------------------------------------------------------------------------------

    /// A message or a connection failed: counted once, under one name.
    fn fail(&mut self, index: usize, failure: Failure) {
        let connection = &mut self.connections[index];
        let spoils = failure.0.spoils_connection();
        let measured = if connection.in_flight { connection.measured } else { self.phase != Phase::Warmup };
        self.record.error(failure, measured);
        if connection.in_flight {
            connection.in_flight = false;
            self.in_flight -= 1;
            self.record.counters.failed += 1;
            if connection.measured {
                self.measured_in_flight -= 1;
                self.record.ledger.failed += 1;
                self.last_reply_ns = clock::now_ns();
            }
        }
        let per_request = self.plan.connection_per_request();
        if spoils || per_request {
            if matches!(connection.stage, Stage::Open | Stage::AwaitingClose) {
                self.record.counters.open -= 1;
            }
            connection.close();
        }
        if per_request {
            self.failures_in_a_row += 1;
            self.finished |= self.failures_in_a_row >= FAILURES_IN_A_ROW;
            self.ready.push(index);
        }
    }
}

fn connect_failure(error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::ConnectionRefused => Kind::ConnectRefused,
        io::ErrorKind::TimedOut => Kind::ConnectTimeout,
        _ => Kind::ConnectFailed,
    };
    (kind, error.to_string())
}

fn broken(error: &io::Error) -> Failure {
    (Kind::Reset, error.to_string())
}
