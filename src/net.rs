//! TLS identity, one peer connection, and the client's end of the handshake. Knows frames, not policy.
//!
//! ```text
//! address, directory     where to connect, which files to use
//! tls, identity          who the other side is, by its certificate
//! dial                   TCP connections to the addresses of a name
//! fence                  until when a leader among several schedulers may send
//! socket, ahead          a TLS connection with what the kernel says of it, read in large pieces
//! peer, outbox, budget   one connection's task, its queue, and what slows its sender down
//! link                   a client's connection: all of these together, behind a sender and a receiver
//! ```
//!
//! The daemon (`server`) uses [`peer`] with a handler of its own; launchers, controllers and tools use [`link`].

pub mod address;
pub(crate) mod ahead;
pub mod budget;
pub mod closing;
pub(crate) mod dial;
pub mod directory;
pub mod fence;
pub mod identity;
pub mod link;
pub mod outbox;
pub mod peer;
pub mod socket;
pub mod tls;
