//! What brings a managed instance from one state to the next; the states are drawn in `instance`, and what is done at
//! every transition is in `effects::transition`.
//!
//! Here: how it is taken in, finds a node, is given to it, is confirmed or refused. How it waits is in `waiting`, how
//! it ends in `managed_end`; leaving in `preempt` and `suspend`; moving in `migrate`; lost nodes in `node_loss`.

use std::time::Duration;

use sched_model::{Scheduling, StartFailureReason};

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::ledger::ClaimState;
use crate::effects::admission::NewStart;
use crate::instance::{Instance, LifecycleEvent, OnLoss, Placing, State, Terms};
use crate::journal::Next;
use crate::peers::owner::Owner;

/// Nodes that a START is tried on if it does not say: only the chosen one, as in the original scheduler.
const USUAL_ATTEMPTS: u32 = 1;

impl Scheduler {
    /// Manages the instance of a START from now on; a node is to be looked for. If the instance was lost with its node
    /// and is started again, what was known of it ends first. `None` if its lifecycle refuses that, which is a defect.
    pub(crate) fn keep(&mut self, start: NewStart) -> Option<InstanceId> {
        let start = start.into_start();
        let instance = start.request.instance.clone();
        self.end_managing(&instance, &Cause::Restarted);
        let element = start.element();
        let array = element.and_then(|it| self.arrays.get(it.array));
        let asked = start.request.scheduling.as_deref();
        let priority = asked.and_then(|asked| asked.priority);
        let queue = asked.and_then(|asked| asked.queue);
        let waits = queue.map(|span| Duration::from_millis(span.ms()));
        let waits = waits.filter(|it| !it.is_zero());
        let attempts = asked.and_then(|asked| asked.attempts);
        let is_to_restart = asked.is_some_and(Scheduling::restarts_on_node_loss);
        let terms = Terms {
            priority: priority.and_then(|it| u8::try_from(it).ok()),
            waits_until: match array {
                Some(array) => array.deadline(),
                None => waits.map(|it| self.now + it),
            },
            max_attempts: attempts.unwrap_or(USUAL_ATTEMPTS),
            relocates: asked.is_some_and(|asked| asked.relocate == Some(true))
                || self.placement.policy().manages_all(),
            on_loss: match is_to_restart {
                true => OnLoss::Restart,
                false => OnLoss::Report,
            },
            is_operators: match array {
                Some(array) => array.is_operators(),
                None => self.peers.owner(start.sender) != Owner::Controllers,
            },
            start: Some(start),
        };
        let order = match (element, array) {
            (Some(element), Some(array)) => array.order_of(element.index),
            _ => self.queue.next_order(),
        };
        let runs = self.instances.numbers_after(&instance);
        let managed = Instance::started(terms, order, self.now).with_runs(runs);
        let place = self.instances.vacant(instance.clone())?;
        if let Err(illegal) = place.insert(LifecycleEvent::Managed, managed) {
            self.note_illegal(illegal);
            return None;
        }
        if element.is_none() {
            // The sender of an array has its answer: an element waits for the disk for as long as it takes.
            self.journal.note_kept(self.now, &instance);
        }
        Some(instance)
    }

    /// Gives a START whose instance is to be managed to the node on which its room was just reserved. If that is only a
    /// claim, because something of the instance is on disk, the START is given once the choice is on disk too.
    pub(crate) fn begin_placing(&mut self, key: NodeKey, start: NewStart) {
        let again = Box::new(start.as_start().clone());
        let Some(instance) = self.keep(start) else {
            self.cluster.release(key, &again.request.instance);
            return;
        };
        self.cluster.ledger_mut(key).set_managed(&instance, true);
        let entry = self.cluster.entry(key, &instance);
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
        let node = self.cluster.node(key);
        if node.session().is_none() || had_it == Some(node.uuid()) && !node.has_listed() {
            self.release_and_reschedule(key, instance, &Cause::NodeLostUntold);
            return;
        }
        // From here on the START is unconfirmed until the node lists the instance or reports a failure.
        let event = LifecycleEvent::Given { node: key };
        let (sender, restart) = (start.sender, start.request.restart);
        let is_given = self.turn_unseen(instance, event, |cluster| {
            let unconfirmed = cluster.number_start(key, sender, restart);
            cluster.ledger_mut(key).give(instance, unconfirmed);
        });
        if is_given {
            self.journal.note_instance(instance);
            self.dispatch(key, start);
        }
    }

    /// The time of its refusals is over: nodes that refused a waiting instance may be chosen again, as far as that is no
    /// attempt.
    pub(crate) fn ask_again(&mut self, instance: &InstanceId) {
        let managed = self.instances.get_mut(instance);
        if let Some(managed) = managed.filter(|managed| managed.state().is_waiting()) {
            managed.ask_again();
            self.leave_queue(instance);
            self.reschedule(instance, &Cause::RefusalsOver);
        }
    }
}

/// Whether a failure may be the node's, so that another node may do better. The other reasons are about the START
/// itself, or say that the instance exists.
pub(crate) fn may_try_elsewhere(reason: &StartFailureReason) -> bool {
    matches!(
        reason,
        StartFailureReason::FullComputeNode
            | StartFailureReason::NodeMaintenance
            | StartFailureReason::LaunchFailure
            | StartFailureReason::ImageFailure
            | StartFailureReason::NetworkFailure
    )
}
