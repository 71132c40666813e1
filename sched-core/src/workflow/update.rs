//! UPDATE: what an instance asks for is changed while it waits or runs, in place or by moving it.
//!
//! In place, the larger of both amounts is claimed until its launcher has reported the outcome, so that neither what
//! the instance gives up nor what it is to have can go to another instance before that (a [`Floor`] in the ledger's
//! entry). A change that does not fit in place becomes a move if the command allows it (`may_move`).
//!
//! ```text
//!  waits              START gets the new amounts, leaves the queue, is placed again
//!  runs, fits here    Updating: UPDATE sent; done: new amounts, failed or late: the old ones
//!  runs, no room      Migrating with the new amounts, or CommandFailure no_room
//!  any other state    CommandFailure wrong_state, unless only the priority changes
//! ```

use sched_model::scheduling::MAX_RESOURCES;
use sched_model::{CommandFailure, CommandFailureReason, LifecycleCommand, PhaseName, Update};

use crate::Scheduler;
use crate::api::action::{LauncherCommand, Message};
use crate::api::cause::Cause;
use crate::api::declined::{Declined, Objection};
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::InstanceState;
use crate::api::start::Demand;
use crate::cluster::Cluster;
use crate::cluster::ledger::{Floor, larger};
use crate::cluster::query::Query;
use crate::effects::order::COMMAND_TIME;
use crate::instance::{DemandChange, LifecycleEvent, MoveRequest, State};
use crate::queue::AllowedNodes;
use crate::workflow::migrate::{MOVE_TIME, MovePlan};

/// MiB in a GiB: a START asks for disk in whole ones, so that is what an UPDATE comes to.
const MIB_PER_GIB: i64 = 1024;

impl Scheduler {
    /// UPDATE from a controller or operator; a native one is sent a CommandFailure if it cannot be carried out.
    pub(crate) fn update(&mut self, id: SessionId, update: &Update) {
        let instance = InstanceId::new(&update.instance_uuid);
        if let Err(declined) = self.try_update(id, &instance, update) {
            self.decline(id, LifecycleCommand::Update, &instance, declined);
        }
    }

    /// Begins an update according to the instance's state. A change of priority alone needs no launcher and is done at
    /// once; amounts can be changed only while the instance waits or runs. A plain instance becomes a managed one by
    /// it.
    ///
    /// # Errors
    /// What its asker is sent as a CommandFailure. Nothing has been changed then.
    fn try_update(
        &mut self,
        id: SessionId,
        instance: &InstanceId,
        update: &Update,
    ) -> Result<(), Declined> {
        if update.changes_nothing() {
            let reason = CommandFailureReason::InvalidData;
            return Err(Declined::lasting(reason, Objection::NothingToChange));
        }
        let asks_amounts = [update.mem_mb, update.vcpus, update.disk_mb]
            .iter()
            .any(Option::is_some)
            || !update.resources.is_empty();
        let state = self.instances.state_of(instance);
        match state {
            Some(State::Waiting { .. }) if asks_amounts => self.update_waiting(instance, update),
            Some(State::Running { node, .. }) if asks_amounts => {
                self.update_placed(id, instance, node, update)
            }
            Some(state) if asks_amounts => Err(not_running(state.life_state())),
            Some(_) => {
                self.update_priority(instance, update);
                self.notify_updated(instance, Some(id), &Cause::PriorityChanged);
                Ok(())
            }
            None => {
                let (key, entry) = self.cluster.listed_entry(instance)?;
                let is_suspended = entry.reported() == Some(InstanceState::ExitPaused);
                if asks_amounts && is_suspended {
                    return Err(not_running(PhaseName::Suspended));
                }
                if asks_amounts {
                    return self.update_placed(id, instance, key, update);
                }
                self.ensure_managed(key, instance);
                self.update_priority(instance, update);
                self.notify_updated(instance, Some(id), &Cause::PriorityChanged);
                Ok(())
            }
        }
    }

    /// Gives an instance the priority that an UPDATE names. One that waits takes its new place in the queue, and
    /// whatever its old place kept others from is offered to them.
    fn update_priority(&mut self, instance: &InstanceId, update: &Update) {
        let priority = update.priority.and_then(|it| u8::try_from(it).ok());
        let (Some(priority), Some(managed)) = (priority, self.instances.get_mut(instance)) else {
            return;
        };
        managed.set_priority(priority);
        self.journal.note_instance(instance);
        let reserved = self.queue.node_kept_for(instance);
        if let Some(waiter) = self.queue.remove(instance) {
            let waiter = waiter.with_priority(priority);
            let place = waiter.place();
            self.note_changes();
            // It was in the queue.
            self.queue.push_unlimited(waiter);
            if let AllowedNodes::Only(node) = place {
                // Those that had to come before it may stand behind it now.
                self.wake(node);
            }
            // The reservation for it has ended, and those that it came before may come before it now.
            if let Some(key) = reserved {
                self.wake(key);
            }
            self.outranks_no_more();
        }
    }

