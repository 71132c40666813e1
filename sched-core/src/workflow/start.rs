//! A START finds its node: the choice, the claim in the same step, and what is said when nothing fits.

use std::sync::Arc;
use std::time::Instant;

use sched_model::{InstancePlaced, StartFailure, StartFailureReason, Topic};

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice, PlacedStart};
use crate::api::cause::Cause;
use crate::api::declined::Refusal;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::StartRequest;
use crate::cluster::Released;
use crate::cluster::ledger::{Entry, Extras, Phase, Unconfirmed};
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::cluster::view::is_hard;
use crate::instance::{Instance, State};
use crate::peers::owner::Owner;
use crate::placement::explain::Explanation;
use crate::workflow::admission::{Known, NewStart};
use crate::workflow::reports::lives_on;

impl Scheduler {
    pub(crate) fn start(&mut self, now: Instant, start: Box<PlacedStart>) {
        self.counters.starts += 1;
        let is_native = || self.peers.is_native(start.sender);
        if let Err(problem) = self.placement.check(&start.request, is_native) {
            return self.refuse_start(&start, problem);
        }
        if !self.has_room_to_keep(&start) {
            return self.fail_for_room(&start, Refusal::TooMany);
        }
        if let Some(start) = self.hold_for_disk(start) {
            self.let_in(now, start);
        }
    }

    /// Goes on with a START that need not wait for the disk.
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

    /// Whether there is room for a START, if it would have to be kept.
    fn has_room_to_keep(&self, start: &PlacedStart) -> bool {
        let request = &start.request;
        if !self.is_to_keep(request) || self.instances.contains(&request.instance) {
            return true;
        }
        let is_trial = request.scheduling.as_ref().is_some_and(|it| it.dry_run);
        let is_operators = self.peers.owner(start.sender) != Owner::Controllers;
        let size = self.instances.size();
        is_trial || size.has_room(start.parcel.payload.len(), is_operators)
    }

    /// Gives a START to the node that has its instance, else to one that fits; else it waits or fails.
    pub(crate) fn place(&mut self, now: Instant, start: Box<PlacedStart>) {
        if let Some(start) = self.admit_start(start) {
            self.place_new(now, start);
        }
    }

    fn place_new(&mut self, now: Instant, start: NewStart) {
        if self.waits_for_members(start.request()) {
            // Wherever it went, members may turn up on the wrong side of it.
            return self.hold(start.into_start(), Some(Refusal::Crowded));
        }
        let query = Query::of(start.request());
        let chosen = if self.is_to_manage(&start) {
            self.choose_wary(&query)
        } else {
            self.choose(&query)
        };
        match chosen {
            Some(key) => self.claim(now, key, &query, start),
            None => self.without_room(start),
        }
    }

    /// Whether nodes that may have members of a START's group are still coming back after a restart: before they have,
    /// no one can say where its members are.
    pub(crate) fn waits_for_members(&self, request: &StartRequest) -> bool {
        let group = request
            .scheduling
            .as_ref()
            .and_then(|scheduling| scheduling.group.as_ref());
        self.recovery.is_open() && group.is_some_and(is_hard)
    }

    /// Whether a START cannot be placed before certain nodes have come back after a restart: those that may have members of
    /// its group, or the one that had its instance.
    pub(crate) fn waits_for_nodes(&self, request: &StartRequest) -> bool {
        match self.known(&request.instance) {
            Known::Nowhere => self.waits_for_members(request),
            known => known == Known::Expected,
        }
    }

    /// Claims on a node what a START asks for, and gives it the START.
    fn claim(&mut self, now: Instant, key: NodeKey, query: &Query, start: NewStart) {
        self.reserve(now, key, start.as_start().sender, query);
        self.hand_over_reserved(key, start);
    }

    /// Claims on a node what a query is for.
    pub(crate) fn reserve(&mut self, now: Instant, key: NodeKey, sender: SessionId, query: &Query) {
        let instance = query.instance();
        let entry = if self.journal.is_recorded(instance) {
            // What a crash would leave of it says that no node has it: its node is told once that is not so any more.
            self.claimed(query)
        } else {
            let restart = query.request().restart;
            let unconfirmed = self.cluster.number_start(key, sender, restart);
            Entry::placed(query.asked(), self.extras(query), now, unconfirmed)
        };
        self.cluster.claim(key, instance, entry);
        self.note_try(instance, key);
    }

