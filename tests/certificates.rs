//! Certificates: what the original's look like to us, who is admitted in a real handshake, and the program `ciao-cert`.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "common/certs.rs"]
mod certs;

#[path = "certificates/chains.rs"]
mod chains;
#[path = "certificates/files.rs"]
mod files;
#[path = "certificates/foreign.rs"]
mod foreign;
#[path = "certificates/golden.rs"]
mod golden;
#[path = "certificates/handshake.rs"]
mod handshake;
#[path = "certificates/lists.rs"]
mod lists;
#[path = "certificates/program.rs"]
mod program;
#[path = "certificates/revocation.rs"]
mod revocation;
#[path = "certificates/unusable.rs"]
mod unusable;
