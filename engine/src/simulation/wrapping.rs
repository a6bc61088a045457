//! The wrapping of servers: TLS by rustls, and permessage-deflate by zlib, each with only the other end's part.

use fastrand::Rng;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

/// A certificate that no client verifies, with a key whose signatures all have one length: a seed repeats the same run.
const CERTIFICATE: &[u8] = include_bytes!("server.pem");

pub struct Sealed(Box<ServerConnection>);

impl Sealed {
    pub fn new() -> Sealed {
        static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
        let config = CONFIG.get_or_init(|| {
            let certificate = CertificateDer::from_pem_slice(CERTIFICATE).expect("a certificate");
            let key = PrivateKeyDer::from_pem_slice(CERTIFICATE).expect("a key");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let builder = builder.expect("the provider has them").with_no_client_auth();
            Arc::new(builder.with_single_cert(vec![certificate], key).expect("they belong together"))
        });
        let mut session = ServerConnection::new(config.clone()).expect("the configuration is right");
        session.set_buffer_limit(None);
        Sealed(Box::new(session))
    }

    /// The complete part of a client's data.
    pub fn open(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            if self.0.read_tls(&mut bytes).expect("a slice can be read") == 0 {
                break;
            }
            let state = self.0.process_new_packets().expect("a client keeps to TLS");
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[start..]).expect("it is there");
        }
        plain
    }

    pub fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        self.0.writer().write_all(plain).expect("the buffer has no limit");
        self.words()
    }

    /// Data that the session has to send.
    pub fn words(&mut self) -> Vec<u8> {
        let mut words = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut words).expect("a vector takes everything");
        }
        words
    }
}

const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

pub struct Deflated {
    compress: Compress,
    decompress: Decompress,
    /// Whether each side keeps the content of its earlier messages.
    server_keeps: bool,
    client_keeps: bool,
}

impl Deflated {
    /// The parameters agreed with a client for this request; a server may always keep less than offered.
    pub fn agreed(head: &str, random: &mut Rng) -> Option<Deflated> {
        let offer = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Extensions: "))?;
        let may_keep = |side: &str| !offer.contains(&format!("{side}_no_context_takeover"));
        Some(Deflated {
            compress: Compress::new(Compression::new(random.u32(1..=6)), false),
            decompress: Decompress::new(false),
            server_keeps: may_keep("server") && random.bool(),
            client_keeps: may_keep("client"),
        })
    }

    /// The header line of its answer.
    pub fn answer(&self) -> String {
        let server = if self.server_keeps { "" } else { "; server_no_context_takeover" };
        let client = if self.client_keeps { "" } else { "; client_no_context_takeover" };
        format!("Sec-WebSocket-Extensions: permessage-deflate{server}{client}\r\n")
    }

    pub fn inflate(&mut self, message: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        for mut piece in [message, &TAIL] {
            loop {
                plain.reserve(1 << 16);
                let before = self.decompress.total_in();
                let status = self.decompress.decompress_vec(piece, &mut plain, FlushDecompress::Sync);
                status.expect("it was compressed");
                piece = &piece[(self.decompress.total_in() - before) as usize..];
                if piece.is_empty() && plain.len() < plain.capacity() {
                    break;
                }
            }
        }
        if !self.client_keeps {
            self.decompress.reset(false);
        }
        plain
    }

    /// Flushed, or ended by a final block (RFC 7692 §7.2.3.4), after which nothing is kept.
    pub fn deflate(&mut self, message: &[u8], random: &mut Rng) -> Vec<u8> {
        if message.is_empty() {
            return vec![0];
        }
        let ends = random.u32(..8) == 0;
        let flush = if ends { FlushCompress::Finish } else { FlushCompress::Sync };
        let mut small = Vec::with_capacity(2 * message.len() + 1024);
        self.compress.compress_vec(message, &mut small, flush).expect("zlib compresses everything");
        if ends {
            small.push(0);
        } else {
            small.truncate(small.len() - TAIL.len());
        }
        if ends || !self.server_keeps {
            self.compress.reset();
        }
        small
    }
}
