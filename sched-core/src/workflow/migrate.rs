//! Instances move from one node to another: room is claimed on the target, the source node is sent a stop or a
//! migration, and once the instance has left the source it is started on the target, or has arrived there with its
//! state.
//!
//! ```text
//!  MovePlanned        Claimed: claim on the target, nothing sent; the claim goes to disk
//!    MoveBegun        Cold: STOP sent to the source     Shipped: MIGRATE sent to the source
//!      note_left      source's claim released; Cold: START to the target     Shipped: the target is to list it
//!        Arrived      the target lists it
//!  undo_move          at any time before `note_left`: the target's claim is released, the instance stays
//! ```
//!
//! It never runs twice and nothing is lost: the target is given the START only when the source has reported that the
//! instance has ended there. From then on the instance is placed as any that ran before, and waits without a deadline
//! where there is no room. The order of moves of a drain is decided in `drain`, the target in `target`.

mod target;

use std::time::{Duration, Instant};

use sched_model::{CommandFailure, CommandFailureReason, LifecycleCommand, Migrate};

use crate::Scheduler;
use crate::api::action::{LauncherCommand, Message};
use crate::api::cause::Cause;
use crate::api::declined::{Declined, Objection};
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::Capabilities;
use crate::cluster::Cluster;
use crate::cluster::ledger::{ClaimState, Entry, Unconfirmed};
use crate::effects::order::{COMMAND_TIME, suspension};
use crate::instance::{AfterStop, LifecycleEvent, Move, MoveRequest, State, SuspendedBy};
use crate::journal::Next;
use crate::sight::Sight;
use crate::workflow::managed_end::EndAudience;

use self::target::pinned;

/// How long a move may take until the instance has left its node, where no one says: time enough to stop anything in an
/// orderly way, or to transfer some GiB of its state.
pub(crate) const MOVE_TIME: Duration = Duration::from_secs(5 * 60);

/// A move to be begun.
#[derive(Debug, Clone)]
pub(crate) struct MovePlan {
    /// Where it has to go; `None` = wherever it fits.
    pub(crate) target: Option<NodeKey>,
    /// When it counts as failed.
    pub(crate) due: Instant,
    /// Which request the move serves.
    pub(crate) move_request: MoveRequest,
    /// Why it moves, for people.
    pub(crate) why: Cause,
}

impl Scheduler {
    /// MIGRATE from a controller or operator.
    pub(crate) fn migrate(&mut self, id: SessionId, migrate: &Migrate) {
        let instance = InstanceId::new(&migrate.instance_uuid);
        if let Err(declined) = self.try_migrate(id, &instance, migrate) {
            self.decline(id, LifecycleCommand::Migrate, &instance, declined);
        }
    }

    /// Sends the asker of a command why its instance stays as it is.
    pub(crate) fn decline(
        &mut self,
        id: SessionId,
        command: LifecycleCommand,
        instance: &InstanceId,
        declined: Declined,
    ) {
        let key = self.cluster.placement(instance);
        self.fail_command(id, command, instance, key, declined.reason, declined.why);
    }

    /// Begins a MIGRATE: an instance that waits is pinned to the target, one on a node is moved.
    fn try_migrate(
        &mut self,
        id: SessionId,
        instance: &InstanceId,
        migrate: &Migrate,
    ) -> Result<(), Declined> {
        let target = match &*migrate.target_node_uuid {
            "" => None,
            text => Some(self.cluster.named_target(text)?),
        };
        let state = self.instances.get(instance).map(|managed| managed.state());
        if state.is_some_and(State::is_waiting) {
            return self.pin(instance, target);
        }
        let time = migrate
            .deadline
            .map(|span| Duration::from_millis(span.ms()));
        let time = time.filter(|time| !time.is_zero()).unwrap_or(MOVE_TIME);
        let plan = MovePlan {
            target,
            due: self.now + time,
            move_request: MoveRequest {
                asker: Some(id),
                demand: None,
            },
            why: Cause::Asked,
        };
        self.move_instance(instance, plan)
    }

