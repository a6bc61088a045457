//! Values in a JSON text, found in one scan and without building a tree. What is passed over is checked for closed strings
//! and closed brackets only.

use memchr::memchr2;
use serde::Deserialize;

/// A step of a path: a key of an object, or an index of an array.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum Part {
    Index(usize),
    Key(String),
}

pub type Path = Vec<Part>;

/// Sets of paths are the bits of a byte.
pub const MOST_PATHS: usize = 8;
/// The depth of the recursion.
pub const LONGEST_PATH: usize = 8;
/// A one in every byte.
const ONES: u64 = u64::MAX / 255;

/// From where to where a value is in its text.
pub type Place = (u32, u32);

/// The place of the raw text at each path: what a string has between its quotes, escapes as they are; otherwise the whole value. Of
/// several equal keys the first counts. The scan ends when all are found. `Err` is the offset of what is not JSON.
#[inline]
pub fn find(text: &[u8], paths: &[Path], found: &mut [Option<Place>]) -> Result<(), usize> {
    debug_assert!(paths.len() <= MOST_PATHS && found.len() == paths.len());
    let all = ((1u16 << paths.len()) - 1) as u8;
    let mut scan = Scan { text, paths, found, left: paths.len() };
    let end = scan.value(all, 0, space(text, 0))?;
    let end = space(text, end);
    if scan.left > 0 && end < text.len() { Err(end) } else { Ok(()) }
}

struct Scan<'a, 'b> {
    text: &'a [u8],
    paths: &'b [Path],
    found: &'b mut [Option<Place>],
    left: usize,
}

/// Every function takes the offset at which it begins and returns the one behind what it has read.
impl Scan<'_, '_> {
    /// Reads a value to which the first `depth` parts of the `active` paths lead.
    fn value(&mut self, active: u8, depth: usize, at: usize) -> Result<usize, usize> {
        let goes_on = self.among(active, |path| path.len() > depth) != 0;
        let (inside, end) = match self.text.get(at) {
            Some(b'{') if goes_on => (at, self.object(active, depth, at)?),
            Some(b'[') if goes_on => (at, self.array(active, depth, at)?),
            Some(b'"') => (at + 1, string(self.text, at)?),
            _ => (at, pass(self.text, at)?),
        };
        let mut ends = self.among(active, |path| path.len() == depth);
        while ends != 0 {
            let place = &mut self.found[ends.trailing_zeros() as usize];
            if place.is_none() {
                *place = Some((inside as u32, (end - (inside - at)) as u32));
                self.left -= 1;
            }
            ends &= ends - 1;
        }
        Ok(end)
    }

    fn object(&mut self, active: u8, depth: usize, at: usize) -> Result<usize, usize> {
        let text = self.text;
        let mut at = space(text, at + 1);
        if text.get(at) == Some(&b'}') {
            return Ok(at + 1);
        }
        loop {
            let end = string(text, at)?;
            let key = &text[at + 1..end - 1];
            let colon = space(text, end);
            if text.get(colon) != Some(&b':') {
                return Err(colon);
            }
            let is_key = |part: &Part| matches!(part, Part::Key(name) if name.as_bytes() == key);
            let next = self.among(active, |path| path.get(depth).is_some_and(is_key));
            at = self.member(next, depth + 1, space(text, colon + 1))?;
            match text.get(at) {
                _ if self.left == 0 => return Ok(at),
                Some(b',') => at = space(text, at + 1),
                Some(b'}') => return Ok(at + 1),
                _ => return Err(at),
            }
        }
    }

    fn array(&mut self, active: u8, depth: usize, at: usize) -> Result<usize, usize> {
        let text = self.text;
        let mut at = space(text, at + 1);
        if text.get(at) == Some(&b']') {
            return Ok(at + 1);
        }
        for index in 0.. {
            let is_index = |part: &Part| *part == Part::Index(index);
            let next = self.among(active, |path| path.get(depth).is_some_and(is_index));
            at = self.member(next, depth + 1, at)?;
            match text.get(at) {
                _ if self.left == 0 => return Ok(at),
                Some(b',') => at = space(text, at + 1),
                Some(b']') => return Ok(at + 1),
                _ => return Err(at),
            }
        }
        unreachable!("a text is shorter than that")
    }

    /// A value of an object or an array, and the space behind it.
    #[inline]
    fn member(&mut self, active: u8, depth: usize, at: usize) -> Result<usize, usize> {
        let end = if active == 0 { pass(self.text, at)? } else { self.value(active, depth, at)? };
        Ok(space(self.text, end))
    }

    /// The active paths that fulfil a condition.
    #[inline]
    fn among(&self, active: u8, fulfils: impl Fn(&Path) -> bool) -> u8 {
        let (mut rest, mut all) = (active, 0);
        while rest != 0 {
            let place = rest.trailing_zeros();
            rest &= rest - 1;
            all |= u8::from(fulfils(&self.paths[place as usize])) << place;
        }
        all
    }
}

