//! When messages were where: the truth about the times that the engine records.
//!
//! ```text
//! the worker wakes   writes   the kernel has all of it  ...  the answer is there   the worker is given it, and reads its clock
//!       begun                          left                                                       read
//! ```
//!
//! A time that begins with a message is at least read - left and at most read - begun. The truth is what its server took;
//! the rest is for what the machine held the worker up, because a worker reads whatever is reported to it before it waits
//! again, and never waits longer than until something is due (`laws`).

use super::copies::Published;
use super::dues::Dues;
use crate::control::Final;
use crate::counts::shortest_of;
use crate::plan::{Loop, Plan, Scenario, Until};
use crate::tags::{Part, Tag};
use std::collections::{BTreeMap, VecDeque};

/// What a client has when it has these bytes.
#[derive(Clone, Copy)]
pub enum Unit {
    /// The answer to the oldest message of its connection.
    Answer,
    /// A copy of a broadcast.
    Copy(usize),
    /// A copy of a message that was published in a room.
    Published(Published),
    /// The end of the connection.
    End,
}

/// A message of a client, from the time at which the kernel has all of it.
pub struct Message {
    worker: usize,
    wire: usize,
    /// Which of its connection's messages it is, and where its send was among all.
    number: usize,
    order: u64,
    begun_ns: u64,
    left_ns: u64,
    read_ns: Option<u64>,
}

/// A copy that its client expects.
struct Copy {
    begun_ns: u64,
    left_ns: u64,
    /// The message published in a room.
    said: Option<usize>,
    read_ns: Option<u64>,
}

#[derive(Default)]
pub struct Times {
    messages: Vec<Message>,
    copies: Vec<Copy>,
    wires: Vec<Wire>,
}

/// What a connection has had.
struct Wire {
    /// Since when its opening may have been begun, and when it began.
    opened: (u64, u64),
    messages: usize,
    unanswered: VecDeque<usize>,
    ended_ns: Option<u64>,
}

impl Times {
    /// Connections are numbered in the order in which they begin.
    pub fn connects(&mut self, wire: usize, opened: (u64, u64)) {
        assert_eq!(wire, self.wires.len());
        self.wires.push(Wire { opened, messages: 0, unanswered: VecDeque::new(), ended_ns: None });
    }

    pub fn left(&mut self, at: usize, worker: usize, order: u64, (begun_ns, left_ns): (u64, u64)) {
        let wire = &mut self.wires[at];
        wire.unanswered.push_back(self.messages.len());
        let number = wire.messages;
        self.messages.push(Message { worker, wire: at, number, order, begun_ns, left_ns, read_ns: None });
        wire.messages += 1;
    }

    /// How many copies of broadcasts were read, and how many were not.
    pub fn copies_read(&self) -> (u64, u64) {
        let read = self.copies.iter().filter(|copy| copy.read_ns.is_some()).count();
        (read as u64, (self.copies.len() - read) as u64)
    }

    /// When an answer or a copy was read last.
    pub fn last_read_ns(&self) -> u64 {
        let copies = self.copies.iter().filter_map(|copy| copy.read_ns);
        self.messages.iter().filter_map(|message| message.read_ns).chain(copies).max().unwrap_or(0)
    }

    pub fn awaits(&self, wire: usize) -> bool {
        !self.wires[wire].unanswered.is_empty()
    }

    /// Since when the message that left last may have been written, and when it left.
    pub fn last_left(&self) -> (u64, u64) {
        let message = self.messages.last().expect("one has just left");
        (message.begun_ns, message.left_ns)
    }

    /// A copy of a message that was published between these two times.
    pub fn copied(&mut self, begun_ns: u64, left_ns: u64, said: Option<usize>) -> usize {
        self.copies.push(Copy { begun_ns, left_ns, said, read_ns: None });
        self.copies.len() - 1
    }

    /// Whether a copy was read in a later slice than that of its message.
    pub fn is_copied_later(&self, plan: &Plan, origin_ns: u64) -> bool {
        let Some(slices) = &plan.slices else { return false };
        let begins = |(open_s, _): &(f64, f64)| origin_ns + ((open_s - slices.lead_s) * 1e9) as u64;
        let later = |copy: &Copy, read_ns| {
            slices.windows.iter().map(begins).any(|ns| (copy.left_ns + 1..read_ns).contains(&ns))
        };
        self.copies.iter().any(|copy| copy.read_ns.is_some_and(|read_ns| later(copy, read_ns)))
    }

