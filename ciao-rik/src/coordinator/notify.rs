//! The coordinator's part for what controllers read: how instances and workers are.
//!
//! Updates go into each subscriber's [`crate::updates`], which keeps the latest of each subject until the controller
//! reads it. Nothing here waits.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::warn;

use crate::coordinator::{Coordinator, MAX_ALL_UNREAD};
use crate::instance::{Fate, Instance};
use crate::rpc::common::worker_status::Status as Subject;
use crate::rpc::common::{InstanceMetric, ResourceStatus, WorkerMetric, WorkerStatus};
use crate::store::Change;
use crate::updates::{About, Caller, Last, Subscriber};

impl Coordinator {
    /// Tells an instance's status to the controllers that it concerns, unless they were told the same, without a
    /// detail, last.
    pub(super) fn notify(&mut self, instance: &Arc<str>) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        let (status, detail) = it.status();
        if it.notified == Some(status) && detail.is_empty() {
            return;
        }
        it.notified = Some(status);
        self.push_to_all(instance, status, &detail);
    }

    /// Tells an instance's status once more: a controller that has asked for the same id again may list it otherwise.
    /// Not of one that is over: its end is told once.
    pub(super) fn notify_again(&self, instance: &Arc<str>) {
        if let Some(it) = self.instances.get(instance)
            && it.record.fate != Fate::Over
        {
            let (status, detail) = it.status();
            self.push_to_all(instance, status, &detail);
        }
    }

    /// Tells the controllers of an owner that an instance of which nothing is kept has failed.
    pub(super) fn notify_failed(&self, owner: &str, id: &str, why: &str) {
        let its = self.subscribers.iter();
        for subscriber in its.filter(|to| &*to.caller.owner == owner) {
            push_failed(subscriber, id, why);
        }
    }

    fn push_to_all(&self, instance: &Arc<str>, status: ResourceStatus, detail: &str) {
        let it = &self.instances[instance];
        let its = self.subscribers.iter();
        for subscriber in its.filter(|to| concerns(it, &to.caller)) {
            push(subscriber, it, status, detail.to_owned());
        }
    }

    /// Tells a controller that wants an instance destroyed, of which nothing is known here, that it is `Terminated`: it
    /// may list it from an earlier time. Not if the stream had an end of this id within the last seconds, and no failure
    /// since then.
    pub(super) fn notify_gone(&mut self, id: &str, caller: &Caller) {
        // Without tokens, callers are told apart by the address of their connection: another controller may list an
        // instance with the same id.
        let is_its = |to: &&Subscriber| match (&caller.owner, caller.address) {
            (owner, Some(address)) if owner.is_empty() => to.caller.address == Some(address),
            (owner, _) => to.caller.owner == *owner,
        };
        let about = About::Unknown(id.into());
        let gone = message(id, ResourceStatus::Terminated, String::new(), None);
        let to = self.subscribers.iter().filter(is_its);
        let was_refused = self.refused.remove(&caller.owner, id);
        let to = to.filter(|it| was_refused || !it.has_heard_the_end(id));
        to.for_each(|it| it.push(about.clone(), gone.clone(), Last::Yes));
    }

    /// Tells all controllers a worker's metrics. Workers belong to no controller.
    pub(super) fn notify_worker(
        &mut self,
        worker: &Arc<str>,
        address: &str,
        metric: &WorkerMetric,
    ) {
        for subscriber in &self.subscribers {
            let about = About::Worker(Arc::clone(worker));
            subscriber.push(about, of_worker(worker, address, metric), Last::No);
        }
    }

    /// Begins a stream with the state of all workers and of all instances that concern its controller.
    ///
    /// A controller that takes updates of ids that it does not know, as of sets, is told again of its latest ends: it may
    /// not have heard them. RIK's own would hear of an instance that it has removed from its list, and never listen
    /// again; it asks for an instance that it still lists to be destroyed, and is told then.
    pub(super) fn push_snapshot(&self, subscriber: &Subscriber) {
        for (worker, (address, metric)) in &self.workers {
            let about = About::Worker(Arc::clone(worker));
            subscriber.push(about, of_worker(worker, address, metric), Last::No);
        }
        let all = self.instances.values();
        for it in all.filter(|it| concerns(it, &subscriber.caller)) {
            let (status, detail) = it.status();
            push(subscriber, it, status, detail);
        }
        let owner = &subscriber.caller.owner;
        for (id, why) in self.refused.of(owner) {
            push_failed(subscriber, id, why);
        }
        if !subscriber.caller.knows_sets {
            return;
        }
        for id in self.told.of(owner) {
            // An instance that has the id by now is not over.
            let key = (Arc::clone(owner), id.to_owned());
            if !self.by_id.contains_key(&key) {
                let gone = message(id, ResourceStatus::Terminated, String::new(), None);
                subscriber.push(About::Unknown(id.into()), gone, Last::Yes);
            }
        }
    }

    /// Forgets instances whose end a controller has read, and streams whose reader is gone; destroys what could not be
    /// destroyed before.
    pub(super) fn tidy(&mut self) {
        for at in 0..self.subscribers.len() {
            for instance in self.subscribers[at].done() {
                if let Some(removed) = self.remove(&instance) {
                    self.told.note(removed.record, Instant::now());
                    self.changes.push(Change::Forget(instance));
                }
            }
        }
        self.told.tidy(Instant::now());
        self.destroy_what_is_to_go();
        self.subscribers.retain(|it| !it.is_gone());
        self.end_the_unread();
        let instances = &self.instances;
        self.over.retain(|it| instances.contains_key(it));
    }
}

