//! The plan: what this process is to do. Parsed at the door and checked; what comes out is trusted everywhere else.
//! There are no defaults here: a plan says everything. The contract is protocol/README.md, section 1.

use crate::scenario::STAMP;
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
    pub shard: (u32, u32),
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

    /// Messages that may be under way at once on one connection.
    pub fn depth(&self) -> usize {
        match self.pace {
            Loop::Closed { depth, .. } => depth,
            Loop::Open { depth, .. } => depth.unwrap_or(usize::MAX),
            Loop::None {} => 0,
        }
    }

    /// Part `index` of `total`, divided as evenly as can be among the workers.
    pub fn share(&self, total: u64, index: usize) -> u64 {
        let threads = self.threads as u64;
        total / threads + u64::from((index as u64) < total % threads)
    }

    fn check(&self) -> Result<(), String> {
        require(self.format == 1, "format", self.format, "1")?;
        require(self.connections >= 1, "connections", self.connections, "at least 1")?;
        require(self.threads >= 1 && self.threads <= self.connections, "threads", self.threads, "1 to `connections`")?;
        self.check_scenario()?;
        self.check_loop()?;
        self.check_stages()?;
        for (key, until) in [("warmup", self.warmup), ("measure", Some(self.measure))] {
            match until {
                Some(Until::Seconds(seconds)) => {
                    require(within(seconds, 1e-3, 86_400.0), key, seconds, "0.001 to 86400 seconds")?
                }
                Some(Until::Messages(messages)) => require(messages >= 1, key, messages, "at least 1 message")?,
                None => {}
            }
        }
        for (key, seconds) in [
            ("limits.connect_s", self.limits.connect_s),
            ("limits.reply_s", self.limits.reply_s),
            ("limits.deadline_s", self.limits.deadline_s),
        ] {
            require(within(seconds, 1e-3, 90_000.0), key, seconds, "0.001 to 90000 seconds")?;
        }
        require(within(self.drain_s, 0.0, 3600.0), "drain_s", self.drain_s, "0 to 3600 seconds")?;
        let cpus = online_cpus();
        for &cpu in &self.cpus {
            require(cpu < cpus, "cpus", cpu, &format!("0 to {}", cpus - 1))?;
        }
        require(self.shard.0 < self.shard.1, "shard", format!("{:?}", self.shard), "[i, n] with i < n")?;
        require(self.receive_stamps != Some(0), "receive_stamps", 0, "at least 1, or null")?;
        self.check_addresses()?;
        self.check_head()
    }

    fn check_scenario(&self) -> Result<(), String> {
        let fits = match &self.scenario {
            Scenario::Doc { .. } => self.transport == Transport::Http,
            Scenario::Echo { .. } | Scenario::Push { .. } => self.transport == Transport::Websocket,
            Scenario::Ping {} | Scenario::Idle {} => self.transport != Transport::Http,
        };
        let allowed = "http for doc, websocket for echo and push, websocket or tcp for ping and idle";
        require(fits, "transport", format!("{:?}", self.transport), allowed)?;
        match &self.scenario {
            Scenario::Echo { bytes, content, .. } => {
                require(*bytes <= 16 << 20, "scenario.bytes", bytes, "at most 16777216")?;
                let Some(path) = content else { return Ok(()) };
                let length =
                    std::fs::metadata(path).map_err(|error| format!("`scenario.content`: {path:?}: {error}"))?;
                require(length.len() == *bytes as u64, "scenario.bytes", bytes, "the length of `scenario.content`")?;
                self.check_content(path)
            }
            &Scenario::Push { slow_readers } => {
                require(within(slow_readers, 0.0, 1.0), "scenario.slow_readers", slow_readers, "0 to 1")
            }
            _ => Ok(()),
        }
    }

    fn check_content(&self, path: &Path) -> Result<(), String> {
        if !matches!(self.scenario, Scenario::Echo { opcode: Opcode::Text, .. }) {
            return Ok(());
        }
        let content = std::fs::read(path).map_err(|error| format!("`scenario.content`: {path:?}: {error}"))?;
        let behind = &content[content.len().min(STAMP)..];
        let allowed = "UTF-8 text behind its first 16 bytes, which are the stamp's";
        require(std::str::from_utf8(behind).is_ok(), "scenario.content", format!("{path:?}"), allowed)
    }

    fn check_loop(&self) -> Result<(), String> {
        let named = |kind: &str, allowed: &str| Err(format!("`loop.kind` is {kind}; allowed: {allowed}"));
        match (&self.pace, &self.scenario) {
            (Loop::None {}, Scenario::Idle {}) => {}
            (_, Scenario::Idle {}) => return named("not none", "none for the scenario idle"),
            (Loop::None {}, _) => return named("none", "closed or open for this scenario"),
            (Loop::Closed { .. }, Scenario::Push { .. }) => return named("closed", "open for the scenario push"),
            _ => {}
        }
        if matches!(self.scenario, Scenario::Push { .. } | Scenario::Idle {}) {
            let by_time = matches!(self.measure, Until::Seconds(_)) && !matches!(self.warmup, Some(Until::Messages(_)));
            let allowed = "seconds, as `warmup`, for the scenarios push and idle";
            require(by_time, "measure", "a number of messages", allowed)?;
        }
        let depth = self.depth();
        let one_at_a_time = self.transport == Transport::Http;
        match &self.pace {
            Loop::None {} => Ok(()),
            Loop::Closed { think, messages_per_connection, .. } => {
                require((1..=1_000_000).contains(&depth), "loop.depth", depth, "1 to 1000000")?;
                require(!one_at_a_time || depth == 1, "loop.depth", depth, "1 over http, which has no pipeline here")?;
                require(*messages_per_connection != Some(0), "loop.messages_per_connection", 0, "at least 1, or null")?;
                let churns = messages_per_connection.is_some() && self.connection_per_request();
                require(!churns, "loop.messages_per_connection", "set", "null where each request has a connection")?;
                think.map_or(Ok(()), check_think)
            }
            Loop::Open { rate, .. } => {
                require(depth >= 1, "loop.depth", depth, "at least 1, or null")?;
                require(!one_at_a_time || depth == 1, "loop.depth", depth, "1 over http, which has no pipeline here")?;
                require(!rate.is_empty(), "loop.rate", "empty", "at least one segment")?;
                for segment in rate {
                    let Segment { from_per_s, to_per_s, for_s } = *segment;
                    let fine = within(from_per_s, 0.0, 1e8) && within(to_per_s, 0.0, 1e8) && within(for_s, 0.0, 1e6);
                    let found = format!("{from_per_s} to {to_per_s} for {for_s} s");
                    require(fine, "loop.rate", found, "0 to 1e8 a second, for 0 to 1e6 s")?;
                }
                Ok(())
            }
        }
    }

    fn check_stages(&self) -> Result<(), String> {
        let Connect { per_s, at_once } = self.connect;
        require(at_once >= 1, "connect.at_once", at_once, "at least 1")?;
        if let Some(per_s) = per_s {
            require(within(per_s, 1e-3, 1e7), "connect.per_s", per_s, "0.001 to 1e7, or null")?;
        }
        let Some(stages) = &self.stages else { return Ok(()) };
        let by_time = matches!(self.measure, Until::Seconds(_)) && self.warmup.is_none();
        require(by_time, "stages", "set", "null, or `measure` in seconds and `warmup` null")?;
        require(!self.connection_per_request(), "stages", "set", "null where each request has a connection")?;
        for Stage { to, over_s, chunk } in stages {
            require(*to <= self.connections, "stages.to", to, "at most `connections`")?;
            require(within(*over_s, 0.0, 1e6), "stages.over_s", over_s, "0 to 1e6")?;
            require(*chunk >= 1, "stages.chunk", chunk, "at least 1")?;
        }
        require(!stages.is_empty(), "stages", "[]", "at least one stage, or null")
    }

    fn check_addresses(&self) -> Result<(), String> {
        require(!self.source_addresses.is_empty(), "source_addresses", "[]", "at least one address")?;
        let ipv4 = self.target.address.is_ipv4();
        let family = if ipv4 { "IPv4 addresses, as the target's" } else { "IPv6 addresses, as the target's" };
        match self.source_addresses.iter().find(|address| address.is_ipv4() != ipv4) {
            Some(other) => require(false, "source_addresses", other, family),
            None => Ok(()),
        }
    }

    /// What is written into a request's head as it stands must not be able to end a line, or the head.
    fn check_head(&self) -> Result<(), String> {
        let visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let Target { path, host, .. } = &self.target;
        let allowed = "visible ASCII characters that begin with `/`";
        require(visible(path) && path.starts_with('/'), "target.path", format!("{path:?}"), allowed)?;
        require(visible(host), "target.host", format!("{host:?}"), "visible ASCII characters")?;
        let websocket = self.transport == Transport::Websocket;
        require(websocket || self.deflate.is_none(), "deflate", "set", "null, except over websocket")?;
        let level = self.deflate.map_or(0, |deflate| deflate.level);
        require(level <= 9, "deflate.level", level, "0 to 9")?;
        require(self.fragment_bytes != Some(0), "fragment_bytes", 0, "at least 1, or null")?;
        // RFC 9110 §5.6.2: a field name is a token.
        let token = |name: &str| visible(name) && !name.contains(|found| "\"(),/:;<=>?@[\\]{}".contains(found));
        for name in &self.subprotocols {
            require(token(name), "subprotocols", format!("{name:?}"), "tokens (RFC 9110, section 5.6.2)")?;
        }
        for (name, value) in &self.headers {
            require(token(name), "headers", format!("the name {name:?}"), "a token (RFC 9110, section 5.6.2)")?;
            let fine = !value.contains(|found: char| found.is_control() && found != '\t');
            require(fine, "headers", format!("the value {value:?}"), "no control characters")?;
        }
        Ok(())
    }
}

fn check_think(think: Think) -> Result<(), String> {
    let numbers = match think {
        Think::Constant { mean_s } | Think::Exponential { mean_s } => vec![mean_s],
        Think::Uniform { from_s, to_s } => vec![from_s, to_s, to_s - from_s],
        Think::Gaussian { mean_s, deviation_s } => vec![mean_s, deviation_s],
        Think::Lognormal { median_s, sigma } => vec![median_s, sigma],
    };
    let fine = numbers.iter().all(|&number| within(number, 0.0, 86_400.0));
    require(fine, "loop.think", format!("{think:?}"), "numbers from 0 to 86400, `from_s` at most `to_s`")
}

/// Not a number is never within.
fn within(number: f64, least: f64, most: f64) -> bool {
    (least..=most).contains(&number)
}

fn online_cpus() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF).max(1) as usize }
}

fn require(holds: bool, key: &str, found: impl std::fmt::Display, allowed: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("`{key}` is {found}; allowed: {allowed}")) }
}
