//! Checks the session of a plan: every number that names something names something that there is. Part of the check of
//! the plan.

use super::fields::{self, Field};
use super::json;
use super::template::{MOST_IN_SEVENS, Piece, bytes};
use super::{Action, Await, MOST_STEPS, Rooms, Rule, Session, Step, Test, is_postmark};

/// A mebibyte times sixteen, as the longest message of the scenario echo.
const LONGEST: usize = 16 << 20;
const MOST_RULES: usize = 64;

type Checked = Result<(), String>;

impl Session {
    /// The first fault: key, value found, what is allowed.
    pub fn check(&self) -> Checked {
        require((1..=LONGEST).contains(&self.longest), "longest", self.longest, "1 to 16777216")?;
        let found = self.fields.len();
        require(found <= fields::MOST, "fields", found, &format!("at most {}", fields::MOST))?;
        let paths =
            self.fields.iter().filter_map(|field| if let Field::Json { path } = field { Some(path) } else { None });
        require(paths.clone().count() <= json::MOST_PATHS, "fields", paths.clone().count(), "at most 8 of kind json")?;
        for path in paths {
            require(path.len() <= json::LONGEST_PATH, "fields", path.len(), "paths of at most 8 parts")?;
        }
        let found = self.rules.len();
        require((1..=MOST_RULES).contains(&found), "rules", found, "1 to 64")?;
        self.rules.iter().try_for_each(|rule| self.check_rule(rule))?;
        self.templates.iter().flatten().try_for_each(|piece| self.check_piece(piece))?;
        self.check_steps()?;
        for keepalive in &self.keepalives {
            self.names_template("keepalives", keepalive.template)?;
            let every_s = keepalive.every_s;
            require((0.1..=86_400.0).contains(&every_s), "keepalives", every_s, "every 0.1 to 86400 seconds")?;
        }
        let Some(Rooms { count, publishers, .. }) = self.rooms else { return Ok(()) };
        require(count >= 1, "rooms.count", count, "at least 1")?;
        require(publishers != Some(0), "rooms.publishers", 0, "at least 1, or null")?;
        // Nobody expects copies of these.
        let answers = self.rules.iter().filter_map(|rule| match rule.does {
            Action::Answer { template } => Some(template),
            _ => None,
        });
        let mut besides = self.keepalives.iter().map(|keepalive| keepalive.template).chain(answers);
        let marked = |&template: &usize| self.templates[template].iter().any(|piece| piece.has(&is_postmark));
        match besides.find(marked) {
            Some(template) => require(false, "templates", template, "in rooms, a postmark only in what a step sends"),
            None => Ok(()),
        }
    }

    fn check_rule(&self, rule: &Rule) -> Checked {
        for test in &rule.when {
            if let Test::Is { field, .. } | Test::Has { field } | Test::Lacks { field } = test {
                self.names_field("rules", *field)?;
            }
        }
        for &(field, slot) in &rule.captures {
            self.names_field("rules", field)?;
            require(slot < self.captured, "rules", slot, "captures below `captured`")?;
        }
        match rule.does {
            Action::Reply { by: Some(field), .. } | Action::Fail { by: Some(field), .. } => {
                self.names_field("rules", field)
            }
            Action::Answer { template } => self.names_template("rules", template),
            _ => Ok(()),
        }
    }

    fn check_piece(&self, piece: &Piece) -> Checked {
        match piece {
            Piece::Bytes(digits) => {
                require(bytes(digits).is_some(), "templates", digits, "pairs of hexadecimal digits")
            }
            Piece::Captured(slot) => require(*slot < self.captured, "templates", slot, "values below `captured`"),
            Piece::Column(column) => require(self.data.is_some(), "templates", column, "no column without `data`"),
            Piece::Letters(count) => {
                require(*count <= MOST_IN_SEVENS.min(LONGEST), "templates", count, "at most 16777216")
            }
            Piece::Counted { pieces, .. } => pieces.iter().try_for_each(|piece| self.check_piece(piece)),
            Piece::Text(_) | Piece::Number(_) | Piece::Identifier(_) | Piece::Postmark(_) => Ok(()),
        }
    }

    fn check_steps(&self) -> Checked {
        let found = self.steps.len();
        require(found <= MOST_STEPS, "steps", found, &format!("at most {MOST_STEPS}"))?;
        require(self.setup <= found, "setup", self.setup, "at most the number of `steps`")?;
        for (place, Step { sends, awaits, .. }) in self.steps.iter().enumerate() {
            if let Some(template) = sends {
                self.names_template("steps", *template)?;
            }
            let in_body = place >= self.setup;
            match awaits {
                Await::Rule { rule } => {
                    require(*rule < self.rules.len(), "steps", rule, "a rule")?;
                    let replies = matches!(self.rules[*rule].does, Action::Reply { .. });
                    require(replies || !in_body, "steps", rule, "a rule that replies, except in the setup")?;
                }
                Await::Own {} | Await::Nothing {} if in_body == matches!(awaits, Await::Own {}) => {}
                Await::Own {} => return require(false, "steps", "own", "a rule, or nothing, in the setup"),
                Await::Nothing {} => return require(false, "steps", "nothing", "a rule, or own, behind the setup"),
            }
            require(sends.is_some() || !in_body, "steps", place, "something to send, behind the setup")?;
        }
        Ok(())
    }

    fn names_field(&self, key: &str, field: usize) -> Checked {
        require(field < self.fields.len(), key, field, "a field")
    }

    fn names_template(&self, key: &str, template: usize) -> Checked {
        require(template < self.templates.len(), key, template, "a template")
    }
}

fn require(holds: bool, key: &str, found: impl std::fmt::Display, allowed: &str) -> Checked {
    if holds { Ok(()) } else { Err(format!("`scenario.{key}` is {found}; allowed: {allowed}")) }
}