    /// Changes what an instance that waits for room asks for. What could never fit is refused; otherwise it leaves the
    /// queue and is placed again, and may fit at once. It keeps its order of arrival, so it does not lose its place.
    fn update_waiting(&mut self, instance: &InstanceId, update: &Update) -> Result<(), Declined> {
        let Some(query) = self.instances.query_of(instance) else {
            let why = Cause::StartForgotten;
            return Err(Declined::new(CommandFailureReason::WrongState, why));
        };
        let demand = changed(demand_of(&query), update)?;
        let why = self.why_not(&query.demanding(demand.clone()));
        if why.never {
            return Err(Declined::lasting(CommandFailureReason::NoRoom, why.cause));
        }
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.set_demand(demand);
        }
        self.update_priority(instance, update);
        if self.queue.dependencies(instance).is_some() {
            // It goes on waiting for others, and then for as much room as it asks for now.
            self.journal.note_instance(instance);
            return Ok(());
        }
        self.leave_queue(instance);
        self.reschedule(instance, &Cause::DemandChanged);
        Ok(())
    }

    /// Changes what an instance on a node asks for: in place if there is room, else by a move if the command allows
    /// that. The priority changes only if the rest is accepted.
    fn update_placed(
        &mut self,
        id: SessionId,
        instance: &InstanceId,
        key: NodeKey,
        update: &Update,
    ) -> Result<(), Declined> {
        let Some(before) = self.cluster.demand_on(key, instance) else {
            let why = Objection::NoNode;
            return Err(Declined::new(CommandFailureReason::NoInstance, why));
        };
        let demand = changed(before.clone(), update)?;
        if demand == before {
            self.ensure_managed(key, instance);
            self.update_priority(instance, update);
            self.notify_updated(instance, Some(id), &Cause::HasItsDemand);
            return Ok(());
        }
        match self.cluster.has_room_to_change(key, &before, &demand) {
            Ok(()) => {
                self.ensure_managed(key, instance);
                self.update_priority(instance, update);
                self.order_update(id, instance, key, before, demand);
                Ok(())
            }
            Err(_) if update.may_move => {
                let plan = MovePlan {
                    target: None,
                    due: self.now + MOVE_TIME,
                    move_request: MoveRequest {
                        asker: Some(id),
                        demand: Some(demand),
                    },
                    why: Cause::NoRoomToChange,
                };
                self.move_instance(instance, plan)?;
                self.update_priority(instance, update);
                Ok(())
            }
            Err(declined) => Err(declined),
        }
    }

    /// Claims the larger of both amounts and sends the launcher the new ones. All amounts are named in the command,
    /// also unchanged ones, and custom resources that are given up with 0.
    fn order_update(
        &mut self,
        id: SessionId,
        instance: &InstanceId,
        key: NodeKey,
        before: Demand,
        demand: Demand,
    ) {
        let names = before.resources.keys().chain(demand.resources.keys());
        let amount = |name: &str| demand.resources.get(name).copied().unwrap_or_default();
        let resources = names.map(|name| (name.to_string(), amount(name)));
        let node = self.cluster.node(key);
        let update = Update {
            instance_uuid: instance.to_string(),
            workload_agent_uuid: node.uuid().to_string(),
            mem_mb: Some(demand.mem_mib),
            vcpus: Some(demand.vcpus),
            disk_mb: Some(demand.disk_mib),
            resources: resources.collect(),
            ..Update::default()
        };
        let session = node.session();
        let (old, new) = (
            self.cluster.amounts_of(&before),
            self.cluster.amounts_of(&demand),
        );
        let least = before.base().max(demand.base());
        let floor = Floor::new(least, larger(&old, &new));
        let change = DemandChange {
            before,
            demand,
            asker: Some(id),
        };
        let event = LifecycleEvent::Updated {
            change: Box::new(change),
            due: self.now + COMMAND_TIME,
        };
        let is_begun = self.turn(instance, event, &Cause::Changing, |cluster| {
            let (least, custom) = (floor.least, floor.custom.clone());
            let mut ledger = cluster.ledger_mut(key);
            ledger.set_floor(instance, Some(floor));
            ledger.set_asked(instance, least, custom);
        });
        if let Some(session) = session.filter(|_| is_begun) {
            self.send(
                session,
                Message::LauncherCommand(Box::new(LauncherCommand::Update(update))),
            );
        }
    }

    /// A launcher confirms that an instance has its new amounts: from now on its START asks for these, too.
    pub(crate) fn update_confirmed(&mut self, key: NodeKey, instance: &InstanceId) {
        let Some((node, change)) = self.instances.changing(instance) else {
            return;
        };
        if node != key || !self.end_update(key, instance, &change.demand, &Cause::Changed) {
            return;
        }
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.set_demand(change.demand);
        }
        self.notify_updated(instance, change.asker, &Cause::HasItsDemand);
    }

    /// A launcher could not change an instance: it keeps what it had.
    pub(crate) fn update_failed(&mut self, key: NodeKey, failure: &CommandFailure) {
        let instance = InstanceId::new(&failure.instance_uuid);
        if self
            .instances
            .changing(&instance)
            .is_some_and(|(node, _)| node == key)
        {
            let cause = Cause::CannotChange(failure.detail.as_str().into());
            self.undo_update(&instance, failure.reason.clone(), &cause);
        }
    }

    /// A launcher has not answered in time. The amounts in its latest STATS decide whether the change was made.
    pub(crate) fn update_is_late(&mut self, instance: &InstanceId) {
        let Some((key, change)) = self.instances.changing(instance) else {
            return;
        };
        let said = self.cluster.ledger(key).said(instance);
        if said == Some(change.demand.base()) {
            return self.update_confirmed(key, instance);
        }
        let cause = &Cause::NotChangedInTime;
        self.undo_update(instance, CommandFailureReason::Timeout, cause);
    }

    /// An instance was to be deleted while an update was under way, and is not deleted after all: the update goes on
    /// with a new deadline. `false` if there was none.
    pub(crate) fn take_up_update(&mut self, instance: &InstanceId, cause: &Cause) -> bool {
        let managed = self.instances.get(instance);
        if managed
            .and_then(|managed| managed.state().change())
            .is_none()
        {
            return false;
        }
        let due = self.now + COMMAND_TIME;
        self.transition(instance, LifecycleEvent::UpdateResumed { due }, cause);
        self.note_not_stopped(instance);
        true
    }

    /// Sets the claim back to the amounts before, and notifies who asked.
    fn undo_update(&mut self, instance: &InstanceId, reason: CommandFailureReason, cause: &Cause) {
        let Some((node, change)) = self.instances.changing(instance) else {
            return;
        };
        if self.end_update(node, instance, &change.before, cause) {
            let command = LifecycleCommand::Update;
            self.notify_asker(change.asker, instance, node, command, reason, cause);
        }
    }

    /// An update is settled: the instance has these amounts, and runs again; whether it could be. If it is being deleted
    /// meanwhile, that goes on, and clients are not notified of the update's end.
    fn end_update(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        demand: &Demand,
        cause: &Cause,
    ) -> bool {
        let event = LifecycleEvent::UpdateSettled;
        let claims = |cluster: &mut Cluster| cluster.settle_demand(key, instance, demand);
        let managed = self.instances.get(instance);
        if managed.is_some_and(|managed| matches!(managed.state(), State::Updating { .. })) {
            return self.turn(instance, event, cause, claims);
        }
        let is_settled = self.turn_unseen(instance, event, claims);
        if is_settled {
            self.journal.note_instance(instance);
        }
        is_settled
    }
}

