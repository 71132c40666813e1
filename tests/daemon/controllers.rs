//! Controllers and operators: standing, promotion, what a backup may do, queries and watches.

use proto_frames::payload::{
    ControllerRole, InstancePlaced, Payload, PlacementState, QueryKind, RefusalReason, Snapshot,
    StartFailureReason, Topic,
};
use proto_frames::{Encoding, Kind, Role};

use crate::site::Site;
use crate::words::{PLENTY, attach_volume, delete, instance, start, start_of};

#[tokio::test]
async fn the_first_controller_is_master_and_the_next_is_promoted_when_it_leaves() {
    let (site, daemon, master) = Site::with_master().await;
    let mut backup = site.backup(&daemon).await;
    master.close().await;
    backup.expect_role(ControllerRole::Master).await;
    let page = backup.expect(Kind::SNAPSHOT).await;
    let page = Snapshot::decode(&page.payload).unwrap();
    assert!(page.last && page.nodes.is_empty() && page.instances.is_empty());
    backup.start(instance(1), 100).await;
    backup
        .expect_failure(StartFailureReason::NoComputeNodes)
        .await;
    backup.nothing_else().await;
}

#[tokio::test]
async fn a_backups_commands_are_refused_in_the_native_encoding_and_ignored_in_gob() {
    let (site, daemon, mut master, mut node) = Site::with_ready_node().await;
    node.nothing_else().await;

    let mut native = site.backup(&daemon).await;
    native.expect_node().await;
    let mut gob = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    gob.expect_node().await;

    let commands = [
        (Kind::START, start(instance(1), 1)),
        (Kind::DELETE, delete(instance(1), node.uuid)),
        (Kind::ATTACH_VOLUME, attach_volume(instance(1), node.uuid)),
        (Kind::CONFIGURE, "configure: {}\n".into()),
    ];
    for (kind, payload) in commands {
        gob.send(kind, payload.clone()).await;
        native.send(kind, payload).await;
        let refused = native.expect_refused().await;
        assert_eq!(refused.reason, RefusalReason::NotMaster, "{kind}");
        assert_eq!((refused.ty, refused.operand), (kind.ty.0, kind.operand));
        assert_eq!(refused.name, kind.to_string());
        if kind != Kind::CONFIGURE {
            assert_eq!(refused.instance_uuid, Some(instance(1).to_string()));
        }
    }
    gob.nothing_else().await;
    native.nothing_else().await;
    node.nothing_else().await;
    master.nothing_else().await;
}

#[tokio::test]
async fn a_launcher_may_not_command_and_is_told_so_in_the_native_encoding() {
    let (_site, daemon, mut master, mut node) = Site::with_ready_node().await;
    for _ in 0..3 {
        node.start(instance(1), 1).await;
        let refused = node.expect_refused().await;
        assert_eq!(refused.reason, RefusalReason::NotPermitted);
    }
    node.nothing_else().await;
    master.nothing_else().await;
    daemon.logged("refused COMMAND START").await;
    let log = daemon.log();
    let said = log
        .iter()
        .filter(|line| line.contains("refused COMMAND START"));
    assert_eq!(said.count(), 1, "once per peer and kind");
}

#[tokio::test]
async fn a_late_controller_is_told_of_every_node_there() {
    let (site, daemon) = Site::running().await;
    let mut nodes = Vec::new();
    for role in [Role::AGENT, Role::NETAGENT, Role::AGENT | Role::NETAGENT] {
        let mut node = site.connect(&daemon, role, Encoding::Gob).await;
        node.nothing_else().await;
        nodes.push(node);
    }
    let mut late = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    for node in &nodes {
        assert_eq!(late.expect_node().await, node.uuid);
    }
    // The one with both roles is announced as both.
    assert_eq!(late.expect_node().await, nodes[2].uuid);
    late.nothing_else().await;
}

#[tokio::test]
async fn stats_go_to_every_controller_byte_for_byte_and_to_nobody_else() {
    let (site, daemon) = Site::running().await;
    let mut first = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let mut second = site.backup(&daemon).await;
    let mut operator = site.operator(&daemon).await;
    let mut node = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    first.expect_node().await;
    second.expect_node().await;
    let payload = format!("node_uuid: {}  # odd\nload:   3\n", node.uuid);
    node.send(Kind::STATS, payload.clone()).await;
    for controller in [&mut first, &mut second] {
        assert_eq!(controller.expect(Kind::STATS).await.payload, payload);
        controller.nothing_else().await;
    }
    node.nothing_else().await;
    operator.nothing_else().await;
}

#[tokio::test]
async fn stats_of_another_node_are_not_carried_on() {
    let (site, daemon, mut master) = Site::with_master().await;
    let (mut node, victim) = (site.node(&daemon).await, site.node(&daemon).await);
    master.expect_node().await;
    master.expect_node().await;
    let forged = format!("node_uuid: {}\nstatus: READY\n", victim.uuid);
    node.send(Kind::STATS, forged).await;
    let forged = format!(
        "node_uuid: {}\ninstance_uuid: {}\nreason: full_cn\nrestart: false\n",
        victim.uuid,
        instance(1)
    );
    node.send(Kind::START_FAILURE, forged).await;
    node.nothing_else().await;
    master.nothing_else().await;
    daemon.logged("it speaks for node").await;
}

