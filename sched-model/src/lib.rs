//! The vocabulary that the scheduler's core and its wire share, defined once. No IO, no format, no policy.
//!
//! `proto-frames` reads and writes these types and re-exports them; `sched-core` decides with them. Neither knows the
//! other.

#![forbid(unsafe_code)]

pub mod role;

pub use role::Role;
pub use uuid::Uuid;
