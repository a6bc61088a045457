//! One connection of a worker: where it stands, what it waits for, and the few words it needs for that. It owns its socket
//! and nothing else that an idle connection would pay for.

use crate::deflate::Deflater;
use crate::http;
use crate::message;
use crate::plan::Transport;
use crate::scenario::{Mark, Message};
use crate::tls;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Closed,
    /// TCP is being connected; what comes first could not be sent yet.
    Connecting,
    /// TLS is shaking hands.
    Securing,
    /// The upgrade was sent.
    Handshaking,
    Open,
    /// The reply is complete; the server has yet to close.
    AwaitingClose,
    /// A receiver of broadcasts that is to go: it is expected at no further one, and has yet to receive those under way.
    Leaving,
    /// We have said goodbye; the server has yet to close.
    Closing,
}

/// What a connection is counted as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counted {
    Nowhere,
    Opening,
    Open,
    Closing,
}

impl State {
    pub fn counted(self) -> Counted {
        match self {
            State::Closed => Counted::Nowhere,
            State::Connecting | State::Securing | State::Handshaking => Counted::Opening,
            State::Open | State::AwaitingClose => Counted::Open,
            State::Leaving | State::Closing => Counted::Closing,
        }
    }
}

pub enum Reader {
    /// The answer to the upgrade so far.
    Handshake(Vec<u8>),
    Frames(message::Reader),
    Http(Box<http::Reader>),
    /// Bytes of the four of `Pong` that have come, and whether they were right.
    Tcp(usize, bool),
}

impl Reader {
    /// For a connection that is being opened.
    pub fn new(transport: Transport) -> Reader {
        match transport {
            Transport::Websocket => Reader::Handshake(Vec::new()),
            Transport::Http => Reader::Http(Box::default()),
            Transport::Tcp => Reader::Tcp(0, true),
        }
    }

    /// Whether the stream stands in the middle of something.
    pub fn in_reply(&self) -> bool {
        match self {
            Reader::Handshake(_) => false,
            Reader::Frames(reader) => reader.in_message(),
            Reader::Http(reader) => reader.in_reply(),
            Reader::Tcp(seen, _) => *seen > 0,
        }
    }
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub due_ns: u64,
    pub sent_ns: u64,
    /// Where it ends among the bytes of its connection.
    pub end: u32,
    pub measured: bool,
    pub mark: Mark,
}

/// What is under way on a connection, oldest first: one in place, because most connections never have two. Once there were two,
/// all are in the queue.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "a pointer instead of four words in every connection")]
pub struct UnderWay {
    only: Option<Pending>,
    queue: Option<Box<VecDeque<Pending>>>,
}

impl UnderWay {
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.as_ref().map_or(usize::from(self.only.is_some()), |queue| queue.len())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn oldest(&self) -> Option<&Pending> {
        self.queue.as_ref().map_or(self.only.as_ref(), |queue| queue.front())
    }

    pub fn all(&self) -> impl Iterator<Item = &Pending> {
        self.only.iter().chain(self.queue.iter().flat_map(|queue| queue.iter()))
    }

    pub fn oldest_mut(&mut self) -> Option<&mut Pending> {
        self.queue.as_mut().map_or(self.only.as_mut(), |queue| queue.front_mut())
    }

    #[inline]
    pub fn add(&mut self, pending: Pending) {
        if let Some(queue) = &mut self.queue {
            queue.push_back(pending);
        } else if self.only.is_none() {
            self.only = Some(pending);
        } else {
            self.queue = Some(Box::new(VecDeque::from_iter(self.only.take().into_iter().chain([pending]))));
        }
    }

    #[inline]
    pub fn take(&mut self) -> Option<Pending> {
        match &mut self.queue {
            Some(queue) => queue.pop_front(),
            None => self.only.take(),
        }
    }

    /// What follows byte `from` was sealed: messages end where their last records do.
    pub fn sealed(&mut self, from: u32, records: &tls::Records) {
        let all = self.only.iter_mut().chain(self.queue.iter_mut().flat_map(|queue| queue.iter_mut()));
        for message in all.rev() {
            let plain = message.end.wrapping_sub(from) as i32;
            if plain <= 0 {
                break;
            }
            message.end = from.wrapping_add(records.end_of(plain as usize) as u32);
        }
    }
}

/// Which broadcasts a connection is expected to receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiver {
    /// The number after the last one that came, or of the first that was triggered while it was there.
    pub next: u32,
    /// Where it leaves: the number after the last one that it is still to receive.
    pub until: u32,
}

