//! Instances are suspended and resumed: by command, and because they are preempted.
//!
//! A suspended instance keeps its memory, disk and custom resources; its vcpus are free for others. One that was
//! suspended by command stays so until a RESUME, and keeps its place in its group. One that was preempted has given that
//! up too, until it is resumed, also where it is suspended by command meanwhile. It waits in the queue for vcpus on its node, and is resumed by the scheduler once its group's policy holds
//! there, but never while a START of higher priority waits that the node could run.
//!
//! Who is preempted for whom is decided in `preempt`; what launchers answer is dealt with in `outcome`.

mod outcome;

use std::time::Duration;

use sched_model::{CommandFailure, CommandFailureReason, LifecycleCommand, PhaseName};

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::command::Target;
use crate::api::declined::Objection;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::Capabilities;
use crate::cluster::node::Pool;
use crate::effects::wait::RESUME_ELSEWHERE_AFTER;
use crate::instance::{LifecycleEvent, MoveRequest, State, SuspendedBy};
use crate::queue::{Room, Shape};
use crate::sight::Sight;
use crate::timers::Timer;
use crate::workflow::migrate::{MOVE_TIME, MovePlan};

/// How long after a failed resume the launcher is asked again: without a pause it would be asked as fast as it answers.
pub(crate) const RESUME_AGAIN_AFTER: Duration = Duration::from_secs(10);

impl Scheduler {
    /// SUSPEND from a controller or operator. For an instance that a preemptor has suspended, it only changes who wants
    /// that: the instance is no longer resumed by the scheduler.
    pub(crate) fn suspend(&mut self, id: SessionId, target: &Target) {
        let (instance, command) = (&target.instance, LifecycleCommand::Suspend);
        let Some(key) = self.commanded(id, &command, instance) else {
            return;
        };
        match self.instances.state_of(instance) {
            Some(State::Running { .. }) => {
                let cause = &Cause::Asked;
                self.begin_suspending(instance, SuspendedBy::Command, Some(id), cause);
                self.send_suspend(key, instance);
            }
            // Its launcher is sent nothing: only the reason changes, so that the scheduler does not resume it.
            Some(State::Suspended {
                by: SuspendedBy::Preemptor(_),
                ..
            }) => {
                let cause = &Cause::StaysAsAsked;
                self.begin_suspending(instance, SuspendedBy::Command, None, cause);
            }
            state => self.wrong_state(id, command, instance, key, state.as_ref()),
        }
    }

    /// RESUME from a controller or operator; fails if the instance's vcpus are not free on its node, or its place in its
    /// group is taken.
    pub(crate) fn resume(&mut self, id: SessionId, target: &Target) {
        let (instance, command) = (&target.instance, LifecycleCommand::Resume);
        let Some(key) = self.commanded(id, &command, instance) else {
            return;
        };
        match self.instances.state_of(instance) {
            Some(State::Suspended { by, .. }) => {
                let has_room = self.cluster.has_vcpus_for(instance, key);
                if let Err(why) = has_room.and_then(|()| self.sight().has_place_for(instance, key))
                {
                    let reason = CommandFailureReason::NoRoom;
                    return self.fail_command(id, command, instance, Some(key), reason, why.into());
                }
                let cause = &Cause::Asked;
                self.order_resume(key, instance, by, Some(id), cause);
            }
            state => self.wrong_state(id, command, instance, key, state.as_ref()),
        }
    }

    /// The node that has the instance of a SUSPEND or RESUME, whichever node the command names. The instance is managed
    /// from now on. `None` if no launcher could carry the command out; its sender was sent the failure then.
    fn commanded(
        &mut self,
        id: SessionId,
        command: &LifecycleCommand,
        instance: &InstanceId,
    ) -> Option<NodeKey> {
        use CommandFailureReason::{Failed, NoInstance, NotSupported, WrongState};
        let Some(key) = self.cluster.placement(instance) else {
            let (reason, why) = match self.instances.get(instance) {
                Some(managed) => (
                    WrongState,
                    Objection::OnNoNode(managed.state().life_state()),
                ),
                None => (NoInstance, Objection::NoNode),
            };
            self.fail_command(id, command.clone(), instance, None, reason, why.into());
            return None;
        };
        let node = self.cluster.node(key);
        let uuid = node.uuid();
        let problem = if node.session().is_none() {
            Some((Failed, Objection::NodeNotConnected(uuid)))
        } else if !node.can(Capabilities::SUSPEND) {
            Some((NotSupported, Objection::CannotSuspend(uuid)))
        } else if !self.ensure_managed(key, instance) {
            Some((WrongState, Objection::NotListedYetBy(uuid)))
        } else {
            None
        };
        if let Some((reason, why)) = problem {
            self.fail_command(id, command.clone(), instance, Some(key), reason, why.into());
            return None;
        }
        Some(key)
    }

    /// Fails a command that the instance's state does not allow.
    fn wrong_state(
        &mut self,
        id: SessionId,
        command: LifecycleCommand,
        instance: &InstanceId,
        key: NodeKey,
        state: Option<&State>,
    ) {
        let life_state = state.map_or(PhaseName::Gone, State::life_state);
        let reason = CommandFailureReason::WrongState;
        let why = Objection::Is(life_state).into();
        self.fail_command(id, command, instance, Some(key), reason, why);
    }

