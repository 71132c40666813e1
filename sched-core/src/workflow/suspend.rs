//! Instances are suspended and resumed: by command, and to leave for others.
//!
//! A suspended instance keeps its memory, disk and custom resources; its vcpus are free for others. What somebody had
//! suspended by command stays so until somebody resumes it. What had to leave waits in the queue for vcpus on its
//! node, and is resumed by itself, but never while a START of higher priority waits that the node could run.
//!
//! Who leaves for whom is `preempt`'s business.

mod outcome;

use std::time::Duration;

use crate::Scheduler;
use crate::api::action::{LauncherCommand, Message};
use crate::api::cause::Cause;
use crate::api::command::Target;
use crate::api::declined::Objection;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{Capabilities, InstanceState};
use crate::api::phase::EventKind;
use crate::cluster::ledger::{ClaimState, Entry};
use crate::cluster::node::Pool;
use crate::instance::{Instance, LifecycleEvent, MoveRequest, State, SuspendedBy};
use crate::queue::Shape;
use crate::timers::Timer;
use crate::workflow::managed::COMMAND_TIME;
use crate::workflow::migrate::{MOVE_TIME, MovePlan};
use sched_model::{
    CommandFailure, CommandFailureReason, InstanceStateEvent, LifeCommand, LifeState, Resume,
    Suspend,
};

/// How long an instance that had to leave waits for vcpus on its node before it is stopped there and placed on
/// another (as a cold move: what it has done is lost), if it may be moved and another has room. Resuming costs nothing, moving all its work; a minute is what most
/// short bursts of urgent work take.
pub(crate) const RESUME_ELSEWHERE_AFTER: Duration = Duration::from_secs(60);

/// How long after a launcher could not resume an instance that had to leave it is asked again.
pub(crate) const RESUME_AGAIN_AFTER: Duration = Duration::from_secs(10);

