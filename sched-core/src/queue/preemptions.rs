//! What is remembered of instances that are preempted, beyond their states: who waits for whom, and who did not leave.
//!
//! Plain data. Who is preempted is chosen in `workflow::preempt`; suspending and resuming is `workflow::suspend`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::{Queue, Rank};
use crate::api::ids::{InstanceId, NodeKey};

/// How long an instance that did not leave when it was told to is not told again: its launcher refused or did not
/// answer, and would hardly do better at once.
const SPARED_FOR: Duration = Duration::from_secs(5 * 60);

/// What is remembered of instances that are preempted.
#[derive(Debug, Default)]
pub(super) struct Preemptions {
    /// The preemptor of each victim. One that has given up waiting may still be named: it then waits for no one, and the
    /// pair goes with the victim's next step.
    preemptors: BTreeMap<InstanceId, InstanceId>,
    /// Victims that were stopped, wait, and are looked a node for once the queue has been served, in the order of the
    /// queue.
    seeking: BTreeMap<Rank, InstanceId>,
    /// Until when those that did not leave are left alone.
    spared: BTreeMap<InstanceId, Instant>,
    /// Nodes on which no one is resumed because one of higher priority waits that could run there.
    outranked: BTreeSet<NodeKey>,
}

impl Queue {
    /// Notes that an instance is preempted by another.
    pub(crate) fn note_victim(&mut self, victim: InstanceId, preemptor: InstanceId) {
        self.preemptions.preemptors.insert(victim, preemptor);
    }

    /// By whom an instance is preempted.
    pub(crate) fn preemptor_of(&self, victim: &InstanceId) -> Option<&InstanceId> {
        self.preemptions.preemptors.get(victim)
    }

    /// An instance has left, does not, or is gone; its preemptor.
    pub(crate) fn take_preemptor_of(&mut self, victim: &InstanceId) -> Option<InstanceId> {
        self.preemptions.preemptors.remove(victim)
    }

    /// Leaves an instance alone for a while that did not leave.
    pub(crate) fn spare(&mut self, victim: InstanceId, now: Instant) {
        let spared = &mut self.preemptions.spared;
        spared.retain(|_, until| *until > now);
        spared.insert(victim, now + SPARED_FOR);
    }

    /// Whether an instance is left alone.
    pub(crate) fn is_spared(&self, victim: &InstanceId, now: Instant) -> bool {
        let spared = &self.preemptions.spared;
        !spared.is_empty() && spared.get(victim).is_some_and(|until| *until > now)
    }

    /// An instance is gone.
    pub(crate) fn spare_no_more(&mut self, instance: &InstanceId) {
        self.preemptions.spared.remove(instance);
    }

    /// Has a node looked for, for one that waits, at the end of this input.
    pub(crate) fn seek(&mut self, rank: Rank, instance: InstanceId) {
        self.preemptions.seeking.insert(rank, instance);
    }

    /// The next for which a node is to be looked for.
    pub(crate) fn next_seeking(&mut self) -> Option<InstanceId> {
        let (_, instance) = self.preemptions.seeking.pop_first()?;
        Some(instance)
    }

    /// Notes that no one was resumed on a node for the sake of one that waits.
    pub(crate) fn note_outranked(&mut self, key: NodeKey) {
        self.preemptions.outranked.insert(key);
    }

    /// One of the nodes where no one was resumed for that reason.
    pub(crate) fn next_outranked(&mut self) -> Option<NodeKey> {
        self.preemptions.outranked.pop_first()
    }
}

impl Preemptions {
    /// Whether a node is to be looked for, for somebody.
    pub(super) fn is_seeking(&self) -> bool {
        !self.seeking.is_empty()
    }
}
