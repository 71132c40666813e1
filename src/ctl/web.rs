//! `ciaoctl web`: the scheduler's page for a browser without a certificate. A server on loopback holds the certificate and
//! passes requests on.
//!
//! ```text
//! browser ──HTTP/1.1, loopback──▶ gate ──▶ upstream ──HTTP/2, mutual TLS──▶ scheduler
//! ```
//!
//! - `gate` decides whether a request is from the browser that was given the address: one-time token, cookie, host, origin,
//!   and for commands a header that no other page can send.
//! - `upstream` is the one connection to the scheduler, made again when it is lost.
//! - `serve` accepts connections and passes requests and answers on, streams included.
//! - `limits` has every limit.

mod gate;
mod limits;
mod run;
mod serve;
mod upstream;

pub use gate::own_address;
pub(super) use run::{Open, serve};
pub use serve::{Web, WebConfig, WebError};
