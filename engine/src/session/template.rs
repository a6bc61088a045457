//! Templates: the messages of a session, with places that are filled for each of them.

use super::postmark::Postmark;
use crate::blocks::BLOCK;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Piece {
    Text(String),
    /// Hexadecimal digits.
    Bytes(String),
    /// A number in decimal digits.
    Number(Number),
    /// The number of this request in two bytes, the high one first: 1 to 65,535, then 1 again (MQTT 3.1.1 §2.3.1).
    Identifier(Nothing),
    /// A column of the user's line of the data.
    Column(usize),
    /// A value captured from an earlier record of this user; nothing, if there was none.
    Captured(usize),
    /// Who sends it, which message it is, and when.
    Postmark(Nothing),
    /// That many letters and digits, other ones in each message.
    Letters(usize),
    /// These pieces, with their length in front.
    Counted {
        by: Count,
        pieces: Vec<Piece>,
    },
}

impl Piece {
    /// Whether it or a piece of its group is such a one.
    pub fn has(&self, is_such: &impl Fn(&Piece) -> bool) -> bool {
        is_such(self) || matches!(self, Piece::Counted { pieces, .. } if pieces.iter().any(|piece| piece.has(is_such)))
    }
}

/// `{}` in the plan.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Number {
    /// Of the connection, from 0, over all shards.
    User,
    /// Of the request on its connection, from 1.
    Sequence,
    /// Of the user's room, from 0.
    Room,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Count {
    /// Two bytes, the high one first.
    Two,
    /// One to four bytes of seven bits, the low ones first.
    Sevens,
    /// Decimal digits and a line end (NATS).
    Digits,
}

/// What a message is filled with.
pub struct Filling<'a> {
    pub user: u32,
    pub sequence: u64,
    pub room: u32,
    pub clock: u32,
    pub t_ns: u64,
    /// That of the postmark, if there is one.
    pub check: u32,
    pub columns: &'a [Vec<u8>],
    pub captured: &'a [Vec<u8>],
    /// Letters and digits, at least as many as the longest `Letters` in whole blocks and `SHIFTS` more.
    pub letters: &'a [u8],
}

impl Filling<'_> {
    #[inline]
    pub fn postmark(&self) -> Postmark {
        let Filling { user, sequence, t_ns, clock, .. } = *self;
        Postmark { user, sequence: sequence as u32, t_ns, clock }
    }
}

/// The number of places at which letters may begin, so that as many messages differ.
pub const SHIFTS: usize = 4096;

