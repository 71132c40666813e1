//! SUSPEND, RESUME, UPDATE: an instance changes while it lives. Each is answered by InstanceState or CommandFailure, on
//! the connection that stands then; a client that misses the answer learns it from STATS.
//!
//! Each command takes two steps. The command is checked, the phase changes, is persisted, and the machine is ordered to
//! do it; later the machine's result completes or reverts the change:
//!
//! ```text
//! Running ──SUSPEND──▶ Suspending ──frozen──▶ Suspended ──RESUME──▶ Resuming ──thawed──▶ Running
//!    ▲                      │ failed              ▲                     │ failed
//!    └── (thawed to make sure) ◀┘                 └─────────────────────┘
//! ```
//!
//! A command that is repeated while it is under way has no answer of its own; one whose state holds already is answered
//! at once. UPDATE keeps the phase and sets `update` until the limits are set.

use std::time::Instant;

use proto_frames::payload::{
    CommandFailure, CommandFailureReason as Reason, InstanceStateEvent, LifecycleCommand, Migrate,
    PayloadError, PhaseName, Resume, Suspend, Update,
};
use tracing::warn;

use super::instances::{Instance, InstancePhase};
use super::{Agent, AgentAction, Demand, Message};

/// How often an instance that could not be frozen is ordered to be thawed: it may have been frozen too late, and a
/// single failure to undo that would leave it frozen while it is listed as running.
pub(super) const MAX_THAWS: u8 = 5;

/// Why a command is not done, as in CommandFailure, and more about it for people.
type Refusal = (Reason, String);

impl Agent {
    /// Handles SUSPEND.
    pub(super) fn suspend(&mut self, now: Instant, suspend: Result<Suspend, PayloadError>) {
        let command = LifecycleCommand::Suspend;
        let Some(suspend) = self.readable(&command, suspend) else {
            return;
        };
        let id = suspend.instance_uuid.as_str();
        if let Err(refusal) = self.try_suspend(now, id, &suspend.workload_agent_uuid) {
            self.refuse(command, id, refusal);
        }
    }

    /// Begins to freeze an instance that runs and is not being updated.
    ///
    /// # Errors
    /// `NoInstance`, `InvalidData` for another node, or `WrongState`.
    fn try_suspend(&mut self, now: Instant, id: &str, agent: &str) -> Result<(), Refusal> {
        let instance = self.addressed(id, agent)?;
        match instance.state {
            InstancePhase::Running if instance.update.is_none() => {
                instance.state = InstancePhase::Suspending;
                instance.thaws_left = None;
                self.persist(id);
                self.order(AgentAction::Freeze(id.to_owned()));
                self.report_soon(now);
            }
            // It will be answered when it is done.
            InstancePhase::Suspending => {}
            InstancePhase::Suspended => self.report_state(id, PhaseName::Suspended),
            _ => return Err(instance.wrong_state()),
        }
        Ok(())
    }

    /// The machine's result of freezing. A result that comes after the phase has changed, as by DELETE, is ignored.
    /// After a failure the instance counts as running and is thawed to make sure.
    pub(super) fn frozen(&mut self, now: Instant, id: &str, result: Result<(), String>) {
        let state = self.instances.get(id).map(|instance| instance.state);
        if state != Some(InstancePhase::Suspending) {
            return;
        }
        match result {
            Ok(()) => {
                self.count_pause(now, id, true);
                self.enter(now, id, InstancePhase::Suspended);
                self.report_state(id, PhaseName::Suspended);
            }
            Err(detail) => {
                // It may have been frozen after all, too late. The next launcher has to know of it, if there is one by
                // then.
                if let Some(instance) = self.instances.get_mut(id) {
                    instance.thaws_left = Some(MAX_THAWS - 1);
                }
                self.enter(now, id, InstancePhase::Running);
                self.order(AgentAction::Thaw(id.to_owned()));
                self.refuse(LifecycleCommand::Suspend, id, (Reason::Failed, detail));
            }
        }
    }

    /// Handles RESUME.
    pub(super) fn resume(&mut self, now: Instant, resume: Result<Resume, PayloadError>) {
        let command = LifecycleCommand::Resume;
        let Some(resume) = self.readable(&command, resume) else {
            return;
        };
        let id = resume.instance_uuid.as_str();
        if let Err(refusal) = self.try_resume(now, id, &resume.workload_agent_uuid) {
            self.refuse(command, id, refusal);
        }
    }

