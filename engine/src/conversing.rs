//! Sessions: their setup, their steps in turn, the records that arrive, and keep-alives. Part of the worker, and a hot path.
//! What a record is and what a message has in it is in `session`.

use crate::blocks;
use crate::connection::{Kept, Pending, State};
use crate::failure::{Failure, Kind};
use crate::frame::Opcode;
use crate::receiving::TOO_EARLY;
use crate::record::Exchange;
use crate::rooms::{self, Arrival};
use crate::session::fields::{Seen, excerpt};
use crate::session::postmark::Postmark;
use crate::session::records::{Record, Records};
use crate::session::template::{Filling, identifier};
use crate::session::{Action, Await, Request, Rule, Session, Table};
use crate::system::System;
use crate::tags::{Part, Tag};
use crate::users::{User, Users};
use crate::worker::Worker;
use std::cmp::Reverse;

/// When so many bytes of answers wait to be sent on a connection, its server has stopped reading.
pub const ANSWERS_BYTES: usize = 1 << 20;
/// Answers are sent when there are so many bytes of them.
const ANSWERS_AT_ONCE_BYTES: usize = 64 << 10;

impl<S: System> Worker<S> {
    pub fn users(&mut self) -> &mut Users {
        self.users.as_mut().expect("it is a session")
    }

    pub fn user(&mut self, index: usize) -> &mut User {
        &mut self.users().all[index]
    }

