//! permessage-deflate (RFC 7692), without I/O: the offer, the permitted answers, compression and
//! decompression of messages. zlib does the compression.

use crate::failure::{Failure, Kind};
use crate::plan::Deflate;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The end of a flushed block, which is omitted from every message (§7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];
const STEP: usize = 16 << 10;
/// Maximum number of final blocks in one message; a message usually has none or one. Each costs as
/// much as some kilobytes of content.
const FINAL_BLOCKS: u32 = 64;
/// The distance to which a compressed message may refer back (RFC 1951 §2).
const WINDOW: usize = 32 << 10;

/// The negotiated parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreed {
    pub client_takeover: bool,
    pub server_takeover: bool,
}

pub fn offer(wanted: Deflate) -> String {
    let mut offer = "permessage-deflate".to_string();
    if !wanted.client_context_takeover {
        offer += "; client_no_context_takeover";
    }
    if !wanted.server_context_takeover {
        offer += "; server_no_context_takeover";
    }
    offer
}

/// Parses the server's answer to the offer (§7.1); an error names what is not permitted.
pub fn agree(wanted: Deflate, answer: Option<&str>) -> Result<Agreed, String> {
    let answer = answer.ok_or("the server declined permessage-deflate")?;
    let mut agreed =
        Agreed { client_takeover: wanted.client_context_takeover, server_takeover: wanted.server_context_takeover };
    let mut parts = answer.split(';').map(str::trim);
    if parts.next() != Some("permessage-deflate") || answer.contains(',') {
        return Err(format!("an extension nobody offered: {answer}"));
    }
    let mut server_resets = false;
    let mut names = Vec::new();
    for part in parts {
        let (name, value) = part
            .split_once('=')
            .map_or((part, None), |(name, value)| (name.trim(), Some(value.trim().trim_matches('"'))));
        if names.contains(&name) {
            return Err(format!("a parameter twice: {answer}"));
        }
        names.push(name);
        match (name, value) {
            ("client_no_context_takeover", None) => agreed.client_takeover = false,
            ("server_no_context_takeover", None) => server_resets = true,
            ("server_max_window_bits", Some("8" | "9" | "10" | "11" | "12" | "13" | "14" | "15")) => {}
            _ => return Err(format!("a parameter nobody offered: {part}")),
        }
    }
    if !wanted.server_context_takeover && !server_resets {
        return Err("the server would keep its context, which the offer excludes".into());
    }
    agreed.server_takeover &= !server_resets;
    Ok(agreed)
}

pub struct Deflater {
    stream: Compress,
    takeover: bool,
}

impl Deflater {
    pub fn new(level: u32, takeover: bool) -> Deflater {
        Deflater { stream: Compress::new(Compression::new(level), false), takeover }
    }

    /// Replaces `small` by the compressed message.
    pub fn message(&mut self, message: &[u8], small: &mut Vec<u8>) {
        small.clear();
        if message.is_empty() {
            // zlib flushes nothing only once; this is an empty block without its tail (§7.2.3.6).
            return small.push(0);
        }
        let before = self.stream.total_in();
        loop {
            small.reserve(message.len() / 2 + STEP);
            let taken = (self.stream.total_in() - before) as usize;
            let result = self.stream.compress_vec(&message[taken..], small, FlushCompress::Sync);
            result.expect("zlib compresses everything");
            // Unused space means that the flush is complete.
            if (self.stream.total_in() - before) as usize == message.len() && small.len() < small.capacity() {
                break;
            }
        }
        debug_assert!(small.ends_with(&TAIL));
        small.truncate(small.len() - TAIL.len());
        if !self.takeover {
            self.stream.reset();
        }
    }
}

pub struct Inflater {
    stream: Decompress,
    takeover: bool,
    large: Vec<u8>,
    /// Data that later messages may refer to, if the context is kept: at least the end of it, as long as the window.
    window: Vec<u8>,
    /// Final blocks of this message so far.
    finals: u32,
}

