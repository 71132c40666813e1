//! What a report of a node says about an instance that may be elsewhere, or may have had a later run.

use std::time::{Duration, Instant};

use sched_model::{EndFacts, EndWhy, Uuid};

use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::InstanceState;
use crate::api::report::Report;
use crate::cluster::ledger::{ClaimState, Ended};
use crate::instance::{Instance, State};
use crate::sight::Sight;

/// What becomes of a node's report about an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportVerdict {
    /// It is this node's to report on.
    Counts,
    /// The node had the instance, which is elsewhere by now.
    Late,
    /// The instance is elsewhere, and never was on this node as far as is known.
    Foreign,
}

/// What a report states about an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statement {
    /// That it is there.
    Listed,
    /// Anything else: that it failed, ended or changed.
    Other,
}

/// What is known of an instance just before a report of its end is dealt with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BeforeEnd {
    /// The number of the latest run that was over by then: a run with a higher number was noted because of this report.
    pub(crate) last_run: u64,
    /// Since when the node had it; `None` = it was not known to.
    pub(crate) since: Option<Instant>,
}

/// What a launcher that numbers ends reports of one.
#[derive(Debug, Clone)]
pub(crate) struct KnownEnd {
    /// Its number on the node.
    pub(crate) seq: u64,
    /// The exit status, or minus the signal; `None` = not known.
    pub(crate) exit_code: Option<i64>,
    /// When it happened; `None` = not known.
    pub(crate) at: Option<Instant>,
    /// What else is known of the run, if anything.
    pub(crate) facts: Option<Box<EndFacts>>,
}

impl KnownEnd {
    /// An end that was reported now and happened so long ago.
    pub(crate) fn new(
        now: Instant,
        seq: u64,
        (exit_code, facts): (Option<i64>, Option<Box<EndFacts>>),
        ago: Option<Duration>,
    ) -> Self {
        Self {
            seq,
            exit_code,
            at: ago.and_then(|ago| now.checked_sub(ago)),
            facts,
        }
    }

    /// The exit status, or minus the signal, of an end after which the instance may be retried: not one that its time limit
    /// brought about.
    pub(crate) fn own_exit(&self) -> Option<i64> {
        self.exit_code.filter(|_| !self.is_over_time())
    }

    /// What its frame tells. An end by its time limit is the instance's own and final, whatever it was to do: also where it
    /// was to be started again.
    pub(crate) fn told(&self, told: Report) -> Report {
        match told {
            Report::InstanceStopped(instance) | Report::InstanceCutOff(instance)
                if self.is_over_time() =>
            {
                Report::InstanceExited(instance)
            }
            told => told,
        }
    }

    fn is_over_time(&self) -> bool {
        let why = self.facts.as_ref().map(|facts| &facts.why);
        why == Some(&EndWhy::TimeLimit)
    }

    /// How much of its time limit the instance has used, where its launcher says so.
    pub(crate) fn time_used_ms(&self) -> Option<u64> {
        self.facts.as_ref()?.time_used_ms
    }
}

impl BeforeEnd {
    /// Whether its node was known to have it.
    pub(crate) fn is_known(self) -> bool {
        self.since.is_some()
    }

    /// The latest run that was over.
    pub(crate) fn last_run(self) -> u64 {
        self.last_run
    }

    /// For an instance of which this is known.
    pub(crate) fn new(last_run: u64, since: Option<Instant>) -> Self {
        Self { last_run, since }
    }
}

