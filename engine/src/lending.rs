//! The histograms of an interval. A worker lends them with its tick to the thread that writes the record. That thread
//! clears them and gives them back when it drops them. So a worker soon makes no new ones, and it never waits for them.

use crate::counts::Counts;
use crate::tags::{Part, TAGS, Tag};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// So many ticks of a worker are lent at once. Then it leaves out the next one.
pub const MOST_LENT: usize = 16;
/// Ticks that are never left out: at the ends of phases, and the last.
pub const MOST_ENDS: usize = 5;
/// A worker records in one set while others are merged. Only the end of a phase or of a slice makes a further one.
const MOST_SETS: usize = 3;

pub type Key = (Tag, Part);

/// Histograms by part and tag. Each is made with its first duration, and kept.
#[derive(Default)]
pub struct Set {
    all: [[Option<Counts>; TAGS]; 2],
    has_any: bool,
}

impl Set {
    #[inline]
    pub fn of(&mut self, (tag, part): Key) -> &mut Counts {
        self.has_any = true;
        self.all[part as usize][tag as usize].get_or_insert_with(Counts::new)
    }

    /// Every histogram that has a duration.
    pub fn each(&self, mut found: impl FnMut(Key, &Counts)) {
        for part in [Part::Measured, Part::Warmup] {
            for (&tag, counts) in Tag::ALL.iter().zip(&self.all[part as usize]) {
                if let Some(counts) = counts.as_ref().filter(|counts| !counts.is_empty()) {
                    found((tag, part), counts);
                }
            }
        }
    }

    pub fn clear(&mut self) {
        self.all.iter_mut().flatten().flatten().for_each(Counts::clear);
        self.has_any = false;
    }
}

/// What a worker recorded in an interval.
pub struct Lent {
    set: Option<Box<Set>>,
    /// The same as a list, of an interval that is kept for long.
    listed: Vec<(Key, u32, u64)>,
    home: Option<SyncSender<Option<Box<Set>>>>,
}

impl Lent {
    /// Every bucket of a histogram that has a count.
    pub fn each(&self, mut found: impl FnMut(Key, usize, u64)) {
        if let Some(set) = &self.set {
            set.each(|key, counts| counts.each(|bucket, count| found(key, bucket, count)));
        }
        self.listed.iter().for_each(|&(key, bucket, count)| found(key, bucket as usize, count));
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        if let Some(set) = &mut self.set {
            set.clear();
        }
        // A worker that has ended needs it no more.
        let _ = home.try_send(self.set.take());
    }
}

/// The sets of a worker.
pub struct Sets {
    pub current: Box<Set>,
    spare: Vec<Box<Set>>,
    home: SyncSender<Option<Box<Set>>>,
    returned: Receiver<Option<Box<Set>>>,
    lent: usize,
    made: usize,
}

impl Default for Sets {
    fn default() -> Sets {
        let (home, returned) = sync_channel(MOST_LENT + MOST_ENDS);
        Sets { current: Box::default(), spare: Vec::with_capacity(MOST_SETS), home, returned, lent: 0, made: 1 }
    }
}

impl Sets {
    fn take_back(&mut self) {
        for set in self.returned.try_iter() {
            self.lent -= 1;
            self.spare.extend(set);
        }
    }

    /// Whether the other thread keeps up, so that a tick can be lent too.
    pub fn can_lend(&mut self) -> bool {
        self.take_back();
        let goes_on = !self.current.has_any || !self.spare.is_empty() || self.made < MOST_SETS;
        goes_on && self.lent < MOST_LENT
    }

    pub fn lend(&mut self) -> Lent {
        self.take_back();
        self.lent += 1;
        let set = self.current.has_any.then(|| {
            let next = self.spare.pop().unwrap_or_else(|| {
                self.made += 1;
                Box::default()
            });
            std::mem::replace(&mut self.current, next)
        });
        Lent { set, listed: Vec::new(), home: Some(self.home.clone()) }
    }

    /// An interval that is kept needs its histograms no longer than until there is time to list what they have.
    pub fn list(&mut self, lent: &mut Lent) {
        let Some(mut set) = lent.set.take() else { return };
        set.each(|key, counts| counts.each(|bucket, count| lent.listed.push((key, bucket as u32, count))));
        set.clear();
        self.spare.push(set);
        lent.home = None;
        self.lent -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::MADE;

    const KEYS: [Key; 3] =
        [(Tag::Service, Part::Measured), (Tag::Response, Part::Measured), (Tag::SendLag, Part::Warmup)];

    fn record(sets: &mut Sets, ns: u64) {
        KEYS.iter().for_each(|&key| sets.current.of(key).record(ns, 1));
    }

    fn total(lent: &Lent) -> u64 {
        let mut total = 0;
        lent.each(|_, _, count| total += count);
        total
    }

    #[test]
    fn a_worker_makes_two_histograms_for_each_tag_however_long_it_runs() {
        let (before, mut sets) = (MADE.get(), Sets::default());
        for tick in 1..1000 {
            record(&mut sets, tick);
            assert!(sets.can_lend());
            assert_eq!(total(&sets.lend()), 3, "nothing of the tick before");
        }
        assert_eq!(MADE.get() - before, 2 * KEYS.len());
    }

    #[test]
    fn a_worker_whose_ticks_are_not_merged_goes_on_and_leaves_them_out() {
        let (before, mut sets) = (MADE.get(), Sets::default());
        let (mut lent, mut left_out) = (Vec::new(), 0);
        for tick in 1..=100 {
            record(&mut sets, tick);
            if sets.can_lend() {
                lent.push(sets.lend());
            } else {
                left_out += 1;
            }
        }
        assert_eq!((lent.len(), left_out), (MOST_SETS - 1, 101 - MOST_SETS));
        assert_eq!(MADE.get() - before, MOST_SETS * KEYS.len());
        lent.clear();
        assert!(sets.can_lend());
        assert_eq!(total(&sets.lend()), 3 * left_out as u64, "the next tick has what they would have had");
    }

    #[test]
    fn ticks_without_durations_are_bounded_too() {
        let mut sets = Sets::default();
        let mut lent = Vec::new();
        while sets.can_lend() {
            lent.push(sets.lend());
        }
        assert_eq!(lent.len(), MOST_LENT);
        lent.pop();
        assert!(sets.can_lend());
    }

    #[test]
    fn an_interval_that_is_kept_holds_no_histograms() {
        let (before, mut sets) = (MADE.get(), Sets::default());
        let kept: Vec<Lent> = (1..=50)
            .map(|tick| {
                record(&mut sets, tick);
                let mut lent = sets.lend();
                sets.list(&mut lent);
                lent
            })
            .collect();
        assert_eq!(MADE.get() - before, 2 * KEYS.len());
        assert!(kept.iter().all(|lent| total(lent) == 3));
        assert!(sets.can_lend(), "they are not under way");
    }
}
