//! Records: what the application of a session calls a message. One WebSocket message, a part of one, or a part of the
//! stream of bytes that the messages carry.

use crate::failure::{Failure, Kind};
use memchr::{memchr, memrchr};
use serde::Deserialize;

#[cfg(test)]
thread_local! {
    /// Bytes in which records were looked for, for a law of the simulation.
    pub static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Records {
    /// Every message is one record.
    Message {},
    /// Records end with this byte. With `always` the last one of a message does too. Line ends between records are
    /// ignored.
    Separated { by: u8, always: bool },
    /// A byte, the length of the rest in one to four bytes of seven bits, and the rest (MQTT 3.1.1 §2.2). Not aligned
    /// with messages.
    Packets {},
    /// Lines, not aligned with messages. If one begins with `counted`, its last word is the length of what follows it,
    /// before another line end (NATS).
    Lines { counted: String },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    pub bytes: &'a [u8],
    /// Where its body begins: behind a packet's length, or behind a counted line.
    pub body: usize,
}

/// The beginning of a record, and what it needs to become one: it is looked at again only then, so that a stream in
/// small messages does not cost more than its bytes.
#[derive(Debug, Default)]
pub struct Rest {
    bytes: Vec<u8>,
    needs: Needs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Needs {
    /// Any further byte.
    #[default]
    More,
    /// The end of its line.
    LineEnd,
    /// So many bytes in all.
    Bytes(usize),
}

#[derive(Debug, PartialEq)]
pub enum Next<'a> {
    Record(Record<'a>),
    Needs(Needs),
}

impl Rest {
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Whether these bytes, of which so many have just come, may have the end of the record.
    fn ends_within(&self, bytes: &[u8], new: usize) -> bool {
        match self.needs {
            Needs::More => true,
            Needs::LineEnd => memchr(b'\n', &bytes[bytes.len() - new..]).is_some(),
            Needs::Bytes(count) => bytes.len() >= count,
        }
    }
}

impl Records {
    /// Passes every record of a message to `each`, until that is false. `rest` is the beginning of a record that
    /// continues in the next message.
    #[inline]
    pub fn read(
        &self,
        rest: &mut Rest,
        message: &[u8],
        longest: usize,
        mut each: impl FnMut(Record) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut joined = Vec::new();
        let mut input = message;
        if !rest.bytes.is_empty() {
            joined = std::mem::take(&mut rest.bytes);
            joined.extend_from_slice(message);
            if !rest.ends_within(&joined, message.len()) {
                if rest.needs == Needs::LineEnd {
                    within(without_return(&joined).len(), longest)?;
                }
                rest.bytes = joined;
                return Ok(());
            }
            input = &joined;
        }
        #[cfg(test)]
        LOOKED_AT.set(LOOKED_AT.get() + input.len());
        let needs = loop {
            match self.next(&mut input, longest)? {
                Next::Record(record) if each(record)? => {}
                Next::Record(_) => return Ok(()),
                Next::Needs(needs) => break needs,
            }
        };
        rest.needs = needs;
        if input.len() == joined.len() {
            rest.bytes = joined;
        } else {
            rest.bytes.extend_from_slice(input);
        }
        Ok(())
    }

    /// Takes the next record off the front of `input`, which is a whole message, or the part of a stream that has not
    /// been read. What a stream leaves in `input` is the beginning of a record.
    #[inline]
    pub fn next<'a>(&self, input: &mut &'a [u8], longest: usize) -> Result<Next<'a>, Failure> {
        let whole = |bytes| Ok(Next::Record(Record { bytes, body: 0 }));
        match self {
            Records::Message {} if input.is_empty() => Ok(Next::Needs(Needs::More)),
            Records::Message {} => whole(std::mem::take(input)),
            Records::Separated { by, always } => {
                let begin = input.iter().position(|byte| !matches!(byte, b'\n' | b'\r')).unwrap_or(input.len());
                *input = &input[begin..];
                match memchr(*by, input) {
                    Some(length) => whole(take(input, length + 1).split_at(length).0),
                    None if input.is_empty() => Ok(Next::Needs(Needs::More)),
                    None if *always => {
                        Err(Failure::new(Kind::BadRecord, format!("the last record does not end with {by:#04x}")))
                    }
                    None => whole(std::mem::take(input)),
                }
            }
            Records::Packets {} => packet(input, longest),
            Records::Lines { counted } => line(input, counted.as_bytes(), longest),
        }
    }
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (front, rest) = input.split_at(length);
    *input = rest;
    front
}

/// How many bytes the number of a packet's length may have.
const LONGEST_NUMBER: usize = 4;

fn packet<'a>(input: &mut &'a [u8], longest: usize) -> Result<Next<'a>, Failure> {
    let mut length = 0;
    for at in 0..LONGEST_NUMBER {
        let Some(byte) = input.get(1 + at) else { return Ok(Next::Needs(Needs::More)) };
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let (body, whole) = (2 + at, 2 + at + length);
            within(whole, longest)?;
            return Ok(if whole <= input.len() {
                Next::Record(Record { bytes: take(input, whole), body })
            } else {
                Next::Needs(Needs::Bytes(whole))
            });
        }
    }
    Err(Failure::new(Kind::BadRecord, format!("a packet's length has more than {LONGEST_NUMBER} bytes")))
}