impl Scheduler {
    /// SUSPEND from a controller or operator.
    pub(crate) fn suspend(&mut self, id: SessionId, target: &Target) {
        let (instance, command) = (&target.instance, LifeCommand::Suspend);
        let Some(key) = self.commanded(id, &command, instance) else {
            return;
        };
        match self
            .instances
            .get(instance)
            .map(|managed| managed.state().clone())
        {
            Some(State::Running { .. }) => {
                let cause = &Cause::Asked;
                self.begin_suspending(instance, SuspendedBy::Command, Some(id), cause);
                self.send_suspend(key, instance);
            }
            // It need not be told: it is only not to be resumed by itself any more.
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

    /// RESUME from a controller or operator.
    pub(crate) fn resume(&mut self, id: SessionId, target: &Target) {
        let (instance, command) = (&target.instance, LifeCommand::Resume);
        let Some(key) = self.commanded(id, &command, instance) else {
            return;
        };
        match self
            .instances
            .get(instance)
            .map(|managed| managed.state().clone())
        {
            Some(State::Suspended { by, .. }) => {
                if let Err(why) = self.has_vcpus_for(instance, key) {
                    let reason = CommandFailureReason::NoRoom;
                    return self.fail_command(id, command, instance, Some(key), reason, why.into());
                }
                let cause = &Cause::Asked;
                self.order_resume(key, instance, by, Some(id), cause);
            }
            state => self.wrong_state(id, command, instance, key, state.as_ref()),
        }
    }

    /// The node that has the instance a command is about, whichever the command names; the instance is managed from
    /// now on. `None` if there is none that could carry it out, and who asked has been told.
    fn commanded(
        &mut self,
        id: SessionId,
        command: &LifeCommand,
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
        let node = self.cluster.nodes().node(key);
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

    /// Manages an instance from now on that a node has listed, also without a START; whether it is managed.
    pub(crate) fn ensure_managed(&mut self, key: NodeKey, instance: &InstanceId) -> bool {
        if self.instances.contains(instance) {
            return true;
        }
        let Some(entry) = self.cluster.nodes().node(key).ledger().get(instance) else {
            return false;
        };
        if entry.claim_state() != ClaimState::Running {
            return false;
        }
        let is_suspended = entry.reported() == Some(InstanceState::ExitPaused);
        let event = LifecycleEvent::Adopted {
            node: key,
            is_suspended,
        };
        let (since, uuid) = (entry.since(), self.cluster.nodes().node(key).uuid());
        let order = self.queue.next_order();
        let managed = Instance::adopted(uuid, order, since);
        let Some(place) = self.instances.vacant(instance.clone()) else {
            return true;
        };
        if let Err(illegal) = place.insert(event, managed) {
            self.note_illegal(illegal);
            return false;
        }
        let mut ledger = self.cluster.ledger_mut(key);
        ledger.set_managed(instance, true);
        if is_suspended {
            ledger.set_suspended(instance, true);
        }
        true
    }

    fn wrong_state(
        &mut self,
        id: SessionId,
        command: LifeCommand,
        instance: &InstanceId,
        key: NodeKey,
        state: Option<&State>,
    ) {
        let life_state = state.map_or(LifeState::Gone, State::life_state);
        let reason = CommandFailureReason::WrongState;
        let why = Objection::Is(life_state).into();
        self.fail_command(id, command, instance, Some(key), reason, why);
    }

    /// Tells who sent a command that it was not, or could not be, carried out.
    pub(crate) fn fail_command(
        &mut self,
        id: SessionId,
        command: LifeCommand,
        instance: &InstanceId,
        key: Option<NodeKey>,
        reason: CommandFailureReason,
        why: Cause,
    ) {
        if !self.peers.is_native(id) {
            return;
        }
        let node = key.map(|key| self.cluster.nodes().node(key).uuid().to_string());
        let failure = CommandFailure {
            command,
            instance_uuid: instance.to_string(),
            node_uuid: node.unwrap_or_default(),
            reason,
            detail: String::new(),
        };
        let failure = Box::new(Explained::new(failure, why));
        self.send(id, Message::CommandFailure(failure));
    }

    /// Who asked for what is being done with an instance, if anybody did.
    pub(crate) fn asker_of(&self, instance: &InstanceId) -> Option<SessionId> {
        self.instances.get(instance)?.state().asker()
    }

    /// Tells who asked for what was to be done with an instance, if anybody did, that it failed.
    pub(crate) fn notify_asker(
        &mut self,
        asker: Option<SessionId>,
        instance: &InstanceId,
        key: NodeKey,
        command: LifeCommand,
        reason: CommandFailureReason,
        cause: &Cause,
    ) {
        if let Some(asker) = asker {
            let why = cause.clone();
            self.fail_command(asker, command, instance, Some(key), reason, why);
        }
    }

    /// Whether a suspended instance's vcpus are free on its node; else the figures.
    fn has_vcpus_for(&self, instance: &InstanceId, key: NodeKey) -> Result<(), Objection> {
        let node = self.cluster.nodes().node(key);
        let entry = node.ledger().get(instance);
        let asked = entry.map_or(0, |it| it.asked().vcpus);
        // While it may be resumed already they are claimed for it.
        let own = entry.map_or(0, |it| if it.is_suspended() { 0 } else { asked });
        let free = self.cluster.nodes().free(key).vcpus.saturating_add(own);
        if asked <= 0 || free >= asked {
            return Ok(());
        }
        Err(Objection::TooFewVcpus {
            asked,
            node: node.uuid(),
            free: free.max(0),
        })
    }

    /// Has a running instance suspended, before its launcher is told.
    pub(crate) fn begin_suspending(
        &mut self,
        instance: &InstanceId,
        by: SuspendedBy,
        asker: Option<SessionId>,
        cause: &Cause,
    ) {
        let due = self.now + COMMAND_TIME;
        self.transition(
            instance,
            LifecycleEvent::SuspendAsked { by, asker, due },
            cause,
        );
    }

    /// Tells a node to suspend an instance.
    pub(crate) fn send_suspend(&mut self, key: NodeKey, instance: &InstanceId) {
        let node = self.cluster.nodes().node(key);
        let suspend = Suspend {
            instance_uuid: instance.to_string(),
            workload_agent_uuid: node.uuid().to_string(),
        };
        if let Some(session) = node.session() {
            self.send(
                session,
                Message::LauncherCommand(Box::new(LauncherCommand::Suspend(suspend))),
            );
        }
    }

    /// Has a suspended instance resumed by its launcher: its vcpus are claimed before it is told. One that has not come yet
    /// to what it was told is not told again.
    pub(crate) fn order_resume(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        by: SuspendedBy,
        asker: Option<SessionId>,
        cause: &Cause,
    ) {
        if !self.may(instance, EventKind::ResumeAsked) {
            return;
        }
        self.cluster.ledger_mut(key).set_suspended(instance, false);
        let due = self.now + COMMAND_TIME;
        self.transition(
            instance,
            LifecycleEvent::ResumeAsked { by, asker, due },
            cause,
        );
        let node = self.cluster.nodes().node(key);
        let resume = Resume {
            instance_uuid: instance.to_string(),
            workload_agent_uuid: node.uuid().to_string(),
        };
        let is_told = |entry: &Entry| entry.is_told_to_resume();
        if let Some(session) = node.session()
            && !node.ledger().get(instance).is_some_and(is_told)
        {
            self.cluster.ledger_mut(key).resume_sent(instance);
            self.send(
                session,
                Message::LauncherCommand(Box::new(LauncherCommand::Resume(resume))),
            );
        }
    }

    /// CommandFailure from a launcher.
    pub(crate) fn command_failed(&mut self, id: SessionId, failure: &CommandFailure) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        match failure.command {
            LifeCommand::Suspend => self.suspend_failed(key, failure),
            LifeCommand::Resume => self.resume_failed(key, failure),
            LifeCommand::Migrate => self.move_failed(key, failure),
            LifeCommand::Update => self.update_failed(key, failure),
            _ => {}
        }
    }

    fn suspend_failed(&mut self, key: NodeKey, failure: &CommandFailure) {
        let instance = &InstanceId::new(&failure.instance_uuid);
        let Some(State::Suspending {
            node, by, asker, ..
        }) = self.state_of(instance)
        else {
            return;
        };
        if node != key {
            return;
        }
        let cause = Cause::CannotSuspend(failure_text(failure).into());
        self.transition(instance, LifecycleEvent::Undone { suspended: None }, &cause);
        let (command, reason) = (failure.command.clone(), failure.reason.clone());
        self.notify_asker(
            asker,
            instance,
            key,
            command,
            reason,
            &Cause::from(&*failure.detail),
        );
        if let SuspendedBy::Preemptor(preemptor) = by {
            self.victim_stays(&preemptor, instance);
        }
    }

    fn resume_failed(&mut self, key: NodeKey, failure: &CommandFailure) {
        let instance = &InstanceId::new(&failure.instance_uuid);
        self.cluster.ledger_mut(key).resume_failed(instance);
        let (state, entry) = (
            self.state_of(instance),
            self.cluster.nodes().node(key).ledger().get(instance),
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
                let (command, reason) = (failure.command.clone(), failure.reason.clone());
                self.notify_asker(
                    asker,
                    instance,
                    key,
                    command,
                    reason,
                    &Cause::from(&*failure.detail),
                );
            }
            _ if is_held_back => self.suspension_reported(key, instance, true),
            _ => {}
        }
    }

    /// InstanceState from a launcher.
    pub(crate) fn instance_state(&mut self, id: SessionId, event: &InstanceStateEvent) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        let instance = InstanceId::new(&event.instance_uuid);
        match event.state {
            LifeState::Suspended => {
                let state = InstanceState::ExitPaused;
                self.cluster.ledger_mut(key).hear(&instance, state);
                self.suspension_reported(key, &instance, true);
            }
            LifeState::Running => {
                let state = InstanceState::Active;
                self.cluster.ledger_mut(key).hear(&instance, state);
                self.suspension_reported(key, &instance, false);
            }
            LifeState::Updated => self.update_confirmed(key, &instance),
            _ => {}
        }
    }

