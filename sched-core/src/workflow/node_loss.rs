//! Nodes that are lost with managed instances, their leases, and nodes that fail STARTs.
//!
//! A node that is cut off may go on running what it has. So nothing is started elsewhere that may still run there: only
//! what its launcher has promised to stop when it is cut off for longer than its lease, and only once that time is over
//! with a margin (the fencing deadline). Everything else is reported, and goes on if its node comes back with it.

use std::time::{Duration, Instant};

use indexmap::IndexSet;
use sched_model::{CommandFailureReason, LeaseRenewed, ReportReceived, StartFailureReason, Uuid};

use crate::Scheduler;
use crate::api::action::{Action, DisconnectReason, Message};
use crate::api::cause::Cause;
use crate::api::config::LOST_TIME;
use crate::api::declined::Refusal;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{Capabilities, InstanceReport, InstanceState};
use crate::cluster::Cluster;
use crate::cluster::ledger::{ClaimState, Ended};
use crate::cluster::node::Presence;
use crate::effects::order::{COMMAND_TIME, suspension};
use crate::instance::{
    AfterLoss, AfterStop, Instance, LifecycleEvent, Loss, Move, Placing, State, SuspendedBy,
};
use crate::placement::explain::Explanation;
use crate::timers::Timer;

/// Added to a lease before what ran under it is started elsewhere: the time that a launcher may need to kill it. What
/// clocks may differ by comes on top ([`CLOCK_PART`]).
pub(crate) const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// How long after its first report a launcher with a lease is checked for silence first: by then it has said how long
/// the lease is.
const LEASE_LOOK: Duration = Duration::from_secs(10);

/// The part of a lease that is added for clocks: an eighth, far more than two clocks differ by in that time.
const CLOCK_PART: u32 = 8;

impl Scheduler {
    /// Answers a STATS that asks for the launcher's lease to be extended: at once, because nothing under the lease can
    /// be started elsewhere before. Only a lease that is longer than the recorded one waits for the disk: after a crash
    /// the scheduler would count with the shorter one: then the answer is that the STATS has come, and the next asks
    /// again.
    fn renew_lease(&mut self, id: SessionId, key: NodeKey, seq: u64) {
        if !self.peers.is_native(id) {
            return;
        }
        let waits_for = self.cluster.node(key).lease_ticket();
        if !self.journal.is_on_disk(waits_for) {
            return self.report_received(id, seq);
        }
        self.send(id, Message::LeaseRenewed(LeaseRenewed { seq }));
        let now = self.now;
        let earlier = self.cluster.extend_lease(key, now);
        if earlier.is_none() {
            // Looked at again when it is due; meanwhile each report costs no more than the time it came.
            self.timers
                .bring_forward(Timer::Lease(key), now + LEASE_LOOK);
        }
    }

    /// Answers a STATS that has a number: one by which a lease is to be extended, or another.
    pub(crate) fn answer_report(
        &mut self,
        id: SessionId,
        key: NodeKey,
        (lease_seq, report_seq): (Option<u64>, Option<u64>),
    ) {
        match (lease_seq, report_seq) {
            (Some(seq), _) => self.renew_lease(id, key, seq),
            (None, Some(seq)) => self.report_received(id, seq),
            (None, None) => {}
        }
    }

    /// Tells a launcher that its STATS has come, which a scheduler does not that is stopped or cut off.
    fn report_received(&mut self, id: SessionId, seq: u64) {
        if self.peers.is_native(id) {
            self.send(id, Message::ReportReceived(ReportReceived { seq }));
        }
    }

    /// A launcher announces the length of its lease: each instance that it lists may run that long without the
    /// scheduler, also if the scheduler restarts before the node is back. A launcher announces another length only
    /// after it was restarted, so only the first report of a connection is looked at.
    pub(crate) fn note_lease(
        &mut self,
        key: NodeKey,
        announced: Option<Duration>,
        listed: &[InstanceReport],
        is_own: impl Fn(u32) -> bool,
    ) {
        let is_first = self.cluster.node(key).leased_at().is_none();
        let Some(announced) = announced.filter(|_| is_first) else {
            return;
        };
        let mut has_grown = false;
        let own = (0..).zip(listed).filter(|(at, _)| is_own(*at));
        for instance in own.map(|(_, listed)| &listed.instance) {
            if let Some(managed) = self.instances.get_mut(instance)
                && managed.lease().is_some_and(|lease| lease < announced)
            {
                managed.note_node(None, Some(announced));
                has_grown = true;
                self.journal.note_instance(instance);
            }
        }
        if has_grown {
            let ticket = self.journal.ticket();
            self.cluster.set_lease_ticket(key, ticket);
        }
    }