    /// Restricts an instance that waits to one node; refused if it could never fit there.
    fn pin(&mut self, instance: &InstanceId, target: Option<NodeKey>) -> Result<(), Declined> {
        let Some(target) = target else {
            let why = Objection::WaitsAnywhere;
            return Err(Declined::new(CommandFailureReason::WrongState, why));
        };
        let uuid = self.cluster.uuid(target);
        let query = self.instances.query_of(instance);
        if let Some(query) = query.map(|query| pinned(query, uuid)) {
            let why = self.why_not(&query?);
            if why.never {
                return Err(Declined::lasting(CommandFailureReason::NoRoom, why.cause));
            }
        }
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.pin(uuid);
        }
        if self.queue.dependencies(instance).is_some() {
            // It goes on waiting for others, and then for room on that node.
            self.journal.note_instance(instance);
            self.notify_queued_once_on_disk(instance);
            return Ok(());
        }
        self.reschedule(instance, &Cause::WaitsForOneNode);
        Ok(())
    }

    /// Begins to move an instance: claims room on the target. The source is sent nothing before that claim is on disk
    /// ([`Scheduler::begin_move`]).
    pub(crate) fn move_instance(
        &mut self,
        instance: &InstanceId,
        plan: MovePlan,
    ) -> Result<(), Declined> {
        let from = self.sight().movable(instance)?;
        let query = self
            .sight()
            .query_on(from, instance, plan.move_request.demand.as_ref());
        let to = self.target_for(instance, from, query.clone(), plan.target)?;
        let may_ship =
            self.cluster.may_ship(instance, from, to) && plan.move_request.demand.is_none();
        if !may_ship && !self.instances.has_start(instance) {
            // At once, not after a commit: a drain would try it again and again. What is suspended can be moved once it runs.
            let entry = self.cluster.entry(from, instance);
            let reason = match entry.is_some_and(Entry::is_held_back) {
                true => CommandFailureReason::WrongState,
                false => CommandFailureReason::NotSupported,
            };
            return Err(Declined::new(reason, Cause::CannotBeShipped));
        }
        self.ensure_managed(from, instance);
        let event = LifecycleEvent::MovePlanned {
            to,
            move_request: Box::new(plan.move_request),
            due: plan.due,
        };
        let now = self.now;
        let is_planned = self.turn(instance, event, &plan.why, |cluster| {
            cluster.claim_as(&query, to, now);
        });
        if !is_planned {
            let reason = CommandFailureReason::Failed;
            return Err(Declined::new(reason, Objection::Illegal));
        }
        self.after_commit(instance, Next::Move);
        Ok(())
    }

    /// The claim on the target is on disk: the source is sent a MIGRATE if both launchers can do that and the instance
    /// runs with unchanged amounts, else a stop. If either node is lost by now, the move is reverted.
    pub(crate) fn begin_move(&mut self, instance: &InstanceId) {
        let Some((from, to, Move::Claimed)) = self.instances.moving(instance) else {
            return;
        };
        let (source, target) = (self.cluster.node(from), self.cluster.node(to));
        let lost = match (source.session(), target.session()) {
            (None, _) => Some(source.uuid()),
            (_, None) => Some(target.uuid()),
            _ => None,
        };
        if let Some(uuid) = lost {
            let cause = Cause::TargetGone(uuid);
            return self.undo_move(instance, CommandFailureReason::Failed, &cause);
        }
        // An instance that is shipped keeps its amounts, so a move for other amounts is a cold one.
        let is_changed = self.instances.move_request_of(instance).demand.is_some();
        let is_shipped = self.cluster.may_ship(instance, from, to) && !is_changed;
        if !is_shipped && !self.instances.has_start(instance) {
            let cause = &Cause::CannotBeShipped;
            return self.undo_move(instance, CommandFailureReason::NotSupported, cause);
        }
        let words = match is_shipped {
            true => &Cause::ShipsIt,
            false => &Cause::StopsIt,
        };
        self.transition(instance, LifecycleEvent::MoveBegun { is_shipped }, words);
        match is_shipped {
            true => self.order_to_ship(instance, from, to),
            false => self.order_stop(from, instance),
        }
    }

    /// Sends the source's launcher MIGRATE.
    fn order_to_ship(&mut self, instance: &InstanceId, from: NodeKey, to: NodeKey) {
        let target = self.cluster.uuid(to);
        let node = self.cluster.node(from);
        let Some(session) = node.session() else {
            return;
        };
        let migrate = Migrate {
            instance_uuid: instance.to_string(),
            workload_agent_uuid: node.uuid().to_string(),
            target_node_uuid: target.to_string(),
            deadline: None,
        };
        self.send(
            session,
            Message::LauncherCommand(Box::new(LauncherCommand::Migrate(migrate))),
        );
    }

    /// The target lists an instance that moves to it with its state: the source's claim is released without waiting for
    /// its report.
    pub(crate) fn arrived(&mut self, key: NodeKey, instance: &InstanceId) {
        match self.instances.moving(instance) {
            Some((from, to, Move::Shipped)) if to == key => {
                self.note_arrived(instance, key, Some(from));
            }
            // In a cold move the target was not given the START before the source has reported the end.
            _ => {}
        }
    }

    /// The instance is placed on the target and runs; its claim on the source is released, if it has one there.
    fn note_arrived(&mut self, instance: &InstanceId, key: NodeKey, from: Option<NodeKey>) {
        self.turn(
            instance,
            LifecycleEvent::Arrived,
            &Cause::Moved,
            |cluster| {
                if let Some(from) = from {
                    cluster.release(from, instance);
                }
                cluster.set_placement(instance, key);
            },
        );
    }

    /// The source reports that an instance which moves has ended there. If it `goes_on`, it goes to the target, and only
    /// original controllers get the report. Otherwise that is its own end: no stop was sent yet, or its launcher had not
    /// carried it out.
    pub(crate) fn note_left(
        &mut self,
        (from, to, how): (NodeKey, NodeKey, Move),
        instance: &InstanceId,
        goes_on: bool,
    ) -> EndAudience {
        self.cluster.release(from, instance);
        if !goes_on || (how == Move::Claimed && !self.instances.has_start(instance)) {
            self.cluster.unclaim(to, instance);
            let cause = &Cause::EndedBeforeMove;
            let (move_request, reason) = (
                self.instances.move_request_of(instance),
                CommandFailureReason::WrongState,
            );
            self.notify_mover(move_request, instance, from, reason, cause);
            self.end_managing(instance, &Cause::Ended);
            return EndAudience::All;
        }
        self.instances
            .note_demand(instance, self.instances.move_request_of(instance).demand);
        let mut start = None;
        if let Some(managed) = self.instances.get_mut(instance) {
            managed.note_ran();
            start = managed.start().map(|start| start.sender);
        }
        let target = self.cluster.node(to);
        let is_listed = target
            .ledger()
            .get(instance)
            .is_some_and(|entry| entry.claim_state() == ClaimState::Running);
        if is_listed {
            self.note_arrived(instance, to, None);
            return EndAudience::Originals;
        }
        self.cluster.set_placement(instance, to);
        if how != Move::Shipped {
            self.transition(instance, LifecycleEvent::LeftForTarget, &Cause::LeftNode);
            if self.cluster.session(to).is_none() {
                // What it left is free as well: it comes before those behind it in the order.
                self.release_and_reschedule(to, instance, &Cause::NodeLostUntold);
            } else {
                self.after_commit(instance, Next::Give);
            }
        } else {
            // It is the target's to list it now; if it never does, the instance is started again.
            let unconfirmed = Unconfirmed {
                sender: start.unwrap_or(SessionId(0)),
                ordinal: self.cluster.node(to).starts_sent(),
                restart: true,
            };
            self.cluster.ledger_mut(to).give(instance, unconfirmed);
            self.transition(instance, LifecycleEvent::LeftForTarget, &Cause::Shipped);
        }
        EndAudience::Originals
    }

    /// A launcher could not ship an instance.
    pub(crate) fn move_failed(&mut self, key: NodeKey, failure: &CommandFailure) {
        let instance = InstanceId::new(&failure.instance_uuid);
        let cause = Cause::CannotShip(failure.detail.as_str().into());
        self.source_declines(key, &instance, failure.reason.clone(), &cause);
    }

    /// A launcher could not stop an instance; whether the scheduler itself had asked for that, for a move or a
    /// preemption.
    pub(crate) fn stop_failed(&mut self, key: NodeKey, instance: &InstanceId) -> bool {
        let is_told_again = self.cluster.ledger_mut(key).stop_failed(instance);
        let state = self.instances.state_of(instance);
        let Some(state) = state.filter(|state| state.node() == Some(key)) else {
            return false;
        };
        let preemptor = match state {
            State::Migrating { .. } => None,
            State::Stopping { then, .. } => match then {
                AfterStop::Again(_) => None,
                AfterStop::Wait(preemptor) => Some(preemptor),
                AfterStop::End(_) => return false,
            },
            _ => {
                if let Some(managed) = self.instances.get_mut(instance)
                    && !is_told_again
                {
                    managed.set_stop_sent(false);
                }
                self.journal.note_instance(instance);
                return false;
            }
        };
        if is_told_again {
            // That answers an earlier one.
            return true;
        }
        let cause = &Cause::NotStopped;
        let Some(preemptor) = preemptor else {
            return self.source_declines(key, instance, CommandFailureReason::Failed, cause);
        };
        self.stays(instance, key, None, cause);
        self.victim_stays(&preemptor, instance);
        true
    }

    /// The source of a move reports that the instance stays: the move is reverted. `false` if no move is under way
    /// there.
    fn source_declines(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        reason: CommandFailureReason,
        cause: &Cause,
    ) -> bool {
        match self.instances.state_of(instance) {
            Some(State::Migrating { from, how, .. }) if from == key && how != Move::Claimed => {
                self.undo_move(instance, reason, cause);
                let entry = self.cluster.entry(key, instance);
                let may_stop = entry.is_some_and(Entry::may_stop);
                if let Some(managed) = self.instances.get_mut(instance) {
                    // The launcher reports that it goes on running it, unless an earlier stop is open.
                    managed.set_stop_sent(may_stop);
                }
                true
            }
            Some(State::Stopping {
                node,
                then: AfterStop::Again(move_request),
                ..
            }) if node == key => {
                self.stays(instance, key, None, cause);
                self.notify_mover(*move_request, instance, key, reason, cause);
                true
            }
            _ => false,
        }
    }

    /// A move's deadline is over and the instance has not left the source: the move is reverted.
    pub(crate) fn move_is_late(&mut self, instance: &InstanceId) {
        let cause = &Cause::NotLeftInTime;
        self.undo_move(instance, CommandFailureReason::Timeout, cause);
    }

    /// The target of a move is given up. If a stop was sent already, another target is chosen, or the instance is
    /// placed again once it has ended.
    pub(crate) fn target_is_lost(&mut self, instance: &InstanceId) {
        let Some((from, lost, how)) = self.instances.moving(instance) else {
            return;
        };
        let cause = Cause::TargetLost(self.cluster.uuid(lost));
        match how {
            Move::Claimed => {
                return self.undo_move(instance, CommandFailureReason::Failed, &cause);
            }
            Move::Cold => {
                let demand = self.instances.move_request_of(instance).demand;
                let query = self.sight().query_on(from, instance, demand.as_ref());
                let query = query.avoiding([self.cluster.uuid(lost)]);
                if let Some(to) = self.choose_ready(&query) {
                    let (event, now) = (LifecycleEvent::Retargeted { to }, self.now);
                    let claims = |cluster: &mut Cluster| cluster.claim_as(&query, to, now);
                    self.turn(instance, event, &cause, claims);
                    return;
                }
            }
            Move::Shipped => {}
        }
        // The source may be about to end it, and there is no target: it is placed again once it has ended.
        let due = self.now + COMMAND_TIME;
        self.transition(instance, LifecycleEvent::TargetLost { due }, &cause);
    }

    /// Reverts a move: the claim on the target is released, the instance stays, and who asked is notified.
    pub(crate) fn undo_move(
        &mut self,
        instance: &InstanceId,
        reason: CommandFailureReason,
        cause: &Cause,
    ) {
        let Some((from, to, _)) = self.instances.moving(instance) else {
            return;
        };
        let move_request = self.instances.move_request_of(instance);
        if self.stays(instance, from, Some(to), cause) {
            self.notify_mover(move_request, instance, from, reason, cause);
        }
    }

    /// An instance goes on where it is, suspended or running as its node reported last; whether it does. Its claim on the
    /// target of a move is released.
    pub(crate) fn stays(
        &mut self,
        instance: &InstanceId,
        node: NodeKey,
        target: Option<NodeKey>,
        cause: &Cause,
    ) -> bool {
        let entry = self.cluster.entry(node, instance);
        let is_suspended = entry.is_some_and(Entry::is_held_back);
        let by = self
            .instances
            .get(instance)
            .and_then(|managed| managed.state().suspended_by().cloned());
        let suspended = is_suspended.then(|| by.unwrap_or(SuspendedBy::Command));
        let suspension = suspended.as_ref().map(suspension);
        let is_evicted = suspended
            .as_ref()
            .is_some_and(|by| *by != SuspendedBy::Command);
        let event = LifecycleEvent::Reverted { suspended };
        let stays = self.turn(instance, event, cause, |cluster| {
            if let Some(target) = target {
                cluster.unclaim(target, instance);
            }
            if let Some(suspension) = suspension {
                let mut ledger = cluster.ledger_mut(node);
                ledger.note_suspended(instance, suspension);
            }
        });
        if stays && is_evicted {
            self.wait_for_resume(instance, node);
        }
        stays
    }
}

impl Sight<'_> {
    /// The node of an instance that could be moved as far as its state, its node and its START go.
    fn movable(&self, instance: &InstanceId) -> Result<NodeKey, Declined> {
        use CommandFailureReason::WrongState;
        let key = match self.instances.get(instance).map(|managed| managed.state()) {
            Some(State::Running { node, .. } | State::Suspended { node, .. }) => *node,
            Some(state) => {
                let why = Objection::NotMovable(state.life_state());
                return Err(Declined::new(WrongState, why));
            }
            None => self.cluster.listed_entry(instance)?.0,
        };
        let node = self.cluster.node(key);
        if node.session().is_none() {
            let why = Objection::NodeNotConnected(node.uuid());
            return Err(Declined::new(WrongState, why));
        }
        if !self.instances.has_start(instance) && !node.can(Capabilities::MIGRATE) {
            let reason = CommandFailureReason::NotSupported;
            return Err(Declined::lasting(reason, Objection::NoStart));
        }
        Ok(key)
    }
}
