//! How connections open and close: connect, the opening handshake, the closing handshake, and the
//! users of a schedule who join and leave. Part of the worker.

use crate::connection::{Connection, Reader, State};
use crate::control::Phase;
use crate::deflate::Deflater;
use crate::failure::{Failure, Kind};
use crate::handshake;
use crate::message;
use crate::plan::{Scenario, Transport};
use crate::schedule::Change;
use crate::system::{Interest, System};
use crate::tags::{Part, Tag};
use crate::worker::Worker;
use std::io;

impl<S: System> Worker<S> {
    /// Opens every connection before the first phase: at the plan's rate, or as fast as they are established.
    pub fn ask_for_all(&mut self, now: u64) {
        let gap_ns = self.plan.connect.per_s.map_or(0.0, |per_s| 1e9 / per_s);
        let due = |number: u32| now + (f64::from(number) * gap_ns) as u64;
        let joins = self.connections.iter().enumerate();
        self.changes = joins.map(|(index, c)| (due(c.number), index as u32, Change::Join)).collect();
    }

    pub fn at_once(&self) -> usize {
        self.plan.share(self.plan.connect.at_once as u64, self.index) as usize
    }

    pub fn make_changes(&mut self, now: u64) {
        while let Some(&(due, index, change)) = self.changes.front() {
            let full = change == Change::Join && self.accounts.opening >= self.at_once();
            if due > now || full || self.finished {
                return;
            }
            self.changes.pop_front();
            let index = index as usize;
            match change {
                Change::Join => self.join(index),
                Change::Leave => {
                    self.connections[index].leaving = true;
                    self.leave_if_idle(index, now);
                }
            }
        }
    }

    /// A user joins: for the first time, or again before its last Close frame was sent or answered.
    fn join(&mut self, index: usize) {
        let now = self.system.now_ns();
        let connection = &mut self.connections[index];
        match connection.state {
            State::Closed => self.open(index, now),
            State::Open => {
                (connection.leaving, connection.generation) = (false, connection.generation + 1);
                self.start(index, now);
            }
            _ => connection.leaving = false,
        }
    }

    /// The connection opens after the current step: nothing being read belongs to its next generation.
    pub fn ask_to_open(&mut self, index: usize, now: u64) {
        self.asked.push_back((index as u32, now));
    }

    #[inline]
    pub fn open_asked(&mut self) {
        if !self.asked.is_empty() && self.may_open() {
            self.open_next();
        }
    }

    /// A connection that carries a single request opens with it. Any other one waits until it is one of those that may be
    /// opening at once, and what it waits is no time of the server.
    fn open_next(&mut self) {
        let most = if self.plan.connection_per_request() { usize::MAX } else { self.at_once() };
        while self.accounts.opening < most
            && let Some((index, asked_ns)) = self.asked.pop_front()
        {
            let now = if most == usize::MAX { asked_ns } else { self.system.now_ns() };
            self.open(index as usize, now);
        }
    }

    /// A connection that replaces another one waits for the next slice. One that belongs to a message was asked for in a
    /// slice, and does not wait.
    fn may_open(&self) -> bool {
        self.timeline.slices.is_none() || self.timeline.loads || self.plan.connection_per_request()
    }

