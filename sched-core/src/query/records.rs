//! From what is known to what is written to disk: one record each of an instance, a run, a node, and the claims on it.

use sched_model::{EndFacts, PhaseName, Uuid};

use crate::api::cause::Cause;
use crate::api::clock::whole_ms;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::record;
use crate::api::record::{
    AfterRecord, ClaimRecord, ClaimsRecord, DrainRecord, FactsRecord, InstanceRecord, Life,
    LostDelete, NodeRecord, Record, RunRecord,
};
use crate::cluster::Cluster;
use crate::cluster::ledger::{ClaimState, Entry, Ledger, Remains};
use crate::instance::tried::Tried;
use crate::instance::{
    AfterLoss, AfterStop, Awaits, HistoryEvent, OnLoss, Run, State, SuspendedBy,
};
use crate::query::drains::count;
use crate::queue::Dependency;
use crate::sight::Sight;

impl Sight<'_> {
    /// The record of an instance as it is now; `None` deletes what is on disk of it.
    pub(crate) fn instance_record(&self, instance: &InstanceId) -> Option<Record> {
        let Some(managed) = self.instances.get(instance) else {
            return self.batch_record(instance);
        };
        let start = managed.start();
        let uuid_of = |key| self.cluster.uuid(key);
        let (node, target) = match *managed.state() {
            State::Lost {
                node, bound_for, ..
            } => (Some(node), bound_for.or(managed.pinned())),
            State::Migrating { from, to, .. } => (Some(uuid_of(from)), Some(uuid_of(to))),
            _ => (
                managed.state().node().map(uuid_of).or(managed.last_node()),
                managed.pinned(),
            ),
        };
        let element = managed.element();
        Some(Record::Instance(Box::new(InstanceRecord {
            // That of an element is its array's.
            payload: start
                .filter(|_| element.is_none())
                .map(|start| start.parcel.payload.clone()),
            array: element.map(|it| it.array),
            index: element.map(|it| it.index),
            sender: start.map(|start| start.parcel.origin).unwrap_or_default(),
            priority: managed.priority(),
            life: life(managed.state()),
            node,
            target,
            arrived_ms: self.clock.unix_ms(managed.arrived()),
            deadline_ms: managed.waits_until().map(|until| self.clock.unix_ms(until)),
            attempts: u32::try_from(managed.tried().len()).unwrap_or(u32::MAX),
            order: managed.order(),
            tried: managed.tried().iter().map(attempt_record).collect(),
            history: managed
                .history()
                .iter()
                .map(|it| self.event_record(it))
                .collect(),
            by_operator: managed.state().suspended_by() == Some(&SuspendedBy::Command),
            has_run: managed.has_run(),
            retries: managed.retries(),
            after: self.after_records(instance),
            max_attempts: managed.max_attempts(),
            lease_ms: managed.lease().map(whole_ms),
            runs: managed.runs().latest(),
            ran_on: managed.runs().node(),
            earlier_runs: managed.runs().earlier().to_vec(),
            is_deleted: is_deleted(managed.state()),
            told_to_stop: managed.state().is_stop_sent(),
            relocate: managed.relocates(),
            restart_on_loss: managed.on_loss() == OnLoss::Restart,
            time_limit_ms: start.and_then(|it| Some(it.changes.as_ref()?.time_limit?.ms())),
            time_used_ms: managed.time_used_ms(),
            updated: start.and_then(|start| start.changes.as_ref()?.demand.clone()),
            batch: None,
            batch_operator: None,
            is_operators: managed.is_operators(),
        })))
    }

    /// What an instance waits for to end, as it is recorded.
    fn after_records(&self, instance: &InstanceId) -> Vec<AfterRecord> {
        let left = self.queue.dependencies(instance).unwrap_or_default();
        let record = |it: &Dependency| {
            let instance: Box<str> = it.other.to_string().into();
            AfterRecord {
                named: match it.named == instance {
                    true => Box::default(),
                    false => it.named.clone(),
                },
                instance,
                is_array: it.is_array,
                end: it.end.as_str().into(),
            }
        };
        left.iter().map(record).collect()
    }

    /// The record of a START that waits for the rest of its batch.
    pub(crate) fn batch_record(&self, instance: &InstanceId) -> Option<Record> {
        let (batch, start) = self.pending.in_batch(instance)?;
        Some(Record::Instance(Box::new(InstanceRecord {
            payload: Some(start.parcel.payload.clone()),
            sender: start.parcel.origin,
            batch: Some(batch.to_string().into()),
            batch_operator: batch.operator(),
            node: self.has_plain(instance),
            arrived_ms: self.clock.unix_ms(self.now),
            ..InstanceRecord::default()
        })))
    }

    /// The node that has an instance which is not managed, or may still come back with it: a restarted scheduler must
    /// not place it before that node is back.
    pub(crate) fn has_plain(&self, instance: &InstanceId) -> Option<Uuid> {
        let placement = self.cluster.placement(instance);
        let placement = placement.map(|key| self.cluster.uuid(key));
        placement.or_else(|| self.recovery.expected_on(instance))
    }

    /// An event of a history as it is recorded. The server writes the cause's sentence into `detail` before it is
    /// stored.
    pub(crate) fn event_record(&self, event: &HistoryEvent) -> record::Event {
        record::Event {
            at_ms: self.clock.unix_ms(event.at),
            what: event.what.as_str().into(),
            node: event.node,
            detail: Box::default(),
            run: event.run,
            cause: event.cause.clone(),
        }
    }

    /// What is put on disk of a run; `None` if nothing is to be there.
    pub(crate) fn run_record(&self, number: u64) -> Option<Record> {
        let run = self.instances.run(number)?;
        Some(Record::Run(Box::new(self.record_of(run))))
    }

    /// Runs that are over, before the one with this number, the latest first, at most so many.
    pub(crate) fn runs_before(&self, number: u64, most: usize) -> Vec<(u64, RunRecord)> {
        let runs = self.instances.runs_before(number).take(most);
        runs.map(|(number, run)| (number, self.record_of(run)))
            .collect()
    }

    fn record_of(&self, run: &Run) -> RunRecord {
        RunRecord {
            instance: run.instance().to_string().into(),
            at_ms: self.clock.unix_ms(run.at()),
            node: run.node(),
            hostname: run.hostname().as_str().into(),
            name: run.name().into(),
            tenant: run.owner().map(|tenant| tenant.to_string().into()),
            program: run.program().into(),
            failed: run.failed().map(|reason| reason.as_str().into()),
            is_unsent: run.unsent().is_some(),
            is_restart: run.unsent().is_some_and(|unsent| unsent.is_restart),
            exit_code: run.exit_code(),
            end: run.end(),
            index: run.index(),
            run: run.numbers().latest(),
            ended_ms: run.reported_end().map(|at| self.clock.unix_ms(at)),
            ran_on: run.numbers().node(),
            earlier_runs: run.numbers().earlier().to_vec(),
            retries: run.retries(),
            by_command: run.is_by_command(),
            facts: run.facts().map(facts_record),
            by: run.by().map(|by| by.as_str().into()),
            history: run.events().map(|it| self.event_record(&it)).collect(),
        }
    }

    /// What is put on disk of a node: its cordon, its drain, and the numbers of ends dealt with. `None` if there is
    /// none of these, so that its record is deleted.
    pub(crate) fn node_record(&self, uuid: Uuid) -> Option<Record> {
        let (cordon, ends) = (self.cluster.cordon_of(uuid), self.journal.ends_record(uuid));
        let Some(cordon) = cordon else {
            let ends = Some(ends?);
            return Some(Record::Node(NodeRecord {
                ends,
                ..NodeRecord::default()
            }));
        };
        let there = self.cluster.by_uuid(uuid).map_or(0, |key| self.len_of(key));
        Some(Record::Node(NodeRecord {
            cordoned: true,
            cordoned_since_ms: cordon.since_ms(),
            lease_ms: None,
            ends,
            drain: cordon.drain().map(|drain| DrainRecord {
                deadline_ms: drain.due().map(|due| self.clock.unix_ms(due)),
                parallel: count(drain.parallel()),
                total: count(drain.total()),
                moved: count(drain.total().saturating_sub(there)),
                ended: count(drain.ended()),
            }),
        }))
    }

    /// What is put on disk of the claims on a node; `None` if nothing is to be there.
    pub(crate) fn claims_record(&self, uuid: Uuid) -> Option<Record> {
        let claims = match self.cluster.by_uuid(uuid).map(|key| self.cluster.node(key)) {
            Some(node) if !node.is_native() => self.claims_of(node.ledger(), |_, _| false),
            // It reports all itself, once it is back; until then its plain instances may be lost with it.
            Some(node) if node.session().is_some() => return None,
            Some(node) => {
                let key = self.cluster.by_uuid(uuid)?;
                let mut claims = self.claims_of(node.ledger(), is_lost_with(self.cluster, key));
                claims.retain(|claim| claim.is_lost);
                claims
            }
            None => self.journal.claims_away(uuid)?.to_vec(),
        };
        (!claims.is_empty()).then_some(Record::Claims(ClaimsRecord { claims }))
    }

    /// The plain instances in a ledger, and what they asked for, as records; `is_lost`: whether their node is lost, and
    /// an instance with it. Left out are those of which nothing is to be said but that they are there. Managed instances
    /// have records of their own.
    pub(crate) fn claims_of(
        &self,
        ledger: &Ledger,
        is_lost: impl Fn(&InstanceId, &Entry) -> bool,
    ) -> Vec<ClaimRecord> {
        // A START that was never listed has failed when its node is given up.
        let is_listed =
            |instance: &InstanceId, entry: &Entry| entry.may_run() && is_lost(instance, entry);
        // Of one that is only claimed the node knows nothing.
        let is_kept_here = |instance: &InstanceId, entry: &Entry| {
            let is_there = !entry.is_managed() && entry.claim_state() != ClaimState::Claimed;
            is_there && (entry.is_known() || is_listed(instance, entry))
        };
        let entries = ledger
            .entries_from(0)
            .filter(|(instance, entry)| is_kept_here(instance, entry));
        let record = |(instance, entry): (&InstanceId, &Entry)| ClaimRecord {
            instance: instance.to_string().into(),
            mem_mib: entry.asked().mem_mib,
            vcpus: entry.asked().vcpus,
            disk_mib: entry.asked().disk_mib,
            resources: entry
                .custom()
                .iter()
                .map(|&(column, amount)| (self.cluster.columns().name(column).into(), amount))
                .collect(),
            group: entry.group().map(|group| (&**group).into()),
            is_lost: is_listed(instance, entry),
            is_unknown: !entry.is_known(),
            lost_delete: entry.is_stop_lost().then(|| match entry.remains() {
                Remains::Nothing => LostDelete::Delete,
                Remains::ForRestart => LostDelete::Stop,
            }),
            since_ms: self.clock.unix_ms(entry.since()),
            ..self.named_record(instance)
        };
        entries.map(record).collect()
    }

    /// What an instance is called and runs, as a record of a claim without anything else.
    pub(crate) fn named_record(&self, instance: &InstanceId) -> ClaimRecord {
        let about = self.instances.about(instance);
        about.map_or_else(ClaimRecord::default, |about| ClaimRecord {
            name: about.name.into(),
            tenant: about.tenant.map(|tenant| tenant.to_string().into()),
            program: about.program.into(),
            ..ClaimRecord::default()
        })
    }

    /// An event of a history from its record. Its cause is the recorded sentence.
    pub(crate) fn event_of(&self, record: &record::Event) -> HistoryEvent {
        HistoryEvent {
            at: self.clock.instant_of(record.at_ms),
            what: PhaseName::from(&*record.what),
            node: record.node,
            cause: Cause::from(&*record.detail).kept(),
            run: record.run,
        }
    }
}

