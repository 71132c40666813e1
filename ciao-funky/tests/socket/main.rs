//! `ciao-funky` as its clients see it: the built program before a real scheduler and real launchers.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../../../tests/common/certs.rs"]
mod certs;
mod defects;
#[path = "../../../tests/common/guarded.rs"]
mod guarded;
mod hostile;
mod many_uploads;
mod one_per_node;
mod peers;
#[path = "../../../ciao-adapter/tests/common/process.rs"]
mod process;
mod renewal;
mod restarts;
#[path = "../../../ciao-adapter/tests/common/scripted.rs"]
mod scripted;
mod shipping;
mod socat;
#[path = "../../../tests/common/supervisors.rs"]
mod supervisors;
mod uploads;
mod world;
