//! Events and outcomes of commands as messages: of instances for those who follow them, of ends for original controllers,
//! of commands for who sent them. Who is among the recipients is decided by `peers`.

use sched_model::{
    AttachVolumeFailure, AttachVolumeFailureReason, CommandFailure, CommandFailureReason,
    DeleteFailure, DeleteFailureReason, InstanceDeleted, InstancePlaced, InstanceStateEvent,
    LifecycleCommand, NodePressure, PhaseName, PressureState, Topic, Uuid,
};

use crate::Scheduler;
use crate::api::action::{Message, Notice};
use crate::api::cause::Cause;
use crate::api::command::Target;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::parcel::Parcel;
use crate::api::pressure::PressureNews;
use crate::api::refused::RefusalCause;
use crate::api::sent::CommandName;
use crate::instance::{HistoryEvent, Instance, MoveRequest, State};
use crate::peers::session::Session;
use crate::sight::Sight;

impl Scheduler {
    /// Notes that an operator is to get the answer to its command, which its launcher reports without naming who asked.
    /// Controllers get all answers. `false` if the operator waits for too many; the command is refused then.
    pub(crate) fn expect_answer(
        &mut self,
        id: SessionId,
        command: CommandName,
        instance: &InstanceId,
    ) -> bool {
        match self.peers.expect_answer(id, command, instance) {
            Ok(()) => true,
            Err(count) => {
                let cause = RefusalCause::TooManyAnswers(count);
                self.refuse(id, command.into(), cause, Some(instance));
                false
            }
        }
    }

    /// Answers a DELETE, or an AttachVolume of this volume, whose node is not there.
    pub(crate) fn no_such_instance(
        &mut self,
        id: SessionId,
        target: &Target,
        volume: Option<Box<str>>,
    ) {
        let command = match &volume {
            Some(_) => CommandName::AttachVolume,
            None => CommandName::Delete,
        };
        self.notice(Notice::NoSuchPeer(command.into(), target.node.clone()));
        self.peers.take_asker(command, &target.instance);
        let (node_uuid, instance_uuid) = (target.node.to_string(), target.instance.to_string());
        let message = match volume {
            Some(volume) => Message::AttachVolumeFailure(AttachVolumeFailure {
                node_uuid,
                instance_uuid,
                volume_uuid: volume.into(),
                reason: AttachVolumeFailureReason::NoInstance,
            }),
            None => {
                let reason = DeleteFailureReason::NoInstance;
                Message::DeleteFailure(DeleteFailure {
                    node_uuid,
                    instance_uuid,
                    reason,
                })
            }
        };
        self.send(id, message);
    }

    /// Sends the operator whose command this answers the answer, unless it gets it as a subscriber anyway. Controllers
    /// get all of them.
    pub(crate) fn answer(
        &mut self,
        command: CommandName,
        instance: &InstanceId,
        topic: Topic,
        parcel: &Parcel,
    ) {
        if let Some(asker) = self.peers.take_asker(command, instance) {
            self.copy_to_operator(asker, topic, parcel);
        }
    }

    /// Forwards a report to one session outside the audience of its topic.
    pub(crate) fn copy_to_operator(&mut self, operator: SessionId, topic: Topic, parcel: &Parcel) {
        if self.peers.outside_audience(operator, &topic).is_some() {
            self.send(operator, Message::Forward(parcel.clone()));
        }
    }

    /// Sends who asked for a move, or for an update that needs one, that it failed.
    pub(crate) fn notify_mover(
        &mut self,
        move_request: MoveRequest,
        instance: &InstanceId,
        key: NodeKey,
        reason: CommandFailureReason,
        cause: &Cause,
    ) {
        let command = match move_request.demand {
            Some(_) => LifecycleCommand::Update,
            None => LifecycleCommand::Migrate,
        };
        self.notify_asker(move_request.asker, instance, key, command, reason, cause);
    }

    /// Sends subscribers of placements which node a START was given to.
    pub(crate) fn notify_placement(&mut self, key: NodeKey, instance: &InstanceId) {
        let node = self.cluster.node(key);
        let event = InstancePlaced {
            instance_uuid: instance.to_string(),
            node_uuid: node.uuid().to_string(),
            hostname: node.hostname().to_owned(),
        };
        self.notify_subscribers(Topic::Placements, None, |_| {
            Some(Message::InstancePlaced(event.clone()))
        });
    }

