//! What has taken too long: connections are looked at in turn. Part of the worker.

use crate::connection::{Connection, State};
use crate::failure::{Failure, Kind};
use crate::plan::Scenario;
use crate::scenario;
use crate::system::System;
use crate::worker::Worker;

/// How long a server may take to close after the engine's Close frame; then the engine closes.
const CLOSING_S: f64 = 2.0;
/// What becomes of a connection that has taken too long.
enum Overdue {
    Leave,
    Gone,
    Failed(Failure),
}

impl<S: System> Worker<S> {
    pub fn check_some(&mut self, now: u64) {
        let total = self.connections.len();
        if self.accounts.awaited() == 0 {
            return self.sweep.begin(now);
        }
        for _ in 0..self.sweep.due(now, total) {
            let index = self.sweep.next(total);
            self.check_overdue(index);
        }
    }

    fn check_overdue(&mut self, index: usize) {
        if self.overdue(index).is_none() {
            return;
        }
        // What arrived while this worker had no time is not late.
        self.read_what_is_there(index);
        match self.overdue(index) {
            None => {}
            Some(Overdue::Leave) => self.say_goodbye(index, self.stops.looked_ns),
            Some(Overdue::Gone) => self.close_handshake_done(index, self.stops.looked_ns),
            Some(Overdue::Failed(failure)) => self.fail(index, failure),
        }
    }

    /// Reads a socket to its end, but hardly more than the replies that are awaited.
    #[cold]
    pub fn read_what_is_there(&mut self, index: usize) {
        let Connection { generation, state, ref under_way, .. } = self.connections[index];
        let mut most = (2 * self.longest_reply()).saturating_mul(under_way.len().max(1) as u64);
        while most > 0 && self.connections[index].generation == generation && state != State::Connecting {
            let before = self.accounts.record.counters.bytes_received;
            self.read(index);
            let count = self.accounts.record.counters.bytes_received - before;
            most = if count == 0 { 0 } else { most.saturating_sub(count) };
        }
    }

    fn longest_reply(&self) -> u64 {
        match self.plan.scenario {
            Scenario::Doc { bytes, .. } => scenario::longest(bytes),
            _ => self.script.longest,
        }
    }

    /// What has taken too long on a connection, as far as this worker has looked.
    fn overdue(&self, index: usize) -> Option<Overdue> {
        let now = self.stops.looked_ns;
        let limits = self.plan.limits;
        let connection = &self.connections[index];
        // A server that is frozen owes no reply, and one that waits for this worker owes none either.
        let frozen = |from: u64| self.timeline.slices.as_ref().map_or(0, |slices| slices.rests(from, now));
        let rested = |from: u64| frozen(from) + self.stops.between(from, now);
        let later_than = |from: u64, seconds: f64| {
            let limit_ns = (seconds * 1e9) as u64;
            now.saturating_sub(from) > limit_ns && (now - from).saturating_sub(rested(from)) > limit_ns
        };
        let oldest_ns = connection.under_way.oldest().map_or(u64::MAX, |oldest| oldest.sent_ns);
        Some(Overdue::Failed(match connection.state {
            State::Connecting if later_than(connection.opened_ns, limits.connect_s) => {
                Failure::new(Kind::ConnectTimeout, format!("not connected within {} s", limits.connect_s))
            }
            State::Securing | State::Handshaking if later_than(connection.opened_ns, limits.connect_s) => {
                Failure::new(Kind::HandshakeTimeout, format!("no answer within {} s", limits.connect_s))
            }
            State::SettingUp => {
                let (step, began_ns) = self.awaited_step(index);
                if !later_than(began_ns, limits.reply_s) {
                    return None;
                }
                let what = format!("step {step:?} has no answer within {} s", limits.reply_s);
                Failure::new(Kind::SetupTimeout, what)
            }
            State::AwaitingClose if later_than(oldest_ns, limits.reply_s) => {
                Failure::new(Kind::HttpNotClosed, format!("still open after {} s", limits.reply_s))
            }
            State::Open if later_than(oldest_ns, limits.reply_s) => {
                Failure::new(Kind::Timeout, format!("no complete reply within {} s", limits.reply_s))
            }
            State::Leaving if later_than(connection.replied_ns, limits.reply_s) => {
                return Some(Overdue::Leave);
            }
            State::Closing if later_than(connection.replied_ns, limits.connect_s.min(CLOSING_S)) => {
                return Some(Overdue::Gone);
            }
            _ => return None,
        }))
    }
}
