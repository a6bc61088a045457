//! A simulated machine: its clock, and sockets whose other ends are servers of `server`. By the
//! seed it does to a worker what a kernel may do: short reads and writes, late and reordered
//! events, slow connects, and time off the CPU.

use super::hub::{self, Copy, Truth};
use super::server::{Conduct, Peer};
use super::times::{Times, Unit};
use crate::clock::Usage;
use crate::plan::Plan;
use crate::system::{Event, Interest, System};
use fastrand::Rng;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;

const MS: u64 = 1_000_000;
/// A worker wakes at least this often: by another thread, or by a signal.
const LONGEST_WAIT_NS: u64 = 20 * MS;
pub const AHEAD_OF_EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// Data that a client receives.
pub enum Piece {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// One socket, and the data in flight to it.
pub struct Wire {
    worker: usize,
    index: usize,
    interest: Option<Interest>,
    /// What was new until then was told.
    told_ns: Option<u64>,
    /// It has urgent data now and then, before which a read ends.
    urgent: bool,
    /// When it is connected, or refused.
    made_ns: u64,
    refused: bool,
    /// The client has dropped it, or has sent its last byte.
    pub gone: bool,
    ended: bool,
    inbound: VecDeque<(u64, Piece)>,
    last_ns: u64,
    /// The time from which the kernel accepts bytes.
    pub room_ns: u64,
    /// The last send was cut short, or refused: the client keeps bytes.
    short: bool,
    /// When the worker woke that wrote what is being sent, and the number of that send among all.
    begun_ns: u64,
    order: u64,
    /// Bytes said to the client, and given to it, and where the units of a server's output end among them.
    said: u64,
    given: u64,
    units: VecDeque<(u64, Unit)>,
    /// Reported to the worker, which has not asked since.
    reported: bool,
    pub peer: Peer,
}

impl Wire {
    fn has_news(&self, now: u64) -> bool {
        self.made_ns <= now && self.inbound.front().is_some_and(|(at, _)| *at <= now)
    }

    /// Data that arrived before a reset can still be read (tcp_reset leaves the receive queue).
    fn is_reset(&self, now: u64) -> bool {
        matches!(self.inbound.back(), Some((at, Piece::Reset)) if *at <= now)
    }

    fn is_ended(&self, now: u64) -> bool {
        self.inbound.iter().take_while(|(at, _)| *at <= now).any(|(_, piece)| !matches!(piece, Piece::Bytes(_)))
    }

    fn is_writable(&self, now: u64) -> bool {
        self.interest == Some(Interest::ReadWrite) && self.made_ns <= now && (self.room_ns <= now || self.refused)
    }

