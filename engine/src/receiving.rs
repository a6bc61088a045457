//! Incoming data: every reply is read, checked and recorded, and every kind of failure has a name.
//! Part of the worker, and the hot path.

use crate::connection::{Connection, Kept, Pending, Reader, State};
use crate::control::Phase;
use crate::failure::{Failure, Kind};
use crate::http;
use crate::message::Incoming;
use crate::plan::{Loop, Scenario};
use crate::scenario::{self, Message};
use crate::sending::broken;
use crate::system::System;
use crate::tags::{Part, Tag};
use crate::worker::Worker;
use std::io;

/// A reply to a message that no peer can have read.
pub const TOO_EARLY: &str = "an answer that came before its question was sent";
/// In a flood of Pings only the newest is answered, once this much is queued to be sent (RFC 6455 §5.5.3).
const PONGS_BYTES: usize = 64 << 10;

impl<S: System> Worker<S> {
    #[inline]
    pub fn on_readable(&mut self, index: usize) {
        if self.connections[index].state == State::Open && !self.reads(index) {
            // There is an event for it only if the connection is closed; it never reads the rest.
            return self.fail(index, Failure::new(Kind::Reset, "a receiver that does not read was reset"));
        }
        // One that has more to read has its turn anyway.
        if !self.connections[index].unread {
            self.read(index);
        }
    }

    pub fn read(&mut self, index: usize) {
        let Some(socket) = self.connections[index].socket.as_ref().map(S::handle) else { return };
        match self.connections[index].state {
            State::Connecting => return,
            State::Open if !self.reads(index) => return,
            _ => {}
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        match self.receive(index, socket, &mut buffer) {
            Ok(None) => {}
            Ok(Some(0)) => self.peer_closed(index),
            Ok(Some(count)) => {
                // One read only: the rest follows after the other connections had their turn.
                if count == buffer.len() || self.connections[index].goes_on {
                    self.read_on(index);
                }
                self.on_bytes(index, &buffer[..count]);
            }
            Err(error) => self.fail(index, broken(&error)),
        }
        self.buffer = buffer;
    }

    /// A connection may have more to read, of which no event will tell.
    #[cold]
    pub fn read_on(&mut self, index: usize) {
        if !std::mem::replace(&mut self.connections[index].unread, true) {
            self.unread.push_back(index as u32);
        }
    }

    #[inline]
    fn on_bytes(&mut self, index: usize, bytes: &[u8]) {
        let now = self.system.now_ns();
        // The start of the measurement may have become known while this worker waited. Another one may then have
        // triggered a broadcast, and this may be a copy of it.
        if now >= self.timeline.moment_ns || self.timeline.phase < Phase::Measure {
            self.keep_time(now);
        }
        self.read_ns = now;
        self.accounts.record.counters.bytes_received += bytes.len() as u64;
        let taken =
            if self.tls.is_some() { self.take_in_sealed(index, bytes, now) } else { self.take_in(index, bytes, now) };
        match taken {
            Ok(()) => self.flush(index),
            Err(failure) => self.fail(index, failure),
        }
    }

    /// The bytes received and, on a sampled connection of which messages are asked, how long ago the kernel had them.
    #[inline]
    fn receive(&mut self, index: usize, socket: S::Handle, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if !self.plan.is_stamped(self.connections[index].number) {
            return self.system.receive(socket, buffer);
        }
        let received = self.system.receive_stamped(socket, buffer)?;
        if let Some((1.., Some(stamp_ns))) = received
            && self.timeline.phase >= Phase::Warmup
        {
            let part = Part::of(self.timeline.phase >= Phase::Measure);
            self.accounts.record.duration(Tag::ReceiveDelay, part, stamp_ns, self.system.unix_ns());
        }
        Ok(received.map(|(count, _)| count))
    }

    fn take_in_sealed(&mut self, index: usize, sealed: &[u8], now: u64) -> Result<(), Failure> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let connection = &mut self.connections[index];
        let session = connection.tls.as_mut().expect("it is sealed");
        let opened = session.open(sealed, &mut plain);
        if connection.state == State::Securing && !session.is_handshaking() {
            self.secured(index, now);
        }
        let taken = if plain.is_empty() { Ok(()) } else { self.take_in(index, &plain, now) };
        self.plain = plain;
        // What came before a wrong record came in time; if it ended the connection, the record is nobody's.
        if self.connections[index].state == State::Closed { taken } else { taken.and(opened) }
    }

