//! Invariants after every step of a worker, whatever its servers do, and at its end.

use super::copies::{Said, Truth};
use super::dues::Dues;
use super::machine::Simulated;
use super::times::{self, Recorded, Times, Values};
use super::world::World;
use crate::clock::SECOND_NS;
use crate::connection::{Counted, State};
use crate::control::{Final, Phase};
use crate::conversing::ANSWERS_BYTES;
use crate::draining::BEYOND_NS;
use crate::plan::{Loop, Plan, Scenario, Transport};
use crate::record::{Counters, Pushes, Record};
use crate::slices::Slices;
use crate::system::Interest;
use crate::tags::{Part, Tag};
use crate::worker::Worker;

/// The part of a flood of Pings that is answered before only the newest is (receiving.rs), and a handshake.
const BESIDES_BYTES: usize = (64 << 10) + 1024;
/// A message of the sessions that are drawn.
const LONGEST_CALL: usize = 20_200;
/// The header and the key of a frame (RFC 6455 §5.2).
const FRAME_BYTES: usize = 14;

macro_rules! law {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+));
        }
    };
}

pub fn of_a_step(worker: &Worker<Simulated>) -> Result<(), String> {
    let Worker { connections, accounts, script, outbox, plan, timeline, pacer, system, .. } = worker;
    let count = |what: Counted| connections.iter().filter(|one| one.state.counted() == what).count();
    let (Record { counters, ledger, .. }, now) = (&accounts.record, system.world.borrow().now);
    let under_way = || connections.iter().flat_map(|one| one.under_way.all());
    let measured = under_way().filter(|one| one.measured).count();
    for (what, counted, are) in [
        ("opening", accounts.opening, count(Counted::Opening)),
        ("closing", accounts.closing, count(Counted::Closing)),
        ("open", counters.open as usize, count(Counted::Open)),
        ("in flight", accounts.in_flight as usize, under_way().count()),
        ("measured", accounts.measured_in_flight as usize, measured),
    ] {
        law!(counted == are, "{what}: {counted} counted, {are} are");
    }
    let at_once = worker.at_once();
    law!(
        plan.connection_per_request() || accounts.opening <= at_once,
        "{} are opening, {at_once} may be",
        accounts.opening
    );
    law!(outbox.bytes.is_empty(), "{} bytes were written for nobody", outbox.bytes.len());
    if !script.is_notice() {
        let told = counters.answered + counters.failed + accounts.in_flight;
        law!(counters.sent == told, "{counters:?} with {} in flight", accounts.in_flight);
        let told = ledger.answered + ledger.failed + accounts.measured_in_flight;
        law!(ledger.sent == told, "{ledger:?} with {} in flight", accounts.measured_in_flight);
        law!(ledger.sent <= counters.sent && ledger.answered <= counters.answered, "{ledger:?} of {counters:?}");
    } else {
        let more = ledger.answered > ledger.sent || counters.answered > counters.sent;
        law!(plan.threads > 1 || !more, "more copies than were expected: {ledger:?}, {counters:?}");
    }
    if timeline.phase == Phase::Connect {
        law!(counters.established >= counters.open, "established < open: {counters:?}");
    }
    if let Some(slices) = &timeline.slices {
        let strays = under_way().find(|one| !slices.sends_at(one.due_ns));
        law!(strays.is_none(), "a message is due outside the slices: {strays:?}");
        law!(timeline.loads || pacer.backlog.is_empty(), "{} messages wait outside the slices", pacer.backlog.len());
    }
    let most = plan.depth();
    let length = plan.session().map_or(script.length, |_| LONGEST_CALL);
    let frames = length / plan.fragment_bytes.unwrap_or(usize::MAX) + 1;
    // Wrapping makes a message longer, but never doubles it.
    let wrapped = 1 + usize::from(plan.tls.is_some() || plan.deflate.is_some());
    let answers = plan.session().map_or(0, |_| ANSWERS_BYTES + (64 << 10) + LONGEST_CALL + frames * FRAME_BYTES);
    let bound = wrapped * (most.min(64) * (length + frames * FRAME_BYTES) + answers + BESIDES_BYTES);
    for (index, one) in connections.iter().enumerate() {
        let state = one.state;
        law!(
            one.socket.is_some() == (state != State::Closed),
            "{index} is {state:?}, with a socket: {}",
            one.socket.is_some()
        );
        law!(one.under_way.len() <= most, "{index} has {} under way, {most} may be", one.under_way.len());
        let kept = one.unsent.as_ref().map_or(0, |unsent| unsent.left().len());
        law!(kept <= bound, "{index} keeps {kept} bytes, {bound} may be");
        if let Some(socket) = one.socket.as_ref().filter(|_| !script.is_notice()) {
            let read = system.wire(socket).peer.messages;
            law!(one.replies <= read, "{index} has {} answers, and its server has had {read} messages", one.replies);
        }
        let keeps = plan.deflate.is_some_and(|wanted| wanted.client_context_takeover);
        law!(keeps || one.deflater.is_none(), "{index} has a compressor of its own, and keeps nothing");
        let heard = one.socket.as_ref().and_then(|socket| system.wire(socket).interest);
        let waits = one.unsent.is_some() && state != State::Connecting;
        law!(!waits || heard == Some(Interest::ReadWrite), "{index} keeps {kept} bytes, and waits for {heard:?}");
        law!(state == State::Closed || heard.is_some(), "{index} is {state:?}, and nobody hears of it");
        let overlooked = one.socket.as_ref().is_some_and(|socket| system.wire(socket).reported);
        law!(
            !overlooked || state == State::Connecting || !worker.goes_on(),
            "{index} is {state:?}, and what it has is not looked at"
        );
        if let Some(socket) = one.socket.as_ref().filter(|_| state != State::Connecting && worker.goes_on()) {
            let (readable, writable) = system.wire(socket).is_silent(now);
            law!(
                !readable || one.unread || heard == Some(Interest::Nothing),
                "{index} has more to read, and nobody hears of it"
            );
            law!(!writable || one.unsent.is_none(), "{index} can send what it keeps, and nobody hears of it");
        }
        law!(one.unread == worker.unread.contains(&(index as u32)), "{index} is among the unread: {}", one.unread);
        law!(one.in_line == pacer.line.contains(&(index as u32)), "{index} stands in line: {}", one.in_line);
    }
    law!(pacer.backlog.len() < 200_000, "{} messages are late", pacer.backlog.len());
    nobody_is_forgotten(worker)
}

