//! How a scheduler stands in the election, and the fence of one that leads.

use std::time::Duration;

use super::GIVE_UP_AFTER;

/// Under what a scheduler leads. Terms ascend: the later one is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    /// Raised by an operator after etcd was restored or made new, because its revisions begin again then.
    pub generation: u64,
    /// The revision of etcd at which the leader's key was created.
    pub create_revision: i64,
}

impl std::fmt::Display for Term {
    /// As `0.1742`: generation and revision.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.generation, self.create_revision)
    }
}

/// The leader's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderKey {
    /// The revision at which it was created.
    pub create_revision: i64,
    /// The lease with which it ends.
    pub lease: i64,
    /// What the leader says of itself: its addresses.
    pub value: Vec<u8>,
}

/// How a scheduler stands. Leases come with the time at which the last keep-alive that succeeded was sent, or the grant.
#[derive(Debug)]
pub(super) enum Standing {
    /// Another leads, or none.
    Standby {
        /// Its lease, once it is granted.
        lease: Option<(i64, Duration)>,
    },
    /// It has tried to create the key, and does not know yet what came of that.
    Campaign {
        /// Its lease.
        lease: i64,
        /// When that was kept alive.
        at: Duration,
    },
    /// It leads.
    Leader(Leading),
    /// It has stepped down.
    Over,
}

/// What a leader goes by.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) term: Term,
    pub(super) lease: i64,
    /// When the last keep-alive was sent that succeeded.
    pub(super) kept_alive: Duration,
    /// When the last read was sent that showed its key, or the campaign.
    pub(super) read: Duration,
    /// When it was known that it leads.
    pub(super) since: Duration,
    /// Whether it was put out that the fence has passed.
    pub(super) is_paused: bool,
}

impl Leading {
    /// From when on nothing may be sent.
    pub(super) fn fence(&self, ttl: Duration) -> Duration {
        self.answered() + ttl * 2 / 3
    }

    /// From when on etcd counts as lost.
    pub(super) fn end(&self, ttl: Duration) -> Duration {
        self.answered() + ttl + GIVE_UP_AFTER
    }

    /// Up to when all that the fence goes by was answered.
    fn answered(&self) -> Duration {
        self.kept_alive.min(self.read)
    }
}
