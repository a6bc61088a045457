//! Makes a message one that a server must read to answer: a keyed hash of its connection and its number (SipHash-1-3,
//! Aumasson and Bernstein, 2012). The key is drawn from the plan's seed, which is not sent to any server.

use crate::siphash::SipHash;
use sha1::{Digest, Sha1};

/// The first eight digits of a stamp are the number of its message, the others its tag. The tag's last digit repeats
/// the last digit of the number, so that a message too short for more still differs from the one before.
pub const LENGTH: usize = 16;
const NUMBER: usize = LENGTH / 2;
/// No two of 2²⁴ connections have an equal message before their 2⁴⁰th.
const NUMBER_BITS: u32 = 40;

pub struct Stamps(SipHash);

impl Stamps {
    pub fn new(seed: u64) -> Stamps {
        let key: [u8; 20] =
            Sha1::new().chain_update(b"wsbench stamps").chain_update(seed.to_be_bytes()).finalize().into();
        let key = |word| u64::from_le_bytes(key.as_chunks().0[word]);
        Stamps(SipHash::new([key(0), key(1)]))
    }

    #[inline]
    pub fn hash_of<const WORDS: usize>(&self, words: [u64; WORDS]) -> u64 {
        let [hash] = self.0.hash(words.map(|word| [word]));
        hash
    }

    /// One half of it is the tag, which is sent; the other half is not.
    #[inline]
    pub fn hash(&self, connection: u32, number: u64) -> u64 {
        let [hash] = self.hashes(connection, number);
        hash
    }

    /// Those of consecutive messages.
    #[inline]
    pub fn hashes<const MESSAGES: usize>(&self, connection: u32, first: u64) -> [u64; MESSAGES] {
        let numbers: [u64; MESSAGES] = std::array::from_fn(|at| first + at as u64);
        let mut hashes = self.0.hash([numbers.map(|number| u64::from(connection).rotate_left(NUMBER_BITS) ^ number)]);
        hashes.iter_mut().zip(numbers).for_each(|(hash, number)| *hash = *hash & !15 | number & 15);
        hashes
    }

    /// The stamp of the message with this hash.
    #[inline]
    pub fn of(number: u64, hash: u64) -> [u8; LENGTH] {
        let mut stamp = [0; LENGTH];
        stamp[..NUMBER].copy_from_slice(&digits(number as u32));
        stamp[NUMBER..].copy_from_slice(&digits(hash as u32));
        stamp
    }

    /// The number in a stamp, if it is complete: that of the message, modulo 2³².
    pub fn number_in(stamp: &[u8]) -> Option<u32> {
        number(stamp.first_chunk()?)
    }
}

/// The number that these digits are, if they are digits as `digits` writes them.
#[inline]
pub fn number(written: &[u8; 8]) -> Option<u32> {
    let letters = u64::from_be_bytes(*written);
    // A letter has its bit 6 set, and its low bits are 9 less than its value.
    let nibbles = (letters & 0x0f0f_0f0f_0f0f_0f0f) + (letters >> 6 & 0x0101_0101_0101_0101) * 9;
    let wide = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let wide = (wide | wide >> 8) & 0x0000_ffff_0000_ffff;
    let number = (wide | wide >> 16) as u32;
    (digits(number) == *written).then_some(number)
}

/// Eight hexadecimal digits, the highest first: one nibble for each byte, computed together.
#[inline]
pub fn digits(number: u32) -> [u8; 8] {
    let wide = u64::from(number);
    let wide = (wide | wide << 16) & 0x0000_ffff_0000_ffff;
    let wide = (wide | wide << 8) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (wide | wide << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = (nibbles + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (nibbles + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_says_which_message_it_is_and_no_other_has_it() {
        let stamps = Stamps::new(1);
        for number in [0, 1, 0x89ab_cdef, u64::from(u32::MAX), 1 << 40 | 5] {
            let hash = stamps.hash(7, number);
            let stamp = Stamps::of(number, hash);
            let tag = hash as u32;
            assert_eq!(stamp, format!("{:08x}{tag:08x}", number as u32).as_bytes());
            assert_eq!(Stamps::number_in(&stamp), Some(number as u32));
        }
        assert_eq!(stamps.hashes(7, 5), [5, 6, 7].map(|number| stamps.hash(7, number)));
        assert_ne!(stamps.hash(1, 2), stamps.hash(2, 1));
        assert_ne!(stamps.hash(1, 2), Stamps::new(2).hash(1, 2));
        assert_eq!(Stamps::number_in(b"1234567"), None);
        assert_eq!(Stamps::number_in(b"+2345678"), None);
    }
}
