//! What the scheduler asks of a launcher: frames as typed commands, and what the agent does about START, DELETE,
//! EVACUATE, RESTORE and AttachVolume. SUSPEND, RESUME and UPDATE are in `life`; leases and capacity have files of
//! their own.
//!
//! A payload that cannot be read is still a command: it is answered with a failure where the protocol has one, and
//! logged where it has none. Nothing that the scheduler sends ends the launcher.

use std::collections::BTreeMap;
use std::time::Instant;

use proto_frames::payload::identifier::make_usual;
use proto_frames::payload::{
    AttachVolume, AttachVolumeFailure, AttachVolumeFailureReason, CommandRefused, Delete,
    DeleteFailure, DeleteFailureReason, EndsRecorded, Evacuate, EvacuateMode, LeaseRenewed,
    Migrate, NodeCapacity, Payload, PayloadError, PayloadErrorKind, Restore, Resume, Start,
    StartFailureReason, Suspend, Update, overrides,
};
use proto_frames::{Frame, Kind};
use tracing::{debug, warn};

use super::instances::InstancePhase;
use super::{Agent, AgentAction, Demand, Duty, Link, Message, Removal, Runs};

/// Longest instance id taken, in bytes: it becomes a file name. UUIDs have 36.
pub const MAX_INSTANCE_ID_LEN: usize = 64;

/// A command as it came: its payload, or why that cannot be read.
#[derive(Debug)]
pub enum Command {
    /// Start a workload.
    Start(Result<Box<Start>, PayloadError>),
    /// Delete an instance, or remove it from this node.
    Delete(Result<Delete, PayloadError>),
    /// Stop everything and take no more work.
    Evacuate(Result<Evacuate, PayloadError>),
    /// Take work again.
    Restore(Result<Restore, PayloadError>),
    /// Attach a volume to an instance.
    AttachVolume(Result<AttachVolume, PayloadError>),
    /// Stop an instance where it is, so that its vcpus are free.
    Suspend(Result<Suspend, PayloadError>),
    /// Have a suspended instance go on.
    Resume(Result<Resume, PayloadError>),
    /// Change what an instance may take.
    Update(Result<Box<Update>, PayloadError>),
    /// Ship an instance to another node.
    Migrate(Result<Migrate, PayloadError>),
    /// A STATS was heard: its lease counts.
    LeaseRenewed(Result<LeaseRenewed, PayloadError>),
    /// Something that this node said does not count, or not all of it: for people.
    Refused(Result<CommandRefused, PayloadError>),
    /// What the node offers, and how what runs on it is counted.
    Capacity(Result<Box<NodeCapacity>, PayloadError>),
    /// Ends are on record.
    EndsRecorded(Result<EndsRecorded, PayloadError>),
}

impl Command {
    /// The command in this frame; `None` for frames that are no command to a launcher. Payload errors are inside the
    /// value: the agent has to answer them. A UUID of an instance in capitals is the same instance's.
    #[must_use]
    pub fn decode(frame: &Frame) -> Option<Self> {
        let mut command = Self::as_written(frame)?;
        if let Some(instance) = command.instance_mut() {
            make_usual(instance);
        }
        Some(command)
    }

    /// The identifier of the instance that it is about, where it is about one.
    fn instance_mut(&mut self) -> Option<&mut String> {
        Some(match self {
            Self::Start(Ok(it)) => &mut it.instance_uuid,
            Self::Delete(Ok(it)) => &mut it.instance_uuid,
            Self::AttachVolume(Ok(it)) => &mut it.instance_uuid,
            Self::Suspend(Ok(it)) => &mut it.instance_uuid,
            Self::Resume(Ok(it)) => &mut it.instance_uuid,
            Self::Update(Ok(it)) => &mut it.instance_uuid,
            Self::Migrate(Ok(it)) => &mut it.instance_uuid,
            _ => return None,
        })
    }