    pub fn read(&mut self, at: usize, unit: Unit, now: u64) {
        match unit {
            Unit::Copy(copy) => self.copies[copy].read_ns = Some(now),
            Unit::Published(_) => unreachable!("the hub says what it is to its client"),
            Unit::End => self.wires[at].ended_ns = Some(now),
            Unit::Answer => {
                if let Some(message) = self.wires[at].unanswered.pop_front() {
                    self.messages[message].read_ns = Some(now);
                }
            }
        }
    }
}

/// The values of one kind that the intervals of a worker had: how many are in each bucket of the histogram, by the least
/// and the greatest value in it.
#[derive(Clone, Default)]
pub struct Values(BTreeMap<(u64, u64), u64>);

impl Values {
    pub fn add(&mut self, bucket: usize, count: u64) {
        *self.0.entry((shortest_of(bucket), shortest_of(bucket + 1) - 1)).or_default() += count;
    }

    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }
}

/// What all intervals of a worker recorded, by tag and part.
pub type Recorded = BTreeMap<(Tag, Part), Values>;

/// The least and the greatest that a time may be.
type Bounds = (u64, u64);

/// There are as many values as bounds, and the values can be dealt out so that each is within its own: the smallest within
/// the smallest bounds, and so on.
fn within<'a>(what: &str, told: impl Iterator<Item = &'a Values>, bounds: Vec<Bounds>) -> Result<(), String> {
    let mut buckets: Vec<(&Bounds, &u64)> = told.flat_map(|values| &values.0).collect();
    buckets.sort();
    let (mut least, mut most): (Vec<u64>, Vec<u64>) = bounds.into_iter().unzip();
    least.sort_unstable();
    most.sort_unstable();
    let count: u64 = buckets.iter().map(|&(_, count)| count).sum();
    if count != least.len() as u64 {
        return Err(format!("{what}: {count} times of {} messages", least.len()));
    }
    let told = buckets.iter().flat_map(|&(bucket, &count)| std::iter::repeat_n(bucket, count as usize));
    for ((&(lowest, highest), least), most) in told.zip(least).zip(most) {
        // The engine records nothing below a nanosecond.
        if highest < least || lowest > most.max(1) {
            return Err(format!("{what}: {lowest} to {highest} ns, but {least} to {most} ns are true"));
        }
    }
    Ok(())
}

/// The rests of a frozen server.
struct Rests(Vec<(u64, u64)>);

impl Rests {
    fn new(plan: &Plan, origin_ns: u64) -> Rests {
        let Some(slices) = plan.slices.as_ref().filter(|slices| slices.frozen) else { return Rests(Vec::new()) };
        let seconds = |until| if let Until::Seconds(seconds) = until { seconds } else { 0.0 };
        let end_s = plan.warmup.map_or(0.0, seconds) + seconds(plan.measure);
        let at = |seconds: f64| origin_ns + (seconds * 1e9).round() as u64;
        let begins = slices.windows.iter().skip(1).map(|(open_s, _)| open_s - slices.lead_s).chain([end_s]);
        let ends = slices.windows.iter().map(|(_, close_s)| close_s + slices.tail_s);
        Rests(ends.zip(begins).map(|(end_s, begin_s)| (at(end_s), at(begin_s))).collect())
    }

    /// The time between these two without rests.
    fn awake(&self, from_ns: u64, to_ns: u64) -> u64 {
        let rested =
            |&(stopped_ns, resumed_ns): &(u64, u64)| resumed_ns.min(to_ns).saturating_sub(stopped_ns.max(from_ns));
        to_ns.saturating_sub(from_ns) - self.0.iter().map(rested).sum::<u64>()
    }
}