impl Coordinator {
    /// Ends streams that are not read, those that are furthest behind first, until all together are within
    /// [`MAX_ALL_UNREAD`].
    fn end_the_unread(&self) {
        let mut unread: Vec<_> = self
            .subscribers
            .iter()
            .map(|it| (it.unread_bytes(), it))
            .collect();
        unread.sort_by_key(|(bytes, _)| *bytes);
        let mut all: usize = unread.iter().map(|(bytes, _)| bytes).sum();
        while all > MAX_ALL_UNREAD
            && let Some((bytes, furthest)) = unread.pop()
        {
            warn!(
                event = "updates_not_read",
                bytes, "a controller does not read its stream of updates: it is ended"
            );
            furthest.overflow();
            all -= bytes;
        }
    }
}

/// Whether a controller is told of an instance: those of its own token. Members of sets have ids that no controller
/// named, and only a controller that says that it knows sets is told of them.
fn concerns(it: &Instance, caller: &Caller) -> bool {
    it.record.owner == caller.owner && (it.record.set.is_none() || caller.knows_sets)
}

/// Queues an instance's status. `Terminated` is the last update about it.
fn push(subscriber: &Subscriber, it: &Instance, status: ResourceStatus, detail: String) {
    let worker = it.said.as_ref().map(|said| &*said.worker);
    let last = match status {
        ResourceStatus::Terminated => Last::Yes,
        _ => Last::No,
    };
    let about = About::Instance(Arc::clone(&it.record.instance));
    subscriber.push(about, message(&it.record.id, status, detail, worker), last);
}

/// Queues that an instance has failed of which nothing is kept.
fn push_failed(subscriber: &Subscriber, id: &str, why: &str) {
    let failed = message(id, ResourceStatus::Failed, why.to_owned(), None);
    subscriber.push(About::Unknown(id.into()), failed, Last::No);
}

/// The protocol's message about an instance. `identifier` is the worker, empty where none is known.
fn message(id: &str, status: ResourceStatus, detail: String, worker: Option<&str>) -> WorkerStatus {
    WorkerStatus {
        status: Some(Subject::Instance(InstanceMetric {
            status: status.into(),
            metrics: detail,
            instance_id: id.to_owned(),
        })),
        identifier: worker.unwrap_or_default().to_owned(),
        host_address: None,
    }
}

/// The protocol's message about a worker.
fn of_worker(worker: &str, address: &str, metric: &WorkerMetric) -> WorkerStatus {
    WorkerStatus {
        status: Some(Subject::Worker(metric.clone())),
        identifier: worker.to_owned(),
        // Always one that can be parsed: the original's controller ends over any other.
        host_address: Some(address.to_owned()),
    }
}