    fn as_written(frame: &Frame) -> Option<Self> {
        let payload = &frame.payload;
        Some(match frame.kind {
            Kind::START => Self::Start(overrides::decode_start(payload).map(Box::new)),
            Kind::DELETE => Self::Delete(Delete::decode(payload)),
            Kind::EVACUATE => Self::Evacuate(Evacuate::decode(payload)),
            Kind::RESTORE => Self::Restore(Restore::decode(payload)),
            Kind::ATTACH_VOLUME => Self::AttachVolume(AttachVolume::decode(payload)),
            Kind::SUSPEND => Self::Suspend(Suspend::decode(payload)),
            Kind::RESUME => Self::Resume(Resume::decode(payload)),
            Kind::UPDATE => Self::Update(Update::decode(payload).map(Box::new)),
            Kind::MIGRATE => Self::Migrate(Migrate::decode(payload)),
            Kind::LEASE_RENEWED => Self::LeaseRenewed(LeaseRenewed::decode(payload)),
            Kind::NODE_CAPACITY => Self::Capacity(NodeCapacity::decode(payload).map(Box::new)),
            Kind::COMMAND_REFUSED => Self::Refused(CommandRefused::decode(payload)),
            Kind::ENDS_RECORDED => Self::EndsRecorded(EndsRecorded::decode(payload)),
            _ => return None,
        })
    }
}

