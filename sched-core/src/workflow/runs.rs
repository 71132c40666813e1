//! Runs of instances that are over: how each ended and where, as its node said, kept for those who ask later.

use std::time::Instant;

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::record::{Record, RunRecord};
use crate::api::text::ShortText;
use crate::instance::Run;

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
        let place = (node.uuid(), node.hostname_text());
        let is_noted = self.instances.amend_run(before.last_run, instance, |run| {
            run.set_node(place.0, place.1.clone());
        });
        if !is_noted {
            let run = Run::plain(instance.clone(), place, before.since, self.now, why.kept());
            self.instances.note_run(run);
        }
        self.note_changed_runs();
    }

    /// A launcher's word on an end says how it was; `before` is the latest run that was over when it came.
    pub(crate) fn note_exit(&mut self, before: u64, instance: &InstanceId, exit_code: Option<i64>) {
        if exit_code.is_some() {
            self.instances
                .amend_run(before, instance, |run| run.set_exit_code(exit_code));
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
            instance: run.instance().to_string().into(),
            at_ms: self.unix_ms(run.at()),
            node: run.node(),
            hostname: run.hostname().as_str().into(),
            exit_code: run.exit_code(),
            history: run.events().map(|it| self.event_record(&it)).collect(),
        })))
    }

    pub(crate) fn restore_run(&mut self, number: u64, record: RunRecord) {
        let run = Run::restored(
            InstanceId::new(&record.instance),
            (record.node, ShortText::new(&record.hostname)),
            self.instant_of(record.at_ms),
            record.exit_code,
            record.history.iter().map(|it| self.event_of(it)).collect(),
        );
        self.instances.restore_run(number, run);
        self.note_changed_runs();
    }
}
