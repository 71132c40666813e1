//! The Placement API, read-only: what OpenStack's clients ask of its Placement service, answered from the live table. A
//! neighbour of [`http`](super::http), whose builder of connections and whose deadlines it uses.
//!
//! ```text
//! accept ── token ── version ── path ──┬── providers, allocations, classes   rows of nodes, some at a time
//!                                      └── candidates                        the search of a choice, which claims nothing
//! ```
//!
//! - Nodes are resource providers, labels are traits, aggregates of the configuration are aggregates; [`names`] has how
//!   each is called.
//! - The core's lock is taken in steps of a few rows; what is read is turned into JSON outside it.
//! - On loopback addresses it is plain HTTP, on all others HTTPS; [`tokens`] says who may ask.

mod allocations;
mod candidates;
mod classes;
mod door;
mod fault;
mod limits;
mod names;
mod params;
mod providers;
mod tokens;
mod version;

use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) use self::door::{Door, load};
pub(super) use self::tokens::Tokens;
pub use self::tokens::TokensError;

/// How the Placement API is offered.
#[derive(Debug, Clone)]
pub struct PlacementConfig {
    /// Addresses to listen on: with HTTP on loopback addresses, with HTTPS on others.
    pub listen: Vec<SocketAddr>,
    /// File with the tokens that are let in, one a line.
    pub tokens: PathBuf,
}

/// Why the Placement API cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The tokens cannot be used.
    #[error("cannot use the tokens in {}: {source}", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TokensError,
    },
}
