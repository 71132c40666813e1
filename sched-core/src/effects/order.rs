//! Commands to launchers about managed instances: stop, suspend and resume. The ledger notes what was sent.

use std::time::Duration;

use sched_model::{Delete, Resume, Suspend};

use crate::Scheduler;
use crate::api::action::{LauncherCommand, Message};
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::cluster::Cluster;
use crate::cluster::ledger::{Entry, Remains, Suspension};
use crate::instance::{LifecycleEvent, SuspendedBy};

/// How long a launcher may take to suspend, resume or stop an instance before that counts as failed. Launchers kill
/// what does not end when asked, after 10 s or so.
pub(crate) const COMMAND_TIME: Duration = Duration::from_secs(60);

impl Scheduler {
    /// Sends a node's launcher DELETE with `stop: true`, which ends the instance and keeps what a restart needs. While the
    /// node is not connected, it is only noted that this is to be sent ([`Scheduler::send_stops_again`]).
    pub(crate) fn order_stop(&mut self, key: NodeKey, instance: &InstanceId) {
        self.order_end(key, instance, Remains::ForRestart);
    }

    /// The same, with what is left on the node.
    pub(crate) fn order_end(&mut self, key: NodeKey, instance: &InstanceId, remains: Remains) {
        let Some(session) = self.cluster.session(key) else {
            return self.cluster.ledger_mut(key).stop_is_lost(instance);
        };
        self.cluster.ledger_mut(key).stop_sent(instance);
        let node = self.cluster.node(key);
        let delete = Delete {
            instance_uuid: instance.to_string(),
            workload_agent_uuid: node.uuid().to_string(),
            stop: remains == Remains::ForRestart,
            ..Delete::default()
        };
        self.send(
            session,
            Message::LauncherCommand(Box::new(LauncherCommand::Stop(delete))),
        );
    }

    /// Makes the transition to suspending. The launcher is sent the command separately: at once for a SUSPEND, once it
    /// is on disk for a preemption.
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

    /// Sends a node's launcher SUSPEND.
    pub(crate) fn send_suspend(&mut self, key: NodeKey, instance: &InstanceId) {
        let node = self.cluster.node(key);
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

    /// Claims a suspended instance's vcpus and sends its launcher RESUME. If an earlier RESUME is not answered yet, no
    /// second one is sent.
    pub(crate) fn order_resume(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        by: SuspendedBy,
        asker: Option<SessionId>,
        cause: &Cause,
    ) {
        let due = self.now + COMMAND_TIME;
        let event = LifecycleEvent::ResumeAsked { by, asker, due };
        let claims = |cluster: &mut Cluster| {
            let mut ledger = cluster.ledger_mut(key);
            ledger.set_suspended(instance, Suspension::None);
        };
        if !self.turn(instance, event, cause, claims) {
            return;
        }
        let node = self.cluster.node(key);
        let resume = Resume {
            instance_uuid: instance.to_string(),
            workload_agent_uuid: node.uuid().to_string(),
        };
        let is_told = |entry: &Entry| entry.is_resume_sent();
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
}

/// What is free of an instance that is suspended for this reason.
pub(crate) fn suspension(by: &SuspendedBy) -> Suspension {
    match by {
        SuspendedBy::Preemptor(_) => Suspension::ForPreemptor,
        SuspendedBy::Command => Suspension::ByCommand,
    }
}