    /// Begins to thaw a suspended instance, if the node has its vcpus free: others may have taken them. Its memory was
    /// kept.
    ///
    /// # Errors
    /// As for SUSPEND, and `NoRoom`.
    fn try_resume(&mut self, now: Instant, id: &str, agent: &str) -> Result<(), Refusal> {
        let instance = self.addressed(id, agent)?;
        match instance.state {
            InstancePhase::Suspended if instance.update.is_none() => {
                let needs = Demand {
                    vcpus: instance.demand.vcpus,
                    ..Demand::default()
                };
                self.check_amounts(&needs)
                    .map_err(|detail| (Reason::NoRoom, detail))?;
                self.enter(now, id, InstancePhase::Resuming);
                self.order(AgentAction::Thaw(id.to_owned()));
            }
            // It will be answered when it is done.
            InstancePhase::Resuming => {}
            InstancePhase::Running => self.report_state(id, PhaseName::Running),
            _ => return Err(instance.wrong_state()),
        }
        Ok(())
    }

    /// An instance that could not be frozen was ordered to be thawed. If that fails as well as often as it is tried, it
    /// is listed as what it most likely is, suspended, so that it can be resumed.
    fn thawed_to_make_sure(&mut self, now: Instant, id: &str, result: Result<(), String>) {
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        let Some(left) = instance.thaws_left else {
            return;
        };
        match (result, left.checked_sub(1)) {
            (Ok(()), _) => {
                instance.thaws_left = None;
                self.persist(id);
            }
            (Err(detail), None) => {
                warn!(
                    event = "instance_not_thawed",
                    "instance {id} could not be frozen, and not be thawed either: {detail}"
                );
                instance.thaws_left = None;
                self.count_pause(now, id, true);
                self.enter(now, id, InstancePhase::Suspended);
                self.report_state(id, PhaseName::Suspended);
            }
            (Err(_), left) => {
                instance.thaws_left = left;
                self.order(AgentAction::Thaw(id.to_owned()));
            }
        }
    }

    /// The machine's result of thawing: for a RESUME, or after a failed freeze.
    pub(super) fn thawed(&mut self, now: Instant, id: &str, result: Result<(), String>) {
        match self.instances.get(id).map(|instance| instance.state) {
            Some(InstancePhase::Resuming) => {}
            Some(InstancePhase::Running) => return self.thawed_to_make_sure(now, id, result),
            _ => return,
        }
        match result {
            Ok(()) => {
                self.count_pause(now, id, false);
                self.enter(now, id, InstancePhase::Running);
                self.report_state(id, PhaseName::Running);
            }
            Err(detail) => {
                self.enter(now, id, InstancePhase::Suspended);
                self.refuse(LifecycleCommand::Resume, id, (Reason::Failed, detail));
            }
        }
    }

    /// Handles UPDATE.
    pub(super) fn update(&mut self, now: Instant, update: Result<Box<Update>, PayloadError>) {
        let command = LifecycleCommand::Update;
        let Some(update) = self.readable(&command, update) else {
            return;
        };
        if let Err(refusal) = self.try_update(now, &update) {
            self.refuse(command, &update.instance_uuid, refusal);
        }
    }

    /// Checks whether the node has what the instance would get in addition, and begins to set its limits. Only a change
    /// of memory or vcpus needs the machine; without one the update is done at once. While it is under way, the
    /// instance counts as having both its old and its new amounts where they are larger.
    ///
    /// # Errors
    /// `InvalidData`, `NoInstance`, `WrongState` or `NoRoom`; nothing has changed then.
    fn try_update(&mut self, now: Instant, update: &Update) -> Result<(), Refusal> {
        let id = update.instance_uuid.as_str();
        update
            .check()
            .map_err(|error| (Reason::InvalidData, error.to_string()))?;
        let instance = self.addressed(id, &update.workload_agent_uuid)?;
        if !matches!(
            instance.state,
            InstancePhase::Running | InstancePhase::Suspended
        ) || instance.update.is_some()
        {
            return Err(instance.wrong_state());
        }
        let old = &instance.demand;
        let new = changed(old, update);
        let mut more = difference(old, &new);
        if instance.state == InstancePhase::Suspended {
            more.vcpus = 0;
        }
        let limits = (new.mem_mb, new.vcpus) != (old.mem_mb, old.vcpus);
        if !update.resources.is_empty() {
            self.check_names(&new.resources)
                .map_err(|detail| (Reason::InvalidData, format!("update.resources: {detail}")))?;
        }
        if more != Demand::default() {
            self.check_amounts(&more)
                .map_err(|detail| (Reason::NoRoom, detail))?;
        }
        if limits {
            self.begin_update(id, new);
        } else {
            self.finish_update(now, id, new);
        }
        Ok(())
    }

