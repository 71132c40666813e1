//! The scheduler daemon, its launcher, the operator's client and the certificate tool, as one library; the programs
//! in `src/bin` are boot sequences over it.
//!
//! One of several schedulers is `cluster`, with the feature `etcd`.
//!
//! Layers, each knowing only what stands below it: [`server`], [`launcher`], [`ctl`], [`load`], [`dev`] (tasks, sockets, files,
//! processes) over [`net`] (TLS identity, one peer connection) over the crates `sched_core` (the scheduler as a pure state machine) and
//! `proto_frames` (bytes in, values out).

pub mod cert;
#[cfg(feature = "etcd")]
pub mod cluster;
pub mod ctl;
pub mod dev;
mod edit;
mod file_list;
pub mod flags;
mod image_file;
pub mod launcher;
mod line_queue;
pub mod load;
pub mod logging;
pub mod net;
pub mod printable;
pub mod private;
pub mod server;
pub mod shutdown;
pub mod start_warnings;

/// What `--version` says: the version, then of an optimised build its commit, and the profile.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("CIAO_BUILD"), ")");
