//! What is sent, and which reply answers it. A message is known by its connection and its sequence number: the same pair
//! always gives the same bytes, so a reply can be compared piece by piece as it arrives and nothing need be kept.

use crate::frame;
use crate::plan::{Opcode, Plan, STAMP, Scenario};
use std::io;

pub struct Script {
    pub opcode: u8,
    pub length: usize,
    reply: Reply,
    template: Vec<u8>,
}

/// How a reply is known to be right.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    /// It is the message, whose front is its stamp.
    Echo,
    Pong,
    /// Its content is the server's own.
    Notice,
}

const PONG: &[u8] = b"Pong";

/// A reply up to this long is read and called wrong; a longer one is refused at its head.
pub fn longest(expected: u64) -> u64 {
    2 * expected + 65_536
}

/// One message: which bytes go out, and which must come back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    pub connection: u32,
    pub sequence: u64,
}

impl Script {
    /// Fails where a file with the content cannot be read.
    pub fn new(plan: &Plan) -> io::Result<Script> {
        Ok(match &plan.scenario {
            Scenario::Echo { opcode, bytes, content } => {
                let mut random = fastrand::Rng::with_seed(plan.seed);
                let template = match content {
                    Some(path) => std::fs::read(path)?,
                    None => (0..*bytes).map(|_| random.alphanumeric() as u8).collect(),
                };
                Script::echo(if *opcode == Opcode::Text { frame::TEXT } else { frame::BINARY }, template)
            }
            Scenario::Push { .. } => Script::notices(),
            // A document's content is the server's own, and its request is built by the http room; nothing is idle's.
            Scenario::Ping {} | Scenario::Doc { .. } | Scenario::Idle {} => Script::ping(),
        })
    }

    pub fn echo(opcode: u8, template: Vec<u8>) -> Script {
        Script { opcode, length: template.len(), reply: Reply::Echo, template }
    }

    pub fn notices() -> Script {
        Script { opcode: frame::TEXT, length: 64, reply: Reply::Notice, template: Vec::new() }
    }

    pub fn ping() -> Script {
        Script { opcode: frame::TEXT, length: 4, reply: Reply::Pong, template: b"Ping".to_vec() }
    }

    /// Bytes at the front of every message that belong to it alone.
    #[inline]
    pub fn stamp_length(&self) -> usize {
        if self.reply == Reply::Echo { STAMP.min(self.length) } else { 0 }
    }

    /// The bytes of a character of the expected text that `position` cuts, as far as they stand before it.
    pub fn character_before(&self, position: usize) -> &[u8] {
        let first = position.saturating_sub(3).max(self.stamp_length());
        let before = self.template.get(first..position).unwrap_or_default();
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

    /// The bytes to send as two pieces: the stamp of this message, and the rest that is the same in all.
    pub fn payload<'a>(&'a self, message: Message, stamp: &'a mut [u8; STAMP]) -> (&'a [u8], &'a [u8]) {
        if self.reply != Reply::Echo {
            return (&[], &self.template);
        }
        *stamp = stamp_of(message);
        let length = STAMP.min(self.length);
        (&stamp[STAMP - length..], &self.template[length..])
    }

    /// Whether `piece` is what stands at `position` of the reply to `message`.
    #[inline]
    pub fn matches(&self, message: Message, position: usize, piece: &[u8]) -> bool {
        let stamped = self.reply == Reply::Echo;
        let expected: &[u8] = if stamped { &self.template } else { PONG };
        let end = position + piece.len();
        if end > expected.len() {
            return false;
        }
        let stamp_length = if stamped { STAMP.min(self.length) } else { 0 };
        if position >= stamp_length {
            return expected[position..end] == *piece;
        }
        let in_stamp = piece.len().min(stamp_length - position);
        let stamp = stamp_of(message);
        stamp[STAMP - stamp_length..][position..position + in_stamp] == piece[..in_stamp]
            && expected[position + in_stamp..end] == piece[in_stamp..]
    }
}

impl Script {
    /// The sequence number of the message that this front of a reply belongs to, if it is one of this connection's.
    pub fn sequence_in(&self, front: &[u8], connection: u32) -> Option<u64> {
        let stamp = front.get(..STAMP).filter(|_| self.reply == Reply::Echo)?;
        let number = u64::from_str_radix(std::str::from_utf8(stamp).ok()?, 16).ok()?;
        (number >> 40 == u64::from(connection)).then_some(number & SEQUENCE)
    }
}

/// The part of a stamp that is the sequence number; above it stands the connection.
const SEQUENCE: u64 = (1 << 40) - 1;

fn stamp_of(message: Message) -> [u8; STAMP] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = u64::from(message.connection) << 40 | message.sequence & SEQUENCE;
    std::array::from_fn(|i| DIGITS[(number >> (60 - 4 * i)) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(bytes: usize) -> Script {
        let template = (0..bytes).map(|i| b'a' + (i % 26) as u8).collect();
        Script { opcode: frame::TEXT, length: bytes, reply: Reply::Echo, template }
    }

    #[test]
    fn a_reply_matches_its_own_message_in_any_pieces_and_no_other() {
        for bytes in [1, 5, 15, 16, 17, 100] {
            let script = script(bytes);
            let message = Message { connection: 7, sequence: 99 };
            let mut stamp = [0; STAMP];
            let (front, rest) = script.payload(message, &mut stamp);
            let whole = [front, rest].concat();
            assert_eq!(whole.len(), bytes);
            for cut in 0..=bytes {
                assert!(script.matches(message, 0, &whole[..cut]) && script.matches(message, cut, &whole[cut..]));
            }
            assert!(!script.matches(Message { sequence: 98, ..message }, 0, &whole));
            let mut wrong = whole.clone();
            wrong[bytes - 1] ^= 1;
            assert!(!script.matches(message, 0, &wrong));
            assert!(!script.matches(message, 0, &[&whole[..], b"x"].concat()));
        }
    }
}
