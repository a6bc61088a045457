//! A worker on a simulated machine. Plans, servers and the kernel's behaviour are drawn from a seed, and the invariants
//! in `laws` are checked after every step. `make simulate` tries new seeds for the requested time and names a seed that
//! fails. `SEED=… make simulate` repeats that run step by step.

mod alone;
mod copies;
mod dues;
mod frames;
mod hub;
mod lane;
mod laws;
mod machine;
mod peer;
mod plans;
mod server;
mod speech;
mod times;
mod world;
mod wrapping;

use crate::clock::SECOND_NS;
use crate::connection::Counted;
use crate::control::{Final, Phase, Report, Tick};
use crate::failure::Kind;
use crate::plan::{Loop, Plan, Scenario, Until};
use crate::record::Ledger;
use crate::run::{AHEAD_NS, begin_from, measure_from};
use crate::session::records::LOOKED_AT;
use crate::worker::{Common, Worker};
use dues::Dues;
use fastrand::Rng;
use machine::Simulated;
use peer::Conduct;
use plans::{one, plan_of};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use world::World;

/// Steps of one worker in a second of simulated time; more means an endless loop.
const MOST_STEPS_PER_S: u64 = 400_000;

/// The result of a seed.
#[derive(Default)]
struct Run {
    /// Situations that came about.
    reached: BTreeSet<String>,
    steps: u64,
    answered: u64,
    failed: u64,
    hostile: bool,
}

/// Whether its servers are hostile, its plan, and the remaining random source.
fn plan_of_seed(seed: u64) -> (bool, Arc<Plan>, Rng) {
    let mut random = Rng::with_seed(seed);
    let hostile = random.bool();
    let plan = Arc::new(plan_of(&mut random, hostile));
    (hostile, plan, random)
}