    /// Ends a connection over which no report came for longer than its lease. A launcher that hangs keeps its
    /// connection open, and without this it would never be known that what ran under its lease has been stopped.
    pub(crate) fn end_if_silent(&mut self, now: Instant, key: NodeKey) {
        if !self.cluster.contains(key) {
            return;
        }
        let node = self.cluster.node(key);
        let (Some(session), Some(heard)) = (node.session(), node.leased_at()) else {
            return;
        };
        let silent = self.cluster.lease_of(key).map_or(LEASE_LOOK, fencing_time);
        if heard + silent > now {
            return self.timers.set(Timer::Lease(key), heard + silent);
        }
        let why = DisconnectReason::Silent;
        self.act(Action::Disconnect { session, why });
    }

    /// The managed instances that a STATS lists and that its node's ledger does not have as managed: they were lost
    /// with the node, or it has a copy. Those that were lost with the node and are not listed are dealt with here.
    pub(crate) fn take_newly_listed(
        &mut self,
        key: NodeKey,
        counts_starts: bool,
        listed: &[InstanceReport],
        is_own: impl Fn(u32) -> bool,
    ) -> Vec<(InstanceId, InstanceState)> {
        if self.instances.is_empty() {
            return Vec::new();
        }
        let node = self.cluster.node(key);
        let uuid = node.uuid();
        let is_new = |instance: &InstanceId| {
            self.instances.contains(instance)
                && node
                    .ledger()
                    .get(instance)
                    .is_none_or(|entry| !entry.is_managed())
        };
        let own = (0..).zip(listed).filter(|(at, _)| is_own(*at));
        let newly_listed = own
            .filter(|(_, listed)| is_new(&listed.instance))
            .map(|(_, listed)| (listed.instance.clone(), listed.state))
            .collect();
        // An original launcher's empty list may only mean that it has not looked yet.
        if counts_starts || !listed.is_empty() {
            let mut missing = self.instances.lost_with(uuid);
            if !missing.is_empty() {
                // Both may be as many as a node has instances: one look at each.
                let listed: IndexSet<_> = listed.iter().map(|listed| &listed.instance).collect();
                missing.retain(|instance| !listed.contains(instance));
                self.sight().put_in_order(&mut missing, |instance| instance);
            }
            for instance in missing {
                self.came_back_without(&instance);
            }
        }
        newly_listed
    }

    /// A lost node is given up: each managed instance on it becomes lost with it, moves to it look for another target,
    /// and instances that wait for it alone leave the queue.
    pub(crate) fn managed_given_up(&mut self, key: NodeKey) {
        if self.instances.is_empty() {
            return;
        }
        for instance in self.cluster.managed_on(key) {
            match self.instances.state_of(&instance) {
                // Also where it listed a copy, and so has more than a claim.
                Some(State::Migrating { to, .. }) if to == key => {
                    self.cluster.unclaim(key, &instance);
                    self.target_is_lost(&instance);
                }
                // It was to move to a node that was lost by then, and the disk was slow.
                Some(State::Placing(Placing {
                    node, pending_on, ..
                })) if node == key && !pending_on.is_given() => {
                    self.release_and_reschedule(key, &instance, &Cause::NodeLostUntold);
                }
                Some(state) if state.node() == Some(key) => {
                    self.lost_with_node(key, &instance, &state);
                }
                _ => self.cluster.unclaim(key, &instance),
            }
        }
        // No one waits for a node that is not there any more.
        for instance in self.queue.waiting_for(key) {
            self.leave_queue(&instance);
        }
    }

