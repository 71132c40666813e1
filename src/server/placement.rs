//! The Placement API, read-only: what OpenStack's clients ask of its Placement service, answered from the live table. A
//! neighbour of [`http`](super::http), whose builder of connections and whose deadlines it uses.
//!
//! ```text
//! accept ── version ── token ── path ──┬── providers, allocations, classes   rows of nodes, some at a time
//!                                      ├── usages                            sums over all instances of a tenant
//!                                      └── candidates                        the search of a choice; claims nothing
//! ```
//!
//! - [`door`] has connections, authentication and the table of paths; [`version`] the microversion of each request,
//!   [`fault`] the form of errors, [`body`] how many answers are held for clients that do not read them, [`places`] who may stay connected.
//! - [`params`] reads query strings and translates what they ask for into what the core knows.
//! - Nodes are resource providers, labels are traits, aggregates of the configuration are aggregates, instances are
//!   consumers, tenants are projects; [`names`] has how each is called, and the units.
//! - The core's lock is taken in steps of a few rows; what is read is turned into JSON outside it.
//! - On loopback addresses it is plain HTTP, on all others HTTPS; [`tokens`] says who may ask. Client certificates are
//!   not asked for. At the HTTP door it is below [`PLACEMENT_PATH`] (`http/mounted.rs`).
//!
//! Writing is refused. Placement expects its clients to claim by PUT /allocations; here the scheduler alone claims.
//! Answers follow the microversion that a request names, 1.0 to 1.39:
//!
//! ```text
//! GET /resource_providers?resources=VCPU:2&required=CUSTOM_ZONE_EU_1      OpenStack-API-Version: placement 1.39
//!
//! {"resource_providers": [{"uuid": "…", "name": "node-1", "generation": 3, "parent_provider_uuid": null,
//!                          "root_provider_uuid": "…", "links": [{"rel": "self", "href": "…"}, …]}]}
//! ```

mod allocations;
mod body;
mod candidates;
mod classes;
mod door;
mod fault;
mod groups;
mod limits;
mod names;
mod params;
mod places;
mod providers;
mod tokens;
mod usages;
mod version;

use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) use self::body::Writing;
pub use self::door::MOUNT as PLACEMENT_PATH;
pub(super) use self::door::{Door, load};
pub(super) use self::places::Place;
pub use self::tokens::TokensError;
pub(super) use self::tokens::{Digests, follow as follow_tokens};

/// How the Placement API is offered: the flags `--placement` and `--placement-tokens`.
#[derive(Debug, Clone)]
pub struct PlacementConfig {
    /// Addresses of its own to listen on: with HTTP on loopback addresses, with HTTPS on others. None are needed where
    /// the HTTP door is open.
    pub listen: Vec<SocketAddr>,
    /// File with the tokens that are let in, one a line. It must be its owner's alone where key files have to be, else
    /// a warning is logged.
    pub tokens: PathBuf,
}

/// Why the Placement API cannot be offered. The daemon does not start then.
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