impl Inflater {
    pub fn new(takeover: bool) -> Inflater {
        Inflater { stream: Decompress::new(false), takeover, large: Vec::new(), window: Vec::new(), finals: 0 }
    }

    /// Passes the content of a piece of a compressed message to `take`, part by part, so that a
    /// small piece cannot cause a large allocation. `end` follows the last piece of a message.
    pub fn piece(
        &mut self,
        piece: &[u8],
        end: bool,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.inflate(piece, &mut take)?;
        if end {
            self.inflate(&TAIL, &mut take)?;
            self.finals = 0;
            if !self.takeover {
                self.stream.reset(false);
            }
        }
        Ok(())
    }

    fn inflate(
        &mut self,
        mut piece: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        loop {
            self.large.clear();
            self.large.reserve(STEP);
            let before = self.stream.total_in();
            let status = self.stream.decompress_vec(piece, &mut self.large, FlushDecompress::Sync);
            if !self.large.is_empty() {
                take(&self.large)?;
                self.remember();
            }
            let status = status.map_err(|error| Failure::new(Kind::BadDeflate, error.to_string()))?;
            piece = &piece[(self.stream.total_in() - before) as usize..];
            let full = self.large.len() == self.large.capacity();
            if status == Status::StreamEnd {
                self.finals += 1;
                if self.finals > FINAL_BLOCKS {
                    let what = format!("more than {FINAL_BLOCKS} final blocks in a message");
                    return Err(Failure::new(Kind::BadDeflate, what));
                }
                // A final block (§7.2.3.4) ends the stream, not the context: later data may refer to earlier data.
                self.stream.reset(false);
                let window = &self.window[self.window.len().saturating_sub(WINDOW)..];
                if !window.is_empty() {
                    let given = self.stream.set_dictionary(window);
                    given.map_err(|error| Failure::new(Kind::BadDeflate, error.to_string()))?;
                }
            }
            if piece.is_empty() && !full || status == Status::BufError {
                return Ok(());
            }
        }
    }

