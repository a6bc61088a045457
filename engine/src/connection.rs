//! One connection of a worker: where it stands, what it waits for, and the few words it needs for that. It owns its socket
//! and nothing else that an idle connection would pay for.

use crate::deflate::Deflater;
use crate::http;
use crate::message;
use crate::plan::{Plan, Transport};
use crate::poll;
use crate::scenario::Message;
use crate::tls;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
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
    /// We have said goodbye; the server has yet to close.
    Closing,
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
    pub measured: bool,
}

pub struct Connection {
    socket: Option<OwnedFd>,
    pub tls: Option<Box<tls::Session>>,
    /// Compresses what is sent, where that was agreed upon.
    pub deflater: Option<Box<Deflater>>,
    pub number: u32,
    pub stage: Stage,
    /// Stands in the worker's line of connections that can take a message.
    pub in_line: bool,
    /// The user is to go as soon as nothing is under way.
    pub leaving: bool,
    pub reader: Reader,
    /// Under way, oldest first; replies come in this order.
    pub pending: VecDeque<Pending>,
    /// Messages sent, of all times. For a receiver of broadcasts: the number after the last one that came.
    pub sequence: u64,
    /// Replies on this very connection.
    pub replies: u64,
    pub opened_ns: u64,
    /// A connection per request: the reply was complete; it counts once the server has closed.
    pub replied_ns: u64,
    /// What a short write has left over; empty, and without memory, in the usual case.
    pub unsent: Vec<u8>,
}

impl Connection {
    pub fn new(number: u32, transport: Transport) -> Connection {
        Connection {
            socket: None,
            tls: None,
            deflater: None,
            number,
            stage: Stage::Closed,
            in_line: false,
            leaving: false,
            reader: Reader::new(transport),
            pending: VecDeque::new(),
            sequence: 0,
            replies: 0,
            opened_ns: 0,
            replied_ns: 0,
            unsent: Vec::new(),
        }
    }

    pub fn descriptor(&self) -> Option<RawFd> {
        self.socket.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The message that the next reply answers.
    #[inline]
    pub fn expected(&self) -> Message {
        Message { connection: self.number, sequence: self.sequence + 1 - self.pending.len() as u64 }
    }

    /// Begins to connect, without waiting.
    pub fn open(&mut self, plan: &Plan) -> io::Result<RawFd> {
        let target = plan.target.address;
        let kind = Type::from(libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let socket = Socket::new_raw(Domain::for_address(target), kind, Some(Protocol::TCP))?;
        if !plan.connection_per_request() {
            socket.set_tcp_nodelay(true)?;
        }
        let source = plan.source_addresses[self.number as usize % plan.source_addresses.len()];
        if !is_natural(source, target.ip()) {
            bind_address_only(&socket);
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&target.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        self.reader = Reader::new(plan.transport);
        self.stage = Stage::Connecting;
        self.replies = 0;
        self.leaving = false;
        let socket = self.socket.insert(socket.into());
        Ok(socket.as_raw_fd())
    }

    pub fn close(&mut self) {
        self.socket = None;
        self.tls = None;
        self.deflater = None;
        self.stage = Stage::Closed;
        self.unsent = Vec::new();
    }
}

/// Whether the kernel would choose this source by itself: two system calls less for each connection.
fn is_natural(source: IpAddr, target: IpAddr) -> bool {
    source.is_unspecified() || source == IpAddr::V4(Ipv4Addr::LOCALHOST) && target == source
}

/// Leaves the choice of the port to `connect`, so that one source address serves as many ports for every target.
fn bind_address_only(socket: &Socket) {
    // Failure only costs ports.
    let _ = poll::set_option(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
}
