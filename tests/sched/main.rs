//! The scheduler's core in a simulated world: its behaviour as sentences, and its choice against naive evaluations.
//!
//! The folders are those of the core (`sched-core/src`); `support` has what they share.

mod cluster;
mod instance;
mod journal;
mod peers;
mod placement;
mod query;
mod queue;
mod support;
mod workflow;
