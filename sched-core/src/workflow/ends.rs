//! Ends of instances that launchers number, as they come: in STATS and in frames of their own. Each is dealt with once,
//! however often and in whatever frame it is told, and its launcher is told once that is on record, on disk where there is a
//! state directory. Which are dealt with is the journal's to know (`journal::ends`).
//!
//! What two schedulers without a state directory cannot know is seen from the STATS: an instance that it lists beside its
//! end has begun again after it.

use std::time::Instant;

use indexmap::IndexSet;
use sched_model::EndsRecorded;

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{EndHow, EndReport, EndsReport, StatsReport};
use crate::api::parcel::Parcel;
use crate::api::report::Report;
use crate::cluster::ledger::Ended;
use crate::peers::session::Session;

impl Scheduler {
    /// What a STATS says of ends, before anything else of it: what is listed may have begun after them.
    pub(crate) fn take_ends(&mut self, now: Instant, id: SessionId, report: &mut StatsReport) {
        let node = self.peers.node_of(id);
        let (Some(key), Some(ends)) = (node, report.ends.take()) else {
            return;
        };
        let EndsReport {
            incarnation,
            seq,
            ended,
        } = *ends;
        let uuid = self.cluster.nodes().node(key).uuid();
        self.journal.begin_ends(uuid, incarnation, seq);
        if report.starts_seen.is_some() {
            self.cluster.note_counting(key);
        }
        self.peers.set_numbers_ends(id, true);
        if ended.is_empty() {
            return;
        }
        let nodes = self.cluster.nodes();
        self.journal
            .forget_ends(|uuid| nodes.by_uuid(uuid).is_some());
        let listed: IndexSet<&InstanceId> =
            report.instances.iter().map(|it| &it.instance).collect();
        let starts_seen = report.starts_seen.unwrap_or(0);
        for end in ended {
            if !self.journal.note_end(uuid, end.seq) {
                continue;
            }
            if listed.contains(&end.instance) {
                self.ended_before(key, &end);
            } else if !self.is_of_earlier(key, &end.instance, starts_seen) {
                self.ended_in_stats(now, id, key, end);
            }
        }
        self.journal.acknowledge_ends(uuid);
    }

    /// An end that a launcher tells by itself, with its number.
    pub(crate) fn numbered(
        &mut self,
        now: Instant,
        id: SessionId,
        parcel: Parcel,
        (seq, exit_code): (u64, Option<i64>),
        told: Report,
    ) {
        let session = self.peers.get(id).filter(|it| it.numbers_ends());
        if let Some(key) = session.and_then(Session::node) {
            let uuid = self.cluster.nodes().node(key).uuid();
            if !self.journal.note_end(uuid, seq) {
                return;
            }
        }
        let before = self.instances.last_run();
        let instance = match &told {
            Report::InstanceDeleted(instance)
            | Report::InstanceStopped(instance)
            | Report::InstanceCutOff(instance) => Some(instance.clone()),
            _ => None,
        };
        self.report(now, id, told, parcel);
        if let Some(instance) = instance {
            self.note_exit(before, &instance, (seq, exit_code));
        }
    }

    fn ended_in_stats(&mut self, now: Instant, id: SessionId, key: NodeKey, end: EndReport) {
        let EndReport {
            instance,
            how,
            parcel,
            exit_code,
            seq,
        } = end;
        let (before, ended) = (self.instances.last_run(), instance.clone());
        let is_known = self
            .cluster
            .nodes()
            .node(key)
            .ledger()
            .get(&instance)
            .is_some();
        let (parcel, told) = match how {
            // Of a START that no one knows any more its failure was told when its node was given up.
            EndHow::Failed(failed) if is_known => {
                let told = Report::StartFailed {
                    node: "".into(),
                    instance: Some(instance),
                    reason: failed.reason,
                    detail: failed.detail,
                };
                (failed.parcel, told)
            }
            EndHow::CutOff => (parcel, Report::InstanceCutOff(instance)),
            EndHow::Deleted => (parcel, Report::InstanceDeleted(instance)),
            EndHow::Stopped | EndHow::Failed(_) => (parcel, Report::InstanceStopped(instance)),
        };
        self.report(now, id, told, parcel);
        self.note_exit(before, &ended, (seq, exit_code));
    }

    /// An instance has ended and runs again: one of the STARTs that were given to its node has had its outcome.
    fn ended_before(&mut self, key: NodeKey, end: &EndReport) {
        let instance = &end.instance;
        let before = self.before_end(key, instance);
        self.run_is_over(key, instance, before, &Cause::EndedAndBegan);
        self.note_exit(before.last_run(), instance, (end.seq, end.exit_code));
        // Whether its room is to be released does not matter: it has it again.
        let _ = self.cluster.end(key, instance, Ended::Gone);
    }

    /// Whether the only START of an instance on a node is one that its launcher had not come to when it said that the
    /// instance had ended.
    fn is_of_earlier(&self, key: NodeKey, instance: &InstanceId, starts_seen: u64) -> bool {
        let entry = self.cluster.nodes().node(key).ledger().get(instance);
        entry.is_some_and(|entry| entry.is_all_after(starts_seen))
    }

    /// Tells nodes what is on disk by now; whether there was anything.
    pub(crate) fn acknowledge_recorded(&mut self) -> bool {
        let mut any = false;
        while let Some((node, ends)) = self.journal.take_acknowledgement() {
            any = true;
            let key = self.cluster.nodes().by_uuid(node);
            let session = key.and_then(|key| self.cluster.nodes().node(key).session());
            // Another connection than the one it was told on serves as well: the number says all.
            if let Some(session) = session
                && self.peers.get(session).is_some_and(Session::numbers_ends)
            {
                let recorded = EndsRecorded {
                    incarnation: ends.incarnation.to_string(),
                    seq: ends.seq,
                };
                self.send(session, Message::EndsRecorded(recorded));
            }
            self.journal.acknowledged(node);
        }
        any
    }
}
