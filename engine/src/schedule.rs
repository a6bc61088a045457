//! Due times, as nanoseconds after a start: pure functions of the plan and a seed. This module has
//! no access to replies, so replies cannot delay it.

use crate::plan::{Arrivals, Segment, Stage, Think};
use crate::siphash::SipHash;

/// The seed of one of a plan's random streams. Generators started from the seed plus a number would
/// give correlated streams; a hash of both does not.
pub fn stream(seed: u64, number: usize) -> u64 {
    let [stream] = SipHash::new([seed, 0x77_73_62_65_6e_63_68]).hash([[number as u64]]);
    stream
}

/// The due times of an open loop, one after the other.
///
/// The plan's rate is first turned into a cumulative count of messages, λ(t). Message k is due when
/// λ reaches its position: k for constant arrivals, the sum of k unit exponentials for Poisson
/// arrivals (Lewis and Shedler's time transform, so ramps of both kinds are exact). Workers share
/// one schedule by taking every n-th position, or n times the gap.
pub struct Due {
    rate: Vec<Segment>,
    poisson: Option<fastrand::Rng>,
    position: f64,
    step: f64,
    /// The segment of the last position, with the messages and seconds before it.
    segment: usize,
    messages_before: f64,
    seconds_before: f64,
}

impl Due {
    /// `share` is (i, n): this is one of n schedules that together produce the plan's rate.
    pub fn new(rate: &[Segment], arrivals: Arrivals, share: (usize, usize), seed: u64) -> Due {
        let (index, of) = (share.0 as f64, share.1 as f64);
        Due {
            rate: rate.to_vec(),
            poisson: (arrivals == Arrivals::Poisson).then(|| fastrand::Rng::with_seed(seed)),
            position: if arrivals == Arrivals::Poisson { 0.0 } else { index - of },
            step: of,
            segment: 0,
            messages_before: 0.0,
            seconds_before: 0.0,
        }
    }

    /// The next due time; `None` when the rate has fallen to zero for good.
    pub fn next(&mut self) -> Option<u64> {
        self.position += match &mut self.poisson {
            None => self.step,
            Some(random) => self.step * exponential(random),
        };
        loop {
            let Segment { from_per_s: from, to_per_s: to, for_s } = self.rate[self.segment];
            let left = self.position - self.messages_before;
            let here = (from + to) / 2.0 * for_s;
            // In a segment with rate zero nothing is due, not even the very first message.
            if left <= here && here > 0.0 {
                return Some(nanoseconds(self.seconds_before + seconds_to(left, from, (to - from) / for_s)));
            }
            if self.segment + 1 == self.rate.len() {
                let beyond = (left - here) / to;
                return (to > 0.0).then(|| nanoseconds(self.seconds_before + for_s + beyond));
            }
            self.messages_before += here;
            self.seconds_before += for_s;
            self.segment += 1;
        }
    }
}

/// The time that a rate beginning at `from` and growing by `slope` a second needs for `count`: the
/// root of from·t + slope·t²/2 = count, in the form without cancellation for small slopes.
fn seconds_to(count: f64, from: f64, slope: f64) -> f64 {
    if count <= 0.0 { 0.0 } else { 2.0 * count / (from + (from * from + 2.0 * slope * count).max(0.0).sqrt()) }
}

impl Think {
    /// One pause, in nanoseconds.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        nanoseconds(match *self {
            Think::Constant { mean_s } => mean_s,
            Think::Uniform { from_s, to_s } => from_s + (to_s - from_s) * random.f64(),
            Think::Gaussian { mean_s, deviation_s } => mean_s + deviation_s * gaussian(random),
            Think::Exponential { mean_s } => mean_s * exponential(random),
            Think::Lognormal { median_s, sigma } => median_s * (sigma * gaussian(random)).exp(),
        })
    }
}

/// Inversion; 1 − u is never 0.
fn exponential(random: &mut fastrand::Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

/// Box and Muller, 1958.
fn gaussian(random: &mut fastrand::Rng) -> f64 {
    (2.0 * exponential(random)).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9) as u64
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    Join,
    Leave,
}