#[tokio::test]
async fn an_operator_sees_nodes_instances_and_controllers() {
    let (site, daemon) = Site::running().await;
    let mut operator = site.operator(&daemon).await;
    let mut master = site.master(&daemon).await;
    let mut node = site.node(&daemon).await;
    master.expect_node().await;
    node.ready(1000).await;
    node.nothing_else().await;
    master.start(instance(1), 300).await;
    node.expect_start().await;

    let view = operator.node_view(node.uuid).await.unwrap();
    assert_eq!(view.status, "READY");
    assert_eq!(view.roles, "AGENT");
    assert_eq!((view.mem_available_mb, view.mem_free_mb), (1000, 700));
    assert_eq!((view.instances, view.unconfirmed), (1, 1));
    assert!(view.most_recently_used);

    let instances = operator.query(QueryKind::Instances).await.instances;
    assert_eq!(instances.len(), 1);
    assert_eq!(instances[0].instance_uuid, instance(1).to_string());
    assert_eq!(instances[0].node_uuid, node.uuid.to_string());
    assert_eq!(instances[0].state, PlacementState::Placed);

    node.stats(&[instance(1)]).await;
    node.nothing_else().await;
    let instances = operator.query(QueryKind::Instances).await.instances;
    assert_eq!(instances[0].state, PlacementState::Running);
    assert_eq!(instances[0].reported.as_deref(), Some("active"));

    let controllers = operator.query(QueryKind::Controllers).await.controllers;
    let roles: Vec<_> = controllers
        .iter()
        .map(|view| (view.uuid.clone(), view.standing.clone()))
        .collect();
    assert!(roles.contains(&(master.uuid.to_string(), ControllerRole::Master)));
    assert!(roles.contains(&(operator.uuid.to_string(), ControllerRole::Operator)));
}

#[tokio::test]
async fn a_query_is_for_peers_of_the_native_encoding() {
    let (site, daemon) = Site::running().await;
    let mut gob = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    gob.send(Kind::QUERY, "query: {id: 1, what: nodes}\n").await;
    gob.nothing_else().await;
}

#[tokio::test]
async fn an_operator_commands_beside_the_master_and_gets_its_own_answers() {
    let (site, daemon) = Site::running().await;
    let mut operator = site.operator(&daemon).await;
    operator.start(instance(1), 10).await;
    operator
        .expect_failure(StartFailureReason::NoComputeNodes)
        .await;
    let mut master = site.master(&daemon).await;
    operator.start(instance(2), 10).await;
    operator
        .expect_failure(StartFailureReason::NoComputeNodes)
        .await;
    master.nothing_else().await;

    let mut node = site.node(&daemon).await;
    master.expect_node().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    operator.start(instance(3), 10).await;
    assert_eq!(node.expect_start().await, instance(3));
    operator.nothing_else().await;
}

#[tokio::test]
async fn an_operator_hears_what_it_watches_and_no_longer_once_it_stops() {
    let (site, daemon) = Site::running().await;
    let mut operator = site.operator(&daemon).await;
    operator
        .watch(&[Topic::Nodes, Topic::Placements, Topic::Stats])
        .await;
    operator.nothing_else().await;
    let mut master = site.master(&daemon).await;
    let mut node = site.node(&daemon).await;
    assert_eq!(operator.expect_node().await, node.uuid);
    master.expect_node().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    master.start(instance(1), 1).await;
    let placed = operator.expect(Kind::INSTANCE_PLACED).await;
    let placed = InstancePlaced::decode(&placed.payload).unwrap();
    assert_eq!(placed.instance_uuid, instance(1).to_string());
    assert_eq!(placed.node_uuid, node.uuid.to_string());
    node.expect_start().await;
    node.stats(&[instance(1)]).await;
    operator.expect(Kind::STATS).await;

    operator.watch(&[]).await;
    operator.nothing_else().await;
    node.stats(&[instance(1)]).await;
    node.close().await;
    master.skip_to(Kind::NODE_DISCONNECTED).await;
    operator.nothing_else().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_answered_in_the_words_of_its_kind() {
    let (site, daemon) = Site::running().await;
    let mut gob = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    gob.send(Kind::START, "start: [\n").await;
    gob.expect_failure(StartFailureReason::InvalidPayload).await;
    gob.send(Kind::START, "").await;
    gob.expect_failure(StartFailureReason::InvalidPayload).await;
    let mut negative = start_of(instance(1), 0);
    negative.requirements.mem_mb = -1;
    gob.send(Kind::START, negative.encode()).await;
    gob.expect_failure(StartFailureReason::InvalidData).await;
    daemon.logged("start.requirements.mem_mb").await;
    gob.send(Kind::DELETE, "delete: 7\n").await;
    gob.expect(Kind::DELETE_FAILURE).await;
    gob.send(Kind::ATTACH_VOLUME, "attach_volume: {}\n").await;
    gob.expect(Kind::ATTACH_VOLUME_FAILURE).await;
    gob.nothing_else().await;
}

#[tokio::test]
async fn commands_for_a_node_that_is_not_there_are_answered() {
    let (site, daemon) = Site::running().await;
    let mut gob = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let unknown = proto_frames::Uuid::from_u128(0xdead);
    gob.send(Kind::DELETE, delete(instance(1), unknown)).await;
    let failure = gob.expect(Kind::DELETE_FAILURE).await;
    assert!(
        failure
            .payload
            .ends_with(b"reason: no_instance\n".as_slice())
    );
    gob.send(Kind::ATTACH_VOLUME, attach_volume(instance(1), unknown))
        .await;
    let failure = gob.expect(Kind::ATTACH_VOLUME_FAILURE).await;
    assert!(
        failure
            .payload
            .ends_with(b"reason: no_instance\n".as_slice())
    );
    gob.nothing_else().await;

    let mut operator = site.operator(&daemon).await;
    let payload = format!("evacuate:\n  workload_agent_uuid: {unknown}\n");
    operator.send(Kind::EVACUATE, payload).await;
    assert_eq!(
        operator.expect_refused().await.reason,
        RefusalReason::NoSuchNode
    );
}
