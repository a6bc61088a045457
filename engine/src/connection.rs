//! One connection of a worker: where it stands, what it waits for, and the few words it needs for that. It owns its socket
//! and nothing else that an idle connection would pay for.

use crate::http;
use crate::message;
use crate::plan::{Plan, Transport};
use crate::scenario::Message;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

#[derive(Debug, Default)]
pub enum Stage {
    #[default]
    Closed,
    /// TCP is being connected.
    Connecting,
    /// The upgrade was sent; the answer so far.
    Handshaking(Vec<u8>),
    Open,
    /// The reply is complete; the server has yet to close.
    AwaitingClose,
}

pub enum Reader {
    Frames(message::Reader),
    Http(Box<http::Reader>),
    /// Bytes of the four of `Pong` that have come, and whether they were right.
    Tcp(usize, bool),
}

impl Reader {
    pub fn new(transport: Transport) -> Reader {
        match transport {
            Transport::Websocket => Reader::Frames(message::Reader::default()),
            Transport::Http => Reader::Http(Box::default()),
            Transport::Tcp => Reader::Tcp(0, true),
        }
    }

    /// Whether the stream stands in the middle of something.
    pub fn in_reply(&self) -> bool {
        match self {
            Reader::Frames(reader) => reader.in_message(),
            Reader::Http(reader) => reader.in_reply(),
            Reader::Tcp(seen, _) => *seen > 0,
        }
    }
}

pub struct Connection {
    pub socket: Option<Socket>,
    pub stage: Stage,
    pub reader: Reader,
    pub message: Message,
    pub opened_ns: u64,
    pub sent_ns: u64,
    /// A connection per request: the reply was complete; it counts once the server has closed.
    pub replied_ns: u64,
    /// A message waits for its reply; `measured` says whether it was sent in the measured window.
    pub in_flight: bool,
    pub measured: bool,
    /// What a short write has left over; empty, and without memory, in the usual case.
    pub unsent: Vec<u8>,
}

impl Connection {
    pub fn new(number: u32, transport: Transport) -> Connection {
        Connection {
            socket: None,
            stage: Stage::Closed,
            reader: Reader::new(transport),
            message: Message { connection: number, sequence: 0 },
            opened_ns: 0,
            sent_ns: 0,
            replied_ns: 0,
            in_flight: false,
            measured: false,
            unsent: Vec::new(),
        }
    }

    pub fn descriptor(&self) -> Option<RawFd> {
        self.socket.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Begins to connect, without waiting.
    pub fn open(&mut self, plan: &Plan) -> io::Result<()> {
        let target = plan.target.address;
        let kind = Type::from(libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let socket = Socket::new_raw(Domain::for_address(target), kind, Some(Protocol::TCP))?;
        if !plan.connection_per_request() {
            socket.set_tcp_nodelay(true)?;
        }
        let source = plan.source_addresses[self.message.connection as usize % plan.source_addresses.len()];
        if !source.is_unspecified() {
            bind_address_only(&socket);
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&target.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        self.reader = Reader::new(plan.transport);
        self.stage = Stage::Connecting;
        self.socket = Some(socket);
        Ok(())
    }

    /// The error that a connect ended with, if it did.
    pub fn connect_error(&self) -> Option<io::Error> {
        self.socket.as_ref()?.take_error().unwrap_or_else(Some)
    }

    pub fn close(&mut self) {
        self.socket = None;
        self.stage = Stage::Closed;
        self.unsent = Vec::new();
    }
}

/// Leaves the choice of the port to `connect`, so that one source address serves as many ports for every target.
fn bind_address_only(socket: &Socket) {
    let on: libc::c_int = 1;
    // SAFETY: a valid descriptor and an option value of the size given. Failure only costs ports.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}