    /// Something that is there, and has not been told.
    fn event(&self, now: u64) -> Option<Event> {
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

    fn next_ns(&self, now: u64) -> u64 {
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
    live: Vec<usize>,
    pub conduct: Conduct,
    /// Copies of messages that a hub holds back: until when, for which socket.
    held: Vec<(u64, usize, Copy)>,
    pub truth: Truth,
    pub times: Times,
    /// Situations that came about.
    pub reached: BTreeSet<String>,
    /// Replies that came between the Close frames of a connection.
    pub left_over: u64,
    reply_ns: u64,
    /// By worker: when it last began to act, or came back from waiting; until when it wants to wait; and units that it
    /// has been given since it looked at its clock.
    woke_ns: Vec<u64>,
    pub until_ns: Vec<u64>,
    unread: Vec<Vec<(usize, Unit)>>,
    /// By worker: it finishes; and it has waited since, for the ends of its connections, of which nothing counts any more.
    finishing: Vec<bool>,
    over: Vec<bool>,
    /// Wires, and how many units had come on them that a worker has to read before it says goodbye.
    owed: Vec<(usize, usize)>,
    /// What it did not read of them.
    pub left_unread: usize,
    /// The last clock that a worker read.
    clock_ns: u64,
    orders: u64,
    /// How long a worker may be off its CPU.
    longest_stop_ns: u64,
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

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.u32(..one_in) == 0
    }

    pub fn reach(&mut self, situation: &str) {
        if !self.reached.contains(situation) {
            self.reached.insert(situation.into());
        }
    }

    /// A worker begins to act.
    pub fn wakes(&mut self, worker: usize) {
        self.woke_ns[worker] = self.now;
    }

    /// A worker has taken its last step. What has come on connections that are still opening is nobody's.
    pub fn finishes(&mut self, worker: usize, is_open: impl Fn(usize) -> bool) {
        self.finishing[worker] = true;
        self.owed = self
            .live
            .iter()
            .filter(|&&wire| self.wires[wire].worker == worker && is_open(self.wires[wire].index))
            .map(|&at| {
                let wire = &self.wires[at];
                let come = wire.inbound.iter().take_while(|(at, _)| *at <= self.now);
                let bytes = come.map(|(_, piece)| if let Piece::Bytes(bytes) = piece { bytes.len() as u64 } else { 0 });
                let come = wire.given + bytes.sum::<u64>();
                // It is counted from behind, because units only leave in front.
                (at, wire.units.iter().filter(|(end, _)| *end > come).count())
            })
            .collect();
    }

    /// A worker waits for the first time since it finishes: for the ends of its connections.
    fn parts(&mut self, worker: usize) {
        if self.finishing[worker] && !std::mem::replace(&mut self.over[worker], true) {
            let rest = std::mem::take(&mut self.owed).into_iter();
            self.left_unread += rest
                .map(|(wire, behind)| {
                    let wire = &self.wires[wire];
                    if wire.gone || wire.interest == Some(Interest::Nothing) {
                        0
                    } else {
                        wire.units.len().saturating_sub(behind)
                    }
                })
                .sum::<usize>();
        }
    }

    fn tick(&mut self) -> u64 {
        self.now += self.random.u64(..300);
        self.now
    }

    /// A worker looks at its clock: what it has been given it has read now.
    fn clock(&mut self, worker: usize) -> u64 {
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

    fn connect(&mut self, worker: usize, number: u32) -> usize {
        let peer = Peer::new(&self.conduct, number, &mut self.random);
        let delay = if self.chance(2) { 0 } else { self.random.u64(..5 * MS) };
        let never = peer.never_connects();
        let urgent = self.chance(4);
        self.wires.push(Wire {
            worker,
            index: usize::MAX,
            interest: None,
            told_ns: None,
            urgent,
            made_ns: if never { u64::MAX } else { self.now + delay },
            refused: peer.refuses(),
            gone: false,
            ended: false,
            inbound: VecDeque::new(),
            last_ns: 0,
            room_ns: 0,
            short: false,
            begun_ns: 0,
            order: 0,
            said: 0,
            given: 0,
            units: VecDeque::new(),
            reported: false,
            peer,
        });
        let wire = self.wires.len() - 1;
        self.live.push(wire);
        self.times.connects(wire, (self.woke_ns[worker], self.now));
        if !self.wires[wire].refused && !never {
            Peer::connected(self, wire);
        }
        wire
    }

    fn send(&mut self, wire: usize, bytes: &[u8]) -> io::Result<Option<usize>> {
        let now = self.now;
        let found = &mut self.wires[wire];
        if !found.short {
            (found.begun_ns, found.order) = (self.woke_ns[found.worker], self.orders);
            self.orders += 1;
        }
        found.short = true;
        if found.refused && found.made_ns <= now {
            return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED));
        }
        if found.made_ns > now || found.room_ns > now {
            return Ok(None);
        }
        if found.is_reset(now) || found.ended {
            return Err(io::Error::from_raw_os_error(libc::EPIPE));
        }
        let short = bytes.len() > 1 && self.chance(12);
        let taken = if short { self.random.usize(1..bytes.len()) } else { bytes.len() };
        if short || self.chance(40) {
            self.wires[wire].room_ns = now + self.random.u64(..10 * MS);
        }
        self.wires[wire].short = short;
        self.taken += taken as u64;
        Peer::take(self, wire, &bytes[..taken]);
        Ok(Some(taken))
    }

