//! Rooms: what the workers of a process share about published messages. A room's members all belong to one process, so
//! that it knows when the last of them has a message.

use crate::plan::Plan;
use crate::session::Rooms;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Further publishers are refused with the plan.
pub const MOST_PUBLISHERS: u64 = 1 << 16;
/// So many messages of all publishers together are followed until their last copies have come.
const FOLLOWED: u64 = 1 << 20;
/// How many messages of one publisher are followed, at least and at most.
const LEAST_OF_ONE: u64 = 64;
const MOST_OF_ONE: u64 = 1 << 16;

pub struct RoomBoard {
    rooms: Rooms,
    /// By room.
    publishers: u32,
    members: Box<[AtomicU32]>,
    /// How many messages of one publisher are followed.
    followed: u64,
    published: Box<[Published]>,
}

/// A message that is followed.
#[derive(Default)]
struct Published {
    /// In one word, so that two workers never see one half of it: its number, whether it is measured, and how many copies
    /// of it are on their way.
    word: AtomicU64,
    /// When the latest copy of it came.
    latest_ns: AtomicU64,
}

/// Copies of one message that a worker's members have, and that its board does not know of yet. They are told together:
/// every worker writes to the same word, and copies of one message come in rows.
pub struct Copies {
    pub publisher: u32,
    pub sequence: u64,
    pub count: u64,
    pub sent_ns: u64,
    pub latest_ns: u64,
}

/// Of how many messages copies are told together.
pub const MOST_UNTOLD: usize = 8;

/// What is expected of a message that was just published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    pub copies: u64,
    /// An earlier message of the measurement is no longer followed, although copies of it were still to come.
    pub evicts: bool,
}

const MEASURED: u64 = 1 << 31;
const COPIES: u64 = MEASURED - 1;

fn word(sequence: u64, measured: bool, copies: u64) -> u64 {
    sequence << 32 | if measured { MEASURED } else { 0 } | copies
}

impl RoomBoard {
    pub fn new(plan: &Plan, rooms: Rooms) -> RoomBoard {
        let publishers = rooms.publishers(plan.connections);
        let all = u64::from(rooms.count) * u64::from(publishers);
        RoomBoard::following((FOLLOWED / all.max(1)).clamp(LEAST_OF_ONE, MOST_OF_ONE), publishers, rooms)
    }

    fn following(followed: u64, publishers: u32, rooms: Rooms) -> RoomBoard {
        let published = u64::from(rooms.count) * u64::from(publishers) * followed;
        RoomBoard {
            rooms,
            publishers,
            members: (0..rooms.count).map(|_| AtomicU32::new(0)).collect(),
            followed,
            published: (0..published).map(|_| Published::default()).collect(),
        }
    }

    pub fn join(&self, user: u32) {
        self.members[self.room(user)].fetch_add(1, SeqCst);
    }

    pub fn leave(&self, user: u32) {
        self.members[self.room(user)].fetch_sub(1, SeqCst);
    }

    pub fn publish(&self, user: u32, sequence: u64, measured: bool) -> Expected {
        let members = self.members[self.room(user)].load(SeqCst);
        let copies = u64::from(members - u32::from(!self.rooms.own));
        let before = self.published(user, sequence).word.swap(word(sequence, measured, copies), SeqCst);
        Expected { copies, evicts: before & MEASURED != 0 && before & COPIES != 0 }
    }

    #[inline]
    pub fn is_for(&self, publisher: u32, member: u32) -> bool {
        self.room(publisher) == self.room(member) && (self.rooms.own || publisher != member)
    }

    /// Members have copies for the first time. If the last one is among them: when the latest came. `None` too for a
    /// message that is no longer followed.
    pub fn received(&self, copies: &Copies) -> Option<u64> {
        let &Copies { publisher, sequence, count, latest_ns, .. } = copies;
        let is_followed = |word: u64| word >> 32 == sequence && word & COPIES != 0;
        let published = self.publishes(publisher).then(|| self.published(publisher, sequence))?;
        if !is_followed(published.word.load(SeqCst)) {
            return None;
        }
        // First the time: who tells of the last copy knows the latest of all.
        published.latest_ns.fetch_max(latest_ns, SeqCst);
        let less = |word: u64| is_followed(word).then(|| word - count.min(word & COPIES));
        let before = published.word.fetch_update(SeqCst, SeqCst, less).ok()?;
        (before & COPIES <= count).then(|| published.latest_ns.load(SeqCst))
    }

    fn room(&self, user: u32) -> usize {
        (user % self.rooms.count) as usize
    }

    fn published(&self, user: u32, sequence: u64) -> &Published {
        let of_user = u64::from(user % self.rooms.count) * u64::from(self.publishers) + u64::from(self.slot(user));
        &self.published[(of_user * self.followed + sequence % self.followed) as usize]
    }

    /// Which of its room's members a user is.
    pub fn slot(&self, user: u32) -> u32 {
        user / self.rooms.count
    }

    pub fn publishes(&self, user: u32) -> bool {
        self.slot(user) < self.publishers
    }

    pub fn publishers(&self) -> usize {
        self.publishers as usize
    }
}

/// What a member has of one publisher: the number of its latest message, and, by bit, which of the 96 before it. A plain
/// number, because zeros cost no memory until they are used.
pub type Received = u128;

/// How far behind the latest message a copy is still known to be the first of its own.
const BACK: u32 = 96;
const BEFORE: u128 = (1 << BACK) - 1;

