//! From bytes to messages: a reader that parses frames as they arrive, assembles fragments without keeping them, and
//! compares every piece with the expected reply. No I/O. An idle reader uses a few words of memory.

use crate::deflate::Inflater;
use crate::failure::{Failure, Kind};
use crate::frame::{self, Header};
use crate::scenario::{Mark, Message, Script};
use std::borrow::Cow;

/// The result of reading a whole frame or message.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// A data message is complete; the failure states why it is incorrect.
    Reply {
        wrong: Option<Failure>,
        fragmented: bool,
        /// 0: it answers the oldest message in flight; n: the n-th after that; below 0: one that was answered before.
        shift: i64,
    },
    /// A data message whose content cannot be known in advance.
    Notice(Cow<'a, [u8]>),
    Ping(Vec<u8>),
    Close(Vec<u8>),
}

#[derive(Default)]
pub struct Reader {
    header: [u8; frame::LONGEST_HEADER],
    header_length: u8,
    in_payload: bool,
    fin: bool,
    opcode: u8,
    /// The opcode of the message whose fragments are arriving; 0 between messages.
    message_opcode: u8,
    fragmented: bool,
    compressed: bool,
    differs: bool,
    left: u64,
    position: u64,
    shift: i64,
    rare: Option<Box<Rare>>,
}

/// Fields that most connections never need.
#[derive(Default)]
struct Rare {
    /// The part received of a stamp that arrives in pieces.
    cut_stamp: Vec<u8>,
    /// Up to three bytes of an incomplete character; only an incorrect reply sets them.
    cut_character: Vec<u8>,
    control: Vec<u8>,
    /// A notice that arrived in pieces.
    notice: Vec<u8>,
    /// Set if permessage-deflate was negotiated.
    inflater: Option<Inflater>,
}

impl Reader {
    /// For a connection with possibly compressed messages.
    pub fn inflating(takeover: bool) -> Reader {
        let rare = Rare { inflater: Some(Inflater::new(takeover)), ..Rare::default() };
        Reader { rare: Some(Box::new(rare)), ..Reader::default() }
    }

