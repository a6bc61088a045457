//! Fields: what is read from a record to know what it is, and which request it answers.

use super::json;
use super::records::{Record, decimal};
use super::shape::{Places, Shapes};
use crate::failure::{Failure, Kind};
use memchr::{memchr, memrchr};
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Field {
    /// The value at a path in a JSON text.
    Json { path: json::Path },
    /// The decimal digits behind this text, if the record begins with it.
    Digits { after: String },
    /// The value of a line `name:value` before the first empty one.
    Header { name: String },
    /// A word of the first line, counted from 0; with `after`, its part behind the last such text.
    Word {
        number: usize,
        #[serde(deserialize_with = "crate::keys::present")]
        after: Option<char>,
    },
    /// The bits of the byte at this offset of the record that the mask selects.
    Byte { at: usize, mask: u8 },
    /// Two bytes, the high one first, at this offset of the body.
    Number { at: usize },
    /// Text with its length in two bytes in front, at this offset of the body.
    Text { at: usize },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

impl Value<'_> {
    /// The number that it is, or of which it is the decimal digits.
    #[inline]
    fn number(&self) -> Option<u64> {
        match *self {
            Value::Bytes(digits) => decimal(digits),
            Value::Number(number) => Some(number),
        }
    }

    pub fn append_to(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Bytes(bytes) => out.extend_from_slice(bytes),
            Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        }
    }
}

/// More would not pay.
pub const MOST: usize = 16;

/// The fields of a session.
pub struct Fields {
    paths: Vec<json::Path>,
    fields: Vec<Kept>,
}

enum Kept {
    /// Its number among the paths, which one scan finds together.
    Path(usize),
    Other(Field),
}

/// A record, and what is known of its fields.
pub struct Seen<'a, 'f> {
    pub record: Record<'a>,
    fields: &'f Fields,
    places: Places,
}

impl Fields {
    /// The number of fields and paths was checked with the plan.
    pub fn new(fields: &[Field]) -> Fields {
        let mut made = Fields { paths: Vec::new(), fields: Vec::new() };
        for field in fields {
            made.fields.push(if let Field::Json { path } = field {
                made.paths.push(path.clone());
                Kept::Path(made.paths.len() - 1)
            } else {
                Kept::Other(field.clone())
            });
        }
        made
    }

    #[inline]
    pub fn of<'a>(&self, record: Record<'a>) -> Seen<'a, '_> {
        Seen { record, fields: self, places: Places::default() }
    }
}

impl<'a> Seen<'a, '_> {
    /// Looks for the fields that are JSON. Fails if there are such, and the record is not JSON.
    #[inline]
    pub fn scan(&mut self, shapes: &mut Shapes) -> Result<(), Failure> {
        let (paths, text) = (&self.fields.paths, self.record.bytes);
        if paths.is_empty() {
            return Ok(());
        }
        if let Some(places) = shapes.places_in(text) {
            self.places = *places;
            return Ok(());
        }
        if let Err(at) = json::find(text, paths, &mut self.places[..paths.len()]) {
            return Err(Failure::new(Kind::BadRecord, format!("not JSON at byte {at}: {:?}", excerpt(text))));
        }
        shapes.learn(text, self.places);
        Ok(())
    }

    /// The value of a field, after `scan`; `None` if the record has no such field.
    #[inline]
    pub fn value(&self, field: usize) -> Option<Value<'a>> {
        match &self.fields.fields[field] {
            Kept::Path(number) => {
                self.places[*number].map(|(from, to)| Value::Bytes(&self.record.bytes[from as usize..to as usize]))
            }
            Kept::Other(field) => field.of(self.record),
        }
    }

    #[inline]
    pub fn number(&self, field: usize) -> Option<u64> {
        self.value(field)?.number()
    }
}

