//! Runs of instances that are over: how each ended and where, as its node said, kept for those who ask later.

use std::time::Instant;

use sched_model::LifeState;

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::record::{Record, RunRecord};
use crate::api::text::ShortText;
use crate::instance::{HistoryEvent, Run};

/// What is known of an instance when its node's word on its end comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BeforeEnd {
    /// The latest run that was over by then.
    last_run: u64,
    /// Since when the node had it; `None` = it was not known to.
    since: Option<Instant>,
}

impl BeforeEnd {
    /// The latest run that was over.
    pub(crate) fn last_run(self) -> u64 {
        self.last_run
    }

    /// What is known of one that its node has not had for a while.
    fn without_entry(last_run: u64) -> Self {
        let since = None;
        Self { last_run, since }
    }
}

impl Scheduler {
    /// A node does not list an instance any more that is not managed, and has not said how it ended.
    pub(crate) fn run_has_vanished(&mut self, key: NodeKey, instance: &InstanceId) {
        let before = BeforeEnd::without_entry(self.instances.last_run());
        self.run_is_over(key, instance, before, &Cause::NotListed);
    }

    /// What is known of an instance before its node's word on its end is taken in.
    pub(crate) fn before_end(&self, key: NodeKey, instance: &InstanceId) -> BeforeEnd {
        let entry = self.cluster.nodes().node(key).ledger().get(instance);
        BeforeEnd {
            last_run: self.instances.last_run(),
            since: entry.map(|entry| entry.since()),
        }
    }

    /// A run of an instance is over by its node's word; of one that is managed, the rest is noted already.
    pub(crate) fn run_is_over(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        before: BeforeEnd,
        why: &Cause,
    ) {
        let node = self.cluster.nodes().node(key);
        let (uuid, hostname) = (node.uuid(), ShortText::new(node.hostname()));
        let is_noted = self.instances.amend_run(before.last_run, instance, |run| {
            (run.node, run.hostname) = (Some(uuid), hostname.clone());
        });
        if !is_noted {
            let event = |at, what, cause: Cause| HistoryEvent {
                at,
                what,
                node: Some(uuid),
                cause,
            };
            let began = before.since;
            let began = began.map(|since| event(since, LifeState::Running, Cause::KnownSince));
            let gone = event(self.now, LifeState::Gone, why.kept());
            self.instances.note_run(Run {
                instance: instance.clone(),
                at: self.now,
                node: Some(uuid),
                hostname,
                exit_code: None,
                history: began.into_iter().chain([gone]).collect(),
            });
        }
        self.note_changed_runs();
    }

    /// A launcher's word on an end says how it was; `before` is the latest run that was over when it came.
    pub(crate) fn note_exit(&mut self, before: u64, instance: &InstanceId, exit_code: Option<i64>) {
        if exit_code.is_some() {
            self.instances
                .amend_run(before, instance, |run| run.exit_code = exit_code);
            self.note_changed_runs();
        }
    }

    /// Has what changed of runs that are over put on disk.
    pub(crate) fn note_changed_runs(&mut self) {
        while let Some(number) = self.instances.next_changed_run() {
            self.journal.note_run(number);
        }
    }

    /// What is put on disk of a run; `None` if nothing is to be there.
    pub(crate) fn run_record(&self, number: u64) -> Option<Record> {
        let run = self.instances.run(number)?;
        Some(Record::Run(Box::new(RunRecord {
            instance: run.instance.to_string().into(),
            at_ms: self.unix_ms(run.at),
            node: run.node,
            hostname: run.hostname.clone().into(),
            exit_code: run.exit_code,
            history: run.history.iter().map(|it| self.event_record(it)).collect(),
        })))
    }

    pub(crate) fn restore_run(&mut self, number: u64, record: RunRecord) {
        let run = Run {
            instance: InstanceId::new(&record.instance),
            at: self.instant_of(record.at_ms),
            node: record.node,
            hostname: ShortText::new(&record.hostname),
            exit_code: record.exit_code,
            history: record.history.iter().map(|it| self.event_of(it)).collect(),
        };
        self.instances.restore_run(number, run);
        self.note_changed_runs();
    }
}
