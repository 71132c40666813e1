//! Victims of a preemption go, stay, or are late.

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::instance::{Awaits, Placing, State};

impl Scheduler {
    /// A victim was stopped and has ended: another node is looked for, and its preemptor has its room; whether that could
    /// be.
    pub(crate) fn victim_has_ended(
        &mut self,
        key: NodeKey,
        victim: &InstanceId,
        by: &InstanceId,
    ) -> bool {
        let cause = &Cause::LeftFor(by.clone());
        if !self.release_and_reschedule(key, victim, cause) {
            return false;
        }
        if let Some(managed) = self.instances.get_mut(victim) {
            managed.note_ran();
            managed.forget_refusals();
        }
        self.note_out_of_the_way(victim);
        true
    }

    /// A victim stays: it is spared for a while, and its preemptor looks for another node.
    pub(crate) fn victim_stays(&mut self, preemptor: &InstanceId, victim: &InstanceId) {
        self.queue.spare(victim.clone(), self.now);
        let is_awaited = self.queue.preemptor_of(victim) == Some(preemptor);
        if is_awaited {
            self.queue.take_preemptor_of(victim);
        }
        if let Some(State::Placing(Placing {
            node,
            pending_on: Awaits::Victims(set, _),
            ..
        })) = self.instances.state_of(preemptor)
            && set.contains(victim)
        {
            self.make_no_room(node, preemptor, &Cause::VictimStays(victim.clone()));
        }
    }

    /// A victim was not stopped: the same, if a preemptor waits for it.
    pub(crate) fn note_not_stopped(&mut self, victim: &InstanceId) {
        if let Some(preemptor) = self.queue.preemptor_of(victim).cloned() {
            self.victim_stays(&preemptor, victim);
        }
    }

    /// The deadline of a preemption is over: all victims that are still there are spared, and the preemptor looks for
    /// another node.
    pub(crate) fn victims_are_late(&mut self, key: NodeKey, instance: &InstanceId) {
        if let Some(State::Placing(Placing {
            pending_on: Awaits::Victims(set, _),
            ..
        })) = self.instances.state_of(instance)
        {
            for victim in set {
                self.queue.spare(victim, self.now);
            }
        }
        self.make_no_room(key, instance, &Cause::VictimsLate);
    }

    /// Ends a preemption that has failed: releases the room that the preemptor had claimed, and looks for another node
    /// for it.
    fn make_no_room(&mut self, key: NodeKey, instance: &InstanceId, cause: &Cause) {
        self.release_and_reschedule(key, instance, cause);
    }
}