/// No connection of a closed loop stalls: it waits for a reply or for the end of its pause, or it is leaving.
fn nobody_is_forgotten(worker: &Worker<Simulated>) -> Result<(), String> {
    let Worker { connections, board, plan, timeline, pacer, system, .. } = worker;
    let Loop::Closed { messages_per_connection: None, .. } = plan.pace else { return Ok(()) };
    let loads = match timeline.phase {
        _ if !timeline.loads => false,
        Phase::Warmup | Phase::Measure => timeline.drain_ns > system.world.borrow().now,
        _ => false,
    };
    if !loads || pacer.quota == 0 || worker.finished {
        return Ok(());
    }
    let publishes = |number| board.rooms.as_ref().is_none_or(|rooms| rooms.publishes(number));
    let can_send = connections.iter().any(|one| publishes(one.number));
    law!(can_send || !pacer.counting, "it has messages, and nobody to send them");
    for (index, one) in connections.iter().enumerate() {
        let waits = pacer.pauses.iter().any(|timer| timer.0.1 == index as u32 && timer.0.2 == one.generation);
        let begins = worker.unstarted.contains(&index);
        if publishes(one.number)
            && one.state == State::Open
            && !one.leaving
            && one.under_way.is_empty()
            && !waits
            && !begins
        {
            return Err(format!("{index} is open in {:?}, and nothing is under way or due on it", timeline.phase));
        }
    }
    Ok(())
}

