//! A client's link against a scripted server over real sockets and TLS: the handshake's outcomes, order, back-pressure,
//! and every way it can end.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "common/certs.rs"]
mod certs;
#[path = "common/messages.rs"]
mod messages;

#[path = "link/ends.rs"]
mod ends;
#[path = "link/frames.rs"]
mod frames;
#[path = "link/handshake.rs"]
mod handshake;
#[path = "link/server.rs"]
mod server;
