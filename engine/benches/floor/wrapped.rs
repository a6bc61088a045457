//! The floor of wrapped traffic: an echo whose bytes pass through rustls alone, or through zlib alone. One session, or
//! one pair of contexts, for each connection. Compressed messages differ from one another as much as the engine's do:
//! each has its own front, and a part of one drawn text.

use crate::masked_frame;
use crate::socket::{Poll, Socket, Usage};
use crate::{Load, Mode, Outcome};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

const BUFFER_BYTES: usize = 512 << 10;
const LEVEL: u32 = 6;
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// Fifty of them are made, all of one variant.
#[expect(clippy::large_enum_variant)]
enum Wrapping {
    Tls(Box<ClientConnection>),
    /// Both contexts, and the received part of a frame.
    Deflate(Compress, Decompress, Vec<u8>),
}

struct Connection {
    socket: Socket,
    wrapping: Wrapping,
}

/// Depth 1. A frame that the kernel does not accept as a whole ends the process.
pub fn exchange(load: &Load) -> Outcome {
    let mut messages = Messages::new(load.bytes);
    let frame = masked_frame(load.bytes);
    let reply = if load.mode == Mode::EchoTls { frame.len() - 4 } else { load.bytes };
    let mut buffer = vec![0; BUFFER_BYTES];
    let config = client_config();
    let mut connections: Vec<Connection> = (0..load.connections).map(|_| open(load, &config, &mut buffer)).collect();
    let mut poll = Poll::new();
    connections.iter().enumerate().for_each(|(place, connection)| poll.add(&connection.socket, place));
    let mut awaited = vec![reply; connections.len()];
    let (mut out, mut plain, mut answered) = (Vec::new(), Vec::new(), 0);

    let begin = Usage::now();
    poll.end_after(load.seconds);
    connections.iter_mut().for_each(|connection| connection.send(&frame, &mut messages, &mut out));
    loop {
        for at in 0..poll.wait() {
            let event = poll.event(at);
            if event.ends {
                return Outcome { messages: answered, cost: Usage::now().since(&begin) };
            }
            let connection = &mut connections[event.place];
            let Some(count) = connection.socket.receive(&mut buffer) else { continue };
            assert!(count > 0, "the server closed");
            assert!(count < buffer.len(), "of what is left in the socket no event tells");
            let came = connection.receive(&buffer[..count], &mut plain);
            let left = &mut awaited[event.place];
            assert!(came <= *left, "{came} bytes came where {left} were awaited");
            *left -= came;
            if *left == 0 {
                answered += 1;
                *left = reply;
                connection.send(&frame, &mut messages, &mut out);
            }
        }
    }
}

impl Connection {
    fn send(&mut self, frame: &[u8], messages: &mut Messages, out: &mut Vec<u8>) {
        out.clear();
        match &mut self.wrapping {
            Wrapping::Tls(session) => {
                session.writer().write_all(frame).expect("the buffer has no limit");
                while session.wants_write() {
                    session.write_tls(out).expect("a vector takes everything");
                }
            }
            Wrapping::Deflate(compress, ..) => {
                let message = messages.next();
                // The mask is zero: the other floors measure masking.
                out.reserve(message.len() * 2 + 64);
                out.extend_from_slice(&[0xc1, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                compress.compress_vec(message, out, FlushCompress::Sync).expect("zlib compresses everything");
                out.truncate(out.len() - TAIL.len());
                let length = (out.len() - 14) as u64;
                out[2..10].copy_from_slice(&length.to_be_bytes());
            }
        }
        assert_eq!(self.socket.send(out), out.len(), "a frame was not taken whole");
    }

    /// How many bytes of replies these bytes complete: of frames if sealed, of messages if compressed.
    fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> usize {
        let mut came = 0;
        match &mut self.wrapping {
            Wrapping::Tls(session) => {
                while !bytes.is_empty() {
                    session.read_tls(&mut bytes).expect("a slice can be read");
                    let state = session.process_new_packets().expect("the server keeps to TLS");
                    plain.resize(state.plaintext_bytes_to_read(), 0);
                    session.reader().read_exact(plain).expect("it is there");
                    came += plain.len();
                }
            }
            Wrapping::Deflate(_, decompress, kept) => {
                kept.extend_from_slice(bytes);
                while let Some((start, end)) = payload_of(kept) {
                    plain.clear();
                    plain.reserve(BUFFER_BYTES);
                    for piece in [&kept[start..end], &TAIL] {
                        decompress.decompress_vec(piece, plain, FlushDecompress::Sync).expect("it was compressed");
                    }
                    came += plain.len();
                    drop(kept.drain(..end));
                }
            }
        }
        came
    }
}

/// Where the payload of a whole frame at the front stands.
fn payload_of(bytes: &[u8]) -> Option<(usize, usize)> {
    let (start, length) = match *bytes.get(1)? {
        126 => (4, u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?) as usize),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize),
        short => (2, short as usize),
    };
    (bytes.len() >= start + length).then_some((start, start + length))
}

