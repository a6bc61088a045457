//! The plan: what this process is to do. Parsed at the door and checked; what comes out is trusted everywhere else.
//! There are no defaults here: a plan says everything. The contract is protocol/README.md, section 1.

use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Opcode {
    Text,
    Binary,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Scenario {
    Doc { persistent: bool, bytes: u64 },
    Echo { opcode: Opcode, bytes: usize },
    Ping {},
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

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Loop {
    Closed {},
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    Random,
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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub format: u32,
    pub scenario: Scenario,
    pub transport: Transport,
    pub target: Target,
    #[serde(rename = "loop")]
    pub loop_kind: Loop,
    pub connections: usize,
    pub mask: Mask,
    #[serde(deserialize_with = "present")]
    pub warmup: Option<Until>,
    pub measure: Until,
    pub drain_s: f64,
    pub limits: Limits,
    pub threads: usize,
    pub cpus: Vec<usize>,
    pub source_addresses: Vec<IpAddr>,
    pub headers: Vec<(String, String)>,
    pub seed: u64,
    pub shard: (u32, u32),
}

/// Makes an `Option` key required: `null` must be written, not left out.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Until>, D::Error> {
    Option::deserialize(deserializer)
}

impl Plan {
    /// The checked plan, or one line that says which key is wrong, what was found and what is allowed.
    pub fn read(path: &Path) -> Result<Plan, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let plan: Plan = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        plan.check().map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(plan)
    }

    /// Whether every message has a connection of its own.
    pub fn connection_per_request(&self) -> bool {
        matches!(self.scenario, Scenario::Doc { persistent: false, .. })
    }

    /// Part `index` of `total`, divided as evenly as can be among the workers.
    pub fn share(&self, total: u64, index: usize) -> u64 {
        let threads = self.threads as u64;
        total / threads + u64::from((index as u64) < total % threads)
    }

    fn check(&self) -> Result<(), String> {
        // Kinds of which there is one today; a second one will not compile until the engine asks which it is.
        let (Loop::Closed {}, Mask::Random) = (self.loop_kind, self.mask);
        require(self.format == 1, "format", self.format, "1")?;
        require(self.connections >= 1, "connections", self.connections, "at least 1")?;
        require(self.threads >= 1 && self.threads <= self.connections, "threads", self.threads, "1 to `connections`")?;
        let fits = match self.scenario {
            Scenario::Doc { .. } => self.transport == Transport::Http,
            Scenario::Echo { .. } => self.transport == Transport::Websocket,
            Scenario::Ping {} => self.transport != Transport::Http,
        };
        require(
            fits,
            "transport",
            format!("{:?}", self.transport),
            "http for doc, websocket for echo, websocket or tcp for ping",
        )?;
        if let Scenario::Echo { bytes, .. } = self.scenario {
            require(bytes <= 16 << 20, "scenario.bytes", bytes, "at most 16777216")?;
        }
        for (key, until) in [("warmup", self.warmup), ("measure", Some(self.measure))] {
            match until {
                Some(Until::Seconds(seconds)) => require(
                    seconds > 0.0 && seconds <= 86_400.0,
                    key,
                    seconds,
                    "more than 0 and at most 86400 seconds",
                )?,
                Some(Until::Messages(messages)) => require(messages >= 1, key, messages, "at least 1 message")?,
                None => {}
            }
        }
        for (key, seconds) in [
            ("limits.connect_s", self.limits.connect_s),
            ("limits.reply_s", self.limits.reply_s),
            ("limits.deadline_s", self.limits.deadline_s),
        ] {
            require(seconds > 0.0 && seconds <= 90_000.0, key, seconds, "more than 0 and at most 90000 seconds")?;
        }
        require((0.0..=3600.0).contains(&self.drain_s), "drain_s", self.drain_s, "0 to 3600 seconds")?;
        require(!self.source_addresses.is_empty(), "source_addresses", "[]", "at least one address")?;
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get()).max(online_cpus());
        for &cpu in &self.cpus {
            require(cpu < cpus, "cpus", cpu, &format!("0 to {}", cpus - 1))?;
        }
        require(self.shard.0 < self.shard.1, "shard", format!("{:?}", self.shard), "[i, n] with i < n")?;
        let clean = |text: &str| !text.contains(['\r', '\n']);
        require(
            self.headers.iter().all(|(name, value)| clean(name) && clean(value)),
            "headers",
            "a line break",
            "none",
        )?;
        require(clean(&self.target.path) && clean(&self.target.host), "target", "a line break", "none")
    }
}

fn online_cpus() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF).max(1) as usize }
}

fn require(holds: bool, key: &str, found: impl std::fmt::Display, allowed: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("`{key}` is {found}; allowed: {allowed}")) }
}
