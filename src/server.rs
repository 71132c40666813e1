//! The daemon: sockets, handshakes, sessions, queues, and the core behind its lock. No policy of its own.

mod accept;
mod audit;
mod configuration;
#[cfg(feature = "test-support")]
pub mod fuzz_support;
mod gate;
mod handshake;
mod heartbeat;
mod http;
mod hub;
mod images;
mod limits;
mod measured;
mod node_file;
mod notices;
mod placement;
mod profile;
mod restore;
mod rules_file;
mod session;
#[cfg(feature = "test-support")]
pub mod sim_support;
mod start;
mod state;
#[cfg_attr(
    not(feature = "test-support"),
    expect(unreachable_pub, reason = "a benchmark sees it with that feature")
)]
mod store;
mod strict;
mod tasks;
mod timed;
mod twins;
mod wire;
mod words;

pub use configuration::DEFAULT_URI;
pub use images::{DEFAULT_BLOB_QUOTA, DEFAULT_BLOB_RATE, ImagesConfig};
pub use limits::{
    ACCEPT_BACKLOG, CONNECT_DEADLINE, CONTROLLER_BUDGET, DEFAULT_HTTP_PORT, DEFAULT_PORT,
    DRAIN_DEADLINE, HANDSHAKE_SHARE, HIGH_WATER, LAUNCHER_BUDGET, MAX_ACCEPT_PAUSE, MAX_HANDSHAKES,
    MAX_UNCHARGED_CONTROLLER, MAX_UNCHARGED_LAUNCHER, MAX_UNCHARGED_OPERATOR, MAX_WAIT_FOR_PLACE,
    MIN_ACCEPT_PAUSE, PRESSED_FIRST_BYTE, PRESSED_HANDSHAKE, PRESSED_SILENCE, RESERVED_FILES,
    ServerLimits, TLS_DEADLINE, WAITING_PER_PLACE, parse_ratio,
};
pub use node_file::NodeFileError;
pub use placement::{PlacementConfig, PlacementError, TokensError};
pub use profile::Profile;
pub use start::{Server, ServerConfig, StartError};
#[cfg(feature = "test-support")]
pub use store::{News, Opened, Store};
pub use strict::Mistake;
pub use tasks::TaskEnded;
pub(crate) use tasks::told;
