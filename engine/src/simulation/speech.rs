//! What servers say: frames, whole or in pieces, or the misdeed in place of what is right.

use super::frames::{frame, frame_of};
use super::peer::Misdeed;
use super::times::Unit;
use super::world::{Piece, World};
use crate::conversing::ANSWERS_BYTES;

/// What a server that never reads asks for at least.
const ASKED_BYTES: usize = 3 * ANSWERS_BYTES;
/// In so many pieces a record comes at most.
const MOST_PIECES: usize = 60;

/// A unit of a server's output.
pub enum Answer {
    Bytes(Vec<u8>),
    /// A message, by its opcode.
    Message(u8, Vec<u8>),
}

/// The correct answer to the oldest message, or the misdeed in its place.
pub fn answer(world: &mut World, wire: usize, answer: Answer) {
    say_unit(world, wire, answer, Some(Unit::Answer));
}

/// What is right, or the misdeed in its place.
pub fn say_unit(world: &mut World, wire: usize, answer: Answer, unit: Option<Unit>) {
    let right = match answer {
        Answer::Bytes(bytes) => bytes,
        Answer::Message(opcode, payload) => in_pieces(world, wire, opcode, &payload),
    };
    let peer = &mut world.wires[wire].peer;
    if peer.patience > 0 || peer.misdeed.is_none() {
        peer.patience = peer.patience.saturating_sub(1);
        return world.say_unit(wire, &right, unit);
    }
    let misdeed = peer.misdeed.expect("it was looked at");
    use Misdeed::{AsksOnly, Ends, HalfAReply, LongClose, Resets, ResetsBehindAReply};
    peer.mute |= matches!(misdeed, AsksOnly | Ends | HalfAReply | LongClose | Resets | ResetsBehindAReply);
    match misdeed {
        Misdeed::Silent => {}
        Resets => world.arrive(wire, Piece::Reset),
        ResetsBehindAReply => {
            // All at once: the reply, additional data, and the end.
            let mut words = [&right[..], b"\x81\x00and more"].concat();
            if let Some(sealed) = &mut peer.sealed {
                words = sealed.seal(&words);
            }
            world.arrive(wire, Piece::Bytes(words));
            world.arrive_after(wire, Piece::Reset, 0);
        }
        Ends => world.arrive(wire, Piece::End),
        Misdeed::Garbage => {
            let count = world.random.usize(1..300);
            let garbage: Vec<u8> = (0..count).map(|_| world.random.u8(..)).collect();
            if world.random.bool() {
                world.say(wire, &garbage);
            } else {
                // Under TLS: bytes that are not a record, or a foreign record.
                world.deliver(wire, &garbage);
            }
        }
        Misdeed::AlteredByte => {
            let mut altered = right;
            let sealed = peer.sealed.as_mut().filter(|_| world.random.bool());
            let is_sealed = sealed.is_some();
            if let Some(sealed) = sealed {
                altered = sealed.seal(&altered);
            }
            let at = world.random.usize(..altered.len());
            altered[at] ^= 1 << world.random.u32(..8);
            if is_sealed { world.deliver(wire, &altered) } else { world.say(wire, &altered) }
        }
        Misdeed::Twice => {
            world.say_unit(wire, &right, unit);
            world.say_unit(wire, &right, unit);
        }
        HalfAReply => world.say(wire, &right[..right.len() / 2]),
        Misdeed::Pings => {
            let flood = frame(9, b"are you there?").repeat(world.random.usize(1..20_000));
            world.say(wire, &flood);
            world.say(wire, &right);
        }
        LongClose => world.say(wire, &frame(8, &[3u8; 125])),
        Misdeed::Reserved => world.say(wire, &[0xf1, 0x01, b'x']),
        Misdeed::HugeLength => world.say(wire, &[0x81, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        Misdeed::EmptyFragments => {
            let mut many = vec![0x01, 0x00];
            many.extend([0x00, 0x00].repeat(world.random.usize(1..5000)));
            world.say(wire, &many);
        }
        AsksOnly => {
            world.wires[wire].room_ns = u64::MAX;
            if let Some(length @ 1000..) = world.conduct.asks {
                world.reach("a server asks and does not read");
                let question = question(world, wire);
                world.say(wire, &question.repeat(ASKED_BYTES / length));
            }
        }
        Misdeed::Refuses | Misdeed::NeverConnects | Misdeed::SpeaksFirst | Misdeed::BadHandshake => {
            world.say(wire, &right);
        }
    }
}

/// A message that a client answers.
pub fn question(world: &mut World, wire: usize) -> Vec<u8> {
    let opcode = world.wires[wire].peer.opcode;
    let text: &[u8] = if world.conduct.lines { b"p\r\n" } else { b"p" };
    framed(world, wire, opcode, text)
}

/// A message in several ones, if they are parts of a stream.
fn in_pieces(world: &mut World, wire: usize, opcode: u8, mut payload: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    if world.conduct.lines && world.random.u32(..4) == 0 {
        let pieces = world.random.usize(..MOST_PIECES);
        world.reach("a record comes in pieces");
        for _ in 0..pieces {
            let (piece, rest) = payload.split_at(world.random.usize(..=payload.len() / 4));
            made.extend(framed(world, wire, opcode, piece));
            payload = rest;
        }
    }
    made.extend(framed(world, wire, opcode, payload));
    made
}

/// A message as frames: compressed if negotiated, whole or fragmented, possibly with a Ping between.
fn framed(world: &mut World, wire: usize, opcode: u8, payload: &[u8]) -> Vec<u8> {
    let World { random, wires, said, .. } = world;
    *said += payload.len() as u64;
    let mut first = opcode;
    let payload = match &mut wires[wire].peer.deflated {
        Some(deflated) if random.u32(..4) > 0 => {
            first |= 0x40;
            deflated.deflate(payload, random)
        }
        _ => payload.to_vec(),
    };
    let cuts = if random.u32(..6) == 0 { random.usize(1..4) } else { 0 };
    let mut made = Vec::new();
    let mut rest = payload.as_slice();
    for cut in 0..=cuts {
        let (piece, after) = rest.split_at(if cut == cuts { rest.len() } else { random.usize(..=rest.len()) });
        made.extend(frame_of(if cut == cuts { 0x80 } else { 0 } | if cut == 0 { first } else { 0 }, piece));
        if cut < cuts && random.bool() {
            made.extend(frame(9, b"between"));
        }
        rest = after;
    }
    made
}
