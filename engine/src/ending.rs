//! How connections end: by a Close frame of the engine or the server, by a failure, and all of them
//! at the end of the run. Part of the worker.

use crate::clock::SECOND_NS;
use crate::connection::{Connection, Counted, Reader, State};
use crate::control::Phase;
use crate::failure::{Failure, Kind};
use crate::frame;
use crate::message::Incoming;
use crate::plan::{Loop, Transport};
use crate::record::printable;
use crate::system::System;
use crate::worker::Worker;

impl<S: System> Worker<S> {
    /// Moves a connection to another state: the only place that changes how it is counted.
    pub fn move_to(&mut self, index: usize, state: State) {
        let before = std::mem::replace(&mut self.connections[index].state, state).counted();
        let after = state.counted();
        if before == after {
            return;
        }
        self.accounts.moved(before, after);
        // A connection that ends after the run has missed nothing.
        if before == Counted::Open && self.receives(index) && !self.finished {
            self.connections[index].receiver.until = self.board.leave(self.system.now_ns());
        }
        if let Some(rooms) = &self.board.rooms {
            let user = self.connections[index].number;
            match (before, after) {
                (Counted::Open, _) => rooms.leave(user),
                (_, Counted::Open) => rooms.join(user),
                _ => {}
            }
        }
    }

    fn close(&mut self, index: usize) {
        self.move_to(index, State::Closed);
        self.connections[index].release();
    }

    // ---- closing ---------------------------------------------------------------------------------------------------

    /// A user that leaves, or whose connection has had its messages, closes when nothing is in
    /// flight: no message, and no broadcast that it is expected to receive.
    pub fn leave_if_idle(&mut self, index: usize, now: u64) {
        let connection = &self.connections[index];
        if connection.state == State::Open && self.receives(index) {
            self.move_to(index, State::Leaving);
            self.connections[index].replied_ns = now;
            return self.leave_if_all_came(index, now);
        }
        if connection.state == State::Closed || connection.state == State::Open && connection.under_way.is_empty() {
            self.say_goodbye(index, now);
        }
    }

    pub fn leave_if_all_came(&mut self, index: usize, now: u64) {
        let connection = &self.connections[index];
        if connection.state == State::Leaving && connection.receiver.next >= connection.receiver.until {
            self.say_goodbye(index, now);
        }
    }

    /// RFC 6455 §7.1.2: a Close frame, its answer, then the connection; other transports simply close.
    pub fn say_goodbye(&mut self, index: usize, now: u64) {
        if !matches!(self.connections[index].state, State::Open | State::Leaving) {
            return;
        }
        self.move_to(index, State::Closing);
        self.connections[index].replied_ns = now;
        if self.plan.transport != Transport::Websocket {
            return self.close_handshake_done(index, now);
        }
        self.frame(frame::CLOSE, &1000u16.to_be_bytes());
        self.flush(index);
    }

    /// After the engine's Close frame only the server's own Close frame and the end of the stream matter, and replies:
    /// nothing is in flight that they could answer. The server closes first (RFC 6455 §7.1.1), so that the engine does
    /// not keep the ports of closed connections.
    pub fn closing_input(&mut self, index: usize, mut input: &[u8], now: u64) {
        while !input.is_empty() {
            let connection = &mut self.connections[index];
            let message = connection.expected();
            let Reader::Frames(reader) = &mut connection.reader else { return self.close_handshake_done(index, now) };
            match reader.feed(&mut input, &self.script, message, None) {
                Ok(Some(Incoming::Close(_))) => {
                    connection.replied_ns = now;
                    return;
                }
                Err(_) => return self.close_handshake_done(index, now),
                Ok(Some(Incoming::Reply { .. })) => self.left_over("a reply while the connection was closing", now),
                Ok(Some(Incoming::Notice(message))) if self.users.is_some() => {
                    if self.is_left_over(index, &message) {
                        self.left_over("an answer while the connection was closing", now);
                    }
                }
                Ok(_) => {}
            }
        }
    }

    /// A reply to nothing, on a connection that ends anyway.
    #[cold]
    fn left_over(&mut self, what: &'static str, now: u64) {
        let measured = self.timeline.phase != Phase::Warmup;
        self.accounts.failed(Failure::new(Kind::UnexpectedReply, what), 0, 0, measured, now);
    }

