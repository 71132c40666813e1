//! TLS identity, one peer connection, and the client's end of the handshake. Knows frames, not policy.

pub mod address;
pub mod identity;
pub mod link;
pub mod tls;
