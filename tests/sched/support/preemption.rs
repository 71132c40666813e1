//! Instances that leave for each other: STARTs with priorities, launchers that can suspend, and verbs for what is
//! said between them. The world they are said in is in `world`.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{
    CommandFailure, CommandFailureReason, InstanceQueued, InstanceStateEvent, LifecycleCommand,
    PhaseName, Scheduling,
};
use sched_core::{
    Capabilities, Command, InstanceReport, InstanceState, LauncherCommand, Message, NodeExtras,
    PolicyRules, Report, Rules, SessionId, StartRequest, Target,
};

use crate::support::words::asking;
use crate::support::world::{Size, World, config, id, report, running};

/// A little more than what any single step of a launcher may take.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(61);

/// Rules under which lower priorities leave.
pub(crate) fn preempting() -> Rules {
    Rules {
        policy: PolicyRules {
            preemption: true,
            ..PolicyRules::default()
        },
        ..Rules::default()
    }
}

/// A START of this priority that asks for vcpus alone.
pub(crate) fn cpus(name: &str, vcpus: i64, priority: i64) -> StartRequest {
    let mut start = sized(name, 0, priority);
    start.asked.vcpus = vcpus;
    start
}

/// A START of this priority that asks for memory alone.
pub(crate) fn sized(name: &str, mem: i64, priority: i64) -> StartRequest {
    let scheduling = Scheduling {
        priority: Some(priority),
        ..Scheduling::default()
    };
    asking(name, mem, scheduling)
}

/// What STATS say of an instance that is suspended.
pub(crate) fn frozen(name: &str) -> InstanceReport {
    InstanceReport {
        state: InstanceState::ExitPaused,
        ..running(name, 0)
    }
}

impl World {
    /// A world in which lower priorities leave.
    pub(crate) fn with_preemption() -> Self {
        Self::ruled(config(), preempting())
    }

    /// A node whose launcher can suspend, of this much memory and so many CPUs.
    pub(crate) fn able(&mut self, number: u64, mem: i64, cpus: i64) -> SessionId {
        let node = self.silent_node(number);
        self.ready_able(node, mem, cpus);
        node
    }

    /// READY of such a node.
    pub(crate) fn ready_able(&mut self, node: SessionId, mem: i64, cpus: i64) {
        let size = Size {
            mem,
            cpus,
            ..Size::default()
        };
        let mut said = report(size);
        said.extras = Some(Box::new(NodeExtras {
            capabilities: Capabilities::SUSPEND,
            ..NodeExtras::default()
        }));
        self.report(node, said);
    }

    /// Instances are started, confirmed by their one node, and nothing of it is looked at.
    pub(crate) fn run_on(
        &mut self,
        controller: SessionId,
        node: SessionId,
        starts: Vec<StartRequest>,
    ) {
        let names: Vec<String> = starts.iter().map(|it| it.instance.to_string()).collect();
        for start in starts {
            self.start_as(controller, start);
            assert_eq!(self.placements().len(), 1, "the test's node has room");
        }
        let names = names.iter().map(|name| running(name, 0)).collect();
        self.stats(node, names);
        self.look_away();
    }

    /// What a launcher was told to do since the test last looked, as `verb instance`.
    pub(crate) fn orders(&mut self, node: SessionId) -> Vec<String> {
        self.told_of(node, |message| match message {
            Message::Start(start) => Some(format!("start {}", start.request.instance)),
            Message::Targeted(command) => Some(format!("delete {}", command.target.instance)),
            Message::LauncherCommand(order) => Some(match *order {
                LauncherCommand::Suspend(order) => format!("suspend {}", order.instance_uuid),
                LauncherCommand::Resume(order) => format!("resume {}", order.instance_uuid),
                LauncherCommand::Stop(order) => format!("stop {}", order.instance_uuid),
                LauncherCommand::Migrate(order) => format!("migrate {}", order.instance_uuid),
                LauncherCommand::Update(order) => format!("update {}", order.instance_uuid),
            }),
            _ => None,
        })
    }

    /// A launcher says that it has suspended an instance.
    pub(crate) fn suspended(&mut self, node: SessionId, name: &str) {
        self.says(node, name, PhaseName::Suspended);
    }