    /// An instance could not be suspended: it runs on, and a preemptor that waits for it looks for another node.
    pub(crate) fn suspend_failed(&mut self, key: NodeKey, failure: &CommandFailure) {
        let instance = &InstanceId::new(&failure.instance_uuid);
        let Some(State::Suspending {
            node, by, asker, ..
        }) = self.instances.state_of(instance)
        else {
            return;
        };
        if node != key {
            return;
        }
        let cause = Cause::CannotSuspend(failure_text(failure).into());
        self.transition(
            instance,
            LifecycleEvent::Reverted { suspended: None },
            &cause,
        );
        self.notify_asker_of(asker, instance, key, failure);
        if let SuspendedBy::Preemptor(preemptor) = by {
            self.victim_stays(&preemptor, instance);
        }
    }

    /// An instance could not be resumed: it stays suspended, unless the launcher says that it is not suspended at all.
    pub(crate) fn resume_failed(&mut self, key: NodeKey, failure: &CommandFailure) {
        let instance = &InstanceId::new(&failure.instance_uuid);
        self.cluster.ledger_mut(key).resume_failed(instance);
        let (state, entry) = (
            self.instances.state_of(instance),
            self.cluster.entry(key, instance),
        );
        let (Some(state), Some(entry)) = (state.filter(|it| it.node() == Some(key)), entry) else {
            return;
        };
        let is_held_back = entry.is_held_back();
        match state {
            State::Resuming { .. } | State::Suspended { .. }
                if failure.reason == CommandFailureReason::WrongState =>
            {
                // It is not suspended there.
                self.runs_again(key, instance, LifecycleEvent::Runs, &Cause::NotSuspended);
            }
            State::Resuming { by, asker, .. } => {
                let cause = Cause::CannotResume(failure_text(failure).into());
                self.stays_suspended(key, instance, by, &cause);
                self.notify_asker_of(asker, instance, key, failure);
            }
            _ if is_held_back => self.suspension_reported(key, instance, true),
            _ => {}
        }
    }

    /// Resumes a preempted instance on its node if its vcpus and its place in its group are free, the node is not
    /// reserved for others, and no START of higher priority waits that the node could run; whether it did.
    pub(crate) fn resume_evicted(&mut self, instance: &InstanceId, key: NodeKey) -> bool {
        let Some(State::Suspended { node, by, .. }) = self.instances.state_of(instance) else {
            return false;
        };
        let is_able = self.cluster.session(key).is_some()
            && self.cluster.node(key).can(Capabilities::SUSPEND);
        let has_room = self.cluster.has_vcpus_for(instance, key).is_ok();
        if node != key || !is_able || !has_room || !self.sight().is_to_resume(instance, key) {
            return false;
        }
        let slots = self.cluster.node(key).slots();
        let is_open = |pool: &Pool| {
            slots[*pool as usize].is_some() && self.sight().is_open_to(*pool, key, instance)
        };
        if !Pool::ALL.iter().any(is_open) {
            return false;
        }
        if self.sight().is_outranked(instance, key) {
            self.queue.note_outranked(key);
            return false;
        }
        self.order_resume(key, instance, by, None, &Cause::RoomAgain);
        self.count_placement(instance);
        true
    }

    /// The timer of a preempted and suspended instance is due, or of one that ran before and that no node could start:
    /// it is tried again, perhaps elsewhere.
    pub(crate) fn look_again(&mut self, instance: &InstanceId) {
        match self.instances.state_of(instance) {
            Some(State::Suspended {
                node,
                by: SuspendedBy::Preemptor(_),
                ..
            }) => self.look_at_one(node, instance),
            // By now nodes that could not start it may.
            Some(State::Waiting { .. }) => {
                if let Some(managed) = self.instances.get_mut(instance) {
                    managed.forget_refusals();
                }
                self.reschedule(instance, &Cause::TriedOnAll);
            }
            _ => {}
        }
    }

    /// Tries to resume a suspended instance, else to move it to another node.
    fn look_at_one(&mut self, key: NodeKey, instance: &InstanceId) {
        self.timers.set(
            Timer::LookAgain(instance.clone()),
            self.now + RESUME_ELSEWHERE_AFTER,
        );
        if !self.queue.contains(instance) {
            return self.wait_for_resume(instance, key);
        }
        // The queue asks for room that is free; vcpus may be where memory is promised twice.
        if self.resume_evicted(instance, key) {
            return;
        }
        if self
            .instances
            .get(instance)
            .is_some_and(|it| it.relocates())
        {
            let plan = MovePlan {
                target: None,
                due: self.now + MOVE_TIME,
                move_request: MoveRequest::default(),
                why: Cause::NoVcpusHere,
            };
            // If no other node has vcpus either, it goes on waiting here.
            let _ = self.move_instance(instance, plan);
        }
    }
}

impl Sight<'_> {
    /// Whether a START of higher priority waits that this node could run if it were empty. Its whole capacity is
    /// compared, because what runs there may leave: resuming the instance would take room from that START. A cordoned
    /// node runs none.
    fn is_outranked(&self, instance: &InstanceId, key: NodeKey) -> bool {
        let Some(managed) = self.instances.get(instance) else {
            return false;
        };
        if self.cluster.node(key).is_cordoned() {
            return false;
        }
        let mut room = Room::on(self.cluster, key);
        room.free = self.cluster.node(key).capacity();
        let slots = self.cluster.node(key).slots();
        let pools = Pool::ALL.into_iter();
        let mut pools = pools.filter(|&pool| slots[pool as usize].is_some());
        pools.any(|pool| {
            let may = |_, shape: &Shape| self.may_run(pool, key, shape.query());
            self.queue.outranks(pool, &room, managed.priority(), may)
        })
    }
}

/// A launcher's reason, with its detail if it gave any.
fn failure_text(failure: &CommandFailure) -> String {
    if failure.detail.is_empty() {
        failure.reason.to_string()
    } else {
        format!("{}: {}", failure.reason, failure.detail)
    }
}
