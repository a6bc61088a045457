//! Servers: the conduct of a machine's, and a server's side of one connection.

use super::wrapping::{Deflated, Sealed};
use crate::plan::{Plan, Scenario, Transport};
use crate::session::records::Records;
use crate::session::template::Piece as Part;
use crate::session::{Await, Session};
use fastrand::Rng;
use std::collections::VecDeque;

/// The task of a server, and whether it is honest.
#[derive(Clone)]
pub struct Conduct {
    pub transport: Transport,
    pub work: Work,
    /// One connection in this many meets a misdeed; none at 0.
    pub hostile_one_in: u32,
    /// An HTTP server announces after this many documents that it closes.
    pub documents: Option<u32>,
    pub tls: bool,
    /// If its clients are in rooms.
    pub hub: Option<Hub>,
    /// If it may ask its clients: the length of their answers.
    pub asks: Option<usize>,
    /// Its messages are parts of a stream of lines.
    pub lines: bool,
}

/// The beginning of a client's answer.
pub const ANSWER: &str = "pong";
/// How a server of rooms distributes messages.
#[derive(Clone, Copy)]
pub struct Hub {
    pub rooms: u32,
    pub own: bool,
    pub deed: Deed,
    /// A publisher awaits its own copy, and no other answer.
    pub answers_by_copy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deed {
    Right,
    /// Everybody has everything.
    Leaks,
    /// All rooms but the right one have it.
    WrongRooms,
    /// Some have it twice, and others not at all.
    TwiceForNone,
    /// The publisher has it, in place of another member or besides.
    Own,
    Loses,
    /// Some copies are late: for a moment, or until another slice.
    Late(u64),
}

#[derive(Clone, Copy, PartialEq)]
pub enum Work {
    Rooms,
    Echo,
    Ping,
    Push,
    Document { bytes: usize },
}

impl Conduct {
    pub fn of(plan: &Plan, hostile_one_in: u32, documents: Option<u32>, random: &mut Rng) -> Conduct {
        let rooms = plan.session().and_then(|session| session.rooms);
        use Deed::{Late, Leaks, Loses, Own, TwiceForNone, WrongRooms};
        let deeds = [Leaks, WrongRooms, TwiceForNone, Own, Loses, Late(50), Late(300)];
        let deed = if hostile_one_in > 0 { deeds[random.usize(..deeds.len())] } else { Deed::Right };
        let awaits_own = |session: &Session| session.body()[0].awaits == Await::Own {};
        let answers_by_copy = plan.session().is_some_and(awaits_own);
        let hub = rooms.map(|rooms| Hub { rooms: rooms.count, own: rooms.own, deed, answers_by_copy });
        let hostile_one_in = if hub.is_some() { 0 } else { hostile_one_in };
        let work = match &plan.scenario {
            Scenario::Session(_) if hub.is_some() => Work::Rooms,
            Scenario::Echo { .. } | Scenario::Session(_) => Work::Echo,
            Scenario::Push { .. } => Work::Push,
            Scenario::Doc { bytes, .. } => Work::Document { bytes: *bytes as usize },
            Scenario::Ping {} | Scenario::Idle {} => Work::Ping,
        };
        let echo = plan.session().filter(|_| hub.is_none());
        let letters = |part: &Part| if let Part::Letters(count) = part { Some(*count) } else { None };
        let asks = echo.and_then(|session| session.templates[1].iter().find_map(letters));
        let lines = echo.is_some_and(|session| session.records != Records::Message {});
        Conduct {
            transport: plan.transport,
            work,
            hostile_one_in,
            documents,
            tls: plan.tls.is_some(),
            hub,
            asks,
            lines,
        }
    }
}

macro_rules! misdeeds {
    ($($(#[$words:meta])* $misdeed:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Misdeed { $($(#[$words])* $misdeed),* }
        const MISDEEDS: &[Misdeed] = &[$(Misdeed::$misdeed),*];
    };
}

misdeeds! {
    Refuses,
    NeverConnects,
    /// Sends the correct reply before any request.
    SpeaksFirst,
    BadHandshake,
    Silent,
    Resets,
    ResetsBehindAReply,
    Ends,
    Garbage,
    AlteredByte,
    Twice,
    HalfAReply,
    Pings,
    LongClose,
    Reserved,
    HugeLength,
    EmptyFragments,
    /// Asks, and reads nothing any more.
    AsksOnly,
}

/// A server's side of one connection.
#[derive(Default)]
pub struct Peer {
    /// The connection's number among those of the trial.
    pub number: u32,
    pub misdeed: Option<Misdeed>,
    /// Messages answered correctly before the misdeed.
    pub patience: u32,
    pub head: bool,
    pub taken: VecDeque<u8>,
    pub fragments: Vec<u8>,
    pub opcode: u8,
    pub compressed: bool,
    pub documents: u32,
    pub sealed: Option<Sealed>,
    pub deflated: Option<Deflated>,
    /// Whole messages received.
    pub messages: u64,
    /// It sends nothing more.
    pub mute: bool,
    /// The client has said that it closes.
    pub left: bool,
}

impl Peer {
    pub fn new(conduct: &Conduct, number: u32, random: &mut Rng) -> Peer {
        let hostile = conduct.hostile_one_in > 0 && random.u32(..conduct.hostile_one_in) == 0;
        Peer {
            number,
            misdeed: hostile.then(|| MISDEEDS[random.usize(..MISDEEDS.len())]),
            patience: random.u32(..12),
            head: conduct.transport != Transport::Tcp,
            sealed: conduct.tls.then(Sealed::new),
            ..Peer::default()
        }
    }

    /// Whether it is connected and takes part.
    pub fn is_member(&self) -> bool {
        !self.head && !self.mute
    }
}
