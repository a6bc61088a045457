//! The messages sent, and the replies expected. A connection and a sequence number identify a message: the same pair
//! always gives the same bytes. A reply can therefore be compared piece by piece as it arrives, and nothing is kept.
//! Without the plan's seed these bytes cannot be predicted.

use crate::failure::{Failure, Kind};
use crate::frame::{self, Head};
use crate::plan::{Plan, Scenario};
use crate::session::Session;
use crate::stamp::{self, Stamps};
use std::io;

pub struct Script {
    pub opcode: u8,
    pub length: usize,
    /// The header of a message, and of its reply.
    pub head: Head,
    /// Bytes of the longest reply that is read; an incorrect one is read and reported, a longer one rejected at its head.
    pub longest: u64,
    reply: Reply,
    stamps: Stamps,
    /// The content after the stamp, drawn once. A message takes its part from one of the first
    /// `offsets` bytes on, and a long one wraps around.
    template: Vec<u8>,
    offsets: usize,
}

/// How a reply is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    /// It equals the message, which begins with its stamp.
    Echo,
    Pong,
    /// Its content comes from the server.
    Notice,
    /// It is part of a session.
    Records,
}

const PONG: &[u8] = b"Pong";

/// The longest reply that is read where one of `expected` bytes is.
pub fn longest(expected: u64) -> u64 {
    2 * expected + 65_536
}

/// One message: which bytes are sent, and which must return.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    pub connection: u32,
    pub sequence: u64,
}

/// The mark of a message with space for a whole stamp: its stamp, and the offset of its content. It
/// is kept while the message is in flight, so that it is not computed again for the reply.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
pub struct Mark {
    pub stamp: [u8; stamp::LENGTH],
    offset: u16,
}

/// The number of offsets at which a message's part of the drawn content may begin: that many
/// messages differ in all of their bytes.
const OFFSETS: usize = 4096;

/// Drawn content repeats after this many bytes. This is more than any compression looks back (32 KiB, RFC 7692 §7.1.2).
/// It is small enough to stay in a core's cache while a message of a mebibyte is masked or compared.
const PERIOD: usize = 65_521;

impl Script {
    /// Fails if a file with the content cannot be read.
    pub fn new(plan: &Plan) -> io::Result<Script> {
        Ok(match &plan.scenario {
            Scenario::Echo { opcode, bytes, content } => match content {
                Some(path) => Script::echo(opcode.number(), std::fs::read(path)?, plan.seed),
                None => Script::drawn(opcode.number(), *bytes, plan.seed),
            },
            Scenario::Push { .. } => Script::notices(plan.seed),
            Scenario::Session(session) => Script::session(session),
            // A document's content comes from the server, and the http module builds its request;
            // `idle` has no messages.
            Scenario::Ping {} | Scenario::Doc { .. } | Scenario::Idle {} => Script::ping(),
        })
    }

    /// Messages with this content, except for their stamps.
    pub fn echo(opcode: u8, template: Vec<u8>, seed: u64) -> Script {
        let (length, stamps) = (template.len(), Stamps::new(seed));
        let (head, longest) = (Head::new(frame::WHOLE | opcode, length), longest(length as u64));
        Script { opcode, length, head, longest, reply: Reply::Echo, stamps, template, offsets: 1 }
    }

    /// Messages with drawn content: letters and digits, which are also valid text.
    pub fn drawn(opcode: u8, bytes: usize, seed: u64) -> Script {
        let mut random = fastrand::Rng::with_seed(seed);
        let offsets = if bytes > stamp::LENGTH { OFFSETS } else { 1 };
        let template = (0..(bytes + offsets - 1).min(PERIOD)).map(|_| random.alphanumeric() as u8).collect();
        let (head, longest) = (Head::new(frame::WHOLE | opcode, bytes), longest(bytes as u64));
        Script { length: bytes, head, longest, offsets, ..Script::echo(opcode, template, seed) }
    }

    pub fn notices(seed: u64) -> Script {
        Script { length: 64, reply: Reply::Notice, ..Script::echo(frame::TEXT, Vec::new(), seed) }
    }

    pub fn session(session: &Session) -> Script {
        let longest = session.longest as u64;
        Script { longest, reply: Reply::Records, ..Script::echo(session.opcode.number(), Vec::new(), 0) }
    }

    pub fn ping() -> Script {
        Script { reply: Reply::Pong, ..Script::echo(frame::TEXT, b"Ping".to_vec(), 0) }
    }

    /// Bytes at the front of every message that are unique to it.
    #[inline]
    pub fn stamp_length(&self) -> usize {
        if self.reply == Reply::Echo { stamp::LENGTH.min(self.length) } else { 0 }
    }

