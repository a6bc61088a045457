//! Checks a plan: every key is compared with the allowed values. An error is one line with the key,
//! the value found and the allowed values. No later code checks again.

use crate::frame::Opcode;
use crate::plan::{Connect, Loop, Plan, Scenario, Segment, Slices, Stage, Target, Think, Transport, Until};
use crate::push::TRIGGERING;
use crate::rooms::MOST_PUBLISHERS;
use crate::session::Session;
use crate::stamp;
use std::path::Path;

const MOST_SLICES: usize = 100_000;
/// Four bytes each.
const MOST_HEARD: u64 = 1 << 27;

impl Plan {
    pub fn check(&self) -> Result<(), String> {
        require(self.format == 1, "format", self.format, "1")?;
        require(self.connections >= 1, "connections", self.connections, "at least 1")?;
        require(self.shard.0 < self.shard.1, "shard", format!("{:?}", self.shard), "[i, n] with i < n")?;
        let shards = self.shard.1 as usize;
        require(shards <= self.connections, "shard", format!("one of {shards}"), "one of at most `connections`")?;
        let room = self.connections / shards + usize::from((self.shard.0 as usize) < self.connections % shards);
        let allowed = "1 to `connections`, or this shard's part of them";
        require(self.threads >= 1 && self.threads <= room, "threads", self.threads, allowed)?;
        self.check_shards()?;
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
        require(within(self.tick_s, 0.05, 1.0), "tick_s", self.tick_s, "0.05 to 1 second")?;
        let cpus = online_cpus();
        for &cpu in &self.cpus {
            require(cpu < cpus, "cpus", cpu, &format!("0 to {}", cpus - 1))?;
        }
        require(self.receive_stamps != Some(0), "receive_stamps", 0, "at least 1, or null")?;
        self.check_slices()?;
        self.check_addresses()?;
        self.check_triggering()?;
        self.check_head()
    }

    /// Actions that several processes can only take together if they agree on the time.
    fn check_shards(&self) -> Result<(), String> {
        if let Some(seconds) = self.gate_s {
            require(within(seconds, 1e-3, 3600.0), "gate_s", seconds, "0.001 to 3600 seconds, or null")?;
        }
        if self.shard.1 == 1 {
            return Ok(());
        }
        let counted = matches!(self.warmup, Some(Until::Messages(_)));
        require(!counted, "warmup", "a number of messages", "seconds or null for one of several shards")?;
        let moves = matches!(self.scenario, Scenario::Push { .. }) && self.stages.is_some();
        require(!moves, "stages", "set", "null for one of several shards of the scenario push")
    }

