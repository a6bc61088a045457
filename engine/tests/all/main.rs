//! All integration tests, as one program: it is linked once, and its tests share the CPUs.

mod bounds;
mod contract;
mod differential;
mod endings;
mod handshakes;
mod hostile;
mod hostile_sessions;
mod loads;
mod loads_open;
mod loads_push;
mod loads_stages;
mod loads_wire;
mod misbehaviour;
mod misbehaviour_http;
mod omission;
mod ping;
mod rooms;
mod sessions;
mod shards;
mod slices;
mod support;
