//! Why a message or a connection failed.

use crate::names::named;
use std::borrow::Cow;

named!(Kind {
    ConnectRefused "connect_refused", ConnectTimeout "connect_timeout", ConnectFailed "connect_failed",
    HandshakeStatus "handshake_status", HandshakeAccept "handshake_accept", HandshakeInvalid "handshake_invalid",
    HandshakeTimeout "handshake_timeout", HandshakeClosed "handshake_closed",
    ClosedEarly "closed_early", CloseFrame "close_frame", Reset "reset", Timeout "timeout",
    MaskedFrame "masked_frame", ReservedBits "reserved_bits", BadOpcode "bad_opcode", BadControl "bad_control",
    BadFrame "bad_frame", BadUtf8 "bad_utf8", BadFragment "bad_fragment", BadDeflate "bad_deflate", Tls "tls_failed", Oversized "oversized",
    ReplyOpcode "reply_opcode", ReplyLength "reply_length", ReplyContent "reply_content",
    UnexpectedReply "unexpected_reply", ReplyMissing "reply_missing",
    BadRecord "bad_record", ReplyError "reply_error", SessionFailed "session_failed",
    SetupFailed "setup_failed", SetupTimeout "setup_timeout",
    HttpInvalid "http_invalid", HttpStatus "http_status", HttpLength "http_length", HttpNotClosed "http_not_closed",
});

impl Kind {
    /// An incorrect reply fails only its message; every other failure ends the connection.
    pub fn spoils_connection(self) -> bool {
        !matches!(
            self,
            Kind::ReplyOpcode
                | Kind::ReplyLength
                | Kind::ReplyContent
                | Kind::ReplyError
                | Kind::UnexpectedReply
                | Kind::ReplyMissing
        )
    }
}

/// One failure: its kind, and what was found, in words.
#[derive(Debug, PartialEq)]
pub struct Failure {
    pub kind: Kind,
    pub example: Cow<'static, str>,
}

impl Failure {
    pub fn new(kind: Kind, example: impl Into<Cow<'static, str>>) -> Failure {
        Failure { kind, example: example.into() }
    }
}
