//! The kernel floor: the cost that the kernel alone imposes on a load generator with one thread on
//! epoll. A prebuilt request is sent and the bytes of its reply are counted but not checked. The
//! next request is sent from inside the same read. No clock is read for a message.
//! `engine/benches/compare.py` runs it next to the engine. It measures no server, because it would
//! accept any bytes as an answer.
//!
//! `floor MODE ADDRESS CONNECTIONS DEPTH BYTES SECONDS` prints one line of JSON. A connection that
//! breaks ends it with exit code 1. Modes: `echo` (DEPTH frames in flight; those that one read
//! completes are replaced in one write), `connect` (each connection once: TCP, handshake, held
//! until all are open, Close frame), `keep-alive` and `close` (HTTP documents, many on a connection
//! or one).

mod socket;
mod wrapped;

use socket::{Poll, Socket, Usage};
use std::net::SocketAddrV4;

/// As many concurrent connects as the engine.
const CONNECTS_AT_ONCE: usize = 100;
/// It stays in the core's cache.
const BUFFER_BYTES: usize = 64 << 10;
/// The process is killed this long after its work should have ended.
const GRACE_S: f64 = 60.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Echo,
    EchoTls,
    EchoDeflate,
    Connect,
    KeepAlive,
    Close,
}

struct Load {
    mode: Mode,
    address: SocketAddrV4,
    connections: usize,
    depth: usize,
    bytes: usize,
    seconds: f64,
}

/// The data exchanged, and its cost from the first message (or connect) to the last.
struct Outcome {
    messages: u64,
    cost: Usage,
}

fn main() {
    let Some(load) = Load::from_arguments() else {
        eprintln!("usage: floor echo|connect|keep-alive|close ADDRESS CONNECTIONS DEPTH BYTES SECONDS");
        std::process::exit(2);
    };
    socket::end_with_parent_or_after(load.seconds + GRACE_S);
    let outcome = match load.mode {
        Mode::Connect => connect(&load),
        Mode::Echo | Mode::KeepAlive => exchange(&load),
        Mode::EchoTls | Mode::EchoDeflate => wrapped::exchange(&load),
        Mode::Close => reopen(&load),
    };
    let Usage { wall_ns, user_ns, system_ns } = outcome.cost;
    println!(r#"{{"messages":{},"wall_ns":{wall_ns},"user_ns":{user_ns},"system_ns":{system_ns}}}"#, outcome.messages);
}

impl Load {
    fn from_arguments() -> Option<Load> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [mode, address, connections, depth, bytes, seconds] = arguments.as_slice() else { return None };
        let mode = match mode.as_str() {
            "echo" => Mode::Echo,
            "echo-tls" => Mode::EchoTls,
            "echo-deflate" => Mode::EchoDeflate,
            "connect" => Mode::Connect,
            "keep-alive" => Mode::KeepAlive,
            "close" => Mode::Close,
            _ => return None,
        };
        Some(Load {
            mode,
            address: address.parse().ok()?,
            connections: connections.parse().ok().filter(|&count| count > 0)?,
            depth: depth.parse().ok().filter(|&depth| depth > 0)?,
            bytes: bytes.parse().ok()?,
            seconds: seconds.parse().ok()?,
        })
    }

    /// A WebSocket upgrade request, with additional header lines.
    fn upgrade(&self, more: &str) -> Vec<u8> {
        format!(
            "GET /echo HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n",
            self.address
        )
        .into_bytes()
    }

    fn document_request(&self) -> Vec<u8> {
        let connection = if self.mode == Mode::Close { "Connection: close\r\n" } else { "" };
        format!("GET /doc?size={} HTTP/1.1\r\nHost: {}\r\n{connection}\r\n", self.bytes, self.address).into_bytes()
    }
}

