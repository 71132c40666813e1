//! What is not well in the cluster, as data: each condition with what it is about and for how long it has held. The
//! sentences, and what to do, are the server's.

use core::net::SocketAddr;

use sched_model::{Role, Uuid};

use crate::api::explained::{DrainSummary, NamedInstance};
use crate::api::ids::SessionId;
use crate::api::text::ShortText;
use crate::api::unread::NamedNode;

/// One thing that is not well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What.
    pub what: Unwell,
    /// For how many seconds; `None` where that is not known.
    pub for_s: Option<u64>,
}

/// What is not well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwell {
    /// The state directory takes no writes.
    Store,
    /// After a restart, nodes are waited for.
    Recovering,
    /// No node takes new work, of so many that are connected.
    NoNode(usize),
    /// A node's connection has ended, with so many instances on it.
    Lost(NamedNode, u64),
    /// A node is connected, and has reported nothing for some time.
    Silent(NamedNode),
    /// A node does not read what is queued for it.
    Stalled(NamedNode),
    /// A node takes no work, for this reason of its launcher's.
    Fault(NamedNode, ShortText),
    /// A node's disk is full: so much is available, of so much.
    DiskFull(NamedNode, i64, i64),
    /// A node is short of memory, as its launcher reports.
    ShortOfMemory(NamedNode),
    /// A node is going offline, or evacuated: its status.
    OutOfService(NamedNode, &'static str),
    /// A node is being drained.
    Drained(NamedNode, DrainSummary),
    /// A node is cordoned.
    Cordoned(NamedNode),
    /// Two machines have the UUID of a node: the one whose connection counts connects from here, the other did from
    /// there, as far as is known.
    TwoMachines(NamedNode, Option<SocketAddr>, Option<SocketAddr>),
    /// An instance is lost with the node of this name; the milliseconds until that is given up.
    InstanceLost(NamedInstance, Box<str>, Option<u64>),
    /// An instance was tried on so many nodes, and waits.
    InstanceFails(NamedInstance, usize),
    /// An instance's program ends again and again on the node of this name: started again so often, and the exit status of
    /// the latest end, or minus the signal.
    CrashLoop(NamedInstance, Box<str>, u32, Option<i64>),
    /// So many instances of a set have ended by themselves, the latest with this exit status, and so many live.
    Set {
        /// Its name.
        name: Box<str>,
        /// So many ended, and were not started again.
        ended: usize,
        /// So many are there.
        living: usize,
        /// The exit status, or minus the signal.
        exit_code: i64,
    },
    /// The certificate of a peer ends in so many seconds; it has ended if that is below 0.
    PeerCertificate {
        /// The peer's UUID.
        uuid: Uuid,
        /// Its roles.
        role: Role,
        /// The host name of a node; empty for others.
        hostname: Box<str>,
        /// Seconds that are left.
        left_s: i64,
    },
    /// The same of a certificate file of the scheduler's own.
    OwnCertificate(Box<str>, i64),
    /// Files that were to be read again are not in force, for this mistake.
    ReloadRefused(Box<str>),
    /// So many more of this kind are not named.
    More(&'static str, usize),
}

/// A certificate that ends soon, or has. In order of their ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndingCertificate {
    /// When it ends, seconds of Unix time: it is valid to the end of that second.
    pub ends_at_s: i64,
    /// Seconds that are left; below 0 once it has ended.
    pub left_s: i64,
    /// Whose it is.
    pub holder: CertificateHolder,
}

/// Whose certificate it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CertificateHolder {
    /// The scheduler's own, by its place in [`About::certificates`](crate::About).
    Own(usize),
    /// That of the peer of a session.
    Peer(SessionId),
}

impl Unwell {
    /// Its kind, for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Recovering => "recovering",
            Self::NoNode(_) => "no_node",
            Self::Lost(..) => "node_lost",
            Self::Silent(_) => "node_silent",
            Self::Stalled(_) => "node_stalled",
            Self::Fault(..) => "node_fault",
            Self::DiskFull(..) => "node_disk_full",
            Self::ShortOfMemory(_) => "node_short_of_memory",
            Self::OutOfService(..) => "node_out_of_service",
            Self::Drained(..) => "node_drained",
            Self::Cordoned(_) => "node_cordoned",
            Self::TwoMachines(..) => "uuid_used_twice",
            Self::InstanceLost(..) => "instance_lost",
            Self::InstanceFails(..) => "instance_fails",
            Self::CrashLoop(..) => "crash_loop",
            Self::Set { .. } => "set_crashed",
            Self::PeerCertificate { .. } | Self::OwnCertificate(..) => "certificate",
            Self::ReloadRefused(_) => "reload_refused",
            Self::More(kind, _) => kind,
        }
    }
}