pub fn of_the_end(worker: &str, last: &Final, recorded: &Recorded, plan: &Plan, honest: bool) -> Result<(), String> {
    let (ledger, counters) = (&last.ledger, &last.counters);
    let of = |tag| recorded.get(&(tag, Part::Measured)).map_or(0, Values::count);
    if !matches!(plan.scenario, Scenario::Push { .. }) {
        law!(of(Tag::Service) == ledger.answered, "{worker}: {} service times of {ledger:?}", of(Tag::Service));
        law!(ledger.answered + ledger.failed <= ledger.sent, "{worker}: {ledger:?}");
        let named: u64 = last.errors.values().sum();
        law!(named >= ledger.failed, "{worker}: {ledger:?}, but {named} named");
    }
    if let Some(session) = plan.session() {
        let steps: u64 = (session.setup..session.steps.len()).map(|number| of(Tag::step(number))).sum();
        law!(steps == ledger.answered, "{worker}: {steps} times of steps of {ledger:?}");
    }
    law!(no_wrap(counters), "{worker}: {counters:?}");
    if honest {
        law!(last.errors.is_empty(), "{worker}: errors of an honest server: {:?}", last.errors);
        law!(counters.failed == 0, "{worker}: {counters:?}");
        let reconnects = plan.transport == Transport::Http;
        law!(reconnects || counters.reconnects == 0, "{worker}: {} reconnects", counters.reconnects);
    }
    Ok(())
}

/// What has fallen due was sent, or is told to be unsent, or waits. This worker began to act at `acted_ns`, and has now
/// been back from waiting.
pub fn of_what_is_due(worker: &Worker<Simulated>, dues: &Dues, acted_ns: u64) -> Result<(), String> {
    if worker.finished {
        return Ok(());
    }
    let world = worker.system.world.borrow();
    let until = |list: &[u64], t_ns: u64| list.partition_point(|&due_ns| due_ns <= t_ns) as u64;
    let between = |list: &[u64]| until(list, acted_ns)..=until(list, world.now);
    let (Record { counters, ledger, .. }, late) = (&worker.accounts.record, worker.pacer.backlog.len());
    let waits = worker.pacer.backlog.iter().filter(|due_ns| dues.measured.binary_search(due_ns).is_ok()).count() as u64;
    let (told, right) = (ledger.sent + ledger.unsent + waits, between(&dues.measured));
    law!(right.contains(&told), "{right:?} are due, {waits} wait: {ledger:?}");
    let (told, right) = (counters.sent + late as u64, between(&dues.all));
    law!(worker.timeline.slices.is_some() || right.contains(&told), "{right:?} are due, {late} wait: {counters:?}");
    let next_ns = dues.all.get(until(&dues.all, acted_ns) as usize).copied().unwrap_or(u64::MAX);
    let until_ns = world.until_ns[worker.system.worker];
    law!(until_ns <= next_ns, "it waits until {until_ns}, and {next_ns} is due");
    Ok(())
}

/// What was due in the window was sent in it or is told to be unsent.
pub fn of_the_schedule(index: usize, last: &Final, dues: &Dues) -> Result<(), String> {
    let (ledger, count) = (&last.ledger, dues.measured.len() as u64);
    let gave_up = last.lost || last.window.is_none();
    law!(gave_up || ledger.sent + ledger.unsent == count, "worker {index}: {count} were due, {ledger:?}");
    Ok(())
}

/// Which messages of rooms belong to the measurement, once its window is known.
fn measured(plan: &Plan, from_ns: u64, (measure_ns, drain_ns): (u64, u64)) -> impl Fn(&Said) -> bool {
    let slices = plan.slices.as_ref().map(|slices| {
        let (warmup_s, all_s) = ((measure_ns - from_ns) as f64 / 1e9, (drain_ns - from_ns) as f64 / 1e9);
        Slices::new(slices, from_ns, warmup_s, all_s - warmup_s)
    });
    move |said| match &slices {
        Some(slices) => slices.measures(said.t_ns),
        None => (measure_ns..drain_ns).contains(&said.t_ns),
    }
}

