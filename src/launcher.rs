//! The launcher: one per node; reports what the node has, and runs the workloads that the scheduler gives it.
//!
//! - [`agent`]: what it decides, as a pure state machine; no clock, no files, no processes.
//! - [`run()`]: the loop that drives it over a connection, with [`Config`] saying how.
//! - `traces`: the way that traced STARTs took.
//! - [`detect`]: what a machine is and has, found on it.
//! - `process`, `supervise`, `usage`, `host`, `state`: real workloads on this machine. Each has a supervisor process of
//!   its own between itself and the launcher, so that a launcher can end, crash or be replaced without them.
//! - `images`: programs that are shipped: the cache of those that are on the node, and how others are fetched.
//! - `backlog`: what could not be written to the state directory yet.
//! - `orphans`, `kept`, `trash`: what is left of an instance whose supervisor was killed; output of those that have ended;
//!   files that are being deleted.
//! - `control`, `lease`, `limits`, `cgroup`: what supervisors are asked, until when they may go on, and what their
//!   workloads may take.
//! - `affinity`: on which processors a process runs.
//! - [`simulate`]: a simulated machine in their place, for load tests with thousands of nodes in one process.
//!
//! A program that runs launchers must answer [`supervise::WORD`] as its first argument with [`supervise::run`].

mod affinity;
pub mod agent;
pub mod answers;
mod backlog;
mod cgroup;
mod config;
mod connection;
mod control;
mod descriptors;
pub mod detect;
mod dial;
mod files;
pub mod first;
mod host;
mod images;
mod kept;
#[cfg_attr(
    not(feature = "test-support"),
    expect(unreachable_pub, reason = "the simulation sees it with that feature")
)]
mod leader_term;
mod lease;
mod limits;
mod metrics;
mod orphans;
mod process;
mod procfs;
mod readers;
mod run;
pub mod simulate;
mod state;
pub mod supervise;
mod traces;
mod trash;
mod usage;

use std::path::{Path, PathBuf};

use proto_frames::Uuid;

pub use affinity::own_processors;
pub use cgroup::CgroupError;
pub use config::{
    Config, DEFAULT_CPU_RATIO, DEFAULT_LEASE, DEFAULT_PRESSURE_FILE, DEFAULT_PRESSURE_LIMIT,
    DEFAULT_RECONNECT_CAP, DEFAULT_REPORT_INTERVAL, DEFAULT_STOP_GRACE, DEFAULT_SWAP_LIMIT,
    LauncherError, MachineConfig,
};
pub use host::{Share, ShareError};
pub use images::{CacheConfig, DEFAULT_CACHE_QUOTA, PLACEHOLDER, placeholder};
pub use kept::{DEFAULT_KEEP_OUTPUT_BYTES, DEFAULT_KEEP_OUTPUT_FOR, KeepOutput};
#[cfg(feature = "test-support")]
pub use leader_term::LeaderTerm;
pub use metrics::metrics_address;
pub use run::run;
pub use state::StateError;

/// The UUID of the node whose state directory this is, if it is one.
#[must_use]
pub fn node_uuid(state_dir: &Path) -> Option<Uuid> {
    state::known_uuid(state_dir)
}

/// The file that holds what an instance has written to its standard output and standard error, as long as the launcher
/// with this state directory knows the instance.
#[must_use]
pub fn output_file(state_dir: &Path, instance_uuid: &str) -> PathBuf {
    state::instance_dir(state_dir, instance_uuid).output()
}