fn line<'a>(input: &mut &'a [u8], counted: &[u8], longest: usize) -> Result<Next<'a>, Failure> {
    let Some(end) = memchr(b'\n', input) else {
        within(without_return(input).len(), longest)?;
        return Ok(Next::Needs(Needs::LineEnd));
    };
    let text = without_return(&input[..end]);
    if !text.starts_with(counted) {
        within(text.len(), longest)?;
        take(input, end + 1);
        return Ok(Next::Record(Record { bytes: text, body: text.len() }));
    }
    let word = &text[memrchr(b' ', text).map_or(0, |space| space + 1)..];
    let Some(length) = decimal(word) else {
        let what = format!("no length at the end of {:?}", String::from_utf8_lossy(text));
        return Err(Failure::new(Kind::BadRecord, what));
    };
    let whole = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(end + 1);
    within(whole, longest)?;
    let bytes: &[u8] = input;
    let mut ends = |line_end: usize| Record { bytes: take(input, whole + line_end).split_at(whole).0, body: end + 1 };
    match bytes.get(whole..) {
        None | Some([]) => Ok(Next::Needs(Needs::Bytes(whole + 1))),
        Some([b'\r']) => Ok(Next::Needs(Needs::Bytes(whole + 2))),
        Some([b'\n', ..]) => Ok(Next::Record(ends(1))),
        Some([b'\r', b'\n', ..]) => Ok(Next::Record(ends(2))),
        Some(_) => Err(Failure::new(Kind::BadRecord, format!("no line end behind a record's {length} bytes"))),
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The number that these bytes are the decimal digits of.
#[inline]
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    })
}

fn within(length: usize, longest: usize) -> Result<(), Failure> {
    if length > longest {
        return Err(Failure::new(Kind::Oversized, format!("a record of {length} bytes instead of at most {longest}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(records: &Records, mut input: &'a [u8]) -> (Vec<(&'a [u8], usize)>, &'a [u8]) {
        let mut found = Vec::new();
        while let Next::Record(record) = records.next(&mut input, 300).unwrap() {
            found.push((record.bytes, record.body));
        }
        (found, input)
    }

    #[test]
    fn separated_records_may_have_an_end_and_line_ends_between_them() {
        let stomp = Records::Separated { by: 0, always: true };
        assert_eq!(all(&stomp, b"\n"), (vec![], &b""[..]));
        let two: [(&[u8], usize); 2] = [(b"A\n\nx", 0), (b"B", 0)];
        assert_eq!(all(&stomp, b"\r\nA\n\nx\0\n\nB\0\n"), (two.to_vec(), &b""[..]));
        assert_eq!(stomp.next(&mut &b"A"[..], 9).unwrap_err().kind, Kind::BadRecord);
        let lines = Records::Separated { by: b'\n', always: false };
        let two: [(&[u8], usize); 2] = [(b"{}", 0), (b"{1}", 0)];
        assert_eq!(all(&lines, b"{}\n{1}"), (two.to_vec(), &b""[..]));
    }

    #[test]
    fn packets_have_a_length_in_front() {
        let long = [&[0x30, 0x80 | 72, 1][..], &[b'x'; 200]].concat();
        let stream = [&[0x20, 2, 0, 0, 0xd0, 0][..], &long, &[0x30, 5, 1]].concat();
        let (found, rest) = all(&Records::Packets {}, &stream);
        let right: [(&[u8], usize); 3] = [(&[0x20, 2, 0, 0], 2), (&[0xd0, 0], 2), (&long, 3)];
        assert_eq!(found, right);
        assert_eq!(rest, [0x30, 5, 1]);
        let wrong = |bytes: &[u8]| Records::Packets {}.next(&mut { bytes }, 300).unwrap_err().kind;
        assert_eq!(wrong(&[0x30, 0x80, 0x80, 0x80, 0x80, 1]), Kind::BadRecord);
        assert_eq!(wrong(&[0x30, 0xff, 0x7f]), Kind::Oversized);
    }

    /// Each byte is a message of its own; what is looked at again and again would take minutes.
    #[test]
    fn a_stream_in_small_messages_costs_its_bytes() {
        const LONG: usize = 4 << 20;
        let line = [&vec![b'x'; LONG][..], b"\r\n"].concat();
        let counted = [format!("MSG {LONG}\r\n").as_bytes(), &line].concat();
        let packet = [&[0x30, 0x80, 0x80, 0x80, 2][..], &line[..LONG]].concat();
        let lines = || Records::Lines { counted: "MSG ".into() };
        for (records, stream) in [(lines(), line), (lines(), counted), (Records::Packets {}, packet)] {
            let (mut rest, mut count) = (Rest::default(), 0);
            for byte in stream.chunks(1) {
                let read = records.read(&mut rest, byte, 2 * LONG, |record| {
                    count += usize::from(record.bytes.len() >= LONG);
                    Ok(true)
                });
                read.unwrap();
            }
            assert_eq!(count, 1, "{records:?}");
        }
    }

    #[test]
    fn counted_lines_have_a_body() {
        let nats = Records::Lines { counted: "MSG ".into() };
        let stream = b"INFO {}\r\nMSG a.b 1 5\r\nx\r\nyz\r\nPING\r\nMSG a 1 3\r\nab";
        let (found, rest) = all(&nats, stream);
        let right: [(&[u8], usize); 3] = [(b"INFO {}", 7), (b"MSG a.b 1 5\r\nx\r\nyz", 13), (b"PING", 4)];
        assert_eq!(found, right);
        assert_eq!(rest, b"MSG a 1 3\r\nab");
        let wrong = |text: &str| nats.next(&mut text.as_bytes(), 300).unwrap_err().kind;
        assert_eq!(wrong("MSG a 1 x\r\n"), Kind::BadRecord);
        assert_eq!(wrong("MSG a 1 1\r\nabc"), Kind::BadRecord);
        assert_eq!(wrong("MSG a 1 9999999999999999999\r\n"), Kind::Oversized);
        assert_eq!(wrong(&"x".repeat(301)), Kind::Oversized);
    }
}