    /// Begins to connect. On loopback the connection is established before `connect` returns, so the first bytes are
    /// sent at once. Only if that is too early does the connection wait to become writable.
    fn open(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        connection.opened_ns = now;
        let number = connection.number;
        let socket = match self.system.connect(&self.plan, number) {
            Ok(socket) => socket,
            Err(error) => match error.raw_os_error() {
                Some(libc::EADDRNOTAVAIL) => {
                    return self.host_cannot(
                        "no local port is left for this target: give more `source_addresses`, or widen net.ipv4.ip_local_port_range".into(),
                    );
                }
                Some(libc::EMFILE | libc::ENFILE) => {
                    return self.host_cannot("no file descriptor is left: raise the file limit (ulimit -n)".into());
                }
                _ => return self.fail(index, connect_failure(&error)),
            },
        };
        let handle = S::handle(&socket);
        self.connections[index].begin(self.plan.transport, socket);
        self.move_to(index, State::Connecting);
        self.connections[index].tls = self.tls.as_ref().map(|client| Box::new(client.session()));
        if self.plan.is_stamped(self.connections[index].number)
            && let Err(error) = self.system.ask_for_stamps(handle)
        {
            return self.host_cannot(format!("`receive_stamps`: the kernel stamps nothing here: {error}"));
        }
        let early = self.greet(index);
        let interest = if matches!(early, Ok(false)) { Interest::ReadWrite } else { Interest::Read };
        if let Err(error) = early {
            return self.fail(index, connect_failure(&error));
        }
        if let Err(error) = self.system.watch(handle, index, interest) {
            self.host_cannot(format!("epoll: {error}"));
        }
    }

    /// Whether a connection that is being established has nothing to send yet, so that only the
    /// kernel can report its state.
    fn is_silent(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        self.plan.transport != Transport::Websocket && connection.under_way.is_empty() && self.tls.is_none()
    }

    /// Sends the first bytes on a connection if it is established. Returns whether all were sent.
    fn greet(&mut self, index: usize) -> io::Result<bool> {
        if self.is_silent(index) {
            return Ok(false);
        }
        self.outbox.bytes.clear();
        let connection = &mut self.connections[index];
        match &mut connection.tls {
            Some(session) => {
                session.seal(&mut self.outbox.bytes);
                connection.written = connection.written.wrapping_add(self.outbox.bytes.len() as u32);
                // The session does not repeat bytes that were sent too early.
                if let Some(unsent) = connection.unsent.take() {
                    self.outbox.bytes.extend_from_slice(unsent.left());
                }
            }
            None => self.write_first_words(index),
        }
        let socket = self.connections[index].socket.as_ref().map(S::handle).expect("just opened");
        let now = self.system.now_ns();
        let sent = self.system.send(socket, &self.outbox.bytes);
        if let Ok(Some(sent)) = sent {
            self.accounts.record.counters.bytes_sent += sent as u64;
            self.connections[index].keep(&self.outbox.bytes[sent..]);
            if self.tls.is_some() {
                self.move_to(index, State::Securing);
            } else {
                self.connected(index, now);
                self.connections[index].written = self.outbox.bytes.len() as u32;
            }
        } else if self.tls.is_some() {
            self.connections[index].keep(&self.outbox.bytes);
        }
        self.outbox.bytes.clear();
        Ok(sent?.is_some() && self.connections[index].unsent.is_none())
    }

    /// The upgrade, or the request for which the connection was opened.
    fn write_first_words(&mut self, index: usize) {
        if self.plan.transport == Transport::Websocket {
            let Connection { number, generation, .. } = self.connections[index];
            let key = handshake::key(self.plan.seed, number, generation);
            self.outbox.bytes.extend_from_slice(&handshake::request(&self.plan, &key));
        } else if !self.connections[index].under_way.is_empty() {
            self.outbox.bytes.extend_from_slice(&self.request);
        }
    }

    /// The TLS handshake is complete: sends the first bytes that would be sent without TLS.
    pub fn secured(&mut self, index: usize, now: u64) {
        self.write_first_words(index);
        self.connected(index, now);
        if self.connections[index].state == State::Open && self.connections[index].under_way.is_empty() {
            self.start(index, now);
        }
    }

    /// The connection is established, and its first bytes are in flight.
    fn connected(&mut self, index: usize, now: u64) {
        if self.plan.transport == Transport::Websocket {
            self.move_to(index, State::Handshaking);
            return;
        }
        self.usable(index, now);
        let connection = &mut self.connections[index];
        if let Some(request) = connection.under_way.oldest_mut() {
            (request.sent_ns, request.end) = (now, connection.written.wrapping_add(self.outbox.bytes.len() as u32));
        }
    }