impl Field {
    fn of<'a>(&self, record: Record<'a>) -> Option<Value<'a>> {
        let Record { bytes, body } = record;
        match self {
            Field::Json { .. } => unreachable!("all paths are found in one scan"),
            Field::Digits { after } => {
                let behind = bytes.strip_prefix(after.as_bytes())?;
                let length = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
                (length > 0).then(|| Value::Bytes(&behind[..length]))
            }
            Field::Header { name } => header(bytes, name.as_bytes()).map(Value::Bytes),
            Field::Word { number, after } => {
                let line = &bytes[..memchr(b'\n', bytes).unwrap_or(bytes.len())];
                let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                let word = words.nth(*number)?;
                let Some(mark) = after else { return Some(Value::Bytes(word)) };
                Some(Value::Bytes(&word[memrchr(u8::try_from(*mark).ok()?, word)? + 1..]))
            }
            Field::Byte { at, mask } => bytes.get(*at).map(|byte| Value::Number(u64::from(byte & mask))),
            Field::Number { at } => {
                let (number, _) = bytes.get(body + at..)?.split_first_chunk()?;
                Some(Value::Number(u16::from_be_bytes(*number).into()))
            }
            Field::Text { at } => {
                let (length, rest) = bytes.get(body + at..)?.split_first_chunk()?;
                rest.get(..usize::from(u16::from_be_bytes(*length))).map(Value::Bytes)
            }
        }
    }
}

/// Of repeated headers the first counts (STOMP 1.2, "Repeated Header Entries").
fn header<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return None;
        }
        if let Some(value) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(b":")) {
            return Some(value);
        }
    }
    None
}

/// The front of a record, as an example of a failure.
pub fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(field: Field, bytes: &'a [u8], body: usize) -> Option<Value<'a>> {
        let fields = Fields::new(&[field]);
        let mut seen = fields.of(Record { bytes, body });
        seen.scan(&mut Shapes::default()).unwrap();
        seen.value(0)
    }

    fn text(value: Option<Value<'_>>) -> Option<&str> {
        value.map(|value| match value {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).unwrap(),
            Value::Number(number) => panic!("the number {number}"),
        })
    }

    #[test]
    fn texts_have_digits_headers_and_words() {
        let digits = || Field::Digits { after: "43".into() };
        assert_eq!(value(digits(), b"4317[\"x\"]", 0).unwrap().number(), Some(17));
        assert_eq!(value(digits(), b"43[1]", 0), None);
        assert_eq!(value(digits(), b"42[1]", 0), None);
        let receipt = || Field::Header { name: "receipt-id".into() };
        let frame = b"RECEIPT\r\nx:1\r\nreceipt-id:7\nreceipt-id:8\n\nreceipt-id:9";
        assert_eq!(text(value(receipt(), frame, 0)), Some("7"));
        assert_eq!(value(receipt(), b"MESSAGE\n\nreceipt-id:9", 0), None);
        let word = |number, after| Field::Word { number, after };
        let line = b"MSG _INBOX.3.41 9 2\r\nhi there";
        assert_eq!(text(value(word(0, None), line, 0)), Some("MSG"));
        assert_eq!(text(value(word(1, Some('.')), line, 0)), Some("41"));
        assert_eq!(value(word(0, Some('.')), line, 0), None);
        assert_eq!(value(word(4, None), line, 0), None);
    }

    #[test]
    fn packets_have_bits_numbers_and_counted_texts() {
        let packet = [0x32, 8, 0, 3, b'a', b'/', b'b', 1, 2, 9];
        assert_eq!(value(Field::Byte { at: 0, mask: 0xf0 }, &packet, 2), Some(Value::Number(0x30)));
        assert_eq!(text(value(Field::Text { at: 0 }, &packet, 2)), Some("a/b"));
        assert_eq!(value(Field::Number { at: 5 }, &packet, 2), Some(Value::Number(0x102)));
        assert_eq!(value(Field::Number { at: 7 }, &packet, 2), None);
        assert_eq!(value(Field::Text { at: 5 }, &packet, 2), None);
    }

    #[test]
    fn json_fields_keep_their_places_among_others() {
        let key = |name: &str| Field::Json { path: vec![json::Part::Key(name.into())] };
        let fields = Fields::new(&[key("a"), Field::Byte { at: 0, mask: 0xff }, key("b"), key("c")]);
        let record = Record { bytes: br#"{"c":3,"a":"x"}"#, body: 0 };
        let mut seen = fields.of(record);
        seen.scan(&mut Shapes::default()).unwrap();
        let bytes = |text: &'static str| Some(Value::Bytes(text.as_bytes()));
        let values = [0, 1, 2, 3].map(|field| seen.value(field));
        assert_eq!(values, [bytes("x"), Some(Value::Number(b'{'.into())), None, bytes("3")]);
        let failure = fields.of(Record { bytes: b"?", ..record }).scan(&mut Shapes::default()).unwrap_err();
        assert_eq!(failure.kind, Kind::BadRecord);
    }
}
