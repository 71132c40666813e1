//! A START finds its node: the choice, the claim in the same step, and the way to its launcher. Whether it may be
//! placed at all is `admission`'s; what is answered where nothing fits is in `start_failures`.
//!
//! The way of a plain START: `start` (checks), `let_in` (dry run, batch, or alone), `place` (admission), `place_new`
//! (choice), `claim` (an entry in the node's ledger), `dispatch` (the frame to the launcher). Choice and claim happen
//! under one lock, so that no two STARTs are given the same room.

use std::time::Instant;

use sched_model::{InstancePlaced, Topic};

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice};
use crate::api::declined::Refusal;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::Capabilities;
use crate::api::start::PlacedStart;
use crate::cluster::Released;
use crate::cluster::ledger::{ClaimState, Entry, Unconfirmed};
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::peers::owner::Owner;
use crate::placement::explain::Explanation;
use crate::sight::Sight;
use crate::workflow::admission::NewStart;

impl Scheduler {
    /// Takes in a START from a client: refuses what could never be placed as it is written, and what there is no memory
    /// for.
    pub(crate) fn start(&mut self, now: Instant, start: Box<PlacedStart>) {
        self.counters.starts += 1;
        let is_native = || self.peers.is_native(start.sender);
        if let Err(problem) = self.placement.check(&start.request, is_native) {
            return self.refuse_start(&start, problem);
        }
        if !self.sight().has_room_to_manage(&start) {
            return self.fail_for_room(&start, Refusal::TooMany);
        }
        if let Some(start) = self.hold_for_disk(start) {
            self.let_in(now, start);
        }
    }

    /// Goes on with a START that need not wait for the disk: decides a dry run, adds it to its batch, or places it.
    pub(crate) fn let_in(&mut self, now: Instant, start: Box<PlacedStart>) {
        match start.request.scheduling.as_deref() {
            Some(scheduling) if scheduling.dry_run => self.decide(&start),
            Some(scheduling) if scheduling.batch.is_some() => {
                let owner = self.peers.owner(start.sender);
                self.join_batch(now, owner, *start);
            }
            _ => self.place(now, start),
        }
    }

    /// Places a START that stands alone: on the node that has its instance, else on one that fits; else it waits or
    /// fails.
    pub(crate) fn place(&mut self, now: Instant, start: Box<PlacedStart>) {
        if let Some(start) = self.admit_start(start) {
            self.place_new(now, start);
        }
    }

    /// Places a START whose instance is nowhere, or on a lost node that is not waited for.
    fn place_new(&mut self, now: Instant, start: NewStart) {
        if self.journal.has_lost_plain() {
            self.journal
                .forget_lost_plain(&start.request().instance, now);
        }
        if self.sight().waits_for_members(start.request()) {
            // Wherever it went, members may turn up on the wrong side of it.
            return self.hold(start.into_start(), Some(Refusal::Crowded));
        }
        let query = Query::of(start.request());
        let chosen = if self.sight().is_to_manage(&start) {
            self.choose_avoiding_failing(&query)
        } else {
            self.choose(&query)
        };
        match chosen {
            Some(key) => self.claim(now, key, &query, start),
            None => self.without_room(start),
        }
    }

    /// The node for a query: a READY one, else one that called itself full and has released room since. The node
    /// becomes the most recently used, from where the next search begins; a caller that does not carry the choice out
    /// puts cursors and random generator back. Nodes that are reserved for others are left out.
    pub(crate) fn choose(&mut self, query: &Query) -> Option<NodeKey> {
        let ready = self.choose_ready(query);
        if ready.is_some() || self.cluster.full_nodes().is_empty() {
            return ready;
        }
        self.in_open(query, Self::choose_full)
    }

    /// The same of READY nodes alone: for instances that run, which are not moved to where they may be refused.
    pub(crate) fn choose_ready(&mut self, query: &Query) -> Option<NodeKey> {
        self.in_open(query, |scheduler, query| {
            let now = scheduler.now;
            let cluster = &mut scheduler.cluster;
            scheduler.placement.choose(cluster, query, now)
        })
    }

    /// The node for a managed instance: one that failed often recently only if no other fits.
    pub(crate) fn choose_avoiding_failing(&mut self, query: &Query) -> Option<NodeKey> {
        let failing = self.cluster.failing_nodes(self.now);
        if failing.is_empty() {
            return self.choose(query);
        }
        let avoiding = query.clone().avoiding(failing);
        self.choose_ready(&avoiding).or_else(|| self.choose(query))
    }

    /// Runs a choice without the nodes that are reserved for others. The queue is empty as a rule, so that is asked
    /// first.
    fn in_open(
        &mut self,
        query: &Query,
        choose: impl FnOnce(&mut Self, &Query) -> Option<NodeKey>,
    ) -> Option<NodeKey> {
        if self.queue.is_empty() {
            return choose(self, query);
        }
        let closed = self.sight().closed_to(query);
        if closed.is_empty() {
            return choose(self, query);
        }
        choose(self, &query.clone().avoiding(closed))
    }

    /// Why no node fits a query now. Looks at every node; for queries that are alike, the same answer is used for a
    /// short while.
    pub(crate) fn why_not(&mut self, query: &Query) -> Explanation {
        self.placement.why_not(&mut self.cluster, query, self.now)
    }

