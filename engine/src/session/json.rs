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

/// The raw text at each path: what a string has between its quotes, escapes as they are; otherwise the whole value. Of
/// several equal keys the first counts. The scan ends when all are found. `Err` is the offset of what is not JSON.
#[inline]
pub fn find<'a>(text: &'a [u8], paths: &[Path], found: &mut [Option<&'a [u8]>]) -> Result<(), usize> {
    debug_assert!(paths.len() <= MOST_PATHS && found.len() == paths.len());
    let all = ((1u16 << paths.len()) - 1) as u8;
    let mut scan = Scan { text, at: 0, paths, found, left: paths.len() };
    scan.value(all, 0)?;
    scan.space();
    if scan.left > 0 && scan.at < text.len() { Err(scan.at) } else { Ok(()) }
}

struct Scan<'a, 'b> {
    text: &'a [u8],
    at: usize,
    paths: &'b [Path],
    found: &'b mut [Option<&'a [u8]>],
    left: usize,
}

impl<'a> Scan<'a, '_> {
    /// Reads a value to which the first `depth` parts of the `active` paths lead.
    fn value(&mut self, active: u8, depth: usize) -> Result<(), usize> {
        self.space();
        let from = self.at;
        let goes_on = self.among(active, |path| path.len() > depth) != 0;
        let text = match self.text.get(from) {
            Some(b'{') if goes_on => {
                self.object(active, depth)?;
                from..self.at
            }
            Some(b'[') if goes_on => {
                self.array(active, depth)?;
                from..self.at
            }
            Some(b'{' | b'[') => {
                self.pass_brackets()?;
                from..self.at
            }
            Some(b'"') => {
                self.string()?;
                from + 1..self.at - 1
            }
            _ => {
                self.pass_word()?;
                from..self.at
            }
        };
        let mut ends = self.among(active, |path| path.len() == depth);
        while ends != 0 {
            let place = &mut self.found[ends.trailing_zeros() as usize];
            if place.is_none() {
                *place = Some(&self.text[text.clone()]);
                self.left -= 1;
            }
            ends &= ends - 1;
        }
        Ok(())
    }

    fn object(&mut self, active: u8, depth: usize) -> Result<(), usize> {
        self.at += 1;
        self.space();
        if self.takes(b'}') {
            return Ok(());
        }
        loop {
            self.space();
            let key = self.string()?;
            self.space();
            self.expect(b':')?;
            let is_key = |part: &Part| matches!(part, Part::Key(name) if name.as_bytes() == key);
            let next = self.among(active, |path| path.get(depth).is_some_and(is_key));
            self.value(next, depth + 1)?;
            if self.left == 0 {
                return Ok(());
            }
            self.space();
            if self.takes(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn array(&mut self, active: u8, depth: usize) -> Result<(), usize> {
        self.at += 1;
        self.space();
        if self.takes(b']') {
            return Ok(());
        }
        for index in 0.. {
            let is_index = |part: &Part| *part == Part::Index(index);
            let next = self.among(active, |path| path.get(depth).is_some_and(is_index));
            self.value(next, depth + 1)?;
            if self.left == 0 {
                return Ok(());
            }
            self.space();
            if self.takes(b']') {
                return Ok(());
            }
            self.expect(b',')?;
        }
        unreachable!("a text is shorter than that")
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

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    #[inline]
    fn takes(&mut self, byte: u8) -> bool {
        let takes = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(takes);
        takes
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), usize> {
        if self.takes(byte) { Ok(()) } else { Err(self.at) }
    }

    /// Passes a string; returns what is between its quotes.
    #[inline]
    fn string(&mut self) -> Result<&'a [u8], usize> {
        self.expect(b'"')?;
        let from = self.at;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(length) = memchr2(b'"', b'\\', rest) else { return Err(self.text.len()) };
            if rest[length] == b'"' {
                let inside = &self.text[from..self.at + length];
                self.at += length + 1;
                return Ok(inside);
            }
            self.at += length + 2;
        }
    }

    /// Passes an object or an array.
    fn pass_brackets(&mut self) -> Result<(), usize> {
        let mut depth = 0usize;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.at)
    }

    /// Passes a number, `true`, `false` or `null`.
    fn pass_word(&mut self) -> Result<(), usize> {
        let from = self.at;
        while let Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.') = self.text.get(self.at) {
            self.at += 1;
        }
        if self.at == from { Err(from) } else { Ok(()) }
    }
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
        Ok(found.into_iter().map(|value| value.map(|bytes| std::str::from_utf8(bytes).unwrap())).collect())
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
