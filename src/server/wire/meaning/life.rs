//! Commands on what runs, and on nodes, and what launchers say of them: checked here, because their payloads reach the core
//! as they are.

use proto_frames::Kind;
use proto_frames::payload::{
    CommandFailure, Evacuate, InstanceStateEvent, Migrate, Payload, Restore, Resume, Suspend,
    Update,
};

use super::names::check_names;
use super::{Parsed, Unusable};
use sched_core::{InstanceId, Meaning, Target};

/// What such a frame says.
pub(super) fn of(kind: Kind, payload: &[u8]) -> Parsed {
    match kind {
        Kind::EVACUATE => {
            let it = Evacuate::decode(payload)?;
            it.check()?;
            check_names(&[("evacuate.workload_agent_uuid", &it.workload_agent_uuid)])?;
            Ok(Meaning::Evacuate(Box::new(it)))
        }
        Kind::RESTORE => {
            let it = Restore::decode(payload)?;
            it.check()?;
            check_names(&[("restore.workload_agent_uuid", &it.workload_agent_uuid)])?;
            Ok(Meaning::Restore(Box::new(it)))
        }
        Kind::SUSPEND => {
            let it = Suspend::decode(payload)?;
            it.check()?;
            Ok(Meaning::Suspend(named(
                "suspend.instance_uuid",
                &it.instance_uuid,
                it.workload_agent_uuid,
            )?))
        }
        Kind::RESUME => {
            let it = Resume::decode(payload)?;
            it.check()?;
            Ok(Meaning::Resume(named(
                "resume.instance_uuid",
                &it.instance_uuid,
                it.workload_agent_uuid,
            )?))
        }
        Kind::MIGRATE => {
            let it = Migrate::decode(payload)?;
            it.check()?;
            check_names(&[
                ("migrate.instance_uuid", &it.instance_uuid),
                ("migrate.workload_agent_uuid", &it.workload_agent_uuid),
                ("migrate.target_node_uuid", &it.target_node_uuid),
            ])?;
            Ok(Meaning::Migrate(Box::new(it)))
        }
        Kind::UPDATE => {
            let it = Update::decode(payload)?;
            it.check()?;
            check_names(&[
                ("update.instance_uuid", &it.instance_uuid),
                ("update.workload_agent_uuid", &it.workload_agent_uuid),
            ])?;
            Ok(Meaning::Update(Box::new(it)))
        }
        Kind::COMMAND_FAILURE => {
            let it = CommandFailure::decode(payload)?;
            check_names(&[("command_failure.instance_uuid", &it.instance_uuid)])?;
            Ok(Meaning::CommandFailed(Box::new(it)))
        }
        Kind::INSTANCE_STATE => {
            let it = InstanceStateEvent::decode(payload)?;
            check_names(&[("instance_state.instance_uuid", &it.instance_uuid)])?;
            Ok(Meaning::InstanceState(Box::new(it)))
        }
        _ => Ok(Meaning::Opaque),
    }
}

/// An instance on a node, which may be left out: the scheduler knows who has it.
fn named(key: &'static str, instance: &str, node: String) -> Result<Target, Unusable> {
    check_names(&[(key, instance), ("workload_agent_uuid", &node)])?;
    Ok(Target {
        instance: InstanceId::new(instance),
        node: node.into(),
    })
}