    /// A node reports the end of an instance that goes on elsewhere. Original controllers have no such state: they take
    /// a stopped instance for `exited`, and start a CNCI again at once, beside the one that is on its way. So they get
    /// the report only if the instance waits on no node; one that moves appears in the STATS of its next node. Of
    /// network workloads, which CNCIs are, they never get it.
    pub(crate) fn announce_stop(&mut self, from: SessionId, parcel: Parcel, instance: &InstanceId) {
        let Some(managed) = self.instances.get_mut(instance) else {
            return;
        };
        if !managed.state().is_waiting() {
            managed.note_stop_unannounced();
        } else if !managed.is_network_workload() {
            self.notify_originals(Some(from), || Message::Forward(parcel.clone()));
        }
    }

    /// Sends original controllers that an instance has stopped. It was on its way to another node when that happened,
    /// and so they were not sent it; now it waits. Not for network workloads.
    pub(crate) fn announce_deferred_stop(&mut self, instance: &InstanceId) {
        let managed = self.instances.get(instance);
        if managed.is_none_or(Instance::is_network_workload) {
            return;
        }
        self.notify_originals(None, || Message::InstanceStopped(instance.clone()));
    }

    /// An instance of a lost node was to be deleted, and is over without a report of its node: original controllers,
    /// who see no states, are told now.
    pub(crate) fn announce_deleted(&mut self, instance: &InstanceId) {
        self.notify_originals(None, || {
            Message::InstanceDeleted(InstanceDeleted {
                instance_uuid: instance.to_string(),
                ..InstanceDeleted::default()
            })
        });
    }

    /// Sends controllers, subscribers and the sender that an instance on no node is deleted, in the form of a
    /// launcher's report.
    pub(crate) fn notify_deleted(&mut self, id: SessionId, instance: &InstanceId) {
        let message = || {
            Message::InstanceDeleted(InstanceDeleted {
                instance_uuid: instance.to_string(),
                ..InstanceDeleted::default()
            })
        };
        self.notify_controllers(Topic::Instances, |_| Some(message()));
        let sender_alone = self.peers.outside_audience(id, &Topic::Instances);
        if sender_alone.is_some() {
            self.send(id, message());
        }
    }

    /// A node has become short of memory, or is not any more, by its latest report.
    pub(crate) fn pressure_changed(&mut self, key: NodeKey) {
        let node = self.cluster.node(key);
        let news = if node.is_short_of_memory() {
            self.counters.pressures += 1;
            let node = self.cluster.node(key);
            PressureNews::Begun(node.fault().cloned().unwrap_or_default())
        } else {
            PressureNews::Over
        };
        self.notify_pressure(key, news);
    }

    /// Sends a NodePressure event to native controllers and subscribers of nodes, and logs it.
    pub(crate) fn notify_pressure(&mut self, key: NodeKey, news: PressureNews) {
        let node = self.cluster.node(key);
        let mut event = NodePressure {
            node_uuid: node.uuid().to_string(),
            hostname: node.hostname().to_owned(),
            ..NodePressure::default()
        };
        let uuid = node.uuid();
        event.state = match &news {
            PressureNews::Begun(why) => {
                event.detail = why.to_string();
                PressureState::Begun
            }
            PressureNews::Over => PressureState::Over,
            PressureNews::Moved(instance) => {
                event.instance_uuid = instance.to_string();
                PressureState::Moved
            }
            PressureNews::Stuck => PressureState::Stuck,
        };
        self.notify_controllers(Topic::Nodes, |session| {
            let event = || Message::NodePressure(Box::new(event.clone()));
            session.is_native().then(event)
        });
        self.notice(Notice::Pressure(uuid, news));
    }

