//! The operations that a worker needs from the machine: clocks, sockets, and events on them. The
//! worker does not depend on epoll: `poll` is the real machine, `simulation` a simulated one.

use crate::clock::Usage;
use crate::plan::Plan;
use std::io;

/// The events wanted for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Errors and hang-ups only.
    Nothing,
    Read,
    ReadWrite,
}

/// Something new at a socket. It is told once: what of it is left over, nobody tells again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub index: usize,
    pub writable: bool,
    /// The end of the stream, an error or urgent data has come: a read that does not fill its buffer is not the last.
    pub goes_on: bool,
}

pub trait System {
    /// Closed when it is dropped.
    type Socket;
    /// A socket's name while it is open.
    type Handle: Copy;

    fn handle(socket: &Self::Socket) -> Self::Handle;

    /// `CLOCK_MONOTONIC`, the time base of every measurement.
    fn now_ns(&self) -> u64;

    /// The wall clock, which may be set at any time.
    fn unix_ns(&self) -> u64;

    /// How far it is ahead of the monotonic one.
    fn to_unix_ns(&self) -> u64;

    fn usage(&self) -> Usage;

    /// Begins to connect connection `number` of the plan, without waiting.
    fn connect(&mut self, plan: &Plan, number: u32) -> io::Result<Self::Socket>;

    /// From now on the socket has events, under this index: what is there already is new.
    fn watch(&mut self, socket: Self::Handle, index: usize, interest: Interest) -> io::Result<()>;

    /// What is there is new once more.
    fn change(&mut self, socket: Self::Handle, index: usize, interest: Interest) -> io::Result<()>;

    /// The socket's pending error, which this call clears.
    fn error_of(&mut self, socket: Self::Handle) -> io::Result<()>;

    /// `Ok(None)`: no space. A closed peer is an error.
    fn send(&mut self, socket: Self::Handle, bytes: &[u8]) -> io::Result<Option<usize>>;

    /// `Ok(None)`: nothing available. `Ok(Some(0))`: the peer closed. A read that does not fill the buffer leaves nothing,
    /// unless the socket's events say otherwise.
    fn receive(&mut self, socket: Self::Handle, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// From now on the kernel timestamps the arrival of this socket's bytes.
    fn ask_for_stamps(&mut self, socket: Self::Handle) -> io::Result<()>;

    /// As `receive`, with the time at which the kernel had the last of the bytes, in nanoseconds since the epoch.
    fn receive_stamped(&mut self, socket: Self::Handle, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>>;

    /// Shuts down the sending side of the stream; bytes in flight still arrive.
    fn end_sending(&mut self, socket: Self::Handle);

    /// Waits at most this long for events. Returns their number. A socket that has an event and is not reported is
    /// reported before any other one is reported twice.
    fn wait(&mut self, timeout_ns: u64) -> io::Result<usize>;

    /// Whether the last wait reported every socket that had an event.
    fn reported_all(&self) -> bool;

    /// Of the last wait; `None` for a wake-up.
    fn event(&mut self, at: usize) -> Option<Event>;
}
