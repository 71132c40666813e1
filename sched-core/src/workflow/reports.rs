//! What launchers report: READY, status changes, STATS, instances that are gone, and what they could not do. Reports
//! come in through `forwarding`, which has checked by then that the sender may speak for the instance (`entitlement`).
//!
//! Most reports are also for controllers: they are forwarded byte for byte once the scheduler has drawn its
//! conclusions, unless an end is not an instance's own ([`EndAudience`]).

use std::time::Instant;

use sched_model::{StartFailureReason, Topic};

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice};
use crate::api::cause::Cause;
use crate::api::config::MAX_INSTANCES_PER_NODE;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{Backlog, InstanceReport, NodeReport, StatsReport};
use crate::api::parcel::Parcel;
use crate::api::sent::{CommandName, ReportName};
use crate::api::text::ShortText;
use crate::batches::BATCHES_PER_READY;
use crate::cluster::advice::Advice;
use crate::cluster::ledger::{Ended, MissRules, StatsOutcome};
use crate::cluster::node::NodeStatus;
use crate::peers::session::{LISTENER, Session};
use crate::recovery::RETRIES_PER_READY;
use crate::workflow::managed_end::EndAudience;

impl Scheduler {
    /// READY: what a node has. Its offer changes, which may wake those that wait; in the recovery window some of the
    /// STARTs that wait for nodes are tried again.
    pub(crate) fn ready(&mut self, now: Instant, id: SessionId, mut report: Box<NodeReport>) {
        let extras = report.extras.as_mut();
        self.note_process(now, id, extras.and_then(|extras| extras.incarnation.take()));
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        if *self.cluster.node(key).hostname() != *report.hostname {
            self.act(Action::RememberNodes);
        }
        self.cluster.ready(key, report, now);
        self.note_changes();
        let was_open = self.recovery.is_open();
        self.note_back(now, key);
        if self.recovery.is_open() && self.recovery.len() > 0 {
            self.retry_recovery(now, RETRIES_PER_READY);
        }
        if was_open {
            self.retry_batches(now, BATCHES_PER_READY);
            self.set_recovery_timer();
        }
    }

