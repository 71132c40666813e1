//! `ciaoctl` as its users meet it: the built program against a scheduler that a test scripts.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "common/certs.rs"]
mod certs;

#[path = "ciaoctl/connecting.rs"]
mod connecting;
#[path = "ciaoctl/ending.rs"]
mod ending;
#[path = "ciaoctl/listing.rs"]
mod listing;
#[path = "ciaoctl/load.rs"]
mod load;
#[path = "ciaoctl/scheduler.rs"]
mod scheduler;
#[path = "ciaoctl/session.rs"]
mod session;
#[path = "ciaoctl/starting.rs"]
mod starting;