fn simulate(seed: u64) -> Result<Run, String> {
    let (hostile, plan, mut random) = plan_of_seed(seed);
    let documents = (random.u32(..3) == 0).then(|| random.u32(1..20));
    let conduct = Conduct::of(&plan, if hostile { random.u32(1..4) } else { 0 }, documents, &mut random);
    let in_rooms = conduct.hub.is_some();
    // Whatever a hub does with copies, it answers every message.
    let honest = !hostile || in_rooms;
    let longest_stop_s = one(&mut random, &[0.7, 0.7, 3.0]);
    let world = Rc::new(RefCell::new(World::new(random.u64(..), conduct, longest_stop_s, &plan)));
    let (common, reports) = Common::new(&plan).expect("it verifies nothing");
    let control = common.control.clone();
    let mut workers: Vec<Option<Worker<Simulated>>> = (0..plan.threads)
        .map(|index| Worker::new(index, common.clone(), Simulated::new(world.clone(), index)).ok())
        .collect();
    drop(common);
    let origin_ns = world.borrow().now;
    let deadline_ns = origin_ns + (plan.limits.deadline_s * 1e9) as u64;
    workers.iter_mut().flatten().for_each(|worker| worker.begin(origin_ns));

    let mut run = Run { hostile, ..Run::default() };
    let mut recorded = vec![times::Recorded::new(); plan.threads];
    let mut finals: Vec<Option<Final>> = (0..plan.threads).map(|_| None).collect();
    let (mut settled, mut counted) = (0, vec![None; plan.threads]);
    let (mut schedule_ns, mut unexpected_replies) = (0, 0);
    LOOKED_AT.set(0);
    let mut dues: Vec<Option<Dues>> = (0..plan.threads).map(|_| None).collect();
    let mut acted: Vec<Option<(u64, Phase)>> = vec![None; plan.threads];
    while workers.iter().any(Option::is_some) {
        let at = random.usize(..workers.len());
        if let Some(worker) = &mut workers[at] {
            // Other workers run between the two halves of a step, as they do while a worker is off its CPU.
            let Some((now, phase)) = acted[at].take() else {
                world.borrow_mut().wakes(at);
                let now = worker.act();
                acted[at] = Some((now, worker.timeline.phase));
                continue;
            };
            worker.wait(now);
            run.steps += 1;
            if !worker.asked.is_empty() && worker.accounts.opening >= worker.at_once() {
                world.borrow_mut().reach("a connection waits until it may open");
            }
            let lawful = laws::of_a_step(worker).and_then(|()| match &dues[at] {
                Some(dues) if phase > Phase::Connect => laws::of_what_is_due(worker, dues, now),
                _ => Ok(()),
            });
            lawful.map_err(|broken| format!("worker {at}, step {}: {broken}", run.steps))?;
            if !worker.goes_on() {
                let is_open = |index: usize| worker.connections[index].state.counted() != Counted::Opening;
                world.borrow_mut().finishes(at, is_open);
                if let Some(window) = control.begins_ns(Phase::Measure).zip(control.begins_ns(Phase::Drain))
                    && worker.timeline.phase == Phase::Drain
                    && honest
                    && !control.stopped()
                {
                    laws::of_the_drain(&plan, &world.borrow(), schedule_ns, window, longest_stop_s)
                        .map_err(|broken| format!("worker {at}: {broken}"))?;
                }
                workers[at].take().expect("it was there").finish();
            }
        }
        let now = world.borrow().now;
        if now > deadline_ns {
            control.stop();
        }
        let seconds = (now - origin_ns) / SECOND_NS + 1;
        if run.steps > MOST_STEPS_PER_S * seconds * plan.threads as u64 {
            return Err(format!("{} steps in {seconds} s: it runs in circles", run.steps));
        }
        while let Ok((index, report)) = reports.try_recv() {
            match report {
                Report::Settled { .. } => {
                    settled += 1;
                    if settled == plan.threads {
                        schedule_ns = now + AHEAD_NS;
                        begin_from(&plan, &control, schedule_ns);
                        dues = (0..plan.threads).map(|index| Dues::new(&plan, index, schedule_ns)).collect();
                    }
                }
                Report::Counted { phase, t_ns } => {
                    counted[index] = Some(t_ns);
                    if let Some(all) = counted.iter().copied().collect::<Option<Vec<u64>>>() {
                        counted.fill(None);
                        match phase {
                            Phase::Warmup => measure_from(&plan, &control, now + AHEAD_NS),
                            _ => control.begin_at(Phase::Drain, all.into_iter().max().unwrap_or(t_ns)),
                        }
                    }
                }
                Report::Tick(tick) => unexpected_replies += note(&mut recorded[index], &tick),
                Report::Deferred(ticks) => {
                    unexpected_replies += ticks.iter().map(|tick| note(&mut recorded[index], tick)).sum::<u64>()
                }
                Report::Finished(last) => finals[index] = Some(*last),
                Report::HostCannot(what) => return Err(format!("the host is blamed: {what}")),
            }
        }
        // When one worker ends by time, the others of the process end too.
        if workers.iter().any(Option::is_none) && now > deadline_ns + 10 * SECOND_NS {
            return Err("it does not end".into());
        }
    }
    let in_time = world.borrow().now <= deadline_ns;
    for (index, last) in finals.iter().enumerate() {
        let last = last.as_ref().ok_or("a worker ended without its report")?;
        laws::of_the_end(&format!("worker {index}"), last, &recorded[index], &plan, honest)?;
        if in_time {
            if let Some(dues) = &dues[index] {
                laws::of_the_schedule(index, last, dues)?;
            }
            if honest {
                let (times, dues) = (&world.borrow().times, dues[index].as_ref());
                times::of_messages(&plan, index, times, &recorded[index], last, dues, schedule_ns)?;
            }
        }
        run.answered += last.counters.answered;
        run.failed += last.counters.failed;
    }
    let world = world.borrow();
    laws::of_work(LOOKED_AT.get() as u64, world.said)?;
    if in_time && unexpected_replies < world.left_over {
        return Err(format!("{} replies came too many, {unexpected_replies} are told", world.left_over));
    }
    if honest && in_time && world.left_unread > 0 {
        return Err(format!("{} messages had come when the drain ended, and were not read", world.left_unread));
    }
    run.reached = reached(&plan, &world, schedule_ns, longest_stop_s);
    if in_rooms && in_time {
        let window = control.begins_ns(Phase::Measure).zip(control.begins_ns(Phase::Drain));
        laws::of_rooms(&plan, &world.truth, &world.times, &finals, &recorded, schedule_ns, window)?;
    }
    if let (Until::Messages(asked), true) = (plan.measure, honest) {
        let asked: u64 = (0..plan.threads).map(|worker| plan.share_of_messages(asked, worker)).sum();
        let sent: u64 = finals.iter().flatten().map(|last| last.ledger.sent).sum();
        if sent != asked && in_time && plan.stages.is_none() {
            return Err(format!("{sent} messages were measured, {asked} asked for"));
        }
    }
    if let (Scenario::Push { .. }, false) = (&plan.scenario, hostile) {
        let total = |of: fn(&Final) -> u64| finals.iter().flatten().map(of).sum::<u64>();
        let (sent, answered) = (total(|last| last.counters.sent), total(|last| last.counters.answered));
        let measured = |of: fn(&Ledger) -> u64| finals.iter().flatten().map(|last| of(&last.ledger)).sum::<u64>();
        let ledger = (measured(|ledger| ledger.sent), measured(|ledger| ledger.answered));
        let differs = sent != answered || ledger.0 != ledger.1;
        if differs && in_time {
            return Err(format!("copies expected and received: {sent} and {answered}, measured: {ledger:?}"));
        }
        if in_time && plan.stages.is_none() {
            times::of_broadcasts(&world.times, &recorded)?;
        }
    }
    Ok(run)
}

