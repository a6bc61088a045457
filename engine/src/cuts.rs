//! The result of reading a server's stream does not depend on how it is cut. Each reader is fed the
//! whole stream and pieces of it. Used by the seeded tests in `fuzz`, which also check memory, and
//! by the coverage-guided ones in `fuzz/`.

use crate::failure::Failure;
use crate::frame::{self, Opcode};
use crate::handshake::{self, Offer};
use crate::http;
use crate::message::{Incoming, Reader};
use crate::plan::Deflate;
use crate::scenario::{Message, Script};
use crate::session::fields::Field;
use crate::session::json::Part;
use crate::session::records::{Records, Rest};
use crate::session::shape::Shapes;
use crate::session::{Action, Rule, Session, Table, Test};
use fastrand::Rng;

pub const MESSAGE: Message = Message { connection: 3, sequence: 100 };
pub const SEED: u64 = 1;
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub const TEXT: &str = "0123456789abcdef and then größer, 日本語 🙂 and more";
pub const DEFLATE: Deflate = Deflate { client_context_takeover: true, server_context_takeover: true, level: 6 };

// ---- entry points of the fuzzer: the first bytes choose, the others are the stream -------------------------------------

pub fn frames(bytes: &[u8]) {
    let [choice, seed, stream @ ..] = bytes else { return };
    let template = TEXT.bytes().cycle().take([0, 7, 16, 60][usize::from(choice >> 4 & 3)]).collect();
    let script = match choice & 3 {
        0 => Script::notices(SEED),
        1 => Script::ping(),
        2 => Script::echo(frame::TEXT, template, SEED),
        _ => Script::echo(frame::BINARY, template, SEED),
    };
    let inflating = [None, None, Some(true), Some(false)][usize::from(choice >> 2 & 3)];
    alike(&mut Rng::with_seed((*seed).into()), stream, |pieces| read_frames(&script, inflating, pieces));
}

pub fn handshakes(bytes: &[u8]) {
    let [choice, seed, stream @ ..] = bytes else { return };
    let offer = Offer {
        deflate: (choice & 1 > 0).then_some(DEFLATE),
        subprotocols: vec!["chat".into(); usize::from(choice >> 1 & 1)],
    };
    alike(&mut Rng::with_seed((*seed).into()), stream, |pieces| read_answer(&offer, pieces));
}

pub fn documents(bytes: &[u8]) {
    let [seed, stream @ ..] = bytes else { return };
    alike(&mut Rng::with_seed((*seed).into()), stream, read_replies);
}

// ---- cutting -----------------------------------------------------------------------------------------------------------