    /// A connection has ended after its Close frames. If the plan exchanges connections, the next one opens here.
    pub fn close_handshake_done(&mut self, index: usize, now: u64) {
        self.close(index);
        // A warm-up that ends by count may have nothing left to send; the measurement that follows has.
        let needed = self.pacer.quota > 0 || self.timeline.phase == Phase::Warmup;
        let wanted = !self.connections[index].leaving && needed && self.timeline.phase < Phase::Drain;
        if wanted && !self.finished {
            self.ask_to_open(index, now);
        }
    }

    /// The server announced that it closes. Unless the plan exchanges connections, this is the only
    /// case in which a connection is reopened.
    pub fn reconnect(&mut self, index: usize, now: u64) {
        self.accounts.record.counters.reconnects += 1;
        self.close(index);
        self.connections[index].replaces = true;
        self.ask_to_open(index, now);
    }

    /// Answers a Close frame; its content is the failure's example.
    #[cold]
    pub fn close_reply(&mut self, index: usize, payload: &[u8]) -> Failure {
        let (code, reason) = match payload {
            [] => (None, &[][..]),
            [_] => return Failure::new(Kind::BadControl, "a Close frame of one byte"),
            [high, low, reason @ ..] => (Some(u16::from_be_bytes([*high, *low])), reason),
        };
        if let Some(code) = code.filter(|code| !may_be_sent(*code)) {
            let what = format!("a Close frame with code {code}, which no endpoint may send");
            return Failure::new(Kind::BadControl, what);
        }
        if let Err(error) = std::str::from_utf8(reason) {
            let what = format!("a Close frame whose reason is no UTF-8, at byte {}", error.valid_up_to());
            return Failure::new(Kind::BadControl, what);
        }
        if self.timeline.phase != Phase::Warmup {
            self.accounts.record.partings.closed(code, reason);
        }
        self.frame(frame::CLOSE, &payload[..payload.len().min(2)]);
        if let Some(session) = &mut self.connections[index].tls {
            session.seal(&mut self.outbox.bytes);
        }
        let connection = &self.connections[index];
        if let (Some(socket), None) = (connection.socket.as_ref().map(S::handle), &connection.unsent) {
            // The connection ends here either way: a peer that has already closed is not a second failure.
            let _ = self.system.send(socket, &self.outbox.bytes);
        }
        let code = code.map_or("no code".to_string(), |code| format!("code {code}"));
        let reason = printable(reason);
        Failure::new(Kind::CloseFrame, if reason.is_empty() { code } else { format!("{code}: {reason}") })
    }

    pub fn peer_closed(&mut self, index: usize) {
        let now = self.system.now_ns();
        let connection = &mut self.connections[index];
        if let Reader::Http(reader) = &mut connection.reader
            && let Some(reply) = reader.closed()
        {
            self.http_reply(index, reply, now);
        }
        let connection = &self.connections[index];
        let (kind, what) = match connection.state {
            State::AwaitingClose => {
                self.account(index, 0, now);
                self.close(index);
                return self.go_on(index, now);
            }
            State::Closing => return self.close_handshake_done(index, now),
            State::Closed | State::Connecting => return,
            State::Securing | State::Handshaking => (Kind::HandshakeClosed, "closed before its answer"),
            State::SettingUp => (Kind::SetupFailed, "closed in the middle of the setup"),
            _ if connection.reader.in_reply() => (Kind::ClosedEarly, "in the middle of a reply"),
            State::Open | State::Leaving => (Kind::ClosedEarly, "no Close frame, no announcement"),
        };
        self.fail(index, Failure::new(kind, what));
    }

    // ---- failing ---------------------------------------------------------------------------------------------------

    /// Fails a message, or a connection with everything in flight on it. Each message counts once,
    /// under one name. So does a connection with nothing in flight.
    #[cold]
    pub fn fail(&mut self, index: usize, failure: Failure) {
        let now = self.system.now_ns();
        let per_request = self.plan.connection_per_request();
        let spoils = failure.kind.spoils_connection() || per_request;
        let connection = &mut self.connections[index];
        if connection.state == State::Closing {
            return self.close_handshake_done(index, now);
        }
        let under_way = connection.under_way.len();
        let hit = match failure.kind {
            Kind::UnexpectedReply if !per_request => 0,
            _ if spoils => under_way,
            _ => under_way.min(1),
        };
        let mut measured = 0;
        for _ in 0..hit {
            measured += u64::from(connection.under_way.take_at(0).is_some_and(|message| message.measured));
        }
        self.accounts.failed(failure, hit as u64, measured, self.timeline.phase != Phase::Warmup, now);
        if !spoils {
            if hit > 0 {
                self.go_on(index, now);
            }
            return;
        }
        self.outbox.clear();
        self.close(index);
        if per_request {
            self.accounts.failures_in_a_row += 1;
            match self.plan.pace {
                Loop::Closed { think: Some(_), .. } => self.pause(index, now),
                Loop::Closed { .. } => self.pacer.pause(now, index, self.connections[index].generation),
                _ => self.stand_in_line(index),
            }
        }
    }