    /// Notes the update, assigns devices for it, and orders the limits to be set.
    fn begin_update(&mut self, id: &str, new: Demand) {
        let (mem_mb, vcpus) = (new.mem_mb, new.vcpus);
        if let Some(instance) = self.instances.get_mut(id) {
            instance.update = Some(new);
        }
        self.assign_devices(id);
        self.move_to_processors(id);
        self.persist(id);
        self.order(AgentAction::SetLimits {
            instance: id.to_owned(),
            mem_mb,
            vcpus,
        });
    }

    /// The machine's result: completes the update, or reverts it and returns its devices.
    pub(super) fn limits_set(&mut self, now: Instant, id: &str, result: Result<(), String>) {
        let Some(new) = self
            .instances
            .get_mut(id)
            .and_then(|instance| instance.update.take())
        else {
            return;
        };
        match result {
            Ok(()) => self.finish_update(now, id, new),
            Err(detail) => {
                self.assign_devices(id);
                self.move_to_processors(id);
                self.persist(id);
                self.refuse(LifecycleCommand::Update, id, (Reason::Failed, detail));
            }
        }
    }

    /// The instance has the amounts that it was to get; the scheduler is told.
    fn finish_update(&mut self, now: Instant, id: &str, new: Demand) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.demand = new;
        }
        self.assign_devices(id);
        self.move_to_processors(id);
        self.persist(id);
        self.report_state(id, PhaseName::Updated);
        self.report_soon(now);
    }

    /// Repeats what an earlier launcher ordered for the instance and whose result it did not record. Orders may be
    /// repeated without harm.
    pub(super) fn take_up_change(&mut self, id: &str) {
        let Some(instance) = self.instances.get(id) else {
            return;
        };
        let pace = match instance.state {
            InstancePhase::Suspending => Some(AgentAction::Freeze(id.to_owned())),
            InstancePhase::Resuming => Some(AgentAction::Thaw(id.to_owned())),
            InstancePhase::Running if instance.thaws_left.is_some() => {
                Some(AgentAction::Thaw(id.to_owned()))
            }
            _ => None,
        };
        let limits = instance.update.as_ref().map(|new| AgentAction::SetLimits {
            instance: id.to_owned(),
            mem_mb: new.mem_mb,
            vcpus: new.vcpus,
        });
        for order in [pace, limits].into_iter().flatten() {
            self.order(order);
        }
    }

    /// Refuses the command under way of an instance that is ending, so that every command is answered, and returns
    /// devices that were assigned for an update.
    pub(super) fn give_up_change(&mut self, id: &str) {
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        let updated = instance.update.take().map(|_| LifecycleCommand::Update);
        instance.return_devices();
        let command = match instance.state {
            InstancePhase::Suspending => Some(LifecycleCommand::Suspend),
            InstancePhase::Resuming => Some(LifecycleCommand::Resume),
            _ => updated,
        };
        if let Some(command) = command {
            let refusal = (Reason::WrongState, "it is ending".to_owned());
            self.refuse(command, id, refusal);
        }
    }

    /// Refuses MIGRATE: a process's memory cannot be moved. The scheduler relocates such an instance instead.
    pub(super) fn migrate(&mut self, migrate: Result<Migrate, PayloadError>) {
        let command = LifecycleCommand::Migrate;
        if let Some(migrate) = self.readable(&command, migrate) {
            let detail = "this node cannot migrate what an instance holds".to_owned();
            self.refuse(
                command,
                &migrate.instance_uuid,
                (Reason::NotSupported, detail),
            );
        }
    }

    /// The command, if it can be read; otherwise it is refused without an instance's id, which is not known.
    fn readable<T>(
        &mut self,
        command: &LifecycleCommand,
        payload: Result<T, PayloadError>,
    ) -> Option<T> {
        payload
            .inspect_err(|error| {
                warn!(event = "command_unreadable", %error, command = command.as_str(), "unreadable command refused");
                let refusal = (Reason::InvalidData, error.to_string());
                self.refuse(command.clone(), "", refusal);
            })
            .ok()
    }

    /// The live instance that a command is for. A command that names no node is taken by the node that gets it.
    ///
    /// # Errors
    /// `InvalidData` for another node, `NoInstance` for an instance that is not here or has ended.
    fn addressed(&mut self, id: &str, agent: &str) -> Result<&mut Instance, Refusal> {
        if !agent.is_empty() && !self.is_me(agent) {
            let detail = format!("it is for node {agent}");
            return Err((Reason::InvalidData, detail));
        }
        self.instances
            .get_mut(id)
            .filter(|instance| instance.is_live())
            .ok_or_else(|| (Reason::NoInstance, "it is not here".to_owned()))
    }

    /// Changes an instance's phase, writes that down and has it reported soon.
    fn enter(&mut self, now: Instant, id: &str, state: InstancePhase) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.state = state;
        }
        self.move_to_processors(id);
        self.persist(id);
        self.report_soon(now);
    }

    /// Sends InstanceState.
    fn report_state(&mut self, id: &str, state: PhaseName) {
        self.send(Message::InstanceState(InstanceStateEvent {
            instance_uuid: id.to_owned(),
            node_uuid: self.settings.node_uuid.to_string(),
            state,
            ..InstanceStateEvent::default()
        }));
    }

    /// Sends CommandFailure.
    fn refuse(&mut self, command: LifecycleCommand, id: &str, (reason, detail): Refusal) {
        self.send(Message::CommandFailure(CommandFailure {
            command,
            instance_uuid: id.to_owned(),
            node_uuid: self.settings.node_uuid.to_string(),
            reason,
            detail,
        }));
    }
}

