//! A server of rooms: which copy of which message goes to whom, in which order.

use super::copies::{Copy, Published, Said};
use super::peer::{Deed, Hub};
use super::speech::{Answer, answer, say_unit};
use super::times::Unit;
use super::world::World;

const MS: u64 = 1_000_000;
/// A copy so far behind a later one is not known to be the first (protocol/README.md, section 2).
const FAR: u32 = 96;

/// So many of a publisher's messages were once followed.
const KEPT: u32 = 64;

fn hexadecimal(digits: &[u8]) -> u64 {
    u64::from_str_radix(std::str::from_utf8(digits).expect("digits"), 16).expect("hexadecimal digits")
}

/// A client's message: it joins, or everybody in its room is to have it.
pub fn take(world: &mut World, wire: usize, opcode: u8, message: &[u8]) {
    let text = std::str::from_utf8(message).expect("letters and digits");
    let number = |key: &str| {
        let rest = text.split_once(key)?.1;
        rest.split(|found: char| !found.is_ascii_digit()).next()
    };
    let ack = |number: &str| Answer::Message(opcode, format!("{{\"ack\":{number}}}").into_bytes());
    if let Some(join) = number("\"join\":") {
        return answer(world, wire, ack(join));
    }
    let id = number("\"id\":").expect("a number");
    let mark = text.split_once("wsb1").expect("a postmark").1.as_bytes();
    let (publisher, sequence) = (hexadecimal(&mark[..8]) as u32, hexadecimal(&mark[8..16]) as u32);
    let Hub { rooms, own, deed, answers_by_copy } = world.conduct.hub.expect("there are rooms");
    let members: Vec<usize> =
        (0..world.wires.len()).filter(|&at| !world.wires[at].gone && world.wires[at].peer.is_member()).collect();
    let in_room = |world: &World, at: usize| world.wires[at].peer.number % rooms == publisher % rooms;
    let expected = |world: &World, at: usize| in_room(world, at) && (own || world.wires[at].peer.number != publisher);
    let count = members.iter().filter(|&&at| expected(world, at)).count() as u64;
    let t_ns = hexadecimal(&mark[16..32]);
    let (begun_ns, left_ns) = world.times.last_left();
    assert!((begun_ns..=left_ns).contains(&t_ns), "a message of {begun_ns} to {left_ns} says that it is of {t_ns}");
    world.truth.latest.insert(publisher, sequence);
    world.truth.said.push(Said { t_ns, expected: count, received: 0 });
    for member in members {
        let (is_right, is_here) = (expected(world, member), in_room(world, member));
        let luck = world.random.u32(..8);
        let copies = match deed {
            Deed::Right | Deed::Late(_) => u32::from(is_right),
            Deed::Leaks => u32::from(is_right || !is_here),
            Deed::WrongRooms => u32::from(!is_here),
            Deed::TwiceForNone if is_right => [0, 2, 1][luck as usize % 3],
            Deed::TwiceForNone => 0,
            Deed::Own => u32::from(is_here),
            Deed::Loses => u32::from(is_right && luck > 0),
        };
        for _ in 0..copies {
            let number = world.truth.said.len() - 1;
            let copy = Copy { opcode, content: message.to_vec(), published: Published { publisher, sequence, number } };
            match deed {
                Deed::Late(most_ms) if luck == 0 => {
                    let until_ns = world.now + world.random.u64(..most_ms * MS);
                    world.held.push((until_ns, member, copy));
                }
                _ => deliver(world, member, copy),
            }
        }
    }
    // Where a copy is the answer, nobody asks for another.
    if !answers_by_copy {
        answer(world, wire, ack(id));
    }
}

pub fn deliver(world: &mut World, wire: usize, copy: Copy) {
    let Copy { opcode, content, published } = copy;
    say_unit(world, wire, Answer::Message(opcode, content), Some(Unit::Published(published)));
}

/// A client is given a copy: counts what it is to it. Returns the copies and answers that it is.
pub fn give(world: &mut World, wire: usize, published: Published) -> [Option<Unit>; 2] {
    let Published { publisher, sequence, number } = published;
    let hub = world.conduct.hub.expect("there are rooms");
    let member = world.wires[wire].peer.number;
    let (mut copy, mut reply) = (None, None);
    if member % hub.rooms != publisher % hub.rooms || !hub.own && member == publisher {
        world.truth.misplaced += 1;
    } else {
        let heard = world.truth.heard.entry((member, publisher)).or_default();
        let latest = heard.last().copied().unwrap_or(0);
        let is_first = heard.insert(sequence) && latest.saturating_sub(sequence) <= FAR;
        let said = &mut world.truth.said[number];
        said.received += u64::from(is_first);
        world.truth.out_of_order += u64::from(sequence <= latest);
        if is_first {
            copy = Some(Unit::Copy(world.times.copied(said.t_ns, said.t_ns, Some(number))));
            if world.truth.latest[&publisher] >= sequence + KEPT {
                world.reach("a copy is behind 64 later messages of its publisher");
            }
        }
        reply = (hub.answers_by_copy && member == publisher).then_some(Unit::Answer);
    }
    [copy, reply]
}