    /// Takes bytes off the front of `input` until something is complete or nothing is left.
    /// `message` is the oldest in flight, and `mark` its mark, if it has one.
    #[inline]
    pub fn feed<'a>(
        &mut self,
        input: &mut &'a [u8],
        script: &Script,
        message: Message,
        mark: Option<&Mark>,
    ) -> Result<Option<Incoming<'a>>, Failure> {
        if let Some(mark) = mark
            && !self.in_message()
            && script.take_reply(input, mark)
        {
            return Ok(Some(Incoming::Reply { wrong: None, fragmented: false, shift: 0 }));
        }
        loop {
            if !self.in_payload {
                match self.next_header(input)? {
                    Some(header) => self.begin(header, script)?,
                    None => return Ok(None),
                }
            }
            let taken = self.left.min(input.len() as u64) as usize;
            let (piece, rest) = input.split_at(taken);
            *input = rest;
            self.left -= taken as u64;
            if self.opcode >= frame::CLOSE {
                self.rare().control.extend_from_slice(piece);
            } else if self.compressed {
                self.inflate(piece, script, message)?;
            } else if script.hands_over() {
                self.position += piece.len() as u64;
                if self.left == 0 && self.fin && !self.fragmented && self.position == piece.len() as u64 {
                    (self.in_payload, self.message_opcode) = (false, 0);
                    return Ok(Some(Incoming::Notice(Cow::Borrowed(piece))));
                }
                self.rare().notice.extend_from_slice(piece);
            } else if !piece.is_empty() {
                self.compare(piece, script, message)?;
            }
            if self.left > 0 {
                return Ok(None);
            }
            self.in_payload = false;
            if self.fin && self.opcode < frame::CLOSE && self.has_cut_stamp() {
                self.compare_stamp(script, message)?;
            }
            if let Some(incoming) = self.complete(script)? {
                return Ok(Some(incoming));
            }
        }
    }

    /// Fast path for a message whose content cannot be known in advance: complete, and in one frame. Any other input stays
    /// at the front of `input`.
    #[inline]
    pub fn take_content<'a>(&self, input: &mut &'a [u8], script: &Script) -> Option<&'a [u8]> {
        if self.in_message() {
            return None;
        }
        let Ok(Some(Header { fin: true, compressed: false, opcode, length, size })) = frame::parse(input) else {
            return None;
        };
        if opcode != script.opcode || length > script.longest {
            return None;
        }
        let (content, rest) = input[size..].split_at_checked(length as usize)?;
        *input = rest;
        Some(content)
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether the stream is inside a frame or a fragmented message.
    pub fn in_message(&self) -> bool {
        self.in_payload || self.message_opcode != 0 || self.header_length > 0
    }

    #[inline]
    fn next_header(&mut self, input: &mut &[u8]) -> Result<Option<Header>, Failure> {
        if self.header_length == 0
            && let Some(header) = frame::parse(input)?
        {
            *input = &input[header.size..];
            return Ok(Some(header));
        }
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            self.header[self.header_length as usize] = byte;
            self.header_length += 1;
            if let Some(header) = frame::parse(&self.header[..self.header_length as usize])? {
                self.header_length = 0;
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    #[inline]
    fn begin(&mut self, header: Header, script: &Script) -> Result<(), Failure> {
        (self.fin, self.opcode, self.left, self.in_payload) = (header.fin, header.opcode, header.length, true);
        let may_compress = header.opcode == frame::TEXT || header.opcode == frame::BINARY;
        if header.compressed && !(may_compress && self.rare.as_ref().is_some_and(|rare| rare.inflater.is_some())) {
            return Err(Failure::new(Kind::ReservedBits, format!("RSV1 with opcode {}", header.opcode)));
        }
        if header.opcode >= frame::CLOSE {
            return Ok(());
        }
        match (header.opcode, self.message_opcode) {
            (frame::CONTINUATION, 0) => return Err(Failure::new(Kind::BadFragment, "a continuation of nothing")),
            (frame::CONTINUATION, _) => {}
            (opcode, 0) => {
                self.message_opcode = opcode;
                script.check_opcode(opcode)?;
                (self.position, self.differs, self.shift) = (0, false, 0);
                (self.fragmented, self.compressed) = (!header.fin, header.compressed);
            }
            (opcode, _) => {
                return Err(Failure::new(Kind::BadFragment, format!("opcode {opcode} inside a fragmented message")));
            }
        }
        self.check_length(self.taken().saturating_add(header.length), script)
    }

    /// Bytes of the message so far, including those of a cut stamp.
    fn taken(&self) -> u64 {
        self.position + self.rare.as_ref().map_or(0, |rare| rare.cut_stamp.len() as u64)
    }

    fn check_length(&self, length: u64, script: &Script) -> Result<(), Failure> {
        if length > script.longest {
            let most = if script.length > 0 { script.length as u64 } else { script.longest };
            return Err(Failure::new(Kind::Oversized, format!("{length} bytes instead of {most}")));
        }
        Ok(())
    }

    fn inflate(&mut self, piece: &[u8], script: &Script, message: Message) -> Result<(), Failure> {
        let mut inflater = self.rare().inflater.take().expect("checked in the header");
        let end = self.fin && self.left == 0;
        let result = inflater.piece(piece, end, |part| {
            self.check_length(self.taken() + part.len() as u64, script)?;
            if script.hands_over() {
                self.position += part.len() as u64;
                self.rare().notice.extend_from_slice(part);
                return Ok(());
            }
            self.compare(part, script, message)
        });
        self.rare().inflater = Some(inflater);
        result
    }

    #[inline]
    fn compare(&mut self, piece: &[u8], script: &Script, message: Message) -> Result<(), Failure> {
        if self.position == 0 && (piece.len() < script.stamp_length() || self.has_cut_stamp()) {
            return self.gather_stamp(piece, script, message);
        }
        self.compare_whole(piece, script, message)
    }

    #[inline]
    fn has_cut_stamp(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.cut_stamp.is_empty())
    }

    /// A stamp in pieces is compared when it is complete, or when the message is. Before that,
    /// nothing identifies its message.
    #[cold]
    fn gather_stamp(&mut self, piece: &[u8], script: &Script, message: Message) -> Result<(), Failure> {
        let cut_stamp = &mut self.rare().cut_stamp;
        let (front, rest) = piece.split_at(piece.len().min(script.stamp_length() - cut_stamp.len()));
        cut_stamp.extend_from_slice(front);
        if cut_stamp.len() < script.stamp_length() {
            return Ok(());
        }
        self.compare_stamp(script, message)?;
        if rest.is_empty() { Ok(()) } else { self.compare_whole(rest, script, message) }
    }

    #[cold]
    fn compare_stamp(&mut self, script: &Script, message: Message) -> Result<(), Failure> {
        let stamp = std::mem::take(&mut self.rare().cut_stamp);
        self.compare_whole(&stamp, script, message)
    }

    #[inline]
    fn compare_whole(&mut self, piece: &[u8], script: &Script, message: Message) -> Result<(), Failure> {
        let expected = Message { sequence: message.sequence.wrapping_add_signed(self.shift), ..message };
        if !self.differs && !script.matches(expected, self.position as usize, piece) {
            self.differs = true;
            self.find_its_message(piece, script, message);
            // As long as nothing differed, the text equals the one sent; it may end inside a character.
            if self.differs && self.position > 0 && self.message_opcode == frame::TEXT {
                let cut = script.character_before(expected, self.position as usize);
                self.rare().cut_character = cut.to_vec();
            }
        }
        if self.differs && self.message_opcode == frame::TEXT {
            self.check_utf8(piece)?;
        }
        self.position += piece.len() as u64;
        Ok(())
    }

    /// An unexpected reply may still be the correct one to another message: its stamp identifies that message.
    #[cold]
    fn find_its_message(&mut self, piece: &[u8], script: &Script, message: Message) {
        if self.position > 0 {
            return;
        }
        if let Some(sequence) = script.sequence_in(piece, message) {
            self.shift = sequence as i64 - message.sequence as i64;
            self.differs = !script.matches(Message { sequence, ..message }, 0, piece);
        }
    }

    /// RFC 6455 §8.1, piece by piece: a character that a piece cuts is kept for the next.
    #[cold]
    fn check_utf8(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let mut bytes = std::mem::take(&mut self.rare().cut_character);
        let before = bytes.len();
        bytes.extend_from_slice(piece);
        if let Err(error) = std::str::from_utf8(&bytes) {
            if error.error_len().is_some() {
                let at = self.position as usize - before + error.valid_up_to();
                return Err(Failure::new(Kind::BadUtf8, format!("a text message, at byte {at}")));
            }
            self.rare().cut_character = bytes[error.valid_up_to()..].to_vec();
        }
        Ok(())
    }

    #[inline]
    fn complete(&mut self, script: &Script) -> Result<Option<Incoming<'static>>, Failure> {
        match self.opcode {
            frame::PING => return Ok(Some(Incoming::Ping(std::mem::take(&mut self.rare().control)))),
            frame::CLOSE => return Ok(Some(Incoming::Close(std::mem::take(&mut self.rare().control)))),
            frame::PONG => {
                self.rare().control.clear();
                return Ok(None);
            }
            _ if !self.fin => return Ok(None),
            _ => {}
        }
        let opcode = std::mem::take(&mut self.message_opcode);
        self.compressed = false;
        if let Some(rare) = &mut self.rare {
            if !rare.cut_character.is_empty() {
                return Err(Failure::new(Kind::BadUtf8, "a text message that ends inside a character"));
            }
            if script.hands_over() {
                return Ok(Some(Incoming::Notice(Cow::Owned(std::mem::take(&mut rare.notice)))));
            }
        }
        let wrong = if opcode != script.opcode {
            Some(Failure::new(Kind::ReplyOpcode, format!("opcode {opcode} instead of {}", script.opcode)))
        } else if self.position != script.length as u64 {
            Some(Failure::new(Kind::ReplyLength, format!("{} bytes instead of {}", self.position, script.length)))
        } else if self.differs {
            Some(Failure::new(Kind::ReplyContent, format!("{} bytes, not those that were sent", self.position)))
        } else {
            None
        };
        Ok(Some(Incoming::Reply { wrong, fragmented: self.fragmented, shift: self.shift }))
    }
}
