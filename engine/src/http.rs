//! HTTP/1.1 replies (RFC 9112), without I/O. The reader is fed bytes and reports when a reply is
//! complete, how long its body was, and whether the server will close.

use crate::failure::{Failure, Kind};
use crate::plan::Plan;

const LONGEST_HEAD: usize = 65_536;

#[derive(Debug, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub length: u64,
    /// The server announced that it closes the connection.
    pub closes: bool,
}

#[derive(Debug, Default)]
enum Next {
    #[default]
    Head,
    Length(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    /// Neither a length nor chunks: the body ends with the connection (RFC 9112 §6.3).
    UntilClose,
}

#[derive(Debug, Default)]
pub struct Reader {
    next: Next,
    /// An incomplete head or line; usually empty, without allocation.
    carry: Vec<u8>,
    status: u16,
    length: u64,
    closes: bool,
}

pub fn request(plan: &Plan, persistent: bool) -> Vec<u8> {
    head(plan, if persistent { "Connection: keep-alive\r\n" } else { "Connection: close\r\n" })
}

/// A request's head: these lines, and the plan's.
pub fn head(plan: &Plan, lines: &str) -> Vec<u8> {
    let mut head = format!("GET {} HTTP/1.1\r\nHost: {}\r\n{lines}", plan.target.path, plan.target.host);
    for (name, value) in &plan.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    head.into_bytes()
}

impl Reader {
    pub fn in_reply(&self) -> bool {
        !matches!(self.next, Next::Head) || !self.carry.is_empty()
    }

    /// Takes bytes off the front of `input` until a reply is complete or nothing is left. Rejects a
    /// body that is, or is announced as, longer than `longest`.
    pub fn feed(&mut self, input: &mut &[u8], longest: u64) -> Result<Option<Reply>, Failure> {
        loop {
            match self.next {
                Next::Length(left) | Next::Chunk(left) if self.length.saturating_add(left) > longest => {
                    let length = self.length.saturating_add(left);
                    return Err(Failure::new(Kind::Oversized, format!("{length} bytes where {longest} would be many")));
                }
                Next::UntilClose if self.length > longest => {
                    return Err(Failure::new(Kind::Oversized, format!("more than {longest} bytes, and no end")));
                }
                Next::UntilClose => {
                    self.length += input.len() as u64;
                    if input.is_empty() {
                        return Ok(None);
                    }
                    *input = &[];
                }
                Next::Head => {
                    if input.is_empty() || !self.head(input)? {
                        return Ok(None);
                    }
                }
                Next::Length(0) => return Ok(Some(self.complete())),
                Next::Length(ref mut left) | Next::Chunk(ref mut left) if *left > 0 => {
                    let taken = (*left).min(input.len() as u64);
                    *left -= taken;
                    self.length += taken;
                    *input = &input[taken as usize..];
                    if *left > 0 {
                        return Ok(None);
                    }
                }
                Next::Chunk(_) => self.next = Next::ChunkEnd,
                Next::Length(_) => unreachable!("zero and more are both handled"),
                Next::ChunkSize | Next::ChunkEnd | Next::Trailer => {
                    let Some(line) = self.line(input)? else { return Ok(None) };
                    match self.next {
                        Next::ChunkSize => {
                            let digits = line.split(';').next().unwrap_or_default().trim();
                            let size = number(digits, 16)
                                .ok_or_else(|| Failure::new(Kind::HttpInvalid, format!("chunk size {line:?}")))?;
                            self.next = if size == 0 { Next::Trailer } else { Next::Chunk(size) };
                        }
                        Next::ChunkEnd if !line.is_empty() => {
                            return Err(Failure::new(Kind::HttpInvalid, format!("{line:?} behind a chunk")));
                        }
                        Next::ChunkEnd => self.next = Next::ChunkSize,
                        _ if line.is_empty() => return Ok(Some(self.complete())),
                        _ => {}
                    }
                }
            }
        }
    }

    /// The reply that ends with the connection, if there is one.
    pub fn closed(&mut self) -> Option<Reply> {
        matches!(self.next, Next::UntilClose).then(|| Reply { closes: true, ..self.complete() })
    }

    fn complete(&mut self) -> Reply {
        let reply = Reply { status: self.status, length: self.length, closes: self.closes };
        *self = Reader::default();
        reply
    }

