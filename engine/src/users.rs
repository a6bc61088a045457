//! The users of a worker whose scenario is a session: what each of them has captured and received, and what is due on it.

use crate::rooms::{Copies, MOST_UNTOLD, Received};
use crate::session::Table;
use crate::session::records::Rest;
use crate::session::shape::Shapes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub struct Users {
    /// It is read as often as the worker's own state is changed, so it is not part of that. It lives as long as the process.
    pub table: &'static Table,
    pub all: Vec<User>,
    pub shapes: Shapes,
    /// When a keep-alive is due, on which connection, in which generation, and which one.
    pub keepalives: BinaryHeap<Reverse<(u64, u32, u32, u32)>>,
    /// Copies in rooms since the last look at the sockets.
    pub copies: Vec<Copies>,
}

/// The state of a connection that only sessions have.
#[derive(Default)]
pub struct User {
    /// The step of the setup that is awaited, when it began, and the number of its request.
    pub step: usize,
    pub step_ns: u64,
    pub request: u64,
    /// The step that is sent next, counted from the first behind the setup.
    pub turn: usize,
    pub captured: Vec<Vec<u8>>,
    /// The beginning of a record that continues in the next message.
    pub rest: Rest,
    /// Bytes of answers to the server's own requests that have been written since none waited to be sent.
    pub answers_bytes: usize,
    /// By publisher of its room.
    pub received: Vec<Received>,
}

impl Users {
    pub fn new(table: Table, connections: usize, publishers: usize) -> Users {
        let user = || User {
            captured: vec![Vec::new(); table.session.captured],
            received: vec![0; publishers],
            ..User::default()
        };
        Users {
            all: (0..connections).map(|_| user()).collect(),
            shapes: Shapes::default(),
            table: Box::leak(Box::new(table)),
            keepalives: BinaryHeap::new(),
            copies: Vec::with_capacity(MOST_UNTOLD),
        }
    }

    /// A member has a copy. If copies of too many messages are not told yet, those of one have to be.
    pub fn note_copy(&mut self, publisher: u32, sequence: u64, sent_ns: u64, now: u64) -> bool {
        let mut latest = self.copies.iter_mut().rev();
        if let Some(known) = latest.find(|known| (known.publisher, known.sequence) == (publisher, sequence)) {
            (known.count, known.latest_ns) = (known.count + 1, now);
            return true;
        }
        let has_room = self.copies.len() < MOST_UNTOLD;
        if has_room {
            self.copies.push(Copies { publisher, sequence, count: 1, sent_ns, latest_ns: now });
        }
        has_room
    }

    pub fn next_ns(&self) -> u64 {
        self.keepalives.peek().map_or(u64::MAX, |&Reverse((due, ..))| due)
    }
}
