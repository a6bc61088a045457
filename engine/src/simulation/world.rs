//! The state of a simulated machine: its clock, its sockets, and what is on its way between their two ends.

use super::copies::{Copy, Truth};
use super::peer::{Conduct, Peer};
use super::times::{Times, Unit};
use crate::plan::Plan;
use crate::system::{Event, Interest};
use fastrand::Rng;
use std::collections::{BTreeSet, VecDeque};

pub const MS: u64 = 1_000_000;
pub const AHEAD_OF_EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// Data that a client receives.
pub enum Piece {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// One socket, and the data in flight to it.
#[derive(Default)]
pub struct Wire {
    pub worker: usize,
    pub index: usize,
    pub interest: Option<Interest>,
    /// What was new until then was told.
    pub told_ns: Option<u64>,
    /// It has urgent data now and then, before which a read ends.
    pub urgent: bool,
    /// When it is connected, or refused.
    pub made_ns: u64,
    pub refused: bool,
    /// The client has dropped it, or has sent its last byte.
    pub gone: bool,
    pub ended: bool,
    pub inbound: VecDeque<(u64, Piece)>,
    pub last_ns: u64,
    /// The time from which the kernel accepts bytes.
    pub room_ns: u64,
    /// The last send was cut short, or refused: the client keeps bytes.
    pub short: bool,
    /// When the worker woke that wrote what is being sent, and the number of that send among all.
    pub begun_ns: u64,
    pub order: u64,
    /// Bytes said to the client, and given to it, and where the units of a server's output end among them.
    pub said: u64,
    pub given: u64,
    pub units: VecDeque<(u64, Unit)>,
    /// Reported to the worker, which has not asked since.
    pub reported: bool,
    pub peer: Peer,
}

impl Wire {
    pub fn has_news(&self, now: u64) -> bool {
        self.made_ns <= now && self.inbound.front().is_some_and(|(at, _)| *at <= now)
    }

    /// Data that arrived before a reset can still be read (tcp_reset leaves the receive queue).
    pub fn is_reset(&self, now: u64) -> bool {
        matches!(self.inbound.back(), Some((at, Piece::Reset)) if *at <= now)
    }

    fn is_ended(&self, now: u64) -> bool {
        self.inbound.iter().take_while(|(at, _)| *at <= now).any(|(_, piece)| !matches!(piece, Piece::Bytes(_)))
    }

    pub fn is_writable(&self, now: u64) -> bool {
        self.interest == Some(Interest::ReadWrite) && self.made_ns <= now && (self.room_ns <= now || self.refused)
    }

    /// Something that is there, and has not been told.
    pub fn event(&self, now: u64) -> Option<Event> {
        let is_new = |at: u64| at <= now && self.told_ns.is_none_or(|told_ns| at > told_ns);
        let last = self.inbound.iter().map(|(at, _)| *at).take_while(|at| *at <= now).last();
        let comes = self.made_ns <= now && last.is_some_and(is_new);
        let leaves = self.is_writable(now) && (is_new(self.made_ns) || is_new(self.room_ns));
        let happens = match self.interest? {
            _ if self.gone => false,
            Interest::Nothing => self.is_reset(now),
            Interest::Read => comes,
            Interest::ReadWrite => comes || leaves,
        };
        let goes_on = self.urgent || self.is_ended(now);
        happens.then(|| Event { index: self.index, writable: self.is_writable(now), goes_on })
    }

    /// Whether it has something to read, and whether it can be written to, and no event will tell.
    pub fn is_silent(&self, now: u64) -> (bool, bool) {
        let silent = self.event(now).is_none();
        (silent && self.has_news(now), silent && self.is_writable(now))
    }

