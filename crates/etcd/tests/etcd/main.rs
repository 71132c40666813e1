//! The client against real members of etcd, as processes of this test: calls, fail-over, alarms, TLS and passwords.
//!
//! Without etcd installed the tests pass, unless `CIAO_REQUIRE_ETCD=1`.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod calls;
mod members;
mod secure;
#[allow(dead_code, reason = "the tests of several schedulers use the rest")]
mod world;
