//! The WebSocket opening handshake (RFC 6455 §4), without I/O: the request, and whether the
//! response proves that the server understood it.

use crate::deflate::{self, Agreed};
use crate::failure::{Failure, Kind};
use crate::http;
use crate::plan::{Deflate, Plan};
use crate::record::{Refusal, printable};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// RFC 6455 §1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A longer response is not a handshake.
const LONGEST_HEAD: usize = 16_384;

/// The key of a connection, different for each of its lives (RFC 6455 §4.1): 16 bytes drawn from the plan's seed.
pub fn key(seed: u64, connection: u32, generation: u32) -> String {
    let which = u64::from(connection) << 32 | u64::from(generation);
    let mut random = fastrand::Rng::with_seed(fastrand::Rng::with_seed(seed ^ 0x5ec_eb0c).u64(..) ^ which);
    STANDARD.encode(random.u128(..).to_ne_bytes())
}

pub fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

pub fn request(plan: &Plan, key: &str) -> Vec<u8> {
    let mut lines = format!(
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
    );
    if let Some(wanted) = plan.deflate {
        lines += &format!("Sec-WebSocket-Extensions: {}\r\n", deflate::offer(wanted));
    }
    if !plan.subprotocols.is_empty() {
        lines += &format!("Sec-WebSocket-Protocol: {}\r\n", plan.subprotocols.join(", "));
    }
    http::head(plan, &lines)
}

/// What a server may choose from.
#[derive(Default)]
pub struct Offer {
    pub deflate: Option<Deflate>,
    pub subprotocols: Vec<String>,
}

/// A valid handshake response: its size, and the negotiated compression.
#[derive(Debug, PartialEq)]
pub struct Answer {
    pub size: usize,
    pub deflate: Option<Agreed>,
}

/// The response once its head is complete; `None` if more bytes are needed.
pub fn verify(bytes: &[u8], key: &str, offer: &Offer) -> Result<Option<Answer>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let size = match response.parse(bytes) {
        Ok(httparse::Status::Complete(size)) if size <= LONGEST_HEAD => size,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Ok(None),
        Ok(_) => return Err(Failure::new(Kind::HandshakeInvalid, "a head beyond 16 KiB")),
        Err(error) => return Err(Failure::new(Kind::HandshakeInvalid, error.to_string())),
    };
    let code = response.code.expect("a complete head has a status");
    if code != 101 {
        let what = format!("status {code} {}", response.reason.unwrap_or_default());
        return Err(Failure::new(Kind::HandshakeStatus, what));
    }
    let values = |name: &'static str| {
        let named = response.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.filter_map(|header| std::str::from_utf8(header.value).ok().map(str::trim))
    };
    let value = |name| values(name).next();
    if !value("upgrade").is_some_and(|found| found.eq_ignore_ascii_case("websocket")) {
        return Err(Failure::new(Kind::HandshakeInvalid, "no `Upgrade: websocket`"));
    }
    let upgrades = |found: &str| found.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    // A list may be split over several lines (RFC 9110 §5.3).
    if !values("connection").any(upgrades) {
        return Err(Failure::new(Kind::HandshakeInvalid, "no `Connection: Upgrade`"));
    }
    let invalid = |what: String| Failure::new(Kind::HandshakeInvalid, what);
    // All lines of a name, as the list or the contradiction that they are.
    let all = |name| Some(values(name).collect::<Vec<_>>().join(", ")).filter(|found| !found.is_empty());
    let deflate = match (offer.deflate, all("sec-websocket-extensions")) {
        (Some(wanted), answer) => Some(deflate::agree(wanted, answer.as_deref()).map_err(invalid)?),
        (None, Some(answer)) => return Err(invalid(format!("an extension nobody offered: {answer}"))),
        (None, None) => None,
    };
    if let Some(chosen) = all("sec-websocket-protocol")
        && !offer.subprotocols.contains(&chosen)
    {
        return Err(invalid(format!("a subprotocol nobody offered: {chosen}")));
    }
    let expected = accept(key);
    match all("sec-websocket-accept") {
        Some(found) if found == expected => Ok(Some(Answer { size, deflate })),
        found => Err(Failure::new(
            Kind::HandshakeAccept,
            format!("{} instead of {expected}", found.as_deref().unwrap_or("none")),
        )),
    }
}

/// What a server says with an answer that `verify` has found to be complete and not 101.
#[cold]
pub fn refusal(bytes: &[u8]) -> Option<(u16, Refusal)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(size)) = response.parse(bytes) else { return None };
    let value = |name: &str| {
        let line = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        line.map(|line| printable(line.value))
    };
    let (location, retry_after) = (value("location"), value("retry-after"));
    Some((response.code?, Refusal { body: printable(&bytes[size..]), location, retry_after }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_accepted_whole_and_waited_for_in_part() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        assert_eq!(accept(key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive\r\nConnection: x, Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        for cut in 0..answer.len() {
            assert!(verify(&answer[..cut], key, &Offer::default()).unwrap().is_none());
        }
        let whole = Answer { size: answer.len(), deflate: None };
        assert_eq!(verify(answer, key, &Offer::default()).unwrap(), Some(whole));
        assert_eq!(verify(answer, "other", &Offer::default()).unwrap_err().kind, Kind::HandshakeAccept);
    }
}
