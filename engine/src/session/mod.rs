//! A session: a conversation that the plan declares as tables. Records are cut from messages, fields are read from
//! records, rules say what a record is, and templates are the engine's own messages. No I/O and no time: `conversing`
//! carries sessions out.

pub mod check;
pub mod fields;
pub mod json;
pub mod postmark;
pub mod records;
pub mod shape;
pub mod template;

use crate::blocks::BLOCK;
use crate::failure::{Failure, Kind};
use crate::frame::Opcode;
use crate::keys::present;
use fields::{Field, Fields, Seen};
use postmark::Post;
use records::{Record, Records};
use serde::Deserialize;
use shape::Shapes;
use std::io;
use std::path::PathBuf;
use template::{Piece, SHIFTS, Template};

/// Steps have a latency each.
pub const MOST_STEPS: usize = 16;

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Session {
    pub opcode: Opcode,
    pub records: Records,
    /// Bytes of the longest record and the longest message that are accepted.
    pub longest: usize,
    pub fields: Vec<Field>,
    /// The first whose tests hold applies to a record.
    pub rules: Vec<Rule>,
    pub templates: Vec<Vec<Piece>>,
    /// The first `setup` of them once for every connection, before it is open; the others in turn.
    pub steps: Vec<Step>,
    pub setup: usize,
    pub keepalives: Vec<Keepalive>,
    /// A CSV file. Behind its first line, which names the columns, line `n` is that of user `n`, in rotation.
    #[serde(deserialize_with = "present")]
    pub data: Option<PathBuf>,
    /// The number of captured values that a user keeps.
    pub captured: usize,
    #[serde(deserialize_with = "present")]
    pub rooms: Option<Rooms>,
    /// Every message and record is written down: for people who write a session.
    pub traced: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    pub when: Vec<Test>,
    pub does: Action,
    /// Fields to keep, and where.
    pub captures: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Test {
    Begins { text: String },
    Is { field: usize, text: String },
    Has { field: usize },
    Lacks { field: usize },
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Action {
    /// The record answers the request whose number is in field `by`, or else the oldest one. With `marked` it repeats
    /// that request's postmark, if it has one. Without `last`, further replies to the same request follow.
    Reply {
        #[serde(deserialize_with = "present")]
        by: Option<usize>,
        marked: bool,
        last: bool,
    },
    /// The server sends it of its own accord, or for another user.
    Push {},
    Answer {
        template: usize,
    },
    Ignore {},
    /// The server reports an error of the request whose number is in field `by`, or else of the connection. Without
    /// `last`, the request fails when its last reply arrives.
    Fail {
        #[serde(deserialize_with = "present")]
        by: Option<usize>,
        last: bool,
    },
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub name: String,
    /// `None`: it only awaits.
    #[serde(deserialize_with = "present")]
    pub sends: Option<usize>,
    pub awaits: Await,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Await {
    /// A record to which this rule applies.
    Rule { rule: usize },
    /// The push that has this step's postmark.
    Own {},
    /// Nothing: the next step follows at once.
    Nothing {},
}

/// A step that was sent. It is kept until it is answered, so that nothing is computed again for the answer.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
pub struct Request {
    /// Its number on its connection.
    pub sequence: u64,
    /// That of its postmark.
    pub check: u32,
    pub step: u8,
    /// Its last reply has not arrived, but an error has.
    pub has_failed: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Keepalive {
    pub every_s: f64,
    pub template: usize,
}

/// User `u` is in room `u mod count`. The first `publishers` of a room send, and everybody receives.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rooms {
    pub count: u32,
    #[serde(deserialize_with = "present")]
    pub publishers: Option<u32>,
    /// Whether a publisher receives its own messages.
    pub own: bool,
}

impl Rooms {
    pub fn publishers(&self, connections: usize) -> u32 {
        let members = connections.div_ceil(self.count as usize) as u32;
        self.publishers.unwrap_or(members).min(members)
    }
}

impl Session {
    /// The steps that are carried out in turn.
    pub fn body(&self) -> &[Step] {
        &self.steps[self.setup..]
    }
}

/// A session that is ready to be carried out.
pub struct Table {
    pub session: Session,
    pub post: Post,
    pub letters: Vec<u8>,
    /// Requests have identifiers of two bytes, which repeat.
    pub has_identifiers: bool,
    fields: Fields,
    /// By rule. Where a test compares with a number, with that.
    tests: Vec<Vec<(Test, Option<u64>)>>,
    pub templates: Vec<Template>,
    /// By template: whether messages of it have a postmark.
    pub marked: Vec<bool>,
    lines: Vec<Vec<Vec<u8>>>,
}

impl Table {
    /// Fails if the data cannot be read.
    pub fn new(session: &Session, seed: u64) -> io::Result<Table> {
        let ready = |test: &Test| {
            let number = if let Test::Is { text, .. } = test { text.parse().ok() } else { None };
            (test.clone(), number)
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let letters = SHIFTS + longest_letters(session.templates.iter().flatten()).next_multiple_of(BLOCK);
        Ok(Table {
            post: Post::new(seed),
            has_identifiers: session.templates.iter().flatten().any(|piece| piece.has(&is_identifier)),
            letters: (0..letters).map(|_| random.alphanumeric() as u8).collect(),
            fields: Fields::new(&session.fields),
            tests: session.rules.iter().map(|rule| rule.when.iter().map(ready).collect()).collect(),
            templates: session.templates.iter().map(|pieces| Template::new(pieces)).collect(),
            marked: session.templates.iter().map(|pieces| pieces.iter().any(|piece| piece.has(&is_postmark))).collect(),
            lines: session.data.as_deref().map_or(Ok(Vec::new()), read_lines)?,
            session: session.clone(),
        })
    }

    #[inline]
    pub fn seen<'a>(&self, record: Record<'a>) -> Seen<'a, '_> {
        self.fields.of(record)
    }

    #[inline]
    pub fn step_of(&self, request: &Request) -> &Step {
        &self.session.steps[usize::from(request.step)]
    }

    /// What a record is: the rule that applies to it, if one does.
    #[inline]
    pub fn judge(&self, seen: &mut Seen, shapes: &mut Shapes) -> Result<Option<usize>, Failure> {
        seen.scan(shapes)?;
        let holds = |(test, number): &(Test, Option<u64>)| match test {
            Test::Begins { text } => seen.record.bytes.starts_with(text.as_bytes()),
            Test::Is { field, text } => match seen.value(*field) {
                Some(fields::Value::Bytes(bytes)) => bytes == text.as_bytes(),
                Some(fields::Value::Number(found)) => *number == Some(found),
                None => false,
            },
            Test::Has { field } => seen.value(*field).is_some(),
            Test::Lacks { field } => seen.value(*field).is_none(),
        };
        Ok(self.tests.iter().position(|tests| tests.iter().all(holds)))
    }

    /// What a template is for, in a trace: a step, a rule that answers, or a keep-alive.
    pub fn name_of(&self, template: usize) -> &str {
        let Session { steps, rules, .. } = &self.session;
        let step = steps.iter().find(|step| step.sends == Some(template)).map(|step| &step.name);
        let answers = |rule: &&Rule| rule.does == (Action::Answer { template });
        step.or_else(|| rules.iter().find(answers).map(|rule| &rule.name)).map_or("keep-alive", String::as_str)
    }

    pub fn columns(&self, user: u32) -> &[Vec<u8>] {
        match self.lines.len() {
            0 => &[],
            lines => &self.lines[user as usize % lines],
        }
    }

    #[cold]
    pub fn unexpected(&self, record: Record) -> Failure {
        Failure::new(Kind::UnexpectedReply, format!("no rule for {:?}", fields::excerpt(record.bytes)))
    }
}

fn is_postmark(piece: &Piece) -> bool {
    matches!(piece, Piece::Postmark(_))
}

fn is_identifier(piece: &Piece) -> bool {
    matches!(piece, Piece::Identifier(_))
}

fn longest_letters<'a>(pieces: impl Iterator<Item = &'a Piece>) -> usize {
    let length = |piece: &'a Piece| match piece {
        Piece::Letters(count) => *count,
        Piece::Counted { pieces, .. } => longest_letters(pieces.iter()),
        _ => 0,
    };
    pieces.map(length).max().unwrap_or(0)
}

fn read_lines(path: &std::path::Path) -> io::Result<Vec<Vec<Vec<u8>>>> {
    let mut reader = csv::Reader::from_path(path)?;
    let columns = |line: csv::ByteRecord| line.iter().map(<[u8]>::to_vec).collect();
    reader.byte_records().map(|line| Ok(columns(line?))).collect()
}