impl Sight<'_> {
    /// What becomes of a node's report about an instance.
    pub(crate) fn verdict_on(
        &self,
        key: NodeKey,
        instance: &InstanceId,
        statement: Statement,
    ) -> ReportVerdict {
        let Some(managed) = self.instances.get(instance) else {
            let placement = self.cluster.placement(instance);
            return if placement.is_none_or(|placement| placement == key) {
                ReportVerdict::Counts
            } else {
                ReportVerdict::Foreign
            };
        };
        let uuid = self.cluster.uuid(key);
        let counts = match managed.state() {
            State::Migrating { from, to, .. } => *from == key || *to == key,
            State::Lost {
                node, bound_for, ..
            } => *node == uuid || *bound_for == Some(uuid),
            state if state.is_not_given() => {
                let may_be_there = state.node() == Some(key) || managed.was_on(uuid);
                may_be_there && statement == Statement::Listed
            }
            state => state.node() == Some(key),
        };
        match counts {
            true => ReportVerdict::Counts,
            false if managed.was_on(uuid) => ReportVerdict::Late,
            false => ReportVerdict::Foreign,
        }
    }

    /// Whether a node's copy of an instance certainly must not run: the instance is managed and known to be elsewhere,
    /// or was started elsewhere by this scheduler and confirmed. If only two nodes' reports contradict each other,
    /// which is right cannot be known.
    pub(crate) fn is_one_too_many(
        &self,
        key: NodeKey,
        instance: &InstanceId,
        state: InstanceState,
    ) -> bool {
        if let Some(managed) = self.instances.get(instance) {
            return !matches!(managed.state(), State::Lost { .. });
        }
        let placement = self
            .cluster
            .placement(instance)
            .filter(|placement| *placement != key);
        let entry = placement.and_then(|placement| self.cluster.entry(placement, instance));
        // The START was given from here, and is known to have come to something.
        let is_sure = entry
            .is_some_and(|it| it.sender().is_some() && it.claim_state() == ClaimState::Running);
        is_sure && !state.is_over()
    }

    /// What is known of an instance now. To be called before its node's report of the end changes the ledger.
    pub(crate) fn before_end(&self, key: NodeKey, instance: &InstanceId) -> BeforeEnd {
        let entry = self.cluster.entry(key, instance);
        BeforeEnd {
            last_run: self.instances.last_run(),
            since: entry.map(|entry| entry.since()),
        }
    }

    /// The number of the run that has ended on a node, if a later one has begun elsewhere since; 0 if that is not known.
    pub(crate) fn earlier_run(
        &self,
        key: NodeKey,
        instance: &InstanceId,
        end: &KnownEnd,
    ) -> Option<u32> {
        let node = self.cluster.node(key);
        if let Some(managed) = self.instances.get(instance) {
            let verdict = self.verdict_on(key, instance, Statement::Other);
            let number = managed.runs().earlier_on(node.uuid());
            return number.filter(|_| verdict != ReportVerdict::Counts);
        }
        if node.ledger().get(instance).is_some() {
            return None;
        }
        let last = self.instances.last_run_of(instance)?;
        if let Some(number) = last.numbers().earlier_on(node.uuid()) {
            return Some(number);
        }
        // Of plain instances, and of what was forgotten with a restart, only the times can tell. A run that left neither a
        // time nor an exit code did not come to a process as far as its launcher knows: it replaces none that did.
        let is_elsewhere = last.node().is_some_and(|other| other != node.uuid());
        let is_before = match end.at {
            Some(at) => at < last.begun().or_else(|| last.reported_end())?,
            None => end.exit_code.is_none() && last.exit_code().is_some(),
        };
        (is_elsewhere && is_before).then_some(0)
    }

    /// Whether this is the own end of the latest run of an instance that waits to be started again: it was stopped, or
    /// its node was lost, as far as was known, and the next run has not begun.
    pub(crate) fn is_last_word(&self, key: NodeKey, instance: &InstanceId, how: Ended) -> bool {
        if how != Ended::ByItself {
            return false;
        }
        let node = self.cluster.uuid(key);
        let managed = self.instances.get(instance);
        managed.is_some_and(|it| it.state().is_not_given() && it.runs().node() == Some(node))
    }
}

impl Instance {
    /// Whether it was on this node before, as far as its history goes.
    fn was_on(&self, node: Uuid) -> bool {
        let mut history = self.history().iter();
        self.last_node() == Some(node) || history.any(|event| event.node == Some(node))
    }
}

impl InstanceState {
    /// Whether an instance that is so has ended.
    fn is_over(self) -> bool {
        matches!(
            self,
            Self::Exited | Self::ExitFailed | Self::Deleted | Self::Missing
        )
    }
}