/// What a copy is to a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// The first of its message, which is later than all that came before it.
    InOrder,
    /// The first of its message, behind a later one.
    Overtaken,
    /// The second of its message, or so far behind later ones that this is not known.
    Repeated,
}

/// A member has a copy of the publisher's message with this number.
#[inline]
pub fn arrive(received: &mut Received, sequence: u32) -> Arrival {
    let (latest, before) = ((*received >> BACK) as u32, *received & BEFORE);
    if sequence > latest {
        // The latest becomes the first of those before.
        let known = before << 1 | u128::from(latest > 0);
        let before = known.checked_shl(sequence - latest - 1).unwrap_or(0) & BEFORE;
        *received = u128::from(sequence) << BACK | before;
        return Arrival::InOrder;
    }
    let back = latest - sequence;
    let bit = 1u128.checked_shl(back.wrapping_sub(1)).unwrap_or(0);
    if back == 0 || back > BACK || before & bit != 0 {
        return Arrival::Repeated;
    }
    *received |= bit;
    Arrival::Overtaken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(sequences: &[u32]) -> Vec<Arrival> {
        let mut received = 0;
        sequences.iter().map(|&sequence| arrive(&mut received, sequence)).collect()
    }

    #[test]
    fn a_member_knows_what_it_has_received() {
        use Arrival::{InOrder, Overtaken, Repeated};
        assert_eq!(
            arrivals(&[1, 2, 2, 1, 5, 3, 4, 3, 5]),
            [InOrder, InOrder, Repeated, Repeated, InOrder, Overtaken, Overtaken, Repeated, Repeated]
        );
        assert_eq!(arrivals(&[7, 103, 7, 8]), [InOrder, InOrder, Repeated, Overtaken], "96 back is remembered");
        assert_eq!(
            arrivals(&[7, 104, 6, 7, 8]),
            [InOrder, InOrder, Repeated, Repeated, Overtaken],
            "97 back is not known"
        );
        assert_eq!(arrivals(&[1, u32::MAX, u32::MAX - 96, u32::MAX - 97]), [InOrder, InOrder, Overtaken, Repeated]);
    }

    /// The same by a set, for sequences that stay near.
    #[test]
    fn every_copy_counts_once() {
        let random = &mut fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let (mut received, mut seen) = (0, std::collections::BTreeSet::new());
            for at in 1..200u32 {
                let sequence = at + random.u32(..90);
                let first = seen.insert(sequence);
                assert_eq!(arrive(&mut received, sequence) != Arrival::Repeated, first, "{sequence} of {seen:?}");
            }
        }
    }

    fn board(connections: usize, rooms: Rooms) -> RoomBoard {
        let board = RoomBoard::following(LEAST_OF_ONE, rooms.publishers(connections), rooms);
        (0..connections as u32).for_each(|user| board.join(user));
        board
    }

    #[test]
    fn the_last_copy_is_known_until_too_many_messages_follow_and_then_that_is_told() {
        let board = board(6, Rooms { count: 2, publishers: None, own: true });
        for sequence in 1..=LEAST_OF_ONE {
            assert_eq!(board.publish(4, sequence, true), Expected { copies: 3, evicts: false });
        }
        let came = |sequence| board.received(&copies(sequence, 1, 1)).is_some();
        let all = |sequence| [(); 4].map(|()| came(sequence));
        assert_eq!(all(2), [false, false, true, false]);
        // The first is let go, the second had all of its copies.
        assert_eq!(board.publish(4, LEAST_OF_ONE + 1, false), Expected { copies: 3, evicts: true });
        assert_eq!(board.publish(4, LEAST_OF_ONE + 2, false), Expected { copies: 3, evicts: false });
        assert_eq!(all(1), [false; 4]);
        assert_eq!(all(LEAST_OF_ONE + 1), [false, false, true, false]);
        // What was never measured is no loss.
        assert_eq!(board.publish(4, 2 * LEAST_OF_ONE + 2, true), Expected { copies: 3, evicts: false });
    }

    fn copies(sequence: u64, count: u64, latest_ns: u64) -> Copies {
        Copies { publisher: 4, sequence, count, sent_ns: 0, latest_ns }
    }

    #[test]
    fn copies_that_are_told_together_are_as_many_as_one_by_one() {
        let board = board(10, Rooms { count: 2, publishers: None, own: true });
        board.publish(4, 1, true);
        assert_eq!(board.received(&copies(1, 2, 70)), None);
        assert_eq!(board.received(&copies(1, 3, 50)), Some(70), "another worker had the latest, and told of it before");
        assert_eq!(board.received(&copies(1, 1, 90)), None, "no more were expected");
        // The next message at the same place has its own times.
        let again = 1 + board.followed;
        board.publish(4, again, true);
        assert_eq!(board.received(&copies(1, 1, 200)), None, "no longer followed");
        assert_eq!(board.received(&copies(again, 7, 120)), Some(120));
    }

    #[test]
    fn a_copy_is_for_the_members_of_its_room() {
        let own = board(6, Rooms { count: 2, publishers: None, own: true });
        assert_eq!([own.is_for(0, 4), own.is_for(0, 0), own.is_for(0, 1)], [true, true, false]);
        let others = board(6, Rooms { count: 2, publishers: None, own: false });
        assert_eq!([others.is_for(0, 4), others.is_for(0, 0), others.is_for(1, 2)], [true, false, false]);
        assert_eq!(others.publish(0, 1, true).copies, 2);
    }
}
