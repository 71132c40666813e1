//! TLS identity, one peer connection, and the client's end of the handshake. Knows frames, not policy.

pub mod address;
pub(crate) mod ahead;
pub mod budget;
pub mod closing;
pub mod directory;
pub mod identity;
pub mod link;
pub mod outbox;
pub mod peer;
pub mod socket;
pub mod tls;