    pub fn table(&self) -> &'static Table {
        self.users.as_ref().expect("it is a session").table
    }

    // ---- the setup -------------------------------------------------------------------------------------------------

    /// A connection has shaken hands: its setup begins, whose steps come once, before it is open.
    pub fn begin_setup(&mut self, index: usize, now: u64) {
        let user = self.user(index);
        (user.step, user.turn, user.answers_bytes) = (0, 0, 0);
        user.rest.clear();
        user.captured.iter_mut().for_each(Vec::clear);
        self.connections[index].replied_ns = now;
        self.move_to(index, State::SettingUp);
        self.go_on_with_setup(index, now);
    }

    /// Sends the next step of the setup, or opens the connection behind the last one.
    fn go_on_with_setup(&mut self, index: usize, now: u64) {
        let session = &self.table().session;
        loop {
            let user = self.user(index);
            user.step_ns = now;
            let Some(step) = session.steps[..session.setup].get(user.step) else {
                return self.set_up(index, session, now);
            };
            if let Some(template) = step.sends {
                let sequence = self.next_number(index);
                self.user(index).request = sequence;
                self.write_template(index, template, sequence, now);
            }
            if step.awaits != (Await::Nothing {}) {
                return;
            }
            self.user(index).step += 1;
        }
    }

    fn set_up(&mut self, index: usize, session: &Session, now: u64) {
        if session.setup > 0 {
            self.timed(Tag::Setup, self.part_of_opening(index), self.connections[index].replied_ns, now);
        }
        self.established(index);
        for which in 0..session.keepalives.len() {
            self.keep_alive_later(index, which, now);
        }
        self.start(index, now);
    }

    /// The step of the setup that is awaited, and since when.
    pub fn awaited_step(&self, index: usize) -> (&str, u64) {
        let users = self.users.as_ref().expect("it is a session");
        let user = &users.all[index];
        (&users.table.session.steps[user.step].name, user.step_ns)
    }

    fn on_record_in_setup(&mut self, index: usize, rule: usize, seen: &Seen, now: u64) -> Result<(), Failure> {
        let table = self.table();
        let &mut User { step: turn, step_ns: began_ns, request, .. } = self.user(index);
        let (step, Rule { name, does, .. }) = (&table.session.steps[turn], &table.session.rules[rule]);
        if let Action::Fail { .. } = does {
            let what = format!("step {:?}, {name:?}: {}", step.name, excerpt(seen.record.bytes));
            return Err(Failure::new(Kind::SetupFailed, what));
        }
        if step.awaits != (Await::Rule { rule }) {
            return Ok(());
        }
        let as_sent = if table.has_identifiers { identifier(request).into() } else { request };
        if let Action::Reply { by: Some(field), .. } = *does
            && seen.number(field) != Some(as_sent)
        {
            let what = format!("step {:?} is number {request}: {}", step.name, excerpt(seen.record.bytes));
            self.fail(index, Failure::new(Kind::UnexpectedReply, what));
            return Ok(());
        }
        self.user(index).step += 1;
        self.timed(Tag::step(turn), self.part_of_opening(index), began_ns, now);
        self.go_on_with_setup(index, now);
        Ok(())
    }

    // ---- outgoing --------------------------------------------------------------------------------------------------

    pub fn next_number(&mut self, index: usize) -> u64 {
        let connection = &mut self.connections[index];
        connection.sequence += 1;
        connection.sequence
    }

    /// Writes the next step in turn as request `sequence`.
    pub fn write_step(&mut self, index: usize, sequence: u64, now: u64) -> Request {
        let users = self.users.as_mut().expect("it is a session");
        let session = &users.table.session;
        let (user, body) = (&mut users.all[index], session.body());
        let turn = user.turn;
        user.turn = if turn + 1 < body.len() { turn + 1 } else { 0 };
        let template = body[turn].sends.expect("checked with the plan");
        let step = (session.setup + turn) as u8;
        let publishes = users.table.marked[template];
        let check = self.write_template(index, template, sequence, now);
        if let Some(rooms) = self.board.rooms.as_ref().filter(|_| publishes) {
            let measured = self.timeline.is_measured(now);
            let expected = rooms.publish(self.connections[index].number, sequence, measured);
            let pushes = &mut self.accounts.record.pushes;
            pushes.expected += if measured { expected.copies } else { 0 };
            pushes.last_unknown += u64::from(expected.evicts);
        }
        Request { sequence, check, step, has_failed: false }
    }

    /// Writes a message. Returns the check of its postmark.
    pub fn write_template(&mut self, index: usize, template: usize, sequence: u64, now: u64) -> u32 {
        let users = self.users.as_ref().expect("it is a session");
        let table = users.table;
        let number = self.connections[index].number;
        let mut filling = Filling {
            user: number,
            sequence,
            room: table.session.rooms.map_or(0, |rooms| number % rooms.count),
            clock: self.board.clock,
            t_ns: now,
            check: 0,
            columns: table.columns(number),
            captured: &users.all[index].captured,
            letters: &table.letters,
        };
        if table.marked[template] {
            filling.check = table.post.check(filling.postmark());
        }
        let check = filling.check;
        self.outbox.whole.clear();
        table.templates[template].write(&filling, &mut self.outbox.whole);
        if table.session.traced {
            let (what, content) = (Some(table.name_of(template).into()), self.outbox.whole.clone());
            self.accounts.record.exchange(Exchange { t_ns: now, connection: number, sent: true, what, content });
        }
        self.write_whole(index);
        check
    }

    /// Writes a message that a rule asks for. A server that asks and does not read is given up, so that no more than
    /// `ANSWERS_BYTES` and one answer wait for it.
    fn write_answer(&mut self, index: usize, template: usize, now: u64) -> Result<(), Failure> {
        let waits = |worker: &Self| worker.connections[index].unsent.is_some() || !worker.outbox.bytes.is_empty();
        if self.outbox.bytes.len() > ANSWERS_AT_ONCE_BYTES {
            self.hand_over(index);
        }
        if !waits(self) {
            self.user(index).answers_bytes = 0;
        }
        let waiting = self.user(index).answers_bytes;
        if waiting > ANSWERS_BYTES {
            let what = format!("{waiting} bytes of answers that it asked for wait to be read");
            return Err(Failure::new(Kind::SessionFailed, what));
        }
        let before = self.outbox.bytes.len();
        self.write_template(index, template, 0, now);
        let written = self.outbox.bytes.len() - before;
        self.user(index).answers_bytes += written;
        self.accounts.record.counters.keepalives += 1;
        Ok(())
    }

    fn keep_alive_later(&mut self, index: usize, which: usize, now: u64) {
        let generation = self.connections[index].generation;
        let users = self.users();
        let due_ns = now + (users.table.session.keepalives[which].every_s * 1e9) as u64;
        users.keepalives.push(Reverse((due_ns, index as u32, generation, which as u32)));
    }

    /// Sends the keep-alives that are due; none outside of a slice.
    pub fn keep_alive(&mut self, now: u64) {
        while let Some(&Reverse((due, index, generation, which))) =
            self.users.as_ref().and_then(|users| users.keepalives.peek())
            && due <= now
        {
            let index = index as usize;
            let users = self.users();
            users.keepalives.pop();
            let keepalive = users.table.session.keepalives[which as usize];
            let connection = &self.connections[index];
            if connection.generation != generation || connection.state != State::Open || connection.leaving {
                continue;
            }
            self.keep_alive_later(index, which as usize, now);
            // One that waits behind other bytes keeps nothing alive.
            let waits = self.connections[index].unsent.is_some();
            if !waits && (self.timeline.slices.is_none() || self.timeline.loads) {
                let sequence = self.next_number(index);
                self.write_template(index, keepalive.template, sequence, now);
                self.accounts.record.counters.keepalives += 1;
                self.flush(index);
            }
        }
    }

    // ---- incoming --------------------------------------------------------------------------------------------------

    pub fn converse(&mut self, index: usize, message: &[u8], now: u64) -> Result<(), Failure> {
        let table = self.table();
        // Most texts are, and it is soon known.
        if table.session.opcode == Opcode::Text
            && !blocks::is_ascii(message)
            && let Err(error) = std::str::from_utf8(message)
        {
            return Err(Failure::new(Kind::BadUtf8, format!("a text message, at byte {}", error.valid_up_to())));
        }
        if table.session.records == (Records::Message {}) && !message.is_empty() {
            return self.read_record(index, table, Record { bytes: message, body: 0 }, now);
        }
        let (session, generation) = (&table.session, self.connections[index].generation);
        let mut rest = std::mem::take(&mut self.user(index).rest);
        let read = session.records.read(&mut rest, message, session.longest, |record| {
            self.read_record(index, table, record, now)?;
            // A record may end the connection, and with it the rest.
            let connection = &self.connections[index];
            Ok(connection.generation == generation && matches!(connection.state, State::Open | State::SettingUp))
        });
        self.user(index).rest = rest;
        read
    }

    /// Whether a message that arrives while the connection is closing has an answer in it. Pushes may still come.
    #[cold]
    pub fn is_left_over(&mut self, index: usize, message: &[u8]) -> bool {
        let table = self.table();
        let mut rest = std::mem::take(&mut self.user(index).rest);
        let mut answers = false;
        let _ = table.session.records.read(&mut rest, message, table.session.longest, |record| {
            let rule = table.judge(&mut table.seen(record), &mut self.users().shapes)?;
            answers |= rule.is_none_or(|rule| matches!(table.session.rules[rule].does, Action::Reply { .. }));
            Ok(true)
        });
        self.user(index).rest = rest;
        answers
    }

    fn read_record(&mut self, index: usize, table: &Table, record: Record, now: u64) -> Result<(), Failure> {
        let mut seen = table.seen(record);
        let rule = table.judge(&mut seen, &mut self.users().shapes)?;
        if table.session.traced {
            let what = rule.map(|rule| table.session.rules[rule].name.clone());
            let (connection, content) = (self.connections[index].number, record.bytes.to_vec());
            self.accounts.record.exchange(Exchange { t_ns: now, connection, sent: false, what, content });
        }
        let Some(number) = rule else {
            self.fail(index, table.unexpected(record));
            return Ok(());
        };
        let rule = &table.session.rules[number];
        for &(field, variable) in &rule.captures {
            if let Some(value) = seen.value(field) {
                let kept = &mut self.user(index).captured[variable];
                kept.clear();
                value.append_to(kept);
            }
        }
        if let Action::Answer { template } = rule.does {
            self.write_answer(index, template, now)?;
        }
        if self.connections[index].state == State::SettingUp {
            return self.on_record_in_setup(index, number, &seen, now);
        }
        match rule.does {
            Action::Ignore {} | Action::Answer { .. } => {}
            Action::Push {} => self.push_came(index, table, record, now),
            Action::Reply { by, marked, last } => {
                let Some((slot, pending)) = self.find(index, table, by, &seen) else { return Ok(()) };
                let Kept::Request(request) = pending.kept else { return Ok(()) };
                let connection = &self.connections[index];
                let step = table.step_of(&request);
                let is_marked = marked && step.sends.is_some_and(|template| table.marked[template]);
                let postmark = Postmark {
                    user: connection.number,
                    sequence: request.sequence as u32,
                    t_ns: pending.sent_ns,
                    clock: self.board.clock,
                };
                if !connection.has_left(&pending) {
                    self.fail(index, Failure::new(Kind::UnexpectedReply, TOO_EARLY));
                    return Ok(());
                }
                let wrong = if last && step.awaits != (Await::Rule { rule: number }) {
                    Some(format!("step {:?} was answered with {:?}", step.name, rule.name))
                } else if is_marked && !table.post.is_first(record.bytes, postmark, request.check) {
                    Some(format!("the answer to step {:?} does not repeat its postmark", step.name))
                } else {
                    None
                };
                match wrong {
                    Some(what) => self.fail_at(index, slot, Failure::new(Kind::ReplyContent, what)),
                    None if last && request.has_failed => {
                        let what = format!("an error in step {:?}", step.name);
                        self.fail_at(index, slot, Failure::new(Kind::ReplyError, what));
                    }
                    None if last => self.answered(index, slot, now),
                    None => {}
                }
            }
            Action::Fail { by, last } => {
                let failure = |kind| Failure::new(kind, format!("{:?}: {}", rule.name, excerpt(record.bytes)));
                if by.is_none() {
                    return Err(failure(Kind::SessionFailed));
                }
                match self.find(index, table, by, &seen) {
                    Some((slot, _)) if last => self.fail_at(index, slot, failure(Kind::ReplyError)),
                    Some((slot, _)) => self.connections[index].under_way.fail_later(slot),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Which of the requests in flight a record answers, and its slot. If none, that is a failure.
    fn find(&mut self, index: usize, table: &Table, by: Option<usize>, seen: &Seen) -> Option<(usize, Pending)> {
        let under_way = &self.connections[index].under_way;
        let found = match by {
            None => under_way.oldest().map(|oldest| (0, oldest)),
            Some(field) => seen.number(field).and_then(|number| {
                let whole = |number| whole_number(under_way.oldest()?.request()?.sequence, number);
                under_way.find(if table.has_identifiers { whole(number)? } else { number })
            }),
        };
        if found.is_none() {
            let what = format!("no such request is in flight: {}", excerpt(seen.record.bytes));
            self.fail(index, Failure::new(Kind::UnexpectedReply, what));
            return None;
        }
        found.map(|(slot, pending)| (slot, *pending))
    }

    fn push_came(&mut self, index: usize, table: &Table, record: Record, now: u64) {
        let mark = table.post.find(record.bytes);
        let pushes = &mut self.accounts.record.pushes;
        pushes.in_window += u64::from(self.timeline.in_window);
        let Some(Postmark { user, sequence, t_ns, clock }) = mark else { return };
        let measured = self.timeline.is_measured(t_ns);
        let part = Part::of(measured);
        let counts = match &self.board.rooms {
            None => clock == self.board.clock,
            Some(rooms) if !rooms.is_for(user, self.connections[index].number) => {
                self.accounts.record.pushes.misplaced += 1;
                false
            }
            Some(rooms) => {
                let users = self.users.as_mut().expect("it is a session");
                // Nobody expects what others than the publishers say in their setup.
                users.all[index].received.get_mut(rooms.slot(user) as usize).is_some_and(|received| {
                    let arrival = rooms::arrive(received, sequence);
                    self.accounts.record.pushes.out_of_order += u64::from(arrival != Arrival::InOrder);
                    arrival != Arrival::Repeated
                })
            }
        };
        // A copy counts if it is for this member, and once.
        if counts {
            self.accounts.record.pushes.received += u64::from(measured);
            self.timed(Tag::Push, part, t_ns, now);
            if self.board.rooms.is_some() {
                self.note_copy(user, sequence.into(), t_ns, now);
            }
        }
        let connection = &self.connections[index];
        if user == connection.number
            && let Some((slot, pending)) = connection.under_way.find(sequence.into())
            && pending.request().is_some_and(|request| table.step_of(request).awaits == (Await::Own {}))
        {
            self.answered(index, slot, now);
        }
    }

    fn note_copy(&mut self, publisher: u32, sequence: u64, sent_ns: u64, now: u64) {
        if !self.users().note_copy(publisher, sequence, sent_ns, now) {
            self.tell_copies();
            self.users().note_copy(publisher, sequence, sent_ns, now);
        }
    }

    /// Tells the other workers of the copies that came, and times the messages of which the last one is among them.
    pub fn tell_copies(&mut self) {
        while let Some(copies) = self.users.as_mut().and_then(|users| users.copies.pop()) {
            let latest_ns = self.board.rooms.as_ref().and_then(|rooms| rooms.received(&copies));
            if let Some(latest_ns) = latest_ns {
                let part = Part::of(self.timeline.is_measured(copies.sent_ns));
                self.timed(Tag::PushLast, part, copies.sent_ns, latest_ns);
            }
        }
    }

    /// Records a duration without the rests of a frozen server.
    pub fn timed(&mut self, tag: Tag, part: Part, from_ns: u64, to_ns: u64) {
        self.accounts.record.duration(tag, part, from_ns, self.timeline.awake(from_ns, to_ns));
    }
}

/// The number of the request with this identifier that is `oldest` or among those behind it.
fn whole_number(oldest: u64, identified: u64) -> Option<u64> {
    let cycle = u64::from(u16::MAX);
    let ahead = (identified.checked_sub(1)? + cycle - u64::from(identifier(oldest) - 1)) % cycle;
    Some(oldest + ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_leads_to_the_request_that_has_it() {
        for (oldest, sequence) in [(1, 1), (1, 70), (65_530, 65_540), (65_536, 65_536), (131_070, 131_071)] {
            assert_eq!(whole_number(oldest, identifier(sequence).into()), Some(sequence));
        }
        assert_eq!(whole_number(1, 0), None);
    }
}
