//! How often each duration came: HdrHistogram's buckets for 1 ns to 1 h at three significant digits, in one array, and
//! which parts of the array were used. Only those are read and cleared, because a server's times lie close together.

use hdrhistogram::Histogram;

/// One hour: longer than any deadline of a single reply.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;

/// Up to twice this number a bucket is one nanosecond wide. Above, each octave has this many buckets.
const HALF: usize = 1024;
const PLACES: usize = 33 * HALF;
/// Buckets whose use is noted together.
const GROUP: usize = 64;
const GROUPS: usize = PLACES / GROUP;

pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("the bounds are constants")
}

fn bucket_of(ns: u64) -> usize {
    let widest = ns | (2 * HALF as u64 - 1);
    let octave = (HALF.leading_zeros() - widest.leading_zeros()) as usize;
    octave * HALF + (ns >> octave) as usize
}

/// The shortest duration of a bucket.
pub fn shortest_of(bucket: usize) -> u64 {
    let octave = (bucket / HALF).saturating_sub(1);
    ((bucket - octave * HALF) as u64) << octave
}

pub struct Counts {
    counts: Box<[u64]>,
    used: [u64; GROUPS.div_ceil(64)],
}

impl Counts {
    pub fn new() -> Counts {
        #[cfg(test)]
        MADE.with(|made| made.set(made.get() + 1));
        // The kernel's zeros: what is never used costs no memory.
        Counts { counts: vec![0; PLACES].into_boxed_slice(), used: Default::default() }
    }

    /// A duration beyond the range counts as the longest.
    #[inline]
    pub fn record(&mut self, ns: u64, count: u64) {
        self.add(bucket_of(ns.min(HIGHEST_NS)), count);
    }

    #[inline]
    pub fn add(&mut self, bucket: usize, count: u64) {
        self.counts[bucket] += count;
        let group = bucket / GROUP;
        self.used[group / 64] |= 1 << (group % 64);
    }

    pub fn is_empty(&self) -> bool {
        self.used.iter().all(|&bits| bits == 0)
    }

    /// Every bucket that has a count.
    pub fn each(&self, mut found: impl FnMut(usize, u64)) {
        for group in groups(self.used) {
            for bucket in group * GROUP..(group + 1) * GROUP {
                if self.counts[bucket] > 0 {
                    found(bucket, self.counts[bucket]);
                }
            }
        }
    }

    pub fn clear(&mut self) {
        for group in groups(std::mem::take(&mut self.used)) {
            self.counts[group * GROUP..(group + 1) * GROUP].fill(0);
        }
    }

    /// The same counts in the library's histogram, in place of its own.
    pub fn copy_to(&self, histogram: &mut Histogram<u64>) {
        histogram.reset();
        self.each(|bucket, count| histogram.saturating_record_n(shortest_of(bucket), count));
    }
}

fn groups(used: [u64; GROUPS.div_ceil(64)]) -> impl Iterator<Item = usize> {
    used.into_iter().enumerate().flat_map(|(word, mut bits)| {
        std::iter::from_fn(move || {
            let bit = (bits > 0).then(|| bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(word * 64 + bit)
        })
    })
}

#[cfg(test)]
thread_local! {
    /// Arrays that this thread has made.
    pub static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library's own buckets, for durations of every length.
    #[test]
    fn the_buckets_are_those_of_the_library() {
        let random = &mut fastrand::Rng::with_seed(1);
        let (mut counts, mut theirs) = (Counts::new(), new_histogram());
        assert_eq!(theirs.distinct_values(), PLACES);
        let edges = (0..43).flat_map(|bits| [1 << bits, (1 << bits) + 1, (2 << bits) - 1]);
        let drawn = (0..20_000).map(|_| random.u64(..) >> random.u32(20..63)).collect::<Vec<_>>();
        for ns in edges.chain(drawn).chain([HIGHEST_NS - 1, HIGHEST_NS, HIGHEST_NS + 1, u64::MAX]) {
            let (ns, count) = (ns.max(1), random.u64(1..5));
            counts.record(ns, count);
            let ns = ns.min(HIGHEST_NS);
            theirs.record_n(ns, count).unwrap();
            assert_eq!(shortest_of(bucket_of(ns)), theirs.lowest_equivalent(ns), "{ns}");
        }
        let mut copy = new_histogram();
        copy.record(17).unwrap();
        counts.copy_to(&mut copy);
        assert!(copy == theirs);
        assert_eq!((copy.max(), copy.min(), copy.len()), (theirs.max(), theirs.min(), theirs.len()));
    }

    #[test]
    fn a_cleared_histogram_is_empty_and_can_be_used_again() {
        let mut counts = Counts::new();
        let seen = |counts: &Counts| {
            let mut all = Vec::new();
            counts.each(|bucket, count| all.push((shortest_of(bucket), count)));
            all
        };
        counts.record(5, 2);
        counts.record(HIGHEST_NS, 1);
        assert_eq!(seen(&counts).len(), 2);
        counts.clear();
        assert!(counts.is_empty() && seen(&counts).is_empty());
        counts.record(63, 1);
        counts.record(64, 3);
        assert_eq!(seen(&counts), [(63, 1), (64, 3)]);
    }
}