    /// The bytes of a character of the expected text that `position` cuts, up to that position.
    pub fn character_before(&self, message: Message, position: usize) -> &[u8] {
        let first = position.saturating_sub(3).max(self.stamp_length());
        let before = self.content_at(self.offset(self.hash(message)), first, position.saturating_sub(first));
        let ends = before.iter().take_while(|&&byte| byte & 0xc0 == 0x80).count();
        let before = &before[ends..];
        match std::str::from_utf8(before) {
            Err(error) if error.error_len().is_none() => &before[error.valid_up_to()..],
            _ => &[],
        }
    }

    pub fn is_notice(&self) -> bool {
        self.reply == Reply::Notice
    }

    /// Sessions are of one kind of message.
    #[inline]
    pub fn check_opcode(&self, opcode: u8) -> Result<(), Failure> {
        if self.reply == Reply::Records && opcode != self.opcode {
            let what = format!("a message with opcode {opcode} in a session of opcode {}", self.opcode);
            return Err(Failure::new(Kind::BadRecord, what));
        }
        Ok(())
    }

    /// Whether a reply is handed over whole, because its content cannot be known in advance.
    #[inline]
    pub fn hands_over(&self) -> bool {
        matches!(self.reply, Reply::Notice | Reply::Records)
    }

    /// `None` if the message has no space for a stamp.
    #[inline]
    pub fn mark(&self, message: Message) -> Option<Mark> {
        if self.reply != Reply::Echo || self.length < stamp::LENGTH {
            return None;
        }
        let [mark] = self.marks(message);
        Some(mark)
    }

    /// Those of consecutive messages, from `first` on, which have space for their stamps.
    #[inline]
    pub fn marks<const MESSAGES: usize>(&self, first: Message) -> [Mark; MESSAGES] {
        let hashes = self.stamps.hashes::<MESSAGES>(first.connection, first.sequence);
        std::array::from_fn(|at| {
            let stamp = Stamps::of(first.sequence + at as u64, hashes[at]);
            Mark { stamp, offset: self.offset(hashes[at]) }
        })
    }

    /// Takes the usual reply off the front of `input`, if that begins with it: the message with this mark, whole and in one
    /// frame.
    #[inline]
    pub fn take_reply(&self, input: &mut &[u8], mark: &Mark) -> bool {
        let behind = self.head.strip(input);
        let Some((reply, rest)) = behind.and_then(|behind| behind.split_at_checked(self.length)) else {
            return false;
        };
        let right = self.is_reply_to(mark, reply);
        if right {
            *input = rest;
        }
        right
    }

    #[inline]
    fn is_reply_to(&self, mark: &Mark, reply: &[u8]) -> bool {
        let Some((stamp, rest)) = reply.split_first_chunk() else { return false };
        *stamp == mark.stamp && self.is_content(mark.offset, stamp::LENGTH, rest)
    }

    /// Appends a whole message. A short one has the end of its stamp.
    pub fn write(&self, message: Message, out: &mut Vec<u8>) {
        if self.reply != Reply::Echo {
            return out.extend_from_slice(&self.template);
        }
        let hash = self.hash(message);
        let stamp_length = self.stamp_length();
        out.extend_from_slice(&Stamps::of(message.sequence, hash)[stamp::LENGTH - stamp_length..]);
        let mut position = stamp_length;
        while position < self.length {
            let piece = self.content_at(self.offset(hash), position, self.length - position);
            out.extend_from_slice(piece);
            position += piece.len();
        }
    }

    /// Whether `piece` is the content at `position` of the reply to `message`.
    #[inline]
    pub fn matches(&self, message: Message, position: usize, piece: &[u8]) -> bool {
        let end = position + piece.len();
        if self.reply != Reply::Echo {
            return PONG.get(position..end) == Some(piece);
        }
        if end > self.length {
            return false;
        }
        let hash = self.hash(message);
        let offset = self.offset(hash);
        let stamp_length = stamp::LENGTH.min(self.length);
        if position >= stamp_length {
            return self.is_content(offset, position, piece);
        }
        let in_stamp = piece.len().min(stamp_length - position);
        let stamp = Stamps::of(message.sequence, hash);
        stamp[stamp::LENGTH - stamp_length..][position..position + in_stamp] == piece[..in_stamp]
            && self.is_content(offset, position + in_stamp, &piece[in_stamp..])
    }

    #[inline]
    fn is_content(&self, offset: u16, mut position: usize, mut piece: &[u8]) -> bool {
        while !piece.is_empty() {
            let expected = self.content_at(offset, position, piece.len());
            let (front, rest) = piece.split_at(expected.len());
            if front != expected {
                return false;
            }
            (position, piece) = (position + front.len(), rest);
        }
        true
    }

