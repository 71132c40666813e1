//! What the core is told: a peer came or went, a command or a report came, a queue filled or drained, time passed.

use core::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use sched_model::{
    ConfigurationVersion, EndFacts, Reloaded, Role, RunProgress, StartFailureReason, Uuid,
};

use crate::api::action::Message;
use crate::api::command::Command;
use crate::api::config::Reread;
use crate::api::disk::DiskState;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::malformed::Malformed;
use crate::api::parcel::{Parcel, Tag};
use crate::api::record::Ticket;
use crate::api::report::Report;
use crate::api::resources::Resources;
use crate::api::rules::{NodeRule, Rules};
use crate::api::sent::Sent;
use crate::api::text::ShortText;
use crate::api::vm_types::VmTypes;

/// One thing that happened.
#[derive(Debug)]
pub enum Input {
    /// A peer asks to be let in, with roles that its certificate grants: [`Message::Connected`] or [`crate::Action::Refuse`].
    Connect {
        /// The number of this connection.
        session: SessionId,
        /// What its CONNECT claims.
        hello: Hello,
    },
    /// A connection has ended, by the peer, by an error, or by [`crate::Action::Disconnect`]. In the last case the
    /// server hands this in before anything else.
    Disconnected {
        /// The session that ended.
        session: SessionId,
        /// What had been queued for the peer and not begun to be written, in order.
        unsent: Vec<Message>,
        /// How it ended.
        departure: Departure,
    },
    /// A command came, or what only controllers and operators may send.
    Command {
        /// From whom.
        session: SessionId,
        /// What is asked for.
        command: Command,
        /// The same as it is carried on.
        parcel: Parcel,
    },
    /// A report came, or what only launchers and agents may send.
    Report {
        /// From whom.
        session: SessionId,
        /// What is reported.
        report: Report,
        /// The same as it is carried on.
        parcel: Parcel,
    },
    /// A command or report came that could not be read.
    Malformed {
        /// From whom.
        session: SessionId,
        /// What it was to be.
        sent: Sent,
        /// What is wrong with it.
        malformed: Malformed,
        /// The same as it came.
        parcel: Parcel,
    },
    /// Something came that is neither a command nor a report.
    Unknown {
        /// From whom.
        session: SessionId,
        /// What the server calls its like.
        tag: Tag,
        /// How much of it is unknown.
        unknown: Unknown,
    },
    /// A peer's outbound queue filled up, stopped moving, or drained.
    Backlog {
        /// The session whose queue it is.
        session: SessionId,
        /// How full its queue is.
        backlog: Backlog,
    },
    /// Another cluster configuration, which the server has checked and kept.
    Configure(Box<ClusterConfiguration>),
    /// What is said of single nodes over what they report, in place of [`crate::Config::nodes`].
    NodeRules(Vec<NodeRule>),
    /// The change of this number and all before it are on disk.
    Committed(Ticket),
    /// The disk takes writes no longer, or again.
    Disk(DiskState),
    /// All files were read again.
    Reloaded {
        /// What came of it.
        news: Box<Reloaded>,
        /// What they say; `None` where all stays as it was.
        reread: Option<Box<Reread>>,
    },
    /// The version of the cluster configuration that is in force from now on, for who asks.
    ConfigurationVersion(Box<ConfigurationVersion>),
    /// The scheduler is about to leave: what waits here will not be placed any more.
    Leaving,
    /// Time passed: handed in when [`crate::Scheduler::poll_timeout`] says so.
    Tick,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The peer closed it in order: its program ended, or was to leave.
    Closed,
    /// It broke off: the peer crashed, its machine or network failed, or this side ended it.
    Broken,
}

/// Who a new peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Its UUID.
    pub uuid: Uuid,
    /// The roles it claims, all of them granted by its certificate.
    pub role: Role,
    /// What it understands.
    pub dialect: Dialect,
    /// Whether its certificate is bound to this very UUID.
    pub bound: bool,
    /// When its certificate ends, seconds of Unix time; `None` where it has none.
    pub certificate_ends_s: Option<i64>,
    /// Where its connection comes from; `None` where there is no such address, as in tests.
    pub address: Option<SocketAddr>,
    /// The SHA-256 of its certificate: sessions with the same one have shares together. `None` within the process.
    pub certificate: Option<[u8; 32]>,
    /// The subject of its certificate, for people.
    pub subject: Option<ShortText>,
}