impl Instance {
    /// Why a command does not fit how it is.
    fn wrong_state(&self) -> Refusal {
        let state = match self.state {
            _ if self.update.is_some() => "it is being updated",
            InstancePhase::Starting => "it is being started",
            InstancePhase::Running => "it runs",
            InstancePhase::Suspending => "it is being suspended",
            InstancePhase::Suspended => "it is suspended",
            InstancePhase::Resuming => "it is being resumed",
            InstancePhase::Backoff { .. } => "it has ended and waits to be started again",
            InstancePhase::Stopping { .. } => "it is being stopped",
            InstancePhase::Exited { .. } | InstancePhase::Gone { .. } => "it has ended",
        };
        (Reason::WrongState, state.to_owned())
    }
}

/// What the instance asks for once it is updated. Of a resource that is set to nothing nothing is left.
fn changed(old: &Demand, update: &Update) -> Demand {
    let mut resources = old.resources.clone();
    resources.extend(update.resources.clone());
    resources.retain(|_, amount| *amount > 0);
    Demand {
        mem_mb: update.mem_mb.unwrap_or(old.mem_mb),
        vcpus: update.vcpus.unwrap_or(old.vcpus),
        disk_mb: update.disk_mb.unwrap_or(old.disk_mb),
        resources,
    }
}

/// What `new` asks for beyond `old`.
fn difference(old: &Demand, new: &Demand) -> Demand {
    let more = |old: i64, new: i64| new.saturating_sub(old).max(0);
    let resource = |(name, &amount): (&String, &i64)| {
        let more = more(old.resources.get(name).copied().unwrap_or(0), amount);
        (more > 0).then(|| (name.clone(), more))
    };
    Demand {
        mem_mb: more(old.mem_mb, new.mem_mb),
        vcpus: more(old.vcpus, new.vcpus),
        disk_mb: more(old.disk_mb, new.disk_mb),
        resources: new.resources.iter().filter_map(resource).collect(),
    }
}