    /// Whether the head is complete now.
    fn head(&mut self, input: &mut &[u8]) -> Result<bool, Failure> {
        let carried = self.carry.len();
        self.carry.extend_from_slice(if carried == 0 { &[] } else { input });
        let bytes: &[u8] = if carried == 0 { input } else { &self.carry };
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let size = match response.parse(bytes) {
            Ok(httparse::Status::Complete(size)) if size <= LONGEST_HEAD => size,
            Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => {
                if carried == 0 {
                    self.carry.extend_from_slice(input);
                }
                *input = &[];
                return Ok(false);
            }
            Ok(_) => return Err(Failure::new(Kind::HttpInvalid, "a head beyond 64 KiB")),
            Err(error) => return Err(Failure::new(Kind::HttpInvalid, error.to_string())),
        };
        self.status = response.code.expect("a complete head has a status");
        if (100..200).contains(&self.status) && self.status != 101 {
            // An interim response (RFC 9110 §15.2): the reply is still to come.
            *input = &input[size - carried..];
            self.carry = Vec::new();
            return Ok(true);
        }
        // A list may be split over several lines (RFC 9110 §5.3).
        let values = |name: &'static str| {
            let named = response.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
            named.flat_map(|header| std::str::from_utf8(header.value).unwrap_or("?").split(',').map(str::trim))
        };
        let says = |option: &str| values("connection").any(|found| found.eq_ignore_ascii_case(option));
        self.closes = says("close") || response.version == Some(0) && !says("keep-alive");
        let mut length = None;
        for value in values("content-length") {
            let found = number(value, 10)
                .ok_or_else(|| Failure::new(Kind::HttpInvalid, format!("content-length {value:?}")))?;
            if *length.get_or_insert(found) != found {
                return Err(Failure::new(Kind::HttpInvalid, format!("content-length {value} beside another")));
            }
        }
        // RFC 9112 §6.3, in its order.
        self.next = match (self.status, values("transfer-encoding").last(), length) {
            (101 | 204 | 304, ..) => Next::Length(0),
            (_, Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Next::ChunkSize,
            (_, None, Some(length)) => Next::Length(length),
            _ => Next::UntilClose,
        };
        *input = &input[size - carried..];
        self.carry = Vec::new();
        Ok(true)
    }

    /// The next line without its terminator, once it is complete.
    fn line(&mut self, input: &mut &[u8]) -> Result<Option<String>, Failure> {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            self.carry.extend_from_slice(input);
            *input = &[];
            let fits = self.carry.len() < LONGEST_HEAD;
            return if fits { Ok(None) } else { Err(Failure::new(Kind::HttpInvalid, "a line beyond 64 KiB")) };
        };
        let mut line = std::mem::take(&mut self.carry);
        line.extend_from_slice(&input[..end]);
        *input = &input[end + 1..];
        Ok(Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_string()))
    }
}

/// Digits only. Rust would accept a sign; HTTP does not (RFC 9110 §8.6, RFC 9112 §7.1).
fn number(text: &str, radix: u32) -> Option<u64> {
    let digits = text.bytes().all(|byte| char::from(byte).is_digit(radix));
    u64::from_str_radix(text, radix).ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_cut_everywhere(bytes: &[u8], expected: Reply) {
        for cut in 0..=bytes.len() {
            let mut reader = Reader::default();
            let mut replies = Vec::new();
            for mut piece in [&bytes[..cut], &bytes[cut..]] {
                while let Some(reply) = reader.feed(&mut piece, 1000).unwrap() {
                    replies.push(reply);
                }
            }
            assert_eq!(replies.len(), 1, "cut at {cut}");
            assert_eq!(replies[0], expected, "cut at {cut}");
            assert!(!reader.in_reply());
        }
    }

    #[test]
    fn a_reply_is_read_in_any_pieces_behind_what_comes_before_it() {
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        for (lines, body, length, closes) in [
            ("Content-Length: 5\r\nConnection: close", "hello", 5, true),
            ("Transfer-Encoding: chunked", "5;x=y\r\nhello\r\n3\r\nyou\r\n0\r\nT: v\r\n\r\n", 8, false),
        ] {
            for before in ["", early] {
                let bytes = format!("{before}HTTP/1.1 200 OK\r\n{lines}\r\n\r\n{body}");
                read_cut_everywhere(bytes.as_bytes(), Reply { status: 200, length, closes });
            }
        }
    }

    #[test]
    fn a_length_may_be_said_twice_and_chunks_may_stand_behind_another_coding() {
        for (lines, length) in [
            ("Content-Length: 5\r\nContent-Length: 5", 5),
            ("Content-Length: 5, 5", 5),
            ("Transfer-Encoding: gzip, chunked", 2),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\nContent-Length: 77", 2),
        ] {
            let body = if length == 5 { "hello" } else { "2\r\nhi\r\n0\r\n\r\n" };
            let bytes = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n{body}");
            read_cut_everywhere(bytes.as_bytes(), Reply { status: 200, length, closes: false });
        }
    }

    #[test]
    fn some_statuses_have_no_body() {
        for status in [101, 204, 304] {
            let bytes = format!("HTTP/1.1 {status} x\r\nServer: y\r\n\r\n");
            read_cut_everywhere(bytes.as_bytes(), Reply { status, length: 0, closes: false });
        }
    }

    #[test]
    fn close_is_heard_among_other_options() {
        let options = [("Close, x", true), ("x,close", true), ("keep-alive, x", false), ("closed", false)];
        for (options, closes) in [&options[..], &[("x\r\nConnection: close", true)]].concat() {
            let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: {options}\r\n\r\nok");
            read_cut_everywhere(bytes.as_bytes(), Reply { status: 200, length: 2, closes });
        }
    }

    #[test]
    fn what_breaks_the_grammar_is_invalid() {
        for wrong in [
            &b"\x00\x01garbage\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello, you\r\n0\r\n\r\n",
        ] {
            let found = Reader::default().feed(&mut &wrong[..], 1000);
            assert_eq!(found.unwrap_err().kind, Kind::HttpInvalid, "{}", String::from_utf8_lossy(wrong));
        }
    }
}
