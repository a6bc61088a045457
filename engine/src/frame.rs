//! WebSocket frames (RFC 6455 §5), without I/O: parses the header of an incoming frame and builds
//! masked frames. It has no notion of messages, connections or time.

use crate::failure::{Failure, Kind};
use serde::Deserialize;
use std::mem::MaybeUninit;

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// Flags next to the opcode in the first byte: the last frame of a message, and the first of a compressed one.
pub const WHOLE: u8 = 0x80;
pub const COMPRESSED: u8 = 0x40;

/// A header from a server, which never masks, has at most 2 + 8 bytes.
pub const LONGEST_HEADER: usize = 10;

/// That of a plan's messages.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Opcode {
    Text,
    Binary,
}

impl Opcode {
    pub fn number(self) -> u8 {
        if self == Opcode::Text { TEXT } else { BINARY }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    pub fin: bool,
    /// RSV1, which permessage-deflate uses (RFC 7692 §6).
    pub compressed: bool,
    pub opcode: u8,
    pub length: u64,
    /// Bytes the header itself takes.
    pub size: usize,
}

/// The header at the front of `bytes`; `None` if more bytes are needed. A header that no server may send is an error.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, Failure> {
    let [first, second, ..] = *bytes else { return Ok(None) };
    let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
    let compressed = first & 0x40 != 0;
    if first & 0x30 != 0 {
        return Err(Failure::new(Kind::ReservedBits, format!("first byte {first:#04x}")));
    }
    if matches!(opcode, 3..=7 | 11..) {
        return Err(Failure::new(Kind::BadOpcode, format!("opcode {opcode}")));
    }
    if second & 0x80 != 0 {
        return Err(Failure::new(Kind::MaskedFrame, format!("opcode {opcode}")));
    }
    if opcode >= CLOSE && (!fin || second > 125) {
        return Err(Failure::new(Kind::BadControl, format!("opcode {opcode}, fin {fin}, length byte {second}")));
    }
    let (length, size) = match second {
        126 if bytes.len() >= 4 => (u64::from(u16::from_be_bytes([bytes[2], bytes[3]])), 4),
        127 if bytes.len() >= 10 => (u64::from_be_bytes(bytes[2..10].try_into().expect("eight bytes")), 10),
        126 | 127 => return Ok(None),
        short => (u64::from(short), 2),
    };
    // §5.2: in as few bytes as it takes, and less than 2⁶³.
    if size > 2 && (length <= if size == 4 { 125 } else { 65_535 } || length > i64::MAX as u64) {
        return Err(Failure::new(Kind::BadFrame, format!("a length of {length} in {} bytes", size - 2)));
    }
    Ok(Some(Header { fin, compressed, opcode, length, size }))
}

/// The header of all frames with the same first byte and the same length.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// As a server sends it; behind its size they mean nothing.
    bytes: [u8; LONGEST_HEADER],
    size: usize,
}

impl Head {
    pub fn new(first: u8, length: usize) -> Head {
        let mut bytes = [0; LONGEST_HEADER];
        bytes[0] = first;
        let size = match length {
            0..=125 => {
                bytes[1] = length as u8;
                2
            }
            126..=65_535 => {
                bytes[1] = 126;
                bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
                4
            }
            _ => {
                bytes[1] = 127;
                bytes[2..].copy_from_slice(&(length as u64).to_be_bytes());
                LONGEST_HEADER
            }
        };
        Head { bytes, size }
    }

    /// What follows this header at the front of `frame`, if that has at least as many bytes as the longest header.
    #[inline]
    pub fn strip<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let front = frame.first_chunk::<LONGEST_HEADER>()?;
        // Each of them is one comparison.
        let is_it = match self.size {
            2 => front[..2] == self.bytes[..2],
            4 => front[..4] == self.bytes[..4],
            _ => *front == self.bytes,
        };
        is_it.then(|| &frame[self.size..])
    }

    /// Appends the front of a masked frame: this header, the key, and the first bytes of a payload that has at least as
    /// many. On the hot path: each byte is stored in its place, once; the key overwrites what a short header leaves.
    #[inline]
    pub fn write<const FRONT: usize>(&self, out: &mut Vec<u8>, key: [u8; 4], front: [u8; FRONT]) {
        let most = LONGEST_HEADER + key.len() + FRONT;
        out.reserve(most);
        let room = &mut out.spare_capacity_mut()[..most];
        let mut header = self.bytes;
        header[1] |= 0x80;
        room[..LONGEST_HEADER].copy_from_slice(&header.map(MaybeUninit::new));
        let (key_at, front_at) = (self.size, self.size + key.len());
        room[key_at..front_at].copy_from_slice(&key.map(MaybeUninit::new));
        let masked: [u8; FRONT] = std::array::from_fn(|at| front[at] ^ key[at % 4]);
        room[front_at..front_at + FRONT].copy_from_slice(&masked.map(MaybeUninit::new));
        // SAFETY: that many bytes were reserved, and have just been written.
        unsafe { out.set_len(out.len() + front_at + FRONT) };
    }
}

