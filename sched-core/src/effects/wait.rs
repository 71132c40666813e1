//! An instance begins to wait in the queue, for room or to be resumed, and its client is sent that it does once that is on
//! disk.

use std::time::Duration;

use sched_model::{InstanceQueued, StartFailureReason, Topic};

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::cause::Cause;
use crate::api::clock::whole_ms;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::start::PlacedStart;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::instance::Instance;
use crate::journal::Next;
use crate::placement::explain::Explanation;
use crate::queue::{Full, Waiter};
use crate::timers::Timer;

/// How long a preempted instance waits for vcpus on its node before it is stopped there and placed on another, if it
/// may be relocated and another has room. Resuming costs nothing, and a relocation loses all its work; a minute is what
/// most short bursts of urgent work take.
pub(crate) const RESUME_ELSEWHERE_AFTER: Duration = Duration::from_secs(60);

impl Scheduler {
    /// Puts an instance into the queue. `Err` if the queue is full, by number or by the bytes of those in it, and the
    /// instance has not run.
    pub(crate) fn enqueue(&mut self, instance: &InstanceId, query: &Query) -> Result<(), Full> {
        let Some(managed) = self.instances.get(instance) else {
            return Ok(());
        };
        // Of an array one waits that has not run, beside those that full nodes have refused: as many as there may be arrays,
        // and as nodes had on their way.
        if managed.has_run() || managed.element().is_some() {
            self.enqueue_unlimited(instance, query);
            return Ok(());
        }
        let waiter = waiter_of(instance, managed, query);
        self.note_changes();
        self.queue.push(waiter)
    }

    /// Puts an instance into the queue that has run, is an element of an array, or waited before a restart: also where the
    /// queue is full.
    pub(crate) fn enqueue_unlimited(&mut self, instance: &InstanceId, query: &Query) {
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        let waiter = waiter_of(instance, managed, query);
        self.note_changes();
        self.queue.push_unlimited(waiter);
    }

    /// Queues a preempted and suspended instance for vcpus on its node.
    pub(crate) fn wait_for_resume(&mut self, instance: &InstanceId, key: NodeKey) {
        let node = self.cluster.node(key);
        let Some(entry) = node.ledger().get(instance) else {
            return;
        };
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        let pool = if node.slots()[Pool::Compute as usize].is_some() {
            Pool::Compute
        } else {
            Pool::Network
        };
        let (vcpus, rank) = (entry.asked().vcpus, (managed.priority(), managed.order()));
        let waiter = Waiter::to_resume(instance.clone(), rank, (key, pool), vcpus);
        self.note_changes();
        self.queue.push_unlimited(waiter);
        self.queue.wake(key);
        self.timers.set(
            Timer::LookAgain(instance.clone()),
            self.now + RESUME_ELSEWHERE_AFTER,
        );
    }

    /// Has InstanceQueued sent once it is on disk that the instance waits: a client that is sent it relies on it.
    pub(crate) fn notify_queued_once_on_disk(&mut self, instance: &InstanceId) {
        let ticket = self.journal.ticket();
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.note_waits_with(ticket);
        }
        self.after_commit(instance, Next::NotifyQueued);
    }

    /// Answers a START of an instance that waits already. Until that is on disk the answer is that of the first START,
    /// which is still to come. A disk that takes no writes may delay that without limit, so then it fails at once.
    pub(crate) fn answer_waiting(&mut self, start: &PlacedStart) {
        let instance = &start.request.instance;
        if self.sight().waits_on_disk(instance) {
            return self.notify_queued(instance);
        }
        if self.journal.is_in_trouble() {
            let cause = Cause::WaitsAnd(Box::new(self.journal.trouble_cause()));
            let reason = StartFailureReason::InstanceExists;
            self.fail_with(start, reason, Explanation::of(cause));
        }
    }

    /// Sends the START's sender and subscribers that an instance waits, at which position and why; all controllers, if
    /// the sender has left.
    pub(crate) fn notify_queued(&mut self, instance: &InstanceId) {
        let Some((sender, event)) = self.queued_event(instance) else {
            return;
        };
        let message = || Message::InstanceQueued(Box::new(event.clone()));
        let Some(session) = self.peers.get(sender) else {
            return self.notify_controllers(Topic::Instances, |session| {
                session.is_native().then(message)
            });
        };
        if session.is_native() {
            self.send(sender, message());
        }
        self.notify_subscribers(Topic::Instances, Some(sender), |_| Some(message()));
    }

    /// How an instance waits, and who sent its START; `None` if it does not wait to be started.
    pub(crate) fn queued_event(
        &mut self,
        instance: &InstanceId,
    ) -> Option<(SessionId, Explained<InstanceQueued>)> {
        let managed = self.instances.get(instance)?;
        let after = self.sight().comes_after(instance);
        let position = match (&after, self.queue.position(instance)) {
            // Behind all that wait for room.
            (Some(_), _) => self.queue.len() + 1,
            (None, position) => position?,
        };
        let start = managed.start()?;
        let left = managed.waits_until().filter(|_| !managed.has_run());
        let left = left.map(|until| until.saturating_duration_since(self.now));
        let event = InstanceQueued {
            instance_uuid: instance.to_string(),
            position: position as u64,
            waiting: (self.queue.len() + self.queue.dependents()) as u64,
            priority: i64::from(managed.priority()),
            deadline_ms: left.map(whole_ms),
            detail: String::new(),
        };
        let sender = start.sender;
        if let Some(after) = after {
            return Some((sender, Explained::new(event, after)));
        }
        let why = self
            .instances
            .query_of(instance)
            .map(|query| self.why_not(&query));
        let cause = why.map(|why| why.cause).unwrap_or_default();
        Some((sender, Explained::new(event, cause)))
    }
}

/// An instance that waits to be started: without a deadline if it has run.
fn waiter_of(instance: &InstanceId, managed: &Instance, query: &Query) -> Waiter {
    let deadline = managed.waits_until().filter(|_| !managed.has_run());
    let rank = (managed.priority(), managed.order());
    Waiter::to_start(instance.clone(), rank, query)
        .keeping(managed.texts(), managed.is_operators())
        .until(deadline)
}