    /// The same computed again: for dry runs and batches, whose temporary claims are part of the answer.
    pub(crate) fn why_not_now(&mut self, query: &Query) -> Explanation {
        self.placement
            .why_not_now(&mut self.cluster, query, self.now)
    }

    /// Claims on a node what a START asks for, and gives it the START.
    fn claim(&mut self, now: Instant, key: NodeKey, query: &Query, start: NewStart) {
        self.reserve(now, key, start.as_start().sender, query);
        self.launch_reserved(key, start);
    }

    /// Gives a START to the node on which its room is reserved: at once if it is plain, else by way of the managed
    /// instance it becomes. The placement is counted against those that wait before it.
    pub(crate) fn launch_reserved(&mut self, key: NodeKey, start: NewStart) {
        let waited = (!self.queue.is_empty()).then(|| {
            (
                Pool::of(start.request()),
                self.sight().rank_of(start.request()),
            )
        });
        if self.sight().is_to_manage(&start) {
            self.begin_placing(key, start);
        } else {
            self.placement.keep_tried(start.as_start());
            self.dispatch(key, start.into_start());
        }
        if let Some((pool, rank)) = waited {
            self.note_placed(pool, rank);
        }
    }

    /// Enters a START into a node's ledger, with the amounts it asks for. Undone by [`Scheduler::unreserve`].
    pub(crate) fn reserve(&mut self, now: Instant, key: NodeKey, sender: SessionId, query: &Query) {
        let instance = query.instance();
        let entry = if self.journal.is_recorded(instance) {
            // Its record on disk says that no node has it. Its node is sent the START once that record has been
            // replaced.
            self.sight().claimed(query)
        } else {
            let restart = query.request().restart;
            let unconfirmed = self.cluster.number_start(key, sender, restart);
            let entry = Entry::placed(query.asked(), self.cluster.extras(query), now, unconfirmed);
            entry.with_content(query.request().content)
        };
        self.cluster.claim(key, instance, entry);
        self.note_try(instance, key);
    }

    /// Undoes the latest [`Scheduler::reserve`] on a node: for dry runs, and for batches of which one START does not
    /// fit. Several are undone in reverse order.
    pub(crate) fn unreserve(&mut self, key: NodeKey, instance: &InstanceId) {
        if let Some(released) = self.cluster.undo_claim(key, instance) {
            self.claim_released(key, instance, released);
        }
    }

    /// A START of an instance that is on a node already goes to that node, whose launcher knows best how to answer. If
    /// the node is lost, this START is in doubt as the first one is, and what becomes of that is its outcome.
    pub(crate) fn resend(&mut self, node: NodeKey, start: Box<PlacedStart>) {
        let instance = &start.request.instance;
        self.placement.forget_try(instance);
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

    /// Sends subscribers of placements which node a START was given to.
    fn notify_placement(&mut self, key: NodeKey, instance: &InstanceId) {
        let node = self.cluster.node(key);
        let event = InstancePlaced {
            instance_uuid: instance.to_string(),
            node_uuid: node.uuid().to_string(),
            hostname: node.hostname().to_owned(),
        };
        self.notify_subscribers(Topic::Placements, None, |_| {
            Some(Message::InstancePlaced(event.clone()))
        });
    }

    /// Tries up to `attempts` of the STARTs that wait in the recovery window again. While it is open, one that still
    /// does not fit goes on waiting; once it has closed, it is queued or fails.
    pub(crate) fn retry_recovery(&mut self, now: Instant, attempts: usize) {
        for _ in 0..attempts.min(self.recovery.len()) {
            let Some(start) = self.recovery.take() else {
                return;
            };
            if self.sight().waits_for_nodes(&start.request) {
                self.recovery.put_back(start);
                continue;
            }
            // A node may have come back with it.
            let Some(start) = self.admit_start(start) else {
                continue;
            };
            self.serve_before(start.request());
            let query = Query::of(start.request());
            match self.choose(&query) {
                Some(key) => self.claim(now, key, &query, start),
                None if self.recovery.is_open() => self.recovery.put_back(start.into_start()),
                None => self.without_room(start),
            }
        }
    }

    /// Takes an instance's entry out of a node's ledger, and its placement with it if that is the node it was placed
    /// on.
    pub(crate) fn release(&mut self, key: NodeKey, instance: &InstanceId) {
        if let Some(released) = self.cluster.release(key, instance) {
            self.claim_released(key, instance, released);
        }
    }

    /// What follows from a released claim: a try on a full node is over, and a drain of the node has less to wait for.
    fn claim_released(&mut self, key: NodeKey, instance: &InstanceId, released: Released) {
        if released.was_placed() {
            self.placement.forget_try(instance);
        }
        let uuid = self.cluster.uuid(key);
        self.cluster.note_left(uuid, instance);
    }
}

impl Sight<'_> {
    /// Whether there is memory for one more managed instance, if this START needs that. Dry runs keep nothing, and an
    /// instance that is managed already is counted.
    fn has_room_to_manage(&self, start: &PlacedStart) -> bool {
        let request = &start.request;
        if !self.placement.manages(request) || self.instances.contains(&request.instance) {
            return true;
        }
        let is_dry_run = request.scheduling.as_ref().is_some_and(|it| it.dry_run);
        let is_operators = self.peers.owner(start.sender) != Owner::Controllers;
        let size = self.instances.size();
        is_dry_run || size.has_room(start.parcel.payload.len(), is_operators)
    }
}
