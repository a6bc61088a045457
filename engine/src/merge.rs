//! Merges the ticks of all workers, in order of time. What a worker lends is added at once, so that it comes back soon,
//! and what is not yet complete is bounded, however far one worker is behind the others.

use crate::clock::Usage;
use crate::control::{Final, Moment, Phase, Tick};
use crate::lending::Set;
use crate::record::{self, Counters, Errors, Exchange};
use std::collections::BTreeMap;

/// Incomplete ticks. When there are more, the first is merged into the one behind it: it is left out.
const MOST_OPEN: usize = 16;

pub type State = (Counters, Usage);

/// What the workers told of a moment.
#[derive(Default)]
pub struct Merged {
    /// No worker leaves it out.
    is_fixed: bool,
    phase: Option<Phase>,
    pub begins: Option<Phase>,
    pub t_ns: u64,
    /// When the last worker took it.
    pub taken_ns: u64,
    states: Vec<Option<State>>,
    pub set: Box<Set>,
    pub errors: Errors,
    pub exchanges: Vec<Exchange>,
}

impl Merged {
    /// The states of the workers here, and the last ones of those that have ended.
    pub fn states(&self) -> impl Iterator<Item = State> {
        self.states.iter().flatten().copied()
    }

    fn add(&mut self, set: impl FnOnce(&mut Set), errors: Errors, exchanges: Vec<Exchange>) {
        set(&mut self.set);
        self.exchanges.extend(exchanges);
        for (kind, (count, example)) in errors {
            record::count(&mut self.errors, kind, count, || example);
        }
    }
}

pub struct Merge {
    open: BTreeMap<Moment, Merged>,
    /// By worker: the time of its last tick that may be left out, and its last state when it has ended.
    ticked_ns: Vec<u64>,
    ended: Vec<Option<State>>,
    spare: Vec<Box<Set>>,
}

impl Merge {
    pub fn new(workers: usize) -> Merge {
        Merge { open: BTreeMap::new(), ticked_ns: vec![0; workers], ended: vec![None; workers], spare: Vec::new() }
    }

    fn at(&mut self, moment: Moment) -> &mut Merged {
        let (workers, spare) = (self.ended.len(), &mut self.spare);
        self.open.entry(moment).or_insert_with(|| Merged {
            states: vec![None; workers],
            set: spare.pop().unwrap_or_default(),
            ..Merged::default()
        })
    }

    /// A phase ends at this time, which has passed: no later tick is written before every worker has told of it.
    pub fn expect(&mut self, t_ns: u64) {
        self.at(Moment::At(t_ns)).is_fixed = true;
    }

    pub fn add(&mut self, worker: usize, tick: Tick) {
        let Tick { moment, t_ns, is_fixed, phase, begins, taken_ns, counters, usage, interval } = tick;
        if !is_fixed {
            self.ticked_ns[worker] = t_ns;
        }
        let merged = self.at(moment);
        merged.is_fixed |= is_fixed;
        merged.phase = merged.phase.or(Some(phase));
        merged.begins = merged.begins.or(begins);
        merged.t_ns = merged.t_ns.max(t_ns);
        merged.taken_ns = merged.taken_ns.max(taken_ns);
        merged.states[worker] = Some((counters, usage));
        let lent = interval.lent;
        let add = |set: &mut Set| lent.each(|key, bucket, count| set.of(key).add(bucket, count));
        merged.add(add, interval.errors, interval.exchanges);
        if self.open.len() > MOST_OPEN {
            let first = self.open.iter().find(|(_, merged)| !merged.is_fixed).map(|(&moment, _)| moment);
            if let Some(first) = first {
                self.leave_out(first);
            }
        }
    }

    pub fn ended(&mut self, worker: usize, last: &Final) {
        self.ended[worker] = Some((last.counters, last.usage));
    }

    /// The next tick of which every worker has told that has not ended.
    pub fn next(&mut self) -> Option<(Phase, Merged)> {
        loop {
            let (&moment, merged) = self.open.first_key_value()?;
            let absent = |worker: &usize| merged.states[*worker].is_none() && self.ended[*worker].is_none();
            let mut absents = (0..self.ended.len()).filter(absent).peekable();
            if absents.peek().is_none() {
                let mut merged = self.open.remove(&moment)?;
                let states = merged.states.iter_mut().zip(&self.ended);
                states.for_each(|(state, ended)| *state = state.or(*ended));
                match merged.phase {
                    Some(phase) => return Some((phase, merged)),
                    // All have ended without it.
                    None => continue,
                }
            }
            // A worker that has told of a later tick left this one out.
            let passed = |worker: usize| matches!(moment, Moment::At(t_ns) if self.ticked_ns[worker] > t_ns);
            if merged.is_fixed || !absents.all(passed) || !self.leave_out(moment) {
                return None;
            }
        }
    }

