//! Every event of a managed instance goes through [`Scheduler::turn`]: the table of instances makes the next
//! state, which is added to the instance's history, noted for the disk, and sent to those who follow the instance. An
//! event that the lifecycle does not have is refused and logged.
//!
//! An event is one step with what it changes about claims: either both happen, or the event is refused and claims, queue
//! and instance are as they were. The tests in `refused` compare all of them, for every event in every phase.

use sched_model::{PhaseName, Uuid};

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::cause::Cause;
use crate::api::ids::InstanceId;
use crate::api::phase::IllegalTransition;
use crate::api::text::ShortText;
use crate::cluster::Cluster;
use crate::instance::{Awaits, Effects, HistoryEvent, LifecycleEvent, Placing, RunOf, State};
use crate::journal::Next;
use crate::sight::Sight;

impl Scheduler {
    /// An instance is in no preemptor's way any more. If it was the last victim that its preemptor waited for, the
    /// preemptor's START follows.
    pub(crate) fn note_out_of_the_way(&mut self, victim: &InstanceId) {
        let Some(preemptor) = self.queue.take_preemptor_of(victim) else {
            return;
        };
        let Some(State::Placing(Placing {
            pending_on: Awaits::Victims(victims, _),
            ..
        })) = self.instances.state_of(&preemptor)
        else {
            return;
        };
        if !victims.contains(victim) {
            return;
        }
        let event = LifecycleEvent::VictimAway(victim.clone());
        if victims.len() == 1 {
            self.transition(&preemptor, event, &Cause::RoomFreed);
            self.after_commit(&preemptor, Next::Give);
        } else {
            self.turn_unseen(&preemptor, event, |_| {});
        }
    }

    /// Does `next` with an instance once all that has changed so far is on disk, unless the instance has had another
    /// transition by then: what was to follow belongs to the state it was in. Without a state directory that is at the
    /// end of this input.
    pub(crate) fn after_commit(&mut self, instance: &InstanceId, next: Next) {
        if let Some(managed) = self.instances.get(instance) {
            self.journal.wait(instance, managed.epoch(), next);
        }
    }

    /// Has a node found for an instance that is on none, whose claims have been released before. All that one input
    /// sets free is placed at its end, in the order of the queue ([`Scheduler::place_collected`]).
    pub(crate) fn reschedule(&mut self, instance: &InstanceId, cause: &Cause) {
        self.turn_to_seek(instance, cause, |_| {});
    }

    /// The same together with what it changes about claims; whether it happened.
    pub(crate) fn turn_to_seek(
        &mut self,
        instance: &InstanceId,
        cause: &Cause,
        claims: impl FnOnce(&mut Cluster),
    ) -> bool {
        let seeks = self.turn_unseen(instance, LifecycleEvent::Sought, claims);
        if seeks {
            self.queue.add_to_collected(instance, cause);
        }
        seeks
    }

    /// A transition together with what it changes about claims: the next state is found first, then the claims are changed,
    /// then it is entered, with all that follows in every case ([`Scheduler::follow`]). `false`, with nothing changed, where
    /// the event is refused or the instance is not managed.
    pub(crate) fn turn(
        &mut self,
        instance: &InstanceId,
        event: LifecycleEvent,
        cause: &Cause,
        claims: impl FnOnce(&mut Cluster),
    ) -> bool {
        let Some((state, effects)) = self.next(instance, event) else {
            return false;
        };
        claims(&mut self.cluster);
        self.enter(instance, state, &effects);
        self.follow(instance, effects, cause);
        true
    }

    /// The same without history, record or notification: for steps that no client sees.
    pub(crate) fn turn_unseen(
        &mut self,
        instance: &InstanceId,
        event: LifecycleEvent,
        claims: impl FnOnce(&mut Cluster),
    ) -> bool {
        let Some((state, effects)) = self.next(instance, event) else {
            return false;
        };
        claims(&mut self.cluster);
        self.enter(instance, state, &effects);
        true
    }

    /// A transition that changes no claims.
    pub(crate) fn transition(
        &mut self,
        instance: &InstanceId,
        event: LifecycleEvent,
        cause: &Cause,
    ) {
        self.turn(instance, event, cause, |_| {});
    }

    /// The state that an event leads to, with its effects. `None` if the instance is not managed or the event is refused,
    /// which is counted and logged as the defect it is.
    fn next(&mut self, instance: &InstanceId, event: LifecycleEvent) -> Option<(State, Effects)> {
        match self.instances.next(instance, event) {
            Ok(next) => next,
            Err(illegal) => {
                self.note_illegal(illegal);
                None
            }
        }
    }

