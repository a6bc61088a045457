//! One connection of a worker: its state, what it waits for, and the few fields needed for that. It
//! owns its socket and nothing else that an idle connection would pay for.

use crate::deflate::Deflater;
use crate::http;
use crate::message;
use crate::plan::Transport;
use crate::scenario::{Mark, Message};
use crate::session::Request;
use crate::tls;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Closed,
    /// TCP is connecting; the first bytes could not be sent yet.
    Connecting,
    /// The TLS handshake is in progress.
    Securing,
    /// The upgrade was sent.
    Handshaking,
    /// The setup of a session is in progress.
    SettingUp,
    Open,
    /// The reply is complete; the server still has to close.
    AwaitingClose,
    /// A receiver of broadcasts that is leaving. No further broadcast is expected of it, but copies in flight are.
    Leaving,
    /// The engine has sent its Close frame; the server still has to close.
    Closing,
}

/// The state in which a connection is counted.
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
            State::Connecting | State::Securing | State::Handshaking | State::SettingUp => Counted::Opening,
            State::Open | State::AwaitingClose => Counted::Open,
            State::Leaving | State::Closing => Counted::Closing,
        }
    }
}

pub enum Reader {
    /// The part of the upgrade response received so far.
    Handshake(Vec<u8>),
    Frames(message::Reader),
    Http(Box<http::Reader>),
    /// How many of the four bytes of `Pong` have arrived, and whether they were correct.
    Tcp(usize, bool),
}

impl Reader {
    pub fn new(transport: Transport) -> Reader {
        match transport {
            Transport::Websocket => Reader::Handshake(Vec::new()),
            Transport::Http => Reader::Http(Box::default()),
            Transport::Tcp => Reader::Tcp(0, true),
        }
    }

    /// Whether the stream is inside a message, frame or record.
    pub fn in_reply(&self) -> bool {
        match self {
            Reader::Handshake(_) => false,
            Reader::Frames(reader) => reader.in_message(),
            Reader::Http(reader) => reader.in_reply(),
            Reader::Tcp(seen, _) => *seen > 0,
        }
    }
}

/// A message in flight.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub due_ns: u64,
    pub sent_ns: u64,
    /// Its end, as an offset in the byte stream of its connection.
    pub end: u32,
    pub measured: bool,
    pub kept: Kept,
}

/// What is kept of a message to know its reply.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    Nothing,
    Mark(Mark),
    Request(Request),
}

const _: () = assert!(size_of::<Pending>() == 40, "what is kept has no space of its own between its bytes");

impl Pending {
    #[inline]
    pub fn request(&self) -> Option<&Request> {
        if let Kept::Request(request) = &self.kept { Some(request) } else { None }
    }

    /// Whether all of it is among so many bytes of its stream, modulo 2³².
    #[inline]
    pub fn ends_within(&self, bytes: u32) -> bool {
        bytes.wrapping_sub(self.end) as i32 >= 0
    }
}

/// The messages in flight on a connection, oldest first. One is stored in place, because most
/// connections never have two. After the second one, all are in the queue.
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

    /// The session's request with this number, and its slot. They are in the order of their numbers.
    #[inline]
    pub fn find(&self, sequence: u64) -> Option<(usize, &Pending)> {
        // Most are answered in turn.
        let oldest = self.oldest()?;
        if oldest.request()?.sequence == sequence {
            return Some((0, oldest));
        }
        let queue = self.queue.as_ref()?;
        let number = |pending: &Pending| pending.request().map(|request| request.sequence);
        let slot = queue.binary_search_by_key(&Some(sequence), number).ok()?;
        Some((slot, &queue[slot]))
    }

    pub fn fail_later(&mut self, slot: usize) {
        let pending = self.parts().into_iter().flatten().nth(slot);
        if let Some(Pending { kept: Kept::Request(request), .. }) = pending {
            request.has_failed = true;
        }
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

    /// All of them, oldest first, in two parts.
    #[inline]
    pub fn parts(&mut self) -> [&mut [Pending]; 2] {
        match &mut self.queue {
            Some(queue) => queue.as_mut_slices().into(),
            None => [self.only.as_mut_slice(), &mut []],
        }
    }

    /// The newest messages have taken the places of so many of the oldest, and so many behind those are answered.
    #[inline]
    pub fn turn(&mut self, renewed: usize, answered: usize) {
        match &mut self.queue {
            Some(queue) => {
                queue.rotate_left(renewed);
                queue.drain(..answered);
            }
            None if answered > 0 => self.only = None,
            None => {}
        }
    }

    #[inline]
    pub fn take_at(&mut self, slot: usize) -> Option<Pending> {
        match &mut self.queue {
            Some(queue) if slot == 0 => queue.pop_front(),
            Some(queue) => queue.remove(slot),
            None => self.only.take_if(|_| slot == 0),
        }
    }

    /// Everything from byte `from` on was sealed: messages end where their last records end.
    pub fn sealed(&mut self, from: u32, records: &tls::Records) {
        for message in self.parts().into_iter().flatten().rev() {
            let plain = message.end.wrapping_sub(from) as i32;
            if plain <= 0 {
                break;
            }
            message.end = from.wrapping_add(records.end_of(plain as usize) as u32);
        }
    }
}

