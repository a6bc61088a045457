//! The other ends of the sockets: correct and misbehaving servers, chosen by the seed. They share
//! only the accept value of a handshake with the engine's code.

use super::frames::{client_frame, frame, frame_of};
use super::hub;
use super::times::Unit;
use super::world::{AHEAD_OF_EPOCH_NS, Piece, World};
use super::wrapping::{Deflated, Sealed};
use crate::conversing::ANSWERS_BYTES;
use crate::handshake;
use crate::plan::{Plan, Scenario, Transport};
use crate::session::records::Records;
use crate::session::template::Piece as Part;
use crate::session::{Await, Session};
use fastrand::Rng;
use std::collections::VecDeque;

/// The task of a server, and whether it is honest.
#[derive(Clone)]
pub struct Conduct {
    pub transport: Transport,
    pub work: Work,
    /// One connection in this many meets a misdeed; none at 0.
    pub hostile_one_in: u32,
    /// An HTTP server announces after this many documents that it closes.
    pub documents: Option<u32>,
    pub tls: bool,
    /// If its clients are in rooms.
    pub hub: Option<Hub>,
    /// If it may ask its clients: the length of their answers.
    pub asks: Option<usize>,
    /// Its messages are parts of a stream of lines.
    pub lines: bool,
}

/// The beginning of a client's answer.
pub const ANSWER: &str = "pong";
/// What a server that never reads asks for at least.
const ASKED_BYTES: usize = 3 * ANSWERS_BYTES;
/// In so many pieces a record comes at most.
const MOST_PIECES: usize = 60;

/// How a server of rooms distributes messages.
#[derive(Clone, Copy)]
pub struct Hub {
    pub rooms: u32,
    pub own: bool,
    pub deed: Deed,
    /// A publisher awaits its own copy, and no other answer.
    pub answers_by_copy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deed {
    Right,
    /// Everybody has everything.
    Leaks,
    /// All rooms but the right one have it.
    WrongRooms,
    /// Some have it twice, and others not at all.
    TwiceForNone,
    /// The publisher has it, in place of another member or besides.
    Own,
    Loses,
    /// Some copies are late: for a moment, or until another slice.
    Late(u64),
}

#[derive(Clone, Copy, PartialEq)]
pub enum Work {
    Rooms,
    Echo,
    Ping,
    Push,
    Document { bytes: usize },
}

impl Conduct {
    pub fn of(plan: &Plan, hostile_one_in: u32, documents: Option<u32>, random: &mut Rng) -> Conduct {
        let rooms = plan.session().and_then(|session| session.rooms);
        let deeds = [
            Deed::Leaks,
            Deed::WrongRooms,
            Deed::TwiceForNone,
            Deed::Own,
            Deed::Loses,
            Deed::Late(50),
            Deed::Late(300),
        ];
        let deed = if hostile_one_in > 0 { deeds[random.usize(..deeds.len())] } else { Deed::Right };
        let awaits_own = |session: &Session| session.body()[0].awaits == Await::Own {};
        let answers_by_copy = plan.session().is_some_and(awaits_own);
        let hub = rooms.map(|rooms| Hub { rooms: rooms.count, own: rooms.own, deed, answers_by_copy });
        let hostile_one_in = if hub.is_some() { 0 } else { hostile_one_in };
        let work = match &plan.scenario {
            Scenario::Session(_) if hub.is_some() => Work::Rooms,
            Scenario::Echo { .. } | Scenario::Session(_) => Work::Echo,
            Scenario::Push { .. } => Work::Push,
            Scenario::Doc { bytes, .. } => Work::Document { bytes: *bytes as usize },
            Scenario::Ping {} | Scenario::Idle {} => Work::Ping,
        };
        let echo = plan.session().filter(|_| hub.is_none());
        let letters = |part: &Part| if let Part::Letters(count) = part { Some(*count) } else { None };
        let asks = echo.and_then(|session| session.templates[1].iter().find_map(letters));
        let lines = echo.is_some_and(|session| session.records != Records::Message {});
        Conduct {
            transport: plan.transport,
            work,
            hostile_one_in,
            documents,
            tls: plan.tls.is_some(),
            hub,
            asks,
            lines,
        }
    }
}

/// Misdeeds of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Misdeed {
    Refuses,
    NeverConnects,
    /// Sends the correct reply before any request.
    SpeaksFirst,
    BadHandshake,
    Silent,
    Resets,
    ResetsBehindAReply,
    Ends,
    Garbage,
    AlteredByte,
    Twice,
    HalfAReply,
    Pings,
    LongClose,
    Reserved,
    HugeLength,
    EmptyFragments,
    /// Asks, and reads nothing any more.
    AsksOnly,
}

