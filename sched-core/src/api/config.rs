//! The core's settings, each with its default and the reason for it.

use std::time::{Duration, Instant};

use sched_model::{ConfigurationVersion, ReloadState, Reloaded, Uuid};

use crate::api::disk::DISK_PATIENCE;
use crate::api::known_node::KnownNode;
use crate::api::record::Restored;
use crate::api::rules::NodeRule;

/// How long STARTs that were written to a node whose connection ended may wait for the node to come back. Original
/// launchers dial again at once and report on connecting, so 15 s covers a restart of theirs.
pub const IN_DOUBT_TIME: Duration = Duration::from_secs(15);

/// STATS in which an instance must be missing before its claim is dropped: one may have been on its way already, and
/// an original launcher may reorder two.
pub const MISSED_STATS: u8 = 3;

/// Virtual CPUs offered per CPU online (Nova's long-standing default).
pub const CPU_RATIO: f64 = 16.0;

/// How long a START that fits nowhere waits after a restart for nodes that are still coming back, at most: it is over once
/// all are. Launchers of the original dial again after up to 5 s, then after up to 10 s; half are back after 3 s, the last
/// were seen after 17 s.
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(20);

/// STARTs that may wait in the recovery window at once.
pub const MAX_RECOVERING: usize = 16_384;

/// Bytes of payload that may wait in the recovery window at once.
pub const MAX_RECOVERING_BYTES: usize = 64 * 1024 * 1024;

/// How long what ran on a lost node is remembered for the case that it comes back with it.
pub(crate) const LOST_TIME: Duration = Duration::from_secs(3600);

/// Instances one node may hold entries for: beyond that nothing fits it, and what else it lists is left out. Four times what
/// one STATS may list, and far above what a machine can run.
pub const MAX_INSTANCES_PER_NODE: usize = 1 << 16;

/// UUIDs bound to certificates that are remembered: more than the largest cluster this is built for has nodes (100 000).
/// Beyond that a bound UUID is its certificate's alone while that peer is connected, and a warning says so;
/// `--require-uuid-binding` needs no memory.
pub const MAX_BINDINGS: usize = 1 << 17;

/// Kinds of refused frames remembered per session, so that each is logged once.
pub(crate) const MAX_REFUSED_KINDS: usize = 64;

/// How an instance that runs is counted against its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accounting {
    /// As what it asked for, whatever it uses of it.
    #[default]
    Requested,
    /// As what it uses of memory, processor time and disk, once STATS tell that; of the first two as a percentile over
    /// [`Config::measured_window`].
    Measured,
}

/// How far measured accounting looks back: long enough that a nightly job's peak of some minutes counts while it lasts,
/// short enough that what an instance needed to start is given back soon.
pub const MEASURED_WINDOW: Duration = Duration::from_secs(300);

/// What is said of the process that the core runs in, to who asks how it is.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Its version.
    pub version: String,
    /// The certificates it uses: the name of each file, and when it ends, seconds of Unix time.
    pub certificates: Vec<(String, i64)>,
    /// What is logged, for people; empty where the process does not say.
    pub log_levels: String,
    /// The version of the cluster configuration in force; `None` while there is none.
    pub configuration: Option<ConfigurationVersion>,
    /// Since when files that were to be read again are not in force, and the mistake in them.
    pub reload_refused: Option<(Instant, Box<str>)>,
}

impl About {
    /// Files were read again. A mistake in them is said until they are read without one.
    pub(crate) fn reloaded(&mut self, now: Instant, news: &Reloaded, reread: Option<Reread>) {
        if let Some(reread) = reread {
            self.certificates = reread.certificates;
            self.log_levels = reread.log_levels;
        }
        self.reload_refused = match news.state {
            ReloadState::Taken => None,
            _ => Some((now, news.reason.as_str().into())),
        };
    }
}

/// What files that were read again say, of what is said of the process ([`About`]).
#[derive(Debug, Clone, Default)]
pub struct Reread {
    /// As [`About::certificates`].
    pub certificates: Vec<(String, i64)>,
    /// As [`About::log_levels`].
    pub log_levels: String,
}

/// Settings of the core.
#[derive(Debug, Clone)]
pub struct Config {
    /// The scheduler's own UUID, which its own frames carry as origin.
    pub uuid: Uuid,
    /// How running instances are counted.
    pub accounting: Accounting,
    /// How far measured accounting looks back; zero = only the latest report counts. See [`MEASURED_WINDOW`].
    pub measured_window: Duration,
    /// Which percentile of what an instance used in that time it counts as, from 1; 100 = the peak.
    pub measured_percentile: u8,
    /// Virtual CPUs per CPU online.
    pub cpu_ratio: f64,
    /// Memory offered per memory present; 1.0 = no overcommitment.
    pub mem_ratio: f64,
    /// Disk offered per disk present; 1.0 = no overcommitment.
    pub disk_ratio: f64,
    /// Memory of every node that is never offered, in MiB.
    pub reserved_mem_mib: i64,
    /// Disk of every node that is never offered, in MiB.
    pub reserved_disk_mib: i64,
    /// See [`IN_DOUBT_TIME`].
    pub in_doubt_time: Duration,
    /// See [`MISSED_STATS`].
    pub missed_stats: u8,
    /// What is said of single nodes over what they report.
    pub nodes: Vec<NodeRule>,
    /// Nodes known before a restart. While any of them that was not lost by then is missing, a START that fits nowhere
    /// waits.
    pub known_nodes: Vec<KnownNode>,
    /// See [`RECOVERY_WINDOW`].
    pub recovery_window: Duration,
    /// Records of the process before this one, in no particular order.
    pub restored: Vec<Restored>,
    /// Whether there is a store: without one [`crate::Action::Persist`] never comes, and nothing waits for a commit.
    pub durable: bool,
    /// How long a START that was taken in waits to be there before it fails: see [`crate::DISK_PATIENCE`].
    pub disk_patience: Duration,
    /// The unix time, in milliseconds, at the moment that [`crate::Scheduler::new`] is given: what times in records are
    /// converted by.
    pub start_unix_ms: u64,
    /// What is said of the process to who asks.
    pub about: About,
}

impl Config {
    /// Every default, for a scheduler with this UUID.
    #[must_use]
    pub fn new(uuid: Uuid) -> Self {
        Self {
            uuid,
            accounting: Accounting::default(),
            measured_window: MEASURED_WINDOW,
            measured_percentile: 100,
            cpu_ratio: CPU_RATIO,
            mem_ratio: 1.0,
            disk_ratio: 1.0,
            reserved_mem_mib: 0,
            reserved_disk_mib: 0,
            in_doubt_time: IN_DOUBT_TIME,
            missed_stats: MISSED_STATS,
            nodes: Vec::new(),
            known_nodes: Vec::new(),
            recovery_window: RECOVERY_WINDOW,
            restored: Vec::new(),
            durable: false,
            disk_patience: DISK_PATIENCE,
            start_unix_ms: 0,
            about: About::default(),
        }
    }
}