/// A worker takes its last step: the drain does not end before its limit while copies are missing, and does once all have
/// come. The machine may have stopped a worker for so long.
pub fn of_the_drain(
    plan: &Plan,
    world: &World,
    from_ns: u64,
    window: (u64, u64),
    longest_stop_s: f64,
) -> Result<(), String> {
    let World { now, truth, times, .. } = world;
    let is_known = match plan.scenario {
        // Those that are not read count here too, and those of another shard do not.
        Scenario::Push { slow_readers } => slow_readers == 0.0 && plan.stages.is_none() && plan.shard.1 == 1,
        _ => plan.session().is_some_and(|session| session.rooms.is_some()),
    };
    if !is_known {
        return Ok(());
    }
    let end_ns = window.1 + (plan.drain_s * 1e9) as u64;
    let (copies, missing) = match plan.scenario {
        Scenario::Push { .. } => times.copies_read(),
        _ => {
            let is_measured = measured(plan, from_ns, window);
            let (expected, received) = truth
                .said
                .iter()
                .filter(|said| is_measured(said))
                .fold((0, 0), |sum, said| (sum.0 + said.expected, sum.1 + said.received));
            (received, expected - received)
        }
    };
    law!(
        *now >= end_ns || missing == 0,
        "the drain ended {} ns early, and {missing} copies were missing",
        end_ns - now
    );
    let done_ns = times.last_read_ns().max(window.1) + BEYOND_NS + (2.0 * longest_stop_s * 1e9) as u64 + SECOND_NS;
    let is_done = missing == 0 && done_ns < end_ns;
    law!(*now < end_ns || !is_done, "all {copies} copies had come, and the drain went on to its limit");
    Ok(())
}

/// What a process tells of the copies in rooms is the truth, once everything has been read.
pub fn of_rooms(
    plan: &Plan,
    truth: &Truth,
    times: &Times,
    finals: &[Option<Final>],
    recorded: &[Recorded],
    from_ns: u64,
    window: Option<(u64, u64)>,
) -> Result<(), String> {
    let Some(window) = window else { return Ok(()) };
    let is_measured = measured(plan, from_ns, window);
    let said = || truth.said.iter().filter(|said| is_measured(said));
    let is_complete = |said: &Said| said.expected > 0 && said.received == said.expected;
    let complete = said().filter(|said| is_complete(said)).count() as u64;
    let total = |of: fn(&Pushes) -> u64| finals.iter().flatten().map(|last| of(&last.pushes)).sum::<u64>();
    let last =
        recorded.iter().filter_map(|recorded| recorded.get(&(Tag::PushLast, Part::Measured))).map(Values::count).sum();
    for (what, told, right) in [
        ("expected", total(|pushes| pushes.expected), said().map(|said| said.expected).sum()),
        ("received", total(|pushes| pushes.received), said().map(|said| said.received).sum()),
        ("out of order", total(|pushes| pushes.out_of_order), truth.out_of_order),
        ("misplaced", total(|pushes| pushes.misplaced), truth.misplaced),
        ("last", last, complete),
        ("let go", total(|pushes| pushes.last_unknown), 0),
    ] {
        law!(told == right, "{what}: {told} copies are told, {right} are true");
    }
    let (is_measured, is_complete) =
        (|at: usize| is_measured(&truth.said[at]), |at: usize| is_complete(&truth.said[at]));
    times::of_copies(plan, times, recorded, from_ns, is_measured, is_complete)
}

/// A worker does not look at the same bytes again and again: twice for the length of a record, and once for itself.
pub fn of_work(looked_at: u64, said: u64) -> Result<(), String> {
    law!(looked_at <= 4 * said, "records were looked for in {looked_at} bytes, and servers said {said}");
    Ok(())
}

fn no_wrap(counters: &Counters) -> bool {
    let all = [counters.open, counters.established, counters.sent, counters.answered, counters.failed];
    all.iter().all(|&one| one < 1 << 40)
}
