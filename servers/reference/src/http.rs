//! HTTP/1.1, as much as `/doc` and the WebSocket handshake need. Bytes in, replies out; knows no socket.

use crate::{handshake, websocket::Endpoint};
use std::io::Write;

const LONGEST_HEAD: usize = 16 << 10;
const LARGEST_DOCUMENT: usize = 16 << 20;
const OPENING: &[u8] = b"<!doctype html><title>wsbench</title>";

pub enum Progress {
    /// The rest is an incomplete head.
    Wait,
    /// The last request asked for the connection to be closed, or was no request.
    Close,
    Upgraded(Endpoint),
}

#[derive(Default)]
struct Request<'a> {
    target: &'a str,
    method: &'a str,
    version: &'a str,
    close: bool,
    keep_alive: bool,
    connection_upgrade: bool,
    upgrade_websocket: bool,
    host: bool,
    body: bool,
    key: &'a str,
    websocket_version: &'a str,
}

/// Answers every complete request of `input` into `replies`; returns how many bytes they were.
pub fn consume(input: &[u8], replies: &mut Vec<u8>) -> (usize, Progress) {
    let mut taken = 0;
    loop {
        let rest = &input[taken..];
        let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") else {
            if rest.len() > LONGEST_HEAD {
                refuse(replies, "431 Request Header Fields Too Large", "");
                return (input.len(), Progress::Close);
            }
            return (taken, Progress::Wait);
        };
        let Some(request) = std::str::from_utf8(&rest[..end]).ok().and_then(parse) else {
            refuse(replies, "400 Bad Request", "");
            return (input.len(), Progress::Close);
        };
        taken += end + 4;
        match answer(&request, replies) {
            Progress::Wait => {}
            Progress::Close => return (input.len(), Progress::Close),
            upgraded => return (taken, upgraded),
        }
    }
}

fn parse(head: &str) -> Option<Request<'_>> {
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let mut request =
        Request { method: first.next()?, target: first.next()?, version: first.next()?, ..Request::default() };
    if first.next().is_some() || !matches!(request.version, "HTTP/1.0" | "HTTP/1.1") {
        return None;
    }
    for line in lines {
        let (name, value) = line.split_once(':')?;
        request.header(name, value.trim_matches([' ', '\t']));
    }
    Some(request)
}

impl<'a> Request<'a> {
    fn header(&mut self, name: &str, value: &'a str) {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let lists = |word: &str| value.split(',').any(|item| item.trim().eq_ignore_ascii_case(word));
        if is("connection") {
            self.close |= lists("close");
            self.keep_alive |= lists("keep-alive");
            self.connection_upgrade |= lists("upgrade");
        } else if is("upgrade") {
            self.upgrade_websocket |= lists("websocket");
        } else if is("host") {
            self.host = true;
        } else if is("sec-websocket-key") {
            self.key = value;
        } else if is("sec-websocket-version") {
            self.websocket_version = value;
        } else if is("content-length") || is("transfer-encoding") {
            self.body |= value != "0";
        }
    }
}

fn answer(request: &Request, replies: &mut Vec<u8>) -> Progress {
    let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
    let newest = request.version == "HTTP/1.1";
    let persistent = !request.close && (newest || request.keep_alive);
    if request.method != "GET" {
        return refuse(replies, "405 Method Not Allowed", "Allow: GET\r\n");
    }
    if request.body || (newest && !request.host) {
        return refuse(replies, "400 Bad Request", "");
    }
    match path {
        "/doc" => match query.strip_prefix("size=").map(str::parse) {
            Some(Ok(size @ 0..=LARGEST_DOCUMENT)) => {
                document(replies, size, persistent);
                if persistent { Progress::Wait } else { Progress::Close }
            }
            _ => refuse(replies, "400 Bad Request", ""),
        },
        "/echo" => upgrade(request, replies, Endpoint::Echo),
        "/ping" => upgrade(request, replies, Endpoint::Ping),
        "/push" => upgrade(request, replies, Endpoint::Push),
        _ => refuse(replies, "404 Not Found", ""),
    }
}

fn document(replies: &mut Vec<u8>, size: usize, persistent: bool) {
    // HTTP/1.0 clients (ApacheBench) keep the connection only if they are told so.
    let connection = if persistent { "keep-alive" } else { "close" };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
    write!(replies, "{head}Content-Length: {size}\r\nConnection: {connection}\r\n\r\n").expect("memory");
    let end = replies.len() + size;
    replies.extend_from_slice(&OPENING[..size.min(OPENING.len())]);
    replies.resize(end, b'.');
}

fn upgrade(request: &Request, replies: &mut Vec<u8>, endpoint: Endpoint) -> Progress {
    if !request.upgrade_websocket || !request.connection_upgrade || request.websocket_version != "13" {
        return refuse(replies, "426 Upgrade Required", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
    }
    if request.version != "HTTP/1.1" || !handshake::is_key(request.key) {
        return refuse(replies, "400 Bad Request", "");
    }
    let accept = handshake::accept(request.key);
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    write!(replies, "{head}Sec-WebSocket-Accept: {accept}\r\n\r\n").expect("memory");
    Progress::Upgraded(endpoint)
}

fn refuse(replies: &mut Vec<u8>, status: &str, headers: &str) -> Progress {
    write!(replies, "HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n").expect("memory");
    Progress::Close
}