#[inline]
pub fn space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

#[inline]
fn pass(text: &[u8], at: usize) -> Result<usize, usize> {
    match text.get(at) {
        Some(b'"') => string(text, at),
        Some(b'{' | b'[') => pass_brackets(text, at),
        _ => pass_word(text, at),
    }
}

/// Passes a string with its quotes.
#[inline]
pub fn string(text: &[u8], at: usize) -> Result<usize, usize> {
    if text.get(at) != Some(&b'"') {
        return Err(at);
    }
    let mut from = at + 1;
    loop {
        let rest = text.get(from..).unwrap_or_default();
        // Most strings are shorter than a call of `memchr` pays for.
        let near = rest.first_chunk().and_then(|chunk| in_chunk(u64::from_le_bytes(*chunk)));
        let Some(length) = near.or_else(|| memchr2(b'"', b'\\', rest)) else { return Err(text.len()) };
        if rest[length] == b'"' {
            return Ok(from + length + 1);
        }
        from += length + 2;
    }
}

/// The place of the first quote or backslash among eight bytes, the first of them lowest.
#[inline]
fn in_chunk(chunk: u64) -> Option<usize> {
    // The highest bit of the first byte that is zero; above it there may be others.
    let zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes & ONES << 7;
    let places = |byte: u8| zero(chunk ^ (u64::from(byte) * ONES));
    let found = places(b'"') | places(b'\\');
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

fn pass_brackets(text: &[u8], mut at: usize) -> Result<usize, usize> {
    let mut depth = 0usize;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => {
                at = string(text, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Ok(at);
        }
    }
    Err(at)
}

/// Passes a number, `true`, `false` or `null`.
#[inline]
fn pass_word(text: &[u8], from: usize) -> Result<usize, usize> {
    let mut at = from;
    while let Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.') = text.get(at) {
        at += 1;
    }
    if at == from { Err(from) } else { Ok(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(parts: &str) -> Path {
        parts.split('.').map(|part| part.parse().map_or_else(|_| Part::Key(part.into()), Part::Index)).collect()
    }

    fn at<'a>(text: &'a str, paths: &[&str]) -> Result<Vec<Option<&'a str>>, usize> {
        let paths: Vec<Path> = paths.iter().map(|parts| path(parts)).collect();
        let mut found = vec![None; paths.len()];
        find(text.as_bytes(), &paths, &mut found)?;
        Ok(found.into_iter().map(|place| place.map(|(from, to)| &text[from as usize..to as usize])).collect())
    }

    #[test]
    fn values_are_found_wherever_they_are() {
        let text = r#" {"a" : [1, {"b":"x\"]}y"}, [ ]] , "id":-1.5e+3,"c":{"d":{}, "id":2},"e":"é", "n":null } "#;
        let all = at(text, &["id", "a.1.b", "c.id", "c.d", "a", "e", "n", "a.7"]).unwrap();
        let right =
            ["-1.5e+3", r#"x\"]}y"#, "2", "{}", r#"[1, {"b":"x\"]}y"}, [ ]]"#, "é", "null"].map(Some).into_iter();
        assert_eq!(all, right.chain([None]).collect::<Vec<_>>());
    }

    #[test]
    fn a_path_into_something_else_finds_nothing() {
        assert_eq!(at(r#"{"a":1,"b":[]}"#, &["a.b", "b.0", "0"]), Ok(vec![None, None, None]));
        assert_eq!(at("[1,[2,3]]", &["1.1", "a", "1"]), Ok(vec![Some("3"), None, Some("[2,3]")]));
        assert_eq!(at("7", &["a"]), Ok(vec![None]));
    }

    #[test]
    fn of_equal_keys_the_first_counts_and_the_scan_ends_early() {
        assert_eq!(at(r#"{"id":1,"id":2"#, &["id"]), Ok(vec![Some("1")]));
        assert_eq!(at(r#"{"id":1,"id":2}"#, &["id", "x"]), Ok(vec![Some("1"), None]));
    }

    #[test]
    fn what_is_not_json_is_refused_at_its_place() {
        for (text, place) in [
            ("", 0),
            ("{", 1),
            (r#"{"a"}"#, 4),
            (r#"{"a":}"#, 5),
            (r#"{"a":1"#, 6),
            (r#"{"a":1 2}"#, 7),
            (r#"{"a":"x"#, 7),
            (r#"{"a":"x\"#, 8),
            ("[1", 2),
            ("[1,", 3),
            (r#"{"b":[[1]"#, 9),
            ("{} x", 3),
        ] {
            assert_eq!(at(text, &["nothing"]), Err(place), "{text}");
        }
    }
}