    fn receive(&mut self, wire: usize, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let now = self.now;
        self.wires[wire].reported = false;
        if !self.wires[wire].has_news(now) {
            return Ok(None);
        }
        let most = if self.wires[wire].urgent && self.chance(3) {
            self.random.usize(1..=buffer.len().min(40))
        } else {
            buffer.len()
        };
        let mut count = 0;
        let inbound = &mut self.wires[wire].inbound;
        while let Some((at, piece)) = inbound.front_mut()
            && *at <= now
            && count < most
        {
            match piece {
                Piece::Bytes(bytes) => {
                    let taken = bytes.len().min(most - count);
                    buffer[count..count + taken].copy_from_slice(&bytes[..taken]);
                    count += taken;
                    bytes.drain(..taken);
                    if bytes.is_empty() {
                        inbound.pop_front();
                    }
                }
                _ if count > 0 => break,
                Piece::End => {
                    let worker = self.wires[wire].worker;
                    if !self.over[worker] {
                        self.unread[worker].push((wire, Unit::End));
                    }
                    return Ok(Some(0));
                }
                Piece::Reset => return Err(io::Error::from_raw_os_error(libc::ECONNRESET)),
            }
        }
        let found = &mut self.wires[wire];
        found.given += count as u64;
        self.given += count as u64;
        let mut given = Vec::new();
        while let Some(&(end, unit)) = found.units.front()
            && end <= found.given
        {
            found.units.pop_front();
            let more = found.peer.left && found.peer.says_twice() && matches!(unit, Unit::Answer);
            self.left_over += u64::from(more && !self.over[found.worker]);
            given.extend(Some(unit).filter(|_| !self.over[found.worker]));
        }
        let worker = found.worker;
        for unit in given {
            match unit {
                Unit::Published(copy) => {
                    let units = hub::give(self, wire, copy);
                    self.unread[worker].extend(units.map(|unit| (wire, unit)));
                }
                unit => self.unread[worker].push((wire, unit)),
            }
        }
        Ok(Some(count))
    }

    fn held_by(&self, worker: usize) -> impl Iterator<Item = &Wire> {
        self.live.iter().map(|&wire| &self.wires[wire]).filter(move |wire| wire.worker == worker)
    }

    fn news_of(&self, worker: usize) -> Vec<(usize, Event)> {
        let held = self.live.iter().filter(|&&wire| self.wires[wire].worker == worker);
        held.filter_map(|&wire| Some((wire, self.wires[wire].event(self.now)?))).collect()
    }

    /// These connections have something for their worker.
    fn report(&mut self, worker: usize, events: &[Event]) {
        self.wakes(worker);
        for &wire in &self.live {
            let found = &mut self.wires[wire];
            found.reported = found.worker == worker && events.iter().any(|event| event.index == found.index);
        }
    }

    /// A copy that goes out at that time.
    pub fn hold(&mut self, at_ns: u64, wire: usize, copy: Copy) {
        self.held.push((at_ns, wire, copy));
    }

    fn release(&mut self) {
        while let Some(at) = self.held.iter().position(|(at_ns, ..)| *at_ns <= self.now) {
            let (_, wire, copy) = self.held.remove(at);
            hub::deliver(self, wire, copy);
        }
    }

    /// The events of a worker, those first that were left out the last time. Some are left out again.
    fn wait(&mut self, worker: usize, timeout_ns: u64, unreported: &mut Vec<usize>) -> Vec<Event> {
        let until = self.now.saturating_add(timeout_ns.min(LONGEST_WAIT_NS));
        self.release();
        let mut news = self.news_of(worker);
        while news.is_empty() && self.now < until {
            let next = self.held_by(worker).map(|wire| wire.next_ns(self.now)).min().unwrap_or(u64::MAX);
            let released = self.held.iter().map(|(at_ns, ..)| *at_ns).min().unwrap_or(u64::MAX);
            self.now = next.min(released).min(until);
            self.release();
            news = self.news_of(worker);
        }
        self.random.shuffle(&mut news);
        news.sort_by_key(|(_, event)| !unreported.contains(&event.index));
        unreported.clear();
        if news.len() > 1 && self.chance(4) {
            let left_out = news.drain(self.random.usize(1..=news.len())..);
            unreported.extend(left_out.map(|(_, event)| event.index));
        }
        for (wire, _) in &news {
            self.wires[*wire].told_ns = Some(self.now);
        }
        let mut events: Vec<_> = news.into_iter().map(|(_, event)| event).collect();
        // What arrives from now on is new.
        self.now += 1;
        let stop_ns = match self.random.u32(..2000) {
            0 => self.random.u64(..self.longest_stop_ns),
            1..50 => self.random.u64(..3 * MS),
            _ => self.random.u64(..3_000),
        };
        self.now += stop_ns;
        if stop_ns > self.reply_ns
            && self.live.iter().any(|&wire| self.wires[wire].worker == worker && self.times.awaits(wire))
        {
            self.reach("a worker stands still for longer than reply_s, and awaits an answer");
        }
        if self.chance(50) {
            // An event without anything to read.
            let reads = |wire: &&Wire| matches!(wire.interest, Some(Interest::Read)) && !wire.gone;
            let more = self.held_by(worker).filter(reads).map(|wire| wire.index).next();
            let told = |index: &usize| events.iter().any(|event| event.index == *index) || unreported.contains(index);
            let more = more.filter(|index| !told(index));
            events.extend(more.map(|index| Event { index, writable: false, goes_on: false }));
        }
        events
    }
}

pub struct Socket {
    world: Rc<RefCell<World>>,
    wire: usize,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let world = &mut *self.world.borrow_mut();
        world.wires[self.wire].gone = true;
        world.live.retain(|&wire| wire != self.wire);
    }
}

