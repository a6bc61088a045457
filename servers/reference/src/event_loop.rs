//! One thread, one epoll instance, its own listener and its own connections. Level-triggered: an event means "try", never more, so that
//! an event left over from a connection that is gone does no harm to the one that took its place.

use crate::connection::{Connection, Fate, Scratch};
use crate::push::{self, Hub, Token};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{self, Errno};
use rustix::net::{SocketFlags, accept_with};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;
const EVENTS: usize = 1024;
const INPUT_BYTES: usize = 128 << 10;

pub struct EventLoop {
    number: usize,
    epoll: OwnedFd,
    listener: OwnedFd,
    hub: Arc<Hub>,
    connections: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    scratch: Scratch,
    /// Given up for a moment when no descriptor is left, to accept and close instead of being told of the same connection for ever.
    spare: Option<File>,
}

struct Slot {
    connection: Connection,
    registered: EventFlags,
}

impl EventLoop {
    pub fn new(number: usize, listener: OwnedFd, hub: Arc<Hub>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, hub.wake(number), EventData::new_u64(WAKE), EventFlags::IN)?;
        let scratch =
            Scratch { input: vec![0; INPUT_BYTES].into_boxed_slice(), replies: Vec::new(), tokens: Vec::new() };
        let (connections, vacant) = (Vec::new(), Vec::new());
        Ok(EventLoop { number, epoll, listener, hub, connections, vacant, scratch, spare: spare() })
    }

    pub fn run(mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKE => {
                        for token in self.hub.take(self.number) {
                            self.deliver(&token);
                        }
                    }
                    index => self.serve(index as usize),
                }
            }
        }
    }

    fn accept(&mut self) {
        loop {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.adopt(socket),
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    drop(accept_with(&self.listener, SocketFlags::CLOEXEC));
                    self.spare = spare();
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    fn adopt(&mut self, socket: OwnedFd) {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if epoll::add(&self.epoll, &socket, EventData::new_u64(index as u64), EventFlags::IN).is_ok() {
            self.connections[index] = Some(Slot { connection: Connection::new(socket), registered: EventFlags::IN });
        } else {
            self.vacant.push(index);
        }
    }

    fn serve(&mut self, index: usize) {
        let Some(slot) = self.connections[index].as_mut() else { return };
        let fate = slot.connection.ready(&mut self.scratch);
        self.settle(index, fate);
        for token in std::mem::take(&mut self.scratch.tokens) {
            self.hub.post(self.number, &token);
            self.deliver(&token);
        }
    }

    /// Sends `MICROS TOKEN` to every member on this loop, the clock read anew for each.
    fn deliver(&mut self, token: &Token) {
        let mut text = Vec::new();
        for index in 0..self.connections.len() {
            let Some(slot) = self.connections[index].as_mut().filter(|slot| slot.connection.is_member()) else {
                continue;
            };
            text.clear();
            write!(text, "{} ", push::epoch_us()).expect("memory");
            text.extend_from_slice(token);
            let fate = slot.connection.deliver(&text, &mut self.scratch.replies);
            self.settle(index, fate);
        }
    }

    /// Drops a finished connection (closing a socket takes it out of epoll), or waits for what it waits for.
    fn settle(&mut self, index: usize, fate: Fate) {
        let Some(slot) = self.connections[index].as_mut() else { return };
        let interest = slot.connection.interest();
        let kept = fate == Fate::Keep
            && (interest == slot.registered || {
                slot.registered = interest;
                epoll::modify(&self.epoll, slot.connection.socket(), EventData::new_u64(index as u64), interest).is_ok()
            });
        if !kept {
            self.connections[index] = None;
            self.vacant.push(index);
        }
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}