    /// Undoes the latest [`Scheduler::reserve`] on a node.
    pub(crate) fn unreserve(&mut self, key: NodeKey, instance: &InstanceId) {
        if let Some(released) = self.cluster.undo_claim(key, instance) {
            self.claim_released(key, instance, released);
        }
    }

    pub(crate) fn extras(&self, query: &Query) -> Extras {
        if query.asks_for_room_alone() {
            return Extras::default();
        }
        let group = query.scheduling().and_then(|it| it.group.as_ref());
        Extras {
            custom: self.cluster.amounts(query.amounts()),
            group: group.map(|group| Arc::from(&*group.id)),
        }
    }

    /// A START of an instance that lives already goes to its node, which knows best how to answer.
    pub(crate) fn repeat(&mut self, holder: NodeKey, start: Box<PlacedStart>) {
        let instance = &start.request.instance;
        self.placement.forget_try(instance);
        let (sender, restart) = (start.sender, start.request.restart);
        if self.cluster.nodes().node(holder).session().is_none() {
            // The node is lost: this START shares the doubt about the instance.
            let unconfirmed = Unconfirmed {
                sender,
                ordinal: 0,
                restart,
            };
            let in_doubt = Phase::InDoubt(unconfirmed);
            self.cluster
                .ledger_mut(holder)
                .set_phase(instance, in_doubt);
            return;
        }
        let unconfirmed = self.cluster.number_start(holder, sender, restart);
        self.cluster
            .ledger_mut(holder)
            .repeat(instance, unconfirmed);
        self.hand_over(holder, start);
    }

    pub(crate) fn hand_over(&mut self, key: NodeKey, start: Box<PlacedStart>) {
        self.counters.placed += 1;
        let node = self.cluster.nodes().node(key);
        let Some(session) = node.session() else {
            return;
        };
        self.notice(Notice::Placed(start.request.instance.clone(), node.uuid()));
        if self.peers.has_subscribers() {
            self.tell_placement(key, &start.request.instance);
        }
        self.act(Action::Send {
            to: session,
            message: Message::Start(start),
        });
    }

    fn tell_placement(&mut self, key: NodeKey, instance: &InstanceId) {
        let node = self.cluster.nodes().node(key);
        let event = InstancePlaced {
            instance_uuid: instance.to_string(),
            node_uuid: node.uuid().to_string(),
            hostname: node.hostname().to_owned(),
        };
        self.tell_watchers(Topic::Placements, None, |_| {
            Some(Message::InstancePlaced(event.clone()))
        });
    }

    /// Fails every START that waits: the scheduler leaves, and no one else knows of them.
    pub(crate) fn fail_waiting(&mut self) {
        self.journal.leave();
        self.recovery.close();
        while let Some(start) = self.recovery.take() {
            self.fail_start(&start, Refusal::Leaving);
        }
        self.set_recovery_timer();
        if self.config.durable {
            // What waits is on disk, and goes on waiting when the scheduler is back.
            if self.journal.is_in_trouble() {
                self.fail_unwritten();
            }
            return;
        }
        self.fail_batches();
        let is_untold = |kept: &Instance| match kept.state() {
            State::Seeking { .. } | State::Waiting { .. } => true,
            State::Placing(placing) => !placing.pending_on.is_given(),
            _ => false,
        };
        let untold = self.instances.iter().filter(|(_, kept)| is_untold(kept));
        let untold: Vec<_> = untold
            .map(|(instance, kept)| (instance.clone(), kept.state().node()))
            .collect();
        for (instance, node) in untold {
            if let Some(key) = node {
                self.release(key, &instance);
            }
            let why = Explanation::of(Refusal::Leaving.into());
            self.fail_kept(&instance, StartFailureReason::LaunchFailure, None, why);
        }
    }