/// Connects, does the TLS handshake and upgrades, blocking.
fn open(load: &Load, config: &Arc<ClientConfig>, buffer: &mut [u8]) -> Connection {
    let socket = Socket::connect(load.address);
    socket.send_at_once();
    let wrapping = match load.mode {
        Mode::EchoTls => {
            let name = ServerName::from(IpAddr::from(*load.address.ip()));
            let mut session = ClientConnection::new(config.clone(), name).expect("the configuration is right");
            session.set_buffer_limit(None);
            Wrapping::Tls(Box::new(session))
        }
        _ => Wrapping::Deflate(Compress::new(Compression::new(LEVEL), false), Decompress::new(false), Vec::new()),
    };
    let mut connection = Connection { socket, wrapping };
    let extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    let upgrade = load.upgrade(if load.mode == Mode::EchoTls { "" } else { extension });
    let mut answer = Vec::new();
    match &mut connection.wrapping {
        Wrapping::Tls(session) => {
            session.writer().write_all(&upgrade).expect("the buffer has no limit");
            while !answer.ends_with(b"\r\n\r\n") {
                let mut out = Vec::new();
                while session.wants_write() {
                    session.write_tls(&mut out).expect("a vector takes everything");
                }
                assert_eq!(connection.socket.send(&out), out.len(), "a handshake was not taken whole");
                let count = connection.socket.receive_waiting(buffer);
                let mut bytes = &buffer[..count];
                while !bytes.is_empty() {
                    session.read_tls(&mut bytes).expect("a slice can be read");
                    let state = session.process_new_packets().expect("the server keeps to TLS");
                    let start = answer.len();
                    answer.resize(start + state.plaintext_bytes_to_read(), 0);
                    session.reader().read_exact(&mut answer[start..]).expect("it is there");
                }
            }
        }
        Wrapping::Deflate(..) => {
            assert_eq!(connection.socket.send(&upgrade), upgrade.len(), "a handshake was not taken whole");
            while !answer.ends_with(b"\r\n\r\n") {
                let count = connection.socket.receive_waiting(buffer);
                answer.extend_from_slice(&buffer[..count]);
            }
            let agreed = String::from_utf8_lossy(&answer).contains("permessage-deflate");
            assert!(agreed, "the server declined permessage-deflate");
        }
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "no upgrade");
    connection
}

/// The number of offsets for a message's part of the drawn text, and the number of unique bytes at
/// its front, as in the engine.
const PLACES: usize = 4096;
const FRONT: usize = 16;

struct Messages {
    state: u64,
    drawn: Vec<u8>,
    message: Vec<u8>,
}

impl Messages {
    fn new(bytes: usize) -> Messages {
        let mut messages = Messages { state: 1, drawn: Vec::new(), message: vec![0; bytes] };
        messages.drawn = (0..bytes + PLACES).map(|_| messages.draw() as u8).map(letter).collect();
        messages
    }

    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    fn next(&mut self) -> &[u8] {
        let (number, place) = (self.draw(), self.draw() as usize % PLACES);
        let bytes = self.message.len();
        self.message.copy_from_slice(&self.drawn[place..place + bytes]);
        for (at, byte) in self.message.iter_mut().take(FRONT).enumerate() {
            *byte = b"0123456789abcdef"[(number >> (at % 8 * 4)) as usize & 15];
        }
        &self.message
    }
}

fn letter(number: u8) -> u8 {
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[usize::from(number) % 62]
}

fn client_config() -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.expect("the provider has them").dangerous();
    Arc::new(builder.with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth())
}

/// The server belongs to the test.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