impl Agent {
    /// Handles one command.
    pub(super) fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Start(start) => self.start(now, start),
            Command::Delete(delete) => self.delete(now, delete),
            Command::Evacuate(evacuate) => match evacuate {
                Ok(evacuate) if evacuate.mode != EvacuateMode::default() => warn!(
                    event = "command_ignored",
                    mode = evacuate.mode.as_str(),
                    "EVACUATE with a mode is for schedulers; ignored"
                ),
                Ok(evacuate) if self.is_me(&evacuate.workload_agent_uuid) => self.evacuate(now),
                Ok(evacuate) => warn!(
                    event = "command_ignored",
                    node = evacuate.workload_agent_uuid,
                    "EVACUATE for another node ignored"
                ),
                Err(error) => {
                    warn!(event = "command_unreadable", %error, "unreadable EVACUATE ignored")
                }
            },
            Command::Restore(restore) => match restore {
                Ok(restore) if self.is_me(&restore.workload_agent_uuid) => self.restore(now),
                Ok(restore) => warn!(
                    event = "command_ignored",
                    node = restore.workload_agent_uuid,
                    "Restore for another node ignored"
                ),
                Err(error) => {
                    warn!(event = "command_unreadable", %error, "unreadable Restore ignored")
                }
            },
            Command::AttachVolume(attach) => self.attach_volume(attach),
            Command::Suspend(suspend) => self.suspend(now, suspend),
            Command::Resume(resume) => self.resume(now, resume),
            Command::Update(update) => self.update(now, update),
            Command::Migrate(migrate) => self.migrate(migrate),
            Command::LeaseRenewed(renewed) => self.lease_renewed(now, renewed),
            Command::Refused(Ok(it)) => warn!(
                event = "node_report_refused",
                reason = it.reason.as_str(),
                "the scheduler takes {} from this node in part or not at all: {}",
                it.name,
                it.detail
            ),
            Command::Refused(Err(error)) => {
                warn!(event = "command_unreadable", %error, "unreadable CommandRefused ignored")
            }
            Command::Capacity(told) => self.capacity_received(now, told),
            Command::EndsRecorded(recorded) => self.ends_recorded(now, recorded),
        }
    }

    /// Handles START: begins the instance, or refuses it. Every START counts in `starts_seen`, also a refused one, by
    /// which READY says how many STARTs its figures include.
    fn start(&mut self, now: Instant, start: Result<Box<Start>, PayloadError>) {
        if let Link::Up { starts_seen, .. } = &mut self.link {
            *starts_seen += 1;
        }
        match start {
            Ok(start) => match self.admit(now, &start) {
                Ok(demand) => self.begin(now, &start, demand),
                Err((reason, detail)) => {
                    debug!(instance = start.instance_uuid, detail, "START refused");
                    self.refuse_start(&start.instance_uuid, reason, start.restart, detail);
                }
            },
            Err(error) => {
                warn!(event = "command_unreadable", %error, "unreadable START refused");
                let reason = match error.kind() {
                    PayloadErrorKind::InvalidPayload => StartFailureReason::InvalidPayload,
                    PayloadErrorKind::InvalidData => StartFailureReason::InvalidData,
                };
                self.refuse_start("", reason, false, error.to_string());
            }
        }
        self.report_soon(now);
    }

    /// Whether the workload can be started here, and what it will hold.
    ///
    /// In this order: the instance must not be here already, the node must be in service, the START complete, the state
    /// directory writable, the resources free, and the lease valid if it takes one.
    ///
    /// # Errors
    /// The reason in StartFailure, and an explanation for people.
    fn admit(&self, now: Instant, start: &Start) -> Result<Demand, (StartFailureReason, String)> {
        // An id whose instance has ended may be started again: its ends stay numbered and are told beside the other
        // run's.
        if let Some(instance) = self.instances.get(&start.instance_uuid) {
            match instance.state {
                InstancePhase::Starting
                | InstancePhase::Running
                | InstancePhase::Suspending
                | InstancePhase::Suspended
                | InstancePhase::Resuming
                | InstancePhase::Backoff { .. } => {
                    return Err((
                        StartFailureReason::AlreadyRunning,
                        "the instance runs here".to_owned(),
                    ));
                }
                InstancePhase::Stopping { .. } => {
                    return Err((
                        StartFailureReason::InstanceExists,
                        "the instance is being stopped here".to_owned(),
                    ));
                }
                InstancePhase::Exited { .. } | InstancePhase::Gone { .. } => {}
            }
        }
        match self.duty {
            Duty::InService => {}
            Duty::Maintenance => {
                return Err((
                    StartFailureReason::NodeMaintenance,
                    "the node is evacuated".to_owned(),
                ));
            }
            Duty::Leaving => {
                return Err((
                    StartFailureReason::NodeMaintenance,
                    "the node's launcher is ending".to_owned(),
                ));
            }
        }
        let demand = self
            .check(start)
            .map_err(|detail| (StartFailureReason::InvalidData, detail))?;
        // Without a record a later launcher would not know of what runs. To the scheduler the node is full.
        if let Some(fault) = &self.storage_fault {
            return Err((
                StartFailureReason::FullComputeNode,
                format!("the node cannot keep a record of it: {fault}"),
            ));
        }
        self.check_room(&demand)
            .map_err(|detail| (StartFailureReason::FullComputeNode, detail))?;
        // The instance would be killed at once by its supervisor.
        if self.takes_lease(start) && !self.lease_holds(now) {
            return Err((
                StartFailureReason::LaunchFailure,
                "the node's lease is over".to_owned(),
            ));
        }
        Ok(demand)
    }

    /// Whether the START says everything needed, and only what can be done. It is hostile input: the instance's id
    /// becomes a directory's name.
    ///
    /// # Errors
    /// An explanation that names the key.
    fn check(&self, start: &Start) -> Result<Demand, String> {
        if !is_file_name(&start.instance_uuid) {
            return Err(format!(
                "start.instance_uuid: must be 1 to {MAX_INSTANCE_ID_LEN} letters, digits, '-', '_' or '.', not starting with '.'"
            ));
        }
        match self.settings.runs {
            Runs::Processes => check_process(start)?,
            Runs::Named(name) if start.vm_type != name => {
                let other = &start.vm_type;
                return Err(format!(
                    "start.vm_type: this node runs '{name}', not '{other}'"
                ));
            }
            Runs::Named(_) | Runs::Anything => {}
        }
        let requirements = &start.requirements;
        let disk_mb = start.disk_mib().ok_or("start.storage: too large")?;
        let resources = resources(start)?;
        self.check_names(&resources)
            .map_err(|detail| format!("start.scheduling.resources: {detail}"))?;
        Ok(Demand {
            mem_mb: requirements.mem_mb,
            vcpus: requirements.vcpus,
            disk_mb,
            resources,
        })
    }

    /// Handles DELETE. With `stop` the instance is only removed from this node. The answer to a valid one is the end
    /// itself.
    fn delete(&mut self, now: Instant, delete: Result<Delete, PayloadError>) {
        let delete = match delete {
            Ok(delete) => delete,
            Err(error) => {
                warn!(event = "command_unreadable", %error, "unreadable DELETE refused");
                let reason = match error.kind() {
                    PayloadErrorKind::InvalidPayload => DeleteFailureReason::InvalidPayload,
                    PayloadErrorKind::InvalidData => DeleteFailureReason::InvalidData,
                };
                return self.refuse_delete("", reason);
            }
        };
        let id = delete.instance_uuid.as_str();
        let agent = delete.workload_agent_uuid.as_str();
        if !agent.is_empty() && !self.is_me(agent) {
            warn!(
                event = "command_refused",
                instance = id,
                node = agent,
                "DELETE for another node refused"
            );
            return self.refuse_delete(id, DeleteFailureReason::InvalidData);
        }
        match self.instances.get(id).map(|instance| instance.state) {
            // Gone: only its end is left here, until the scheduler has it on record.
            None | Some(InstancePhase::Gone { .. }) => {
                self.refuse_delete(id, DeleteFailureReason::NoInstance)
            }
            Some(_) if delete.stop => self.stop(now, id, Removal::Stopped),
            Some(_) => self.stop(now, id, Removal::Deleted),
        }
    }

    /// Sends DeleteFailure.
    fn refuse_delete(&mut self, id: &str, reason: DeleteFailureReason) {
        let node_uuid = self.settings.node_uuid.to_string();
        self.send(Message::DeleteFailure(DeleteFailure {
            node_uuid,
            instance_uuid: id.to_owned(),
            reason,
        }));
    }

    /// Handles EVACUATE: stops everything and takes no more work, also after a restart, until RESTORE.
    fn evacuate(&mut self, now: Instant) {
        // A launcher that is ending stays in that state. On a node that is evacuated already, only what runs is
        // stopped.
        if self.duty == Duty::InService {
            self.duty = Duty::Maintenance;
            self.order(AgentAction::PersistMaintenance(true));
        }
        self.stop_all(now);
        self.report_soon(now);
    }

    /// Handles RESTORE: work is taken again. While the launcher is ending it changes nothing.
    fn restore(&mut self, now: Instant) {
        if self.duty == Duty::Maintenance {
            self.duty = Duty::InService;
            self.order(AgentAction::PersistMaintenance(false));
        }
        self.report_soon(now);
    }

    /// Refuses AttachVolume: processes have no volumes.
    fn attach_volume(&mut self, attach: Result<AttachVolume, PayloadError>) {
        let (instance_uuid, volume_uuid, reason) = match attach {
            Ok(attach) => {
                let known = self
                    .instances
                    .get(&attach.instance_uuid)
                    .is_some_and(|instance| instance.is_live());
                let reason = if known {
                    AttachVolumeFailureReason::NotSupported
                } else {
                    AttachVolumeFailureReason::NoInstance
                };
                (attach.instance_uuid, attach.volume_uuid, reason)
            }
            Err(error) => {
                warn!(event = "command_unreadable", %error, "unreadable AttachVolume refused");
                let reason = match error.kind() {
                    PayloadErrorKind::InvalidPayload => AttachVolumeFailureReason::InvalidPayload,
                    PayloadErrorKind::InvalidData => AttachVolumeFailureReason::InvalidData,
                };
                (String::new(), String::new(), reason)
            }
        };
        let node_uuid = self.settings.node_uuid.to_string();
        let failure = AttachVolumeFailure {
            node_uuid,
            instance_uuid,
            volume_uuid,
            reason,
        };
        self.send(Message::AttachVolumeFailure(failure));
    }

    /// Whether an instance runs here, or is about to.
    pub(crate) fn has_live(&self, id: &str) -> bool {
        self.instances
            .get(id)
            .is_some_and(|instance| instance.is_live())
    }

    /// Whether a node's UUID in a command is this node's. UUIDs are compared, not texts.
    pub(super) fn is_me(&self, node_uuid: &str) -> bool {
        node_uuid.parse() == Ok(self.settings.node_uuid)
    }
}