    fn remember(&mut self) {
        if !self.takeover {
            return;
        }
        if self.window.len() > 2 * WINDOW {
            self.window.drain(..self.window.len() - WINDOW);
        }
        self.window.extend_from_slice(&self.large);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Deflate = Deflate { client_context_takeover: true, server_context_takeover: true, level: 6 };
    const NEITHER: Deflate = Deflate { client_context_takeover: false, server_context_takeover: false, level: 6 };

    #[test]
    fn an_answer_is_held_to_the_offer() {
        assert_eq!(offer(BOTH), "permessage-deflate");
        assert_eq!(offer(NEITHER), "permessage-deflate; client_no_context_takeover; server_no_context_takeover");
        let both = Agreed { client_takeover: true, server_takeover: true };
        assert_eq!(agree(BOTH, Some("permessage-deflate")), Ok(both));
        let resets = agree(BOTH, Some("permessage-deflate; server_no_context_takeover;server_max_window_bits=\"12\""));
        assert_eq!(resets, Ok(Agreed { server_takeover: false, ..both }));
        for (wanted, answer) in [
            (BOTH, None),
            (BOTH, Some("permessage-bzip2")),
            (BOTH, Some("permessage-deflate, permessage-deflate")),
            (BOTH, Some("permessage-deflate; client_max_window_bits=10")),
            (BOTH, Some("permessage-deflate; server_max_window_bits=16")),
            (BOTH, Some("permessage-deflate; server_max_window_bits=09")),
            (BOTH, Some("permessage-deflate; server_max_window_bits")),
            (BOTH, Some("permessage-deflate; server_max_window_bits=9; server_max_window_bits=10")),
            (BOTH, Some("permessage-deflate; server_no_context_takeover; server_no_context_takeover")),
            (BOTH, Some("permessage-deflate; server_no_context_takeover=1")),
            (NEITHER, Some("permessage-deflate; client_no_context_takeover")),
        ] {
            assert!(agree(wanted, answer).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn messages_survive_in_any_pieces_with_and_without_context() {
        for takeover in [true, false] {
            let (mut deflater, mut inflater) = (Deflater::new(6, takeover), Inflater::new(takeover));
            let mut sizes = Vec::new();
            for length in [0u64, 1, 5, 1000, 1000, 0, 0, 300_000] {
                let message: Vec<u8> = (0..length).map(|i| (i * i % 251) as u8).collect();
                let mut small = Vec::new();
                deflater.message(&message, &mut small);
                sizes.push(small.len());
                let mut whole = Vec::new();
                let mut take = |part: &[u8]| {
                    whole.extend_from_slice(part);
                    Ok(())
                };
                let cut = small.len() / 3;
                inflater.piece(&small[..cut], false, &mut take).unwrap();
                inflater.piece(&small[cut..], true, &mut take).unwrap();
                assert!(whole == message, "{length} bytes, takeover {takeover}");
            }
            assert_eq!(sizes[4] < sizes[3], takeover, "a context makes the second of two equal messages smaller");
        }
    }

    #[test]
    fn without_context_a_message_is_the_same_whatever_was_compressed_before() {
        let text = |seed: u64, length: usize| -> Vec<u8> {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..length).map(|_| random.alphanumeric() as u8).collect()
        };
        for level in [1, 6] {
            let mut shared = Deflater::new(level, false);
            for (seed, length) in [(1, 1000), (1, 1000), (2, 70_000), (1, 40_000), (2, 300), (3, 0), (1, 1000)] {
                let (mut small, mut own) = (Vec::new(), Vec::new());
                shared.message(&text(seed, length), &mut small);
                Deflater::new(level, false).message(&text(seed, length), &mut own);
                assert!(small == own, "level {level}, {length} bytes");
            }
        }
    }

    #[test]
    fn a_final_block_ends_no_context() {
        let text = |seed: u64| -> Vec<u8> {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..3000).map(|_| random.alphanumeric() as u8).collect()
        };
        let mut first = Vec::with_capacity(8192);
        let mut stream = Compress::new(Compression::new(6), false);
        stream.compress_vec(&text(1), &mut first, FlushCompress::Finish).unwrap();
        // §7.2.3.4: an empty block without its tail follows the rest of the final block's last byte.
        first.push(0);
        let mut second = Vec::with_capacity(8192);
        let mut stream = Compress::new(Compression::new(6), false);
        stream.set_dictionary(&text(1)).unwrap();
        stream.compress_vec(&text(1), &mut second, FlushCompress::Sync).unwrap();
        second.truncate(second.len() - TAIL.len());
        assert!(second.len() < 100, "it refers to the first: {}", second.len());
        let mut inflater = Inflater::new(true);
        for small in [first, second.clone(), second] {
            let mut whole = Vec::new();
            let mut take = |part: &[u8]| {
                whole.extend_from_slice(part);
                Ok(())
            };
            inflater.piece(&small, true, &mut take).unwrap();
            assert!(whole == text(1), "{} bytes", whole.len());
        }
    }

    #[test]
    fn a_flood_of_final_blocks_is_bad_deflate() {
        let mut inflater = Inflater::new(true);
        let many = [&[3, 0].repeat(FINAL_BLOCKS as usize)[..], &[0]].concat();
        let mut most = || inflater.piece(&many, true, |_| Ok(()));
        // Two messages have two counts.
        assert_eq!((most(), most()), (Ok(()), Ok(())));
        let found = Inflater::new(true).piece(&[3, 0].repeat(10_000), true, |_| Ok(()));
        assert_eq!(found.unwrap_err().kind, Kind::BadDeflate);
    }

    #[test]
    fn what_is_not_deflated_is_bad_deflate() {
        let found = Inflater::new(true).piece(&[0xff; 40], true, |_| Ok(()));
        assert_eq!(found.unwrap_err().kind, Kind::BadDeflate);
    }
}
