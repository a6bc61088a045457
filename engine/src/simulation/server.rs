//! The other ends of the sockets: correct and misbehaving servers, chosen by the seed. They share
//! only the accept value of a handshake with the engine's code.

use super::frames::{client_frame, frame};
use super::hub;
use super::peer::{ANSWER, Misdeed, Work};
use super::speech::{Answer, answer, question, say_unit};
use super::times::Unit;
use super::world::{AHEAD_OF_EPOCH_NS, Piece, World};
use super::wrapping::Deflated;
use crate::handshake;
use crate::plan::Transport;
use std::collections::VecDeque;

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
    while !world.wires[wire].peer.mute && act(world, wire) {}
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
            answer(world, wire, Answer::Bytes(b"Pong".to_vec()));
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
            answer(world, wire, Answer::Bytes(document(bytes, closes)));
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
                        on_message(world, wire, opcode, message);
                    }
                }
            }
        }
    }
    true
}

fn on_message(world: &mut World, wire: usize, opcode: u8, message: Vec<u8>) {
    if world.conduct.asks.is_some() {
        if message.starts_with(ANSWER.as_bytes()) {
            return;
        }
        if world.random.u32(..10) == 0 {
            let question = question(world, wire);
            world.say(wire, &question);
        }
    }
    world.leaves(wire);
    match world.conduct.work {
        Work::Echo => answer(world, wire, Answer::Message(opcode, message)),
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
                    say_unit(world, member, Answer::Message(1, notice.clone()), Some(Unit::Copy(copy)));
                }
            }
        }
        _ => {
            assert_eq!(message, b"Ping");
            answer(world, wire, Answer::Message(1, b"Pong".to_vec()));
        }
    }
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
