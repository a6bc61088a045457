//! One connection: what it speaks, and the bytes that could not be dealt with at once. An idle connection owns no buffer.
//!
//! It reads, answers and writes when told that it can; which readiness it waits for is `interest`, and the event loop sees to it.

use crate::push::Token;
use crate::websocket::{Endpoint, Progress, WebSocket};
use crate::{frame, http};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::EventFlags;
use rustix::io::{self, Errno};
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A receiver that has fallen this far behind is dropped: what is sent to it would otherwise grow without end.
const MOST_UNSENT: usize = 64 << 20;

pub struct Connection {
    socket: OwnedFd,
    speaks: Speaks,
    /// The beginning of something incomplete, and how long it is going to be.
    partial: Vec<u8>,
    wanted: usize,
    /// What a short write left, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    once_sent: OnceSent,
}

enum Speaks {
    /// Until the first 4 bytes are here: `Ping` is bare TCP, everything else HTTP.
    Unknown,
    Tcp,
    Http,
    WebSocket(WebSocket),
    /// All has been said. What still comes in is read and dropped, because closing on unread bytes would reset the connection and could
    /// take the Close frame with it.
    Nothing,
}

#[derive(Clone, Copy)]
enum OnceSent {
    Continue,
    Close,
    Drain,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Keep,
    Drop,
}

/// What all connections of a loop share, used from read to write.
pub struct Scratch {
    pub input: Box<[u8]>,
    pub replies: Vec<u8>,
    pub tokens: Vec<Token>,
}

