//! The plan: what this process does. It is parsed and checked once; all other code relies on that.
//! It has no defaults. The contract is protocol/README.md, section 1.

use crate::frame::Opcode;
use crate::keys::present;
use crate::session::Session;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Scenario {
    Doc {
        persistent: bool,
        bytes: u64,
    },
    /// `content` is a file of exactly `bytes`; without one, the payload is drawn from the seed.
    Echo {
        opcode: Opcode,
        bytes: usize,
        #[serde(deserialize_with = "present")]
        content: Option<PathBuf>,
    },
    Ping {},
    /// Connections that stay idle.
    Idle {},
    /// Broadcasts, triggered by this process; `slow_readers` is the share of connections that never read.
    Push {
        slow_readers: f64,
    },
    Session(Box<Session>),
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    Http,
    Websocket,
    Tcp,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub address: SocketAddr,
    /// Further addresses of the same server, in other processes.
    pub replicas: Vec<SocketAddr>,
    pub host: String,
    pub path: String,
}

/// When the next message is due.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Loop {
    /// When a reply is complete, after a pause if one is set; `depth` messages are in flight on a connection.
    Closed {
        depth: usize,
        #[serde(deserialize_with = "present")]
        think: Option<Think>,
        /// A connection is closed after this many replies, and another replaces it.
        #[serde(deserialize_with = "present")]
        messages_per_connection: Option<u64>,
    },
    /// By the schedule, regardless of the replies; `depth` limits the messages in flight on a connection.
    Open {
        arrivals: Arrivals,
        rate: Vec<Segment>,
        #[serde(deserialize_with = "present")]
        depth: Option<usize>,
    },
    /// No message is ever due.
    None {},
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    Constant,
    Poisson,
}

/// A rate that changes linearly from one value to the other; the last segment's end continues indefinitely.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    pub from_per_s: f64,
    pub to_per_s: f64,
    pub for_s: f64,
}

/// A distribution of pauses; negative values become zero.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Think {
    Constant { mean_s: f64 },
    Uniform { from_s: f64, to_s: f64 },
    Gaussian { mean_s: f64, deviation_s: f64 },
    Exponential { mean_s: f64 },
    Lognormal { median_s: f64, sigma: f64 },
}

/// How connections are opened before the first phase.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// The number a second, or as fast as they are established.
    #[serde(deserialize_with = "present")]
    pub per_s: Option<f64>,
    /// The kernel refuses or delays concurrent connects beyond a server's accept queue.
    pub at_once: usize,
}

/// The number of connections changes linearly to `to`, `chunk` at once.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub to: usize,
    pub over_s: f64,
    pub chunk: usize,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    Random,
    Fixed,
    Zero,
}

/// When a phase ends: `{"seconds": x}` or `{"messages": n}`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    Seconds(f64),
    Messages(u64),
}

/// The windows in which this process loads its server, in seconds from the first phase; it is silent outside them. Each
/// is preceded by a lead, in which it sends but does not count, and followed by a tail, in which it awaits replies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slices {
    pub windows: Vec<(f64, f64)>,
    pub lead_s: f64,
    pub tail_s: f64,
    /// The server is stopped between its slices, so no reply's time includes a rest.
    pub frozen: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub connect_s: f64,
    pub reply_s: f64,
    pub deadline_s: f64,
}

/// TLS under the plan's transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub verify: bool,
    /// PEM certificates to trust; without it, those that this host trusts.
    #[serde(deserialize_with = "present")]
    pub ca: Option<PathBuf>,
}

/// permessage-deflate, which the server must agree to.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deflate {
    pub client_context_takeover: bool,
    pub server_context_takeover: bool,
    /// zlib's, 0 to 9.
    pub level: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub format: u32,
    pub scenario: Scenario,
    pub transport: Transport,
    pub target: Target,
    #[serde(rename = "loop")]
    pub pace: Loop,
    pub connections: usize,
    pub connect: Connect,
    /// Connections join and leave by these in the measured phase; without them all are opened before.
    #[serde(deserialize_with = "present")]
    pub stages: Option<Vec<Stage>>,
    pub mask: Mask,
    #[serde(deserialize_with = "present")]
    pub tls: Option<Tls>,
    #[serde(deserialize_with = "present")]
    pub deflate: Option<Deflate>,
    /// The largest payload of one frame; longer messages are sent in fragments.
    #[serde(deserialize_with = "present")]
    pub fragment_bytes: Option<usize>,
    /// Offered in this order; the server may choose one.
    pub subprotocols: Vec<String>,
    #[serde(deserialize_with = "present")]
    pub warmup: Option<Until>,
    pub measure: Until,
    /// Takes turns with other processes; without slices it loads its server all the time.
    #[serde(deserialize_with = "present")]
    pub slices: Option<Slices>,
    pub drain_s: f64,
    pub tick_s: f64,
    pub limits: Limits,
    pub threads: usize,
    pub cpus: Vec<usize>,
    /// The workers never sleep: no message waits for a CPU to wake up, and no CPU is left for anything else.
    pub busy_poll: bool,
    /// For one connection in this many, the kernel timestamps the arrival of bytes.
    #[serde(deserialize_with = "present")]
    pub receive_stamps: Option<u32>,
    pub source_addresses: Vec<IpAddr>,
    pub headers: Vec<(String, String)>,
    pub seed: u64,
    /// This process is number i of n with equal plans: it takes its part of everything that is counted.
    pub shard: (u32, u32),
    /// Connecting and the first phase begin at times given on standard input, each awaited for at most this long.
    #[serde(deserialize_with = "present")]
    pub gate_s: Option<f64>,
}

