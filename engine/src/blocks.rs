//! Loops over the bytes of a text are fast where these come in blocks, because a CPU takes a block at once.

pub const BLOCK: usize = 16;

/// Two parts of a text that together are all of it: whole blocks, and the last one. None if it is shorter than a block.
#[inline]
pub fn parts(text: &[u8]) -> Option<[&[u8]; 2]> {
    let last: &[u8; BLOCK] = text.last_chunk()?;
    Some([&text[..text.len() / BLOCK * BLOCK], last])
}

#[inline]
pub fn is_ascii(text: &[u8]) -> bool {
    let all = |part: &[u8]| part.iter().fold(0, |all, byte| all | byte) < 0x80;
    parts(text).map_or_else(|| text.is_ascii(), |[whole, last]| all(whole) && all(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_looked_at() {
        for length in 0..100 {
            let mut text = vec![b'a'; length];
            assert!(is_ascii(&text));
            for at in 0..length {
                text[at] = 0x80;
                assert!(!is_ascii(&text), "{at} of {length}");
                text[at] = b'a';
            }
        }
    }
}
