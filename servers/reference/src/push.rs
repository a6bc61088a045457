//! How a broadcast reaches the other event loops: an inbox and an eventfd each. Knows no connection.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// What follows `broadcast `, valid UTF-8.
pub type Token = Arc<[u8]>;

pub struct Hub(Vec<Inbox>);

struct Inbox {
    tokens: Mutex<Vec<Token>>,
    wake: OwnedFd,
}

impl Hub {
    pub fn new(loops: usize) -> rustix::io::Result<Self> {
        let inbox = |_| {
            let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            Ok(Inbox { tokens: Mutex::default(), wake })
        };
        (0..loops).map(inbox).collect::<Result<_, _>>().map(Hub)
    }

    /// Becomes readable when `take` has something for that loop.
    pub fn wake(&self, number: usize) -> BorrowedFd<'_> {
        self.0[number].wake.as_fd()
    }

    /// Hands the token to every loop but the sender's own, which delivers it directly.
    pub fn post(&self, sender: usize, token: &Token) {
        for (number, inbox) in self.0.iter().enumerate() {
            if number != sender {
                inbox.tokens.lock().expect("a panic aborts").push(token.clone());
                // Full is the only failure, and a full counter wakes as well.
                let _ = rustix::io::write(&inbox.wake, &1u64.to_ne_bytes());
            }
        }
    }

    pub fn take(&self, number: usize) -> Vec<Token> {
        let inbox = &self.0[number];
        let _ = rustix::io::read(&inbox.wake, &mut [0; 8]);
        std::mem::take(&mut inbox.tokens.lock().expect("a panic aborts"))
    }
}

pub fn epoch_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros()
}