impl Connection {
    pub fn new(socket: OwnedFd) -> Self {
        let (partial, unsent) = (Vec::new(), Vec::new());
        let (speaks, once_sent) = (Speaks::Unknown, OnceSent::Continue);
        Connection { socket, speaks, partial, wanted: 0, unsent, sent: 0, once_sent }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// A peer that does not read its replies is not read from either.
    pub fn interest(&self) -> EventFlags {
        if self.unsent.is_empty() { EventFlags::IN } else { EventFlags::OUT }
    }

    pub fn is_member(&self) -> bool {
        let joined = matches!(&self.speaks, Speaks::WebSocket(socket) if socket.endpoint == Endpoint::Push);
        joined && matches!(self.once_sent, OnceSent::Continue)
    }

    pub fn ready(&mut self, scratch: &mut Scratch) -> Fate {
        if self.unsent.is_empty() { self.receive(scratch) } else { self.flush() }
    }

    /// One read, all its answers, one write.
    fn receive(&mut self, scratch: &mut Scratch) -> Fate {
        let mut partial = std::mem::take(&mut self.partial);
        let large = self.wanted > scratch.input.len();
        let read = if large {
            io::read(&self.socket, spare_capacity(&mut partial))
        } else {
            scratch.input[..partial.len()].copy_from_slice(&partial);
            io::read(&self.socket, &mut scratch.input[partial.len()..])
        };
        let read = match read {
            Ok(0) => return Fate::Drop,
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => {
                self.partial = partial;
                return Fate::Keep;
            }
            Err(_) => return Fate::Drop,
        };
        if large {
            let taken = self.consume(&partial, &mut scratch.replies, &mut scratch.tokens);
            partial.drain(..taken);
            if !partial.is_empty() {
                partial.reserve_exact(self.wanted.saturating_sub(partial.len()));
                self.partial = partial;
            }
        } else {
            let input = &scratch.input[..partial.len() + read];
            let taken = self.consume(input, &mut scratch.replies, &mut scratch.tokens);
            self.keep(&input[taken..], scratch.input.len());
        }
        self.send(&mut scratch.replies)
    }

    /// Keeps an incomplete rest; what will not fit the shared buffer gets its whole length now and is read in place from here on.
    fn keep(&mut self, rest: &[u8], shared: usize) {
        if !rest.is_empty() {
            let capacity = if self.wanted > shared { self.wanted } else { rest.len() };
            self.partial = Vec::with_capacity(capacity);
            self.partial.extend_from_slice(rest);
        }
    }

    fn consume(&mut self, input: &[u8], replies: &mut Vec<u8>, tokens: &mut Vec<Token>) -> usize {
        let mut taken = 0;
        self.wanted = 0;
        loop {
            let rest = &input[taken..];
            match &mut self.speaks {
                Speaks::Unknown if rest.starts_with(b"Ping") => self.speaks = Speaks::Tcp,
                Speaks::Unknown if b"Ping".starts_with(rest) => return taken,
                Speaks::Unknown => self.speaks = Speaks::Http,
                Speaks::Tcp => return taken + self.pong(rest, replies),
                Speaks::Http => {
                    let (used, progress) = http::consume(rest, replies);
                    taken += used;
                    match progress {
                        http::Progress::Wait => return taken,
                        http::Progress::Close => {
                            self.once_sent = OnceSent::Close;
                            return taken;
                        }
                        http::Progress::Upgraded(endpoint) => {
                            self.speaks = Speaks::WebSocket(WebSocket::new(endpoint));
                        }
                    }
                }
                Speaks::WebSocket(socket) => {
                    let (used, progress) = socket.consume(rest, replies, tokens);
                    match progress {
                        Progress::Wait { wanted } => self.wanted = wanted,
                        Progress::Closed => self.once_sent = OnceSent::Close,
                        Progress::Refused => self.once_sent = OnceSent::Drain,
                    }
                    return taken + used;
                }
                Speaks::Nothing => return input.len(),
            }
        }
    }

    fn pong(&mut self, input: &[u8], replies: &mut Vec<u8>) -> usize {
        let pings = input.chunks_exact(4);
        if pings.clone().any(|ping| ping != b"Ping") {
            self.once_sent = OnceSent::Drain;
            return input.len();
        }
        for _ in pings {
            replies.extend_from_slice(b"Pong");
        }
        input.len() / 4 * 4
    }

    /// Sends the replies of one read. Only if the write is short does the buffer become this connection's own.
    fn send(&mut self, replies: &mut Vec<u8>) -> Fate {
        if !replies.is_empty() {
            match io::write(&self.socket, replies) {
                Ok(sent) if sent == replies.len() => replies.clear(),
                Ok(sent) => (self.unsent, self.sent) = (std::mem::take(replies), sent),
                Err(Errno::AGAIN | Errno::INTR) => (self.unsent, self.sent) = (std::mem::take(replies), 0),
                Err(_) => {
                    replies.clear();
                    return Fate::Drop;
                }
            }
        }
        self.after_send()
    }

    fn flush(&mut self) -> Fate {
        match io::write(&self.socket, &self.unsent[self.sent..]) {
            Ok(sent) => self.sent += sent,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Fate::Drop,
        }
        if self.sent == self.unsent.len() {
            (self.unsent, self.sent) = (Vec::new(), 0);
        }
        self.after_send()
    }

    fn after_send(&mut self) -> Fate {
        match (self.unsent.is_empty(), self.once_sent) {
            (false, _) | (true, OnceSent::Continue) => Fate::Keep,
            (true, OnceSent::Close) => Fate::Drop,
            (true, OnceSent::Drain) => {
                self.speaks = Speaks::Nothing;
                self.once_sent = OnceSent::Continue;
                if shutdown(&self.socket, Shutdown::Write).is_ok() { Fate::Keep } else { Fate::Drop }
            }
        }
    }

    /// Sends a text that this connection did not ask for, or queues it behind what is still unsent. Never waits.
    pub fn deliver(&mut self, text: &[u8], replies: &mut Vec<u8>) -> Fate {
        if self.unsent.is_empty() {
            frame::push_frame(replies, frame::Opcode::Text, text);
            return self.send(replies);
        }
        frame::push_frame(&mut self.unsent, frame::Opcode::Text, text);
        if self.unsent.len() - self.sent > MOST_UNSENT { Fate::Drop } else { Fate::Keep }
    }
}