    pub fn next_ns(&self, now: u64) -> u64 {
        let later = |at: u64| if at > now { at } else { u64::MAX };
        let next = self.inbound.iter().map(|(at, _)| later(*at)).min().unwrap_or(u64::MAX);
        next.min(later(self.made_ns)).min(later(self.room_ns))
    }
}

pub struct World {
    pub now: u64,
    pub random: Rng,
    pub wires: Vec<Wire>,
    /// Sockets that clients hold.
    pub live: Vec<usize>,
    pub conduct: Conduct,
    /// Copies of messages that a hub holds back: until when, for which socket.
    pub held: Vec<(u64, usize, Copy)>,
    pub truth: Truth,
    pub times: Times,
    /// Situations that came about.
    pub reached: BTreeSet<String>,
    /// Replies that came between the Close frames of a connection.
    pub left_over: u64,
    pub reply_ns: u64,
    /// By worker: when it last began to act, or came back from waiting; until when it wants to wait; and units that it
    /// has been given since it looked at its clock.
    pub woke_ns: Vec<u64>,
    pub until_ns: Vec<u64>,
    pub unread: Vec<Vec<(usize, Unit)>>,
    /// By worker: it finishes; and it has waited since, for the ends of its connections, of which nothing counts any more.
    pub finishing: Vec<bool>,
    pub over: Vec<bool>,
    /// Wires, and how many units had come on them that a worker has to read before it says goodbye.
    pub owed: Vec<(usize, usize)>,
    /// What it did not read of them.
    pub left_unread: usize,
    /// The last clock that a worker read.
    pub clock_ns: u64,
    pub orders: u64,
    /// How long a worker may be off its CPU.
    pub longest_stop_ns: u64,
    /// Bytes that clients sent, and that they received.
    pub taken: u64,
    pub given: u64,
    /// Bytes that servers have for their clients: messages, and what they become on the way.
    pub said: u64,
}

impl World {
    pub fn new(seed: u64, conduct: Conduct, longest_stop_s: f64, plan: &Plan) -> World {
        let workers = plan.threads;
        World {
            now: 1_000 * MS,
            random: Rng::with_seed(seed),
            wires: Vec::new(),
            live: Vec::new(),
            conduct,
            held: Vec::new(),
            truth: Truth::default(),
            times: Times::default(),
            reached: BTreeSet::new(),
            left_over: 0,
            reply_ns: (plan.limits.reply_s * 1e9) as u64,
            woke_ns: vec![0; workers],
            until_ns: vec![0; workers],
            unread: vec![Vec::new(); workers],
            finishing: vec![false; workers],
            over: vec![false; workers],
            owed: Vec::new(),
            left_unread: 0,
            clock_ns: 0,
            orders: 0,
            longest_stop_ns: (longest_stop_s * 1e9) as u64,
            taken: 0,
            given: 0,
            said: 0,
        }
    }

    pub fn chance(&mut self, one_in: u32) -> bool {
        self.random.u32(..one_in) == 0
    }

    pub fn reach(&mut self, situation: &str) {
        if !self.reached.contains(situation) {
            self.reached.insert(situation.into());
        }
    }

    pub fn wakes(&mut self, worker: usize) {
        self.woke_ns[worker] = self.now;
    }

    /// A worker has taken its last step. What has come on connections that are still opening is nobody's.
    pub fn finishes(&mut self, worker: usize, is_open: impl Fn(usize) -> bool) {
        self.finishing[worker] = true;
        let owed = |at: usize| {
            let wire = &self.wires[at];
            let come = wire.inbound.iter().take_while(|(at, _)| *at <= self.now);
            let bytes = come.map(|(_, piece)| if let Piece::Bytes(bytes) = piece { bytes.len() as u64 } else { 0 });
            let come = wire.given + bytes.sum::<u64>();
            // It is counted from behind, because units only leave in front.
            let behind = wire.units.iter().filter(|(end, _)| *end > come).count();
            (wire.worker == worker && is_open(wire.index)).then_some((at, behind))
        };
        self.owed = self.live.iter().filter_map(|&at| owed(at)).collect();
    }