    /// Resumes an instance that had to leave, on the node where it is, if no one of higher priority waits for that
    /// room; whether it did.
    pub(crate) fn resume_evicted(&mut self, instance: &InstanceId, key: NodeKey) -> bool {
        let Some(State::Suspended { node, by, .. }) = self.state_of(instance) else {
            return false;
        };
        let is_able = self.cluster.nodes().node(key).session().is_some()
            && self.cluster.nodes().node(key).can(Capabilities::SUSPEND);
        let entry = self.cluster.nodes().node(key).ledger().get(instance);
        if entry.is_none_or(Entry::may_resume) {
            // Its launcher was told to already, and does not answer.
            return false;
        }
        if node != key || !is_able || self.has_vcpus_for(instance, key).is_err() {
            return false;
        }
        let slots = self.cluster.nodes().node(key).slots();
        let is_open =
            |pool: &Pool| slots[*pool as usize].is_some() && self.is_open_to(*pool, key, instance);
        if !Pool::ALL.iter().any(is_open) {
            return false;
        }
        if self.is_outranked(instance, key) {
            self.queue.note_outranked(key);
            return false;
        }
        self.order_resume(key, instance, by, None, &Cause::RoomAgain);
        self.count_placement(instance);
        true
    }

    /// Whether a START of higher priority waits that an instance's node could run if nothing else did.
    fn is_outranked(&self, instance: &InstanceId, key: NodeKey) -> bool {
        let Some(managed) = self.instances.get(instance) else {
            return false;
        };
        let mut room = self.room(key);
        room.free = self.cluster.nodes().node(key).capacity();
        let slots = self.cluster.nodes().node(key).slots();
        let pools = Pool::ALL.into_iter();
        let mut pools = pools.filter(|&pool| slots[pool as usize].is_some());
        pools.any(|pool| {
            let may = |_, shape: &Shape| self.may_run(pool, key, shape.query());
            self.queue.outranks(pool, &room, managed.priority(), may)
        })
    }

