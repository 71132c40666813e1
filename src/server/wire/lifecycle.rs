//! Commands on what runs, and on nodes, and what launchers say of them: checked here, because their payloads reach the
//! core as they are.
//!
//! Each reader does the same three things: decode, let the payload check itself (`check`: what must be there, what
//! excludes what), and check the identifiers. Nodes may be left out where the scheduler knows which one has the
//! instance.

use proto_frames::payload::{
    CommandFailure, Evacuate, InstanceStateEvent, Migrate, Payload, Restore, Resume, Suspend,
    Update,
};

use super::inputs::Unusable;
use super::names::check_names;
use sched_core::{Command, InstanceId, Report, Target};

/// EVACUATE. By its `mode` also: move the instances away, cordon, abort or check a drain, forget a lost node; without
/// one, the launcher stops all.
pub(super) fn evacuate(payload: &[u8]) -> Result<Command, Unusable> {
    let it = Evacuate::decode(payload)?;
    it.check()?;
    check_names(&[("evacuate.workload_agent_uuid", &it.workload_agent_uuid)])?;
    Ok(Command::Evacuate(Box::new(it)))
}

/// Restore: a node takes work again.
pub(super) fn restore(payload: &[u8]) -> Result<Command, Unusable> {
    let it = Restore::decode(payload)?;
    it.check()?;
    check_names(&[("restore.workload_agent_uuid", &it.workload_agent_uuid)])?;
    Ok(Command::Restore(Box::new(it)))
}

/// SUSPEND: an instance stops, keeps its memory and disk, and gives its vcpus free.
pub(super) fn suspend(payload: &[u8]) -> Result<Command, Unusable> {
    let it = Suspend::decode(payload)?;
    it.check()?;
    let key = "suspend.instance_uuid";
    let target = named(key, &it.instance_uuid, it.workload_agent_uuid)?;
    Ok(Command::Suspend(target))
}

/// RESUME: let a suspended instance go on.
pub(super) fn resume(payload: &[u8]) -> Result<Command, Unusable> {
    let it = Resume::decode(payload)?;
    it.check()?;
    let key = "resume.instance_uuid";
    let target = named(key, &it.instance_uuid, it.workload_agent_uuid)?;
    Ok(Command::Resume(target))
}

/// MIGRATE: move an instance, to a node of the sender's choice or of the scheduler's.
pub(super) fn migrate(payload: &[u8]) -> Result<Command, Unusable> {
    let it = Migrate::decode(payload)?;
    it.check()?;
    check_names(&[
        ("migrate.instance_uuid", &it.instance_uuid),
        ("migrate.workload_agent_uuid", &it.workload_agent_uuid),
        ("migrate.target_node_uuid", &it.target_node_uuid),
    ])?;
    Ok(Command::Migrate(Box::new(it)))
}

/// UPDATE: other amounts or another priority for an instance.
pub(super) fn update(payload: &[u8]) -> Result<Command, Unusable> {
    let it = Update::decode(payload)?;
    it.check()?;
    check_names(&[
        ("update.instance_uuid", &it.instance_uuid),
        ("update.workload_agent_uuid", &it.workload_agent_uuid),
    ])?;
    Ok(Command::Update(Box::new(it)))
}

/// CommandFailure: a launcher could not do what it was told. Its node is the sender's session.
pub(super) fn command_failed(payload: &[u8]) -> Result<Report, Unusable> {
    let it = CommandFailure::decode(payload)?;
    check_names(&[("command_failure.instance_uuid", &it.instance_uuid)])?;
    Ok(Report::CommandFailed(Box::new(it)))
}

/// InstanceState: a launcher says that an instance was suspended, resumed, updated or the like.
pub(super) fn instance_state(payload: &[u8]) -> Result<Report, Unusable> {
    let it = InstanceStateEvent::decode(payload)?;
    check_names(&[("instance_state.instance_uuid", &it.instance_uuid)])?;
    Ok(Report::InstanceState(Box::new(it)))
}

/// The instance that a command names, on the node that it names; an empty node stands for wherever the instance is.
fn named(key: &'static str, instance: &str, node: String) -> Result<Target, Unusable> {
    check_names(&[(key, instance), ("workload_agent_uuid", &node)])?;
    Ok(Target {
        instance: InstanceId::new(instance),
        node: node.into(),
    })
}
