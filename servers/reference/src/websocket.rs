//! One WebSocket conversation: frames in, replies out. Messages are checked, never assembled: a fragment is echoed as a fragment.

use crate::frame::{self, Frame, INVALID_DATA, LARGEST, Opcode, PROTOCOL_ERROR, Parsed, TOO_BIG, Violation};
use crate::push::Token;
use crate::spin;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    Echo,
    Ping,
    Push,
}

pub struct WebSocket {
    pub endpoint: Endpoint,
    /// The message whose fragments are coming in.
    message: Option<Message>,
}

struct Message {
    opcode: Opcode,
    length: u64,
    /// The bytes of a character that the last fragment began (text only).
    character: Vec<u8>,
}

/// What a stretch of input led to.
pub enum Progress {
    /// The rest is an incomplete frame that needs `wanted` bytes.
    Wait { wanted: usize },
    /// The peer said Close and has its answer.
    Closed,
    /// The peer broke the protocol and has been told why.
    Refused,
}

enum End {
    Closed,
    Violated(Violation),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        End::Violated(violation)
    }
}

impl WebSocket {
    pub fn new(endpoint: Endpoint) -> Self {
        WebSocket { endpoint, message: None }
    }

    /// Answers every complete frame of `input` into `replies`; returns how many bytes they were.
    pub fn consume(&mut self, input: &[u8], replies: &mut Vec<u8>, tokens: &mut Vec<Token>) -> (usize, Progress) {
        let mut taken = 0;
        loop {
            let ended = match frame::parse(&input[taken..]) {
                Ok(Parsed::Incomplete { wanted }) => return (taken, Progress::Wait { wanted }),
                Ok(Parsed::Frame(frame)) => {
                    taken += frame.bytes;
                    self.answer(&frame, replies, tokens)
                }
                Err(violation) => Err(violation.into()),
            };
            match ended {
                Ok(()) => {}
                Err(End::Closed) => return (input.len(), Progress::Closed),
                Err(End::Violated(Violation(code))) => {
                    frame::push_frame(replies, Opcode::Close, &code.to_be_bytes());
                    return (input.len(), Progress::Refused);
                }
            }
        }
    }

    fn answer(&mut self, frame: &Frame, replies: &mut Vec<u8>, tokens: &mut Vec<Token>) -> Result<(), End> {
        match frame.opcode {
            Opcode::Ping => {
                frame::push_header(replies, true, Opcode::Pong, frame.masked.len());
                frame::unmask_into(replies, frame.masked, frame.mask);
                Ok(())
            }
            Opcode::Pong => Ok(()),
            Opcode::Close => Err(match close(frame, replies) {
                Ok(()) => End::Closed,
                Err(violation) => End::Violated(violation),
            }),
            Opcode::Text | Opcode::Binary | Opcode::Continuation => Ok(self.data(frame, replies, tokens)?),
        }
    }

    /// Echoes a data frame, or unmasks it where its reply would be and looks at it there.
    fn data(&mut self, frame: &Frame, replies: &mut Vec<u8>, tokens: &mut Vec<Token>) -> Result<(), Violation> {
        spin::burn();
        let whole = frame.fin && frame.opcode != Opcode::Continuation && self.message.is_none();
        let start = replies.len();
        frame::push_header(replies, frame.fin, frame.opcode, frame.masked.len());
        let payload = replies.len();
        frame::unmask_into(replies, frame.masked, frame.mask);

        let checked = if whole {
            check_whole(frame.opcode, &replies[payload..])
        } else {
            self.check_fragment(frame, &replies[payload..])
        };
        let text = whole && frame.opcode == Opcode::Text;
        match (checked, self.endpoint) {
            (Err(violation), _) => {
                replies.truncate(start);
                return Err(violation);
            }
            (Ok(()), Endpoint::Echo) => {}
            (Ok(()), Endpoint::Ping) => {
                let asked = text && &replies[payload..] == b"Ping";
                replies.truncate(start);
                if asked {
                    frame::push_frame(replies, Opcode::Text, b"Pong");
                }
            }
            (Ok(()), Endpoint::Push) => {
                if let Some(token) = replies[payload..].strip_prefix(b"broadcast ").filter(|_| text) {
                    tokens.push(token.into());
                }
                replies.truncate(start);
            }
        }
        Ok(())
    }