    /// One instance becomes lost with its node. What follows is decided now:
    ///
    /// ```text
    ///  being deleted                               Delete    deleted if the node comes back with it
    ///  on_node_loss: restart, and a lease          Restart   placed again at the fencing deadline
    ///  START not confirmed, element of an array    Replace   placed again if the node comes back without it
    ///  any other START not confirmed               -         fails now: it may run there, so it is not tried elsewhere
    ///  may have been stopped by the scheduler      Replace   placed again if the node comes back without it
    ///  any other                                   Forget    goes on if the node comes back with it
    /// ```
    fn lost_with_node(&mut self, key: NodeKey, instance: &InstanceId, state: &State) {
        let may_have_ended = state.is_stop_sent()
            || matches!(state, State::Migrating { how, .. } if *how != Move::Claimed);
        let node = self.cluster.node(key);
        let (uuid, lost_at) = match node.presence() {
            Presence::Lost(at) => (node.uuid(), at),
            Presence::Connected(_) => (node.uuid(), self.now),
        };
        let fenced_at = self
            .cluster
            .lease_of(key)
            .map(|lease| lost_at + fencing_time(lease));
        let entry = node.ledger().get(instance);
        let is_confirmed = entry.is_some_and(|entry| entry.claim_state() == ClaimState::Running);
        let time_used = entry.and_then(|entry| entry.progress()?.time_used_ms);
        let Some(managed) = self.instances.get_mut(instance) else {
            return;
        };
        // All that is known of it, should it not come back.
        managed.note_time_used(time_used);
        let then = match state {
            State::Stopping {
                then: AfterStop::End(_),
                ..
            } => AfterLoss::Delete,
            _ if managed.restarts_on_loss() && fenced_at.is_some() => AfterLoss::Restart,
            // It counts as one that runs, and how it ends is not known before its node is back. None waits for its answer.
            State::Placing(_) if !is_confirmed && managed.element().is_some() => AfterLoss::Replace,
            State::Placing(_) if !is_confirmed => {
                self.start_is_lost(key, instance);
                return;
            }
            // It is being stopped, and was to be placed again.
            State::Stopping {
                then: AfterStop::Wait(_) | AfterStop::Again(_),
                ..
            } => AfterLoss::Replace,
            _ if may_have_ended => AfterLoss::Replace,
            _ => AfterLoss::Forget,
        };
        let until = match (then, fenced_at) {
            (AfterLoss::Restart, Some(fenced_at)) => fenced_at,
            (AfterLoss::Delete, Some(fenced_at)) if managed.stops_with_lease() => fenced_at,
            _ => self.now + LOST_TIME,
        };
        let bound_for = match state {
            State::Migrating {
                to,
                how: Move::Shipped,
                ..
            } => Some(self.cluster.uuid(*to)),
            _ => None,
        };
        // What its launcher was told is added from its state.
        let loss = Loss {
            bound_for,
            ..Loss::new(uuid, until, then)
        };
        let move_request = self.instances.move_request_of(instance);
        let (event, cause) = (LifecycleEvent::NodeLost(loss), &Cause::NodeLost);
        let is_lost = self.turn(instance, event, cause, |cluster| {
            if let State::Migrating { to, .. } = *state {
                cluster.unclaim(to, instance);
            }
        });
        if !is_lost {
            return;
        }
        if let Some(node) = state.node() {
            let reason = CommandFailureReason::Failed;
            self.notify_mover(move_request, instance, node, reason, cause);
        }
        self.pending.note_lost(instance);
        self.leave_queue(instance);
        self.cluster.release(key, instance);
    }

    /// The START of a managed instance was never written to its node, which has no claim for it any more: it is placed
    /// again, or has failed if a DELETE cancels it.
    pub(crate) fn unsent_again(&mut self, instance: &InstanceId, is_cancelled: bool) {
        match self.instances.get(instance).map(Instance::state) {
            None => {}
            // It is to be on no node.
            Some(State::Stopping {
                then: AfterStop::End(_),
                ..
            }) => self.start_is_cancelled(instance),
            Some(_) if is_cancelled => self.start_is_cancelled(instance),
            Some(_) => {
                self.reschedule(instance, &Cause::NodeLostUntold);
                self.note_out_of_the_way(instance);
            }
        }
    }

    /// A DELETE has cancelled a START before any node was sent it: it has failed.
    fn start_is_cancelled(&mut self, instance: &InstanceId) {
        let why = Explanation::of(Refusal::Cancelled.into());
        self.fail_managed(instance, StartFailureReason::LaunchFailure, None, why);
    }

