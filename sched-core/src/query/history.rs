//! What became of one instance, and which runs are over.
//!
//! Of an instance that is or was managed: every transition that is still remembered (`instance::history`,
//! `instance::past`). Of a plain one: what its ledger entry says, as one row. Both are bounded, so old rows are missing
//! from long histories.

use std::time::Duration;

use sched_model::{HistoryRow, InstanceView, OutputRow, PhaseName, PlacementState, Query, Uuid};

use super::page::{Allowance, InstanceRow, InstanceRows, Page, limit, start_of};
use crate::api::cause::Cause;
use crate::api::explained::QueryProblem;
use crate::api::ids::InstanceId;
use crate::cluster::ledger::ClaimState;
use crate::cluster::node::Presence;
use crate::instance::{HistoryEvent, Output, Run};
use crate::journal::LostPlain;
use crate::sight::Sight;

impl<'a> Sight<'a> {
    /// A plain instance of a lost node that is listed as such: it is nowhere else.
    pub(crate) fn lost_plain(&self, instance: &InstanceId) -> Option<LostPlain<'a>> {
        let is_elsewhere =
            self.instances.contains(instance) || self.cluster.placement(instance).is_some();
        self.journal.lost_plain(instance).filter(|_| !is_elsewhere)
    }

    /// The transitions of one instance, oldest first, then where its output is kept. The pattern is the whole
    /// identifier.
    ///
    /// The cursor is the number of rows shown. Where the oldest rows are forgotten between two pages, as many later
    /// ones are skipped.
    pub(super) fn query_history(&self, query: &Query, result: &mut Page) {
        let instance = InstanceId::new(query.matching.as_deref().unwrap_or_default());
        let Some(from) = start_of::<usize>(query, result) else {
            return;
        };
        let mut allowance = Allowance::new(limit(query));
        for (at, (event, run)) in self.instances.history(&instance).enumerate().skip(from) {
            if allowance.is_used_up() {
                result.next = Some(at.to_string());
                return;
            }
            allowance.look();
            allowance.take_row(event.cause.text_size());
            result.history.push(self.history_row(&event, run));
            result.cause.history.push(event.cause.clone());
        }
        if !self.instances.contains(&instance)
            && let Some((row, cause)) = self.plain_history(&instance)
        {
            result.history.push(row);
            result.cause.history.push(cause);
        }
        let outputs = self.instances.outputs(&instance).take(MAX_OUTPUT_ROWS);
        result.outputs = outputs.map(output_row).collect();
        if result.history.is_empty() && result.outputs.is_empty() && from == 0 {
            result.cause.problem = Some(QueryProblem::UnknownInstance(instance));
        }
    }

    /// A row of a history. `run` is given for the event that ended a run, and adds its node, number and exit code.
    fn history_row(&self, event: &HistoryEvent, run: Option<&Run>) -> HistoryRow {
        HistoryRow {
            at_ms: ms(self.clock.unix_ms(event.at)),
            what: event.what.as_str().to_owned(),
            node_uuid: uuid_text(event.node.or(run.and_then(Run::node))),
            detail: String::new(),
            exit_code: run.and_then(Run::exit_code),
            why: run
                .and_then(Run::facts)
                .map(|facts| facts.why.clone())
                .unwrap_or_default(),
            failed: run
                .and_then(Run::failed)
                .map(|reason| reason.as_str().to_owned()),
            run: run
                .and_then(number_of)
                .or((event.run > 0).then(|| event.run.into())),
        }
    }

    /// Whether a later run of the same instance has begun: this one is not what became of the instance.
    fn has_later_run(&self, run: &Run) -> bool {
        let instance = run.instance();
        self.instances.contains(instance)
            || self.cluster.placement(instance).is_some()
            || !self.instances.is_last_run(run)
    }

    /// Runs that are over and remembered, oldest first, of any instance whose name, identifier or host matches. The
    /// cursor is the number of the last run looked at; numbers only grow, so no run is shown twice.
    pub(super) fn query_ended(&self, query: &Query, result: &mut Page) {
        let pattern = query.matching.as_deref().unwrap_or_default();
        let Some(from) = start_of::<u64>(query, result) else {
            return;
        };
        let since = self.instances.history_complete_since();
        // What is on disk of ends may have a gap, of the time when another scheduler had its nodes. That is seen from the
        // numbers of each node's ends once it has reported; until then it counts as if it were so.
        let is_proven = !self.journal.lacks_reports();
        let since = since.map(|since| match is_proven {
            true => since,
            false => since.max(self.clock.started()),
        });
        let complete_for = since.map(|since| self.now.saturating_duration_since(since));
        result.complete_for_ms = complete_for.map(whole_ms);
        result.forgotten = Some(self.instances.runs_forgotten()).filter(|count| *count > 0);
        let within = query.within_ms.map(Duration::from_millis);
        let is_too_old = |run: &Run| {
            let age = self.now.saturating_duration_since(run.ended());
            within.is_some_and(|within| age > within)
        };
        let mut passed_over = 0_usize;
        let mut rows = InstanceRows::of(result, query);
        let mut last = from;
        // Who asks for one by its whole identifier is not to pay for all others.
        let whole = (!pattern.is_empty()).then(|| InstanceId::new(pattern));
        let whole = whole.map(|instance| self.instances.runs_of_after(&instance, from));
        let one = whole.filter(|runs| !runs.is_empty());
        let all = one.is_none().then(|| self.instances.runs_after(from));
        for (number, run) in one.into_iter().flatten().chain(all.into_iter().flatten()) {
            if rows.allowance.is_used_up() {
                result.next = Some(last.to_string());
                return;
            }
            last = number;
            // They are not sorted by when they ended: what is learnt late stands behind what ended later.
            if is_too_old(run) {
                passed_over += 1;
                if passed_over.is_multiple_of(PASSED_OVER_AS_ONE) {
                    rows.allowance.look();
                }
                continue;
            }
            rows.allowance.look();
            let is_named = [run.name(), &**run.hostname()].contains(&pattern);
            if run.instance().starts_with(pattern) || !pattern.is_empty() && is_named {
                let row = self.ended_row(run);
                let names = row.hostname.len() + row.name.len() + row.program.len();
                let text_len = row.cause.text_size() + names;
                rows.push(row, text_len);
            }
        }
    }

    /// The row of the latest run of an instance, once that is over and as long as it is remembered.
    pub(super) fn last_run_row(&self, instance: &InstanceId) -> Option<InstanceRow> {
        let run = self.instances.last_run_of(instance);
        run.map(|run| self.ended_row(run))
    }

    /// A run that is over as a row: where, when, how.
    fn ended_row(&self, run: &Run) -> InstanceRow {
        let row = InstanceView {
            instance_uuid: run.instance().to_string(),
            node_uuid: uuid_text(run.node()),
            hostname: match run.hostname().as_str() {
                "" => run
                    .node()
                    .map_or("", |node| self.cluster.name_of(node))
                    .to_owned(),
                hostname => hostname.to_owned(),
            },
            state: PlacementState::Ended,
            age_s: self.now.saturating_duration_since(run.ended()).as_secs() as i64,
            ended_at_ms: Some(ms(self.clock.unix_ms(run.ended()))),
            exit_code: run.exit_code(),
            failed: run.failed().map(|reason| reason.as_str().to_owned()),
            name: run.name().to_owned(),
            tenant: run.tenant().map(ToString::to_string).unwrap_or_default(),
            began_at_ms: run.first_known().map(|at| ms(self.clock.unix_ms(at))),
            program: run.program().to_owned(),
            run: number_of(run),
            earlier: self.has_later_run(run),
            retries: run.retries(),
            ..InstanceView::default()
        };
        InstanceRow::new(row, run.cause().cloned().unwrap_or_default())
    }

    /// What the ledger entry of a plain instance says, as the only row of its history.
    fn plain_history(&self, instance: &InstanceId) -> Option<(HistoryRow, Cause)> {
        if let Some(lost) = self.lost_plain(instance) {
            let row = HistoryRow {
                at_ms: ms(self.clock.unix_ms(lost.since)),
                what: PhaseName::Lost.as_str().to_owned(),
                node_uuid: uuid_text(Some(lost.node)),
                ..HistoryRow::default()
            };
            return Some((row, Cause::MayRunOnLostNode));
        }
        let node = self.cluster.node(self.cluster.placement(instance)?);
        let entry = node.ledger().get(instance)?;
        let (what, cause) = match (node.presence(), entry.claim_state()) {
            (Presence::Lost(_), _) => ("in_doubt", Cause::KnownSinceNodeLost),
            (_, ClaimState::InDoubt(_)) => ("in_doubt", Cause::GivenUnlisted),
            (_, ClaimState::Claimed | ClaimState::Placed(_)) => ("placed", Cause::GivenUnlisted),
            (_, ClaimState::Running) => ("running", Cause::ListedSince),
        };
        let row = HistoryRow {
            at_ms: ms(self.clock.unix_ms(entry.since())),
            what: what.to_owned(),
            node_uuid: uuid_text(Some(node.uuid())),
            ..HistoryRow::default()
        };
        Some((row, cause))
    }
}

/// Runs of one instance whose output is shown: as many as a launcher keeps.
const MAX_OUTPUT_ROWS: usize = 256;

/// So many runs that ended too long ago count as one entry looked at: a comparison of two times each, against one of
/// names.
const PASSED_OVER_AS_ONE: usize = 16;

/// Where a run's output is kept, for people: a path on its node.
fn output_row(output: &Output) -> OutputRow {
    OutputRow {
        node_uuid: output.node.to_string(),
        hostname: output.hostname.to_string(),
        ended_at_ms: ms(output.at_ms),
        path: output.path.to_string(),
    }
}

/// The number of a run among those of its instance, where it is known.
fn number_of(run: &Run) -> Option<i64> {
    let number = run.numbers().latest();
    (number > 0).then(|| number.into())
}

fn uuid_text(uuid: Option<Uuid>) -> String {
    uuid.map(|uuid| uuid.to_string()).unwrap_or_default()
}

/// Milliseconds of a time, rounded down; the largest number where they do not fit.
fn whole_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970 as the wire has them; the largest number where they do not fit.
fn ms(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms).unwrap_or(i64::MAX)
}
