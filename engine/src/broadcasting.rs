//! Broadcasts: who receives them, what triggers them, and the copies that come. Part of the worker. What the workers of a
//! process share about them is in `push`.

use crate::connection::{Connection, State};
use crate::control::Phase;
use crate::failure::{Failure, Kind};
use crate::frame;
use crate::plan::Scenario;
use crate::push::{self, Notice};
use crate::system::{Interest, System};
use crate::tags::{Part, Tag};
use crate::worker::Worker;

impl<S: System> Worker<S> {
    /// A receiver of broadcasts reads, or, as a slow reader, never does.
    pub fn begin_to_read(&mut self, index: usize) {
        if !self.reads(index) {
            let socket = self.connections[index].socket.as_ref().map(S::handle).expect("it is open");
            if let Err(error) = self.system.change(socket, index, Interest::Nothing) {
                self.host_cannot(format!("epoll: {error}"));
            }
            return;
        }
        self.connections[index].receiver.next = self.board.join(self.system.now_ns());
    }

    /// Whether it receives broadcasts and reads them.
    pub fn receives(&self, index: usize) -> bool {
        matches!(self.plan.scenario, Scenario::Push { .. }) && self.reads(index)
    }

    /// Slow readers are spread evenly. The first connection, which triggers, is never one.
    pub fn reads(&self, index: usize) -> bool {
        let Scenario::Push { slow_readers } = self.plan.scenario else { return true };
        if slow_readers == 0.0 {
            return true;
        }
        let number = f64::from(self.connections[index].number);
        ((number + 1.0) * slow_readers).floor() == (number * slow_readers).floor() || number == 0.0
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
        let part = Part::of(now >= self.timeline.measure_ns);
        if part == Part::Measured {
            self.accounts.record.ledger.sent += expected;
        }
        self.accounts.record.duration(Tag::SendLag, part, due_ns, now);
        let tag = self.script.tag_of_broadcast(self.plan.shard.0, number);
        let text = push::request(self.plan.shard, number, tag, self.board.clock, now);
        for index in senders {
            self.frame(frame::TEXT, text.as_bytes());
            self.flush(index);
        }
        true
    }

    /// The connection that triggers at an address: one that reads, and always the same one until it
    /// closes. A trigger from another connection could overtake one in flight.
    fn sender_to(&mut self, address: usize) -> Option<usize> {
        match self.broadcasts.senders[address].map(|index| self.connections[index].state) {
            Some(State::Open) => {}
            Some(State::Leaving) => return None,
            _ => {
                let is_fit = |index: &usize| {
                    let Connection { state, number, .. } = self.connections[*index];
                    state == State::Open && self.plan.address_number(number) == address && self.reads(*index)
                };
                self.broadcasts.senders[address] = (0..self.connections.len()).find(is_fit);
            }
        }
        self.broadcasts.senders[address]
    }

    /// One receiver's copy of a broadcast.
    pub fn notice(&mut self, index: usize, text: &[u8], now: u64) {
        let Some(Notice { micros, shard, number, tag, triggered }) = push::parse(text) else {
            let found = String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
            return self.fail(index, Failure::new(Kind::ReplyContent, format!("not a broadcast: {found:?}")));
        };
        if shard != push::TRIGGERING || tag != self.script.tag_of_broadcast(shard, number) {
            self.accounts.record.counters.foreign += 1;
            return;
        }
        let triggers = self.plan.shard.0 == push::TRIGGERING;
        let sent_ns = match triggers {
            true => self.board.sent_ns(number),
            false => triggered.and_then(|(clock, t_ns)| (clock == self.board.clock).then_some(t_ns)),
        };
        if triggers && sent_ns.is_none() || number >= push::MOST {
            return self
                .fail(index, Failure::new(Kind::ReplyContent, format!("broadcast {number} was never triggered")));
        }
        let connection = &mut self.connections[index];
        if connection.state == State::Leaving && number >= connection.receiver.until as usize {
            return;
        }
        if number < connection.receiver.next as usize {
            // The first one may have been triggered before this receiver joined; it was not expected to receive that.
            self.accounts.record.counters.out_of_order += u64::from(connection.has_heard);
            return;
        }
        (connection.receiver.next, connection.has_heard) = (number as u32 + 1, true);
        self.accounts.record.counters.answered += 1;
        self.broadcasts.came(number, now);
        // The triggering shard has counted all of its own copies as sent; another shard counts those that arrive.
        let others = u64::from(!triggers);
        self.accounts.record.counters.sent += others;
        // The delivery time cannot be computed from another host's clock.
        let Some(sent_ns) = sent_ns else { return };
        let part = Part::of(sent_ns >= self.timeline.measure_ns);
        if part == Part::Measured {
            self.accounts.record.ledger.sent += others;
            self.accounts.record.ledger.answered += 1;
            self.accounts.record.ledger.replies_in_window += u64::from(self.timeline.phase == Phase::Measure);
        }
        self.accounts.record.duration(Tag::Push, part, sent_ns, now);
        self.accounts.record.duration(Tag::PushStamp, part, micros.saturating_mul(1000), now + self.to_unix_ns);
    }
}