    /// The kernel reports that a connection is established, or why not.
    pub fn connect_ended(&mut self, index: usize) {
        let Some(socket) = self.connections[index].socket.as_ref().map(S::handle) else { return };
        if let Err(error) = self.system.error_of(socket) {
            return self.fail(index, connect_failure(&error));
        }
        match self.greet(index) {
            Err(error) => return self.fail(index, connect_failure(&error)),
            Ok(true) => {}
            Ok(false) if self.is_silent(index) => {
                let now = self.system.now_ns();
                self.usable(index, now);
                self.start(index, now);
            }
            Ok(false) => return,
        }
        let Some(socket) = self.connections[index].socket.as_ref().map(S::handle) else { return };
        // The bytes sent at once may have found too little space.
        let short = self.connections[index].unsent.is_some();
        let interest = if short { Interest::ReadWrite } else { Interest::Read };
        if let Err(error) = self.system.change(socket, index, interest) {
            self.host_cannot(format!("epoll: {error}"));
        }
    }

    /// Whether a connection that opens belongs to the measurement.
    pub fn part_of_opening(&self, index: usize) -> Part {
        let connection = &self.connections[index];
        let warms_up = match connection.under_way.oldest() {
            Some(request) => !request.measured,
            None if self.timeline.slices.is_some() => connection.opened_ns < self.timeline.measure_ns,
            None => self.timeline.phase == Phase::Warmup,
        };
        if warms_up { Part::Warmup } else { Part::Measured }
    }

    /// Messages can be sent: those of a session's setup, or any.
    fn usable(&mut self, index: usize, now: u64) {
        let part = self.part_of_opening(index);
        let opened_ns = self.connections[index].opened_ns;
        self.timed(Tag::Connect, part, opened_ns, now);
        if self.users.is_some() { self.begin_setup(index, now) } else { self.established(index) }
    }

    pub fn established(&mut self, index: usize) {
        let part = self.part_of_opening(index);
        let replaces = std::mem::take(&mut self.connections[index].replaces);
        self.move_to(index, State::Open);
        self.accounts.failures_in_a_row = 0;
        if part == Part::Measured && !replaces {
            self.accounts.record.counters.established += 1;
        }
        if let Scenario::Push { .. } = self.plan.scenario {
            self.begin_to_read(index);
        }
    }

    /// The response to the upgrade; returns how many of these bytes belong to it.
    pub fn upgrade(&mut self, index: usize, bytes: &[u8], now: u64) -> Result<usize, Failure> {
        let connection = &mut self.connections[index];
        let Reader::Handshake(head) = &mut connection.reader else { unreachable!("it is shaking hands") };
        let carried = head.len();
        head.extend_from_slice(bytes);
        let key = handshake::key(self.plan.seed, connection.number, connection.generation);
        let answer = match handshake::verify(head, &key, &self.offer) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(bytes.len()),
            Err(failure) => {
                if failure.kind == Kind::HandshakeStatus
                    && self.timeline.phase != Phase::Warmup
                    && let Some((status, refusal)) = handshake::refusal(head)
                {
                    self.accounts.record.partings.refused(status, refusal);
                }
                return Err(failure);
            }
        };
        connection.reader = Reader::Frames(match answer.deflate {
            Some(agreed) => message::Reader::inflating(agreed.server_takeover),
            None => message::Reader::default(),
        });
        let level = self.plan.deflate.map_or(0, |wanted| wanted.level);
        let keeps = answer.deflate.is_some_and(|agreed| agreed.client_takeover);
        connection.deflater = keeps.then(|| Box::new(Deflater::new(level, true)));
        self.usable(index, now);
        if self.users.is_none() {
            self.start(index, now);
        }
        Ok(answer.size - carried)
    }
}

pub fn connect_failure(error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::ConnectionRefused => Kind::ConnectRefused,
        io::ErrorKind::TimedOut => Kind::ConnectTimeout,
        _ => Kind::ConnectFailed,
    };
    Failure::new(kind, error.to_string())
}
