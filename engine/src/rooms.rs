//! Rooms: what the workers of a process share about published messages. A room's members all belong to one process, so
//! that it knows when the last of them has a message.

use crate::plan::Plan;
use crate::session::Rooms;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Further publishers are refused with the plan.
pub const MOST_PUBLISHERS: u64 = 1 << 16;
/// How many messages of a publisher may be on their way before the last copy of the first has come.
const KEPT: u64 = 64;

pub struct RoomBoard {
    rooms: Rooms,
    /// By room.
    publishers: u32,
    members: Box<[AtomicU32]>,
    published: Box<[Published]>,
}

/// A message, and how many copies of it are on their way.
#[derive(Default)]
struct Published {
    sequence: AtomicU64,
    left: AtomicU32,
}

impl RoomBoard {
    pub fn new(plan: &Plan, rooms: Rooms) -> RoomBoard {
        let publishers = publishers(plan.connections, rooms);
        let kept = u64::from(rooms.count) * u64::from(publishers) * KEPT;
        RoomBoard {
            rooms,
            publishers,
            members: (0..rooms.count).map(|_| AtomicU32::new(0)).collect(),
            published: (0..kept).map(|_| Published::default()).collect(),
        }
    }

    pub fn join(&self, user: u32) {
        self.members[self.room(user)].fetch_add(1, SeqCst);
    }

    pub fn leave(&self, user: u32) {
        self.members[self.room(user)].fetch_sub(1, SeqCst);
    }

    /// A member publishes; returns how many copies are expected.
    pub fn publish(&self, user: u32, sequence: u64) -> u64 {
        let members = self.members[self.room(user)].load(SeqCst);
        let expected = members - u32::from(!self.rooms.own);
        let published = self.published(user, sequence);
        published.left.store(expected, SeqCst);
        published.sequence.store(sequence, SeqCst);
        expected.into()
    }

    /// A copy has come; whether it was the last one. False too for a message that has too many successors.
    pub fn came(&self, user: u32, sequence: u64) -> bool {
        if !self.publishes(user) {
            return false;
        }
        let published = self.published(user, sequence);
        published.sequence.load(SeqCst) == sequence && published.left.fetch_sub(1, SeqCst) == 1
    }

    fn room(&self, user: u32) -> usize {
        (user % self.rooms.count) as usize
    }

    fn published(&self, user: u32, sequence: u64) -> &Published {
        let of_user = u64::from(user % self.rooms.count) * u64::from(self.publishers) + u64::from(self.place(user));
        &self.published[(of_user * KEPT + sequence % KEPT) as usize]
    }

    /// Which of its room's members a user is.
    pub fn place(&self, user: u32) -> u32 {
        user / self.rooms.count
    }

    pub fn publishes(&self, user: u32) -> bool {
        self.place(user) < self.publishers
    }

    /// The publishers of a room.
    pub fn publishers(&self) -> usize {
        self.publishers as usize
    }
}

/// The publishers of each room.
pub fn publishers(connections: usize, rooms: Rooms) -> u32 {
    let members = connections.div_ceil(rooms.count as usize) as u32;
    rooms.publishers.unwrap_or(members).min(members)
}
