//! What follows from changes of the cluster. The cluster only records what has changed; here nodes that offer more are
//! offered to the queue, reservations are looked at again, claims are noted for the disk, and launchers and people are
//! told what does not count. Keeps `cluster` from calling anything above it.

use crate::Scheduler;
use crate::api::action::{Message, Notice};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::refused::RefusalCause;
use crate::api::sent::ReportName;
use crate::api::text::ShortText;
use crate::cluster::ClusterChange;
use crate::cluster::advice::Advice;
use crate::cluster::node::Pool;
use crate::timers::Timer;

impl Scheduler {
    /// More of what runs on a node may be preempted now: the node is offered to those that wait.
    pub(crate) fn wake_for_preemption(&mut self, key: NodeKey) {
        if self.placement.policy().preempts() {
            self.wake(key);
        }
    }

    /// Marks all runs that have changed for the disk, and those that come after these instances to be looked at.
    pub(crate) fn note_changed_runs(&mut self) {
        while let Some(number) = self.instances.next_changed_run() {
            self.journal.note_run(number);
            if self.queue.has_dependents()
                && let Some(run) = self.instances.run(number)
            {
                self.queue.wake_dependents_of(run.instance());
            }
        }
    }

    /// Has the recovery window closed in time, and what waited for that tried again at once.
    pub(crate) fn set_recovery_timer(&mut self) {
        let mut due = self.recovery.due(self.pending.for_nodes() > 0);
        if !self.recovery.is_open() {
            due = due.into_iter().chain(self.pending.complete_due()).min();
        }
        self.timers.put(Timer::Recovery, due);
    }

    /// Takes an instance out of the queue, if it is there. Others may get what it was in the way of: instances that it
    /// kept from being resumed, and the node that was reserved for it.
    pub(crate) fn leave_queue(&mut self, instance: &InstanceId) {
        self.queue.depend_no_more(instance);
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

    /// Deals with all changes since the last call, in order. Called before anything that reads the queue's view of
    /// nodes, and at the end of each input.
    pub(crate) fn note_changes(&mut self) {
        while let Some(change) = self.cluster.take_change() {
            self.note_change(change);
        }
    }

    /// Deals with one change.
    fn note_change(&mut self, change: ClusterChange) {
        match change {
            ClusterChange::Capacity(key) => self.capacity_changed(key),
            ClusterChange::Narrowed(key) => {
                if self.queue.take_outranked(key) {
                    self.queue.wake(key);
                }
            }
            ClusterChange::Altered(key, tables) => self.reconsider_reservations(key, tables),
            ClusterChange::Claims(node) => self.journal.note_claims(node, self.now),
            ClusterChange::TwoZones(node, zone) => self.notice(Notice::TwoZones(node, zone)),
            ClusterChange::Offered(session, rules) => {
                self.send(session, Message::OfferRules(Box::new(rules)));
            }
            ClusterChange::Pressure(key) => self.pressure_changed(key),
            ClusterChange::LeftOut(session, node, advice) => {
                let name = match advice {
                    Advice::TooManyInstances(_) => ReportName::Stats,
                    Advice::TooManyNames(_) | Advice::SharesAlone(_) => ReportName::Ready,
                };
                let detail = ShortText::from(advice.to_string());
                let cause = RefusalCause::LeftOut(detail.clone());
                self.refuse(session, name.into(), cause, None);
                self.notice(Notice::LeftOut(node, detail));
            }
        }
    }

    /// Offers a node to those that wait although it has no more room than before: something else has changed that may
    /// let one of them use it.
    pub(crate) fn wake(&mut self, key: NodeKey) {
        self.note_changes();
        self.capacity_changed(key);
    }

    /// Marks a node as awake for the queue, and drains as having room to try. The search for what fits is done later,
    /// in bounded steps.
    fn capacity_changed(&mut self, key: NodeKey) {
        self.queue.wake(key);
        self.cluster.note_room_for_drains(self.now);
    }

    /// A node has joined or left these tables, or is a different one now. A reservation on it ends, since the instance
    /// may not fit any more, and instances without a reservation may get one on this node.
    fn reconsider_reservations(&mut self, key: NodeKey, tables: [bool; 2]) {
        if self.queue.is_empty() {
            return;
        }
        if self.queue.unreserve(key).is_some() {
            self.capacity_changed(key);
        }
        for pool in Pool::ALL {
            if tables[pool as usize] {
                self.queue.reconsider(pool);
            }
        }
    }

    /// An instance has left the queue. Nodes on which it kept suspended instances from being resumed are offered to the
    /// queue, a few at a time.
    pub(crate) fn outranks_no_more(&mut self) {
        /// Nodes offered at once. The others follow when the next one leaves, or when the timer of a suspended instance
        /// is due.
        const WOKEN_AT_ONCE: usize = 16;
        for _ in 0..WOKEN_AT_ONCE {
            let Some(key) = self.queue.next_outranked() else {
                return;
            };
            if self.cluster.contains(key) {
                self.wake(key);
            }
        }
    }
}