/// The stream in pieces: whole, byte by byte, or cut at random. A long stream is not cut byte by
/// byte, because a head is parsed again whenever more of it arrives.
fn pieces<'a>(random: &mut Rng, bytes: &'a [u8], way: usize) -> Vec<&'a [u8]> {
    match way {
        0 => vec![bytes],
        1 => bytes.chunks(bytes.len().div_ceil(3000).max(1)).collect(),
        _ => {
            let (mut pieces, mut rest) = (Vec::new(), bytes);
            while !rest.is_empty() {
                let most = if random.bool() { 8 } else { 3000 };
                let (piece, after) = rest.split_at(random.usize(1..=most).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces
        }
    }
}

/// Feeds every cut to `read` and asserts that all give the same result.
pub fn alike(random: &mut Rng, bytes: &[u8], read: impl Fn(&[&[u8]]) -> Vec<String>) {
    let whole = read(&pieces(random, bytes, 0));
    for way in 1..5 {
        let cut = pieces(random, bytes, way);
        assert_eq!(read(&cut), whole, "cut in {} pieces of {:02x?}", cut.len(), bytes);
    }
}

// ---- reading -----------------------------------------------------------------------------------------------------------

pub fn read_frames(script: &Script, inflating: Option<bool>, pieces: &[&[u8]]) -> Vec<String> {
    let mut reader = inflating.map_or_else(Reader::default, Reader::inflating);
    let feed = |piece: &mut &[u8]| {
        let incoming = reader.feed(piece, script, MESSAGE, script.mark(MESSAGE).as_ref())?;
        Ok(incoming.map(|incoming| match incoming {
            Incoming::Reply { wrong, fragmented, shift } => {
                format!("reply {:?} {fragmented} {shift}", wrong.map(|wrong| wrong.kind))
            }
            Incoming::Notice(text) => format!("notice {text:?}"),
            other => format!("{other:?}"),
        }))
    };
    read(pieces, feed).unwrap_or_else(|mut found| {
        found.push(format!("in message: {}", reader.in_message()));
        found
    })
}

pub fn read_replies(pieces: &[&[u8]]) -> Vec<String> {
    let mut reader = http::Reader::default();
    let feed = |piece: &mut &[u8]| Ok(reader.feed(piece, 10_000)?.map(|reply| format!("{reply:?}")));
    read(pieces, feed).unwrap_or_else(|mut found| {
        found.push(format!("in reply: {}, closed: {:?}", reader.in_reply(), reader.closed()));
        found
    })
}

/// What a reader finds: `Ok` if it ends with a failure, otherwise `Err`.
fn read(
    pieces: &[&[u8]],
    mut feed: impl FnMut(&mut &[u8]) -> Result<Option<String>, Failure>,
) -> Result<Vec<String>, Vec<String>> {
    let mut found = Vec::new();
    for &(mut piece) in pieces {
        while !piece.is_empty() {
            let before = piece.len();
            match feed(&mut piece) {
                Ok(None) => assert!(piece.is_empty(), "it has taken everything"),
                Ok(what) => found.extend(what),
                Err(Failure { kind, .. }) => {
                    found.push(format!("{kind:?}"));
                    return Ok(found);
                }
            }
            assert!(piece.len() < before, "every call takes something");
        }
    }
    Err(found)
}

/// As a worker does: the whole input so far, whenever more has arrived.
pub fn read_answer(offer: &Offer, pieces: &[&[u8]]) -> Vec<String> {
    let mut head = Vec::new();
    for piece in pieces {
        head.extend_from_slice(piece);
        match handshake::verify(&head, KEY, offer) {
            Ok(None) => {}
            Ok(Some(answer)) => return vec![format!("{answer:?}")],
            Err(Failure { kind, .. }) => return vec![format!("{kind:?}")],
        }
    }
    vec!["no answer yet".into()]
}

// ---- sessions ----------------------------------------------------------------------------------------------------------

/// Every kind of field.
pub fn table() -> Table {
    let key = |name: &str| Part::Key(name.into());
    let fields = vec![
        Field::Json { path: vec![key("id")] },
        Field::Json { path: vec![key("a"), Part::Index(1), key("b")] },
        Field::Digits { after: "43".into() },
        Field::Header { name: "id".into() },
        Field::Word { number: 1, after: Some('.') },
        Field::Byte { at: 0, mask: 0xf0 },
        Field::Number { at: 0 },
        Field::Text { at: 0 },
    ];
    let rule = |field: usize| Rule {
        name: field.to_string(),
        when: vec![Test::Has { field }, Test::Lacks { field: (field + 3) % 8 }],
        does: Action::Reply { by: Some(field), marked: true, last: true },
        captures: vec![],
    };
    let session = Session {
        opcode: Opcode::Binary,
        records: Records::Message {},
        longest: LONGEST_RECORD,
        rules: (0..fields.len()).map(rule).collect(),
        fields,
        templates: vec![],
        steps: vec![],
        setup: 0,
        keepalives: vec![],
        data: None,
        captured: 0,
        rooms: None,
        traced: false,
    };
    Table::new(&session, SEED).expect("it reads no file")
}

const LONGEST_RECORD: usize = 3000;

/// The kinds of records, those of a stream last.
pub fn kinds_of_records() -> [Records; 5] {
    [
        Records::Message {},
        Records::Separated { by: 0x1e, always: true },
        Records::Separated { by: b'\n', always: false },
        Records::Packets {},
        Records::Lines { counted: "MSG ".into() },
    ]
}

/// The records of messages: those of a stream do not depend on how it is cut.
pub fn sessions(bytes: &[u8]) {
    let [choice, seed, stream @ ..] = bytes else { return };
    let (table, kind) = (table(), usize::from(choice % 5));
    let records = &kinds_of_records()[kind];
    if kind < 3 {
        drop(read_records(&table, records, &[stream]));
        return;
    }
    alike(&mut Rng::with_seed((*seed).into()), stream, |pieces| read_records(&table, records, pieces));
}

pub fn read_records(table: &Table, records: &Records, pieces: &[&[u8]]) -> Vec<String> {
    let (mut rest, mut shapes, mut found) = (Rest::default(), Shapes::default(), Vec::new());
    for piece in pieces {
        let read = records.read(&mut rest, piece, LONGEST_RECORD, |record| {
            let judge = |shapes: &mut Shapes| {
                let mut seen = table.seen(record);
                table.judge(&mut seen, shapes).map(|rule| {
                    let values: Vec<_> = (0..table.session.fields.len()).map(|field| seen.value(field)).collect();
                    (rule, format!("{values:?}"), table.post.find(record.bytes))
                })
            };
            let judged = judge(&mut shapes);
            assert_eq!(judged, judge(&mut Shapes::default()), "as without those before it");
            found.push(format!("{:?}, body at {}: {judged:?}", record.bytes, record.body));
            Ok(true)
        });
        if let Err(Failure { kind, .. }) = read {
            found.push(format!("{kind:?}"));
            return found;
        }
    }
    found
}
