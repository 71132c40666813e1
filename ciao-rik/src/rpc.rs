//! The messages and services, as generated from `proto`.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::wildcard_imports,
    clippy::too_many_lines,
    reason = "generated; the tests use the clients"
)]

/// What both services speak of.
pub mod common {
    tonic::include_proto!("common");
}

/// What workers call.
pub mod worker {
    tonic::include_proto!("worker");
}

/// What controllers call.
pub mod controller {
    tonic::include_proto!("controller");
}
