//! What became of one instance: of one that is looked after, or was, every turn that is still remembered; of a plain one
//! what its entry says.

use sched_model::{HistoryRow, Query, QueryResult, Uuid};

use super::page::Allowance;
use super::{limit, start_of};
use crate::Scheduler;
use crate::api::ids::InstanceId;
use crate::cluster::ledger::Phase;
use crate::cluster::node::Presence;
use crate::instance::HistoryEvent;

impl Scheduler {
    /// The cursor is how many rows were shown. Where the oldest are forgotten meanwhile, as many are passed over.
    pub(super) fn query_history(&self, query: &Query, result: &mut QueryResult) {
        let instance = InstanceId::new(query.matching.as_deref().unwrap_or_default());
        let Some(from) = start_of::<usize>(query, result) else {
            return;
        };
        let mut allowance = Allowance::new(limit(query));
        for (at, event) in self.instances.history(&instance).enumerate().skip(from) {
            if allowance.is_used_up() {
                result.next = Some(at.to_string());
                return;
            }
            allowance.look();
            let row = self.history_row(event);
            allowance.take_row(row.detail.len());
            result.history.push(row);
        }
        if !self.instances.contains(&instance) {
            result.history.extend(self.plain_history(&instance));
        }
        if result.history.is_empty() && from == 0 {
            result.error = Some(format!(
                "no instance '{instance}' is known, nor was of late"
            ));
        }
    }

    fn history_row(&self, event: &HistoryEvent) -> HistoryRow {
        HistoryRow {
            at_ms: ms(self.unix_ms(event.at)),
            what: event.what.as_str().to_owned(),
            node_uuid: uuid_text(event.node),
            detail: event.cause.text().into(),
        }
    }

    /// What the entry of an instance that is not looked after says of it.
    fn plain_history(&self, instance: &InstanceId) -> Option<HistoryRow> {
        let node = self.cluster.nodes().node(self.cluster.placement(instance)?);
        let entry = node.ledger().get(instance)?;
        let (what, detail) = match (node.presence(), entry.phase()) {
            (Presence::Lost(_), _) => ("in_doubt", "known since then; its node is lost"),
            (_, Phase::InDoubt(_)) => (
                "in_doubt",
                "given to its node then, which has not listed it yet",
            ),
            (_, Phase::Claimed | Phase::Placed(_)) => (
                "placed",
                "given to its node then, which has not listed it yet",
            ),
            (_, Phase::Running) => ("running", "on its node since then, which lists it"),
        };
        Some(HistoryRow {
            at_ms: ms(self.unix_ms(entry.since())),
            what: what.to_owned(),
            node_uuid: uuid_text(Some(node.uuid())),
            detail: detail.to_owned(),
        })
    }
}

fn uuid_text(uuid: Option<Uuid>) -> String {
    uuid.map(|uuid| uuid.to_string()).unwrap_or_default()
}

fn ms(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms).unwrap_or(i64::MAX)
}
