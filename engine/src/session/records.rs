//! Records: what the application of a session calls a message. One WebSocket message, a part of one, or a part of the
//! stream of bytes that the messages carry.

use crate::record::{Failure, Kind};
use memchr::{memchr, memrchr};
use serde::Deserialize;

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

impl Records {
    /// Passes every record of a message to `each`, until that is false. `rest` is the beginning of a record that
    /// continues in the next message.
    #[inline]
    pub fn read(
        &self,
        rest: &mut Vec<u8>,
        message: &[u8],
        longest: usize,
        mut each: impl FnMut(Record) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut joined = Vec::new();
        let mut input = message;
        if !rest.is_empty() {
            joined = std::mem::take(rest);
            joined.extend_from_slice(message);
            input = &joined;
        }
        while let Some(record) = self.next(&mut input, longest)? {
            if !each(record)? {
                return Ok(());
            }
        }
        if input.len() == joined.len() {
            *rest = joined;
        } else {
            rest.extend_from_slice(input);
        }
        Ok(())
    }

    /// Takes the next record off the front of `input`, which is a whole message, or the part of a stream that has not
    /// been read. `None`: there is no further one; what a stream leaves in `input` is the beginning of one.
    #[inline]
    pub fn next<'a>(&self, input: &mut &'a [u8], longest: usize) -> Result<Option<Record<'a>>, Failure> {
        let whole = |bytes| Ok(Some(Record { bytes, body: 0 }));
        match self {
            Records::Message {} if input.is_empty() => Ok(None),
            Records::Message {} => whole(std::mem::take(input)),
            Records::Separated { by, always } => {
                let begin = input.iter().position(|byte| !matches!(byte, b'\n' | b'\r')).unwrap_or(input.len());
                *input = &input[begin..];
                match memchr(*by, input) {
                    Some(length) => whole(take(input, length + 1).split_at(length).0),
                    None if input.is_empty() => Ok(None),
                    None if *always => Err((Kind::BadRecord, format!("the last record does not end with {by:#04x}"))),
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

fn packet<'a>(input: &mut &'a [u8], longest: usize) -> Result<Option<Record<'a>>, Failure> {
    let mut length = 0;
    for at in 0..LONGEST_NUMBER {
        let Some(byte) = input.get(1 + at) else { return Ok(None) };
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let (body, whole) = (2 + at, 2 + at + length);
            within(whole, longest)?;
            return Ok((whole <= input.len()).then(|| Record { bytes: take(input, whole), body }));
        }
    }
    Err((Kind::BadRecord, format!("a packet's length has more than {LONGEST_NUMBER} bytes")))
}

fn line<'a>(input: &mut &'a [u8], counted: &[u8], longest: usize) -> Result<Option<Record<'a>>, Failure> {
    let Some(end) = memchr(b'\n', input) else {
        within(input.len(), longest)?;
        return Ok(None);
    };
    let text = without_return(&input[..end]);
    if !text.starts_with(counted) {
        within(text.len(), longest)?;
        take(input, end + 1);
        return Ok(Some(Record { bytes: text, body: text.len() }));
    }
    let word = &text[memrchr(b' ', text).map_or(0, |space| space + 1)..];
    let Some(length) = decimal(word) else {
        return Err((Kind::BadRecord, format!("no length at the end of {:?}", String::from_utf8_lossy(text))));
    };
    let whole = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(end + 1);
    within(whole, longest)?;
    match input.get(whole..) {
        None | Some([] | [b'\r']) => Ok(None),
        Some([b'\n', ..]) => Ok(Some(Record { bytes: take(input, whole + 1).split_at(whole).0, body: end + 1 })),
        Some([b'\r', b'\n', ..]) => Ok(Some(Record { bytes: take(input, whole + 2).split_at(whole).0, body: end + 1 })),
        Some(_) => Err((Kind::BadRecord, format!("no line end behind a record's {length} bytes"))),
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
        return Err((Kind::Oversized, format!("a record of {length} bytes instead of at most {longest}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(records: &Records, mut input: &'a [u8]) -> (Vec<(&'a [u8], usize)>, &'a [u8]) {
        let mut found = Vec::new();
        while let Some(record) = records.next(&mut input, 300).unwrap() {
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
        assert_eq!(stomp.next(&mut &b"A"[..], 9).unwrap_err().0, Kind::BadRecord);
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
        let wrong = |bytes: &[u8]| Records::Packets {}.next(&mut { bytes }, 300).unwrap_err().0;
        assert_eq!(wrong(&[0x30, 0x80, 0x80, 0x80, 0x80, 1]), Kind::BadRecord);
        assert_eq!(wrong(&[0x30, 0xff, 0x7f]), Kind::Oversized);
    }

    #[test]
    fn counted_lines_have_a_body() {
        let nats = Records::Lines { counted: "MSG ".into() };
        let stream = b"INFO {}\r\nMSG a.b 1 5\r\nx\r\nyz\r\nPING\r\nMSG a 1 3\r\nab";
        let (found, rest) = all(&nats, stream);
        let right: [(&[u8], usize); 3] = [(b"INFO {}", 7), (b"MSG a.b 1 5\r\nx\r\nyz", 13), (b"PING", 4)];
        assert_eq!(found, right);
        assert_eq!(rest, b"MSG a 1 3\r\nab");
        let wrong = |text: &str| nats.next(&mut text.as_bytes(), 300).unwrap_err().0;
        assert_eq!(wrong("MSG a 1 x\r\n"), Kind::BadRecord);
        assert_eq!(wrong("MSG a 1 1\r\nabc"), Kind::BadRecord);
        assert_eq!(wrong("MSG a 1 9999999999999999999\r\n"), Kind::Oversized);
        assert_eq!(wrong(&"x".repeat(301)), Kind::Oversized);
    }
}
