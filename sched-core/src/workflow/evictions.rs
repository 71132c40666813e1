//! What is remembered of instances that make way for others, beyond their states: who waits for whom, and who did not make
//! way.
//!
//! Plain data. Who makes way is chosen in `preempt`; suspending and resuming is `suspend`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::api::ids::{InstanceId, NodeKey};
use crate::queue::Rank;

/// How long an instance that did not make way when it was told to is not told again: its launcher refused or did not
/// answer, and would hardly do better at once.
pub(crate) const STAYS_FOR: Duration = Duration::from_secs(5 * 60);

/// What is remembered of instances that make way.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// Who makes way, and for whom. One that has given up waiting may still be named: it then waits for nobody, and the
    /// pair goes with the victim's next step.
    ways: BTreeMap<InstanceId, InstanceId>,
    /// Those that were stopped to make way, wait, and are looked a node for once the queue has been served, in the order
    /// of the queue.
    seeking: BTreeMap<Rank, InstanceId>,
    /// Until when those that did not make way are left alone.
    stays: BTreeMap<InstanceId, Instant>,
    /// Nodes on which nobody is resumed because one of higher priority waits that could run there.
    outranked: BTreeSet<NodeKey>,
}

impl Evictions {
    /// Notes that one makes way for another.
    pub(crate) fn wait_for(&mut self, victim: InstanceId, by: InstanceId) {
        self.ways.insert(victim, by);
    }

    /// One has made way, or is gone; for whom.
    pub(crate) fn take_awaited(&mut self, victim: &InstanceId) -> Option<InstanceId> {
        self.ways.remove(victim)
    }

    /// For whom one makes way.
    pub(crate) fn wanted_away_by(&self, victim: &InstanceId) -> Option<&InstanceId> {
        self.ways.get(victim)
    }

    /// Has a node looked for, for one that waits, at the end of this turn.
    pub(crate) fn seek(&mut self, rank: Rank, instance: InstanceId) {
        self.seeking.insert(rank, instance);
    }

    /// The next for which a node is to be looked for.
    pub(crate) fn next_seeking(&mut self) -> Option<InstanceId> {
        let (_, instance) = self.seeking.pop_first()?;
        Some(instance)
    }

    /// Whether there is anything to do at the end of this turn.
    pub(crate) fn has_work(&self) -> bool {
        !self.seeking.is_empty()
    }

    /// Notes that one did not make way.
    pub(crate) fn stay(&mut self, victim: InstanceId, now: Instant) {
        self.stays.retain(|_, until| *until > now);
        self.stays.insert(victim, now + STAYS_FOR);
    }

    /// Whether one is left alone.
    pub(crate) fn stays(&self, victim: &InstanceId, now: Instant) -> bool {
        !self.stays.is_empty() && self.stays.get(victim).is_some_and(|until| *until > now)
    }

    /// Notes that nobody was resumed on a node for the sake of one that waits.
    pub(crate) fn outrank(&mut self, key: NodeKey) {
        self.outranked.insert(key);
    }

    /// One of the nodes where nobody was resumed for that reason.
    pub(crate) fn next_outranked(&mut self) -> Option<NodeKey> {
        self.outranked.pop_first()
    }

    /// An instance is gone.
    pub(crate) fn forget(&mut self, instance: &InstanceId) {
        self.stays.remove(instance);
    }
}
