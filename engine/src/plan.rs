//! The plan: what this process is to do. Parsed at the door and checked; what comes out is trusted everywhere else.
//! There are no defaults here: a plan says everything. The contract is protocol/README.md, section 1.

use serde::{Deserialize, Deserializer};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Opcode {
    Text,
    Binary,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Scenario {
    Doc {
        persistent: bool,
        bytes: u64,
    },
    /// `content` is a file of exactly `bytes`; without one the payload is drawn from the seed.
    Echo {
        opcode: Opcode,
        bytes: usize,
        #[serde(deserialize_with = "present")]
        content: Option<PathBuf>,
    },
    Ping {},
    /// Connections that are only held.
    Idle {},
    /// Broadcasts, triggered by this process; `slow_readers` is the share of connections that never read.
    Push {
        slow_readers: f64,
    },
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
    /// Where the same server listens as well, in other processes.
    pub replicas: Vec<SocketAddr>,
    pub host: String,
    pub path: String,
}

/// When the next message is due.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Loop {
    /// When a reply is complete, after a pause to think if there is one; `depth` messages are under way on a connection.
    Closed {
        depth: usize,
        #[serde(deserialize_with = "present")]
        think: Option<Think>,
        /// A connection is closed after so many replies, and another takes its place.
        #[serde(deserialize_with = "present")]
        messages_per_connection: Option<u64>,
    },
    /// By the schedule, whatever the replies do; `depth` limits how many are under way on a connection.
    Open {
        arrivals: Arrivals,
        rate: Vec<Segment>,
        #[serde(deserialize_with = "present")]
        depth: Option<usize>,
    },
    /// Nothing is ever due.
    None {},
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    Constant,
    Poisson,
}

/// A rate that moves evenly from one value to the other; the last segment's end holds for ever.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    pub from_per_s: f64,
    pub to_per_s: f64,
    pub for_s: f64,
}

/// A distribution of pauses; what falls below zero is zero.
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
    /// As many a second, or as fast as they are made.
    #[serde(deserialize_with = "present")]
    pub per_s: Option<f64>,
    /// More connects at once than a server's accept queue holds are refused or delayed by the kernel.
    pub at_once: usize,
}

/// The number of connections moves evenly to `to`, `chunk` at a time.
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
    /// Certificates to trust, PEM; without it, those that this host trusts.
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
    /// Connections come and go by these in the measured phase; without them all are opened before.
    #[serde(deserialize_with = "present")]
    pub stages: Option<Vec<Stage>>,
    pub mask: Mask,
    #[serde(deserialize_with = "present")]
    pub tls: Option<Tls>,
    #[serde(deserialize_with = "present")]
    pub deflate: Option<Deflate>,
    /// The most payload that one frame carries; longer messages are sent in fragments.
    #[serde(deserialize_with = "present")]
    pub fragment_bytes: Option<usize>,
    /// Offered in this order; the server may choose one.
    pub subprotocols: Vec<String>,
    #[serde(deserialize_with = "present")]
    pub warmup: Option<Until>,
    pub measure: Until,
    pub drain_s: f64,
    pub limits: Limits,
    pub threads: usize,
    pub cpus: Vec<usize>,
    /// The workers never sleep: no message waits for a CPU to wake up, and no CPU is left for anything else.
    pub busy_poll: bool,
    /// One connection in so many has the kernel say when its bytes came.
    #[serde(deserialize_with = "present")]
    pub receive_stamps: Option<u32>,
    pub source_addresses: Vec<IpAddr>,
    pub headers: Vec<(String, String)>,
    pub seed: u64,
    /// This process is number i of n, whose plans are the same: it takes its part of everything that is counted.
    pub shard: (u32, u32),
    /// Connecting and the first phase begin at instants that standard input gives, each awaited at most so long.
    #[serde(deserialize_with = "present")]
    pub gate_s: Option<f64>,
}

/// Makes an `Option` key required: `null` must be written, not left out.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

impl Plan {
    /// The checked plan, or one line that says which key is wrong, what was found and what is allowed.
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

    /// Whether every message has a connection of its own.
    pub fn connection_per_request(&self) -> bool {
        matches!(self.scenario, Scenario::Doc { persistent: false, .. })
    }

    /// Whether the kernel is to say when this connection's bytes came.
    #[inline]
    pub fn is_stamped(&self, connection: u32) -> bool {
        self.receive_stamps.is_some_and(|every| connection.is_multiple_of(every))
    }

    /// Messages that may be under way at once on one connection.
    pub fn depth(&self) -> usize {
        match self.pace {
            Loop::Closed { depth, .. } => depth,
            Loop::Open { depth, .. } => depth.unwrap_or(usize::MAX),
            Loop::None {} => 0,
        }
    }

    /// Which of the trial's connections, messages or users are this worker's: the first, and from one to the next. So the
    /// workers of all shards take everything between them, and nothing twice, whatever their number of threads.
    pub fn place(&self, worker: usize) -> (usize, usize) {
        let (shard, shards) = (self.shard.0 as usize, self.shard.1 as usize);
        (shard + shards * worker, shards * self.threads)
    }

    /// How many of `total` are this worker's.
    pub fn share(&self, total: u64, worker: usize) -> u64 {
        let (first, step) = self.place(worker);
        total / step as u64 + u64::from((first as u64) < total % step as u64)
    }

    /// This process's own connections.
    pub fn own_connections(&self) -> usize {
        (0..self.threads).map(|worker| self.share(self.connections as u64, worker) as usize).sum()
    }

    /// Where connection `number` goes to: every address of the target in turn.
    pub fn address_of(&self, number: u32) -> SocketAddr {
        match self.address_number(number) {
            0 => self.target.address,
            other => self.target.replicas[other - 1],
        }
    }

    /// Which of the target's addresses that is. Every worker takes them in turn, beginning with another than the one before
    /// it, so that each reaches all of them however many workers and addresses there are.
    pub fn address_number(&self, number: u32) -> usize {
        let own = self.own_number(number);
        (own / self.threads + own % self.threads) % self.addresses()
    }

    /// At how many addresses the target listens: processes of one server, of which none knows the receivers of another.
    pub fn addresses(&self) -> usize {
        1 + self.target.replicas.len()
    }

    /// Where connection `number` comes from: every source in turn, for each address of the target.
    pub fn source_of(&self, number: u32) -> IpAddr {
        let turn = self.own_number(number) / self.addresses();
        self.source_addresses[turn % self.source_addresses.len()]
    }

    /// A connection's number among those of this process alone.
    fn own_number(&self, number: u32) -> usize {
        (number / self.shard.1) as usize
    }
}
