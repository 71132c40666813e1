//! Runs of instances that are over: how each ended and where, as its node reported, kept for those who ask later. The
//! table of runs, its bounds and the numbers of runs are in `instance::past`; here reports and records are turned into
//! runs.
//!
//! One end may be reported in several frames (an event, a row of STATS, an exit code), so each report first looks
//! whether the run was noted already, by the number of the latest run before the report came, and then adds what it
//! knows.

use std::time::{Duration, Instant};

use sched_model::{EndFacts, EndWhy, PhaseName, StartFailureReason, Topic, Uuid};

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::parcel::Parcel;
use crate::api::record::{FactsRecord, RunRecord};
use crate::api::report::{KeptRun, KeptRuns, Report};
use crate::api::rules::TenantId;
use crate::api::sent::CommandName;
use crate::api::text::ShortText;
use crate::cluster::ledger::Ended;
use crate::instance::{History, HistoryEvent, Output, Run, RunNumbers, UnsentFailure};
use crate::query::verdict::{BeforeEnd, KnownEnd};

/// By how much the end of an earlier run is put before that of the later one, where clocks contradict that: the unit in
/// which clients are sent times.
const MOMENT: Duration = Duration::from_millis(1);

impl Scheduler {
    /// A node reports the end of an instance, of which a later run has begun elsewhere, or is over: this is the end of an
    /// earlier run. It is listed as that, and changes nothing about the outcome; whether nothing else is to be done.
    pub(crate) fn take_earlier_end(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        told: &Report,
        parcel: &Parcel,
        end: &KnownEnd,
    ) -> bool {
        if !matches!(
            told.end(),
            Some(Ended::Gone | Ended::ByItself | Ended::CutOff)
        ) {
            return false;
        }
        let Some(number) = self.sight().earlier_run(key, instance, end) else {
            return false;
        };
        let place = self.cluster.host(key);
        let why = match told {
            Report::InstanceDeleted(_) => Cause::Deleted,
            Report::InstanceCutOff(_) => Cause::CutOff,
            _ => Cause::Ended,
        };
        // Whatever the clocks say, it was over before the later one.
        let later = self.instances.last_run_of(instance).map(Run::ended);
        let before_later = |at: Instant| match later {
            Some(later) if later <= at => later.checked_sub(MOMENT).unwrap_or(later),
            _ => at,
        };
        let uuid = place.0;
        let mut run = Run::plain(instance.clone(), place, None, self.now, why)
            .numbered(RunNumbers::restored(number, None, Vec::new()), None);
        run.set_end(
            end.seq,
            end.exit_code,
            Some(before_later(end.at.unwrap_or(self.now))),
        );
        run.set_facts(end.facts.as_deref());
        self.instances.note_run(run);
        let closes = |run: &mut Run| run.note_earlier_over(uuid);
        self.instances.amend_last_run(instance, |_| true, closes);
        self.note_changed_runs();
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.note_run_over(uuid);
            self.journal.note_instance(instance);
            // A copy that the node has listed is released as ever.
            return false;
        }
        self.answer(CommandName::Delete, instance, Topic::Instances, parcel);
        true
    }

    /// Adds the number of an end and the exit code to the run that the report ended, if it ended one; `before` is the
    /// latest run that was over when it came.
    pub(crate) fn note_exit(
        &mut self,
        before: u64,
        instance: &InstanceId,
        (key, end): (Option<NodeKey>, &KnownEnd),
    ) {
        let set_end = |run: &mut Run| {
            run.set_end(end.seq, end.exit_code, end.at);
            run.set_facts(end.facts.as_deref());
        };
        if !self.instances.amend_run(before, instance, set_end) {
            // It may have completed a run that was noted long before.
            let node = key.map(|key| self.cluster.uuid(key));
            let is_completed =
                |run: &Run| node.is_some() && run.node() == node && run.is_without_number();
            let is_amended = self
                .instances
                .amend_last_run(instance, is_completed, set_end);
            if let Some(key) = key
                && !is_amended
                && self.is_unseen_run(key, instance, end)
            {
                let unknown = BeforeEnd::new(before, None);
                self.run_is_over(key, instance, unknown, &Cause::Deleted);
                self.instances.amend_run(before, instance, set_end);
            }
        }
        self.note_changed_runs();
    }

    /// Whether an end is that of a run of which nothing was heard: its START was carried out after the end of the latest run
    /// on that node, and it was deleted before it was listed. What is deleted of a run that is over has the exit code
    /// of that run.
    fn is_unseen_run(&self, key: NodeKey, instance: &InstanceId, end: &KnownEnd) -> bool {
        let node = self.cluster.uuid(key);
        let last = self.instances.last_end_on(instance, node);
        let has_run_since = |run: &Run| {
            let is_older = run.end().is_some_and(|seq| seq < end.seq);
            is_older && end.exit_code.is_some() && run.exit_code() != end.exit_code
        };
        !self.instances.contains(instance)
            && self.cluster.entry(key, instance).is_none()
            && last.is_some_and(has_run_since)
            && !self.instances.has_ended_elsewhere(instance, node)
    }

    /// KeptRuns: of which runs that are over a node still has the output. If the list is complete, it replaces what was
    /// known of this node, and runs that the scheduler has forgotten with a restart are remembered again.
    pub(crate) fn kept_runs(&mut self, id: SessionId, kept: KeptRuns) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        let (uuid, hostname) = self.cluster.host(key);
        if kept.is_complete {
            self.instances.forget_outputs(uuid);
            self.learn_runs(uuid, &hostname, &kept.runs);
        }
        for run in kept.runs {
            self.instances.note_output(Output {
                instance: run.instance,
                node: uuid,
                hostname: hostname.clone(),
                seq: run.seq,
                at_ms: run.at_ms,
                path: run.output,
            });
        }
        self.note_changed_runs();
    }

    /// Remembers runs that are not known, with one event each: their end, at the time the node says, but not in the
    /// future. Not those that were known and are forgotten: their ends are on record once already.
    fn learn_runs(&mut self, node: Uuid, hostname: &ShortText, kept: &[KeptRun]) {
        let has_forgotten = self.instances.runs_forgotten() > 0;
        let is_known = |run: &&KeptRun| {
            let was_known = has_forgotten && self.journal.has_dealt_with(node, run.seq);
            was_known || self.instances.knows_run(&run.instance, node, run.seq)
        };
        // Earlier tries of one that was retried are counted with the last.
        let is_of_retried = |run: &&KeptRun| self.instances.was_retried(&run.instance);
        let unknown = kept
            .iter()
            .filter(|run| !is_known(run) && !is_of_retried(run));
        let learnt: Vec<Run> = unknown
            .map(|run| {
                let at = self.clock.instant_of(run.at_ms).min(self.now);
                let gone = HistoryEvent {
                    at,
                    what: PhaseName::Gone,
                    node: Some(node),
                    cause: Cause::KeptByNode,
                    run: 0,
                };
                Run::restored(
                    run.instance.clone(),
                    (Some(node), hostname.clone()),
                    at,
                    (run.exit_code, Some(run.seq)),
                    [gone].into_iter().collect::<History>(),
                )
            })
            .collect();
        for run in learnt {
            self.instances.learn_run(self.now, run);
        }
    }

    /// Takes over a run from its record, under the number it had.
    pub(crate) fn restore_run(&mut self, number: u64, record: RunRecord) {
        let run = Run::restored(
            InstanceId::new(&record.instance),
            (record.node, ShortText::new(&record.hostname)),
            self.clock.instant_of(record.at_ms),
            (record.exit_code, record.end),
            record
                .history
                .iter()
                .map(|it| self.sight().event_of(it))
                .collect(),
        );
        let failed = record.failed.as_deref().map(StartFailureReason::from);
        let run = run
            .called(&record.name, &record.program)
            .of_element(record.index)
            .of_tenant(record.tenant.as_deref().map(TenantId::new).as_ref())
            .not_started(failed)
            .restored_by(record.by.as_deref());
        let numbers = RunNumbers::restored(record.run, record.ran_on, record.earlier_runs);
        let ended = record.ended_ms.map(|at_ms| self.clock.instant_of(at_ms));
        let mut run = run
            .numbered(numbers, ended)
            .retried(record.retries)
            .by_command(record.by_command);
        run.set_facts(record.facts.as_ref().map(facts_of).as_ref());
        run.set_unsent(record.is_unsent.then_some(UnsentFailure {
            is_restart: record.is_restart,
        }));
        self.instances.restore_run(number, run);
        self.note_changed_runs();
    }
}

/// Figures of a run from their record.
fn facts_of(record: &FactsRecord) -> EndFacts {
    EndFacts {
        ran_ms: record.ran_ms,
        why: record.why.as_deref().map(EndWhy::from).unwrap_or_default(),
        peak_kib: record.peak_kib,
        cpu_ms: record.cpu_ms,
        output_bytes: record.output_bytes,
        restarts: record.restarts,
        time_used_ms: None,
        program: String::new(),
        labels: record.labels.clone(),
    }
}
