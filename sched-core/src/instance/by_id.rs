//! What is asked or noted of an instance by its identifier, whether or not it is managed.

use sched_model::LifecycleCommand;

use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::start::{Demand, PlacedStart};
use crate::cluster::ledger::Ended;
use crate::instance::{DemandChange, Instances, Move, MoveRequest, RunNumbers, State};

impl Instances {
    /// The state of an instance that is managed.
    pub(crate) fn state_of(&self, instance: &InstanceId) -> Option<State> {
        Some(self.get(instance)?.state().clone())
    }

    /// The SUSPEND, RESUME or UPDATE that is being carried out on an instance, and who sent it.
    pub(crate) fn command_under_way(
        &self,
        instance: &InstanceId,
    ) -> Option<(LifecycleCommand, Option<SessionId>)> {
        let state = self.get(instance)?.state();
        let command = match state {
            State::Suspending { .. } => LifecycleCommand::Suspend,
            State::Resuming { .. } => LifecycleCommand::Resume,
            State::Updating { .. } => LifecycleCommand::Update,
            _ => return None,
        };
        Some((command, state.asker()))
    }

    /// The update that is under way, and on which node; also while the instance is to be deleted there.
    pub(crate) fn changing(&self, instance: &InstanceId) -> Option<(NodeKey, DemandChange)> {
        let state = self.get(instance)?.state();
        Some((state.node()?, state.change()?.clone()))
    }

    /// Source, target and stage of a move that is under way.
    pub(crate) fn moving(&self, instance: &InstanceId) -> Option<(NodeKey, NodeKey, Move)> {
        match *self.get(instance)?.state() {
            State::Migrating { from, to, how, .. } => Some((from, to, how)),
            _ => None,
        }
    }

    /// What an instance leaves its node for.
    pub(crate) fn move_request_of(&self, instance: &InstanceId) -> MoveRequest {
        let managed = self.get(instance);
        let move_request = managed.and_then(|managed| managed.state().move_request());
        move_request.cloned().unwrap_or_default()
    }

    /// Whether an instance's START is known, so that it can be started on another node.
    pub(crate) fn has_start(&self, instance: &InstanceId) -> bool {
        let managed = self.get(instance);
        managed.is_some_and(|managed| managed.start().is_some())
    }

    /// The numbers with which the runs of an instance go on that is not there: from those of its latest run.
    pub(crate) fn numbers_after(&self, instance: &InstanceId) -> RunNumbers {
        let last = self.last_run_of(instance);
        last.map_or_else(RunNumbers::default, |last| {
            RunNumbers::after(last.numbers())
        })
    }

    /// From now on the sender of this START, the latest one, is notified of what becomes of the instance.
    pub(crate) fn note_asker(&mut self, start: &PlacedStart) {
        if let Some(managed) = self.get_mut(&start.request.instance) {
            managed.set_sender(start.sender);
        }
    }

    /// So much of its time limit an instance has used up, if that is known: its START says so where it goes on elsewhere.
    pub(crate) fn note_time_used(&mut self, instance: &InstanceId, ms: Option<u64>) {
        if let Some(managed) = self.get_mut(instance).filter(|_| ms.is_some()) {
            managed.note_time_used(ms);
        }
    }

    /// A launcher that numbers ends reports that of an instance: how it ended by itself, where there may be a retry after
    /// such an end.
    pub(crate) fn expect_end(&mut self, instance: &InstanceId, code: Option<i64>) {
        if let Some(managed) = self.get_mut(instance) {
            managed.expect_end(code);
        }
    }

    /// An end of an instance was dealt with, and it goes on after it or not.
    pub(crate) fn note_going_on(&mut self, instance: &InstanceId, how: Ended, goes_on: bool) {
        if let Some(managed) = self.get_mut(instance) {
            managed.note_going_on(how, goes_on);
        }
    }

    /// Whether an instance that lives or has ended was placed again because its START says so of an end.
    pub(crate) fn was_retried(&self, instance: &InstanceId) -> bool {
        match self.get(instance) {
            Some(managed) => managed.retries() > 0,
            None => (self.last_run_of(instance)).is_some_and(|run| run.retries() > 0),
        }
    }

    /// An instance has left its node for other amounts: from now on it asks for these.
    pub(crate) fn note_demand(&mut self, instance: &InstanceId, demand: Option<Demand>) {
        if let (Some(demand), Some(managed)) = (demand, self.get_mut(instance)) {
            managed.set_demand(demand);
        }
    }
}
