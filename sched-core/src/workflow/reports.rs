//! What launchers report: READY, status changes, STATS, and what they could not delete or attach. Ends are in `ends`,
//! STARTs that failed in `start_failed`. Reports come in through `dispatch::messages`, which has checked by then that the
//! sender may speak for the instance (`effects::entitlement`).
//!
//! Most reports are also for controllers: they are forwarded byte for byte once the scheduler has drawn its conclusions.

use std::time::Instant;

use sched_model::Topic;

use crate::Scheduler;
use crate::api::action::{Action, Notice};
use crate::api::config::MAX_INSTANCES_PER_NODE;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{Backlog, InstanceReport, NodeReport, StatsReport};
use crate::api::parcel::Parcel;
use crate::api::sent::CommandName;
use crate::cluster::advice::Advice;
use crate::cluster::ledger::{Ended, MissRules, StatsOutcome};
use crate::cluster::node::NodeStatus;
use crate::pending::batches::BATCHES_PER_READY;
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
        if self.recovery.is_open() && self.pending.for_nodes() > 0 {
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
        self.cluster.forget_answered_tries(key);
        self.cluster.stir_drain_of(key);
        let listed = std::mem::take(&mut outcome.listed);
        self.settle_stats(key, outcome);
        for (instance, state) in listed.into_iter().chain(newly_listed) {
            self.listed(key, &instance, state);
        }
        self.stop_copies(key, copies);
        self.send_stops_again(key);
        // What has to leave its node comes before what is only better off elsewhere.
        self.place_collected();
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
}
