//! WebSocket frames from the other end (RFC 6455 §5.2): what a server sends, and how it reads a
//! client's. A second implementation, so that it does not share a misreading with the engine.

use std::collections::VecDeque;

/// A frame of a server (RFC 6455 §5.2): not masked.
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    frame_of(0x80 | opcode, payload)
}

pub fn frame_of(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut made = vec![first];
    match payload.len() {
        short @ ..126 => made.push(short as u8),
        middle @ ..0x1_0000 => {
            made.push(126);
            made.extend((middle as u16).to_be_bytes());
        }
        long => {
            made.push(127);
            made.extend((long as u64).to_be_bytes());
        }
    }
    made.extend_from_slice(payload);
    made
}

/// The next whole frame of a client: its first byte, and its payload, unmasked.
pub fn client_frame(taken: &mut VecDeque<u8>) -> Option<(u8, Vec<u8>)> {
    let head: Vec<u8> = taken.iter().take(14).copied().collect();
    let (&first, &second) = (head.first()?, head.get(1)?);
    assert!(second & 0x80 != 0, "a client masks");
    let (length, at) = match second & 0x7f {
        126 => (usize::from(u16::from_be_bytes(head.get(2..4)?.try_into().ok()?)), 4),
        127 => (u64::from_be_bytes(head.get(2..10)?.try_into().ok()?) as usize, 10),
        short => (usize::from(short), 2),
    };
    let key: [u8; 4] = head.get(at..at + 4)?.try_into().ok()?;
    if taken.len() < at + 4 + length {
        return None;
    }
    taken.drain(..at + 4);
    let mut payload: Vec<u8> = taken.drain(..length).collect();
    payload.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= key[at % 4]);
    Some((first, payload))
}