    /// Tries some of the STARTs that wait in the recovery window again; once it has closed, what does not fit fails.
    pub(crate) fn retry_recovery(&mut self, now: Instant, attempts: usize) {
        for _ in 0..attempts.min(self.recovery.len()) {
            let Some(start) = self.recovery.take() else {
                return;
            };
            if self.waits_for_nodes(&start.request) {
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

    /// Fails a START that was taken back, or whose node is gone.
    pub(crate) fn fail_start(&mut self, start: &PlacedStart, refusal: Refusal) {
        let reason = StartFailureReason::LaunchFailure;
        self.fail_with(start, reason, Explanation::of(refusal.into()));
    }

    /// Fails a START for which there is no room where it would have to wait.
    pub(crate) fn fail_for_room(&mut self, start: &PlacedStart, refusal: Refusal) {
        let reason = self.no_room(&start.request);
        self.fail_with(start, reason, Explanation::of(refusal.into()));
    }

    /// Fails a START that no node fits.
    pub(crate) fn fail_without_node(&mut self, start: &PlacedStart) {
        let why = self.why_not(&Query::of(&start.request));
        let reason = self.no_room(&start.request);
        self.fail_with(start, reason, why);
    }

    /// The protocol's word for that nothing fits.
    pub(crate) fn no_room(&self, request: &StartRequest) -> StartFailureReason {
        if request.network_node {
            StartFailureReason::NoNetworkNodes
        } else if self.cluster.table(Pool::Compute).len() == 0 {
            StartFailureReason::NoComputeNodes
        } else {
            StartFailureReason::FullCloud
        }
    }

    /// Fails a START because of what it says itself.
    pub(crate) fn refuse_start(&mut self, start: &PlacedStart, problem: Refusal) {
        let reason = StartFailureReason::InvalidData;
        self.fail_with(start, reason, Explanation::of(problem.into()));
    }

    /// Sends a StartFailure for a START.
    pub(crate) fn fail_with(
        &mut self,
        start: &PlacedStart,
        reason: StartFailureReason,
        why: Explanation,
    ) {
        let request = &start.request;
        self.answer_start(
            start.sender,
            &request.instance,
            reason,
            request.restart,
            why,
        );
    }

    /// Fails a START whose payload is gone: it was written to its node.
    pub(crate) fn fail_unconfirmed(&mut self, instance: &InstanceId, start: Unconfirmed) {
        let why = Explanation::of(Refusal::Lost.into());
        self.answer_start(
            start.sender,
            instance,
            StartFailureReason::LaunchFailure,
            start.restart,
            why,
        );
    }

    /// Sends a StartFailure to the sender of a START, or to all controllers if it has left.
    pub(crate) fn answer_start(
        &mut self,
        sender: SessionId,
        instance: &InstanceId,
        reason: StartFailureReason,
        restart: bool,
        why: Explanation,
    ) {
        let failure = StartFailure {
            instance_uuid: instance.to_string(),
            reason,
            restart,
            reasons: why.reasons,
            never: why.never,
            ..StartFailure::default()
        };
        self.tell_failure(sender, Explained::new(failure, why.cause));
    }

    /// Tells the sender of a START that it failed, or all controllers if it has left: each in words it knows.
    pub(crate) fn tell_failure(&mut self, sender: SessionId, full: Explained<StartFailure>) {
        if let Some(full) = self.hold_failure(sender, full) {
            self.tell_failure_now(sender, full);
        }
    }

    pub(crate) fn tell_failure_now(&mut self, sender: SessionId, full: Explained<StartFailure>) {
        self.counters.failed += 1;
        self.counters.failures.note(&full.reason);
        self.notice(Notice::Failed(Box::new(full.clone())));
        // No word of the original's says that it could not be recorded.
        let cause = match full.reason {
            StartFailureReason::NotRecorded => full.cause.clone(),
            _ => Cause::Plain,
        };
        let plain = Explained::new(full.to_original(), cause);
        let worded = |native: bool| Box::new(if native { full.clone() } else { plain.clone() });
        match self.peers.get(sender) {
            Some(session) => {
                let message = Message::StartFailure(worded(session.is_native()));
                self.send(sender, message);
                if lives_on(&full.reason) {
                    // Nothing has failed for any other operator, who may have started it and wait for its end.
                    return;
                }
                self.tell_watchers(Topic::Failures, Some(sender), |_| {
                    Some(Message::StartFailureCopy(worded(true)))
                });
            }
            None => {
                if !self.peers.has_controllers() {
                    let message = Message::StartFailure(worded(true));
                    self.peers.note_told(self.now, None, &message);
                }
                self.tell_controllers(Topic::Failures, |session| {
                    Some(Message::StartFailureCopy(worded(session.is_native())))
                });
            }
        }
    }

    /// Takes an instance's entry out of a node's ledger.
    pub(crate) fn release(&mut self, key: NodeKey, instance: &InstanceId) {
        if let Some(released) = self.cluster.release(key, instance) {
            self.claim_released(key, instance, released);
        }
    }

    fn claim_released(&mut self, key: NodeKey, instance: &InstanceId, released: Released) {
        if released.was_placed {
            self.placement.forget_try(instance);
        }
        self.stir_drain_of(key);
    }
}