impl Hello {
    /// A native peer within the process, which has neither certificate nor address.
    #[must_use]
    pub const fn native(uuid: Uuid, role: Role) -> Self {
        Self {
            uuid,
            role,
            dialect: Dialect::Native,
            bound: false,
            certificate_ends_s: None,
            address: None,
            certificate: None,
            subject: None,
        }
    }
}

/// What a peer understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// All that this project added.
    Native,
    /// What the original's peers know, and no role, command or event beside.
    Original,
}

/// How much is unknown of something that a peer sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Even what sort of thing it is: the peer is told.
    Sort,
    /// Which one of its sort it is: it may be from a later version, and is dropped.
    Name,
}

/// How a peer's outbound queue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backlog {
    /// Short: the usual state.
    #[default]
    Clear,
    /// Over its high-water mark but moving: used for placement only where nothing else fits.
    Filling,
    /// No byte has left it for a while: nothing is placed there.
    Stalled,
}

/// Parts of a new cluster configuration that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigurationFlags {
    /// Whether launchers limit memory; if not, instances are counted as what they use.
    pub mem_limit: bool,
    /// Whether launchers limit disk; if not, instances are counted as what they use.
    pub disk_limit: bool,
}

impl Default for ConfigurationFlags {
    /// Both limited, as where the configuration does not say.
    fn default() -> Self {
        Self {
            mem_limit: true,
            disk_limit: true,
        }
    }
}

/// What a CONFIGURE says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewConfiguration {
    /// Its payload as original peers are sent it from now on.
    pub original: Bytes,
    /// How instances are limited.
    pub flags: ConfigurationFlags,
    /// The scheduler's own part; `None` leaves the rules in force as they are, because original controllers, which know
    /// nothing of them, send configurations too.
    pub rules: Option<Rules>,
}

/// A node's own figures: READY. -1 = unknown, which fits nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// Memory present, in MiB.
    pub mem_total_mib: i64,
    /// Memory available: physical, not reduced by what instances may still touch.
    pub mem_available_mib: i64,
    /// Disk present, in 10⁶ bytes.
    pub disk_total_mb: i64,
    /// Disk available, in 10⁶ bytes.
    pub disk_available_mb: i64,
    /// One-minute load average.
    pub load: i64,
    /// CPUs online.
    pub cpus_online: i64,
    /// Host name.
    pub hostname: ShortText,
    /// Addresses of its network interfaces.
    pub addresses: Box<[IpAddr]>,
    /// What it says of itself beyond the original's figures; `None` where it says nothing.
    pub extras: Option<Box<NodeExtras>>,
}

impl NodeReport {
    /// Whether it speaks of another node, as it were: one with other labels, another name or size.
    pub(crate) fn differs_from(&self, other: &Self) -> bool {
        self.extras != other.extras
            || self.hostname != other.hostname
            || self.addresses != other.addresses
            || self.cpus_online != other.cpus_online
            || self.mem_total_mib != other.mem_total_mib
            || self.disk_total_mb != other.disk_total_mb
    }
}

impl NodeReport {
    /// Takes in what a node has left, as far as it knows.
    pub(crate) fn take_in(&mut self, available: Available) {
        let figures = [
            (&mut self.mem_available_mib, available.mem_mib),
            (&mut self.disk_available_mb, available.disk_mb),
            (&mut self.load, available.load),
        ];
        for (figure, said) in figures {
            *figure = if said < 0 { *figure } else { said };
        }
    }
}

/// What a node says of itself beyond the original's figures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeExtras {
    /// Labels, by key.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// Custom resources it has in all, by name.
    pub resources: Vec<(Box<str>, i64)>,
    /// The node whose resources it shares; counts once that one says so as well.
    pub shares: Option<Uuid>,
    /// The nodes that share its resources, at most [`crate::MAX_PARTS`].
    pub shared_by: Vec<Uuid>,
    /// What its launcher can do beyond what the original's can.
    pub capabilities: Capabilities,
    /// Which types of workload its launcher runs; `None` where it does not say.
    pub vm_types: Option<VmTypes>,
    /// Volumes and ports that can be reached from it, by id, at most [`crate::MAX_VOLUMES_PER_NODE`].
    pub volumes: Vec<Box<str>>,
    /// Why it takes no work although it may have room.
    pub fault: Option<ShortText>,
    /// Whether that is because it is short of memory.
    pub is_short_of_memory: bool,
    /// What it has left, in a STATS; not kept with the rest.
    pub available: Option<Available>,
    /// What tells its launcher's process from every other, in the first report of a connection; not kept with the rest.
    pub incarnation: Option<Uuid>,
    /// How long its launcher lets instances under its lease run without hearing from the scheduler; counts only with
    /// [`Capabilities::LEASE`].
    pub lease: Option<Duration>,
}

