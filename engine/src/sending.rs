//! Outgoing data: which message is next on a connection, its frames, and the one system call that
//! sends it. Part of the worker, and the hot path.

use crate::connection::{Kept, Pending, State};
use crate::control::Phase;
use crate::failure::{Failure, Kind};
use crate::frame;
use crate::outbox::PIECE_BYTES;
use crate::plan::{Loop, Transport};
use crate::scenario::Message;
use crate::system::{Interest, System};
use crate::worker::Worker;
use std::io;

impl<S: System> Worker<S> {
    // ---- the next message ------------------------------------------------------------------------------------------

    /// The first messages of a connection that has just become usable, or whose phase has begun.
    pub fn start(&mut self, index: usize, now: u64) {
        if self.connections[index].leaving {
            return self.leave_if_idle(index, now);
        }
        if !matches!(self.timeline.phase, Phase::Warmup | Phase::Measure) || !self.has_room(index) {
            return;
        }
        let under_way = self.connections[index].under_way.len();
        match self.plan.pace {
            Loop::Closed { depth, think: None, .. } => {
                for _ in 0..depth {
                    self.send(index, now, now);
                }
                self.flush(index);
            }
            Loop::Closed { depth, .. } => (under_way..depth).for_each(|_| self.pause(index, now)),
            Loop::Open { .. } => self.stand_in_line(index),
            Loop::None {} => {}
        }
    }

    /// Sends the messages for which a reply freed a place.
    #[inline]
    pub fn go_on(&mut self, index: usize, now: u64) {
        match self.plan.pace {
            Loop::Closed { think, messages_per_connection, .. } => {
                let connection = &self.connections[index];
                if connection.leaving || messages_per_connection.is_some_and(|most| connection.replies >= most) {
                    self.leave_if_idle(index, now);
                } else if think.is_none() {
                    self.send(index, now, now);
                } else {
                    self.pause(index, now);
                }
            }
            Loop::Open { .. } if self.connections[index].leaving => self.leave_if_idle(index, now),
            Loop::Open { .. } => self.stand_in_line(index),
            Loop::None {} => {}
        }
    }

    /// The next message is due after a pause to think.
    pub fn pause(&mut self, index: usize, now: u64) {
        let Loop::Closed { think: Some(think), .. } = self.plan.pace else { return };
        let due = now + think.draw(&mut self.random);
        self.pacer.pause(due, index, self.connections[index].generation);
    }

    /// Whether a message could be sent on this connection now. A scheduled message waits while the
    /// kernel accepts no more: a message that is only kept here has not been sent.
    fn has_room(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let scheduled = matches!(self.plan.pace, Loop::Open { .. });
        let usable = match connection.state {
            State::Open => !(connection.leaving || scheduled && connection.unsent.is_some()),
            State::Closed => self.plan.connection_per_request(),
            _ => false,
        };
        let publishes =
            self.users.is_none() || self.board.rooms.as_ref().is_none_or(|rooms| rooms.publishes(connection.number));
        usable && publishes && connection.under_way.len() < self.plan.depth()
    }

    pub fn stand_in_line(&mut self, index: usize) {
        if self.has_room(index) && !self.connections[index].in_line {
            self.connections[index].in_line = true;
            self.pacer.line.push_back(index as u32);
        }
    }

    pub fn first_in_line(&mut self) -> Option<usize> {
        while let Some(index) = self.pacer.line.pop_front() {
            let index = index as usize;
            self.connections[index].in_line = false;
            if self.has_room(index) {
                return Some(index);
            }
        }
        None
    }

    // ---- sending ---------------------------------------------------------------------------------------------------

    /// Writes a message that was due at `due` into `out`; `flush` sends it. If each request has its
    /// own connection, that connection is opened.
    #[inline]
    pub fn send(&mut self, index: usize, due_ns: u64, now: u64) {
        if due_ns >= self.timeline.drain_ns || self.finished || !self.has_room(index) {
            return;
        }
        let connection = &self.connections[index];
        if let Loop::Closed { messages_per_connection: Some(most), .. } = self.plan.pace
            && connection.replies + connection.under_way.len() as u64 >= most
        {
            return;
        }
        if !self.pacer.take_place(due_ns, self.timeline.counted_from_ns()) {
            return;
        }
        let measured = due_ns >= self.timeline.measure_ns;
        let connection = &mut self.connections[index];
        connection.sequence += 1;
        let (number, sequence) = (connection.number, connection.sequence);
        self.accounts.sent(1, measured);
        let new_connection = self.plan.connection_per_request();
        let mut kept = Kept::Nothing;
        match self.plan.transport {
            Transport::Websocket if self.users.is_some() => kept = Kept::Request(self.write_step(index, sequence, now)),
            Transport::Websocket => kept = self.write_message(index, Message { connection: number, sequence }),
            Transport::Tcp => self.outbox.bytes.extend_from_slice(b"Ping"),
            Transport::Http if new_connection => {}
            Transport::Http => self.outbox.bytes.extend_from_slice(&self.request),
        }
        let connection = &mut self.connections[index];
        let end = connection.written.wrapping_add(self.outbox.bytes.len() as u32);
        connection.under_way.add(Pending { due_ns, sent_ns: now, end, measured, kept });
        if new_connection {
            self.ask_to_open(index, now);
        }
    }