    fn check_fragment(&mut self, frame: &Frame, payload: &[u8]) -> Result<(), Violation> {
        let mut message = match (self.message.take(), frame.opcode) {
            (Some(message), Opcode::Continuation) => message,
            (None, opcode @ (Opcode::Text | Opcode::Binary)) => Message { opcode, length: 0, character: Vec::new() },
            _ => return Err(PROTOCOL_ERROR),
        };
        message.length += payload.len() as u64;
        if message.length > LARGEST {
            return Err(TOO_BIG);
        }
        if message.opcode == Opcode::Text && !continues_utf8(&mut message.character, payload, frame.fin) {
            return Err(INVALID_DATA);
        }
        self.message = (!frame.fin).then_some(message);
        Ok(())
    }
}

fn check_whole(opcode: Opcode, payload: &[u8]) -> Result<(), Violation> {
    let valid = opcode != Opcode::Text || std::str::from_utf8(payload).is_ok();
    if valid { Ok(()) } else { Err(INVALID_DATA) }
}

/// Whether `payload` goes on with a valid text. `character` carries the bytes of an unfinished character from fragment to fragment.
fn continues_utf8(character: &mut Vec<u8>, mut payload: &[u8], last: bool) -> bool {
    while let (false, [next, rest @ ..]) = (character.is_empty(), payload) {
        character.push(*next);
        payload = rest;
        match std::str::from_utf8(character) {
            Ok(_) => character.clear(),
            Err(error) if error.error_len().is_some() => return false,
            Err(_) => {}
        }
    }
    match std::str::from_utf8(payload) {
        Ok(_) => {}
        Err(error) if error.error_len().is_some() => return false,
        Err(error) => character.extend_from_slice(&payload[error.valid_up_to()..]),
    }
    !last || character.is_empty()
}

/// Answers a Close frame with its own code (5.5.1), or says what is wrong with it (7.4).
fn close(frame: &Frame, replies: &mut Vec<u8>) -> Result<(), Violation> {
    let mut payload = Vec::new();
    frame::unmask_into(&mut payload, frame.masked, frame.mask);
    match payload.as_slice() {
        [] => frame::push_frame(replies, Opcode::Close, &[]),
        [high, low, reason @ ..] => {
            let code = [*high, *low];
            // 1004 to 1006 and 1015 never travel; 1012 to 1014 are in IANA's registry; 3000 to 4999 belong to libraries and applications.
            if !matches!(u16::from_be_bytes(code), 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(PROTOCOL_ERROR);
            }
            if std::str::from_utf8(reason).is_err() {
                return Err(INVALID_DATA);
            }
            frame::push_frame(replies, Opcode::Close, &code);
        }
        [_] => return Err(PROTOCOL_ERROR),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's frame whose mask is 0, so that the payload can be read here.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("a short frame");
        [&[first, 0x80 | length, 0, 0, 0, 0], payload].concat()
    }

    fn replies(input: &[u8]) -> Vec<u8> {
        let (mut replies, mut tokens) = (Vec::new(), Vec::new());
        WebSocket::new(Endpoint::Echo).consume(input, &mut replies, &mut tokens);
        replies
    }

    #[test]
    fn a_character_may_be_cut_by_fragments_and_pings() {
        let input = [frame(0x01, b"\xe4"), frame(0x89, b"p"), frame(0x00, b"\xb8"), frame(0x80, b"\x96")].concat();
        assert_eq!(replies(&input), b"\x01\x01\xe4\x8a\x01p\x00\x01\xb8\x80\x01\x96");
    }

    #[test]
    fn a_violation_is_refused_with_its_code() {
        let cases: [(u16, Vec<u8>); 10] = [
            (1002, b"\x81\x01x".to_vec()),                                        // not masked
            (1002, frame(0xc1, b"x")),                                            // a reserved bit
            (1002, frame(0x83, b"x")),                                            // a reserved opcode
            (1002, frame(0x80, b"x")),                                            // nothing to continue
            (1002, [frame(0x01, b"x"), frame(0x81, b"x")].concat()),              // the last message is unfinished
            (1002, frame(0x09, b"x")),                                            // a fragmented ping
            (1002, frame(0x88, &1005u16.to_be_bytes())),                          // a code that never travels
            (1007, frame(0x81, b"\xff")),                                         // no UTF-8
            (1007, [frame(0x01, b"\xe4"), frame(0x80, b"\xb8")].concat()),        // half a character at the end
            (1009, b"\x82\xff\x00\x00\x00\x00\x01\x00\x00\x01\0\0\0\0".to_vec()), // 16 MiB and a byte
        ];
        for (code, input) in cases {
            let replies = replies(&input);
            let close = &replies[replies.len().saturating_sub(4)..];
            assert_eq!(close, [&[0x88, 2], &code.to_be_bytes()[..]].concat(), "{input:x?}");
        }
    }
}
