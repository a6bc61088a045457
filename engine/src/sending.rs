//! Outgoing data: which message is next on a connection, its frames, and the one system call that
//! sends it. Part of the worker, and the hot path.

use crate::connection::{Connection, Pending, State};
use crate::control::Phase;
use crate::failure::{Failure, Kind};
use crate::frame;
use crate::plan::{Loop, Mask, Transport};
use crate::push;
use crate::scenario::{Mark, Message, Script};
use crate::system::{Interest, System};
use crate::tags::{Part, Tag};
use crate::worker::Worker;
use std::io;

/// A long message is masked and sent in pieces of this size. The kernel then reads bytes that are
/// still in the core's cache, and the first ones leave at once.
const PIECE_BYTES: usize = 256 << 10;

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
        self.pacer.pause(due, index, self.connections[index].life);
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
        let mut mark = Mark::default();
        match self.plan.transport {
            Transport::Websocket if self.users.is_some() => mark = self.write_step(index, sequence, now),
            Transport::Websocket => mark = self.write_message(index, Message { connection: number, sequence }),
            Transport::Tcp => self.out.extend_from_slice(b"Ping"),
            Transport::Http if new_connection => {}
            Transport::Http => self.out.extend_from_slice(&self.request),
        }
        let connection = &mut self.connections[index];
        let end = connection.written.wrapping_add(self.out.len() as u32);
        connection.under_way.add(Pending { due_ns, sent_ns: now, end, measured, mark });
        if new_connection {
            self.ask_to_open(index, now);
        }
    }

    #[inline]
    fn write_message(&mut self, index: usize, message: Message) -> Mark {
        if self.plan.deflate.is_some() || self.plan.fragment_bytes.is_some() {
            self.whole.clear();
            self.script.write(message, &mut self.whole);
            self.write_whole(index);
            return self.script.mark(message).unwrap_or_default();
        }
        let key = mask_key(self.plan.mask, &mut self.random);
        let length = self.script.length;
        let Some(mark) = self.script.mark(message) else {
            self.whole.clear();
            self.script.write(message, &mut self.whole);
            frame::write_header(&mut self.out, frame::WHOLE | self.script.opcode, length, key);
            frame::write_masked(&mut self.out, &self.whole, key, 0);
            return Mark::default();
        };
        let mut position = write_front(&self.script, &mark, key, &mut self.out);
        while position < length {
            position += write_piece(&self.script, &mark, key, position, &mut self.out);
            if self.out.len() >= PIECE_BYTES {
                self.hand_over(index);
            }
        }
        mark
    }

    /// Writes the message in `whole`: as it is, or compressed, or fragmented, or both (RFC 7692 §6.1: in this order).
    pub fn write_whole(&mut self, index: usize) {
        let mut first = self.script.opcode;
        if let Some(deflater) = self.connections[index].deflater.as_deref_mut().or(self.deflater.as_mut()) {
            deflater.message(&self.whole, &mut self.small);
            std::mem::swap(&mut self.whole, &mut self.small);
            first |= frame::COMPRESSED;
        }
        let most = self.plan.fragment_bytes.unwrap_or(usize::MAX);
        let mut rest = self.whole.as_slice();
        loop {
            let (piece, after) = rest.split_at(rest.len().min(most));
            let last = if after.is_empty() { frame::WHOLE } else { 0 };
            let key = mask_key(self.plan.mask, &mut self.random);
            frame::write_header(&mut self.out, first | last, piece.len(), key);
            frame::write_masked(&mut self.out, piece, key, 0);
            if after.is_empty() {
                return;
            }
            (rest, first) = (after, frame::CONTINUATION);
        }
    }

    /// Triggers a broadcast at every address of the target, from the first open connection to it. Returns whether there
    /// was one for each. The broadcast begins with the first of these messages.
    pub fn trigger(&mut self, due_ns: u64) -> bool {
        let senders = (0..self.plan.addresses()).map(|address| self.sender_to(address)).collect::<Option<Vec<_>>>();
        let Some(senders) = senders else { return false };
        if due_ns >= self.timeline.drain_ns {
            return true;
        }
        let now = self.system.now_ns();
        let Some((number, expected)) = self.board.trigger(now) else {
            self.accounts.record.ledger.unsent += u64::from(due_ns >= self.timeline.measure_ns);
            return true;
        };
        self.accounts.record.counters.sent += expected;
        let part = if now >= self.timeline.measure_ns { Part::Measured } else { Part::Warmup };
        if part == Part::Measured {
            self.accounts.record.ledger.sent += expected;
        }
        self.accounts.record.duration(Tag::SendLag, part, due_ns, now);
        let tag = self.script.tag_of_broadcast(self.plan.shard.0, number);
        let text = push::request(self.plan.shard, number, tag, self.board.clock, now);
        for index in senders {
            let key = mask_key(self.plan.mask, &mut self.random);
            frame::write(&mut self.out, frame::TEXT, text.as_bytes(), key);
            self.flush(index);
        }
        true
    }

    /// The connection that triggers at an address: one that reads, and always the same one until it
    /// closes. A trigger from another connection could overtake one in flight.
    fn sender_to(&mut self, address: usize) -> Option<usize> {
        match self.senders[address].map(|index| self.connections[index].state) {
            Some(State::Open) => {}
            Some(State::Leaving) => return None,
            _ => {
                let is_fit = |index: &usize| {
                    let Connection { state, number, .. } = self.connections[*index];
                    state == State::Open && self.plan.address_number(number) == address && self.reads(*index)
                };
                self.senders[address] = (0..self.connections.len()).find(is_fit);
            }
        }
        self.senders[address]
    }

    pub fn control_frame(&mut self, opcode: u8, payload: &[u8]) {
        let key = mask_key(self.plan.mask, &mut self.random);
        frame::write(&mut self.out, opcode, payload, key);
    }

    /// Sends the bytes written for this connection; bytes that the kernel does not accept are kept
    /// until the socket is writable.
    #[inline]
    pub fn flush(&mut self, index: usize) {
        self.hand_over(index);
        if let Some(error) = self.refused.take() {
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
            let records = session.seal(&mut self.out);
            connection.under_way.sealed(connection.written, &records);
        }
        if self.out.is_empty() {
            return;
        }
        connection.written = connection.written.wrapping_add(self.out.len() as u32);
        let Some(socket) = connection.socket.as_ref().map(S::handle) else { return self.out.clear() };
        if connection.unsent.is_some() || self.refused.is_some() {
            connection.keep(&self.out);
            return self.out.clear();
        }
        match self.system.send(socket, &self.out) {
            Ok(sent) => {
                let sent = sent.unwrap_or(0);
                self.accounts.record.counters.bytes_sent += sent as u64;
                if sent < self.out.len() {
                    connection.keep(&self.out[sent..]);
                    if let Err(error) = self.system.change(socket, index, Interest::ReadWrite) {
                        self.host_cannot(format!("epoll: {error}"));
                    }
                }
                self.out.clear();
            }
            Err(error) => {
                self.refused = Some(error);
                self.out.clear();
            }
        }
    }

    pub fn writable(&mut self, index: usize) {
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
        self.control_frame(frame::PONG, &payload);
    }
}

