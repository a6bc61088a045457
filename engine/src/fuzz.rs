//! Feeds nearly valid streams to everything that parses a server's bytes. Nothing panics, nothing
//! exceeds its memory limits, every call makes progress, and the cut of a stream does not change
//! the result.
//!
//! The tests are seeded, so a failure names its case. They are ordinary tests, so they run with all
//! others. `fuzz/` fuzzes the same readers by coverage.

use crate::cuts::{
    DEFLATE, KEY, MESSAGE, SEED, TEXT, alike, kinds_of_records, read_answer, read_frames, read_records, read_replies,
    table,
};
use crate::deflate::{self, Deflater};
use crate::failure::Kind;
use crate::frame;
use crate::handshake::{self, Offer};
use crate::plan::Deflate;
use crate::push;
use crate::scenario::{Message, Script};
use fastrand::Rng;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

const CASES: u64 = 2000;
/// No reader keeps more than its longest message or head, and vectors grow by doubling.
const MOST_BYTES: isize = 1 << 20;

/// Counts the bytes that this thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is the system allocator's; the counters are plain numbers of this thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = HELD.try_with(|held| {
            held.set(held.get() + layout.size() as isize);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
        });
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ = HELD.try_with(|held| held.set(held.get() - layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work` and asserts that it never held much more than before.
fn within_memory<T>(case: u64, work: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    let most = PEAK.get() - before;
    assert!(most <= MOST_BYTES, "case {case}: {most} bytes were held");
    result
}

/// A stream with a few errors, or with none.
fn mutate(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..[0, 0, 1, 1, 2, 8][random.usize(..6)] {
        if bytes.is_empty() {
            return;
        }
        let at = random.usize(..bytes.len());
        match random.u8(..5) {
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] ^= 1 << random.u8(..8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.u8(..)),
            _ => drop(bytes.drain(at..(at + random.usize(..20)).min(bytes.len()))),
        }
    }
}

// ---- frames and messages -----------------------------------------------------------------------------------------------

fn frame_of(random: &mut Rng, first: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    let mask = if random.u8(..200) == 0 { 0x80 } else { 0 };
    match payload.len() {
        length @ 0..=125 if random.u8(..50) > 0 => out.push(mask | length as u8),
        length @ 0..=65_535 if random.u8(..50) > 0 => {
            out.push(mask | 126);
            out.extend((length as u16).to_be_bytes());
        }
        length => {
            out.push(mask | 127);
            let length = if random.u8(..50) == 0 { random.u64(..) } else { length as u64 };
            out.extend(length.to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

/// A reply to the expected message, to another, or to none.
fn payload_of(random: &mut Rng, script: &Script) -> Vec<u8> {
    let mut right = Vec::new();
    let sequence = MESSAGE.sequence.wrapping_add_signed(random.i64(-2..5) * i64::from(random.bool()));
    script.write(Message { sequence, ..MESSAGE }, &mut right);
    match random.u8(..8) {
        0 => right[..random.usize(..=right.len())].to_vec(),
        1 => [&right[..], "größer".as_bytes()].concat(),
        2 => "🙂é".repeat(random.usize(..40)).into_bytes(),
        3 => (0..random.usize(..300)).map(|_| random.u8(..)).collect(),
        4 => format!(
            "1700000000000000 {}",
            push::request((0, random.u32(1..3)), random.usize(..9), 5, 7, random.u64(..)).split_off(10)
        )
        .into_bytes(),
        5 => vec![b'a'; random.usize(..40_000)],
        _ => right,
    }
}

fn frames(random: &mut Rng, script: &Script, mut deflater: Option<Deflater>) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..random.usize(1..6) {
        let opcode = if random.bool() { script.opcode } else { random.u8(..11) };
        let (mut payload, mut first) = (payload_of(random, script), opcode);
        if let Some(deflater) = deflater.as_mut().filter(|_| random.u8(..4) > 0) {
            let large = std::mem::take(&mut payload);
            deflater.message(&large, &mut payload);
            first |= frame::COMPRESSED;
        }
        if opcode >= frame::CLOSE {
            payload.truncate(125);
            first &= !frame::COMPRESSED;
        }
        while opcode < frame::CLOSE && random.u8(..3) == 0 && !payload.is_empty() {
            let rest = payload.split_off(random.usize(..payload.len()));
            frame_of(random, first, &payload, &mut stream);
            (payload, first) = (rest, frame::CONTINUATION);
            if random.bool() {
                frame_of(random, frame::WHOLE | frame::PING, b"between", &mut stream);
            }
        }
        frame_of(random, first | frame::WHOLE, &payload, &mut stream);
    }
    stream
}

#[test]
fn frames_are_found_alike_however_they_are_cut() {
    for case in 0..CASES {
        let random = &mut Rng::with_seed(case);
        let length = [0, 1, 7, 16, 17, 60, 60, 20_000][random.usize(..8)];
        let template = TEXT.bytes().cycle().take(length).collect();
        let script = match random.u8(..4) {
            0 => Script::notices(SEED),
            1 => Script::ping(),
            _ => Script::echo([frame::TEXT, frame::BINARY][random.usize(..2)], template, SEED),
        };
        let inflating = [None, Some(true), Some(false)][random.usize(..3)];
        let mut stream = frames(random, &script, inflating.map(|takeover| Deflater::new(6, takeover)));
        mutate(random, &mut stream);
        alike(random, &stream, |pieces| within_memory(case, || read_frames(&script, inflating, pieces)));
    }
}

#[test]
fn a_small_piece_that_decompresses_to_much_is_refused_early() {
    let mut small = Vec::new();
    Deflater::new(9, true).message(&vec![b'a'; 64 << 20], &mut small);
    let mut stream = Vec::new();
    let most = small.len().min(65_000);
    frame_of(&mut Rng::with_seed(1), frame::WHOLE | frame::COMPRESSED | frame::TEXT, &small[..most], &mut stream);
    let script = Script::echo(frame::TEXT, vec![b'a'; 100], SEED);
    let found = within_memory(0, || read_frames(&script, Some(true), &[&stream]));
    assert_eq!(found, [format!("{:?}", Kind::Oversized)]);
}

// ---- HTTP --------------------------------------------------------------------------------------------------------------

fn replies(random: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..random.usize(1..4) {
        let status = ["200 OK", "404 Not Found", "101 Switching Protocols", "200", "0 x"][random.usize(..5)];
        let mut head = format!("HTTP/1.{} {status}\r\n", random.u8(..2));
        let body: Vec<u8> = (0..random.usize(..200)).map(|_| random.alphanumeric() as u8).collect();
        for _ in 0..random.usize(..4) {
            head +=
                ["Connection: close\r\n", "Connection: keep-alive\r\n", "X: y\r\n", "Server:\r\n"][random.usize(..4)];
        }
        if random.u16(..300) == 0 {
            head += &format!("Long: {}\r\n", "x".repeat(random.usize(60_000..70_000)));
        }
        let length = if random.u8(..20) == 0 { random.u64(..) } else { body.len() as u64 };
        let (framing, body) = match random.u8(..6) {
            0 => (String::new(), body),
            1 | 2 => {
                let mut chunks = Vec::new();
                for chunk in body.chunks(random.usize(1..60)) {
                    chunks.extend(format!("{:x}{}\r\n", chunk.len(), ["", ";a=b", " "][random.usize(..3)]).bytes());
                    chunks.extend_from_slice(chunk);
                    chunks.extend(b"\r\n");
                }
                chunks.extend(["0\r\n\r\n", "0\r\nTrailer: x\r\n\r\n", "0\n\n"][random.usize(..3)].bytes());
                ("Transfer-Encoding: chunked\r\n".into(), chunks)
            }
            _ => (format!("Content-Length: {length}\r\n"), body),
        };
        stream.extend(head.bytes().chain(framing.bytes()).chain(*b"\r\n"));
        stream.extend(body);
    }
    stream
}

#[test]
fn http_replies_are_found_alike_however_they_are_cut() {
    for case in 0..CASES {
        let random = &mut Rng::with_seed(case);
        let mut stream = replies(random);
        mutate(random, &mut stream);
        alike(random, &stream, |pieces| within_memory(case, || read_replies(pieces)));
    }
}

// ---- sessions ---------------------------------------------------------------------------------------------------------

fn records(random: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..random.usize(1..6) {
        let text = [
            r#"{"id":17,"a":[0,{"b":"x\"y"}]}"#,
            r#"43171["é"]"#,
            "RECEIPT\nid:9\n\n",
            "MSG a.b.3 1 5\r\nabcde",
            "PING",
            "",
        ][random.usize(..6)];
        match random.u8(..5) {
            0 => {
                let length = random.usize(..300);
                stream.extend([random.u8(..), (length & 0x7f) as u8 | 0x80, (length >> 7) as u8]);
                stream.extend([0, 3].into_iter().chain((2..length).map(|_| b'x')));
            }
            1 => stream.extend([random.u8(..), text.len() as u8].into_iter().chain(text.bytes())),
            _ => stream.extend(text.bytes().chain(["\r\n", "\n", "\u{1e}", "\0"][random.usize(..4)].bytes())),
        }
    }
    stream
}

#[test]
fn records_are_found_alike_however_their_stream_is_cut() {
    let table = table();
    for case in 0..CASES {
        let random = &mut Rng::with_seed(case);
        let mut stream = records(random);
        mutate(random, &mut stream);
        for (kind, records) in kinds_of_records().iter().enumerate() {
            match kind {
                0..3 => drop(within_memory(case, || read_records(&table, records, &[&stream]))),
                _ => alike(random, &stream, |pieces| within_memory(case, || read_records(&table, records, pieces))),
            }
        }
    }
}

// ---- the handshake -----------------------------------------------------------------------------------------------------

fn answer(random: &mut Rng) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {}\r\n", ["101 Switching Protocols", "101", "403 No"][random.usize(..10).min(2) % 3]);
    let accept = handshake::accept(KEY);
    let headers = [
        "Upgrade: websocket\r\n".to_string(),
        "Connection: keep-alive, Upgrade\r\n".into(),
        format!("Sec-WebSocket-Accept: {accept}\r\n"),
        "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=\"12\"\r\n".into(),
        "Sec-WebSocket-Protocol: chat\r\n".into(),
    ];
    for header in headers.iter().filter(|_| random.u8(..10) > 0).collect::<Vec<_>>() {
        head += header;
    }
    if random.u8(..50) == 0 {
        head += &format!("Long: {}\r\n", "x".repeat(random.usize(10_000..20_000)));
    }
    for number in 0..if random.u8(..20) == 0 { random.usize(..70) } else { 0 } {
        head += &format!("X-{number}: y\r\n");
    }
    head += "\r\n";
    let mut bytes = head.into_bytes();
    bytes.extend((0..random.usize(..10)).map(|_| random.u8(..)));
    bytes
}

#[test]
fn a_handshake_is_judged_alike_however_it_is_cut() {
    for case in 0..CASES / 4 {
        let random = &mut Rng::with_seed(case);
        let offer =
            Offer { deflate: random.bool().then_some(DEFLATE), subprotocols: vec!["chat".into(); random.usize(..2)] };
        let mut stream = answer(random);
        mutate(random, &mut stream);
        alike(random, &stream, |pieces| within_memory(case, || read_answer(&offer, pieces)));
    }
}

#[test]
fn no_text_is_too_strange_for_the_small_parsers() {
    let alphabet = b"permessage-deflate;=,\" server_max_window_bits0189+-broadcast\xc3\xa9\xff\0 ";
    let wanted = Deflate { client_context_takeover: false, server_context_takeover: true, level: 6 };
    for case in 0..CASES {
        let random = &mut Rng::with_seed(case);
        let mut bytes = b"permessage-deflate; server_max_window_bits=12".to_vec();
        mutate(random, &mut bytes);
        bytes.extend((0..random.usize(..30)).map(|_| alphabet[random.usize(..alphabet.len())]));
        let text = String::from_utf8_lossy(&bytes);
        let _ = deflate::agree(wanted, Some(&text));
        let _ = push::parse(&bytes);
    }
}
