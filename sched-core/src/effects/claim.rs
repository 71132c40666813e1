//! Claims on nodes: made, undone and released, each with what belongs to it (a try on a full node, a drain that waits, the
//! rule against starvation), and the START that goes to a launcher once its room is claimed.

use std::time::Instant;

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice};
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{Capabilities, InstanceState};
use crate::api::start::PlacedStart;
use crate::cluster::ledger::{ClaimState, Entry, Suspension, Unconfirmed};
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::instance::{Instance, LifecycleEvent};
use crate::journal::Next;
use crate::queue::Rank;

impl Scheduler {
    /// Counts a placement against those in the queue that it passed over, and reserves a node for the first that was
    /// passed over too often. If no node could ever run that one, it is parked, so that the rule goes on to the next.
    pub(crate) fn note_placed(&mut self, pool: Pool, rank: Rank) {
        if self.queue.is_empty() {
            return;
        }
        self.queue.placed(pool, rank);
        let Some(head) = self.queue.reserving(pool) else {
            return;
        };
        let instance = head.instance().clone();
        let kept = self.sight().node_to_keep(pool, head);
        let is_kept = kept.is_some_and(|key| self.queue.reserve(&instance, key, self.now));
        if !is_kept {
            self.queue.park(&instance);
        }
    }

    /// Enters a START into a node's ledger, with the amounts it asks for. Undone by `Cluster::undo_claim`.
    pub(crate) fn reserve(&mut self, now: Instant, key: NodeKey, sender: SessionId, query: &Query) {
        let instance = query.instance();
        let entry = if self.journal.is_recorded(instance) {
            // Its record on disk says that no node has it. Its node is sent the START once that record has been
            // replaced.
            self.cluster.claimed(query, self.now)
        } else {
            let restart = query.request().restart;
            let unconfirmed = self.cluster.number_start(key, sender, restart);
            let entry = Entry::placed(query.asked(), self.cluster.extras(query), now, unconfirmed);
            entry.with_content(query.request().content)
        };
        self.cluster.claim(key, instance, entry);
        self.cluster.note_try(instance, key);
    }

    /// A START of an instance that is on a node already goes to that node, whose launcher knows best how to answer. If
    /// the node is lost, this START is in doubt as the first one is, and what becomes of that is its outcome.
    pub(crate) fn resend(&mut self, node: NodeKey, start: Box<PlacedStart>) {
        let instance = &start.request.instance;
        self.cluster.forget_try(instance);
        let (sender, restart) = (start.sender, start.request.restart);
        if self.cluster.session(node).is_none() {
            // The node is lost: this START shares the doubt about the instance.
            let unconfirmed = Unconfirmed {
                sender,
                ordinal: 0,
                restart,
            };
            let in_doubt = ClaimState::InDoubt(unconfirmed);
            self.cluster
                .ledger_mut(node)
                .set_claim_state(instance, in_doubt);
            return;
        }
        let unconfirmed = self.cluster.number_start(node, sender, restart);
        self.cluster.ledger_mut(node).resend(instance, unconfirmed);
        self.dispatch(node, start);
    }

    /// Queues a START for its node's connection. The ledger has its entry by now; if the connection ends before it is
    /// written, it comes back in `Input::Disconnected`.
    pub(crate) fn dispatch(&mut self, key: NodeKey, mut start: Box<PlacedStart>) {
        self.counters.placed += 1;
        let node = self.cluster.node(key);
        let Some(session) = node.session() else {
            return;
        };
        if let Some(changes) = &mut start.changes {
            changes.as_fields = node.can(Capabilities::OVERRIDES);
        }
        self.notice(Notice::Placed(start.request.instance.clone(), node.uuid()));
        if self.peers.has_subscribers() {
            self.notify_placement(key, &start.request.instance);
        }
        self.act(Action::Send {
            to: session,
            message: Message::Start(start),
        });
    }

    /// Claims room on a node for an instance that waited or is placed again. It is given to the node once the claim is
    /// on disk: after a crash before that, it would be placed again and could run twice. Does nothing if its state does
    /// not allow it.
    pub(crate) fn claim_managed(&mut self, instance: &InstanceId, key: NodeKey, cause: &Cause) {
        let Some(query) = self.instances.query_of(instance) else {
            return;
        };
        let (event, now) = (LifecycleEvent::Claimed { node: key }, self.now);
        let is_claimed = self.turn(instance, event, cause, |cluster| {
            cluster.claim_as(&query, key, now);
            cluster.set_placement(instance, key);
            cluster.note_try(instance, key);
        });
        if is_claimed {
            self.after_commit(instance, Next::Give);
            self.count_placement(instance);
        }
    }

    /// Counts that an instance was given room, against those that wait before it (the rule against starvation, in
    /// `reservations`).
    pub(crate) fn count_placement(&mut self, instance: &InstanceId) {
        let managed = self.instances.get(instance);
        if let Some(request) = managed.and_then(|managed| managed.request()) {
            let (pool, rank) = (Pool::of(request), self.sight().rank_of(request));
            self.note_placed(pool, rank);
        }
    }

    /// Releases an instance's claim on a node that does not have it, or is not to have it, and looks for another node;
    /// whether it does.
    pub(crate) fn release_and_reschedule(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        cause: &Cause,
    ) -> bool {
        self.turn_to_seek(instance, cause, |cluster| {
            cluster.release(key, instance);
        })
    }

    /// Makes a plain instance a managed one, because a command is about it. Its START is not known: it can be
    /// suspended, changed, and moved with its state, but not placed again. Whether it is managed now; `false` if its
    /// node has not listed it.
    pub(crate) fn ensure_managed(&mut self, key: NodeKey, instance: &InstanceId) -> bool {
        if self.instances.contains(instance) {
            return true;
        }
        let Some(entry) = self.cluster.entry(key, instance) else {
            return false;
        };
        if entry.claim_state() != ClaimState::Running {
            return false;
        }
        let is_suspended = entry.reported() == Some(InstanceState::ExitPaused);
        let event = LifecycleEvent::Adopted {
            node: key,
            is_suspended,
        };
        let (since, uuid) = (entry.since(), self.cluster.uuid(key));
        let order = self.queue.next_order();
        let mut runs = self.instances.numbers_after(instance);
        runs.begin(uuid);
        let managed = Instance::adopted(uuid, order, since).with_runs(runs);
        let Some(place) = self.instances.vacant(instance.clone()) else {
            return true;
        };
        if let Err(illegal) = place.insert(event, managed) {
            self.note_illegal(illegal);
            return false;
        }
        let mut ledger = self.cluster.ledger_mut(key);
        ledger.set_managed(instance, true);
        if is_suspended {
            ledger.set_suspended(instance, Suspension::ByCommand);
        }
        true
    }
}