    /// Merges a tick into the next one. Returns whether there is one.
    fn leave_out(&mut self, moment: Moment) -> bool {
        let Some(merged) = self.open.remove(&moment) else { return false };
        let Some((_, next)) = self.open.range_mut(moment..).next() else {
            self.open.insert(moment, merged);
            return false;
        };
        let add = |set: &mut Set| {
            merged.set.each(|key, counts| counts.each(|bucket, count| set.of(key).add(bucket, count)));
        };
        next.add(add, merged.errors, merged.exchanges);
        self.give_back(merged.set);
        true
    }

    /// A set whose counts are no longer needed.
    pub fn give_back(&mut self, mut set: Box<Set>) {
        if self.spare.len() < MOST_OPEN {
            set.clear();
            self.spare.push(set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::tags::{Part, Tag};

    /// A worker that has answered one message since its last tick, with this time.
    fn tick(record: &mut Record, t_ns: u64, begins: Option<Phase>) -> Tick {
        record.counters.answered += 1;
        record.duration(Tag::Service, Part::Measured, 0, t_ns);
        Tick {
            moment: Moment::At(t_ns),
            t_ns,
            is_fixed: begins.is_some(),
            phase: Phase::Measure,
            begins,
            taken_ns: t_ns,
            counters: record.counters,
            usage: Usage::default(),
            interval: record.hand_over(),
        }
    }

    /// The time of the next tick, what was answered until then, and the durations since the one before.
    fn next(merge: &mut Merge) -> Option<(u64, u64, u64)> {
        let (_, merged) = merge.next()?;
        let answered = merged.states().map(|(counters, _)| counters.answered).sum();
        let mut durations = 0;
        merged.set.each(|_, counts| counts.each(|_, count| durations += count));
        let t_ns = merged.t_ns;
        merge.give_back(merged.set);
        Some((t_ns, answered, durations))
    }

    fn last(record: &Record) -> Final {
        Final { counters: record.counters, ..Final::default() }
    }

    #[test]
    fn a_tick_waits_for_every_worker_that_has_not_ended() {
        let (mut merge, mut one, mut other) = (Merge::new(2), Record::default(), Record::default());
        merge.add(0, tick(&mut one, 10, None));
        assert_eq!(next(&mut merge), None);
        merge.add(1, tick(&mut other, 10, None));
        assert_eq!(next(&mut merge), Some((10, 2, 2)));
        merge.ended(1, &last(&other));
        merge.add(0, tick(&mut one, 20, None));
        assert_eq!(next(&mut merge), Some((20, 3, 1)), "with the last state of the other");
        assert_eq!(next(&mut merge), None);
    }

    #[test]
    fn a_tick_that_a_worker_left_out_is_part_of_the_next() {
        let (mut merge, mut one, mut other) = (Merge::new(2), Record::default(), Record::default());
        merge.add(0, tick(&mut one, 10, None));
        merge.add(0, tick(&mut one, 20, None));
        assert_eq!(next(&mut merge), None, "the other may still tell of it");
        merge.add(1, tick(&mut other, 20, None));
        assert_eq!(next(&mut merge), Some((20, 3, 3)));
        assert_eq!(next(&mut merge), None);
    }

    #[test]
    fn the_end_of_a_phase_is_never_left_out() {
        let (mut merge, mut one, mut other) = (Merge::new(2), Record::default(), Record::default());
        // It is known afterwards, and one worker has told of a later tick already.
        merge.add(0, tick(&mut one, 20, None));
        merge.expect(15);
        merge.add(0, tick(&mut one, 15, Some(Phase::Drain)));
        merge.add(1, tick(&mut other, 15, Some(Phase::Drain)));
        merge.add(1, tick(&mut other, 20, None));
        assert_eq!(next(&mut merge), Some((15, 3, 2)));
        assert_eq!(next(&mut merge), Some((20, 3, 2)));
    }

    #[test]
    fn what_is_incomplete_is_bounded_and_nothing_of_it_is_lost() {
        let (mut merge, mut one, mut other) = (Merge::new(2), Record::default(), Record::default());
        for t_ns in 1..=1000 {
            let begins = (t_ns == 500).then_some(Phase::Drain);
            merge.add(0, tick(&mut one, t_ns, begins));
            assert_eq!(next(&mut merge), None);
            assert!(merge.open.len() <= MOST_OPEN);
        }
        // The other one was behind all the time.
        let mut told = Vec::new();
        for t_ns in 1..=1000 {
            let begins = (t_ns == 500).then_some(Phase::Drain);
            merge.add(1, tick(&mut other, t_ns, begins));
            told.extend(std::iter::from_fn(|| next(&mut merge)));
        }
        assert_eq!(told.iter().map(|(_, _, durations)| durations).sum::<u64>(), 2000);
        assert_eq!(told.len(), MOST_OPEN);
        assert_eq!((told[0], told.last()), ((500, 1000, 1000), Some(&(1000, 2000, 2))));
    }
}