/// What a node has left; [`sched_model::UNKNOWN`] where it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// Memory, MiB.
    pub mem_mib: i64,
    /// Disk, in units of 10⁶ bytes.
    pub disk_mb: i64,
    /// Load average over a minute.
    pub load: i64,
}

/// What a launcher can do beyond what the original's can, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    /// Suspend and resume instances.
    pub const SUSPEND: Self = Self(1);
    /// Ship an instance's state to another node.
    pub const MIGRATE: Self = Self(2);
    /// Change what an instance has while it runs.
    pub const UPDATE: Self = Self(4);
    /// Stop instances under its lease by itself when it is cut off for longer.
    pub const LEASE: Self = Self(8);
    /// Number ends, and tell each until it is acknowledged.
    pub const ENDS: Self = Self(16);
    /// Admit STARTs by what it is told of ratios, reserved amounts and accounting.
    pub const CAPACITY: Self = Self(32);
    /// Tell what workloads wrote.
    pub const OUTPUT: Self = Self(64);
    /// Read what has changed of a START beside it.
    pub const OVERRIDES: Self = Self(128);
    /// Fetch the images that STARTs name by digest.
    pub const IMAGES: Self = Self(256);
    /// Fetch the further images that they name, and hand their paths to the instance.
    pub const MORE_IMAGES: Self = Self(512);
    /// End instances in time, in the way that their START says, and start them again.
    pub const RUN_LIMITS: Self = Self(1024);
    /// Keep standard output and standard error apart, serve files of working directories, and delete what instances have
    /// left.
    pub const RESULTS: Self = Self(2048);

    const NAMES: [(Self, &'static str); 12] = [
        (Self::SUSPEND, "suspend"),
        (Self::MIGRATE, "migrate"),
        (Self::UPDATE, "update"),
        (Self::LEASE, "lease"),
        (Self::ENDS, "ends"),
        (Self::CAPACITY, "capacity"),
        (Self::OUTPUT, "output"),
        (Self::OVERRIDES, "overrides"),
        (Self::IMAGES, "images"),
        (Self::MORE_IMAGES, "more-images"),
        (Self::RUN_LIMITS, "run-limits"),
        (Self::RESULTS, "results"),
    ];

    /// Those of these words that are known.
    #[must_use]
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let known = |name: &str| Self::NAMES.iter().find(|(_, known)| *known == name);
        let bits = names.into_iter().filter_map(known).map(|(one, _)| one.0);
        Self(bits.fold(0, |all, one| all | one))
    }

    /// Their words.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let has = move |(one, _): &&(Self, &'static str)| self.contains(*one);
        Self::NAMES.iter().filter(has).map(|(_, name)| *name)
    }

    /// Whether all of these are among them.
    #[must_use]
    pub fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Both together.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// What runs on a node: STATS. By default one that says nothing, of a node without a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatsReport {
    /// The node as the payload writes it; a report about another node is refused.
    pub node: Box<str>,
    /// STARTs taken in on this connection, where the launcher says so.
    pub starts_seen: Option<u64>,
    /// Labels and the like, where it says any; else they stay as they are.
    pub extras: Option<Box<NodeExtras>>,
    /// The number of this report, if the launcher's lease is to be extended by it.
    pub lease_seq: Option<u64>,
    /// The number of this report, if it is to be answered without that.
    pub report_seq: Option<u64>,
    /// The instances listed.
    pub instances: Vec<InstanceReport>,
    /// What it says of ends, if its launcher numbers them.
    pub ends: Option<Box<EndsReport>>,
    /// Whether its text is of the plain style, of which instances can be cut out: for who sends it on.
    pub is_plain: bool,
}

/// What a STATS says of ends on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndsReport {
    /// Whose numbers they have.
    pub incarnation: Uuid,
    /// The latest number that was given, listed here or not.
    pub seq: u64,
    /// Those that are not acknowledged, oldest first; the later ones of very many come later.
    pub ended: Vec<EndReport>,
}