/// The world as one worker sees it.
pub struct Simulated {
    pub world: Rc<RefCell<World>>,
    pub worker: usize,
    news: Vec<Event>,
    /// What the last wait left out.
    unreported: Vec<usize>,
}

impl Simulated {
    pub fn new(world: Rc<RefCell<World>>, worker: usize) -> Simulated {
        Simulated { world, worker, news: Vec::new(), unreported: Vec::new() }
    }

    /// The number of whole messages that the server received.
    pub fn messages_read(&self, socket: &Socket) -> u64 {
        self.world.borrow().wires[socket.wire].peer.messages
    }

    /// Whether it was reported, and its worker has not asked what there is.
    pub fn is_overlooked(&self, socket: &Socket) -> bool {
        self.world.borrow().wires[socket.wire].reported
    }

    /// Whether a socket has something to read, and whether it can be written to, and no event will tell.
    pub fn is_silent(&self, socket: &Socket) -> (bool, bool) {
        let world = self.world.borrow();
        let (wire, now) = (&world.wires[socket.wire], world.now);
        let silent = wire.event(now).is_none();
        (silent && wire.has_news(now), silent && wire.is_writable(now))
    }

    /// The event that a socket would have.
    pub fn interest(&self, socket: &Socket) -> Option<Interest> {
        self.world.borrow().wires[socket.wire].interest
    }
}

impl System for Simulated {
    type Socket = Socket;
    type Handle = usize;

    fn handle(socket: &Socket) -> usize {
        socket.wire
    }

    fn now_ns(&self) -> u64 {
        self.world.borrow_mut().clock(self.worker)
    }

    fn unix_ns(&self) -> u64 {
        self.world.borrow_mut().tick() + AHEAD_OF_EPOCH_NS
    }

    fn to_unix_ns(&self) -> u64 {
        AHEAD_OF_EPOCH_NS
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn connect(&mut self, _: &Plan, number: u32) -> io::Result<Socket> {
        let wire = self.world.borrow_mut().connect(self.worker, number);
        Ok(Socket { world: self.world.clone(), wire })
    }

    fn watch(&mut self, wire: usize, index: usize, interest: Interest) -> io::Result<()> {
        self.world.borrow_mut().wires[wire].index = index;
        self.change(wire, index, interest)
    }

    fn change(&mut self, wire: usize, index: usize, interest: Interest) -> io::Result<()> {
        let found = &mut self.world.borrow_mut().wires[wire];
        assert_eq!(found.index, index, "a socket is watched under its connection's index");
        (found.interest, found.told_ns) = (Some(interest), None);
        Ok(())
    }

    fn error_of(&mut self, wire: usize) -> io::Result<()> {
        match self.world.borrow().wires[wire].refused {
            true => Err(io::Error::from_raw_os_error(libc::ECONNREFUSED)),
            false => Ok(()),
        }
    }

    fn send(&mut self, wire: usize, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.world.borrow_mut().send(wire, bytes)
    }

    fn receive(&mut self, wire: usize, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.world.borrow_mut().receive(wire, buffer)
    }

    fn ask_for_stamps(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn receive_stamped(&mut self, wire: usize, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
        let stamp = self.world.borrow().now + AHEAD_OF_EPOCH_NS;
        Ok(self.receive(wire, buffer)?.map(|count| (count, Some(stamp))))
    }

    fn end_sending(&mut self, wire: usize) {
        let world = &mut *self.world.borrow_mut();
        world.wires[wire].ended = true;
        Peer::ended(world, wire);
    }

    fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        let mut world = self.world.borrow_mut();
        world.parts(self.worker);
        // A worker counts from the clock that it has read; one that only looks does not wait.
        world.until_ns[self.worker] = if timeout_ns == 0 { 0 } else { world.clock_ns.saturating_add(timeout_ns) };
        self.news = world.wait(self.worker, timeout_ns, &mut self.unreported);
        world.report(self.worker, &self.news);
        Ok(self.news.len())
    }

    fn reported_all(&self) -> bool {
        self.unreported.is_empty()
    }

    fn event(&mut self, at: usize) -> Option<Event> {
        Some(self.news[at])
    }
}