const MISDEEDS: &[Misdeed] = &[
    Misdeed::Refuses,
    Misdeed::NeverConnects,
    Misdeed::SpeaksFirst,
    Misdeed::BadHandshake,
    Misdeed::Silent,
    Misdeed::Resets,
    Misdeed::ResetsBehindAReply,
    Misdeed::Ends,
    Misdeed::Garbage,
    Misdeed::AlteredByte,
    Misdeed::Twice,
    Misdeed::HalfAReply,
    Misdeed::Pings,
    Misdeed::LongClose,
    Misdeed::Reserved,
    Misdeed::HugeLength,
    Misdeed::EmptyFragments,
    Misdeed::AsksOnly,
];

/// A server's side of one connection.
pub struct Peer {
    /// The connection's number among those of the trial.
    pub number: u32,
    misdeed: Option<Misdeed>,
    /// Messages answered correctly before the misdeed.
    patience: u32,
    head: bool,
    taken: VecDeque<u8>,
    fragments: Vec<u8>,
    opcode: u8,
    compressed: bool,
    documents: u32,
    pub sealed: Option<Sealed>,
    deflated: Option<Deflated>,
    /// Whole messages received.
    pub messages: u64,
    /// It sends nothing more.
    mute: bool,
    /// The client has said that it closes.
    pub left: bool,
}

impl Peer {
    pub fn new(conduct: &Conduct, number: u32, random: &mut Rng) -> Peer {
        let hostile = conduct.hostile_one_in > 0 && random.u32(..conduct.hostile_one_in) == 0;
        Peer {
            number,
            misdeed: hostile.then(|| MISDEEDS[random.usize(..MISDEEDS.len())]),
            patience: random.u32(..12),
            head: conduct.transport != Transport::Tcp,
            taken: VecDeque::new(),
            fragments: Vec::new(),
            opcode: 0,
            compressed: false,
            documents: 0,
            sealed: conduct.tls.then(Sealed::new),
            deflated: None,
            messages: 0,
            mute: false,
            left: false,
        }
    }

    pub fn refuses(&self) -> bool {
        self.misdeed == Some(Misdeed::Refuses)
    }

    pub fn never_connects(&self) -> bool {
        self.misdeed == Some(Misdeed::NeverConnects)
    }

    pub fn connected(world: &mut World, wire: usize) {
        if world.wires[wire].peer.misdeed == Some(Misdeed::SpeaksFirst) {
            let (work, transport) = (world.conduct.work, world.conduct.transport);
            let words = match (work, transport) {
                (Work::Document { bytes }, _) => document(bytes, false),
                (_, Transport::Tcp) => b"Pong".to_vec(),
                _ => frame(1, b"Pong"),
            };
            world.say(wire, &words);
        }
    }

    /// Bytes that a client has sent.
    pub fn take(world: &mut World, wire: usize, bytes: &[u8]) {
        let peer = &mut world.wires[wire].peer;
        match &mut peer.sealed {
            None => peer.taken.extend(bytes),
            Some(sealed) => {
                peer.taken.extend(sealed.open(bytes));
                let words = sealed.words();
                world.deliver(wire, &words);
            }
        }
        while !world.wires[wire].peer.mute && Peer::act(world, wire) {}
        // Requests that it received and no longer reads still count as requests.
        while world.wires[wire].peer.mute
            && world.conduct.transport == Transport::Http
            && let Some(end) = end_of_head(&mut world.wires[wire].peer.taken)
        {
            world.wires[wire].peer.taken.drain(..end);
            world.leaves(wire);
        }
    }

    /// The client has sent its last byte.
    pub fn ended(world: &mut World, wire: usize) {
        if !world.wires[wire].peer.mute {
            world.wires[wire].peer.mute = true;
            world.arrive(wire, Piece::End);
        }
    }

