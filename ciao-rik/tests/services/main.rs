//! `ciao-rik` as its clients see it: the built program before a real scheduler, with clients generated from the same
//! `.proto` files as controllers and workers.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../../../tests/common/certs.rs"]
mod certs;
mod connections;
#[path = "../../../tests/common/guarded.rs"]
mod guarded;
mod hostile;
mod instances;
mod peers;
#[path = "../../../ciao-adapter/tests/common/process.rs"]
mod process;
mod refusals;
mod renewal;
mod restarts;
#[path = "../../src/rpc.rs"]
mod rpc;
mod sets;
mod tokens;
mod workers;
mod world;
