//! Who asked for what is in the log.

use proto_frames::payload::{Evacuate, EvacuateMode, Payload, Restore, RestoreMode};
use proto_frames::{Kind, Uuid};

use crate::site::Site;
use crate::words::{delete, instance};

#[tokio::test]
async fn every_command_is_logged_with_subject_role_and_address_and_starts_for_who_looks_closer() {
    let site = Site::new();
    let daemon = site.start(&["-v=1"]).await;
    let mut node = site.node(&daemon).await;
    node.ready(4096).await;
    node.nothing_else().await;
    let mut operator = site.operator(&daemon).await;
    let node_uuid = node.uuid.to_string();
    let evacuate = |mode: EvacuateMode| Evacuate {
        workload_agent_uuid: node_uuid.clone(),
        mode,
        ..Evacuate::default()
    };
    operator.start(instance(1), 64).await;
    operator
        .send(Kind::EVACUATE, evacuate(EvacuateMode::Cordon).encode())
        .await;
    operator
        .send(Kind::EVACUATE, evacuate(EvacuateMode::Relocate).encode())
        .await;
    let restore = Restore {
        workload_agent_uuid: node_uuid.clone(),
        mode: RestoreMode::Uncordon,
    };
    operator.send(Kind::RESTORE, restore.encode()).await;
    operator
        .send(Kind::DELETE, delete(instance(1), node.uuid))
        .await;
    let who = format!(" by O=ciao (OPERATOR {}, 127.0.0.1:", operator.uuid);
    let at = |uuid: Uuid| uuid.to_string();
    for (level, what) in [
        (
            "DEBUG",
            format!("COMMAND START of instance {}", at(instance(1))),
        ),
        (
            "INFO",
            format!("COMMAND EVACUATE of node {node_uuid} (cordon)"),
        ),
        (
            "INFO",
            format!("COMMAND EVACUATE of node {node_uuid} (relocate)"),
        ),
        (
            "INFO",
            format!("COMMAND Restore of node {node_uuid} (uncordon)"),
        ),
        (
            "INFO",
            format!(
                "COMMAND DELETE of instance {} on node {node_uuid}",
                at(instance(1))
            ),
        ),
    ] {
        let line = daemon.logged(&format!("{what}{who}")).await;
        assert!(line.contains(&format!(" {level} ")), "{line}");
    }
}
