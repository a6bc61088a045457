//! What a worker has seen and not yet handed over: counters, errors by kind, and one histogram a tag. A worker owns its
//! record alone; every tick it gives away the interval's part and starts the next with empty histograms.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;

macro_rules! kinds {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// How a message or a connection failed; the names are the contract's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($variant),* }
        impl Kind {
            pub fn name(self) -> &'static str {
                match self { $(Kind::$variant => $name),* }
            }
        }
    };
}

kinds! {
    ConnectRefused "connect_refused", ConnectTimeout "connect_timeout", ConnectFailed "connect_failed",
    HandshakeStatus "handshake_status", HandshakeAccept "handshake_accept", HandshakeInvalid "handshake_invalid",
    HandshakeTimeout "handshake_timeout", HandshakeClosed "handshake_closed",
    ClosedEarly "closed_early", CloseFrame "close_frame", Reset "reset", Timeout "timeout",
    MaskedFrame "masked_frame", ReservedBits "reserved_bits", BadOpcode "bad_opcode", BadControl "bad_control",
    BadUtf8 "bad_utf8", BadFragment "bad_fragment", Oversized "oversized",
    ReplyOpcode "reply_opcode", ReplyLength "reply_length", ReplyContent "reply_content",
    UnexpectedReply "unexpected_reply",
    HttpInvalid "http_invalid", HttpStatus "http_status", HttpLength "http_length", HttpNotClosed "http_not_closed",
}

impl Kind {
    /// A wrong reply spoils its message; anything else spoils the connection.
    pub fn spoils_connection(self) -> bool {
        !matches!(self, Kind::ReplyOpcode | Kind::ReplyLength | Kind::ReplyContent | Kind::UnexpectedReply)
    }
}

/// A failure: its kind and what was found, in words.
pub type Failure = (Kind, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    Connect,
    Service,
    Request,
    WarmupConnect,
    WarmupService,
    WarmupRequest,
}

impl Tag {
    pub const ALL: [Tag; 6] =
        [Tag::Connect, Tag::Service, Tag::Request, Tag::WarmupConnect, Tag::WarmupService, Tag::WarmupRequest];

    pub fn name(self) -> &'static str {
        ["connect", "service", "request", "warmup-connect", "warmup-service", "warmup-request"][self as usize]
    }

    /// The tag's twin for what belongs to the warm-up.
    pub fn in_warmup(self) -> Tag {
        match self {
            Tag::Connect => Tag::WarmupConnect,
            Tag::Service => Tag::WarmupService,
            Tag::Request => Tag::WarmupRequest,
            warmup => warmup,
        }
    }
}

/// Cumulative since the worker began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub open: u64,
    pub established: u64,
    pub sent: u64,
    pub answered: u64,
    pub failed: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub pings_answered: u64,
    pub fragmented_replies: u64,
    pub reconnects: u64,
}

/// The ledger over messages sent in the measured window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger {
    pub sent: u64,
    pub answered: u64,
    pub failed: u64,
    pub replies_in_window: u64,
}

pub type Errors = BTreeMap<Kind, (u64, String)>;

/// The part of a record that is handed over at a tick.
pub struct Interval {
    pub histograms: Vec<(Tag, Histogram<u64>)>,
    pub errors: Errors,
}

#[derive(Default)]
pub struct Record {
    pub counters: Counters,
    pub ledger: Ledger,
    pub measured_errors: BTreeMap<Kind, u64>,
    histograms: [Option<Box<Histogram<u64>>>; 6],
    errors: Errors,
}

/// One hour: longer than any deadline a single reply may have.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;

pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("the bounds are constants")
}

impl Record {
    /// Never fails: a value beyond the range is recorded as the highest, and a reply that late has timed out long before.
    pub fn duration(&mut self, tag: Tag, from_ns: u64, to_ns: u64) {
        let histogram = self.histograms[tag as usize].get_or_insert_with(|| Box::new(new_histogram()));
        histogram.saturating_record(to_ns.saturating_sub(from_ns).max(1));
    }

    pub fn error(&mut self, (kind, example): Failure, measured: bool) {
        self.errors.entry(kind).or_insert((0, example)).0 += 1;
        if measured {
            *self.measured_errors.entry(kind).or_insert(0) += 1;
        }
    }

    pub fn hand_over(&mut self) -> Interval {
        let histograms =
            Tag::ALL.into_iter().filter_map(|tag| Some((tag, *self.histograms[tag as usize].take()?))).collect();
        Interval { histograms, errors: std::mem::take(&mut self.errors) }
    }
}