    /// A worker waits for the first time since it finishes: for the ends of its connections.
    pub fn parts(&mut self, worker: usize) {
        if self.finishing[worker] && !std::mem::replace(&mut self.over[worker], true) {
            for (wire, behind) in std::mem::take(&mut self.owed) {
                let wire = &self.wires[wire];
                if !wire.gone && wire.interest != Some(Interest::Nothing) {
                    self.left_unread += wire.units.len().saturating_sub(behind);
                }
            }
        }
    }

    pub fn tick(&mut self) -> u64 {
        self.now += self.random.u64(..300);
        self.now
    }

    /// A worker looks at its clock: what it has been given it has read now.
    pub fn clock(&mut self, worker: usize) -> u64 {
        self.clock_ns = self.tick();
        for (wire, unit) in std::mem::take(&mut self.unread[worker]) {
            self.times.read(wire, unit, self.clock_ns);
        }
        self.clock_ns
    }

    /// The kernel has all of a message.
    pub fn leaves(&mut self, wire: usize) {
        let Wire { worker, order, begun_ns, .. } = self.wires[wire];
        self.times.left(wire, worker, order, (begun_ns, self.now));
        self.wires[wire].peer.messages += 1;
    }

    /// Output that is complete with its last byte.
    pub fn say_unit(&mut self, wire: usize, bytes: &[u8], unit: Option<Unit>) {
        self.say(wire, bytes);
        let wire = &mut self.wires[wire];
        wire.units.extend(unit.map(|unit| (wire.said, unit)));
    }

    /// A server's output, sealed if the connection is.
    pub fn say(&mut self, wire: usize, bytes: &[u8]) {
        match &mut self.wires[wire].peer.sealed {
            None => self.deliver(wire, bytes),
            Some(sealed) => {
                let words = sealed.seal(bytes);
                self.deliver(wire, &words);
            }
        }
    }

    /// Bytes arrive in pieces, in order, with their own delays.
    pub fn deliver(&mut self, wire: usize, mut bytes: &[u8]) {
        self.said += bytes.len() as u64;
        self.wires[wire].said += bytes.len() as u64;
        while !bytes.is_empty() {
            let at_most = if self.chance(3) { self.random.usize(1..=bytes.len()) } else { bytes.len() };
            let (piece, rest) = bytes.split_at(at_most);
            self.arrive(wire, Piece::Bytes(piece.to_vec()));
            bytes = rest;
        }
    }

    pub fn arrive(&mut self, wire: usize, piece: Piece) {
        let delay = match self.random.u32(..20) {
            0 => self.random.u64(..30 * MS),
            1..8 => self.random.u64(..2 * MS),
            _ => self.random.u64(..50_000),
        };
        self.arrive_after(wire, piece, delay);
    }

    /// The delay after the data before it.
    pub fn arrive_after(&mut self, wire: usize, piece: Piece, delay: u64) {
        let now = self.now;
        let wire = &mut self.wires[wire];
        wire.last_ns = wire.last_ns.max(wire.made_ns).max(now) + delay;
        let at = wire.last_ns;
        wire.inbound.push_back((at, piece));
    }

    pub fn held_by(&self, worker: usize) -> impl Iterator<Item = (usize, &Wire)> {
        self.live.iter().map(|&at| (at, &self.wires[at])).filter(move |(_, wire)| wire.worker == worker)
    }

    pub fn news_of(&self, worker: usize) -> Vec<(usize, Event)> {
        self.held_by(worker).filter_map(|(at, wire)| Some((at, wire.event(self.now)?))).collect()
    }

    /// These connections have something for their worker.
    pub fn report(&mut self, worker: usize, events: &[Event]) {
        self.wakes(worker);
        for &wire in &self.live {
            let found = &mut self.wires[wire];
            found.reported = found.worker == worker && events.iter().any(|event| event.index == found.index);
        }
    }
}
