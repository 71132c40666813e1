//! Which launcher's reports about an instance count. Asked in one place for all that launchers report, so that none can
//! change what another has.
//!
//! | the instance | which node may list it | which node may report its failure or end |
//! | --- | --- | --- |
//! | is unknown, as after a restart without a state directory | every node: it is placed on the first | every node |
//! | is on a node, or its START was given to one | that node | that node |
//! | moves | source and target | both |
//! | is lost with its node | that node, and the one it was to move to | both |
//! | waits, or has a node that was not sent its START yet | that node, and those it was on before | none |
//!
//! If the node that had an instance has lost it while another lists a copy, it is known nowhere until that one lists it
//! again.
//!
//! A report about another node's instance is *foreign*. It is counted, logged once for each session and name, and
//! dropped: nothing of it reaches the instance or a controller. A report from a node that did have the instance is
//! merely *late*: it is dropped as well, and not held against the node. The node's own ledger is another matter: what
//! it lists is claimed there, wherever it belongs, because it may really run there and take up the room.

use std::sync::Arc;

use sched_model::Topic;

use crate::Scheduler;
use crate::api::action::{Message, Notice, StatsWithout};
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{InstanceState, StatsReport};
use crate::api::parcel::Parcel;
use crate::api::refused::RefusalCause;
use crate::api::report::Report;
use crate::api::sent::{CommandName, ReportName, Sent};
use crate::cluster::ledger::{Ended, EntryEnd};
use crate::cluster::questions::{Asker, MAX_QUESTIONS};
use crate::effects::failure::still_runs;
use crate::peers::permissions::Denied;
use crate::query::verdict::{ReportVerdict, Statement};

impl Scheduler {
    /// Drops a report about an instance, or for a node, that is not its sender's to report on; whether it did. If the
    /// node was asked about the instance by a command, its answer goes to the asker all the same.
    pub(crate) fn drop_if_out_of_place(
        &mut self,
        (id, node): (SessionId, Option<NodeKey>),
        parcel: &Parcel,
        (name, report): (ReportName, &Report),
    ) -> bool {
        if let Some(named) = report.node()
            && self.refuse_if_forged(id, name, named)
        {
            return true;
        }
        let Some(instance) = report.instance() else {
            return false;
        };
        let Some(key) = node else {
            // The session was replaced by a newer connection of its node, which reports from then on.
            return true;
        };
        let instance = &*instance;
        let end = report.end();
        if end.is_some_and(|how| self.sight().is_last_word(key, instance, how)) {
            return false;
        }
        let verdict = self.sight().verdict_on(key, instance, Statement::Other);
        if verdict == ReportVerdict::Counts {
            return false;
        }
        if let Some(how) = end
            && self.cluster.end(key, instance, how) == EntryEnd::Over
        {
            // It reports the end of its own copy, which it has listed: its claim is released.
            self.cluster.release(key, instance);
        }
        match self.cluster.question_answered(key, instance, name) {
            Some((command, Asker::Peer)) => self.carry_answer(id, command, instance, name, parcel),
            Some((_, Asker::Scheduler)) => {}
            None if verdict == ReportVerdict::Foreign => self.note_foreign(id, name, instance, 1),
            None => {}
        }
        true
    }

    /// Notes that a node was sent a command about an instance that is not placed there: its answer is neither foreign
    /// nor lost.
    pub(crate) fn note_question(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        command: CommandName,
        asker: Asker,
    ) {
        if self.sight().verdict_on(key, instance, Statement::Other) != ReportVerdict::Counts {
            self.cluster
                .note_question(key, instance.clone(), command, asker);
        }
    }

    /// Forwards an answer to the command's sender and to the audience of its topic.
    fn carry_answer(
        &mut self,
        id: SessionId,
        command: CommandName,
        instance: &InstanceId,
        name: ReportName,
        parcel: &Parcel,
    ) {
        let topic = match name {
            ReportName::InstanceDeleted | ReportName::InstanceStopped => Topic::Instances,
            _ => Topic::Failures,
        };
        self.answer(command, instance, topic.clone(), parcel);
        self.broadcast(topic, id, parcel.clone());
    }

