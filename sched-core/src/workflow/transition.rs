//! Every event of an instance that is managed goes through [`Scheduler::transition`]: the table of instances says what comes
//! of it, which is remembered and told to those who follow it. What the lifecycle does not have is refused and logged.

#[cfg(test)]
mod refused;

use sched_model::{InstanceStateEvent, LifeState, Topic, Uuid};

use crate::Scheduler;
use crate::api::action::{Message, Notice};
use crate::api::cause::Cause;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::phase::{EventKind, IllegalTransition};
use crate::instance::{Effects, HistoryEvent, LifecycleEvent, State};
use crate::journal::Next;
use crate::peers::session::Session;

impl Scheduler {
    /// Whether an event may happen to an instance: asked before anything else is done that belongs to it.
    pub(crate) fn may(&mut self, instance: &InstanceId, event: EventKind) -> bool {
        match self.instances.may(instance, event) {
            Ok(()) => true,
            Err(illegal) => {
                self.note_illegal(illegal);
                false
            }
        }
    }

    /// Something happens to an instance, and no one is told; what follows from it, if it may.
    pub(crate) fn on(&mut self, instance: &InstanceId, event: LifecycleEvent) -> Option<Effects> {
        match self.instances.on(instance, event) {
            Ok(effects) => effects,
            Err(illegal) => {
                self.note_illegal(illegal);
                None
            }
        }
    }

    /// A transition was refused, which is a defect of the scheduler.
    pub(crate) fn note_illegal(&mut self, illegal: IllegalTransition) {
        self.counters.illegal_transitions += 1;
        self.notice(Notice::IllegalTransition(illegal));
    }

    /// Something happens to an instance that others are told; what does not wait any more is not in the queue. What the
    /// lifecycle does not have is refused.
    pub(crate) fn transition(
        &mut self,
        instance: &InstanceId,
        event: LifecycleEvent,
        cause: &Cause,
    ) {
        let Some(effects) = self.on(instance, event) else {
            return;
        };
        let (what, key) = (effects.life_state, effects.node);
        if !effects.waits {
            self.leave_queue(instance);
        }
        let node = key.map(|key| self.cluster.nodes().node(key).uuid());
        let lease = key.and_then(|key| self.lease_of(key));
        self.cluster.cordons_mut().note_transition(instance, node);
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.note_node(node, lease);
            managed.note(HistoryEvent {
                at: self.now,
                what: what.clone(),
                node,
                cause: cause.kept(),
            });
        }
        self.journal.note_instance(instance);
        if effects.is_stop_unannounced {
            self.announce_deferred_stop(instance);
        }
        if what == LifeState::Waiting && self.config.durable {
            // Who hears of it counts on it.
            return self.after_commit(instance, Next::NotifyWaiting);
        }
        self.notify_state(instance, what, node, cause);
    }

    /// Tells that an instance waits.
    pub(crate) fn notify_waiting(&mut self, instance: &InstanceId) {
        let managed = self.instances.get(instance);
        let why = managed.and_then(|managed| managed.history().last());
        let why = why.map(|event| event.cause.clone());
        let why = why.unwrap_or_default();
        self.notify_state(instance, LifeState::Waiting, None, &why);
    }

    /// No longer manages an instance: it is on no node any more, or needs it no longer.
    pub(crate) fn end_managing(&mut self, instance: &InstanceId, cause: &Cause) {
        if !self.instances.contains(instance) {
            return;
        }
        let what = LifeState::Gone;
        let last = HistoryEvent {
            at: self.now,
            what: what.clone(),
            node: None,
            cause: cause.kept(),
        };
        if let Err(illegal) = self.instances.remove(instance, last) {
            return self.note_illegal(illegal);
        }
        self.leave_queue(instance);
        self.cluster.cordons_mut().note_transition(instance, None);
        if let Some(key) = self.cluster.placement(instance) {
            self.cluster.ledger_mut(key).set_managed(instance, false);
        }
        self.journal.note_instance(instance);
        self.note_changed_runs();
        self.notify_state(instance, what, None, cause);
        self.queue.spare_no_more(instance);
        self.timers.forget(instance);
        self.note_out_of_the_way(instance);
    }

    /// Takes an instance out of the queue, if it is there.
    pub(crate) fn leave_queue(&mut self, instance: &InstanceId) {
        if self.queue.is_empty() {
            return;
        }
        let managed = self.queue.node_kept_for(instance);
        if self.queue.remove(instance).is_some() {
            self.outranks_no_more();
            if let Some(key) = managed {
                self.wake(key);
            }
        }
    }

    pub(crate) fn notify_state(
        &mut self,
        instance: &InstanceId,
        state: LifeState,
        node: Option<Uuid>,
        cause: &Cause,
    ) {
        if !self.peers.has_controllers() && !self.peers.has_subscribers() {
            return;
        }
        let event = self.state_event(instance, state, node, cause);
        self.notify_controllers(Topic::Instances, |session| {
            let message = || Message::InstanceState(Box::new(event.clone()));
            session.is_native().then(message)
        });
    }

    /// Tells one peer the same, unless it is told as all others are.
    pub(crate) fn copy_state(
        &mut self,
        to: SessionId,
        instance: &InstanceId,
        state: LifeState,
        node: Option<Uuid>,
        cause: &Cause,
    ) {
        let to_alone = self.peers.outside_audience(to, &Topic::Instances);
        if to_alone.is_some_and(Session::is_native) {
            let event = self.state_event(instance, state, node, cause);
            self.send(to, Message::InstanceState(Box::new(event)));
        }
    }

    fn state_event(
        &self,
        instance: &InstanceId,
        state: LifeState,
        node: Option<Uuid>,
        cause: &Cause,
    ) -> Explained<InstanceStateEvent> {
        let managed = self.instances.get(instance);
        let target = managed.and_then(|managed| match *managed.state() {
            State::Migrating { to, .. } => Some(self.cluster.nodes().node(to).uuid()),
            _ => None,
        });
        let event = InstanceStateEvent {
            instance_uuid: instance.to_string(),
            node_uuid: node.map(|uuid| uuid.to_string()).unwrap_or_default(),
            state,
            detail: String::new(),
            priority: managed.map(|managed| i64::from(managed.priority())),
            target_node_uuid: target.map(|uuid| uuid.to_string()).unwrap_or_default(),
        };
        Explained::new(event, cause.clone())
    }
}
