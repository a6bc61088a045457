//! A postmark tells who sent a message, which one it is, and when: every receiver of this trial on this host can time
//! it. It is 52 letters and digits that are safe in JSON, headers and lines. Part of it is a keyed hash, so that no
//! server can make one.

use crate::stamp::{Stamps, digits, number};
use memchr::memmem::Finder;

pub const LENGTH: usize = FRONT.len() + 8 + 8 + 16 + 8 + 8;
const FRONT: &[u8; 4] = b"wsb1";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Postmark {
    pub user: u32,
    pub sequence: u32,
    pub t_ns: u64,
    /// The clock on which that time is.
    pub clock: u32,
}

impl Postmark {
    /// What is behind its front; `check` is what `Post` computes.
    #[inline]
    fn numbers(self, check: u32) -> [u32; 6] {
        let Postmark { user, sequence, t_ns, clock } = self;
        [user, sequence, (t_ns >> 32) as u32, t_ns as u32, check, clock]
    }

    #[inline]
    pub fn write(self, check: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(FRONT);
        for number in self.numbers(check) {
            out.extend_from_slice(&digits(number));
        }
    }

    #[inline]
    fn begins(self, check: u32, text: &[u8]) -> bool {
        let Some((front, found)) = text.get(..LENGTH).map(|mark| mark.split_at(FRONT.len())) else { return false };
        // All together: a jump for each would be more than what it saves.
        let mut differ = 0;
        for (found, number) in found.as_chunks().0.iter().zip(self.numbers(check)) {
            differ |= u64::from_ne_bytes(*found) ^ u64::from_ne_bytes(digits(number));
        }
        front == FRONT && differ == 0
    }
}

/// Checks and finds postmarks.
pub struct Post {
    finder: Finder<'static>,
    stamps: Stamps,
}

impl Post {
    pub fn new(seed: u64) -> Post {
        Post { finder: Finder::new(FRONT), stamps: Stamps::new(seed) }
    }

    /// Whether this one, whose check is known, is the first postmark in a record.
    #[inline]
    pub fn is_first(&self, record: &[u8], mark: Postmark, check: u32) -> bool {
        let Some(at) = self.finder.find(record) else { return false };
        mark.begins(check, &record[at..]) || self.find(record) == Some(mark)
    }

    /// The first postmark in a record. One of another trial, or one that was altered, is none.
    pub fn find(&self, record: &[u8]) -> Option<Postmark> {
        self.finder.find_iter(record).find_map(|at| self.read(record.get(at + FRONT.len()..at + LENGTH)?))
    }

    fn read(&self, digits: &[u8]) -> Option<Postmark> {
        let (numbers, _) = digits.as_chunks();
        let mut numbers = numbers.iter().map(number);
        let mut next = || numbers.next().flatten();
        let (user, sequence, high, low, check, clock) = (next()?, next()?, next()?, next()?, next()?, next()?);
        let mark = Postmark { user, sequence, t_ns: u64::from(high) << 32 | u64::from(low), clock };
        (check == self.check(mark)).then_some(mark)
    }

    /// The part of a postmark that nobody else can compute.
    #[inline]
    pub fn check(&self, mark: Postmark) -> u32 {
        let Postmark { user, sequence, t_ns, clock } = mark;
        self.stamps.hash_of([u64::from(user) << 32 | u64::from(sequence), t_ns, clock.into()]) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_postmark_is_found_in_any_record_of_its_trial() {
        let post = Post::new(3);
        let mark = Postmark { user: 7, sequence: u32::MAX, t_ns: 1 << 60 | 5, clock: 0xdead_beef };
        let mut record = b"42[\"wsb1 wsb1".to_vec();
        mark.write(post.check(mark), &mut record);
        assert_eq!(record.len(), 13 + LENGTH);
        record.extend_from_slice(b"\"]");
        assert_eq!(post.find(&record), Some(mark));
        assert_eq!(Post::new(4).find(&record), None);
        assert_eq!(post.find(&record[..record.len() - 3]), None);
        for at in 13..13 + LENGTH {
            let mut altered = record.clone();
            altered[at] ^= 1;
            assert_eq!(post.find(&altered), None, "{at}");
        }
    }

    #[test]
    fn a_request_s_postmark_is_the_first_in_its_answer() {
        let post = Post::new(3);
        let [mine, other] = [5, 6].map(|sequence| Postmark { user: 7, sequence, t_ns: 1 << 40, clock: 9 });
        let [mine_written, other_written] = [mine, other].map(|mark| {
            let mut written = Vec::new();
            mark.write(post.check(mark), &mut written);
            written
        });
        let is_mine = |parts: &[&[u8]]| post.is_first(&parts.concat(), mine, post.check(mine));
        assert!(is_mine(&[&mine_written]));
        assert!(is_mine(&[b"wsb1, ", &mine_written, &other_written]));
        assert!(is_mine(&[&mine_written[..LENGTH - 1], b"wsb1", &mine_written, b"x"]));
        assert!(!is_mine(&[&other_written, &mine_written]));
        assert!(!is_mine(&[&mine_written[..LENGTH - 1]]));
        for at in 0..LENGTH {
            let mut altered = mine_written.clone();
            altered[at] ^= 1;
            assert!(!is_mine(&[&altered]), "{at}");
        }
    }
}