/// Appends the header of a masked frame whose first byte is `first`.
#[inline]
pub fn write_header(out: &mut Vec<u8>, first: u8, length: usize, key: [u8; 4]) {
    Head::new(first, length).write(out, key, []);
}

/// Appends `payload`, masked; `offset` is its position in the frame's whole payload.
#[inline]
pub fn write_masked(out: &mut Vec<u8>, payload: &[u8], key: [u8; 4], offset: usize) {
    let key = u32::from_ne_bytes(key).rotate_right(8 * (offset as u32 % 4));
    let wide = u64::from(key) | u64::from(key) << 32;
    out.reserve(payload.len());
    let (words, rest) = payload.as_chunks::<8>();
    let (masked, _) = out.spare_capacity_mut().as_chunks_mut::<8>();
    for (masked, word) in masked.iter_mut().zip(words) {
        *masked = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes().map(MaybeUninit::new);
    }
    // SAFETY: that many bytes were reserved, and have just been written.
    unsafe { out.set_len(out.len() + words.len() * 8) };
    out.extend(rest.iter().zip(wide.to_ne_bytes()).map(|(byte, key)| byte ^ key));
}

/// Appends a whole masked frame.
pub fn write(out: &mut Vec<u8>, opcode: u8, payload: &[u8], key: [u8; 4]) {
    write_header(out, WHOLE | opcode, payload.len(), key);
    write_masked(out, payload, key, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_class_is_read_and_a_cut_header_waits_for_more() {
        for (length, size) in [(0u64, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10), (1 << 40, 10)] {
            let mut bytes = vec![0x82];
            match size {
                2 => bytes.push(length as u8),
                4 => bytes.extend([&[126], &(length as u16).to_be_bytes()[..]].concat()),
                _ => bytes.extend([&[127], &length.to_be_bytes()[..]].concat()),
            }
            for cut in 0..size {
                assert_eq!(parse(&bytes[..cut]).unwrap(), None, "{length} cut at {cut}");
            }
            let header = Header { fin: true, compressed: false, opcode: BINARY, length, size };
            assert_eq!(parse(&bytes).unwrap(), Some(header));
            bytes.extend_from_slice(b"0123456789");
            assert_eq!(Head::new(WHOLE | BINARY, length as usize).strip(&bytes), Some(&b"0123456789"[..]));
            for at in 0..size {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert_eq!(Head::new(WHOLE | BINARY, length as usize).strip(&other), None);
            }
        }
    }

    #[test]
    fn what_a_server_must_not_send_is_named() {
        let kind = |bytes: &[u8]| parse(bytes).unwrap_err().kind;
        assert_eq!(kind(&[0xa1, 1]), Kind::ReservedBits);
        assert_eq!(kind(&[0x83, 1]), Kind::BadOpcode);
        assert_eq!(kind(&[0x8b, 1]), Kind::BadOpcode);
        assert_eq!(kind(&[0x81, 0x81]), Kind::MaskedFrame);
        assert_eq!(kind(&[0x09, 1]), Kind::BadControl);
        assert_eq!(kind(&[0x89, 126]), Kind::BadControl);
        assert_eq!(kind(&[0x81, 126, 0, 125]), Kind::BadFrame);
        assert_eq!(kind(&[0x81, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff]), Kind::BadFrame);
        assert_eq!(kind(&[0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]), Kind::BadFrame);
    }

    #[test]
    fn masking_in_pieces_equals_masking_byte_by_byte() {
        let payload: Vec<u8> = (0..200u8).collect();
        let key = [0x12, 0x34, 0x56, 0x78];
        for length in 0..payload.len() {
            for cut in [0, length / 3, length / 2, length] {
                let mut out = Vec::new();
                write_masked(&mut out, &payload[..cut], key, 0);
                write_masked(&mut out, &payload[cut..length], key, cut);
                let expected: Vec<u8> = (0..length).map(|i| payload[i] ^ key[i % 4]).collect();
                assert_eq!(out, expected, "length {length}, cut {cut}");
            }
        }
    }

    #[test]
    fn a_front_is_what_header_and_masked_bytes_are() {
        let (key, front) = ([0x12, 0x34, 0x56, 0x78], *b"0123456789abcdef");
        for length in [16, 125, 126, 70_000] {
            let (mut out, mut expected) = (vec![7], vec![7]);
            Head::new(WHOLE | TEXT, length).write(&mut out, key, front);
            write_header(&mut expected, WHOLE | TEXT, length, key);
            write_masked(&mut expected, &front, key, 0);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn a_written_frame_has_the_header_it_should() {
        for (length, expected) in [(125, vec![0x81, 0xfd]), (126, vec![0x81, 0xfe, 0, 126])] {
            let mut out = Vec::new();
            write(&mut out, TEXT, &vec![b'a'; length], [0; 4]);
            assert_eq!(&out[..expected.len()], expected);
            assert_eq!(out.len(), expected.len() + 4 + length);
        }
    }
}
