//! What is written for the connection that is being served, until the kernel has it: masked frames, and the buffers that
//! they are made in.

use crate::connection::{Kept, Pending};
use crate::deflate::Deflater;
use crate::frame;
use crate::plan::{Mask, Plan};
use crate::scenario::{Mark, Message, Script};
use std::io;

/// A long message is masked and sent in pieces of this size. The kernel then reads bytes that are
/// still in the core's cache, and the first ones leave at once.
pub const PIECE_BYTES: usize = 256 << 10;

pub struct Outbox {
    /// Empty between connections.
    pub bytes: Vec<u8>,
    /// Why the kernel refused a piece of the message that is being written; `None` between connections.
    pub refused: Option<io::Error>,
    /// A message that is compressed or fragmented, or not kept in its script; and what it becomes.
    pub whole: Vec<u8>,
    small: Vec<u8>,
    /// If messages are compressed: for all connections that keep no context, because a context takes a quarter of a
    /// megabyte, and one that is used all the time stays in the core's cache.
    deflater: Option<Deflater>,
    mask: Mask,
    fragment_bytes: usize,
    opcode: u8,
}

impl Outbox {
    pub fn new(plan: &Plan, script: &Script) -> Outbox {
        Outbox {
            bytes: Vec::new(),
            refused: None,
            whole: Vec::new(),
            small: Vec::new(),
            deflater: plan.deflate.map(|wanted| Deflater::new(wanted.level, false)),
            mask: plan.mask,
            fragment_bytes: plan.fragment_bytes.unwrap_or(usize::MAX),
            opcode: script.opcode,
        }
    }

    /// What was written is for nobody.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.refused = None;
    }

    /// RFC 6455 §5.3 requires a fresh key for every frame; the two others are for comparison and are part of the result.
    #[inline]
    pub fn key(&self, random: &mut fastrand::Rng) -> [u8; 4] {
        match self.mask {
            Mask::Random => random.u32(..).to_ne_bytes(),
            Mask::Fixed => [0x37, 0xfa, 0x21, 0x3d],
            Mask::Zero => [0; 4],
        }
    }

    /// Writes the front of a message with this mark: its header and its stamp. Returns the position in the message behind it.
    #[inline]
    pub fn front(&mut self, script: &Script, mark: &Mark, key: [u8; 4]) -> usize {
        script.head.write(&mut self.bytes, key, mark.stamp);
        mark.stamp.len()
    }

    /// Writes its next piece, which begins at this position. Returns how long it is.
    #[inline]
    pub fn piece(&mut self, script: &Script, mark: &Mark, key: [u8; 4], position: usize) -> usize {
        let piece = script.content(mark, position, (script.length - position).min(PIECE_BYTES));
        frame::write_masked(&mut self.bytes, piece, key, position);
        piece.len()
    }

    /// Writes consecutive messages of a connection, from `first` on, in the places of answered ones. `like` has what they
    /// have in common, and ends where they begin.
    #[inline]
    pub fn next_messages<const MESSAGES: usize>(
        &mut self,
        script: &Script,
        random: &mut fastrand::Rng,
        first: Message,
        like: Pending,
        places: &mut [Pending; MESSAGES],
    ) {
        for (place, mark) in places.iter_mut().zip(script.marks::<MESSAGES>(first)) {
            let key = self.key(random);
            let mut position = self.front(script, &mark, key);
            while position < script.length {
                position += self.piece(script, &mark, key, position);
            }
            let end = like.end.wrapping_add(self.bytes.len() as u32);
            *place = Pending { end, kept: Kept::Mark(mark), ..like };
        }
    }

    pub fn one_frame(&mut self, key: [u8; 4]) {
        frame::write_header(&mut self.bytes, frame::WHOLE | self.opcode, self.whole.len(), key);
        frame::write_masked(&mut self.bytes, &self.whole, key, 0);
    }

    /// Writes the message in `whole`: as it is, or compressed, or fragmented, or both (RFC 7692 §6.1: in this order). `own`
    /// is the connection's compressor, if it keeps a context.
    pub fn message(&mut self, own: Option<&mut Deflater>, random: &mut fastrand::Rng) {
        let mut first = self.opcode;
        if let Some(deflater) = own.or(self.deflater.as_mut()) {
            deflater.message(&self.whole, &mut self.small);
            std::mem::swap(&mut self.whole, &mut self.small);
            first |= frame::COMPRESSED;
        }
        let mut rest = self.whole.as_slice();
        loop {
            let (piece, after) = rest.split_at(rest.len().min(self.fragment_bytes));
            let last = if after.is_empty() { frame::WHOLE } else { 0 };
            let key = self.key(random);
            frame::write_header(&mut self.bytes, first | last, piece.len(), key);
            frame::write_masked(&mut self.bytes, piece, key, 0);
            if after.is_empty() {
                return;
            }
            (rest, first) = (after, frame::CONTINUATION);
        }
    }
}
