//! How the keys of a plan are read.

use serde::{Deserialize, Deserializer};

/// Makes an `Option` key required: `null` must be written, not omitted.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}
