//! `ciaoctl` as its users meet it: the built program against a scheduler that a test scripts, and for what is decided in
//! the scheduler against the built one.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "common/certs.rs"]
mod certs;
#[path = "common/peer.rs"]
mod peer;
#[path = "common/site.rs"]
mod site;
#[path = "common/words.rs"]
mod words;

#[path = "ciaoctl/command_line.rs"]
mod command_line;
#[path = "ciaoctl/connecting.rs"]
mod connecting;
#[path = "ciaoctl/draining.rs"]
mod draining;
#[path = "ciaoctl/ending.rs"]
mod ending;
#[path = "ciaoctl/explain.rs"]
mod explain;
#[path = "ciaoctl/hostile.rs"]
mod hostile;
#[path = "ciaoctl/interrupting.rs"]
mod interrupting;
#[path = "ciaoctl/lifecycle.rs"]
mod lifecycle;
#[path = "ciaoctl/listing.rs"]
mod listing;
#[path = "ciaoctl/load.rs"]
mod load;
#[path = "ciaoctl/outcomes.rs"]
mod outcomes;
#[path = "ciaoctl/output.rs"]
mod output;
#[path = "ciaoctl/queueing.rs"]
mod queueing;
#[path = "ciaoctl/scheduler.rs"]
mod scheduler;
#[path = "ciaoctl/session.rs"]
mod session;
#[path = "ciaoctl/sets.rs"]
mod sets;
#[path = "ciaoctl/start_files.rs"]
mod start_files;
#[path = "ciaoctl/starting.rs"]
mod starting;