/// The joins and leaves that the stages request: (due, user number, change), in order of time.
/// Users are numbered from 0; the last to join is the first to leave.
pub fn changes(stages: &[Stage]) -> Vec<(u64, usize, Change)> {
    let mut changes = Vec::new();
    let (mut users, mut began_s) = (0usize, 0.0);
    for &Stage { to, over_s, chunk } in stages {
        let total = users.abs_diff(to);
        for number in 0..total {
            // A chunk moves together, when its last user is due.
            let moved = ((number / chunk + 1) * chunk).min(total);
            let due = nanoseconds(began_s + over_s * moved as f64 / total as f64);
            changes.push(match users < to {
                true => (due, users + number, Change::Join),
                false => (due, users - 1 - number, Change::Leave),
            });
        }
        (users, began_s) = (to, began_s + over_s);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(from: f64, to: f64, for_s: f64) -> Segment {
        Segment { from_per_s: from, to_per_s: to, for_s }
    }

    fn take(rate: &[Segment], arrivals: Arrivals, share: (usize, usize), count: usize) -> Vec<u64> {
        let mut due = Due::new(rate, arrivals, share, 7);
        std::iter::from_fn(|| due.next()).take(count).collect()
    }

    #[test]
    fn a_constant_rate_is_evenly_spaced_for_ever() {
        let due = take(&[segment(1000.0, 1000.0, 0.5)], Arrivals::Constant, (0, 1), 2000);
        for (k, &at) in due.iter().enumerate() {
            assert!(at.abs_diff(k as u64 * 1_000_000) <= 1, "{k}: {at}");
        }
    }

    #[test]
    fn nothing_is_due_while_the_rate_is_zero_not_even_the_first_message() {
        let pulse = [segment(0.0, 0.0, 60.0), segment(1.0, 1.0, 0.5), segment(0.0, 0.0, 1.0)];
        assert_eq!(take(&pulse, Arrivals::Constant, (0, 1), 3), [60_000_000_000]);
        assert!(take(&pulse, Arrivals::Constant, (1, 2), 3).is_empty());
    }

    /// The count of Poisson arrivals in a fixed time has a variance equal to its mean, however many
    /// workers produce them together.
    #[test]
    fn poisson_arrivals_of_all_workers_together_are_poisson() {
        let rate = [Segment { from_per_s: 1000.0, to_per_s: 1000.0, for_s: 1.0 }];
        for workers in [1, 2, 4, 8] {
            let (mut counts, mut products, mut squares) = (Vec::new(), 0.0, 0.0);
            for seed in 0..1500 {
                let until = nanoseconds(0.1);
                let mut count = 0;
                let mut first_gaps = Vec::new();
                for number in 0..workers {
                    let mut due = Due::new(&rate, Arrivals::Poisson, (number, workers), stream(seed, number));
                    let mut at = due.next();
                    first_gaps.push(at.unwrap() as f64 / (workers as f64 * 1e6) - 1.0);
                    while at.is_some_and(|at| at < until) {
                        count += 1;
                        at = due.next();
                    }
                }
                counts.push(f64::from(count));
                products += first_gaps[0] * first_gaps[workers - 1];
                squares += first_gaps[0] * first_gaps[0];
            }
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
            assert!((mean - 100.0).abs() < 1.5, "{workers} workers: {mean} arrivals instead of 100");
            assert!((0.85..1.15).contains(&(variance / mean)), "{workers} workers: variance {variance}, mean {mean}");
            assert!(workers == 1 || (products / squares).abs() < 0.1, "{workers} workers: gaps go together");
        }
    }

    #[test]
    fn workers_share_one_schedule() {
        let rate = [segment(10.0, 300.0, 2.0), segment(300.0, 300.0, 1.0), segment(50.0, 50.0, 1.0)];
        let whole = take(&rate, Arrivals::Constant, (0, 1), 600);
        let mut parts: Vec<u64> = (0..3).flat_map(|i| take(&rate, Arrivals::Constant, (i, 3), 200)).collect();
        parts.sort();
        assert_eq!(parts, whole);
    }

    #[test]
    fn a_ramp_sends_as_many_as_its_area_and_ends_when_the_rate_is_zero() {
        let due = take(&[segment(0.0, 1000.0, 2.0), segment(1000.0, 0.0, 2.0)], Arrivals::Constant, (0, 1), 10_000);
        assert!((1999..=2001).contains(&due.len()), "{}", due.len());
        assert!(due.is_sorted());
        let half = due.iter().filter(|&&at| at < 1_000_000_000).count();
        assert!((249..=251).contains(&half), "a quarter of the first ramp's area: {half}");
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_deviation_of_an_exponential() {
        let due = take(&[segment(1000.0, 1000.0, 1.0)], Arrivals::Poisson, (0, 1), 100_000);
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.02 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }

    #[test]
    fn pauses_have_the_mean_that_was_asked_for_and_are_never_negative() {
        let kinds = [
            (Think::Constant { mean_s: 2.0 }, 2.0),
            (Think::Uniform { from_s: 1.0, to_s: 3.0 }, 2.0),
            (Think::Gaussian { mean_s: 5.0, deviation_s: 2.0 }, 5.0),
            (Think::Exponential { mean_s: 2.0 }, 2.0),
            (Think::Lognormal { median_s: 1.0, sigma: 0.5 }, 1.133),
        ];
        for (think, mean_s) in kinds {
            let mut random = fastrand::Rng::with_seed(1);
            let sum: u64 = (0..100_000).map(|_| think.draw(&mut random)).sum();
            let found = sum as f64 / 1e5 / 1e9;
            assert!((found / mean_s - 1.0).abs() < 0.02, "{think:?}: {found}");
        }
        let mut random = fastrand::Rng::with_seed(1);
        let wide = Think::Gaussian { mean_s: 0.0, deviation_s: 1.0 };
        assert!((0..1000).filter(|_| wide.draw(&mut random) == 0).count() > 400);
    }

    #[test]
    fn users_come_evenly_in_chunks_and_the_last_goes_first() {
        let stages = [
            Stage { to: 4, over_s: 2.0, chunk: 2 },
            Stage { to: 4, over_s: 5.0, chunk: 1 },
            Stage { to: 2, over_s: 0.0, chunk: 1 },
        ];
        let second = 1_000_000_000;
        let expected = [
            (second, 0, Change::Join),
            (second, 1, Change::Join),
            (2 * second, 2, Change::Join),
            (2 * second, 3, Change::Join),
            (7 * second, 3, Change::Leave),
            (7 * second, 2, Change::Leave),
        ];
        assert_eq!(changes(&stages), expected);
    }
}
