//! What controllers and operators ask for, in words for the log: who did what is to be found there.
//!
//! Not STARTs, which come by the thousand in a second; an instance's history has them, and its owner.

use sched_core::{Command, Target};

/// What a command is about; `None` for what is no command, and for START.
pub(super) fn object(command: &Command) -> Option<String> {
    // The node as the sender named it.
    let instance =
        |target: &Target| format!("instance {} on node {}", target.instance, target.node);
    Some(match command {
        Command::Delete(target)
        | Command::Stop(target)
        | Command::Suspend(target)
        | Command::Resume(target) => instance(target),
        Command::Forget(target) => format!("instance {}, to be forgotten", target.instance),
        Command::DeleteOutput(delete) => {
            format!("what instance {} has left", delete.instance_uuid)
        }
        Command::AttachVolume { target, volume } => {
            format!("volume {volume} to {}", instance(target))
        }
        Command::Migrate(migrate) => match migrate.target_node_uuid.as_str() {
            "" => format!("instance {}", migrate.instance_uuid),
            node => format!("instance {} to node {node}", migrate.instance_uuid),
        },
        Command::Update(update) => format!("instance {}", update.instance_uuid),
        Command::Evacuate(evacuate) => node(&evacuate.workload_agent_uuid, evacuate.mode.as_str()),
        Command::Restore(restore) => node(&restore.workload_agent_uuid, restore.mode.as_str()),
        Command::Configure(_) => "the cluster configuration".to_owned(),
        Command::AssignPublicIp { agent, .. }
        | Command::ReleasePublicIp { agent, .. }
        | Command::RefreshCnci { agent } => format!("concentrator {agent}"),
        _ => return None,
    })
}

/// The mode in parentheses, where the command has one (`cordon`, `relocate`, …).
fn node(uuid: &str, mode: &str) -> String {
    match mode {
        "" => format!("node {uuid}"),
        mode => format!("node {uuid} ({mode})"),
    }
}
