//! Ends of instances that launchers number, so that none is lost with a connection and none counts twice. A launcher
//! reports an end in every STATS until it is acknowledged, and mostly in a frame of its own before that; each is dealt
//! with once, in whatever frame it comes first, and acknowledged once it is on record, on disk where there is a state
//! directory. Which numbers are dealt with is kept in `journal::ends`.
//!
//! What a scheduler without a state directory has forgotten is seen from the STATS: an instance that it lists beside
//! its end has begun again after it.

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
use crate::journal::ends::Missing;
use crate::peers::session::Session;
use crate::query::verdict::KnownEnd;

impl Scheduler {
    /// Deals with the ends in a STATS, before anything else of it: what it lists may have begun after them. For each
    /// number that was not dealt with before:
    ///
    /// 1. The STATS lists the instance too: it ended and began again, so only the run is noted; nothing is where that answers
    ///    the stop of a run that had ended by itself.
    /// 2. Every START of it that the node may have is newer than this end: it is the end of an earlier run, and was
    ///    dealt with.
    /// 3. Else it is handled as the frame that would have reported it.
    ///
    /// Afterwards all of them are acknowledged together, once they are on record. A report without ends changes
    /// nothing.
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
        let uuid = self.cluster.uuid(key);
        // All before the first that is left to tell has been told.
        let first = ended.iter().map(|end| end.seq).min();
        let told = first.map_or(seq, |first| first.saturating_sub(1));
        match self.journal.begin_ends(uuid, incarnation, (seq, told)) {
            Missing::None => {}
            Missing::UntilStart => self.note_missing_ends(uuid, self.clock.started()),
            Missing::UntilNow => self.note_missing_ends(uuid, now),
        }
        if report.starts_seen.is_some() {
            self.cluster.note_counting(key);
        }
        self.peers.set_numbers_ends(id, true);
        if ended.is_empty() {
            return;
        }
        let cluster = &self.cluster;
        self.journal.forget_ends(uuid, |uuid| {
            cluster.by_uuid(uuid).is_some() || cluster.absent(uuid).is_some()
        });
        let listed: IndexSet<&InstanceId> =
            report.instances.iter().map(|it| &it.instance).collect();
        let starts_seen = report.starts_seen.unwrap_or(0);
        for end in ended {
            if !self.journal.note_end(uuid, end.seq) {
                continue;
            }
            if listed.contains(&end.instance) {
                self.ended_before(key, &end);
            } else if !self.cluster.is_of_earlier(key, &end.instance, starts_seen) {
                self.ended_in_stats(now, id, key, end);
            }
        }
        self.journal.acknowledge_ends(uuid);
    }

    /// What was remembered of ends is restored: the gaps of before are known, and nodes that are not known are not
    /// waited for.
    pub(crate) fn restore_gaps(&mut self) {
        for node in self.journal.nodes_awaited() {
            if self.cluster.absent(node).is_none() {
                self.node_is_gone(node);
            }
        }
        let until_ms = self.journal.ends_missing_until_ms();
        if until_ms > 0 {
            // Whatever the clock was set to since, it was before this start.
            let until = self.clock.instant_of(until_ms).min(self.clock.started());
            self.instances.note_gap(until);
        }
    }

    /// An end that came in a frame of its own, with its number. Dropped if the number was dealt with, in a STATS or in
    /// this frame before. Adds the exit code to the run that the report ends.
    pub(crate) fn numbered(&mut self, id: SessionId, parcel: Parcel, end: &KnownEnd, told: Report) {
        let session = self.peers.get(id).filter(|it| it.numbers_ends());
        if let Some(key) = session.and_then(Session::node) {
            let uuid = self.cluster.uuid(key);
            if !self.journal.note_end(uuid, end.seq) {
                return;
            }
        }
        let before = self.instances.last_run();
        let told = end.told(told);
        let instance = match &told {
            Report::InstanceDeleted(instance)
            | Report::InstanceStopped(instance)
            | Report::InstanceExited(instance)
            | Report::InstanceCutOff(instance) => Some(instance.clone()),
            _ => None,
        };
        if let (Some(instance), Some(key)) = (&instance, self.peers.node_of(id))
            && self.take_earlier_end(key, instance, &told, &parcel, end)
        {
            return;
        }
        if let Some(instance) = &instance {
            self.instances.note_time_used(instance, end.time_used_ms());
            self.instances.expect_end(instance, end.own_exit());
        }
        self.check_and_take_end(id, told, parcel);
        if let Some(instance) = instance {
            let key = self.peers.node_of(id);
            self.note_exit(before, &instance, (key, end));
        }
    }

    /// Deals with an end from a STATS as if its own frame had come, with the parcel that frame would have had.
    fn ended_in_stats(&mut self, now: Instant, id: SessionId, key: NodeKey, end: EndReport) {
        let EndReport {
            instance,
            how,
            parcel,
            exit_code,
            ago,
            seq,
            facts,
        } = end;
        let end = &KnownEnd::new(now, seq, (exit_code, facts), ago);
        let (before, ended) = (self.instances.last_run(), instance.clone());
        let is_known = self.cluster.entry(key, &instance).is_some();
        if !is_known {
            // It ended while its node was away from here, so that no claim is released that would tell a drain.
            let uuid = self.cluster.uuid(key);
            self.cluster.note_left(uuid, &instance);
        }
        let (parcel, told) = match how {
            // If the START is not known any more, its failure was reported when its node was given up.
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
            EndHow::Exited => (parcel, Report::InstanceExited(instance)),
            EndHow::Deleted => (parcel, Report::InstanceDeleted(instance)),
            EndHow::Stopped | EndHow::Failed(_) => (parcel, Report::InstanceStopped(instance)),
        };
        let told = end.told(told);
        if self.take_earlier_end(key, &ended, &told, &parcel, end) {
            return;
        }
        self.instances.note_time_used(&ended, end.time_used_ms());
        self.instances.expect_end(&ended, end.own_exit());
        self.check_and_take_end(id, told, parcel);
        self.note_exit(before, &ended, (Some(key), end));
    }

    /// An end that came with its number, with the checks of a report without one.
    fn check_and_take_end(&mut self, id: SessionId, told: Report, parcel: Parcel) {
        let (node, name) = (self.peers.node_of(id), told.name());
        let is_refused = self.refuse_if_not_permitted(id, name.into(), None)
            || self.drop_if_out_of_place((id, node), &parcel, (name, &told));
        if !is_refused {
            self.note_long(id, name, &parcel);
            self.take_end((id, node), parcel, told);
        }
    }

    /// An instance has ended and runs again by the same STATS: the run is noted, and one of the STARTs given to its
    /// node has had its outcome.
    fn ended_before(&mut self, key: NodeKey, end: &EndReport) {
        let instance = &end.instance;
        let is_answer = matches!(end.how, EndHow::Deleted | EndHow::Stopped);
        if is_answer && self.cluster.owes_answer(key, instance) {
            // That run is on record, by its own end.
            let _ = self.cluster.end(key, instance, Ended::Gone);
            return;
        }
        let before = self.sight().before_end(key, instance);
        self.run_is_over(key, instance, before, &Cause::EndedAndBegan);
        let known = (end.exit_code, end.facts.clone());
        let known = KnownEnd::new(self.now, end.seq, known, end.ago);
        self.note_exit(before.last_run(), instance, (Some(key), &known));
        // Whether its room is to be released does not matter: it has it again.
        let _ = self.cluster.end(key, instance, Ended::Gone);
    }

    /// Sends launchers the numbers of the ends that are on record by now; whether there was any.
    pub(crate) fn acknowledge_recorded(&mut self) -> bool {
        let mut any = false;
        while let Some((node, ends)) = self.journal.take_acknowledgement() {
            any = true;
            let key = self.cluster.by_uuid(node);
            let session = key.and_then(|key| self.cluster.session(key));
            // Any connection of the node will do: the number and the incarnation say all.
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
