//! What the state machine orders, done with a worker: jobs in its stream, samples when they are due.
//!
//! A worker can create and destroy instances and nothing else; freezing, limits and the like are answered with a
//! failure at once. Nothing is written to disk: what a worker runs ends with its stream.

use std::time::{Duration, Instant};

use ciao_scheduler::launcher::agent::{AgentAction, Input, LaunchFault};
use tracing::warn;

use crate::node::definitions::MAX_KEPT;
use crate::node::{Held, Node, exited};
use crate::rpc::common::{InstanceMetric, ResourceStatus, WorkloadRequestKind};
use crate::rpc::worker::InstanceScheduling;

/// Shortest pause between two reports for each instance of a worker, up to the usual pause between two: with 125
/// instances it is one second. A report lists all instances, and a burst of statuses is to cost a report now and then.
/// Controllers do not wait for it, since they are told the worker's own status; `ciaoctl` shows an instance as starting
/// for as long.
const REPORT_LESS: Duration = Duration::from_millis(8);

/// Most ids of instances that count as gone without the worker's word, of each worker; the oldest are dropped first.
const MAX_UNENDED: usize = 1024;

impl Node {
    /// Carries out one order. Where its outcome is known at once, it is given to the state machine at once.
    ///
    /// `Terminate` asks the worker to destroy the instance. `Kill` comes when the worker has not done so in time: it is
    /// asked again, and the instance counts as ended whatever it answers.
    pub(super) fn perform(&mut self, now: Instant, order: AgentAction) {
        let cannot = || Err("workers of RIK cannot do that".to_owned());
        match order {
            AgentAction::Spawn(workload) => self.spawn(now, workload.instance, workload.leased),
            AgentAction::Terminate(instance) => self.job(&instance, WorkloadRequestKind::Destroy),
            AgentAction::Kill(instance) => {
                warn!(event = "worker_silent", worker = %self.name, %instance, "the worker has not said that it destroyed the instance; it counts as gone");
                self.job(&instance, WorkloadRequestKind::Destroy);
                self.say(&instance, ResourceStatus::Terminated, String::new());
                self.untrack_unended(&instance);
                self.agent.handle(now, exited(&instance));
            }
            AgentAction::Freeze(instance) => {
                let result = cannot();
                self.agent.handle(now, Input::Frozen { instance, result });
            }
            AgentAction::Thaw(instance) => {
                let result = cannot();
                self.agent.handle(now, Input::Thawed { instance, result });
            }
            AgentAction::SetLimits { instance, .. } => {
                let result = cannot();
                self.agent
                    .handle(now, Input::LimitsSet { instance, result });
            }
            AgentAction::Forget(instance) => self.untrack(&instance),
            AgentAction::Sample => {
                let count = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
                let pace = REPORT_LESS.saturating_mul(count);
                let pace = pace.min(self.settings.report_interval);
                let earliest = self.last_sample.map_or(now, |last| last + pace);
                self.sample_at = Some(earliest.max(now));
            }
            // What a worker runs ends with its stream, and nothing of it outlives this task.
            AgentAction::Persist(_)
            | AgentAction::PersistMaintenance(_)
            | AgentAction::ExtendLease(_) => {}
            // Nothing is started again by a node that does not say that it can do that.
            AgentAction::Respawn(_) | AgentAction::Clear(_) => {}
            // That is for the worker to see to.
            AgentAction::CheckMemory { .. } | AgentAction::Pin { .. } => {}
            // What was spawned is the worker's at once: nothing of it waits here.
            AgentAction::Abandon(_) => {}
        }
    }

    /// Gives the worker an instance, or reports why that cannot be done.
    fn spawn(&mut self, now: Instant, instance: String, is_leased: bool) {
        let Err(detail) = self.give(&instance, is_leased) else {
            return;
        };
        let fault = LaunchFault::Launch;
        self.agent.handle(
            now,
            Input::StartFailed {
                instance,
                fault,
                detail,
            },
        );
    }

    /// Gives the worker an instance, and keeps what is needed to destroy it.
    ///
    /// # Errors
    /// A text for people: the START is not one of RIK's, its controller has destroyed the instance meanwhile, the worker has another instance with this id even with its UUID
    /// behind it, or there is no room for its definition.
    fn give(&mut self, instance: &str, is_leased: bool) -> Result<(), String> {
        let carried = self.carried.remove(instance);
        let carried = carried
            .ok_or("the START is none for RIK")?
            .map_err(|error| format!("the START is none for RIK: {error}"))?;
        if self.settings.unwanted.contains(instance) {
            return Err("its controller has destroyed it".to_owned());
        }
        let mut id = carried.id;
        // Another controller's, or one that the worker has not ended: it tells instances apart by their ids alone.
        if self.by_id.contains_key(&id) || self.unended.contains(&id) {
            id = format!("{id}-{instance}");
        }
        if self.by_id.contains_key(&id) {
            return Err(format!("the worker has another instance {id:?}"));
        }
        let definition = self.settings.definitions.keep(carried.json);
        let definition = definition.map_err(|kept| {
            format!("workers of this ciao-rik have {kept} bytes of definitions already; at most {MAX_KEPT} are kept")
        })?;
        let held = Held {
            id: id.clone(),
            definition,
            is_started: false,
            is_leased,
        };
        self.held.insert(instance.to_owned(), held);
        self.by_id.insert(id, instance.to_owned());
        self.job(instance, WorkloadRequestKind::Create);
        Ok(())
    }

    /// Puts a job into the worker's stream. A worker that does not read its jobs is given up.
    fn job(&mut self, instance: &str, action: WorkloadRequestKind) {
        let Some(held) = self.held.get(instance) else {
            return;
        };
        let job = InstanceScheduling {
            instance_id: held.id.clone(),
            definition: held.definition.json().to_owned(),
            action: action.into(),
        };
        if !self.jobs.send(job) {
            warn!(event = "worker_behind", worker = %self.name, "the worker does not read what it is to do, and is given up");
            self.is_given_up = true;
        }
    }

    /// Forgets an instance that the worker has not any more; statuses of its id are ignored from here on.
    pub(super) fn untrack(&mut self, instance: &str) {
        if let Some(held) = self.held.remove(instance) {
            self.by_id.remove(&held.id);
        }
    }

    /// The same where the worker has not said that it ended: no other instance is to have its id, which the worker's late
    /// word would be taken for.
    fn untrack_unended(&mut self, instance: &str) {
        if let Some(held) = self.held.get(instance) {
            if self.unended.len() >= MAX_UNENDED {
                self.unended.pop_front();
            }
            self.unended.push_back(held.id.clone());
        }
        self.untrack(instance);
    }

    /// The worker has ended an instance that counted as gone, as it says now: its id is free.
    pub(super) fn ended_late(&mut self, metric: &InstanceMetric) {
        if matches!(
            metric.status(),
            ResourceStatus::Failed | ResourceStatus::Terminated
        ) {
            self.unended.retain(|it| *it != metric.instance_id);
        }
    }
}
