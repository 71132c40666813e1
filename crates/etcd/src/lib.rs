//! A client of etcd v3, and the election of one scheduler among several by it.
//!
//! - [`Client`]: calls of etcd's gRPC API with a deadline each, at one of several members. It knows nothing of
//!   schedulers.
//! - [`election`]: who leads, and until when it may send: a pure state machine, without clock or network.
//!
//! What is written under a term, and how the daemon uses both, is the daemon's part.

mod client;
pub mod election;
mod messages;

pub use client::{
    Alarm, Client, Compare, ConfigError, DEFAULT_QUOTA, Error, EtcdConfig, Event, Listing,
    MemberStatus, Op, Tls, Txn, TxnAnswer, User, Watch, range_end,
};
pub use messages::KeyValue;