/// The times of a worker's messages, at the end of a run with honest servers that has not been cut off.
pub fn of_messages(
    plan: &Plan,
    worker: usize,
    times: &Times,
    recorded: &Recorded,
    last: &Final,
    dues: Option<&Dues>,
    origin_ns: u64,
) -> Result<(), String> {
    if matches!(plan.scenario, Scenario::Push { .. }) {
        return Ok(());
    }
    let rests = Rests::new(plan, origin_ns);
    let told = |tag| [Part::Measured, Part::Warmup].into_iter().filter_map(move |part| recorded.get(&(tag, part)));
    let setup = plan.session().map_or(0, |session| session.setup);
    let (first, mut body): (Vec<&Message>, Vec<&Message>) =
        times.messages.iter().filter(|message| message.worker == worker).partition(|message| message.number < setup);
    let wire = |message: &Message| &times.wires[message.wire];
    let service = |messages: &[&Message]| -> Vec<Bounds> {
        let read = messages.iter().filter_map(|message| Some((message, message.read_ns?)));
        read.map(|(message, ns)| (rests.awake(message.left_ns, ns), rests.awake(message.begun_ns, ns))).collect()
    };
    let mut steps = service(&first);
    // A connection that carries a single request opens with it, and its message is complete when it ends.
    let alone = plan.connection_per_request();
    let begun = |message: &Message| if alone { wire(message).opened } else { (message.begun_ns, message.left_ns) };
    let ended = |message: &Message| if alone { message.read_ns.and(wire(message).ended_ns) } else { message.read_ns };
    body.retain(|message| message.read_ns.is_none() || ended(message).is_some());
    within(&format!("worker {worker}, service"), told(Tag::Service), service(&body))?;
    if alone {
        let whole = body.iter().filter_map(|message| Some((begun(message), ended(message)?)));
        let bounds = whole.map(|((early_ns, late_ns), ns)| (rests.awake(late_ns, ns), rests.awake(early_ns, ns)));
        within(&format!("worker {worker}, request"), told(Tag::Request), bounds.collect())?;
    }
    // The k-th message that was sent is the k-th that was due, if none was held back to the end, or to that of a slice.
    body.sort_by_key(|message| if alone { message.wire as u64 } else { message.order });
    let unpaced = matches!(plan.pace, Loop::Closed { think: None, .. });
    let sent = body.len();
    let is_known =
        |dues: &&Dues| last.counters.sent == sent as u64 && (plan.slices.is_none() || dues.all.len() == sent);
    let scheduled = dues.filter(is_known);
    if let Some(dues) = scheduled {
        let all = body.iter().zip(&dues.all);
        let answered = || all.clone().filter_map(|(message, &due_ns)| Some((message, due_ns, ended(message)?)));
        let response = |(message, due_ns, ns): (&&Message, u64, u64)| {
            let (early_ns, late_ns) = begun(message);
            let since = |from_ns| (from_ns + rests.awake(from_ns, ns)).saturating_sub(due_ns);
            (since(early_ns), since(late_ns))
        };
        let response: Vec<Bounds> = answered().map(response).collect();
        let lag = answered().map(|(message, due_ns, _)| {
            let (early_ns, late_ns) = begun(message);
            (early_ns.saturating_sub(due_ns), late_ns.saturating_sub(due_ns))
        });
        within(&format!("worker {worker}, send lag"), told(Tag::SendLag), lag.collect())?;
        steps.extend(&response);
        within(&format!("worker {worker}, response"), told(Tag::Response), response)?;
    }
    if let Some(session) = plan.session()
        && (unpaced || scheduled.is_some())
    {
        if unpaced {
            steps.extend(service(&body));
        }
        let all = (0..session.steps.len()).flat_map(|number| told(Tag::step(number)));
        within(&format!("worker {worker}, steps"), all, steps)?;
    }
    Ok(())
}

/// The times of the copies of all workers. `is_measured` says whether a message published in a room belongs to the
/// measurement; `complete` are those of which every member has a copy.
pub fn of_copies(
    plan: &Plan,
    times: &Times,
    recorded: &[Recorded],
    origin_ns: u64,
    is_measured: impl Fn(usize) -> bool,
    is_complete: impl Fn(usize) -> bool,
) -> Result<(), String> {
    let rests = Rests::new(plan, origin_ns);
    let told = |tag, part| recorded.iter().filter_map(move |recorded| recorded.get(&(tag, part)));
    for part in [Part::Measured, Part::Warmup] {
        let (mut all, mut last) = (Vec::new(), BTreeMap::new());
        for Copy { begun_ns, left_ns, said, read_ns } in &times.copies {
            let (Some(read_ns), Some(said)) = (*read_ns, *said) else { continue };
            if is_measured(said) == (part == Part::Measured) {
                let bounds = (rests.awake(*left_ns, read_ns), rests.awake(*begun_ns, read_ns));
                all.push(bounds);
                let greatest: &mut Bounds = last.entry(said).or_default();
                *greatest = bounds.max(*greatest);
            }
        }
        within(&format!("{part:?} push"), told(Tag::Push, part), all)?;
        last.retain(|&said, _| is_complete(said));
        within(&format!("{part:?} push_last"), told(Tag::PushLast, part), last.into_values().collect())?;
    }
    Ok(())
}

/// The times of the copies of broadcasts, where all receivers were there from the beginning to the end.
pub fn of_broadcasts(times: &Times, recorded: &[Recorded]) -> Result<(), String> {
    let told = |part| recorded.iter().filter_map(move |recorded| recorded.get(&(Tag::Push, part)));
    let copies = times.copies.iter().filter_map(|copy| Some((copy, copy.read_ns?)));
    let bounds = copies.map(|(copy, read_ns)| (read_ns - copy.left_ns, read_ns - copy.begun_ns)).collect();
    within("push", told(Part::Measured).chain(told(Part::Warmup)), bounds)
}