/// Three cache lines: what every message touches, the reader, and what few messages need. With many connections each line
/// is a miss for each message.
#[repr(C, align(64))]
pub struct Connection<Socket> {
    pub socket: Option<Socket>,
    /// Its number among those of all shards.
    pub number: u32,
    /// Set by `Worker::move_to` alone, which counts.
    pub state: State,
    /// Stands in the worker's line of connections that can take a message.
    pub in_line: bool,
    /// The user is to go as soon as nothing is under way.
    pub leaving: bool,
    /// Takes the place of one that the server announced to close, and is counted as the same.
    pub replaces: bool,
    /// A broadcast has come.
    pub has_heard: bool,
    /// Of each life the connection is another: a due time that was set in an earlier one is void, and so is what came in it.
    pub life: u32,
    /// Bytes that were written for it, modulo 2³²: those that the kernel has, and those that are kept.
    pub written: u32,
    pub under_way: UnderWay,
    /// Messages sent, of all times.
    pub sequence: u64,
    /// What a short write has left over; never empty.
    pub unsent: Option<Box<Unsent>>,
    pub receiver: Receiver,
    pub reader: Reader,
    /// On this very connection.
    pub replies: u64,
    pub opened_ns: u64,
    /// A connection per request: the reply was complete; it counts once the server has closed. Also since when we are leaving, or
    /// when we said goodbye, or when that was answered.
    pub replied_ns: u64,
    pub tls: Option<Box<tls::Session>>,
    /// Compresses what is sent, where that was agreed upon.
    pub deflater: Option<Box<Deflater>>,
}

const _: () = assert!(size_of::<Connection<std::os::fd::OwnedFd>>() == 192, "an idle connection costs what it is");

/// What waits for room in the kernel's buffer. It may hold the rest of the messages that were under way when the room
/// ended, and one Pong: the newest (RFC 6455 §5.5.3), so a peer that asks and never reads fills nothing here.
pub struct Unsent {
    bytes: Vec<u8>,
    /// So many of them the kernel has taken meanwhile.
    taken: usize,
    pub pong: Option<Vec<u8>>,
}

impl Unsent {
    pub fn left(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    pub fn take(&mut self, count: usize) {
        self.taken += count;
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.taken > self.bytes.len() / 2 {
            drop(self.bytes.drain(..self.taken));
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }
}

impl<Socket> Connection<Socket> {
    pub fn new(number: u32, transport: Transport) -> Self {
        Connection {
            socket: None,
            number,
            state: State::Closed,
            in_line: false,
            leaving: false,
            replaces: false,
            has_heard: false,
            life: 0,
            written: 0,
            under_way: UnderWay::default(),
            sequence: 0,
            unsent: None,
            receiver: Receiver::default(),
            reader: Reader::new(transport),
            replies: 0,
            opened_ns: 0,
            replied_ns: 0,
            tls: None,
            deflater: None,
        }
    }

    /// Keeps what the kernel did not take.
    pub fn keep(&mut self, bytes: &[u8]) {
        match &mut self.unsent {
            Some(unsent) => unsent.add(bytes),
            None if bytes.is_empty() => {}
            None => self.unsent = Some(Box::new(Unsent { bytes: bytes.to_vec(), taken: 0, pong: None })),
        }
    }

    /// Whether all of a message was handed to the kernel: before that nobody can have read it.
    #[inline]
    pub fn has_left(&self, message: &Pending) -> bool {
        let kept = self.unsent.as_ref().map_or(0, |unsent| unsent.left().len()) as u32;
        self.written.wrapping_sub(kept).wrapping_sub(message.end) as i32 >= 0
    }

    /// The message that the next reply answers.
    #[inline]
    pub fn expected(&self) -> Message {
        Message { connection: self.number, sequence: self.sequence + 1 - self.under_way.len() as u64 }
    }

    /// Another life begins, on this socket.
    pub fn begin(&mut self, transport: Transport, socket: Socket) {
        self.reader = Reader::new(transport);
        self.replies = 0;
        self.has_heard = false;
        self.written = 0;
        self.leaving = false;
        self.life += 1;
        self.socket = Some(socket);
    }

    /// Nothing is left of its life but its numbers.
    pub fn let_go(&mut self) {
        self.socket = None;
        self.tls = None;
        self.deflater = None;
        self.unsent = None;
    }
}