/// Why amounts cannot be changed in this state.
fn not_running(state: PhaseName) -> Declined {
    let why = Objection::NotChangeable(state);
    Declined::new(CommandFailureReason::WrongState, why)
}

/// The amounts that a query is for.
fn demand_of(query: &Query) -> Demand {
    let asked = query.asked();
    let resources = query.amounts();
    Demand {
        mem_mib: asked.mem_mib,
        vcpus: asked.vcpus,
        disk_mib: asked.disk_mib,
        resources: resources
            .map(|(name, amount)| (name.into(), amount))
            .collect(),
    }
}

/// A demand with the changes of an UPDATE. Disk is rounded up to whole GiB, the unit of a START; an amount of 0 of a
/// custom resource takes it out.
fn changed(mut demand: Demand, update: &Update) -> Result<Demand, Declined> {
    demand.mem_mib = update.mem_mb.unwrap_or(demand.mem_mib);
    demand.vcpus = update.vcpus.unwrap_or(demand.vcpus);
    if let Some(disk_mib) = update.disk_mb {
        let part = disk_mib % MIB_PER_GIB;
        let rest = if part > 0 { MIB_PER_GIB - part } else { 0 };
        demand.disk_mib = disk_mib.saturating_add(rest);
    }
    for (name, &amount) in &update.resources {
        demand.resources.insert(name.as_str().into(), amount);
    }
    demand.resources.retain(|_, amount| *amount > 0);
    if demand.resources.len() > MAX_RESOURCES {
        let why = Objection::TooManyResources {
            asked: demand.resources.len(),
            max: MAX_RESOURCES,
        };
        return Err(Declined::lasting(CommandFailureReason::InvalidData, why));
    }
    Ok(demand)
}