    /// Processes one unit; false if it needs more bytes.
    fn act(world: &mut World, wire: usize) -> bool {
        let (work, transport) = (world.conduct.work, world.conduct.transport);
        let peer = &mut world.wires[wire].peer;
        match transport {
            Transport::Tcp => {
                if peer.taken.len() < 4 {
                    return false;
                }
                let message: Vec<u8> = peer.taken.drain(..4).collect();
                assert_eq!(message, b"Ping");
                world.leaves(wire);
                Peer::answer(world, wire, Answer::Bytes(b"Pong".to_vec()));
            }
            Transport::Http => {
                let Some(end) = end_of_head(&mut peer.taken) else { return false };
                let head: Vec<u8> = peer.taken.drain(..end).collect();
                let head = String::from_utf8(head).expect("a request is text").to_lowercase();
                assert!(head.starts_with("get "), "{head}");
                let Work::Document { bytes } = work else { unreachable!("http is doc") };
                peer.documents += 1;
                let documents = peer.documents;
                world.leaves(wire);
                let asked = head.contains("connection: close");
                let closes = asked || world.conduct.documents.is_some_and(|most| documents >= most);
                Peer::answer(world, wire, Answer::Bytes(document(bytes, closes)));
                if closes && !world.wires[wire].peer.mute {
                    world.wires[wire].peer.mute = true;
                    world.arrive(wire, Piece::End);
                }
            }
            Transport::Websocket if peer.head => {
                let Some(end) = end_of_head(&mut peer.taken) else { return false };
                let head: Vec<u8> = peer.taken.drain(..end).collect();
                let head = String::from_utf8(head).expect("a request is text");
                peer.head = false;
                let key = head.split("Sec-WebSocket-Key: ").nth(1).and_then(|rest| rest.lines().next()).expect("a key");
                let bad = peer.misdeed == Some(Misdeed::BadHandshake);
                let accept = if bad { "bm90IHRoYXQ=".into() } else { handshake::accept(key) };
                let agreed = Deflated::agreed(&head, &mut world.random);
                let extension = agreed.as_ref().map_or(String::new(), |deflated| deflated.answer());
                peer.deflated = agreed;
                let words = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{extension}Sec-WebSocket-Accept: {accept}\r\n\r\n"
                );
                world.say(wire, words.as_bytes());
            }
            Transport::Websocket => {
                let Some((first, payload)) = client_frame(&mut peer.taken) else { return false };
                let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
                match opcode {
                    8 => {
                        (peer.mute, peer.left) = (true, true);
                        world.say(wire, &frame(8, &payload));
                        world.arrive(wire, Piece::End);
                    }
                    10 => {}
                    9 => world.say(wire, &frame(10, &payload)),
                    _ => {
                        if opcode != 0 {
                            (peer.opcode, peer.compressed) = (opcode, first & 0x40 != 0);
                        }
                        peer.fragments.extend_from_slice(&payload);
                        if fin {
                            let mut message = std::mem::take(&mut peer.fragments);
                            if peer.compressed {
                                message = peer.deflated.as_mut().expect("agreed upon").inflate(&message);
                            }
                            let opcode = peer.opcode;
                            Peer::message(world, wire, opcode, message);
                        }
                    }
                }
            }
        }
        true
    }

    /// Whether a reply that comes after the client's Close frame is one too many, and is to be told.
    pub fn says_twice(&self) -> bool {
        self.misdeed == Some(Misdeed::Twice)
    }

    fn message(world: &mut World, wire: usize, opcode: u8, message: Vec<u8>) {
        if world.conduct.asks.is_some() {
            if message.starts_with(ANSWER.as_bytes()) {
                return;
            }
            if world.random.u32(..10) == 0 {
                let question = Peer::question(world, wire);
                world.say(wire, &question);
            }
        }
        world.leaves(wire);
        match world.conduct.work {
            Work::Echo => Peer::answer(world, wire, Answer::Message(opcode, message)),
            Work::Rooms => hub::take(world, wire, opcode, &message),
            Work::Push => {
                let text = String::from_utf8(message).expect("a text");
                let token = text.strip_prefix("broadcast ").expect("a broadcast");
                let micros = (world.now + AHEAD_OF_EPOCH_NS) / 1000;
                let notice = format!("{micros} {token}").into_bytes();
                let (begun_ns, left_ns) = world.times.last_left();
                for member in 0..world.wires.len() {
                    if !world.wires[member].gone && !world.wires[member].peer.head && !world.wires[member].peer.mute {
                        let copy = world.times.copied(begun_ns, left_ns, None);
                        Peer::say_unit(world, member, Answer::Message(1, notice.clone()), Some(Unit::Copy(copy)));
                    }
                }
            }
            _ => {
                assert_eq!(message, b"Ping");
                Peer::answer(world, wire, Answer::Message(1, b"Pong".to_vec()));
            }
        }
    }

    /// A message that a client answers.
    fn question(world: &mut World, wire: usize) -> Vec<u8> {
        let opcode = world.wires[wire].peer.opcode;
        let text: &[u8] = if world.conduct.lines { b"p\r\n" } else { b"p" };
        Peer::framed(world, wire, opcode, text)
    }

    /// A message in several ones, if they are parts of a stream.
    fn in_pieces(world: &mut World, wire: usize, opcode: u8, mut payload: &[u8]) -> Vec<u8> {
        let mut made = Vec::new();
        if world.conduct.lines && world.random.u32(..4) == 0 {
            let pieces = world.random.usize(..MOST_PIECES);
            world.reach("a record comes in pieces");
            for _ in 0..pieces {
                let (piece, rest) = payload.split_at(world.random.usize(..=payload.len() / 4));
                made.extend(Peer::framed(world, wire, opcode, piece));
                payload = rest;
            }
        }
        made.extend(Peer::framed(world, wire, opcode, payload));
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

    /// Whether it is connected and takes part.
    pub fn is_member(&self) -> bool {
        !self.head && !self.mute
    }

    /// The correct answer to the oldest message, or the misdeed in its place.
    pub fn answer(world: &mut World, wire: usize, answer: Answer) {
        Peer::say_unit(world, wire, answer, Some(Unit::Answer));
    }

    /// What is right, or the misdeed in its place.
    pub fn say_unit(world: &mut World, wire: usize, answer: Answer, unit: Option<Unit>) {
        let right = match answer {
            Answer::Bytes(bytes) => bytes,
            Answer::Message(opcode, payload) => Peer::in_pieces(world, wire, opcode, &payload),
        };
        let peer = &mut world.wires[wire].peer;
        if peer.patience > 0 || peer.misdeed.is_none() {
            peer.patience = peer.patience.saturating_sub(1);
            return world.say_unit(wire, &right, unit);
        }
        let ends = |peer: &mut Peer| peer.mute = true;
        match peer.misdeed.expect("it was looked at") {
            Misdeed::Silent => {}
            Misdeed::Resets => {
                ends(peer);
                world.arrive(wire, Piece::Reset);
            }
            Misdeed::ResetsBehindAReply => {
                ends(peer);
                // All at once: the reply, additional data, and the end.
                let mut words = [&right[..], b"\x81\x00and more"].concat();
                if let Some(sealed) = &mut peer.sealed {
                    words = sealed.seal(&words);
                }
                world.arrive(wire, Piece::Bytes(words));
                world.arrive_after(wire, Piece::Reset, 0);
            }
            Misdeed::Ends => {
                ends(peer);
                world.arrive(wire, Piece::End);
            }
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
            Misdeed::HalfAReply => {
                ends(peer);
                world.say(wire, &right[..right.len() / 2]);
            }
            Misdeed::Pings => {
                let flood = frame(9, b"are you there?").repeat(world.random.usize(1..20_000));
                world.say(wire, &flood);
                world.say(wire, &right);
            }
            Misdeed::LongClose => {
                ends(peer);
                world.say(wire, &frame(8, &[3u8; 125]));
            }
            Misdeed::Reserved => world.say(wire, &[0xf1, 0x01, b'x']),
            Misdeed::HugeLength => world.say(wire, &[0x81, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            Misdeed::EmptyFragments => {
                let mut many = vec![0x01, 0x00];
                many.extend([0x00, 0x00].repeat(world.random.usize(1..5000)));
                world.say(wire, &many);
            }
            Misdeed::AsksOnly => {
                ends(peer);
                world.wires[wire].room_ns = u64::MAX;
                if let Some(length @ 1000..) = world.conduct.asks {
                    world.reach("a server asks and does not read");
                    let question = Peer::question(world, wire);
                    world.say(wire, &question.repeat(ASKED_BYTES / length));
                }
            }
            Misdeed::Refuses | Misdeed::NeverConnects | Misdeed::SpeaksFirst | Misdeed::BadHandshake => {
                world.say(wire, &right);
            }
        }
    }
}

/// A unit of a server's output.
pub enum Answer {
    Bytes(Vec<u8>),
    /// A message, by its opcode.
    Message(u8, Vec<u8>),
}

fn document(bytes: usize, closes: bool) -> Vec<u8> {
    let last = if closes { "Connection: close\r\n" } else { "" };
    let mut reply = format!("HTTP/1.1 200 OK\r\n{last}Content-Length: {bytes}\r\n\r\n").into_bytes();
    reply.resize(reply.len() + bytes, b'x');
    reply
}

/// The end of the first head, once it is complete.
fn end_of_head(taken: &mut VecDeque<u8>) -> Option<usize> {
    taken.make_contiguous().windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}
