//! Messages that are published in rooms, and the truth about who has them. It is counted by sets, and not as the engine
//! does it.

use std::collections::{BTreeMap, BTreeSet};

/// A message on its way to one client.
pub struct Copy {
    pub opcode: u8,
    pub content: Vec<u8>,
    pub published: Published,
}

/// Which message it is: whose, which of them, and its place among all messages.
#[derive(Clone, Copy)]
pub struct Published {
    pub publisher: u32,
    pub sequence: u32,
    pub number: usize,
}

/// A message that was published: when, and how many members must have it and have it.
pub struct Said {
    pub t_ns: u64,
    pub expected: u64,
    pub received: u64,
}

#[derive(Default)]
pub struct Truth {
    pub said: Vec<Said>,
    pub misplaced: u64,
    pub out_of_order: u64,
    /// By publisher: the number of its latest message.
    pub latest: BTreeMap<u32, u32>,
    /// By client and publisher.
    pub heard: BTreeMap<(u32, u32), BTreeSet<u32>>,
}