/// The range of broadcasts that a connection is expected to receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiver {
    /// The number after the last one received, or the first one triggered after this receiver joined.
    pub next: u32,
    /// When it leaves: the number after the last one that it still has to receive.
    pub until: u32,
}

/// Three cache lines: fields that every message touches, the reader, and fields that few messages
/// need. With many connections, each line is a cache miss for each message.
#[repr(C, align(64))]
pub struct Connection<Socket> {
    pub socket: Option<Socket>,
    /// Its number among the connections of all shards.
    pub number: u32,
    /// Set only by `Worker::move_to`, which counts.
    pub state: State,
    /// Is in the worker's queue of connections that can take a message.
    pub in_line: bool,
    /// The user leaves as soon as no message is in flight.
    pub leaving: bool,
    /// Replaces a connection that the server announced to close, and counts as the same one.
    pub replaces: bool,
    /// A broadcast has arrived.
    pub has_heard: bool,
    /// Is in the worker's list of connections that have more to read.
    pub unread: bool,
    /// A read that does not fill the buffer is not the last: see `system::Event`.
    pub goes_on: bool,
    /// Differs for each generation of the connection. A due time set in an earlier generation is void, and so
    /// is anything received in it.
    pub generation: u32,
    /// Bytes written for it, modulo 2³²: those that the kernel has accepted, and those that are kept.
    pub written: u32,
    pub under_way: UnderWay,
    /// Messages sent since the engine began.
    pub sequence: u64,
    /// The rest of a short write; never empty.
    pub unsent: Option<Box<Unsent>>,
    pub receiver: Receiver,
    pub reader: Reader,
    /// On this connection.
    pub replies: u64,
    pub opened_ns: u64,
    /// For a connection per request: when the reply was complete; it counts once the server has
    /// closed. Also when the setup of its session began, when leaving began, when the Close frame was sent, or when it was answered.
    pub replied_ns: u64,
    pub tls: Option<Box<tls::Session>>,
    /// Compresses outgoing messages, if what was sent before is kept for them. Otherwise that of the worker does.
    pub deflater: Option<Box<Deflater>>,
}

const _: () = assert!(size_of::<Connection<std::os::fd::OwnedFd>>() == 192, "an idle connection costs what it is");

/// Bytes that wait for space in the kernel's buffer: the rest of the messages in flight when the space ended, and one
/// Pong, the newest (RFC 6455 §5.5.3). A peer that sends Pings and never reads therefore cannot grow it.
pub struct Unsent {
    bytes: Vec<u8>,
    /// The number of these bytes that the kernel has accepted since.
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
            unread: false,
            goes_on: false,
            generation: 0,
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

    /// Keeps the bytes that the kernel did not accept.
    pub fn keep(&mut self, bytes: &[u8]) {
        match &mut self.unsent {
            Some(unsent) => unsent.add(bytes),
            None if bytes.is_empty() => {}
            None => self.unsent = Some(Box::new(Unsent { bytes: bytes.to_vec(), taken: 0, pong: None })),
        }
    }

    /// Whether the kernel has accepted all of a message. Before that no peer can have read it.
    #[inline]
    pub fn has_left(&self, message: &Pending) -> bool {
        message.ends_within(self.accepted())
    }

    /// How many bytes the kernel has accepted, modulo 2³².
    #[inline]
    pub fn accepted(&self) -> u32 {
        let kept = self.unsent.as_ref().map_or(0, |unsent| unsent.left().len()) as u32;
        self.written.wrapping_sub(kept)
    }

    /// The message that the next reply answers.
    #[inline]
    pub fn expected(&self) -> Message {
        Message { connection: self.number, sequence: self.sequence + 1 - self.under_way.len() as u64 }
    }

    /// Begins another generation, on this socket.
    pub fn begin(&mut self, transport: Transport, socket: Socket) {
        self.reader = Reader::new(transport);
        self.replies = 0;
        self.has_heard = false;
        self.goes_on = false;
        self.written = 0;
        self.leaving = false;
        self.generation += 1;
        self.socket = Some(socket);
    }

    /// Clears everything of its generation except its numbers.
    pub fn release(&mut self) {
        self.socket = None;
        self.tls = None;
        self.deflater = None;
        self.unsent = None;
    }
}