/// Whether an instance id can name a directory and nothing but that.
pub(crate) fn is_file_name(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_INSTANCE_ID_LEN).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(allowed)
}

/// The further resources that the START asks for. Of what `scheduling` says, they are all that a node checks: the rest
/// was decided when the node was chosen.
fn resources(start: &Start) -> Result<BTreeMap<String, i64>, String> {
    let Some(scheduling) = &start.scheduling else {
        return Ok(BTreeMap::new());
    };
    match scheduling.resources.iter().find(|(_, amount)| **amount < 0) {
        Some((name, amount)) => Err(format!(
            "start.scheduling.resources.{name}: must not be negative, is {amount}"
        )),
        None => Ok(scheduling.resources.clone()),
    }
}

/// What a START for a process must have: `vm_type: process`, a program or an image, and arguments and variables that
/// `execve` takes.
fn check_process(start: &Start) -> Result<(), String> {
    if start.vm_type != "process" {
        return Err(format!(
            "start.vm_type: this node runs 'process', not '{}'",
            start.vm_type
        ));
    }
    if start.image.is_empty() && start.command.first().is_none_or(String::is_empty) {
        return Err("start.command: must name a program".to_owned());
    }
    if start
        .command
        .iter()
        .chain(start.env.values())
        .any(|text| text.contains('\0'))
    {
        return Err("start.command, start.env: must not hold a null byte".to_owned());
    }
    if let Some(name) = start
        .env
        .keys()
        .find(|name| name.is_empty() || name.contains(['=', '\0']))
    {
        return Err(format!("start.env: {name:?} cannot name a variable"));
    }
    Ok(())
}
