//! What a worker needs of the machine: clocks, sockets, and word of which of them are ready. It is told these things and knows
//! nothing of epoll: `poll` is the machine itself, `simulation` one that is made up.

use crate::clock::Usage;
use crate::plan::Plan;
use std::io;

/// Which news of a socket are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Errors and hang-ups only.
    Nothing,
    Read,
    ReadWrite,
}

pub trait System {
    /// Closed when it is dropped.
    type Socket;
    /// A socket's name while it is open.
    type Handle: Copy;

    fn handle(socket: &Self::Socket) -> Self::Handle;

    /// `CLOCK_MONOTONIC`; an account of time begins and ends by it.
    fn now_ns(&self) -> u64;

    /// By how much the wall clock is ahead of it.
    fn to_unix_ns(&self) -> u64;

    /// What this thread has used.
    fn usage(&self) -> Usage;

    /// Begins to connect connection `number` of the plan, without waiting.
    fn connect(&mut self, plan: &Plan, number: u32) -> io::Result<Self::Socket>;

    /// From now on there is news of the socket, under this index.
    fn watch(&mut self, socket: Self::Handle, index: usize, interest: Interest) -> io::Result<()>;

    fn change(&mut self, socket: Self::Handle, index: usize, interest: Interest) -> io::Result<()>;

    /// The error that the socket has met, which asking clears.
    fn error_of(&mut self, socket: Self::Handle) -> io::Result<()>;

    /// `Ok(None)`: no room. A peer that is gone is an error.
    fn send(&mut self, socket: Self::Handle, bytes: &[u8]) -> io::Result<Option<usize>>;

    /// `Ok(None)`: nothing there. `Ok(Some(0))`: the peer closed.
    fn receive(&mut self, socket: Self::Handle, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// From now on the kernel says when the bytes of this socket came.
    fn ask_for_stamps(&mut self, socket: Self::Handle) -> io::Result<()>;

    /// As `receive`, with the moment at which the kernel had the last of the bytes, in nanoseconds since the epoch.
    fn receive_stamped(&mut self, socket: Self::Handle, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>>;

    /// Our end of the stream; what is on its way still arrives.
    fn end_sending(&mut self, socket: Self::Handle);

    /// Waits at most so long for news. How many there are.
    fn wait(&mut self, timeout_ns: u64) -> io::Result<usize>;

    /// Of the last wait: the connection's index and whether it can be written; `None` where somebody only woke us.
    fn event(&mut self, at: usize) -> Option<(usize, bool)>;
}
