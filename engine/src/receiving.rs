//! What comes back: every reply is taken in, checked and recorded, and every way in which that can fail has its name. Part of
//! the worker, and the hot path.

use crate::connection::{Pending, Reader, Stage};
use crate::control::Phase;
use crate::http;
use crate::message::Incoming;
use crate::plan::{Loop, Scenario};
use crate::push::{self, Delivery, Notice};
use crate::record::{Failure, Kind, Part, Tag};
use crate::scenario;
use crate::sending::broken;
use crate::system::System;
use crate::worker::Worker;
use std::io;

/// Then the others' turn comes: epoll tells again of what is left.
const READS_AT_ONCE: usize = 4;
/// Of a flood of Pings only the newest is answered, once so much is to be sent (RFC 6455 §5.5.3).
const PONGS_BYTES: usize = 64 << 10;

impl<S: System> Worker<S> {
    pub fn readable(&mut self, index: usize) {
        if self.connections[index].stage == Stage::Open && !self.reads(index) {
            // There is news of it only where the connection is gone; what it has not read it never will.
            return self.fail(index, (Kind::Reset, "a receiver that does not read was reset".into()));
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..READS_AT_ONCE {
            let Some(socket) = self.connections[index].socket.as_ref().map(S::handle) else { break };
            if self.connections[index].stage == Stage::Connecting {
                break;
            }
            match self.receive(index, socket, &mut buffer) {
                Ok(None) => break,
                Ok(Some(0)) => {
                    self.peer_closed(index);
                    break;
                }
                Ok(Some(count)) => {
                    let now = self.system.now_ns();
                    let life = self.connections[index].life;
                    self.record.counters.bytes_received += count as u64;
                    if now >= self.moment_ns {
                        self.keep_time(now);
                    }
                    // What a phase began may have ended this connection, and with it what came on it.
                    if !self.is_in(index, life) {
                        break;
                    }
                    let taken = if self.tls.is_some() {
                        self.take_in_sealed(index, &buffer[..count], now)
                    } else {
                        self.take_in(index, &buffer[..count], now)
                    };
                    match taken {
                        Ok(()) => self.flush(index),
                        Err(failure) => self.fail(index, failure),
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
    }

    /// Whether it is still the connection that it was in this life.
    #[inline]
    pub fn is_in(&self, index: usize, life: u32) -> bool {
        let connection = &self.connections[index];
        connection.life == life && connection.stage != Stage::Closed
    }

    /// What has come; on a sampled connection also how long ago the kernel had it.
    #[inline]
    fn receive(&mut self, index: usize, socket: S::Handle, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if !self.plan.is_stamped(self.connections[index].number) {
            return self.system.receive(socket, buffer);
        }
        let received = self.system.receive_stamped(socket, buffer)?;
        if let Some((1.., Some(stamp_ns))) = received {
            let part = if self.phase >= Phase::Measure { Part::Measured } else { Part::Warmup };
            self.record.duration(Tag::ReceiveDelay, part, stamp_ns, self.system.now_ns() + self.to_unix_ns);
        }
        Ok(received.map(|(count, _)| count))
    }

    /// TLS records, and what is in them.
    fn take_in_sealed(&mut self, index: usize, sealed: &[u8], now: u64) -> Result<(), Failure> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let connection = &mut self.connections[index];
        let session = connection.tls.as_mut().expect("it is sealed");
        session.open(sealed, &mut plain)?;
        if connection.stage == Stage::Securing && !session.is_handshaking() {
            self.secured(index, now);
        }
        let taken = if plain.is_empty() { Ok(()) } else { self.take_in(index, &plain, now) };
        self.plain = plain;
        taken
    }

    /// Everything that has come on a connection, one complete thing after the other.
    #[inline]
    fn take_in(&mut self, index: usize, bytes: &[u8], now: u64) -> Result<(), Failure> {
        let mut input = bytes;
        let mut ping = None;
        let life = self.connections[index].life;
        if self.connections[index].stage == Stage::Handshaking {
            input = &input[self.upgrade(index, bytes, now)?..];
        }
        // A reply may end the connection, and begin another in its place: the rest came on neither.
        while !input.is_empty() && self.is_in(index, life) {
            let connection = &mut self.connections[index];
            if connection.stage == Stage::Closing {
                self.closing_input(index, input, now);
                return Ok(());
            }
            let message = connection.expected();
            match &mut connection.reader {
                Reader::Frames(reader) => match reader.feed(&mut input, &self.script, message)? {
                    None => {}
                    Some(Incoming::Reply { wrong, fragmented, shift }) => {
                        self.record.counters.fragmented_replies += u64::from(fragmented);
                        if shift == 0 {
                            self.reply(index, wrong, now);
                        } else {
                            self.reply_to_another(index, shift, wrong, now);
                        }
                    }
                    Some(Incoming::Notice(text)) => self.notice(index, &text, now),
                    Some(Incoming::Ping(payload)) if self.out.len() < PONGS_BYTES => self.pong(index, payload),
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
                        let wrong = (!*right).then(|| (Kind::ReplyContent, "not `Pong`".to_string()));
                        (*seen, *right) = (0, true);
                        self.reply(index, wrong, now);
                    }
                }
                Reader::Handshake(_) => unreachable!("it was answered above"),
            }
        }
        match ping {
            Some(payload) if self.connections[index].stage == Stage::Open && self.is_in(index, life) => {
                self.pong(index, payload);
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn reply(&mut self, index: usize, wrong: Option<Failure>, now: u64) {
        if !self.is_asked(index) {
            return self.fail(index, self.unasked(index));
        }
        match wrong {
            Some(failure) => self.fail(index, failure),
            None => self.answered(index, now),
        }
    }

    /// Whether the oldest message has left, so that somebody can have answered it.
    #[inline]
    fn is_asked(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        connection.under_way.oldest().is_some_and(|message| connection.has_left(message))
    }

    #[cold]
    fn unasked(&self, index: usize) -> Failure {
        let what = match self.connections[index].under_way.is_empty() {
            true => "a message that nothing was waiting for",
            false => "an answer that came before its question was sent",
        };
        (Kind::UnexpectedReply, what.into())
    }

    /// A reply whose stamp names another message than the oldest under way: those before it are not answered any more, as
    /// far as this connection can tell; one that was answered already, or given up, changes nothing.
    #[cold]
    fn reply_to_another(&mut self, index: usize, shift: i64, wrong: Option<Failure>, now: u64) {
        let connection = &self.connections[index];
        let asked = connection.under_way.all().take_while(|message| connection.has_left(message)).count() as i64;
        if shift < 0 || shift >= asked {
            let which = if shift < 0 { "before" } else { "not sent yet" };
            return self.fail(index, (Kind::UnexpectedReply, format!("a reply to a message {which}")));
        }
        for _ in 0..shift {
            self.fail(index, (Kind::ReplyMissing, "a later message was answered first".into()));
        }
        self.reply(index, wrong, now);
    }

    pub fn http_reply(&mut self, index: usize, reply: http::Reply, now: u64) {
        let Scenario::Doc { persistent, bytes } = self.plan.scenario else { unreachable!("http is doc") };
        if !self.is_asked(index) || self.connections[index].stage == Stage::AwaitingClose {
            return self.fail(index, self.unasked(index));
        }
        let connection = &mut self.connections[index];
        if reply.status != 200 {
            self.fail(index, (Kind::HttpStatus, format!("status {}", reply.status)));
        } else if reply.length != bytes {
            self.fail(index, (Kind::HttpLength, format!("{} bytes instead of {bytes}", reply.length)));
        } else if !persistent {
            connection.replied_ns = now;
            self.move_to(index, Stage::AwaitingClose);
            return;
        } else if reply.closes {
            // Whoever goes on does so on the next connection.
            self.account(index, now);
        } else {
            self.answered(index, now);
        }
        if reply.closes && self.connections[index].stage == Stage::Open {
            match self.connections[index].leaving {
                true => self.leave_if_idle(index, now),
                false => self.reconnect(index, now),
            }
        }
    }

    /// One receiver's copy of a broadcast.
    fn notice(&mut self, index: usize, text: &[u8], now: u64) {
        let Some(Notice { micros, shard, number, tag, triggered }) = push::parse(text) else {
            let found = String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
            return self.fail(index, (Kind::ReplyContent, format!("not a broadcast: {found:?}")));
        };
        // What came together with the end of its handshake.
        if !self.reads(index) {
            return;
        }
        if shard != push::TRIGGERING || tag != self.script.tag_of_broadcast(shard, number) {
            self.record.counters.foreign += 1;
            return;
        }
        let triggers = self.plan.shard.0 == push::TRIGGERING;
        let sent_ns = match triggers {
            true => self.board.sent_ns(number),
            false => triggered.and_then(|(clock, t_ns)| (clock == self.board.clock).then_some(t_ns)),
        };
        if triggers && sent_ns.is_none() || number >= push::MOST {
            return self.fail(index, (Kind::ReplyContent, format!("broadcast {number} was never triggered")));
        }
        let connection = &mut self.connections[index];
        if (number as u64) < connection.sequence {
            // The first may have been triggered before this receiver was there, which nobody expected of it.
            self.record.counters.out_of_order += u64::from(connection.replies > 0);
            return;
        }
        connection.sequence = number as u64 + 1;
        connection.replies += 1;
        self.record.counters.answered += 1;
        if self.broadcasts.len() <= number {
            self.broadcasts.resize(number + 1, Delivery::default());
        }
        self.broadcasts[number].add(now);
        // Whoever triggers has counted all of its own copies as sent; another shard knows of those that come.
        let others = u64::from(!triggers);
        self.record.counters.sent += others;
        // By another host's clock nobody can tell how long it took.
        let Some(sent_ns) = sent_ns else { return };
        let part = if sent_ns >= self.measure_ns { Part::Measured } else { Part::Warmup };
        if part == Part::Measured {
            self.record.ledger.sent += others;
            self.record.ledger.answered += 1;
            self.record.ledger.replies_in_window += u64::from(self.phase == Phase::Measure);
        }
        self.record.duration(Tag::Push, part, sent_ns, now);
        self.record.duration(Tag::PushStamp, part, micros.saturating_mul(1000), now + self.to_unix_ns);
    }

    /// A right reply: it is recorded, and the connection goes on.
    #[inline]
    fn answered(&mut self, index: usize, now: u64) {
        self.account(index, now);
        self.go_on(index, now);
    }

    #[inline]
    pub fn account(&mut self, index: usize, now: u64) {
        let per_request = self.plan.connection_per_request();
        let connection = &mut self.connections[index];
        let Some(Pending { due_ns, sent_ns, measured, .. }) = connection.under_way.take() else { return };
        connection.replies += 1;
        self.in_flight -= 1;
        self.record.counters.answered += 1;
        if self.phase == Phase::Measure {
            self.record.ledger.replies_in_window += 1;
        }
        let mut part = Part::Warmup;
        if measured {
            part = Part::Measured;
            self.measured_in_flight -= 1;
            self.record.ledger.answered += 1;
            self.last_reply_ns = now;
        }
        if per_request {
            self.record.duration(Tag::Service, part, sent_ns, connection.replied_ns);
            self.record.duration(Tag::Request, part, connection.opened_ns, now);
        } else {
            self.record.duration(Tag::Service, part, sent_ns, now);
        }
        if !matches!(self.plan.pace, Loop::Closed { think: None, .. }) {
            let begun_ns = if per_request { connection.opened_ns } else { sent_ns };
            self.record.duration(Tag::Response, part, due_ns, now);
            self.record.duration(Tag::SendLag, part, due_ns, begun_ns);
        }
    }
}