    fn check_scenario(&self) -> Result<(), String> {
        let fits = match &self.scenario {
            Scenario::Doc { .. } => self.transport == Transport::Http,
            Scenario::Echo { .. } | Scenario::Push { .. } | Scenario::Session(_) => {
                self.transport == Transport::Websocket
            }
            Scenario::Ping {} | Scenario::Idle {} => self.transport != Transport::Http,
        };
        let allowed = "http for doc, websocket for echo, push and session, websocket or tcp for ping and idle";
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
            Scenario::Session(session) => {
                session.check()?;
                self.check_rooms(session)
            }
            _ => Ok(()),
        }
    }

    /// A room's members are all in one process and stay, so that it is known who must receive what.
    fn check_rooms(&self, session: &Session) -> Result<(), String> {
        let sends = !matches!(self.pace, Loop::None {});
        require(!sends || !session.body().is_empty(), "loop.kind", "not none", "none without steps behind the setup")?;
        let Some(rooms) = session.rooms else { return Ok(()) };
        let (key, shards) = ("scenario.rooms.count", self.shard.1);
        let allowed = format!("at most `connections`, and a multiple of {shards}, the number of shards");
        let fits = rooms.count as usize <= self.connections && rooms.count.is_multiple_of(shards);
        require(fits, key, rooms.count, &allowed)?;
        let publishers = u64::from(rooms.publishers(self.connections)) * u64::from(rooms.count);
        require(publishers <= MOST_PUBLISHERS, "scenario.rooms.publishers", publishers, "at most 65536 in all rooms")?;
        let heard = self.connections as u64 * (publishers / u64::from(rooms.count));
        require(heard <= MOST_HEARD, "scenario.rooms", heard, "at most 2^27 pairs of a publisher and a receiver")?;
        let comes_and_goes = matches!(self.pace, Loop::Closed { messages_per_connection: Some(_), .. });
        require(!comes_and_goes && self.stages.is_none(), "scenario.rooms", "set", "null where connections come and go")
    }

    fn check_content(&self, path: &Path) -> Result<(), String> {
        if !matches!(self.scenario, Scenario::Echo { opcode: Opcode::Text, .. }) {
            return Ok(());
        }
        let content = std::fs::read(path).map_err(|error| format!("`scenario.content`: {path:?}: {error}"))?;
        let behind = &content[content.len().min(stamp::LENGTH)..];
        let allowed = "UTF-8 text behind its first 16 bytes, which are the stamp's";
        require(std::str::from_utf8(behind).is_ok(), "scenario.content", format!("{path:?}"), allowed)
    }

    fn check_loop(&self) -> Result<(), String> {
        let named = |kind: &str, allowed: &str| Err(format!("`loop.kind` is {kind}; allowed: {allowed}"));
        match (&self.pace, &self.scenario) {
            (Loop::None {}, Scenario::Idle {} | Scenario::Session(_)) => {}
            (_, Scenario::Idle {}) => return named("not none", "none for the scenario idle"),
            (Loop::None {}, _) => return named("none", "closed or open for this scenario"),
            (Loop::Closed { .. }, Scenario::Push { .. }) => return named("closed", "open for the scenario push"),
            _ => {}
        }
        let is_endless = matches!(self.scenario, Scenario::Push { .. }) || matches!(self.pace, Loop::None {});
        if is_endless {
            let by_time = matches!(self.measure, Until::Seconds(_)) && !matches!(self.warmup, Some(Until::Messages(_)));
            let allowed = "seconds, as `warmup`, for the scenario push and the loop none";
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
        let workers = self.shard.1 as usize * self.threads;
        let enough = format!("at least {workers}, one for each thread of each shard");
        require(at_once >= workers.max(1), "connect.at_once", at_once, &enough)?;
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

    /// Slices need phases of known length, and a load that can pause.
    fn check_slices(&self) -> Result<(), String> {
        let Some(slices) = &self.slices else { return Ok(()) };
        let (Until::Seconds(measure_s), None | Some(Until::Seconds(_))) = (self.measure, self.warmup) else {
            return require(false, "slices", "set", "null, or `warmup` and `measure` in seconds");
        };
        let pauses = match self.pace {
            Loop::Closed { think, .. } => think.is_none(),
            Loop::Open { .. } => !matches!(self.scenario, Scenario::Push { .. }),
            Loop::None {} => false,
        };
        let allowed = "null, or a closed loop without `think`, or an open loop of messages";
        require(pauses && self.stages.is_none(), "slices", "set", allowed)?;
        let Slices { ref windows, lead_s, tail_s, .. } = *slices;
        require(within(lead_s, 1e-3, 60.0), "slices.lead_s", lead_s, "0.001 to 60 seconds")?;
        require(within(tail_s, 1e-3, 60.0), "slices.tail_s", tail_s, "0.001 to 60 seconds")?;
        let warmup_s = self.warmup.map_or(0.0, |until| if let Until::Seconds(seconds) = until { seconds } else { 0.0 });
        let end_s = warmup_s + measure_s;
        let (mut free_s, mut measures) = (0.0, false);
        for &(open_s, close_s) in windows {
            let (start_s, stop_s) = (open_s - lead_s, close_s + tail_s);
            let in_one_phase = stop_s < warmup_s || start_s > warmup_s && stop_s < end_s;
            let fine = open_s < close_s && start_s > free_s && in_one_phase;
            let allowed = "windows in order, whose leads and tails neither touch each other nor the edge of a phase";
            require(fine, "slices.windows", format!("[{open_s}, {close_s}]"), allowed)?;
            (free_s, measures) = (stop_s, measures || start_s > warmup_s);
        }
        require(
            measures && windows.len() <= MOST_SLICES,
            "slices.windows",
            windows.len(),
            "1 to 100000, one of them measured",
        )
    }

    fn check_addresses(&self) -> Result<(), String> {
        require(!self.source_addresses.is_empty(), "source_addresses", "[]", "at least one address")?;
        let ipv4 = self.target.address.is_ipv4();
        if let Some(other) = self.target.replicas.iter().find(|address| address.is_ipv4() != ipv4) {
            return require(false, "target.replicas", other, "addresses of the same family as `target.address`");
        }
        let family = if ipv4 { "IPv4 addresses, as the target's" } else { "IPv6 addresses, as the target's" };
        match self.source_addresses.iter().find(|address| address.is_ipv4() != ipv4) {
            Some(other) => require(false, "source_addresses", other, family),
            None => Ok(()),
        }
    }

    /// The first worker of the first shard triggers every broadcast at every address, so it needs a connection to each.
    fn check_triggering(&self) -> Result<(), String> {
        let triggers = matches!(self.scenario, Scenario::Push { .. }) && self.shard.0 == TRIGGERING;
        let own = self.share(self.connections as u64, 0) as usize;
        let allowed = format!("enough for one from the first worker to each of {} addresses", self.addresses());
        require(!triggers || own >= self.addresses(), "connections", self.connections, &allowed)
    }

    /// Text that is copied into a request's head must not be able to end a line or the head.
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

/// NaN is never within.
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
