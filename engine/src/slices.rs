//! The slices of a process that takes turns with others: when it loads its server, and when it is silent. No socket and
//! no clock: times come in, times go out.
//!
//! ```text
//! start        open                       close      end
//!   |-- lead ---|---------- window ---------|-- tail --|      rest: another process loads another server
//!   sends       sends, counts               waits for replies
//! ```

use crate::plan;

/// One slice, in nanoseconds of the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    pub start_ns: u64,
    pub open_ns: u64,
    pub close_ns: u64,
    pub end_ns: u64,
}

/// What begins at an edge of a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edge {
    Start,
    Open,
    Close,
}

const EDGES: [Edge; 3] = [Edge::Start, Edge::Open, Edge::Close];

#[derive(Clone)]
pub struct Slices {
    slices: Vec<Slice>,
    passed: usize,
    /// When the current slice started and when it ends: a message sent and answered in between has seen no rest.
    started_ns: u64,
    ended_ns: u64,
    /// When the measurement begins, after the warm-up.
    measured_ns: u64,
    /// When the last rest ends: with the measurement.
    until_ns: u64,
    frozen: bool,
}

impl Slices {
    /// The slices for a first phase that began at `origin_ns` and a measurement from `warmup_s` on, for `measure_s`.
    pub fn new(plan: &plan::Slices, origin_ns: u64, warmup_s: f64, measure_s: f64) -> Slices {
        let at = |seconds: f64| origin_ns + (seconds * 1e9).round() as u64;
        let slices = plan.windows.iter().map(|&(open_s, close_s)| Slice {
            start_ns: at(open_s - plan.lead_s),
            open_ns: at(open_s),
            close_ns: at(close_s),
            end_ns: at(close_s + plan.tail_s),
        });
        Slices {
            slices: slices.collect(),
            passed: 0,
            started_ns: 0,
            ended_ns: 0,
            measured_ns: at(warmup_s),
            until_ns: at(warmup_s + measure_s),
            frozen: plan.frozen,
        }
    }

    /// Whether this time is in a measured window, of whichever slice.
    #[cold]
    pub fn measures(&self, t_ns: u64) -> bool {
        let opened = self.slices.partition_point(|slice| slice.open_ns <= t_ns);
        let slice = opened.checked_sub(1).map(|last| self.slices[last]);
        slice.is_some_and(|slice| t_ns < slice.close_ns && slice.start_ns >= self.measured_ns)
    }

    /// When the next edge is; never after the last one.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        let Some(slice) = self.slices.get(self.passed / EDGES.len()) else { return u64::MAX };
        match EDGES[self.passed % EDGES.len()] {
            Edge::Start => slice.start_ns,
            Edge::Open => slice.open_ns,
            Edge::Close => slice.close_ns,
        }
    }

    /// Passes the next edge, which exists.
    pub fn pass(&mut self) -> (Edge, Slice) {
        let (edge, slice) = (EDGES[self.passed % EDGES.len()], self.slices[self.passed / EDGES.len()]);
        self.passed += 1;
        (self.started_ns, self.ended_ns) = (slice.start_ns, slice.end_ns);
        (edge, slice)
    }

    /// The time at which this process has been allowed to send for `own_ns`: its schedule pauses while it rests.
    pub fn at(&self, own_ns: u64) -> u64 {
        let mut left = own_ns;
        for slice in &self.slices {
            let length = slice.close_ns - slice.start_ns;
            if left < length {
                return slice.start_ns + left;
            }
            left -= length;
        }
        u64::MAX
    }

    /// Whether a message may be due at this time.
    #[cfg(test)]
    pub fn sends_at(&self, t_ns: u64) -> bool {
        self.slices.iter().any(|slice| (slice.start_ns..slice.close_ns).contains(&t_ns))
    }

    /// For how long the server was frozen between two times, of which the second is now.
    #[inline]
    pub fn frozen_between(&self, from_ns: u64, to_ns: u64) -> u64 {
        if from_ns >= self.started_ns && to_ns <= self.ended_ns { 0 } else { self.rests(from_ns, to_ns) }
    }

    /// The same between any two times.
    #[cold]
    pub fn rests(&self, from_ns: u64, to_ns: u64) -> u64 {
        if !self.frozen {
            return 0;
        }
        let ends = self.slices.iter().map(|slice| slice.end_ns);
        let resumes = self.slices.iter().skip(1).map(|slice| slice.start_ns).chain([self.until_ns]);
        let rests = ends.zip(resumes).skip_while(|&(_, resumed_ns)| resumed_ns <= from_ns);
        let overlaps = rests
            .take_while(|&(stopped_ns, _)| stopped_ns < to_ns)
            .map(|(stopped_ns, resumed_ns)| resumed_ns.min(to_ns) - stopped_ns.max(from_ns));
        overlaps.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(frozen: bool) -> Slices {
        let plan = plan::Slices { windows: vec![(0.2, 0.3), (0.7, 0.8)], lead_s: 0.1, tail_s: 0.05, frozen };
        Slices::new(&plan, 1_000_000_000, 0.4, 0.6)
    }

    #[test]
    fn edges_pass_in_order_of_time() {
        let mut slices = two(false);
        let mut seen = Vec::new();
        while slices.next_ns() < u64::MAX {
            let at_ms = slices.next_ns() / 1_000_000;
            seen.push((at_ms, slices.pass().0));
        }
        let expected = [(1100, Edge::Start), (1200, Edge::Open), (1300, Edge::Close)];
        assert_eq!(seen[..3], expected);
        let expected = [(1600, Edge::Start), (1700, Edge::Open), (1800, Edge::Close)];
        assert_eq!(seen[3..], expected);
    }

    #[test]
    fn a_schedule_pauses_between_slices() {
        let slices = two(false);
        let ms = |own_ms: u64| slices.at(own_ms * 1_000_000) / 1_000_000;
        assert_eq!([ms(0), ms(199), ms(200), ms(399)], [1100, 1299, 1600, 1799]);
        assert_eq!(slices.at(400_000_000), u64::MAX);
    }

    #[test]
    fn a_window_is_remembered_when_its_slice_is_over() {
        let mut slices = two(false);
        let measures =
            |slices: &Slices| [1250, 1599, 1699, 1700, 1799, 1800, 2500].map(|ms| slices.measures(ms * 1_000_000));
        let right = [false, false, false, true, true, false, false];
        assert_eq!(measures(&slices), right, "the first is part of the warm-up");
        while slices.next_ns() < u64::MAX {
            slices.pass();
        }
        assert_eq!(measures(&slices), right);
    }

    #[test]
    fn only_a_frozen_server_has_time_off() {
        let between = |frozen, from_ms: u64, to_ms: u64| {
            let mut slices = two(frozen);
            while slices.next_ns() <= to_ms * 1_000_000 {
                slices.pass();
            }
            slices.frozen_between(from_ms * 1_000_000, to_ms * 1_000_000) / 1_000_000
        };
        assert_eq!(between(false, 1290, 1610), 0);
        assert_eq!(between(true, 1290, 1310), 0);
        assert_eq!(between(true, 1290, 1610), 250);
        assert_eq!(between(true, 1340, 1650), 250);
        assert_eq!(between(true, 1610, 1700), 0);
        // What came before the rest is read in it.
        assert_eq!(between(true, 1290, 1400), 50);
        // The server goes on when the measurement ends.
        assert_eq!(between(true, 1790, 2010), 150);
    }
}
