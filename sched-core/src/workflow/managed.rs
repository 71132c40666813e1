//! What brings a managed instance from one state to the next; the states are drawn in `instance`, and what is done at
//! every transition is in `transition`.
//!
//! Here: how it is taken in, finds a node, is given to it, is confirmed or refused. How it waits is in `waiting`, how
//! it ends in `managed_end`; leaving in `preempt` and `suspend`; moving in `migrate`; lost nodes in `node_loss`.

use std::time::{Duration, Instant};

use sched_model::{OnNodeLoss, StartFailure, StartFailureReason, Uuid};

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::InstanceState;
use crate::api::phase::EventKind;
use crate::api::text::ShortText;
use crate::cluster::ledger::{ClaimState, Ended, EntryEnd};
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::instance::tried::Tried;
use crate::instance::{Awaits, Instance, LifecycleEvent, OnLoss, Placing, State, Terms};
use crate::journal::Next;
use crate::peers::owner::Owner;
use crate::placement::explain::Explanation;
use crate::workflow::admission::NewStart;

/// How long a launcher may take to suspend, resume or stop an instance before that counts as failed. Launchers kill
/// what does not end when asked, after 10 s or so.
pub(crate) const COMMAND_TIME: Duration = Duration::from_secs(60);

/// Nodes that a START is tried on if it does not say: only the chosen one, as in the original scheduler.
const USUAL_ATTEMPTS: u32 = 1;

impl Scheduler {
    /// Manages the instance of a START from now on; a node is to be looked for. If the instance was lost with its node
    /// and is started again, what was known of it ends first. `None` if its lifecycle refuses that, which is a defect.
    pub(crate) fn keep(&mut self, start: NewStart) -> Option<InstanceId> {
        let start = start.into_start();
        let instance = start.request.instance.clone();
        self.end_managing(&instance, &Cause::Restarted);
        let asked = start.request.scheduling.as_deref();
        let priority = asked.and_then(|asked| asked.priority);
        let queue = asked.and_then(|asked| asked.queue);
        let waits = queue.map(|span| Duration::from_millis(span.ms()));
        let waits = waits.filter(|it| !it.is_zero());
        let attempts = asked.and_then(|asked| asked.attempts);
        let is_to_restart = asked.is_some_and(|asked| asked.on_node_loss == OnNodeLoss::Restart);
        let terms = Terms {
            priority: priority.and_then(|it| u8::try_from(it).ok()),
            waits_until: waits.map(|it| self.now + it),
            max_attempts: attempts.unwrap_or(USUAL_ATTEMPTS),
            relocates: asked.is_some_and(|asked| asked.relocate)
                || self.placement.policy().manages_all(),
            on_loss: match is_to_restart {
                true => OnLoss::Restart,
                false => OnLoss::Report,
            },
            is_operators: self.peers.owner(start.sender) != Owner::Controllers,
            start: Some(start),
        };
        let order = self.queue.next_order();
        let runs = self.instances.numbers_after(&instance);
        let managed = Instance::started(terms, order, self.now).with_runs(runs);
        let place = self.instances.vacant(instance.clone())?;
        if let Err(illegal) = place.insert(LifecycleEvent::Managed, managed) {
            self.note_illegal(illegal);
            return None;
        }
        self.journal.note_kept(self.now, &instance);
        Some(instance)
    }

    /// Gives a START whose instance is to be managed to the node on which its room was just reserved. If that is only a
    /// claim, because something of the instance is on disk, the START is given once the choice is on disk too.
    pub(crate) fn begin_placing(&mut self, key: NodeKey, start: NewStart) {
        let again = Box::new(start.as_start().clone());
        let Some(instance) = self.keep(start) else {
            self.release(key, &again.request.instance);
            return;
        };
        self.cluster.ledger_mut(key).set_managed(&instance, true);
        let entry = self.cluster.nodes().node(key).ledger().get(&instance);
        if entry.is_some_and(|entry| entry.claim_state() == ClaimState::Claimed) {
            self.transition(
                &instance,
                LifecycleEvent::Claimed { node: key },
                &Cause::Plain,
            );
            return self.after_commit(&instance, Next::Give);
        }
        self.transition(
            &instance,
            LifecycleEvent::Given { node: key },
            &Cause::Plain,
        );
        self.dispatch(key, again);
    }