impl Plan {
    /// The checked plan, or one line with the wrong key, the value found and the allowed values.
    pub fn read(path: &Path) -> Result<Plan, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let parse = || {
            let deserializer = &mut serde_json::Deserializer::from_str(&text);
            let plan: Plan = serde_path_to_error::deserialize(&mut *deserializer).map_err(|error| {
                let key = error.path().to_string();
                let key = if key == "." { String::new() } else { format!("`{key}`: ") };
                format!("{key}{}", error.inner())
            })?;
            deserializer.end().map_err(|error| error.to_string())?;
            plan.check()?;
            Ok(plan)
        };
        parse().map_err(|error: String| format!("{}: {error}", path.display()))
    }

    pub fn session(&self) -> Option<&Session> {
        if let Scenario::Session(session) = &self.scenario { Some(session) } else { None }
    }

    pub fn connection_per_request(&self) -> bool {
        matches!(self.scenario, Scenario::Doc { persistent: false, .. })
    }

    #[inline]
    pub fn is_stamped(&self, connection: u32) -> bool {
        self.receive_stamps.is_some_and(|every| connection.is_multiple_of(every))
    }

    /// Messages that may be in flight at once on one connection.
    pub fn depth(&self) -> usize {
        match self.pace {
            Loop::Closed { depth, .. } => depth,
            Loop::Open { depth, .. } => depth.unwrap_or(usize::MAX),
            Loop::None {} => 0,
        }
    }

    /// Which of the trial's connections or users are this worker's: the first, and the step to the next. The
    /// workers of all shards together take everything exactly once, whatever their number of threads.
    pub fn stride(&self, worker: usize) -> (usize, usize) {
        let (shard, shards) = (self.shard.0 as usize, self.shard.1 as usize);
        (shard + shards * worker, shards * self.threads)
    }

    /// How many of `total` are this worker's.
    pub fn share(&self, total: u64, worker: usize) -> u64 {
        part(total, self.stride(worker))
    }

    /// Which of the trial's messages are this worker's: the first, and the step to the next. Where only publishers send, a
    /// worker that has none of them has no messages.
    pub fn messages_of(&self, worker: usize) -> Option<(usize, usize)> {
        let (first, step) = self.stride(worker);
        let rooms = self.session().and_then(|session| session.rooms);
        let senders = rooms.map_or(step, |rooms| rooms.count as usize * rooms.publishers(self.connections) as usize);
        (first < senders).then_some((first, step.min(senders)))
    }

    pub fn share_of_messages(&self, total: u64, worker: usize) -> u64 {
        self.messages_of(worker).map_or(0, |stride| part(total, stride))
    }

    pub fn own_connections(&self) -> usize {
        (0..self.threads).map(|worker| self.share(self.connections as u64, worker) as usize).sum()
    }

    /// The address for connection `number`: the addresses of the target in rotation.
    pub fn address_of(&self, number: u32) -> SocketAddr {
        match self.address_number(number) {
            0 => self.target.address,
            other => self.target.replicas[other - 1],
        }
    }

    /// The index of that address. Every worker rotates through all addresses, each with a different
    /// start, so each reaches all of them for any number of workers and addresses.
    pub fn address_number(&self, number: u32) -> usize {
        let own = self.own_number(number);
        (own / self.threads + own % self.threads) % self.addresses()
    }

    /// The number of addresses of the target. They belong to processes of one server that do not
    /// know each other's receivers.
    pub fn addresses(&self) -> usize {
        1 + self.target.replicas.len()
    }

    /// The source address for connection `number`: the sources in rotation, for each address of the target.
    pub fn source_of(&self, number: u32) -> IpAddr {
        let turn = self.own_number(number) / self.addresses();
        self.source_addresses[turn % self.source_addresses.len()]
    }

    /// A connection's number among those of this process alone.
    fn own_number(&self, number: u32) -> usize {
        (number / self.shard.1) as usize
    }
}

/// How many of `total` have the numbers of this stride.
fn part(total: u64, (first, step): (usize, usize)) -> u64 {
    total / step as u64 + u64::from((first as u64) < total % step as u64)
}