    /// Sends an InstanceState event to native controllers and to subscribers of instances. Costs nothing where there
    /// are neither. Original controllers do not know the frame.
    pub(crate) fn notify_state(
        &mut self,
        instance: &InstanceId,
        state: PhaseName,
        node: Option<Uuid>,
        cause: &Cause,
    ) {
        if !self.peers.has_controllers() && !self.peers.has_subscribers() {
            return;
        }
        let event = self.sight().state_event(instance, state, node, cause);
        self.notify_controllers(Topic::Instances, |session| {
            let message = || Message::InstanceState(Box::new(event.clone()));
            session.is_native().then(message)
        });
    }

    /// Sends one session the same event, unless it gets it as a controller or subscriber anyway.
    pub(crate) fn copy_state(
        &mut self,
        to: SessionId,
        instance: &InstanceId,
        state: PhaseName,
        node: Option<Uuid>,
        cause: &Cause,
    ) {
        let to_alone = self.peers.outside_audience(to, &Topic::Instances);
        if to_alone.is_some_and(Session::is_native) {
            let event = self.sight().state_event(instance, state, node, cause);
            self.send(to, Message::InstanceState(Box::new(event)));
        }
    }

    /// Adds the update to the instance's history, and notifies those who follow the instance, and who asked. It is no
    /// transition, so `transition` does not do that.
    pub(crate) fn notify_updated(
        &mut self,
        instance: &InstanceId,
        asker: Option<SessionId>,
        cause: &Cause,
    ) {
        let Some(managed) = self.instances.get_mut(instance) else {
            return;
        };
        let node = managed.state().node();
        let node = node.map(|key| self.cluster.uuid(key));
        managed.note(HistoryEvent {
            at: self.now,
            what: PhaseName::Updated,
            node,
            cause: cause.kept(),
            run: 0,
        });
        self.journal.note_instance(instance);
        self.notify_state(instance, PhaseName::Updated, node, cause);
        if let Some(asker) = asker {
            self.copy_state(asker, instance, PhaseName::Updated, node, cause);
        }
    }

    /// Sends a native peer a CommandFailure: its command for an instance was not, or could not be, carried out.
    /// Original peers have no such frame and are sent nothing.
    pub(crate) fn fail_command(
        &mut self,
        id: SessionId,
        command: LifecycleCommand,
        instance: &InstanceId,
        key: Option<NodeKey>,
        reason: CommandFailureReason,
        why: Cause,
    ) {
        if !self.peers.is_native(id) {
            return;
        }
        let node = key.map(|key| self.cluster.uuid(key).to_string());
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

    /// Sends a CommandFailure to the session that asked for what was under way, if one did.
    pub(crate) fn notify_asker(
        &mut self,
        asker: Option<SessionId>,
        instance: &InstanceId,
        key: NodeKey,
        command: LifecycleCommand,
        reason: CommandFailureReason,
        cause: &Cause,
    ) {
        if let Some(asker) = asker {
            let why = cause.clone();
            self.fail_command(asker, command, instance, Some(key), reason, why);
        }
    }

    /// The same, with what its launcher has put into a CommandFailure.
    pub(crate) fn notify_asker_of(
        &mut self,
        asker: Option<SessionId>,
        instance: &InstanceId,
        key: NodeKey,
        failure: &CommandFailure,
    ) {
        let (command, reason) = (failure.command.clone(), failure.reason.clone());
        let cause = &Cause::from(&*failure.detail);
        self.notify_asker(asker, instance, key, command, reason, cause);
    }
}

impl Sight<'_> {
    /// The event as it goes on the wire; its cause is put into words by the server.
    fn state_event(
        &self,
        instance: &InstanceId,
        state: PhaseName,
        node: Option<Uuid>,
        cause: &Cause,
    ) -> Explained<InstanceStateEvent> {
        let managed = self.instances.get(instance);
        let target = managed.and_then(|managed| match *managed.state() {
            State::Migrating { to, .. } => Some(self.cluster.uuid(to)),
            _ => None,
        });
        let event = InstanceStateEvent {
            instance_uuid: instance.to_string(),
            node_uuid: node.map(|uuid| uuid.to_string()).unwrap_or_default(),
            state,
            detail: String::new(),
            priority: managed.map(|managed| i64::from(managed.priority())),
            target_node_uuid: target.map(|uuid| uuid.to_string()).unwrap_or_default(),
        };
        Explained::new(event, cause.clone())
    }
}