    /// A launcher says that an instance runs again.
    pub(crate) fn resumed(&mut self, node: SessionId, name: &str) {
        self.says(node, name, PhaseName::Running);
    }

    fn says(&mut self, node: SessionId, name: &str, state: PhaseName) {
        let event = InstanceStateEvent {
            instance_uuid: name.to_owned(),
            node_uuid: self.uuid_of(node).to_string(),
            state,
            detail: String::new(),
            priority: None,
            target_node_uuid: String::new(),
        };
        let report = Report::InstanceState(Box::new(event));
        self.say(node, report);
    }

    /// A launcher has stopped an instance.
    pub(crate) fn stopped(&mut self, node: SessionId, name: &str) {
        self.gone(node, Kind::INSTANCE_STOPPED, name);
    }

    /// A launcher says that it could not stop or delete an instance, which it has.
    pub(crate) fn cannot_delete(&mut self, node: SessionId, name: &str) {
        self.delete_failed(node, name, false);
    }

    /// A launcher says that it does not have the instance that it was to stop or delete.
    pub(crate) fn has_none(&mut self, node: SessionId, name: &str) {
        self.delete_failed(node, name, true);
    }

    fn delete_failed(&mut self, node: SessionId, name: &str, no_instance: bool) {
        let report = Report::DeleteFailed {
            node: self.uuid_of(node).to_string().into(),
            instance: id(name),
            no_instance,
        };
        self.say(node, report);
    }

    /// A launcher could not do what it was told.
    pub(crate) fn cannot(
        &mut self,
        node: SessionId,
        command: LifecycleCommand,
        name: &str,
        reason: CommandFailureReason,
    ) {
        let failure = CommandFailure {
            command,
            instance_uuid: name.to_owned(),
            node_uuid: self.uuid_of(node).to_string(),
            reason,
            detail: String::new(),
        };
        let report = Report::CommandFailed(Box::new(failure));
        self.say(node, report);
    }

    /// A launcher says that it failed to suspend an instance.
    pub(crate) fn cannot_suspend(&mut self, node: SessionId, name: &str) {
        self.cannot(
            node,
            LifecycleCommand::Suspend,
            name,
            CommandFailureReason::Failed,
        );
    }

    /// A launcher says that it failed to resume an instance.
    pub(crate) fn cannot_resume(&mut self, node: SessionId, name: &str) {
        self.cannot(
            node,
            LifecycleCommand::Resume,
            name,
            CommandFailureReason::Failed,
        );
    }

    /// SUSPEND, without a word about the node.
    pub(crate) fn ask_suspend(&mut self, from: SessionId, name: &str) {
        self.say(from, Command::Suspend(anywhere(name)));
    }

    /// RESUME, without a word about the node.
    pub(crate) fn ask_resume(&mut self, from: SessionId, name: &str) {
        self.say(from, Command::Resume(anywhere(name)));
    }

    /// What a peer was told of instances' lives since the test last looked, as `instance state`.
    pub(crate) fn lives(&mut self, session: SessionId) -> Vec<String> {
        self.told_of(session, |message| match message {
            Message::InstanceState(event) => {
                Some(format!("{} {}", event.instance_uuid, event.state))
            }
            _ => None,
        })
    }

    /// What a peer was told of STARTs that wait since the test last looked.
    pub(crate) fn queued(&mut self, session: SessionId) -> Vec<InstanceQueued> {
        self.told_of(session, |message| match message {
            Message::InstanceQueued(event) => Some(event.payload),
            _ => None,
        })
    }

    /// The states that a peer was told of since the test last looked, by instance.
    pub(crate) fn states(&mut self, session: SessionId) -> Vec<(String, PhaseName)> {
        self.told_of(session, |message| match message {
            Message::InstanceState(event) => {
                Some((event.payload.instance_uuid, event.payload.state))
            }
            _ => None,
        })
    }

    /// The failures of commands that a peer was told since the test last looked.
    pub(crate) fn command_failures(&mut self, session: SessionId) -> Vec<CommandFailure> {
        self.told_of(session, |message| match message {
            Message::CommandFailure(failure) => Some(failure.payload),
            _ => None,
        })
    }
}

fn anywhere(name: &str) -> Target {
    Target {
        instance: id(name),
        node: "".into(),
    }
}
