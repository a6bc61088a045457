//! What is sent, and which reply answers it. A message is known by its connection and its sequence number: the same pair
//! always gives the same bytes, so a reply can be compared piece by piece as it arrives and nothing need be kept.

use crate::frame;
use crate::plan::{Opcode, Plan, Scenario};

/// Connection and sequence number in hexadecimal, at the front of every message long enough; shorter messages carry its end.
const STAMP: usize = 16;

pub struct Script {
    pub opcode: u8,
    pub length: usize,
    stamped: bool,
    template: Vec<u8>,
    reply: Vec<u8>,
}

/// One message: which bytes go out, and which must come back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    pub connection: u32,
    pub sequence: u64,
}

impl Script {
    pub fn new(plan: &Plan) -> Script {
        match plan.scenario {
            Scenario::Echo { opcode, bytes } => {
                let mut random = fastrand::Rng::with_seed(plan.seed);
                let template: Vec<u8> = (0..bytes).map(|_| random.alphanumeric() as u8).collect();
                let opcode = if opcode == Opcode::Text { frame::TEXT } else { frame::BINARY };
                Script { opcode, length: bytes, stamped: true, reply: Vec::new(), template }
            }
            // A document's content is the server's own; its request is built by the http room.
            Scenario::Ping {} | Scenario::Doc { .. } => Script {
                opcode: frame::TEXT,
                length: 4,
                stamped: false,
                template: b"Ping".to_vec(),
                reply: b"Pong".to_vec(),
            },
        }
    }

    /// The bytes to send as two pieces: the stamp of this message, and the rest that is the same in all.
    pub fn payload<'a>(&'a self, message: Message, stamp: &'a mut [u8; STAMP]) -> (&'a [u8], &'a [u8]) {
        if !self.stamped {
            return (&[], &self.template);
        }
        *stamp = stamp_of(message);
        let length = STAMP.min(self.length);
        (&stamp[STAMP - length..], &self.template[length..])
    }

    /// Whether `piece` is what stands at `position` of the reply to `message`.
    #[inline]
    pub fn matches(&self, message: Message, position: usize, piece: &[u8]) -> bool {
        let expected: &[u8] = if self.stamped { &self.template } else { &self.reply };
        let end = position + piece.len();
        if end > expected.len() {
            return false;
        }
        let stamp_length = if self.stamped { STAMP.min(self.length) } else { 0 };
        if position >= stamp_length {
            return expected[position..end] == *piece;
        }
        let in_stamp = piece.len().min(stamp_length - position);
        let stamp = stamp_of(message);
        stamp[STAMP - stamp_length..][position..position + in_stamp] == piece[..in_stamp]
            && expected[position + in_stamp..end] == piece[in_stamp..]
    }
}

fn stamp_of(message: Message) -> [u8; STAMP] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = u64::from(message.connection) << 40 | message.sequence & 0xff_ffff_ffff;
    std::array::from_fn(|i| DIGITS[(number >> (60 - 4 * i)) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(bytes: usize) -> Script {
        let template = (0..bytes).map(|i| b'a' + (i % 26) as u8).collect();
        Script { opcode: frame::TEXT, length: bytes, stamped: true, template, reply: Vec::new() }
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