/// A refusal as it is recorded.
fn attempt_record(tried: &Tried) -> record::Attempt {
    record::Attempt {
        node: tried.node,
        reason: tried.reason.as_str().into(),
        detail: tried.detail.clone().into(),
    }
}

/// The state as it is recorded.
fn life(state: &State) -> Life {
    let is_suspended = state.suspended_by().is_some();
    match state {
        State::Seeking { .. } | State::Waiting { .. } => Life::Waiting,
        State::Placing(placing) => match placing.pending_on {
            // No one was told: it is still to be placed.
            Awaits::Victims(..) => Life::Waiting,
            Awaits::Commit | Awaits::Node { .. } => Life::Placing,
        },
        // It was told to suspend it once, and may be about to.
        State::Running { .. } if is_suspended => Life::Suspending,
        State::Running { .. } | State::Updating { .. } => Life::Running,
        State::Suspending { .. } => Life::Suspending,
        State::Suspended { .. } => Life::Suspended,
        State::Resuming { .. } => Life::Resuming,
        State::Stopping { .. } => Life::Stopping,
        State::Migrating { .. } => Life::Migrating,
        // No one knows whether its START has arrived where it is to go alone.
        State::Lost { transit, .. } if transit.pinned.is_some() => Life::Placing,
        // It may have come to where it was to move.
        State::Lost {
            bound_for: Some(_), ..
        } => Life::Migrating,
        State::Lost { then, .. } => match then {
            AfterLoss::Replace => Life::Placing,
            AfterLoss::Restart | AfterLoss::Forget | AfterLoss::Delete if is_suspended => {
                Life::Suspended
            }
            AfterLoss::Restart | AfterLoss::Forget | AfterLoss::Delete => Life::Running,
        },
    }
}

/// Whether a DELETE of it is under way, also on a lost node.
fn is_deleted(state: &State) -> bool {
    match state {
        State::Stopping { then, .. } => matches!(then, AfterStop::End(_)),
        State::Lost { then, .. } => *then == AfterLoss::Delete,
        _ => false,
    }
}

/// Whether an instance in the ledger of a node that is lost is lost with it: not where it is placed elsewhere, and the
/// node has listed it all the same.
pub(crate) fn is_lost_with(
    cluster: &Cluster,
    key: NodeKey,
) -> impl Fn(&InstanceId, &Entry) -> bool {
    move |instance, entry| entry.is_remembered() || cluster.placement(instance) == Some(key)
}

/// What is put on disk of a run's figures.
fn facts_record(facts: &EndFacts) -> FactsRecord {
    FactsRecord {
        ran_ms: facts.ran_ms,
        why: Some(facts.why.as_str())
            .filter(|why| !why.is_empty())
            .map(Box::from),
        peak_kib: facts.peak_kib,
        cpu_ms: facts.cpu_ms,
        output_bytes: facts.output_bytes,
        restarts: facts.restarts,
        labels: facts.labels.clone(),
    }
}