    /// FULL, OFFLINE or MAINTENANCE: the node gets no new work; what runs on it stays. Any of them counts as being back
    /// after a restart of the scheduler.
    pub(crate) fn status(&mut self, now: Instant, id: SessionId, status: NodeStatus) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        self.cluster.set_status(key, status);
        self.note_back(now, key);
    }

    /// Closes the recovery window if this was the last node it waits for. A node is back once it has said both how it
    /// is and what runs on it, because members of groups may be among that.
    fn note_back(&mut self, now: Instant, key: NodeKey) {
        let node = self.cluster.node(key);
        let is_back = node.status() != NodeStatus::Connected && node.has_listed();
        if is_back && self.recovery.note_back(node.uuid(), now) {
            self.set_recovery_timer();
        }
    }

    /// Drops rows of a STATS for which its node's ledger has no room ([`MAX_INSTANCES_PER_NODE`]), so that a launcher
    /// cannot make it grow without bound. Known instances stay; `foreign`, the indexes of rows about others' instances,
    /// is adjusted.
    fn leave_out_excess(
        &mut self,
        key: NodeKey,
        listed: &mut Vec<InstanceReport>,
        foreign: &mut Vec<u32>,
    ) {
        let ledger = self.cluster.ledger(key);
        let mut room = MAX_INSTANCES_PER_NODE.saturating_sub(ledger.len());
        if listed.len() <= room {
            return;
        }
        let (all, rows) = (std::mem::take(listed), std::mem::take(foreign));
        let (count, mut place) = (all.len(), 0);
        for (at, report) in (0..).zip(all) {
            let is_known = ledger.get(&report.instance).is_some();
            if !is_known && room == 0 {
                continue;
            }
            room -= usize::from(!is_known);
            if rows.binary_search(&at).is_ok() {
                foreign.push(place);
            }
            place += 1;
            listed.push(report);
        }
        let left_out = count - listed.len();
        if left_out > 0 {
            self.cluster.advise(key, Advice::TooManyInstances(left_out));
            self.note_changes();
        }
    }

    /// STATS from a launcher. The order of its steps matters: ends before rows, because what is listed may have begun
    /// after them; all rows in the ledger before any is looked at. Whatever it sets free is placed once all of it is known.
    pub(crate) fn stats(
        &mut self,
        now: Instant,
        id: SessionId,
        parcel: Parcel,
        mut report: StatsReport,
    ) {
        let extras = report.extras.as_mut();
        self.note_process(now, id, extras.and_then(|extras| extras.incarnation.take()));
        self.take_ends(now, id, &mut report);
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        self.cluster.note_reported(key, now);
        let mut foreign = self.carry_stats(id, key, parcel, &report);
        self.leave_out_excess(key, &mut report.instances, &mut foreign);
        let is_own = |at: u32| foreign.binary_search(&at).is_err();
        let mut copies = Vec::new();
        // Two nodes may list one instance while it moves: the one that has it here keeps it.
        for (at, listed) in (0..).zip(&report.instances) {
            if is_own(at) {
                if self.cluster.add_placement(&listed.instance, key) {
                    self.note_had(&listed.instance);
                }
            } else {
                copies.push((listed.instance.clone(), listed.state));
            }
        }
        // What the node says of itself: capabilities, custom resources, lease.
        let lease = report.extras.as_ref().and_then(|extras| extras.lease);
        if let Some(extras) = report.extras {
            self.cluster.set_extras(key, extras, now);
            self.note_changes();
        } else if self.cluster.note_no_extras(key) {
            self.note_changes();
        }
        self.cluster.note_listed(key);
        if report.starts_seen.is_some() {
            self.cluster.note_counting(key);
        }
        self.note_back(now, key);
        if report.lease_seq.is_some() {
            self.note_lease(key, lease, &report.instances, is_own);
        }
        self.answer_report(id, key, (report.lease_seq, report.report_seq));
        let counts = report.starts_seen.is_some();
        let newly_listed = self.take_newly_listed(key, counts, &report.instances, is_own);
        let node = self.cluster.node(key);
        if report.instances.is_empty() && node.ledger().len() == 0 {
            return;
        }
        // The ledger compares the list with its entries: what is confirmed, changed, or missing.
        let rules = MissRules {
            starts_seen: report.starts_seen,
            is_queue_clear: node.backlog() == Backlog::Clear,
            missed_stats: self.config.missed_stats,
        };
        let mut ledger = self.cluster.ledger_mut(key);
        let (entries, columns) = ledger.with_columns();
        let mut outcome = entries.apply_stats(report.instances, &rules, columns, now);
        drop(ledger);
        self.counters.confirmed.add(&outcome.confirmed);
        let unknown = self.cluster.take_unknown(key);
        if unknown > 0 {
            let uuid = self.cluster.uuid(key);
            self.notice(Notice::ClaimsUnknown(uuid, unknown));
        }
        // A START that was tried on a full node and is confirmed by now is no try any more.
        let ledger = self.cluster.ledger(key);
        self.placement
            .forget_tries_on(key, |instance| ledger.is_unanswered(instance));
        self.stir_drain_of(key);
        let listed = std::mem::take(&mut outcome.listed);
        self.settle_stats(key, outcome);
        for (instance, state) in listed.into_iter().chain(newly_listed) {
            self.listed(key, &instance, state);
        }
        self.stop_copies(key, copies);
        self.send_stops_again(key);
        self.relieve(key);
    }

    /// Deals with what a STATS does not list any more, in the order of the queue: a START that never arrived has
    /// failed, a plain run has ended without a report, a managed instance may be placed again.
    fn settle_stats(&mut self, key: NodeKey, outcome: StatsOutcome) {
        let (node, hostname) = self.cluster.host(key);
        let gone = outcome
            .failed
            .into_iter()
            .map(|(instance, start)| (instance, Some(start)))
            .chain(outcome.dropped);
        let mut gone: Vec<_> = gone.collect();
        self.sight()
            .put_in_order(&mut gone, |(instance, _)| instance);
        for (instance, start) in gone {
            self.cluster.remove_placement(&instance, key);
            self.cluster.note_left(node, &instance);
            if self.instances.contains(&instance) {
                self.managed_vanished(key, &instance, start.is_some());
                continue;
            }
            match start {
                Some(start) => {
                    self.fail_unconfirmed(&instance, start, (node, hostname.clone()), None);
                }
                None => {
                    self.run_has_vanished(key, &instance);
                    self.notice(Notice::Dropped(instance, node));
                }
            }
        }
    }

    /// InstanceDeleted, InstanceStopped, or an instance that was cut off: the ledger and the instance follow, and the
    /// report is forwarded unless the instance goes on elsewhere.
    pub(crate) fn instance_gone(
        &mut self,
        (id, node): (SessionId, Option<NodeKey>),
        parcel: Parcel,
        instance: &InstanceId,
        (how, why): (Ended, &Cause),
    ) {
        let mut heard = EndAudience::All;
        if let Some(key) = node {
            let before = self.sight().before_end(key, instance);
            // What it left was deleted: its run is over since long, and keeps the outcome that it had.
            let is_of_ended = *why == Cause::Deleted
                && !before.is_known()
                && !self.instances.contains(instance)
                && self
                    .instances
                    .has_ended_on(instance, self.cluster.uuid(key));
            heard = self.ended(key, instance, how);
            if heard == EndAudience::All && !is_of_ended {
                self.run_is_over(key, instance, before, why);
            }
        }
        match heard {
            EndAudience::All => {}
            EndAudience::Originals => return self.announce_stop(id, parcel, instance),
            EndAudience::NoOne => return,
        }
        self.answer(CommandName::Delete, instance, Topic::Instances, &parcel);
        self.broadcast(Topic::Instances, id, parcel);
    }

    /// StartFailure from a launcher. In this order: another node is tried if the node was only tried as a full one; a
    /// managed instance goes on to its next attempt; else the failure is final, and forwarded.
    pub(crate) fn start_failed(
        &mut self,
        id: SessionId,
        parcel: Parcel,
        instance: Option<InstanceId>,
        reason: &StartFailureReason,
        detail: &ShortText,
    ) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        self.counters.node_refusals.note(reason);
        // Original launchers do not name the instance of a START that they cannot read.
        let instance = instance.or_else(|| self.cluster.ledger(key).only_unconfirmed());
        if *reason == StartFailureReason::FullComputeNode
            && let Some(instance) = &instance
            && self.refused_as_full(key, instance)
        {
            return;
        }
        if let Some(instance) = instance.as_ref().filter(|it| self.instances.contains(it))
            && !still_runs(reason)
            && self.attempt_failed(key, instance, reason, detail)
        {
            return;
        }
        let ledger = self.cluster.ledger(key);
        let sender = instance
            .as_ref()
            .and_then(|instance| ledger.get(instance)?.asker());
        match &instance {
            Some(instance) if still_runs(reason) => self.confirm(key, instance),
            Some(instance) => {
                self.count_failure(key, instance, reason);
                let place = self.cluster.host(key);
                let before = self.sight().before_end(key, instance);
                self.ended(key, instance, Ended::Failed);
                // Where another START of it is under way, or it runs elsewhere, that decides what becomes of it.
                if before.is_known() && !self.sight().exists(instance) {
                    let why = match detail.is_empty() {
                        true => Cause::NotStarted(place.0, reason.clone(), ShortText::default()),
                        false => Cause::from(&**detail),
                    };
                    self.start_is_over(instance, place, before, (reason.clone(), &why));
                }
            }
            None => self.notice(Notice::UnmatchedFailure(self.cluster.uuid(key))),
        }
        if *reason == StartFailureReason::FullComputeNode {
            self.note_full_again(key);
        }
        self.counters.failures.note(reason);
        if let Some(sender) = sender {
            self.copy_to_operator(sender, Topic::Failures, &parcel);
        }
        if still_runs(reason) {
            return self.forward_already_there(id, sender, &parcel);
        }
        self.broadcast(Topic::Failures, id, parcel);
    }

    /// Forwards a StartFailure that only says that the instance is there already. Other operators do not get it: for
    /// them nothing has failed, and they may have started the instance and wait for its end.
    fn forward_already_there(&mut self, id: SessionId, sender: Option<SessionId>, parcel: &Parcel) {
        let sender = sender.and_then(|sender| self.peers.get(sender));
        let sender = sender.map(Session::uuid);
        self.broadcast_as(Topic::Failures, id, |session| {
            let is_other = session.role().intersects(LISTENER) && Some(session.uuid()) != sender;
            (!is_other).then(|| Message::Forward(parcel.clone()))
        });
    }

    /// DeleteFailure from a launcher: the instance is not there (`no_instance`), which is an end, or could not be
    /// stopped.
    pub(crate) fn delete_failed(
        &mut self,
        id: SessionId,
        parcel: Parcel,
        instance: &InstanceId,
        no_instance: bool,
    ) {
        if let Some(key) = self.peers.node_of(id)
            && no_instance
        {
            let heard = self.ended(key, instance, Ended::NotThere);
            if heard != EndAudience::All {
                // No one but the scheduler had asked for it.
                return;
            }
        } else if let Some(key) = self.peers.node_of(id)
            && self.stop_failed(key, instance)
        {
            return;
        }
        self.answer(CommandName::Delete, instance, Topic::Failures, &parcel);
        self.broadcast(Topic::Failures, id, parcel);
    }

    /// AttachVolumeFailure from a launcher: goes to the operator who asked, and to controllers. The scheduler keeps
    /// nothing of attachments.
    pub(crate) fn attach_volume_failed(
        &mut self,
        id: SessionId,
        parcel: Parcel,
        instance: InstanceId,
    ) {
        self.answer(
            CommandName::AttachVolume,
            &instance,
            Topic::Failures,
            &parcel,
        );
        self.broadcast(Topic::Failures, id, parcel);
    }

    /// Sends the operator whose command this answers the answer, unless it gets it as a subscriber anyway. Controllers
    /// get all of them.
    pub(crate) fn answer(
        &mut self,
        command: CommandName,
        instance: &InstanceId,
        topic: Topic,
        parcel: &Parcel,
    ) {
        if let Some(asker) = self.peers.take_asker(command, instance) {
            self.copy_to_operator(asker, topic, parcel);
        }
    }

    /// Forwards a report to one session outside the audience of its topic.
    fn copy_to_operator(&mut self, operator: SessionId, topic: Topic, parcel: &Parcel) {
        if self.peers.outside_audience(operator, &topic).is_some() {
            self.send(operator, Message::Forward(parcel.clone()));
        }
    }

    /// A launcher answered a START with that the instance is there already: the START has had its outcome, and its
    /// claim stays.
    fn confirm(&mut self, key: NodeKey, instance: &InstanceId) {
        self.cluster.ledger_mut(key).confirm(instance);
    }

    /// Refuses a report that speaks for another node than its sender; whether it did.
    pub(crate) fn refuse_if_forged(&mut self, id: SessionId, name: ReportName, node: &str) -> bool {
        if !self.peers.is_forged(id, node) {
            return false;
        }
        self.counters.refused += 1;
        self.notice_once(id, name.into(), |session| {
            Notice::Forged(session.uuid(), name.into(), node.into())
        });
        true
    }
}

/// Whether a StartFailure means that the instance is there all the same: it is no failure for anyone but the sender.
pub(crate) fn still_runs(reason: &StartFailureReason) -> bool {
    matches!(
        reason,
        StartFailureReason::AlreadyRunning | StartFailureReason::InstanceExists
    )
}