/// What a tick recorded; returns how many replies were unexpected.
fn note(recorded: &mut times::Recorded, tick: &Tick) -> u64 {
    tick.interval.lent.each(|key, bucket, count| recorded.entry(key).or_default().add(bucket, count));
    tick.interval.errors.get(&Kind::UnexpectedReply).map_or(0, |(count, _)| *count)
}

/// What came about, for the table of a long run: whether faults of such situations could be found.
fn reached(plan: &Plan, world: &World, schedule_ns: u64, longest_stop_s: f64) -> BTreeSet<String> {
    let mut reached = world.reached.clone();
    let rooms = world.conduct.hub.map(|hub| format!("{:?}", hub.deed));
    let exchanges = matches!(plan.pace, Loop::Closed { messages_per_connection: Some(_), .. });
    let facts = [
        (world.conduct.asks.is_some(), "a session"),
        (world.conduct.lines, "a session in a stream of lines"),
        (rooms.is_some(), "rooms"),
        (rooms.is_some() && plan.slices.is_some(), "rooms, in slices"),
        (plan.slices.is_some(), "slices"),
        (plan.slices.as_ref().is_some_and(|slices| slices.frozen), "slices of a frozen server"),
        (exchanges, "connections are exchanged"),
        (plan.tls.is_some(), "TLS"),
        (plan.deflate.is_some(), "compression"),
        (longest_stop_s > plan.limits.reply_s, "a worker may stand still for longer than reply_s"),
        (world.left_over > 0, "a reply comes between the Close frames"),
        (world.times.is_copied_later(plan, schedule_ns), "a copy comes in a later slice than its message"),
    ];
    reached.extend(facts.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what.to_string()));
    reached.extend(rooms.map(|deed| format!("rooms: {deed}")));
    reached
}

/// Runs the seed, or returns the invariant that it broke.
fn outcome(seed: u64) -> Result<Run, String> {
    match catch_unwind(AssertUnwindSafe(|| simulate(seed))) {
        Ok(found) => found,
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            Err(words.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or("a panic".into()))
        }
    }
}

/// The outcomes of these seeds, in order. Seeds have nothing in common, so that every CPU takes the next one.
fn outcomes(first: u64, seeds: u64) -> BTreeMap<u64, Result<Run, String>> {
    let next = AtomicU64::new(first);
    let take = || {
        let seeds = std::iter::from_fn(|| Some(next.fetch_add(1, SeqCst)).filter(|&seed| seed < first + seeds));
        seeds.map(|seed| (seed, outcome(seed))).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let taking: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        taking.into_iter().flat_map(|thread| thread.join().expect("a panic is an outcome")).collect()
    })
}

#[test]
fn every_law_holds_for_every_seed() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SEED") {
        println!("{:?}", plan_of_seed(seed).1);
        simulate(seed).unwrap();
        return;
    }
    let (first, seeds) = (number("FIRST_SEED").unwrap_or(0), number("SEEDS").unwrap_or(400));
    let (mut all, mut hostile, mut broken) = (Run::default(), 0, Vec::new());
    let mut reached = BTreeMap::<String, u64>::new();
    for (seed, outcome) in outcomes(first, seeds) {
        match outcome {
            Ok(run) => {
                hostile += u64::from(run.hostile);
                run.reached.into_iter().for_each(|what| *reached.entry(what).or_default() += 1);
                (all.steps, all.answered) = (all.steps + run.steps, all.answered + run.answered);
                all.failed += run.failed;
            }
            Err(what) => broken.push(format!("SEED={seed} make simulate: {what}")),
        }
    }
    println!(
        "{seeds} seeds from {first}, {hostile} with hostile servers: {} steps, {} messages answered, {} failed",
        all.steps, all.answered, all.failed
    );
    reached.iter().for_each(|(what, count)| println!("{count:8}  {what}"));
    assert!(broken.is_empty(), "{} seeds broke a law:\n{}", broken.len(), broken[..broken.len().min(20)].join("\n"));
}

#[test]
fn a_worker_that_is_late_measures_the_first_broadcast() {
    let is_one = |seed: &u64| {
        let (hostile, plan, _) = plan_of_seed(*seed);
        !hostile && plan.threads > 1 && matches!(plan.scenario, Scenario::Push { .. })
    };
    let broken: Vec<_> = (0..).filter(is_one).take(100).filter_map(|seed| Some((seed, outcome(seed).err()?))).collect();
    assert!(broken.is_empty(), "{broken:?}");
}