    /// An instance enters the state that an event leads to; the runs on its node are counted.
    fn enter(&mut self, instance: &InstanceId, state: State, effects: &Effects) {
        self.instances.enter(instance, state);
        if !self.arrays.is_empty()
            && let Some(managed) = self.instances.get(instance)
            && let Some(element) = managed.element()
        {
            self.arrays
                .set_queued(element, managed.state().is_waiting());
        }
        if let (Some(run), Some(key), Some(managed)) =
            (effects.run, effects.node, self.instances.get_mut(instance))
        {
            let node = self.cluster.uuid(key);
            match run {
                RunOf::Begun => managed.note_run(node),
                RunOf::Found => managed.note_found_on(node),
            }
        }
    }

    /// Counts and logs a refused transition. It is a defect of the scheduler: no message of a peer may lead to one.
    pub(crate) fn note_illegal(&mut self, illegal: IllegalTransition) {
        self.counters.illegal_transitions += 1;
        self.notice(Notice::IllegalTransition(illegal));
    }

    /// What follows from a transition in every case: the instance leaves the queue unless its new state
    /// waits, the event is added to its history, its record is noted for the disk, drains learn where it is, and
    /// clients are notified. With a state directory, the event that it waits is sent only once that is on disk: a
    /// client that is sent it relies on the instance being started some day.
    fn follow(&mut self, instance: &InstanceId, effects: Effects, cause: &Cause) {
        let (what, key) = (effects.life_state, effects.node);
        if !effects.waits {
            self.leave_queue(instance);
        }
        let node = key.map(|key| self.cluster.uuid(key));
        let lease = key.and_then(|key| self.cluster.lease_of(key));
        self.cluster.note_transition(instance, node);
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.note_node(node, lease);
            managed.note(HistoryEvent {
                at: self.now,
                what: what.clone(),
                node,
                cause: cause.kept(),
                run: 0,
            });
        }
        self.journal.note_instance(instance);
        if effects.is_stop_unannounced {
            self.announce_deferred_stop(instance);
        }
        if what == PhaseName::Waiting && self.config.durable {
            // A client that is sent this event relies on it, so it must be on disk first.
            return self.after_commit(instance, Next::NotifyWaiting);
        }
        self.notify_state(instance, what, node, cause);
    }

    /// Sends the event that an instance waits, now that this is on disk. The cause is that of the latest event in its
    /// history.
    pub(crate) fn notify_waiting(&mut self, instance: &InstanceId) {
        let managed = self.instances.get(instance);
        let why = managed.and_then(|managed| managed.history().last());
        let why = why.map(|event| event.cause.clone());
        let why = why.unwrap_or_default();
        self.notify_state(instance, PhaseName::Waiting, None, &why);
    }

    /// No longer manages an instance, because it is gone, or is started again as another. Its history becomes a run
    /// that is over; a node that still has it keeps its claim, as for a plain instance. Does nothing if it is not
    /// managed.
    pub(crate) fn end_managing(&mut self, instance: &InstanceId, cause: &Cause) {
        if !self.instances.contains(instance) {
            return;
        }
        let place = self.sight().place_of_end(instance);
        let before = self.instances.last_run();
        let what = PhaseName::Gone;
        let last = HistoryEvent {
            at: self.now,
            what: what.clone(),
            node: None,
            cause: cause.kept(),
            run: 0,
        };
        let managed = self.instances.get(instance);
        let element = managed.and_then(|managed| managed.element());
        self.instances.remove(instance, last);
        if let Some(element) = element {
            self.arrays.note_gone(element, self.instances.last_run());
        }
        if let Some((node, hostname)) = place {
            self.instances
                .amend_run(before, instance, |run| run.set_lost_on(node, hostname));
        }
        self.leave_queue(instance);
        self.cluster.note_transition(instance, None);
        if let Some(key) = self.cluster.placement(instance) {
            self.cluster.ledger_mut(key).set_managed(instance, false);
        }
        self.journal.note_instance(instance);
        self.note_changed_runs();
        self.notify_state(instance, what, None, cause);
        // Everything else that refers to it: protection from preemption, timers, and the preemptor that waits for its
        // room.
        self.queue.spare_no_more(instance);
        self.timers.forget(instance);
        self.note_out_of_the_way(instance);
    }
}

impl Sight<'_> {
    /// The node that a managed instance which ends has run on last, if it was on that until now, or is lost with it.
    fn place_of_end(&self, instance: &InstanceId) -> Option<(Uuid, ShortText)> {
        let managed = self.instances.get(instance)?;
        let node = match *managed.state() {
            State::Lost { node, .. } => Some(node),
            _ if !managed.has_run() => None,
            ref state => {
                let key = state.node()?;
                Some(self.cluster.uuid(key))
            }
        };
        node.map(|uuid| (uuid, ShortText::new(self.cluster.name_of(uuid))))
    }
}

#[cfg(test)]
mod refused;
