//! The machine as a worker sees it. By the seed it does to a worker what a kernel may do: short reads and writes, late and
//! reordered events, slow connects, and time off the CPU.

use super::hub;
use super::peer::{Misdeed, Peer};
use super::server;
use super::times::Unit;
use super::world::{AHEAD_OF_EPOCH_NS, MS, Piece, Wire, World};
use crate::clock::Usage;
use crate::plan::Plan;
use crate::system::{Event, Interest, System};
use std::cell::{Ref, RefCell};
use std::io;
use std::rc::Rc;

/// A worker wakes at least this often: by another thread, or by a signal.
const LONGEST_WAIT_NS: u64 = 20 * MS;

impl World {
    fn connect(&mut self, worker: usize, number: u32) -> usize {
        let peer = Peer::new(&self.conduct, number, &mut self.random);
        let delay = if self.chance(2) { 0 } else { self.random.u64(..5 * MS) };
        let never = peer.misdeed == Some(Misdeed::NeverConnects);
        let urgent = self.chance(4);
        self.wires.push(Wire {
            worker,
            index: usize::MAX,
            urgent,
            made_ns: if never { u64::MAX } else { self.now + delay },
            refused: peer.misdeed == Some(Misdeed::Refuses),
            peer,
            ..Wire::default()
        });
        let wire = self.wires.len() - 1;
        self.live.push(wire);
        self.times.connects(wire, (self.woke_ns[worker], self.now));
        if !self.wires[wire].refused && !never {
            server::connected(self, wire);
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
        server::take(self, wire, &bytes[..taken]);
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
            // A reply that comes after the client's Close frame is one too many, and is to be told.
            let twice = found.peer.misdeed == Some(Misdeed::Twice);
            let more = found.peer.left && twice && matches!(unit, Unit::Answer);
            self.left_over += u64::from(more && !self.over[found.worker]);
            given.extend(Some(unit).filter(|_| !self.over[found.worker]));
        }
        let worker = found.worker;
        for unit in given {
            let units = if let Unit::Published(copy) = unit { hub::give(self, wire, copy) } else { [Some(unit), None] };
            self.unread[worker].extend(units.into_iter().flatten().map(|unit| (wire, unit)));
        }
        Ok(Some(count))
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
            let next = self.held_by(worker).map(|(_, wire)| wire.next_ns(self.now)).min().unwrap_or(u64::MAX);
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
        if stop_ns > self.reply_ns && self.held_by(worker).any(|(at, _)| self.times.awaits(at)) {
            self.reach("a worker stands still for longer than reply_s, and awaits an answer");
        }
        if self.chance(50) {
            // An event without anything to read.
            let reads = |wire: &Wire| matches!(wire.interest, Some(Interest::Read)) && !wire.gone;
            let more = self.held_by(worker).find(|(_, wire)| reads(wire)).map(|(_, wire)| wire.index);
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

    pub fn wire(&self, socket: &Socket) -> Ref<'_, Wire> {
        Ref::map(self.world.borrow(), |world| &world.wires[socket.wire])
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
        server::ended(world, wire);
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