    /// Has a node found for an instance that is on none, whose claims have been released before. All that one input
    /// sets free is placed at its end, in the order of the queue ([`Scheduler::place_collected`]).
    pub(crate) fn reschedule(&mut self, instance: &InstanceId, cause: &Cause) {
        if self.on(instance, LifecycleEvent::Sought).is_some() {
            self.queue.add_to_collected(instance, cause);
        }
    }

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
        }
        self.placement.end_refusal();
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

    /// The node for an instance that is placed again: the one it had last if it fits there, else any, those with recent
    /// failures only if no other fits.
    pub(crate) fn choose_again(&mut self, instance: &InstanceId, query: &Query) -> Option<NodeKey> {
        let managed = self.instances.get(instance)?;
        let (last, ran_on) = (managed.last_node(), managed.runs().node());
        if let Some(unheard) = ran_on.filter(|node| !query.avoids(*node) && self.is_to_list(*node))
        {
            return self.choose_again(instance, &query.clone().avoiding([unheard]));
        }
        if let Some(last) = last
            && !query.names_node()
            && !query.avoids(last)
            && let Some(key) = self.choose_ready(&query.clone().pinned(Some(last)))
        {
            return Some(key);
        }
        self.choose_avoiding_failing(query)
    }

    /// Whether a node is back and has not reported yet what it has, nor what has ended there. The next run of an instance
    /// that it had is not given to it before: the run before may have been the last, as its launcher is about to report.
    fn is_to_list(&self, node: Uuid) -> bool {
        self.cluster.nodes().by_uuid(node).is_some_and(|key| {
            let node = self.cluster.nodes().node(key);
            node.session().is_some() && !node.has_listed()
        })
    }

    /// Claims room on a node for an instance that waited or is placed again. It is given to the node once the claim is
    /// on disk: after a crash before that, it would be placed again and could run twice. Does nothing if its state does
    /// not allow it.
    pub(crate) fn claim_managed(&mut self, instance: &InstanceId, key: NodeKey, cause: &Cause) {
        if !self.may(instance, EventKind::Claimed) || !self.claim_room(instance, key) {
            return;
        }
        self.cluster.set_placement(instance, key);
        self.note_try(instance, key);
        self.transition(instance, LifecycleEvent::Claimed { node: key }, cause);
        self.after_commit(instance, Next::Give);
        self.count_placement(instance);
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

    /// Claims on a node what an instance asks for; its launcher is not sent anything yet. `false` if its START is not
    /// known.
    pub(crate) fn claim_room(&mut self, instance: &InstanceId, key: NodeKey) -> bool {
        let Some(query) = self.instances.query_of(instance) else {
            return false;
        };
        self.claim_as(&query, key);
        true
    }

    /// Sends an instance's START to the node on which its room is claimed, now that the claim is on disk. If the node
    /// has lost its connection since, another is looked for: it was never sent the START, so it cannot run it.
    pub(crate) fn give(&mut self, instance: &InstanceId) {
        let Some(managed) = self.instances.get_mut(instance) else {
            return;
        };
        let (State::Placing(Placing { node, .. }), Some(start)) =
            (managed.state(), managed.start())
        else {
            return;
        };
        let (key, start) = (*node, Box::new(start.clone()));
        let had_it = managed.runs().node();
        let node = self.cluster.nodes().node(key);
        if node.session().is_none() || had_it == Some(node.uuid()) && !node.has_listed() {
            return self.release_and_reschedule(key, instance, &Cause::NodeLostUntold);
        }
        if !self.may(instance, EventKind::Given) {
            return;
        }
        // From here on the START is unconfirmed until the node lists the instance or reports a failure.
        let restart = start.request.restart;
        let unconfirmed = self.cluster.number_start(key, start.sender, restart);
        self.cluster.ledger_mut(key).give(instance, unconfirmed);
        self.on(instance, LifecycleEvent::Given { node: key });
        self.journal.note_instance(instance);
        self.dispatch(key, start);
    }

    /// Releases an instance's claim on a node that does not have it, or is not to have it, and looks for another node.
    pub(crate) fn release_and_reschedule(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        cause: &Cause,
    ) {
        if self.may(instance, EventKind::Sought) {
            self.release(key, instance);
            self.reschedule(instance, cause);
        }
    }

    /// A node lists a managed instance, for the first time or in another state than before. What that means depends on
    /// what the instance awaits: confirmation of its START, of a SUSPEND or RESUME, arrival of a move, the return of a
    /// lost node, or nothing, because it should be elsewhere. The ledger has the row already.
    pub(crate) fn listed(&mut self, key: NodeKey, instance: &InstanceId, reported: InstanceState) {
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        let is_suspended = reported == InstanceState::ExitPaused;
        match managed.state().clone() {
            // Its launcher is at it, and may yet fail.
            State::Placing(Placing { pending_on, .. })
                if reported == InstanceState::Pending && pending_on.is_given() => {}
            // Also where its node was not sent the START: it was there, or being started, when its room was claimed.
            State::Placing(Placing { node, .. }) if node == key => {
                if !self.may(instance, EventKind::Listed) {
                    return;
                }
                if let Some(managed) = self.instances.get_mut(instance) {
                    managed.note_running();
                }
                self.transition(
                    instance,
                    LifecycleEvent::Listed { node: key },
                    &Cause::Plain,
                );
                self.wake_for_preemption(key);
                if is_suspended {
                    self.suspension_reported(key, instance, true);
                }
            }
            State::Suspending { node, .. } | State::Resuming { node, .. } if node == key => {
                self.suspension_reported(key, instance, is_suspended);
            }
            State::Running { node, .. } | State::Suspended { node, .. } if node == key => {
                self.suspension_reported(key, instance, is_suspended);
            }
            State::Migrating { to, .. } if to == key => self.arrived(key, instance),
            State::Lost { then, .. } => self.came_back(key, instance, then, is_suspended),
            state if state.node() != Some(key) => self.found_elsewhere(key, instance, &state),
            _ => {}
        }
    }

    /// A launcher reports that it could not start a managed instance. The next node is tried if the reason may be the
    /// node's and attempts are left, or if the instance ran before; otherwise the START has failed for good. Returns
    /// whether the report answered a START of this instance on this node: if not, it is dealt with as any other report.
    pub(crate) fn attempt_failed(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        reason: &StartFailureReason,
        text: &ShortText,
    ) -> bool {
        match self.instances.get(instance).map(Instance::state) {
            Some(State::Placing(Placing {
                node,
                pending_on: Awaits::Node { .. },
                ..
            })) if *node == key => {}
            _ => return false,
        }
        if self.cluster.end(key, instance, Ended::Failed) != EntryEnd::Over {
            // It answers an earlier START of the same instance; the outcome of the latest is still to come.
            return true;
        }
        self.release(key, instance);
        if *reason == StartFailureReason::FullComputeNode {
            self.note_full_again(key);
        }
        let uuid = self.cluster.nodes().node(key).uuid();
        let Some(managed) = self.instances.get_mut(instance) else {
            return true;
        };
        managed.note_not_run(uuid);
        managed.note_refusal(Tried {
            node: uuid,
            reason: reason.clone(),
            detail: text.clone(),
        });
        let (attempts, max) = (managed.tried().len(), managed.max_attempts() as usize);
        self.count_failure(key, instance, reason);
        let cause = Cause::NotStarted(uuid, reason.clone(), text.clone());
        // An instance that ran before is never given up because of the nodes it was sent to.
        let has_run = self.instances.get(instance).is_some_and(|it| it.has_run());
        if has_run || (may_try_elsewhere(reason) && attempts < max) {
            self.reschedule(instance, &cause);
        } else {
            let said = if text.is_empty() {
                cause
            } else {
                Cause::from(&**text)
            };
            let why = Explanation::of(said);
            self.fail_managed(instance, reason.clone(), Some(uuid), why);
        }
        true
    }

    /// Fails an instance that is on no node: it is no longer managed, and its sender is sent a StartFailure that lists
    /// its latest attempts.
    pub(crate) fn fail_managed(
        &mut self,
        instance: &InstanceId,
        reason: StartFailureReason,
        node: Option<Uuid>,
        why: Explanation,
    ) {
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        let request = managed.start();
        let sender = request.map_or(SessionId(0), |start| start.sender);
        let failure = StartFailure {
            node_uuid: node.map(|uuid| uuid.to_string()).unwrap_or_default(),
            instance_uuid: instance.to_string(),
            restart: request.is_some_and(|start| start.request.restart),
            reasons: why.reasons,
            never: why.never,
            attempts: managed.tried().said(),
            reason,
            ..StartFailure::default()
        };
        let reason = failure.reason.clone();
        let before = self.instances.last_run();
        self.end_managing(instance, &why.cause);
        let place = node.map(|uuid| (uuid, ShortText::new(self.cluster.name_of(uuid))));
        self.instances.amend_run(before, instance, |run| {
            run.set_failed(reason);
            if let Some((uuid, hostname)) = place {
                run.set_node(uuid, hostname);
            }
        });
        self.note_changed_runs();
        self.notify_failure(sender, Explained::new(failure, why.cause));
    }

    /// Releases a claim on a node that the instance is not placed on, such as that on the target of a move. The
    /// placement stays.
    pub(crate) fn unclaim(&mut self, key: NodeKey, instance: &InstanceId) {
        self.cluster.ledger_mut(key).release(instance);
    }

    /// The time of its refusals is over: nodes that refused a waiting instance may be chosen again.
    pub(crate) fn ask_again(&mut self, instance: &InstanceId) {
        let managed = self.instances.get_mut(instance);
        if let Some(managed) = managed.filter(|managed| managed.state().is_waiting()) {
            managed.forget_refusals();
            self.leave_queue(instance);
            self.reschedule(instance, &Cause::RefusalsOver);
        }
    }

    /// The deadlines of up to `most` states are over: each is handed to the workflow of its state. States of rest have
    /// none.
    pub(crate) fn states_due(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            let Some(instance) = self.instances.take_due(now) else {
                return;
            };
            let Some(managed) = self.instances.get(&instance) else {
                continue;
            };
            match managed.state().clone() {
                State::Placing(Placing { node, .. }) => self.victims_are_late(node, &instance),
                State::Suspending { .. } | State::Resuming { .. } => {
                    self.suspension_late(&instance)
                }
                State::Stopping { node, .. } => self.stop_is_late(node, &instance),
                State::Migrating { .. } => self.move_is_late(&instance),
                State::Updating { .. } => self.update_is_late(&instance),
                State::Lost { node, then, .. } => self.loss_is_final(&instance, node, then),
                State::Seeking { .. }
                | State::Waiting { .. }
                | State::Running { .. }
                | State::Suspended { .. } => {}
            }
        }
    }
}

/// Whether a failure may be the node's, so that another node may do better. The other reasons are about the START
/// itself, or say that the instance exists.
fn may_try_elsewhere(reason: &StartFailureReason) -> bool {
    matches!(
        reason,
        StartFailureReason::FullComputeNode
            | StartFailureReason::NodeMaintenance
            | StartFailureReason::LaunchFailure
            | StartFailureReason::ImageFailure
            | StartFailureReason::NetworkFailure
    )
}