/// One end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndReport {
    /// Its number.
    pub seq: u64,
    /// The instance that ended.
    pub instance: InstanceId,
    /// Whether its launcher keeps something of it, was cut off, or could not start it.
    pub how: EndHow,
    /// The exit status, or minus the signal that ended it; `None` = not known.
    pub exit_code: Option<i64>,
    /// How long ago it ended; `None` = not known.
    pub ago: Option<Duration>,
    /// What else its launcher knows of the run, if anything.
    pub facts: Option<Box<EndFacts>>,
    /// The InstanceDeleted or InstanceStopped that tells it.
    pub parcel: Parcel,
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndHow {
    /// By itself, or because it was told to, and its launcher keeps nothing of it.
    Deleted,
    /// By itself, or because it was told to.
    Stopped,
    /// By itself: its launcher had sent its processes no signal, and knows the exit status.
    Exited,
    /// Its launcher was cut off for longer than its lease.
    CutOff,
    /// It could not be started.
    Failed(Box<FailedStart>),
}

/// A START that failed on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStart {
    /// The launcher's reason.
    pub reason: StartFailureReason,
    /// More about it, for people; may be empty.
    pub detail: ShortText,
    /// The StartFailure that tells it.
    pub parcel: Parcel,
}

/// One instance in STATS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceReport {
    /// The instance.
    pub instance: InstanceId,
    /// Its state in the launcher's words.
    pub state: InstanceState,
    /// Memory in use, in MiB; -1 = unknown.
    pub mem_used_mib: i64,
    /// Disk in use, in MB; -1 = unknown.
    pub disk_used_mib: i64,
    /// Processor time in use, in percent of the vcpus it asked for; negative = unknown.
    pub cpu_used_percent: i64,
    /// What was asked for it, where the launcher says so.
    pub requested: Option<Resources>,
    /// Custom resources that were asked for it, by name; counts only beside `requested`.
    pub custom: Vec<(Box<str>, i64)>,
    /// The group it is a member of, where the launcher says so.
    pub group: Option<Box<str>>,
    /// Its restarts and its time, where the launcher says anything about these.
    pub run: Option<Box<RunProgress>>,
}

macro_rules! instance_states {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// An instance's state in its launcher's words.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum InstanceState {
            $($(#[$doc])* $name,)*
            /// A word this scheduler does not know.
            #[default]
            Other,
        }

        impl InstanceState {
            /// The state with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Self {
                match name {
                    $($text => Self::$name,)*
                    _ => Self::Other,
                }
            }

            /// Its name on the wire.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Other => "unknown",
                }
            }

            /// Whether it has processors of its node.
            #[must_use]
            pub fn runs(self) -> bool {
                matches!(
                    self,
                    Self::Pending | Self::Active | Self::Stopping | Self::Hung
                )
            }
        }
    };
}

instance_states! {
    /// Being started.
    Pending = "pending";
    /// Running.
    Active = "active";
    /// Ended by itself.
    Exited = "exited";
    /// Being ended.
    Stopping = "stopping";
    /// Ended with an error.
    ExitFailed = "exit_failed";
    /// Paused.
    ExitPaused = "exit_paused";
    /// Deleted.
    Deleted = "deleted";
    /// Not answering.
    Hung = "hung";
    /// Not found.
    Missing = "missing";
}

/// The cluster configuration as CONNECTED carries it, with what it means here.
#[derive(Debug, Clone, Default)]
pub struct ClusterConfiguration {
    /// The payload for native peers, byte for byte; empty = none.
    pub payload: Bytes,
    /// The payload for original peers, which read a missing key as zero, with the original's defaults; empty = none.
    pub original: Bytes,
    /// What it means here.
    pub flags: ConfigurationFlags,
    /// What it says about nodes and placement; to be checked before ([`Rules::check`]).
    pub rules: Rules,
}

impl ClusterConfiguration {
    /// The payload for native peers, and the rest as what a CONFIGURE says: with rules in any case.
    pub(crate) fn into_parts(self) -> (Bytes, NewConfiguration) {
        let new = NewConfiguration {
            original: self.original,
            flags: self.flags,
            rules: Some(self.rules),
        };
        (self.payload, new)
    }
}