    /// Counts reports about others' instances, and logs the first of each kind for a session.
    fn note_foreign(&mut self, id: SessionId, name: ReportName, instance: &InstanceId, count: u64) {
        self.counters.foreign += count;
        self.notice_once(id, name.into(), |session| {
            Notice::Foreign(session.uuid(), name.into(), instance.clone())
        });
    }

    /// Forwards a STATS without the instances that are not its node's to list; returns their indexes, ascending.
    pub(crate) fn carry_stats(
        &mut self,
        id: SessionId,
        key: NodeKey,
        parcel: Parcel,
        report: &StatsReport,
    ) -> Vec<u32> {
        let mut rows = Vec::new();
        let mut foreign = 0;
        let mut first = None;
        for (at, listed) in (0..).zip(&report.instances) {
            let verdict = self
                .sight()
                .verdict_on(key, &listed.instance, Statement::Listed);
            if verdict != ReportVerdict::Counts {
                rows.push(at);
            }
            if verdict == ReportVerdict::Foreign {
                foreign += 1;
                first.get_or_insert(&listed.instance);
            }
        }
        if let Some(first) = first {
            self.note_foreign(id, ReportName::Stats, first, foreign);
        }
        if rows.is_empty() {
            self.broadcast(Topic::Stats, id, parcel);
            return rows;
        }
        let stats = Arc::new(StatsWithout {
            parcel,
            rows: rows.clone(),
            is_plain: report.is_plain,
        });
        self.broadcast_as(Topic::Stats, id, |_| {
            Some(Message::StatsWithout(Arc::clone(&stats)))
        });
        rows
    }

    /// Stops copies that a node lists of instances which are certainly elsewhere; at most [`MAX_QUESTIONS`] for one
    /// STATS, the others with later ones.
    pub(crate) fn stop_copies(&mut self, key: NodeKey, copies: Vec<(InstanceId, InstanceState)>) {
        let mut copies = copies.into_iter();
        for _ in 0..MAX_QUESTIONS {
            let copy = copies
                .find(|(instance, state)| self.sight().is_one_too_many(key, instance, *state));
            let Some((instance, _)) = copy else { return };
            self.order_stop(key, &instance);
            self.note_question(key, &instance, CommandName::Delete, Asker::Scheduler);
        }
    }

    /// Refuses a report that speaks for another node than its sender; whether it did.
    fn refuse_if_forged(&mut self, id: SessionId, name: ReportName, node: &str) -> bool {
        if !self.peers.is_forged(id, node) {
            return false;
        }
        self.counters.refused += 1;
        self.notice_once(id, name.into(), |session| {
            Notice::Forged(session.uuid(), name.into(), node.into())
        });
        true
    }

    /// Refuses what its sender may not send; whether it did. Also `true`, without an answer, where the session has
    /// ended.
    pub(crate) fn refuse_if_not_permitted(
        &mut self,
        id: SessionId,
        sent: Sent,
        instance: Option<&InstanceId>,
    ) -> bool {
        let Some(session) = self.peers.get(id) else {
            return true;
        };
        let Some(denied) = self.peers.denied(id, session, sent) else {
            return false;
        };
        let role = session.role();
        self.notice_once(id, sent, |session| match denied {
            Denied::NotPermitted => Notice::NotPermitted(session.uuid(), session.role(), sent),
            Denied::NotMaster => Notice::NotMaster(session.uuid(), sent),
        });
        self.counters.refused += 1;
        let cause = match denied {
            Denied::NotPermitted => RefusalCause::NotPermitted(role),
            Denied::NotMaster => RefusalCause::Backup,
        };
        self.refuse(id, sent, cause, instance);
        true
    }
}

impl Report {
    /// How it says that an instance is not on the node that says so; `None` if it does not.
    pub(crate) fn end(&self) -> Option<Ended> {
        match self {
            Self::InstanceDeleted(_) | Self::InstanceStopped(_) => Some(Ended::Gone),
            Self::InstanceExited(_) => Some(Ended::ByItself),
            Self::InstanceCutOff(_) => Some(Ended::CutOff),
            Self::DeleteFailed { no_instance, .. } => no_instance.then_some(Ended::NotThere),
            Self::StartFailed { reason, .. } => (!still_runs(reason)).then_some(Ended::Failed),
            _ => None,
        }
    }
}
