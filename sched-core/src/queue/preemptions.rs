//! What is remembered of preempted instances beyond their states: which victim leaves for which preemptor, and which
//! did not leave.
//!
//! Plain data. Victims are chosen in `workflow::preempt`; suspending and resuming is done in `workflow::suspend`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Queue;
use crate::api::ids::{InstanceId, NodeKey};

/// How long an instance that did not leave is not preempted again: its launcher refused or did not answer, and would
/// hardly do better at once.
const SPARED_FOR: Duration = Duration::from_secs(5 * 60);

/// What is remembered of instances that are preempted.
#[derive(Debug, Default)]
pub(super) struct Preemptions {
    /// The preemptor of each victim. One that does not wait any more may still be named; the entry is removed with the
    /// victim's next step.
    preemptors: BTreeMap<InstanceId, InstanceId>,
    /// Until when those that did not leave are not preempted.
    spared: BTreeMap<InstanceId, Instant>,
    /// Nodes on which an instance was not resumed because one of higher priority waits that could run there.
    outranked: BTreeSet<NodeKey>,
}

impl Queue {
    /// Notes that an instance is preempted by another.
    pub(crate) fn note_victim(&mut self, victim: InstanceId, preemptor: InstanceId) {
        self.preemptions.preemptors.insert(victim, preemptor);
    }

    /// The instance that another one was preempted for.
    pub(crate) fn preemptor_of(&self, victim: &InstanceId) -> Option<&InstanceId> {
        self.preemptions.preemptors.get(victim)
    }

    /// Forgets a victim, because it is out of the way, stays, or is gone; returns its preemptor.
    pub(crate) fn take_preemptor_of(&mut self, victim: &InstanceId) -> Option<InstanceId> {
        self.preemptions.preemptors.remove(victim)
    }

    /// Spares an instance that did not leave for [`SPARED_FOR`].
    pub(crate) fn spare(&mut self, victim: InstanceId, now: Instant) {
        let spared = &mut self.preemptions.spared;
        spared.retain(|_, until| *until > now);
        spared.insert(victim, now + SPARED_FOR);
    }

    /// Whether an instance may not be preempted at present.
    pub(crate) fn is_spared(&self, victim: &InstanceId, now: Instant) -> bool {
        let spared = &self.preemptions.spared;
        !spared.is_empty() && spared.get(victim).is_some_and(|until| *until > now)
    }

    /// Forgets an instance that is gone.
    pub(crate) fn spare_no_more(&mut self, instance: &InstanceId) {
        self.preemptions.spared.remove(instance);
    }

    /// Notes that an instance was not resumed on a node because another one waits. The node is offered again when that
    /// one leaves.
    pub(crate) fn note_outranked(&mut self, key: NodeKey) {
        self.preemptions.outranked.insert(key);
    }

    /// Forgets that no one was resumed on a node for that reason; whether it was noted.
    pub(crate) fn take_outranked(&mut self, key: NodeKey) -> bool {
        self.preemptions.outranked.remove(&key)
    }

    /// One of the nodes where no one was resumed for that reason.
    pub(crate) fn next_outranked(&mut self) -> Option<NodeKey> {
        self.preemptions.outranked.pop_first()
    }
}