    /// The sequence number of the message to which this front of a reply belongs, if it is one of
    /// this connection's. The search is around that of `expected`.
    pub fn sequence_in(&self, front: &[u8], expected: Message) -> Option<u64> {
        let stamp = front.get(..stamp::LENGTH).filter(|_| self.reply == Reply::Echo)?;
        let away = Stamps::number_in(stamp)?.wrapping_sub(expected.sequence as u32) as i32;
        let sequence = expected.sequence.checked_add_signed(away.into())?;
        let hash = self.hash(Message { sequence, ..expected });
        (Stamps::of(sequence, hash) == *stamp).then_some(sequence)
    }

    /// The part of a broadcast's token that only its sender can know.
    pub fn tag_of_broadcast(&self, shard: u32, number: usize) -> u32 {
        self.stamps.hash(shard, number as u64) as u32
    }

    #[inline]
    fn hash(&self, message: Message) -> u64 {
        self.stamps.hash(message.connection, message.sequence)
    }

    #[inline]
    fn offset(&self, hash: u64) -> u16 {
        ((hash >> 32) as usize & (self.offsets - 1)) as u16
    }

    /// The content of a message from `position` on, after the stamp: at most that many bytes, and
    /// at most one contiguous piece.
    #[inline]
    pub fn content(&self, mark: &Mark, position: usize, most: usize) -> &[u8] {
        self.content_at(mark.offset, position, most)
    }

    #[inline]
    fn content_at(&self, offset: u16, position: usize, most: usize) -> &[u8] {
        let mut from = usize::from(offset) + position;
        if from >= self.template.len() {
            from %= self.template.len().max(1);
        }
        &self.template[from..self.template.len().min(from + most)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_matches_its_own_message_in_any_pieces_and_no_other() {
        for bytes in [1, 5, 15, 16, 17, 100] {
            for script in [Script::drawn(frame::TEXT, bytes, 3), Script::echo(frame::TEXT, vec![b'a'; bytes], 3)] {
                let message = Message { connection: 7, sequence: 99 };
                let mut whole = Vec::new();
                script.write(message, &mut whole);
                assert_eq!(whole.len(), bytes);
                for cut in 0..=bytes {
                    assert!(script.matches(message, 0, &whole[..cut]) && script.matches(message, cut, &whole[cut..]));
                }
                let known = script.mark(message).map(|mark| script.is_reply_to(&mark, &whole));
                assert_eq!(known, (bytes >= stamp::LENGTH).then_some(true));
                assert!(!script.matches(Message { sequence: 98, ..message }, 0, &whole));
                let mut wrong = whole.clone();
                wrong[bytes - 1] ^= 1;
                assert!(!script.matches(message, 0, &wrong));
                assert!(!script.matches(message, 0, &[&whole[..], b"x"].concat()));
            }
        }
    }

    #[test]
    fn a_stamp_leads_to_its_message_near_and_far_and_only_on_its_connection() {
        let script = Script::drawn(frame::TEXT, 64, 3);
        let expected = Message { connection: 7, sequence: (1 << 32) + 5 };
        for sequence in [expected.sequence, expected.sequence - 9, expected.sequence + 70_000] {
            let Mark { mut stamp, .. } = script.mark(Message { sequence, ..expected }).unwrap();
            assert_eq!(script.sequence_in(&stamp, expected), Some(sequence));
            assert_eq!(script.sequence_in(&stamp, Message { connection: 8, ..expected }), None);
            stamp[15] ^= 1;
            assert_eq!(script.sequence_in(&stamp, expected), None);
        }
    }

    #[test]
    fn messages_of_one_stream_differ_behind_their_stamps_too() {
        let script = Script::drawn(frame::BINARY, 1000, 3);
        let whole = |sequence| {
            let mut whole = Vec::new();
            script.write(Message { connection: 0, sequence }, &mut whole);
            whole
        };
        let alike = |sequence| whole(sequence)[stamp::LENGTH..] == whole(sequence + 1)[stamp::LENGTH..];
        let alike = (1..100).filter(|&sequence| alike(sequence)).count();
        assert!(alike < 3, "{alike}");
    }

    #[test]
    fn a_long_message_goes_round_and_matches_in_pieces_of_any_length() {
        let script = Script::drawn(frame::BINARY, 3 * PERIOD + 100, 3);
        for sequence in 1..20 {
            let message = Message { connection: 1, sequence };
            let mut whole = Vec::new();
            script.write(message, &mut whole);
            assert_eq!(whole.len(), script.length);
            assert_eq!(whole[1000..2000], whole[1000 + PERIOD..2000 + PERIOD]);
            assert!(script.matches(message, 0, &whole));
            for length in [1000, 65_536, 100_000] {
                let mut position = 0;
                for piece in whole.chunks(length) {
                    assert!(script.matches(message, position, piece));
                    position += piece.len();
                }
            }
            for at in [0, 20, PERIOD - 1, PERIOD, 2 * PERIOD + 7, whole.len() - 1] {
                whole[at] ^= 1;
                assert!(!script.matches(message, 0, &whole), "{at}");
                whole[at] ^= 1;
            }
        }
    }
}
