//! `ciaoctl web`: the scheduler's page for a browser without a certificate. A server on loopback holds the certificate
//! and passes requests on.
//!
//! ```text
//! browser ──HTTP/1.1, loopback──▶ gate ──▶ upstream ──HTTP/2, mutual TLS──▶ scheduler
//! ```
//!
//! - `gate` decides whether a request is from the browser that was given the address: one-time token, cookie, host,
//!   origin, and for commands a header that no other page can send.
//! - `upstream` is the one connection to the scheduler, made again when it is lost.
//! - `serve` accepts connections and passes requests and answers on, streams included.
//! - `run` is the command: options in, lines out, an exit code.
//! - `limits` has every limit.
//!
//! Each request that passes acts with the user's certificate. What others could try, and what is against it:
//!
//! | who | what is against it |
//! | --- | --- |
//! | another machine | only loopback addresses are listened on |
//! | another user of this machine, who connects | the cookie, which is given only for a token that was printed |
//! | another user of this machine, who listens on the same host | an address in 127.0.0.0/8 chosen at random |
//! | a page of another origin | `SameSite=Strict`, `Origin`, `Sec-Fetch-Site`, the header `ciao-web` on commands |
//! | a page whose name is made to lead here | `Host` has to be the address itself |
//!
//! This server knows nothing of the page or the API: it looks at no path but `/open`. `ciao-scheduler dev` uses it as
//! well.

mod gate;
mod limits;
mod run;
mod serve;
mod upstream;

pub use gate::own_address;
pub(super) use run::{Open, serve};
pub use serve::{Web, WebConfig, WebError};