/// Appends the front of a message with this mark: its header and its stamp. Returns the position in the message behind it.
#[inline]
pub fn write_front(script: &Script, mark: &Mark, key: [u8; 4], out: &mut Vec<u8>) -> usize {
    frame::write_front(out, frame::WHOLE | script.opcode, script.length, key, mark.stamp);
    mark.stamp.len()
}

/// Appends its next piece, which begins at this position. Returns how long it is.
#[inline]
pub fn write_piece(script: &Script, mark: &Mark, key: [u8; 4], position: usize, out: &mut Vec<u8>) -> usize {
    let piece = script.content(mark, position, (script.length - position).min(PIECE_BYTES));
    frame::write_masked(out, piece, key, position);
    piece.len()
}

/// RFC 6455 §5.3 requires a fresh key for every frame; the two others are for comparison and are part of the result.
#[inline]
pub fn mask_key(mask: Mask, random: &mut fastrand::Rng) -> [u8; 4] {
    match mask {
        Mask::Random => random.u32(..).to_ne_bytes(),
        Mask::Fixed => [0x37, 0xfa, 0x21, 0x3d],
        Mask::Zero => [0; 4],
    }
}

pub fn broken(error: &io::Error) -> Failure {
    Failure::new(Kind::Reset, error.to_string())
}
