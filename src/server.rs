//! The daemon: sockets, handshakes, sessions, queues, and the core behind its lock. No policy of its own.
//!
//! The way of a frame through the daemon:
//!
//! 1. `accept` takes the connection from a listener; `gate` gives it one of the places for handshakes; `handshake`
//!    takes it through TLS and CONNECT (`timed` tells a slow peer from a slow scheduler, `twins` slows two machines
//!    down that share one UUID).
//! 2. `session` is that connection from then on. It has `wire` read each frame as an input of the core, and hands a
//!    batch of inputs to `hub`.
//! 3. `hub` handles the batch under the core's lock, has `sentences` write the sentences into each action, and puts
//!    messages into the queues of their receivers; a receiver's own task writes them, with bytes from `wire`.
//!
//! Beside that: `store` keeps records on disk and `restore` reads them at start; `state` keeps the scheduler's UUID and
//! the list of nodes; `images` keeps images; `http` and `placement` are further ways in; `notices`, `audit` and
//! `heartbeat` write the log, `expiry` says which certificates run out; `tasks` notices when a part of the daemon has ended. The files that operators write are
//! read by `configuration`, `rules_file` and `node_file`, all with `strict`. `credentials` are the certificates, keys and
//! tokens in force; `reload` reads all files again while the daemon runs, `watch` sees when they have changed. `start` puts
//! everything together.
//!
//! What is decided is decided in `sched-core`; how one connection is read and written is in [`crate::net`].

mod accept;
mod audit;
mod configuration;
mod connection_limit;
mod credentials;
mod expiry;
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
mod reload;
mod restore;
mod rules_file;
mod schedulers;
mod sentences;
mod session;
mod shared;
#[cfg(feature = "test-support")]
pub mod sim_support;
mod standby;
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
mod watch;
mod wire;

// The programs in `src/bin` see what follows, and nothing else of the server: a configuration goes in, errors come out,
// and the limits are what their flags have as defaults.
pub use configuration::DEFAULT_URI;
pub use configuration::again::FileRefused;
pub use hub::STORE_DEADLINE;
pub use images::{DEFAULT_BLOB_QUOTA, DEFAULT_BLOB_RATE, ImagesConfig};
pub use limits::{
    ACCEPT_BACKLOG, CONNECT_DEADLINE, CONTROLLER_BUDGET, DEFAULT_HTTP_PORT, DEFAULT_PORT,
    DRAIN_DEADLINE, HANDSHAKE_SHARE, HIGH_WATER, LAUNCHER_BUDGET, MAX_ACCEPT_PAUSE, MAX_HANDSHAKES,
    MAX_UNCHARGED_CONTROLLER, MAX_UNCHARGED_LAUNCHER, MAX_UNCHARGED_OPERATOR, MAX_WAIT_FOR_PLACE,
    MIN_ACCEPT_PAUSE, PRESSED_FIRST_BYTE, PRESSED_HANDSHAKE, PRESSED_SILENCE, RESERVED_FILES,
    ServerLimits, TLS_DEADLINE, WAITING_PER_PLACE, parse_ratio,
};
pub use node_file::NodeFileError;
pub use placement::{PLACEMENT_PATH, PlacementConfig, PlacementError, TokensError};
pub use profile::{Profile, ProfileError};
pub use reload::ReloadConfig;
pub use schedulers::{HandOver, Schedulers};
pub use shared::{Entries, Found, INSTANCE_RECORDS, SharedDocument, SharedStore, TakeOver};
pub use standby::Standby;
pub use start::{Server, ServerConfig, StartError};
pub use store::{HISTORY_BYTES, HISTORY_TIME, HistoryLimits};
// Only a benchmark and the tests of the store use these from outside.
#[cfg(feature = "test-support")]
pub use store::{News, Opened, Store};
pub use strict::Mistake;
pub use tasks::TaskEnded;
// `crate::dev` waits with it for what ends its scheduler.
pub(crate) use tasks::told;