/// What a plan's `Bytes` mean. `None` if they are no hexadecimal digits.
pub fn bytes(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// Short texts are copied in blocks, because most calls of `memcpy` would be for fewer bytes than they pay for.
const MOST_BLOCKS: usize = 4;

/// Appends the first `length` bytes of `text`, which has whole blocks of them.
#[inline]
fn put(text: &[u8], length: usize, out: &mut Vec<u8>) {
    let blocks = length.div_ceil(BLOCK);
    if blocks > MOST_BLOCKS {
        return out.extend_from_slice(&text[..length]);
    }
    let end = out.len() + length;
    for block in &text.as_chunks::<BLOCK>().0[..blocks] {
        out.extend_from_slice(block);
    }
    out.truncate(end);
}

/// A template that is ready to be written.
#[derive(Debug)]
pub struct Template(Vec<Ready>);

#[derive(Debug)]
enum Ready {
    /// So many bytes of whole blocks.
    Literal(usize, Vec<u8>),
    Number(Number),
    Identifier,
    Column(usize),
    Captured(usize),
    Postmark,
    Letters(usize),
    Counted(Count, Template),
}

impl Template {
    /// The plan was checked.
    pub fn new(pieces: &[Piece]) -> Template {
        let literal = |mut bytes: Vec<u8>| {
            let length = bytes.len();
            bytes.resize(length.next_multiple_of(BLOCK), 0);
            Ready::Literal(length, bytes)
        };
        let ready = |piece: &Piece| match piece {
            Piece::Text(text) => literal(text.clone().into_bytes()),
            Piece::Bytes(digits) => literal(bytes(digits).expect("checked with the plan")),
            Piece::Number(number) => Ready::Number(*number),
            Piece::Identifier(_) => Ready::Identifier,
            Piece::Column(column) => Ready::Column(*column),
            Piece::Captured(slot) => Ready::Captured(*slot),
            Piece::Postmark(_) => Ready::Postmark,
            Piece::Letters(count) => Ready::Letters(*count),
            Piece::Counted { by, pieces } => Ready::Counted(*by, Template::new(pieces)),
        };
        Template(pieces.iter().map(ready).collect())
    }

    pub fn write(&self, filling: &Filling, out: &mut Vec<u8>) {
        for ready in &self.0 {
            match ready {
                Ready::Literal(length, blocks) => put(blocks, *length, out),
                Ready::Number(Number::User) => decimal(filling.user.into(), out),
                Ready::Number(Number::Sequence) => decimal(filling.sequence, out),
                Ready::Number(Number::Room) => decimal(filling.room.into(), out),
                Ready::Identifier => out.extend_from_slice(&identifier(filling.sequence).to_be_bytes()),
                Ready::Column(column) => {
                    out.extend_from_slice(filling.columns.get(*column).map_or(&[][..], Vec::as_slice))
                }
                Ready::Captured(slot) => {
                    out.extend_from_slice(filling.captured.get(*slot).map_or(&[][..], Vec::as_slice))
                }
                Ready::Postmark => filling.postmark().write(filling.check, out),
                Ready::Letters(count) => {
                    let shift = (u64::from(filling.user) * 31 + filling.sequence * 7) as usize % SHIFTS;
                    put(&filling.letters[shift..], *count, out);
                }
                Ready::Counted(by, template) => {
                    let from = out.len();
                    template.write(filling, out);
                    put_length(*by, out.len() - from, from, out);
                }
            }
        }
    }
}

/// The number of a request as an MQTT packet identifier, which is never 0.
#[inline]
pub fn identifier(sequence: u64) -> u16 {
    (sequence.wrapping_sub(1) % u64::from(u16::MAX)) as u16 + 1
}

/// The largest group that a length of two bytes can count.
pub const MOST_IN_TWO: usize = u16::MAX as usize;
/// The largest one that four bytes of seven bits can.
pub const MOST_IN_SEVENS: usize = (1 << 28) - 1;

fn put_length(by: Count, length: usize, at: usize, out: &mut Vec<u8>) {
    let mut front = [0; 24];
    let size = match by {
        Count::Two => {
            front[..2].copy_from_slice(&(length.min(MOST_IN_TWO) as u16).to_be_bytes());
            2
        }
        Count::Sevens => {
            let (mut rest, mut size) = (length.min(MOST_IN_SEVENS), 0);
            loop {
                front[size] = (rest & 0x7f) as u8 | if rest > 0x7f { 0x80 } else { 0 };
                (rest, size) = (rest >> 7, size + 1);
                if rest == 0 {
                    break size;
                }
            }
        }
        Count::Digits => {
            let text = format!("{length}\r\n");
            front[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        }
    };
    out.extend_from_slice(&front[..size]);
    out[at..].rotate_right(size);
}

fn decimal(number: u64, out: &mut Vec<u8>) {
    let Some(small) = u32::try_from(number).ok().filter(|&number| number < 100_000_000) else {
        return out.extend_from_slice(number.to_string().as_bytes());
    };
    let end = out.len() + small.checked_ilog10().unwrap_or(0) as usize + 1;
    let digits = eight_digits(small) >> (8 * (8 - (end - out.len())));
    out.extend_from_slice(&digits.to_le_bytes());
    out.truncate(end);
}

/// Eight decimal digits, the highest in the lowest byte. Divides by 10,000, then both parts by 100, then all four by 10: the
/// divisions are multiplications by 1/100 and 1/10, exact for numbers of this size.
#[inline]
fn eight_digits(number: u32) -> u64 {
    let fours = u64::from(number / 10_000) | u64::from(number % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    (tens | (twos - 10 * tens) << 8) + 0x3030_3030_3030_3030
}

#[cfg(test)]
mod tests {
    use super::super::postmark::Post;
    use super::*;

    fn written(pieces: &[Piece]) -> Vec<u8> {
        let letters: Vec<u8> = (0..SHIFTS + 304).map(|at| b'a' + (at % 26) as u8).collect();
        let (columns, captured) = (["ann".into()], ["s1".into()]);
        let mut filling = Filling {
            user: 12,
            sequence: 65_536,
            room: 3,
            clock: 1,
            t_ns: 9,
            check: 0,
            columns: &columns,
            captured: &captured,
            letters: &letters,
        };
        filling.check = Post::new(1).check(filling.postmark());
        let mut out = b">".to_vec();
        Template::new(pieces).write(&filling, &mut out);
        out
    }

    #[test]
    fn places_are_filled() {
        let text = |text: &str| Piece::Text(text.into());
        let pieces = [
            text("{\"id\":"),
            Piece::Number(Number::Sequence),
            text(","),
            Piece::Number(Number::User),
            text(","),
            Piece::Number(Number::Room),
            Piece::Column(0),
            Piece::Captured(0),
            Piece::Column(9),
            Piece::Bytes("00ff".into()),
            Piece::Identifier(Nothing {}),
        ];
        assert_eq!(written(&pieces), b">{\"id\":65536,12,3anns1\0\xff\0\x01");
        let marked = written(&[Piece::Postmark(Nothing {}), Piece::Letters(5)]);
        let right = Postmark { user: 12, sequence: 65_536, t_ns: 9, clock: 1 };
        assert_eq!(Post::new(1).find(&marked), Some(right));
        assert_eq!(marked.len(), 1 + super::super::postmark::LENGTH + 5);
    }

    #[test]
    fn groups_have_their_length_in_front() {
        let group = |by, pieces: Vec<Piece>| Piece::Counted { by, pieces };
        let inner = group(Count::Two, vec![Piece::Text("a/b".into())]);
        let packet = [Piece::Bytes("30".into()), group(Count::Sevens, vec![inner, Piece::Text("hi".into())])];
        assert_eq!(written(&packet), b">\x30\x07\0\x03a/bhi");
        let long = written(&[group(Count::Sevens, vec![Piece::Letters(200)])]);
        assert_eq!((&long[..3], long.len()), (&b">\xc8\x01"[..], 203));
        assert_eq!(written(&[group(Count::Digits, vec![Piece::Letters(10)])])[..5], *b">10\r\n");
    }

    #[test]
    fn identifiers_go_round_and_are_never_zero() {
        assert_eq!([1, 65_535, 65_536, 131_070, 131_071].map(identifier), [1, 65_535, 1, 65_535, 1]);
    }

    #[test]
    fn literals_and_letters_of_every_length_are_whole() {
        for length in [0, 1, 15, 16, 17, 63, 64, 65, 300] {
            let text: String = (0..length).map(|at| char::from(b'A' + (at % 26) as u8)).collect();
            let message = written(&[Piece::Text(text.clone()), Piece::Letters(length), Piece::Text("x".into())]);
            assert_eq!(message[1..][..length], *text.as_bytes());
            assert!(message[1 + length..][..length].iter().all(u8::is_ascii_lowercase));
            assert_eq!((message.len(), message.last()), (2 + 2 * length, Some(&b'x')));
        }
    }

    #[test]
    fn numbers_are_their_decimal_digits() {
        let small = (0..100_000_000).step_by(12_347).chain(0..10_000);
        for number in small.chain([99_999_999, 100_000_000, u64::MAX]) {
            let mut out = b">".to_vec();
            decimal(number, &mut out);
            assert_eq!(out, format!(">{number}").into_bytes());
        }
    }

    #[test]
    fn digits_are_bytes() {
        assert_eq!(bytes("00fF10"), Some(vec![0, 255, 16]));
        assert_eq!([bytes("0"), bytes("zz"), bytes("+1")], [None, None, None]);
    }
}
