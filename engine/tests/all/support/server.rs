//! A small threaded server with scripted behaviour, byte by byte if necessary. It has one thread for each connection
//! and blocking sockets. It is slow, honest or hostile, and shares no code with the engine.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// Serves every connection with `behave` until the test ends.
pub fn serve(behave: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let behave = Arc::new(behave);
    let accepted = AtomicUsize::new(0);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let behave = behave.clone();
            let number = accepted.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                let mut peer = Peer { number, input: BufReader::new(stream.try_clone().expect("a clone")), stream };
                // It is not an error of the server if the engine closes first.
                let _ = behave(&mut peer);
            });
        }
    });
    address
}

/// An address without a listener.
pub fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// A WebSocket server that passes every message, with its number from 1, to `answer`.
pub fn websocket(
    answer: impl Fn(&mut Peer, usize, u8, Vec<u8>) -> io::Result<()> + Send + Sync + 'static,
) -> SocketAddr {
    serve(move |peer| {
        peer.upgrade()?;
        let mut number = 0;
        loop {
            match peer.frame()? {
                (CLOSE, payload) => {
                    peer.send(CLOSE, &payload)?;
                    return peer.finish();
                }
                (opcode, payload) => {
                    number += 1;
                    answer(peer, number, opcode, payload)?;
                }
            }
        }
    })
}

pub fn echo_server() -> SocketAddr {
    websocket(|peer, _, opcode, payload| peer.send(opcode, &payload))
}

/// An echo that does `misbehave` instead of answering message 3 of a connection.
pub fn echo_until_third(
    misbehave: impl Fn(&mut Peer, u8, Vec<u8>) -> io::Result<()> + Send + Sync + 'static,
) -> SocketAddr {
    websocket(move |peer, number, opcode, payload| match number {
        3 => misbehave(peer, opcode, payload),
        _ => peer.send(opcode, &payload),
    })
}

/// An HTTP server that passes every request's head, with its number on this connection from 1, to `answer`.
pub fn http(answer: impl Fn(&mut Peer, usize, &str) -> io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    serve(move |peer| {
        for number in 1.. {
            let head = peer.head()?;
            answer(peer, number, &head)?;
        }
        Ok(())
    })
}

pub fn ok(body: usize, more: &str) -> Vec<u8> {
    let mut reply =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {body}\r\n{more}\r\n").into_bytes();
    reply.resize(reply.len() + body, b'x');
    reply
}

pub struct Peer {
    /// Connections that this server accepted before this one.
    pub number: usize,
    stream: TcpStream,
    input: BufReader<TcpStream>,
}

impl Peer {
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub fn read_exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// A request's head, including its empty line.
    pub fn head(&mut self) -> io::Result<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.input.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(head)
    }

    pub fn upgrade(&mut self) -> io::Result<()> {
        let head = self.head()?;
        let accept = accept_for(&head);
        self.raw(switching(&accept).as_bytes())
    }

    /// One frame of the engine: it must be masked, whole and small enough for a test.
    pub fn frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let (first, _, payload) = self.any_frame()?;
        assert_eq!(first & 0xf0, 0x80, "the engine sends whole frames without reserved bits");
        Ok((first & 0x0f, payload))
    }

    /// One frame of the engine as on the wire: its first byte, its mask key and its unmasked payload.
    pub fn any_frame(&mut self) -> io::Result<(u8, [u8; 4], Vec<u8>)> {
        let front = self.read_exactly(2)?;
        assert_eq!(front[1] & 0x80, 0x80, "the engine masks");
        let length = match front[1] & 0x7f {
            126 => u16::from_be_bytes(self.read_exactly(2)?.try_into().expect("two bytes")).into(),
            127 => u64::from_be_bytes(self.read_exactly(8)?.try_into().expect("eight bytes")),
            short => short.into(),
        };
        let key: [u8; 4] = self.read_exactly(4)?.try_into().expect("four bytes");
        let mut payload = self.read_exactly(length as usize)?;
        payload.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        Ok((front[0], key, payload))
    }

    /// A second handle for writing to this connection.
    pub fn writer(&self) -> TcpStream {
        self.stream.try_clone().expect("a clone")
    }

    pub fn send(&mut self, opcode: u8, payload: &[u8]) -> io::Result<()> {
        self.raw(&frame(0x80 | opcode, payload))
    }

    /// A frame that is not the last of its message.
    pub fn send_part(&mut self, opcode: u8, payload: &[u8]) -> io::Result<()> {
        self.raw(&frame(opcode, payload))
    }

    /// Sends FIN, then reads the engine's remaining bytes.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        io::copy(&mut self.input, &mut io::sink()).map(drop)
    }

    /// RST instead of FIN.
    pub fn reset(&mut self) -> io::Result<()> {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(Duration::ZERO))?;
        // Both handles must be dropped for the reset to be sent; an error makes the caller drop them.
        Err(io::ErrorKind::ConnectionReset.into())
    }

    /// Reads without answering until the engine closes.
    pub fn ignore(&mut self) -> io::Result<()> {
        io::copy(&mut self.input, &mut io::sink()).map(drop)
    }
}

pub fn accept_for(head: &str) -> String {
    let key =
        head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("the engine sends a key").trim();
    assert_eq!(STANDARD.decode(key).expect("the key is base64").len(), 16, "RFC 6455 §4.1: a 16-byte nonce");
    STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")))
}

pub fn switching(accept: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

/// An unmasked frame with any first byte.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..=125 => bytes.push(short as u8),
        medium @ 126..=65_535 => {
            bytes.push(126);
            bytes.extend((medium as u16).to_be_bytes());
        }
        long => {
            bytes.push(127);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}
