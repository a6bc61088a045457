//! The shapes of the JSON records that came last. Most replies of a server differ from earlier ones only in the characters of
//! strings and the digits of numbers. Such a record has its values at the same places, and is not scanned again.

use super::json::{self, MOST_PATHS, Place};
use crate::blocks::{self, BLOCK};

/// As many as a session has steps.
const MOST: usize = super::MOST_STEPS;
/// Shapes of longer records are not kept.
const LONGEST: usize = 16 << 10;
/// A session whose records are seldom alike does not learn a shape from each of them, and stops looking for one.
const USES_OF_ONE: u64 = 4;
const MISSES: u64 = 1000;

#[derive(Default)]
pub struct Shapes {
    all: Vec<Shape>,
    learnt: u64,
    used: u64,
    missed: u64,
}

pub type Places = [Option<Place>; MOST_PATHS];

struct Shape {
    /// What each byte may be: the least number, and how many more. For most of them it is the byte that was there.
    least: Vec<u8>,
    more: Vec<u8>,
    places: Places,
}

/// A character of a string may be every byte of ASCII except a quote and a backslash.
const CHARACTER: u8 = 0x7f;

impl Shapes {
    /// Where the values of a text are, if its shape is known.
    #[inline]
    pub fn places_in(&mut self, text: &[u8]) -> Option<&Places> {
        if self.missed > MISSES + self.used {
            return None;
        }
        let known = self.all.iter().find(|shape| shape.is_that_of(text));
        *if known.is_some() { &mut self.used } else { &mut self.missed } += 1;
        known.map(|shape| &shape.places)
    }

    /// A text was scanned, and its values are at these places.
    #[cold]
    pub fn learn(&mut self, text: &[u8], places: Places) {
        if self.learnt >= MOST as u64 + self.used / USES_OF_ONE || text.len() > LONGEST {
            return;
        }
        let shape = Shape::of(text, places);
        let oldest = self.learnt as usize % MOST;
        match self.all.get_mut(oldest) {
            Some(old) => *old = shape,
            None => self.all.push(shape),
        }
        self.learnt += 1;
    }
}

/// Whether all bytes are what they may be.
#[inline]
fn fit(text: &[u8], least: &[u8], more: &[u8]) -> bool {
    let mut wrong = 0;
    for ((&byte, &least), &more) in text.iter().zip(least).zip(more) {
        let ends_string = more == CHARACTER && (byte == b'"' || byte == b'\\');
        wrong |= byte.wrapping_sub(least).saturating_sub(more) | u8::from(ends_string);
    }
    wrong == 0
}

impl Shape {
    /// Keys, and all that the scan may look at otherwise, are the same in all texts of a shape.
    fn of(text: &[u8], places: Places) -> Shape {
        let (mut least, mut more) = (text.to_vec(), vec![0; text.len()]);
        let mut free = |at: usize, from: u8, span: u8| (least[at], more[at]) = (from, span);
        let mut at = 0;
        while at < text.len() {
            if text[at].is_ascii_digit() {
                free(at, b'0', 9);
            }
            if text[at] != b'"' {
                at += 1;
                continue;
            }
            // What the scan did not reach need not be JSON.
            let Ok(end) = json::string(text, at) else { break };
            let (inside, is_key) = (at + 1..end - 1, text.get(json::space(text, end)) == Some(&b':'));
            if !is_key && !text[inside.clone()].contains(&b'\\') {
                inside.filter(|&at| text[at].is_ascii()).for_each(|at| free(at, 0, CHARACTER));
            }
            at = end;
        }
        Shape { least, more, places }
    }

    #[inline]
    fn is_that_of(&self, text: &[u8]) -> bool {
        if text.len() != self.least.len() {
            return false;
        }
        let Some([whole, last]) = blocks::parts(text) else { return fit(text, &self.least, &self.more) };
        let rest = text.len() - BLOCK;
        fit(whole, &self.least, &self.more) && fit(last, &self.least[rest..], &self.more[rest..])
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::Part;
    use super::*;

    fn scanned(text: &[u8]) -> Result<Places, usize> {
        let paths = [vec![Part::Key("id".into())], vec![Part::Key("a".into()), Part::Index(1)]];
        let mut places = Places::default();
        json::find(text, &paths, &mut places[..2])?;
        Ok(places)
    }

    #[test]
    fn a_text_of_a_known_shape_has_its_values_where_a_scan_finds_them() {
        let first = r#"{"a":["x y", "é!",1],"b" : "\"id\":", "n":-1.5e3, "id": 4711}"#;
        let mut shapes = Shapes::default();
        assert_eq!(shapes.places_in(first.as_bytes()), None);
        shapes.learn(first.as_bytes(), scanned(first.as_bytes()).unwrap());
        let alike = r#"{"a":["{:,", "é[",7],"b" : "\"id\":", "n":-0.0e9, "id": 1234}"#;
        for text in [first, alike] {
            assert_eq!(shapes.places_in(text.as_bytes()), Some(&scanned(text.as_bytes()).unwrap()));
        }
        assert_eq!(shapes.places_in(&first.as_bytes()[1..]), None);
    }

    #[test]
    fn no_change_of_a_text_has_another_place_than_a_scan_finds() {
        let random = &mut fastrand::Rng::with_seed(1);
        let texts: [&[u8]; 2] =
            [br#"{"a":[{},"x",[1,"y"]],"b":"\\","c":true,"id":"42","d":{"id":1}}"#, br#"{"id":"7"}"#];
        let mut shapes = Shapes::default();
        texts.iter().for_each(|text| shapes.learn(text, scanned(text).unwrap()));
        let mut known = 0;
        for case in 0..100_000 {
            let mut text = texts[case % 2].to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..text.len());
                text[at] = *random.choice(br#"{}[]",:\09azA e-"#).unwrap();
            }
            shapes.missed = 0;
            if let Some(places) = shapes.places_in(&text) {
                known += 1;
                assert_eq!(Ok(*places), scanned(&text), "{}", String::from_utf8_lossy(&text));
            }
        }
        assert!(known > 1000, "{known}");
    }

    #[test]
    fn records_that_are_never_alike_are_not_learnt_for_long() {
        let mut shapes = Shapes::default();
        for length in 1..2 * MISSES as usize {
            let text = vec![b'1'; length];
            assert_eq!(shapes.places_in(&text), None);
            shapes.learn(&text, Places::default());
        }
        assert_eq!((shapes.learnt, shapes.all.len()), (MOST as u64, MOST));
        assert_eq!(shapes.places_in(b"1"), None, "it has stopped looking");
    }
}