    /// Somebody has left the queue: whom it kept from being resumed may be now.
    pub(crate) fn outranks_no_more(&mut self) {
        /// Nodes called at once; the others have their turn when the next one leaves, or when the suspended ones are
        /// looked at again.
        const WOKEN_AT_ONCE: usize = 16;
        for _ in 0..WOKEN_AT_ONCE {
            let Some(key) = self.queue.next_outranked() else {
                return;
            };
            if self.cluster.nodes().contains(key) {
                self.wake(key);
            }
        }
    }

    /// Looks again at one that had to leave and is suspended since, or that ran once and waits because no node could
    /// start it again.
    pub(crate) fn look_again(&mut self, instance: &InstanceId) {
        match self.state_of(instance) {
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
                self.seek(instance, &Cause::TriedOnAll);
            }
            _ => {}
        }
    }

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
            // Where no other has either, it goes on waiting.
            let _ = self.move_instance(instance, plan);
        }
    }

    /// The state of an instance that is managed.
    pub(crate) fn state_of(&self, instance: &InstanceId) -> Option<State> {
        Some(self.instances.get(instance)?.state().clone())
    }
}

/// A launcher's reason, with its own words if it has any.
fn failure_text(failure: &CommandFailure) -> String {
    if failure.detail.is_empty() {
        failure.reason.to_string()
    } else {
        format!("{}: {}", failure.reason, failure.detail)
    }
}