    /// Fails one of the messages in flight; the connection goes on.
    #[cold]
    pub fn fail_at(&mut self, index: usize, slot: usize, failure: Failure) {
        let now = self.system.now_ns();
        let Some(message) = self.connections[index].under_way.take_at(slot) else { return };
        self.accounts.failed(failure, 1, u64::from(message.measured), false, now);
        self.go_on(index, now);
    }

    // ---- the end of the run ----------------------------------------------------------------------------------------

    /// After the last message was sent: sends a Close frame and shuts down the engine's side of every connection, so
    /// that no server ends with a reset. Remaining input is read to its end. It is recorded only if it is a reply
    /// beyond the messages sent, which a server that answered ahead leaves over.
    pub fn say_goodbye_to_all(&mut self) {
        let mut record = self.accounts.record.beside();
        std::mem::swap(&mut self.accounts.record, &mut record);
        (0..self.connections.len()).for_each(|index| self.end(index));
        self.read_to_the_end();
        std::mem::swap(&mut self.accounts.record, &mut record);
        if let Some((count, example)) = record.take_errors(Kind::UnexpectedReply) {
            let measured = record.measured_errors.get(&Kind::UnexpectedReply).copied().unwrap_or(0);
            self.accounts.record.error(Failure::new(Kind::UnexpectedReply, example), count, measured);
        }
    }

    /// Sends the last bytes on an open connection.
    fn end(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let (State::Open | State::Leaving | State::SettingUp, Some(socket)) =
            (connection.state, connection.socket.as_ref().map(S::handle))
        else {
            return;
        };
        self.outbox.bytes.clear();
        if self.plan.transport == Transport::Websocket && connection.unsent.is_none() {
            let key = self.outbox.key(&mut self.random);
            frame::write(&mut self.outbox.bytes, frame::CLOSE, &1000u16.to_be_bytes(), key);
        }
        if let (Some(session), None) = (&mut connection.tls, &connection.unsent) {
            if !self.outbox.bytes.is_empty() {
                session.seal(&mut self.outbox.bytes);
            }
            let mut last = Vec::new();
            session.end();
            session.seal(&mut last);
            self.outbox.bytes.append(&mut last);
        }
        let _ = self.system.send(socket, &self.outbox.bytes);
        self.system.end_sending(socket);
        self.outbox.bytes.clear();
        // A connection that closes now is not replaced.
        connection.leaving = self.plan.transport == Transport::Http;
    }

    fn read_to_the_end(&mut self) {
        let lives = |connection: &Connection<S::Socket>| !matches!(connection.state, State::Connecting | State::Closed);
        let mut left = self.connections.iter().filter(|connection| lives(connection)).count();
        let until = self.system.now_ns() + SECOND_NS / 2;
        // The last events were perhaps told and not handled.
        for index in 0..self.connections.len() {
            if lives(&self.connections[index]) && self.reads(index) {
                self.read_on(index);
            }
        }
        while left > 0 && self.system.now_ns() < until && !self.control.stopped() {
            let unread = self.unread.len();
            let timeout_ns = if unread > 0 { 0 } else { SECOND_NS / 20 };
            let Ok(count) = self.system.wait(timeout_ns) else { return };
            for at in 0..count + unread {
                let found = if at < count { self.event(at).map(|event| event.index) } else { self.next_unread() };
                let Some(index) = found else { continue };
                let before = self.connections[index].state;
                let lived = lives(&self.connections[index]);
                if at < count {
                    self.on_readable(index)
                } else {
                    self.read(index)
                }
                left -= usize::from(lived && !lives(&self.connections[index]));
                if !matches!(before, State::Open | State::Leaving | State::SettingUp) {
                    self.end(index);
                }
            }
        }
    }
}

/// RFC 6455 §7.4 and IANA's registry of close codes.
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
