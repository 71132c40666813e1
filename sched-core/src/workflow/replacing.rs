//! Instances that have to leave their node find another: all that an input sets free, in the order of the queue.

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::query::Query;
use crate::instance::{LifecycleEvent, State};

impl Scheduler {
    /// Places what [`Scheduler::reschedule`] collected, in the order of the queue; whether there was anything. The outcome
    /// for each is one of: claimed on a node, room is made by preemption, queued, failed. One that was listed or has ended
    /// meanwhile is skipped.
    pub(crate) fn place_collected(&mut self) -> bool {
        let mut collected = self.queue.take_collected();
        if collected.is_empty() {
            return false;
        }
        self.sight()
            .put_in_order(&mut collected, |(instance, _)| instance);
        for (instance, cause) in collected {
            // One of those collected before it may wait by now, for room that this one would take.
            if let Some(query) = self.instances.query_of(&instance) {
                self.serve_before(query.request());
            }
            if let Some(State::Seeking { .. }) = self.instances.state_of(&instance) {
                self.place_or_wait(&instance, &cause);
            }
            self.cluster.end_refusal(&instance);
        }
        true
    }

    /// The choice itself: a node that fits, else preemption, else the queue. Without its START the instance cannot be
    /// placed, and is no longer managed.
    fn place_or_wait(&mut self, instance: &InstanceId, cause: &Cause) {
        let Some(query) = self.instances.query_of(instance) else {
            return self.end_managing(instance, &Cause::StartForgotten);
        };
        if let Some(key) = self.choose_again(instance, &query) {
            return self.claim_in_order(instance, &query, key, cause);
        }
        if self.preempt(instance, &query) {
            return;
        }
        self.wait_or_fail(instance, &query, cause);
    }

    /// Claims the chosen node at once, unless the instance may wait and others do: the room may be what its own end has
    /// just freed, and belongs to those before it in the order. Then it queues and the node is offered to all of them.
    fn claim_in_order(
        &mut self,
        instance: &InstanceId,
        query: &Query,
        key: NodeKey,
        cause: &Cause,
    ) {
        self.note_changes();
        let managed = self.instances.get(instance);
        let may_wait = managed.is_some_and(|it| {
            let waits = it.waits_until().is_some_and(|until| until > self.now);
            it.has_run() || waits && self.queue.has_awake()
        });
        if !may_wait || self.queue.is_empty() {
            return self.claim_managed(instance, key, cause);
        }
        self.transition(instance, LifecycleEvent::Queued, cause);
        if self.enqueue(instance, query).is_err() {
            return self.claim_managed(instance, key, cause);
        }
        self.notify_queued_once_on_disk(instance);
        self.wake(key);
    }
}