    /// Processes everything that has arrived on a connection, one complete unit after the other.
    #[inline]
    fn take_in(&mut self, index: usize, bytes: &[u8], now: u64) -> Result<(), Failure> {
        let mut input = bytes;
        let mut ping = None;
        if self.connections[index].state == State::Handshaking {
            input = &input[self.upgrade(index, bytes, now)?..];
            if self.connections[index].state == State::Open && !self.reads(index) {
                return Ok(());
            }
        }
        if self.is_plain {
            self.take_in_plain(index, &mut input, now);
        } else if self.users.is_some() {
            self.take_in_whole(index, &mut input, now)?;
        }
        // A reply may end the connection, and with it the rest of the input.
        while !input.is_empty() && self.connections[index].state != State::Closed {
            let connection = &mut self.connections[index];
            if connection.state == State::Closing {
                self.closing_input(index, input, now);
                return Ok(());
            }
            let message = connection.expected();
            let mark = match connection.under_way.oldest() {
                Some(Pending { kept: Kept::Mark(mark), .. }) => Some(mark),
                // A session's reply is a record, and its request is found by that.
                _ => None,
            };
            match &mut connection.reader {
                Reader::Frames(reader) => match reader.feed(&mut input, &self.script, message, mark)? {
                    None => {}
                    Some(Incoming::Reply { wrong, fragmented, shift }) => {
                        self.accounts.record.counters.fragmented_replies += u64::from(fragmented);
                        if shift == 0 {
                            self.reply(index, wrong, now);
                        } else {
                            self.reply_to_another(index, shift, wrong, now);
                        }
                    }
                    Some(Incoming::Notice(message)) if self.users.is_some() => self.converse(index, &message, now)?,
                    Some(Incoming::Notice(text)) => {
                        self.notice(index, &text, now);
                        self.leave_if_all_came(index, now);
                    }
                    Some(Incoming::Ping(payload)) if self.outbox.bytes.len() < PONGS_BYTES => self.pong(index, payload),
                    Some(Incoming::Ping(payload)) => ping = Some(payload),
                    Some(Incoming::Close(payload)) => return Err(self.close_reply(index, &payload)),
                },
                Reader::Http(reader) => {
                    let Scenario::Doc { bytes, .. } = self.plan.scenario else { unreachable!("http is doc") };
                    if let Some(reply) = reader.feed(&mut input, scenario::longest(bytes))? {
                        self.http_reply(index, reply, now);
                    }
                }
                Reader::Tcp(seen, right) => {
                    let taken = input.len().min(4 - *seen);
                    *right &= self.script.matches(message, *seen, &input[..taken]);
                    *seen += taken;
                    input = &input[taken..];
                    if *seen == 4 {
                        let wrong = (!*right).then(|| Failure::new(Kind::ReplyContent, "not `Pong`"));
                        (*seen, *right) = (0, true);
                        self.reply(index, wrong, now);
                    }
                }
                Reader::Handshake(_) => unreachable!("it was answered above"),
            }
        }
        match ping {
            Some(payload) if matches!(self.connections[index].state, State::Open | State::SettingUp) => {
                self.pong(index, payload);
            }
            _ => {}
        }
        Ok(())
    }

    /// The fast lane of a session: messages that are there whole. Everything else stays at the front of `input`.
    fn take_in_whole(&mut self, index: usize, input: &mut &[u8], now: u64) -> Result<(), Failure> {
        while let Connection { reader: Reader::Frames(reader), state: State::Open, .. } = &self.connections[index]
            && let Some(message) = reader.take_content(input, &self.script)
        {
            self.converse(index, message, now)?;
        }
        Ok(())
    }

    /// The fast lane of a plain closed loop: whole and correct replies, and then as many messages in the places of the
    /// answered ones. It does what `reply` and `send` do, with one borrow and with sums at the end. Everything else stays at
    /// the front of `input`.
    fn take_in_plain(&mut self, index: usize, input: &mut &[u8], now: u64) {
        let counted_from_ns = self.timeline.counted_from_ns();
        let connection = &mut self.connections[index];
        let Reader::Frames(reader) = &connection.reader else { return };
        let is_plain = connection.state == State::Open && !connection.leaving && self.timeline.slices.is_none();
        if !is_plain || reader.in_message() || now >= self.timeline.drain_ns || self.finished {
            return;
        }
        let accepted = connection.accepted();
        let (mut answered, mut measured) = (0, 0);
        'replies: for part in connection.under_way.parts() {
            for message in part {
                let Kept::Mark(mark) = &message.kept else { break 'replies };
                if !message.ends_within(accepted) || !self.script.take_reply(input, mark) {
                    break 'replies;
                }
                answered += 1;
                measured += u64::from(message.measured);
                let part = Part::of(message.measured);
                self.accounts.record.duration(Tag::Service, part, message.sent_ns, now);
            }
        }
        if answered == 0 {
            return;
        }
        let renewed = self.pacer.take_places(answered, now, counted_from_ns);
        let measures = now >= self.timeline.measure_ns;
        let like =
            Pending { due_ns: now, sent_ns: now, end: connection.written, measured: measures, kept: Kept::Nothing };
        let mut next = Message { connection: connection.number, sequence: connection.sequence + 1 };
        let mut left = renewed;
        for part in connection.under_way.parts() {
            let count = left.min(part.len());
            left -= count;
            let (fours, ones) = part[..count].as_chunks_mut::<4>();
            for places in fours {
                self.outbox.next_messages(&self.script, &mut self.random, next, like, places);
                next.sequence += 4;
            }
            for place in ones.as_chunks_mut::<1>().0 {
                self.outbox.next_messages(&self.script, &mut self.random, next, like, place);
                next.sequence += 1;
            }
        }
        connection.under_way.turn(renewed, answered - renewed);
        connection.sequence = next.sequence - 1;
        connection.replies += answered as u64;
        self.accounts.answered(answered as u64, measured, self.timeline.in_window, now);
        self.accounts.sent(renewed as u64, measures);
    }