/// A text frame of letters under a constant mask, as a client must send it.
fn masked_frame(bytes: usize) -> Vec<u8> {
    const KEY: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
    let mut frame = vec![0x81];
    match bytes {
        0..=125 => frame.push(0x80 | bytes as u8),
        126..=65_535 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(bytes as u16).to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(bytes as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&KEY);
    frame.extend((0..bytes).map(|at| b'a' ^ KEY[at % 4]));
    frame
}

/// The length of one document's reply, taken from the server.
fn reply_length(load: &Load, buffer: &mut [u8]) -> usize {
    let socket = Socket::connect(load.address);
    assert!(socket.send(&load.document_request()) > 0, "the first request was not taken");
    let mut received = 0;
    loop {
        received += socket.receive_waiting(&mut buffer[received..]);
        let head = String::from_utf8_lossy(&buffer[..received]);
        if let Some(end) = head.find("\r\n\r\n")
            && received >= end + 4 + load.bytes
        {
            assert!(head.starts_with("HTTP/1.1 200"), "the server does not serve the document");
            return received;
        }
    }
}

// ---- connect ---------------------------------------------------------------------------------------------------------

fn connect(load: &Load) -> Outcome {
    let mut poll = Poll::new();
    let begin = Usage::now();
    let sockets = open_all(load, &mut poll);
    let cost = Usage::now().since(&begin);
    let messages = sockets.len() as u64;
    close_all(sockets, &mut poll);
    Outcome { messages, cost }
}

/// Closes as the engine must, so that no server ends with a reset: a Close frame, then remaining
/// input until the server's end.
fn close_all(sockets: Vec<Socket>, poll: &mut Poll) {
    const CLOSE: [u8; 6] = [0x88, 0x80, 0, 0, 0, 0];
    let mut buffer = [0; 4096];
    let mut left = sockets.len();
    for socket in &sockets {
        assert_eq!(socket.send(&CLOSE), CLOSE.len(), "a Close frame was not taken whole");
    }
    let mut sockets: Vec<Option<Socket>> = sockets.into_iter().map(Some).collect();
    while left > 0 {
        for at in 0..poll.wait() {
            let socket = &mut sockets[poll.event(at).place];
            while let Some(count) = socket.as_ref().and_then(|socket| socket.receive(&mut buffer)) {
                if count == 0 {
                    *socket = None;
                    left -= 1;
                }
            }
        }
    }
}

/// Every connection of the load, upgraded for WebSocket, and registered with `poll` under its place.
fn open_all(load: &Load, poll: &mut Poll) -> Vec<Socket> {
    let upgrade = load.upgrade("");
    let websocket = matches!(load.mode, Mode::Echo | Mode::Connect);
    let mut sockets: Vec<Socket> = Vec::with_capacity(load.connections);
    let mut upgraded = 0;
    let mut buffer = [0; 4096];
    while upgraded < load.connections {
        while sockets.len() < load.connections && sockets.len() - upgraded < CONNECTS_AT_ONCE {
            let socket = Socket::connect(load.address);
            socket.send_at_once();
            poll.add(&socket, sockets.len());
            if websocket {
                assert_eq!(socket.send(&upgrade), upgrade.len(), "a handshake was not taken whole");
            } else {
                upgraded += 1;
            }
            sockets.push(socket);
        }
        if !websocket {
            continue;
        }
        for at in 0..poll.wait() {
            let answer = sockets[poll.event(at).place].receive(&mut buffer).unwrap_or(0);
            let answer = &buffer[..answer];
            assert!(answer.starts_with(b"HTTP/1.1 101") && answer.ends_with(b"\r\n\r\n"), "no upgrade in one piece");
            upgraded += 1;
        }
    }
    sockets
}

// ---- echo and keep-alive ---------------------------------------------------------------------------------------------

/// Bytes that a connection still has to receive, and bytes of its requests that the kernel has yet to accept.
#[derive(Clone, Copy, Default)]
struct Progress {
    awaited: usize,
    unsent: usize,
}

fn exchange(load: &Load) -> Outcome {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (request, reply) = match load.mode {
        // A server's frame is the client's without its mask.
        Mode::Echo => (masked_frame(load.bytes), masked_frame(load.bytes).len() - 4),
        _ => (load.document_request(), reply_length(load, &mut vec![0; load.bytes + 4096])),
    };
    // Any unsent rest ends where a request ends, and all requests are equal.
    let requests = request.repeat(load.depth);
    let mut poll = Poll::new();
    let sockets = open_all(load, &mut poll);
    let mut progress = vec![Progress::default(); sockets.len()];
    let mut messages = 0;
    let start = |poll: &mut Poll, place: usize, state: &mut Progress, count: usize| {
        state.awaited += reply * count;
        let waits = state.unsent > 0;
        state.unsent += request.len() * count;
        if !waits {
            state.unsent -= sockets[place].send(&requests[requests.len() - state.unsent..]);
            if state.unsent > 0 {
                poll.read_and_write(&sockets[place], place);
            }
        }
    };

    let begin = Usage::now();
    poll.end_after(load.seconds);
    for (place, state) in progress.iter_mut().enumerate() {
        start(&mut poll, place, state, load.depth);
    }
    loop {
        for at in 0..poll.wait() {
            let event = poll.event(at);
            if event.ends {
                return Outcome { messages, cost: Usage::now().since(&begin) };
            }
            let (socket, state) = (&sockets[event.place], &mut progress[event.place]);
            if event.writable {
                state.unsent -= socket.send(&requests[requests.len() - state.unsent..]);
                if state.unsent == 0 {
                    poll.read_only(socket, event.place);
                }
            }
            while let Some(count) = socket.receive(&mut buffer) {
                assert!(
                    (1..=state.awaited).contains(&count),
                    "{count} bytes came where {} were awaited",
                    state.awaited
                );
                // As many as have arrived completely.
                let before = state.awaited.div_ceil(reply);
                state.awaited -= count;
                let whole = before - state.awaited.div_ceil(reply);
                if whole > 0 {
                    messages += whole as u64;
                    start(&mut poll, event.place, state, whole);
                }
                if count < buffer.len() {
                    break;
                }
            }
        }
    }
}

// ---- close -----------------------------------------------------------------------------------------------------------

/// A connection for each document: the next opens when the server has closed the last.
fn reopen(load: &Load) -> Outcome {
    let mut buffer = vec![0; BUFFER_BYTES];
    let request = load.document_request();
    let reply = reply_length(load, &mut buffer);
    let mut poll = Poll::new();
    let mut awaited = vec![reply; load.connections];
    let open = |poll: &mut Poll, place: usize| {
        let socket = Socket::connect(load.address);
        poll.add(&socket, place);
        assert_eq!(socket.send(&request), request.len(), "a request was not taken whole");
        socket
    };
    let mut messages = 0;

    let begin = Usage::now();
    poll.end_after(load.seconds);
    let mut sockets: Vec<Socket> = (0..load.connections).map(|place| open(&mut poll, place)).collect();
    loop {
        for at in 0..poll.wait() {
            let event = poll.event(at);
            if event.ends {
                return Outcome { messages, cost: Usage::now().since(&begin) };
            }
            while let Some(count) = sockets[event.place].receive(&mut buffer) {
                assert!(count <= awaited[event.place], "a reply longer than the first one");
                awaited[event.place] -= count;
                if count == 0 {
                    assert_eq!(awaited[event.place], 0, "a reply that ends early");
                    messages += 1;
                    awaited[event.place] = reply;
                    sockets[event.place] = open(&mut poll, event.place);
                    break;
                }
                if count < buffer.len() && !event.closed {
                    break;
                }
            }
        }
    }
}
