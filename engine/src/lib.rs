//! The load engine: `run` carries out a `plan`. It is a library only so that its parsers can be
//! fuzzed from outside; the program is `main`.

mod accounts;
mod blocks;
mod broadcasting;
mod check;
mod clock;
mod connection;
pub mod console;
mod control;
mod conversing;
mod counts;
#[cfg(any(test, fuzzing))]
pub mod cuts;
mod deflate;
mod draining;
mod emit;
mod ending;
mod failure;
mod frame;
#[cfg(test)]
mod fuzz;
pub mod gate;
mod handshake;
mod http;
mod keys;
pub mod leash;
mod lending;
mod merge;
mod message;
mod names;
mod opening;
mod outbox;
mod overdue;
mod pacing;
mod phases;
pub mod plan;
mod poll;
mod push;
mod receiving;
mod record;
mod rooms;
pub mod run;
mod scenario;
mod schedule;
mod sending;
mod session;
#[cfg(test)]
mod simulation;
mod siphash;
mod slices;
mod stamp;
mod stops;
mod sweep;
mod system;
mod tags;
mod timeline;
mod tls;
mod users;
mod worker;
