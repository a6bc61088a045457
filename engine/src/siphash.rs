//! SipHash-1-3 (Aumasson and Bernstein, 2012) of whole words, of several messages together: each round waits for the one
//! before, so hashes that do not wait for each other cost little more than one.

/// Hashes with one key.
pub struct SipHash {
    /// The state before the first word.
    begin: [u64; 4],
}

impl SipHash {
    pub fn new(key: [u64; 2]) -> SipHash {
        let [low, high] = key;
        SipHash {
            begin: [
                low ^ 0x736f_6d65_7073_6575,
                high ^ 0x646f_7261_6e64_6f6d,
                low ^ 0x6c79_6765_6e65_7261,
                high ^ 0x7465_6462_7974_6573,
            ],
        }
    }

    /// The first word of all messages, then their second, and so on. The bytes of a word are little-endian.
    #[inline]
    pub fn hash<const MESSAGES: usize, const WORDS: usize>(&self, words: [[u64; MESSAGES]; WORDS]) -> [u64; MESSAGES] {
        let mut state = self.begin.map(|word| [word; MESSAGES]);
        let length = [(8 * WORDS as u64) << 56; MESSAGES];
        for word in words.iter().chain([&length]) {
            each(&mut state[3], word, |one, other| one ^ other);
            round(&mut state);
            each(&mut state[0], word, |one, other| one ^ other);
        }
        state[2].iter_mut().for_each(|word| *word ^= 0xff);
        for _ in 0..3 {
            round(&mut state);
        }
        std::array::from_fn(|message| state.iter().fold(0, |hash, words| hash ^ words[message]))
    }
}

#[inline]
fn round<const MESSAGES: usize>([a, b, c, d]: &mut [[u64; MESSAGES]; 4]) {
    mix(a, b, 13);
    mix(c, d, 16);
    a.iter_mut().for_each(|word| *word = word.rotate_left(32));
    mix(c, b, 17);
    mix(a, d, 21);
    c.iter_mut().for_each(|word| *word = word.rotate_left(32));
}

#[inline]
fn mix<const MESSAGES: usize>(one: &mut [u64; MESSAGES], other: &mut [u64; MESSAGES], left: u32) {
    each(one, other, u64::wrapping_add);
    each(other, one, |word, sum| word.rotate_left(left) ^ sum);
}

#[inline]
fn each<const MESSAGES: usize>(
    words: &mut [u64; MESSAGES],
    others: &[u64; MESSAGES],
    changed: impl Fn(u64, u64) -> u64,
) {
    for (word, other) in words.iter_mut().zip(others) {
        *word = changed(*word, *other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip::SipHasher13;

    fn alike<const MESSAGES: usize, const WORDS: usize>(random: &mut fastrand::Rng) {
        let key = [random.u64(..), random.u64(..)];
        let messages: [[u64; WORDS]; MESSAGES] = std::array::from_fn(|_| std::array::from_fn(|_| random.u64(..)));
        let right = messages
            .map(|words| SipHasher13::new_with_keys(key[0], key[1]).hash(words.map(u64::to_le_bytes).as_flattened()));
        let words: [_; WORDS] = std::array::from_fn(|word| messages.map(|message| message[word]));
        assert_eq!(SipHash::new(key).hash(words), right);
    }

    #[test]
    fn hashes_are_those_of_the_library_alone_and_together() {
        let random = &mut fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            alike::<1, 1>(random);
            alike::<1, 3>(random);
            alike::<4, 1>(random);
            alike::<5, 2>(random);
        }
    }
}
