//! The fast lane of `receiving` does what the other path does: with either of them a worker sends the same bytes and
//! tells the same, whatever its servers and the kernel do.

use super::machine::Simulated;
use super::peer::Conduct;
use super::plans::{drawn_plan, one};
use super::world::World;
use crate::control::{Phase, Report};
use crate::plan::Plan;
use crate::run::{AHEAD_NS, begin_from};
use crate::worker::{Common, Worker};
use fastrand::Rng;
use serde_json::json;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A plain closed loop with one worker, otherwise drawn.
fn plain_plan(random: &mut Rng, hostile: bool) -> Plan {
    let bytes = one(random, &[16, 16, 17, 60, 125, 126, 1000, 65_536]);
    let mut plan = drawn_plan(random, hostile);
    let depth = one(random, &[1, 2, 5, 16]);
    for (key, value) in [
        ("scenario", json!({"kind": "echo", "opcode": "text", "bytes": bytes, "content": null})),
        ("transport", json!("websocket")),
        ("loop", json!({"kind": "closed", "depth": depth, "think": null, "messages_per_connection": null})),
        ("threads", json!(1)),
        ("warmup", if random.bool() { json!({"seconds": 0.1}) } else { json!(null) }),
        ("measure", if random.bool() { json!({"seconds": 0.3}) } else { json!({"messages": random.u64(1..300)}) }),
        ("drain_s", json!(0.3)),
        ("deflate", json!(null)),
        ("fragment_bytes", json!(null)),
        ("slices", json!(null)),
        ("stages", json!(null)),
        ("shard", json!([0, 1])),
    ] {
        plan[key] = value;
    }
    serde_json::from_value(plan).expect("every key is there")
}

/// What a worker tells in the run of a seed, what it sends and receives, and the number of messages that were answered.
fn told(seed: u64, is_plain: bool) -> (Vec<String>, u64) {
    let mut random = Rng::with_seed(seed);
    let hostile = random.bool();
    let plan = Arc::new(plain_plan(&mut random, hostile));
    plan.check().expect("it is a valid plan");
    let conduct = Conduct::of(&plan, if hostile { random.u32(1..4) } else { 0 }, None, &mut random);
    let world = Rc::new(RefCell::new(World::new(random.u64(..), conduct, 0.7, &plan)));
    let (common, reports) = Common::new(&plan).expect("it verifies nothing");
    let control = common.control.clone();
    let mut worker = Worker::new(0, common, Simulated::new(world.clone(), 0)).expect("a worker");
    assert!(worker.is_plain);
    worker.is_plain = is_plain;
    let origin_ns = world.borrow().now;
    worker.begin(origin_ns);
    let (mut told, mut answered) = (Vec::new(), 0);
    let mut worker = Some(worker);
    while let Some(running) = &mut worker {
        running.step();
        if world.borrow().now > origin_ns + 20_000_000_000 {
            control.stop();
        }
        if !running.goes_on() {
            worker.take().expect("it ran").finish();
        }
        for (_, report) in reports.try_iter() {
            match report {
                Report::Settled { .. } => begin_from(&plan, &control, world.borrow().now + AHEAD_NS),
                Report::Counted { phase, t_ns } => {
                    told.push(format!("{phase:?} {t_ns}"));
                    control.begin_at(Phase::Drain, t_ns);
                }
                Report::Tick(tick) => {
                    told.push(format!("{} {:?} {:?}", tick.t_ns, tick.counters, tick.interval.errors));
                    tick.interval.lent.each(|key, bucket, count| told.push(format!("{key:?} {bucket} {count}")));
                }
                Report::Deferred(_) => unreachable!("there are no slices"),
                Report::Finished(last) => {
                    answered = last.counters.answered;
                    told.push(format!("{:?} {:?} {}", last.ledger, last.errors, last.lost));
                }
                Report::HostCannot(what) => panic!("the host is blamed: {what}"),
            }
        }
    }
    told.push(format!("{} bytes taken, {} given", world.borrow().taken, world.borrow().given));
    (told, answered)
}

#[test]
fn the_fast_lane_tells_what_the_other_path_tells() {
    let mut answered = 0;
    for seed in 0..150 {
        let (lane, count) = told(seed, true);
        let (other, _) = told(seed, false);
        assert_eq!(lane, other, "seed {seed}");
        answered += count;
    }
    assert!(answered > 10_000, "{answered} messages were answered");
}