    /// A lost node is back and lists an instance. It goes on as what the node reports; one that was deleted meanwhile
    /// is stopped there.
    pub(crate) fn came_back(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        then: AfterLoss,
        is_suspended: bool,
    ) {
        let (node, due) = (key, self.now + COMMAND_TIME);
        let back = |suspended| LifecycleEvent::NodeBack {
            node,
            suspended,
            due,
        };
        let asked = self.instances.query_of(instance);
        if then == AfterLoss::Delete {
            let cause = &Cause::DeletedWhileLost;
            let take_up = |cluster: &mut Cluster| cluster.take_up(key, instance, asked.as_ref());
            if self.turn(instance, back(None), cause, take_up) {
                self.order_stop(key, instance);
            }
            return;
        }
        let managed = self.instances.get(instance);
        let by = managed.and_then(|managed| managed.state().suspended_by().cloned());
        // By whom it was suspended is not known if the scheduler was restarted during a move, or if it was suspended
        // from outside: it stays suspended until a RESUME. A node may list it before it says in READY what it can do.
        let node = self.cluster.node(key);
        let may_suspend = node.report().is_none() || node.can(Capabilities::SUSPEND);
        let by = by.or_else(|| may_suspend.then_some(SuspendedBy::Command));
        let by = by.filter(|_| is_suspended);
        let suspension = by.as_ref().map(suspension);
        let is_evicted = by.as_ref().is_some_and(|by| *by != SuspendedBy::Command);
        let is_back = self.turn(instance, back(by), &Cause::NodeBack, |cluster| {
            cluster.take_up(key, instance, asked.as_ref());
            if let Some(suspension) = suspension {
                let mut ledger = cluster.ledger_mut(key);
                ledger.set_suspended(instance, suspension);
            }
        });
        if !is_back {
            return;
        }
        if is_evicted {
            self.wait_for_resume(instance, key);
        }
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.note_running();
        }
    }

    /// A lost node is back and does not list an instance: it certainly does not run there, so the fencing deadline need
    /// not be waited for.
    fn came_back_without(&mut self, instance: &InstanceId) {
        let Some(State::Lost { then, .. }) = self.instances.state_of(instance) else {
            return;
        };
        match then {
            AfterLoss::Restart => {
                self.instances.note_going_on(instance, Ended::CutOff, true);
                self.reschedule(instance, &Cause::NodeBackWithout);
            }
            AfterLoss::Replace => self.reschedule(instance, &Cause::NodeBackWithout),
            AfterLoss::Forget => self.end_managing(instance, &Cause::NodeBackWithout),
            AfterLoss::Delete => {
                self.end_managing(instance, &Cause::NodeBackWithout);
                self.announce_deleted(instance);
            }
        }
    }

    /// The deadline of a loss is over: nothing is expected of the node any more. If the node is connected by now, its
    /// STATS decides, and the deadline is put off.
    pub(crate) fn loss_is_final(&mut self, instance: &InstanceId, node: Uuid, then: AfterLoss) {
        let key = self.cluster.by_uuid(node);
        let is_there = key.is_some_and(|key| self.cluster.session(key).is_some());
        if is_there {
            // It is back, and its launcher may have its lease extended any time: its STATS will tell.
            let until = self.now + LEASE_MARGIN;
            self.turn_unseen(instance, LifecycleEvent::LossDeferred { until }, |_| {});
            return;
        }
        match then {
            AfterLoss::Restart => {
                self.instances.note_going_on(instance, Ended::CutOff, true);
                self.reschedule(instance, &Cause::NodeHasStoppedIt);
            }
            AfterLoss::Replace => {
                let why = Explanation::of(Refusal::Lost.into());
                let reason = StartFailureReason::LaunchFailure;
                self.fail_managed(instance, reason, Some(node), why);
            }
            AfterLoss::Forget => self.end_managing(instance, &Cause::NodeLost),
            AfterLoss::Delete => {
                self.end_managing(instance, &Cause::NodeLost);
                self.announce_deleted(instance);
            }
        }
    }

    /// A node lists an instance that is not placed there. If no other node was sent its START, it is where the node
    /// says; otherwise this is a copy, which is stopped.
    pub(crate) fn found_elsewhere(&mut self, key: NodeKey, instance: &InstanceId, state: &State) {
        let claimed = match state {
            State::Seeking { .. } | State::Waiting { .. } => None,
            State::Placing(Placing {
                node, pending_on, ..
            }) if !pending_on.is_given() => Some(*node),
            // It is on another node: this copy must not be.
            _ => return self.order_stop(key, instance),
        };
        let asked = self.instances.query_of(instance);
        let event = LifecycleEvent::Listed { node: key };
        self.turn(instance, event, &Cause::Found, |cluster| {
            if let Some(claimed) = claimed {
                cluster.release(claimed, instance);
            }
            cluster.take_up(key, instance, asked.as_ref());
        });
    }

    /// Counts a START's failure against its node if the reason may be the node's. If the same instance fails on several
    /// nodes in the same way, it is at fault itself: the failure is not counted, and that of the first node is
    /// retracted.
    pub(crate) fn count_failure(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        reason: &StartFailureReason,
    ) {
        if !counts_against_node(reason) {
            return;
        }
        let now = self.now;
        let uuid = self.cluster.uuid(key);
        let tried = self
            .instances
            .get(instance)
            .into_iter()
            .flat_map(|managed| managed.tried().iter());
        let alike: Vec<NodeKey> = tried
            .filter(|tried| tried.reason == *reason && tried.node != uuid)
            .filter_map(|tried| self.cluster.by_uuid(tried.node))
            .collect();
        if alike.is_empty() {
            return self.cluster.record_failure(key, now);
        }
        if let [first] = alike[..] {
            self.cluster.retract_failure(first, now);
        }
    }
}

/// How long after its launcher's last report an instance under this lease has certainly been stopped: the lease, an
/// eighth of it for clocks, and [`LEASE_MARGIN`] for the stop itself.
pub(crate) fn fencing_time(lease: Duration) -> Duration {
    lease + lease / CLOCK_PART + LEASE_MARGIN
}

/// Whether a StartFailure may say something about the node rather than about what was to run there.
fn counts_against_node(reason: &StartFailureReason) -> bool {
    matches!(
        reason,
        StartFailureReason::LaunchFailure | StartFailureReason::NetworkFailure
    )
}
