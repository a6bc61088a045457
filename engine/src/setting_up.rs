//! The setup of a session: its steps come once on every connection, before it is open. Part of the worker.

use crate::connection::State;
use crate::failure::{Failure, Kind};
use crate::session::fields::{Seen, excerpt};
use crate::session::template::identifier;
use crate::session::{Action, Await, Table};
use crate::system::System;
use crate::tags::Tag;
use crate::users::User;
use crate::worker::Worker;
use std::cmp::Reverse;

impl<S: System> Worker<S> {
    /// A connection has shaken hands: its setup begins.
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
        let table = self.table();
        loop {
            let user = self.user(index);
            user.step_ns = now;
            let Some(step) = table.session.steps[..table.session.setup].get(user.step) else {
                return self.set_up(index, table, now);
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

    fn set_up(&mut self, index: usize, table: &Table, now: u64) {
        let began_ns = self.connections[index].replied_ns;
        let part = self.part_of_opening(index);
        if table.session.setup > 0 {
            self.timed(Tag::Setup, part, began_ns, now);
        }
        self.established(index);
        let generation = self.connections[index].generation;
        for (which, keepalive) in table.session.keepalives.iter().enumerate() {
            let due_ns = now + (keepalive.every_s * 1e9) as u64;
            self.users().keepalives.push(Reverse((due_ns, index as u32, generation, which as u32)));
        }
        self.start(index, now);
    }

    /// When the step of the setup that is awaited began.
    pub fn step_began_ns(&self, index: usize) -> u64 {
        self.users.as_ref().map_or(u64::MAX, |users| users.all[index].step_ns)
    }

    /// The failure of a setup whose step is not answered.
    #[cold]
    pub fn setup_timeout(&self, index: usize, seconds: f64) -> Failure {
        let users = self.users.as_ref().expect("it is a session");
        let step = &users.table.session.steps[users.all[index].step].name;
        Failure::new(Kind::SetupTimeout, format!("step {step:?} has no answer within {seconds} s"))
    }

    /// A record that arrives during the setup.
    pub fn on_record_in_setup(
        &mut self,
        index: usize,
        table: &Table,
        number: usize,
        seen: &Seen,
        now: u64,
    ) -> Result<(), Failure> {
        let &mut User { step: turn, step_ns: began_ns, request, .. } = self.user(index);
        let step = &table.session.steps[turn];
        let rule = &table.session.rules[number];
        if let Action::Fail { .. } = rule.does {
            let what = format!("step {:?}, {:?}: {}", step.name, rule.name, excerpt(seen.record.bytes));
            return Err(Failure::new(Kind::SetupFailed, what));
        }
        if step.awaits != (Await::Rule { rule: number }) {
            return Ok(());
        }
        if let Action::Reply { by: Some(field), .. } = rule.does
            && seen.number(field) != Some(as_sent(table, request))
        {
            let what = format!("step {:?} is number {request}: {}", step.name, excerpt(seen.record.bytes));
            self.fail(index, Failure::new(Kind::UnexpectedReply, what));
            return Ok(());
        }
        self.user(index).step += 1;
        let part = self.part_of_opening(index);
        self.timed(Tag::step(turn), part, began_ns, now);
        self.go_on_with_setup(index, now);
        Ok(())
    }
}

/// The number of a request as it is sent.
fn as_sent(table: &Table, sequence: u64) -> u64 {
    if table.has_identifiers { identifier(sequence).into() } else { sequence }
}
