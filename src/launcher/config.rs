//! What a launcher is to be, and why it may have to end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use proto_frames::{Encoding, Role, Uuid};

use super::agent::{Features, PressureLimits, Workloads};
use super::cgroup::CgroupError;
use super::host::Share;
use super::images::CacheConfig;
use super::kept::KeepOutput;
use super::simulate::Simulation;
use super::state::StateError;
use super::supervise::Program;
use crate::net::address::Endpoint;
use crate::net::link::{ConnectError, Timeouts};
use crate::net::tls::ClientTls;
use crate::printable::Printable;

/// Time between two reports; the original's.
pub const DEFAULT_REPORT_INTERVAL: Duration = Duration::from_secs(6);

/// Time between asking a workload to end and killing it; docker's.
pub const DEFAULT_STOP_GRACE: Duration = Duration::from_secs(10);

/// Vcpus allotted for each processor; the scheduler's default.
pub const DEFAULT_CPU_RATIO: f64 = 16.0;

/// Where the kernel says how long processes wait for memory (`Documentation/accounting/psi.rst`).
pub const DEFAULT_PRESSURE_FILE: &str = "/proc/pressure/memory";

/// From where on nodes count as short of memory, in percent of the time: half of it is lost then. systemd-oomd kills
/// from 60% on.
pub const DEFAULT_PRESSURE_LIMIT: i64 = 50;

/// The same in percent of the swap space: systemd-oomd's.
pub const DEFAULT_SWAP_LIMIT: i64 = 90;

/// How long after a report that the scheduler has heard the instances run that may then be started elsewhere: some
/// reports can be lost, and a cluster need not wait for ever.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// Longest wait before the next try to connect. Shorter than the original's 40 s, so that a cluster is whole again within
/// seconds after its scheduler is; a refused dial costs next to nothing.
pub const DEFAULT_RECONNECT_CAP: Duration = Duration::from_secs(5);

/// What a launcher is to be. [`Config::new`] has a default for all that is not needed.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the scheduler may be, in the order to try.
    pub endpoints: Vec<Endpoint>,
    /// How many of them, the first, were said (`-server`); the others are those of last resort.
    pub servers_said: usize,
    /// Own certificate and trusted CA, of each dial.
    pub tls: ClientTls,
    /// Roles to claim: AGENT, NETAGENT or both.
    pub role: Role,
    /// Encoding to speak.
    pub encoding: Encoding,
    /// Limits of the connection.
    pub timeouts: Timeouts,
    /// Longest wait before the next try to connect.
    pub reconnect_cap: Duration,
    /// Time between two reports.
    pub report_interval: Duration,
    /// Time between asking a workload to end and killing it.
    pub stop_grace: Duration,
    /// Vcpus allotted for each processor, where the scheduler does not say.
    pub cpu_ratio: f64,
    /// Where the kernel says how long processes wait for memory.
    pub pressure_file: PathBuf,
    /// From where on a node is short of memory and takes no more work.
    pub pressure_limits: PressureLimits,
    /// How long after a report that the scheduler has heard instances with `on_node_loss: restart` run; `None` = the
    /// nodes take no leases. Several times the report interval.
    pub lease: Option<Duration>,
    /// What each node says of itself beyond its figures.
    pub features: Features,
    /// The name to report; `None` = the machine's (simulated nodes: `simulated-N`).
    pub hostname: Option<String>,
    /// How much is kept of what ended instances have written, and for how long.
    pub keep_output: KeepOutput,
    /// Where metrics are served over plain HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// What becomes of running workloads at shutdown.
    pub at_shutdown: Workloads,
    /// What runs the workloads.
    pub machine: MachineConfig,
}

/// What runs the workloads.
#[derive(Debug, Clone)]
pub enum MachineConfig {
    /// This machine does.
    Real {
        /// Where to keep what must survive a restart; one launcher each.
        state_dir: PathBuf,
        /// The node's UUID; `None` = the one in the state directory, or a new one that is kept there.
        uuid: Option<Uuid>,
        /// How much of the machine to hand out.
        share: Share,
        /// The program to run as supervisor of each workload.
        supervisor: Program,
        /// The cgroup (version 2) under which instances have theirs; `None` = the launcher's own, where it was given away
        /// to it, or none.
        cgroup: Option<PathBuf>,
        /// Where images are kept; `None` = in the state directory.
        images: Option<CacheConfig>,
    },
    /// Nothing does: so many simulated nodes, each with a connection of its own.
    Simulated {
        /// Resources of each node.
        simulation: Simulation,
        /// UUID of each node.
        uuids: Vec<Uuid>,
    },
}

/// Why a launcher ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// Its state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The scheduler cannot be reached, and trying again would not help.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The scheduler refuses this launcher for good; its words.
    #[error("the scheduler refuses this launcher: {0}")]
    Refused(Printable),
    /// The directory of images cannot be used.
    #[error("cannot use the directory of images (--blob-cache) {}: {source}", path.display())]
    BlobCache {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The cgroup asked for cannot be used.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A node is to share the resources of another, which is itself.
    #[error(
        "--shares {0} is this node's own UUID; give that of the node whose resources it shares"
    )]
    SharesItself(Uuid),
    /// Metrics cannot be served where they were to be.
    #[error("cannot serve metrics at {address} (--metrics): {source}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// A part of the launcher panicked, which is a defect of it.
    #[error("internal error: {0}")]
    Internal(#[from] tokio::task::JoinError),
}

impl Config {
    /// A launcher with the defaults of the command line.
    #[must_use]
    pub fn new(
        endpoints: Vec<Endpoint>,
        tls: impl Into<ClientTls>,
        role: Role,
        machine: MachineConfig,
    ) -> Self {
        Self {
            endpoints,
            servers_said: 0,
            tls: tls.into(),
            role,
            encoding: Encoding::Native,
            timeouts: Timeouts::default(),
            reconnect_cap: DEFAULT_RECONNECT_CAP,
            report_interval: DEFAULT_REPORT_INTERVAL,
            stop_grace: DEFAULT_STOP_GRACE,
            cpu_ratio: DEFAULT_CPU_RATIO,
            pressure_file: DEFAULT_PRESSURE_FILE.into(),
            pressure_limits: PressureLimits {
                stalled_percent: Some(DEFAULT_PRESSURE_LIMIT),
                swap_percent: Some(DEFAULT_SWAP_LIMIT),
            },
            lease: Some(DEFAULT_LEASE),
            features: Features::default(),
            hostname: None,
            keep_output: KeepOutput::default(),
            metrics: None,
            at_shutdown: Workloads::Leave,
            machine,
        }
    }
}