    #[inline]
    fn write_message(&mut self, index: usize, message: Message) -> Kept {
        if self.plan.deflate.is_some() || self.plan.fragment_bytes.is_some() {
            self.outbox.whole.clear();
            self.script.write(message, &mut self.outbox.whole);
            self.write_whole(index);
            return self.script.mark(message).map_or(Kept::Nothing, Kept::Mark);
        }
        let key = self.outbox.key(&mut self.random);
        let Some(mark) = self.script.mark(message) else {
            self.outbox.whole.clear();
            self.script.write(message, &mut self.outbox.whole);
            self.outbox.one_frame(key);
            return Kept::Nothing;
        };
        let mut position = self.outbox.front(&self.script, &mark, key);
        while position < self.script.length {
            position += self.outbox.piece(&self.script, &mark, key, position);
            if self.outbox.bytes.len() >= PIECE_BYTES {
                self.hand_over(index);
            }
        }
        Kept::Mark(mark)
    }

    pub fn write_whole(&mut self, index: usize) {
        self.outbox.message(self.connections[index].deflater.as_deref_mut(), &mut self.random);
    }

    /// Writes a frame that is no part of a script's messages.
    pub fn frame(&mut self, opcode: u8, payload: &[u8]) {
        let key = self.outbox.key(&mut self.random);
        frame::write(&mut self.outbox.bytes, opcode, payload, key);
    }

    /// Sends the bytes written for this connection; bytes that the kernel does not accept are kept
    /// until the socket is writable.
    #[inline]
    pub fn flush(&mut self, index: usize) {
        self.hand_over(index);
        if let Some(error) = self.outbox.refused.take() {
            self.fail(index, broken(&error));
        }
    }

    /// As `flush`, but inside a message: a broken connection is detected at its end.
    #[inline]
    pub fn hand_over(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if self.tls.is_some()
            && let Some(session) = &mut connection.tls
        {
            let records = session.seal(&mut self.outbox.bytes);
            connection.under_way.sealed(connection.written, &records);
        }
        if self.outbox.bytes.is_empty() {
            return;
        }
        connection.written = connection.written.wrapping_add(self.outbox.bytes.len() as u32);
        let Some(socket) = connection.socket.as_ref().map(S::handle) else { return self.outbox.bytes.clear() };
        if connection.unsent.is_some() || self.outbox.refused.is_some() {
            connection.keep(&self.outbox.bytes);
            return self.outbox.bytes.clear();
        }
        match self.system.send(socket, &self.outbox.bytes) {
            Ok(sent) => {
                let sent = sent.unwrap_or(0);
                self.accounts.record.counters.bytes_sent += sent as u64;
                if sent < self.outbox.bytes.len() {
                    connection.keep(&self.outbox.bytes[sent..]);
                    if let Err(error) = self.system.change(socket, index, Interest::ReadWrite) {
                        self.host_cannot(format!("epoll: {error}"));
                    }
                }
                self.outbox.bytes.clear();
            }
            Err(error) => {
                self.outbox.refused = Some(error);
                self.outbox.bytes.clear();
            }
        }
    }

    pub fn on_writable(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(socket) = connection.socket.as_ref().map(S::handle) else { return };
        if connection.state == State::Connecting {
            return self.connect_ended(index);
        }
        let Some(unsent) = &mut connection.unsent else { return };
        match self.system.send(socket, unsent.left()) {
            Ok(sent) => {
                self.accounts.record.counters.bytes_sent += sent.unwrap_or(0) as u64;
                unsent.take(sent.unwrap_or(0));
            }
            Err(error) => return self.fail(index, broken(&error)),
        }
        if !unsent.left().is_empty() {
            return;
        }
        let pong = connection.unsent.take().and_then(|unsent| unsent.pong);
        if let Err(error) = self.system.change(socket, index, Interest::Read) {
            return self.host_cannot(format!("epoll: {error}"));
        }
        if let Some(payload) = pong {
            self.pong(index, payload);
            self.flush(index);
        }
        if let Loop::Open { .. } = self.plan.pace {
            self.stand_in_line(index);
        }
    }

    /// Answers a Ping, or keeps the answer until the bytes already kept have left: only the newest (RFC 6455 §5.5.3).
    pub fn pong(&mut self, index: usize, payload: Vec<u8>) {
        if let Some(unsent) = &mut self.connections[index].unsent {
            unsent.pong = Some(payload);
            return;
        }
        self.accounts.record.counters.pings_answered += 1;
        self.frame(frame::PONG, &payload);
    }
}

pub fn broken(error: &io::Error) -> Failure {
    Failure::new(Kind::Reset, error.to_string())
}