    #[inline]
    fn reply(&mut self, index: usize, wrong: Option<Failure>, now: u64) {
        if !self.is_asked(index) {
            return self.fail(index, self.unasked(index));
        }
        match wrong {
            Some(failure) => self.fail(index, failure),
            None => self.answered(index, 0, now),
        }
    }

    /// Whether the oldest message has been sent, so that a peer can have answered it.
    #[inline]
    fn is_asked(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        connection.under_way.oldest().is_some_and(|message| connection.has_left(message))
    }

    #[cold]
    fn unasked(&self, index: usize) -> Failure {
        let what = match self.connections[index].under_way.is_empty() {
            true => "a message that nothing was waiting for",
            false => TOO_EARLY,
        };
        Failure::new(Kind::UnexpectedReply, what)
    }

    /// A reply whose stamp names another message than the oldest in flight. The ones before it will not be answered, as
    /// far as this connection can determine. A message that was already answered or given up changes nothing.
    #[cold]
    fn reply_to_another(&mut self, index: usize, shift: i64, wrong: Option<Failure>, now: u64) {
        let connection = &self.connections[index];
        let asked = connection.under_way.all().take_while(|message| connection.has_left(message)).count() as i64;
        if shift < 0 || shift >= asked {
            let which = if shift < 0 { "before" } else { "not sent yet" };
            return self.fail(index, Failure::new(Kind::UnexpectedReply, format!("a reply to a message {which}")));
        }
        for _ in 0..shift {
            self.fail(index, Failure::new(Kind::ReplyMissing, "a later message was answered first"));
        }
        self.reply(index, wrong, now);
    }

    pub fn http_reply(&mut self, index: usize, reply: http::Reply, now: u64) {
        let Scenario::Doc { persistent, bytes } = self.plan.scenario else { unreachable!("http is doc") };
        if !self.is_asked(index) || self.connections[index].state == State::AwaitingClose {
            return self.fail(index, self.unasked(index));
        }
        let connection = &mut self.connections[index];
        if reply.status != 200 {
            self.fail(index, Failure::new(Kind::HttpStatus, format!("status {}", reply.status)));
        } else if reply.length != bytes {
            self.fail(index, Failure::new(Kind::HttpLength, format!("{} bytes instead of {bytes}", reply.length)));
        } else if !persistent {
            connection.replied_ns = now;
            self.move_to(index, State::AwaitingClose);
            return;
        } else if reply.closes {
            // The next message uses a new connection.
            self.account(index, 0, now);
        } else {
            self.answered(index, 0, now);
        }
        if reply.closes && self.connections[index].state == State::Open {
            match self.connections[index].leaving {
                true => self.leave_if_idle(index, now),
                false => self.reconnect(index, now),
            }
        }
    }

    /// A correct reply to one of the messages in flight: it is recorded, and the connection continues.
    #[inline]
    pub fn answered(&mut self, index: usize, slot: usize, now: u64) {
        self.account(index, slot, now);
        self.go_on(index, now);
    }

    #[inline]
    pub fn account(&mut self, index: usize, slot: usize, now: u64) {
        let per_request = self.plan.connection_per_request();
        let connection = &mut self.connections[index];
        let Some(message) = connection.under_way.take_at(slot) else { return };
        let Pending { due_ns, sent_ns, measured, .. } = message;
        connection.replies += 1;
        self.accounts.answered(1, u64::from(measured), self.timeline.in_window, now);
        let awake = |from_ns, to_ns| self.timeline.awake(from_ns, to_ns);
        let part = Part::of(measured);
        if per_request {
            let (opened_ns, replied_ns) = (connection.opened_ns, connection.replied_ns);
            self.accounts.record.duration(Tag::Service, part, sent_ns, awake(sent_ns, replied_ns));
            self.accounts.record.duration(Tag::Request, part, opened_ns, awake(opened_ns, now));
        } else {
            self.accounts.record.duration(Tag::Service, part, sent_ns, awake(sent_ns, now));
        }
        let paced = !matches!(self.plan.pace, Loop::Closed { think: None, .. });
        if paced {
            let begun_ns = if per_request { connection.opened_ns } else { sent_ns };
            self.accounts.record.duration(Tag::Response, part, due_ns, awake(sent_ns, now));
            self.accounts.record.duration(Tag::SendLag, part, due_ns, begun_ns);
        }
        if let Some(request) = message.request() {
            let begun_ns = if paced { due_ns } else { sent_ns };
            self.accounts.record.duration(Tag::step(request.step.into()), part, begun_ns, awake(sent_ns, now));
        }
    }
}
