//! Peers come and go.

use proto_frames::payload::{ControllerRole, NodeType, Query, QueryKind, RefusalReason, Topic};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    BindingRecord, Command, Config, Dialect, Hello, MAX_BINDINGS, Message, Record, RecordKey,
    RefusedConnect, Restored, Rules, Sent, Target,
};

use crate::support::world::{Size, World, config, id, node_uuid};

fn node_events(told: Vec<Message>) -> Vec<(bool, String, NodeType)> {
    told.into_iter()
        .filter_map(|message| match message {
            Message::NodeConnected(event) => Some((true, event.node_uuid, event.node_type)),
            Message::NodeDisconnected(event) => Some((false, event.node_uuid, event.node_type)),
            _ => None,
        })
        .collect()
}

#[test]
fn the_first_thing_a_peer_hears_is_connected() {
    let (mut world, controller) = World::new().with_controller();
    assert!(matches!(
        world.told(controller)[0],
        Message::Connected { .. }
    ));
    let node = world.silent_node(1);
    assert!(matches!(world.told_once(node), Message::Connected { .. }));
}

#[test]
fn every_controller_hears_of_every_node_once() {
    let mut world = World::new();
    let early = world.original_controller();
    let node = world.silent_node(1);
    let on_network = world.join(Role::NETAGENT, node_uuid(2), Dialect::Original);
    let late = world.original_controller();
    let expected = [
        (true, node_uuid(1).to_string(), NodeType::Compute),
        (true, node_uuid(2).to_string(), NodeType::Network),
    ];
    assert_eq!(node_events(world.told(early)), expected);
    assert_eq!(node_events(world.told(late)), expected);
    world.cut(on_network);
    world.cut(node);
    let expected = [
        (false, node_uuid(2).to_string(), NodeType::Network),
        (false, node_uuid(1).to_string(), NodeType::Compute),
    ];
    assert_eq!(node_events(world.told(early)), expected);
    assert_eq!(node_events(world.told(late)), expected);
}

#[test]
fn a_node_with_both_roles_is_announced_as_both_and_its_loss_is_told_once() {
    let mut world = World::new();
    let early = world.original_controller();
    let both = world.join(
        Role::AGENT | Role::NETAGENT,
        node_uuid(1),
        Dialect::Original,
    );
    let late = world.original_controller();
    world.cut(both);
    let name = node_uuid(1).to_string();
    let expected = [
        (true, name.clone(), NodeType::Compute),
        (true, name.clone(), NodeType::Network),
        (false, name, NodeType::Compute),
    ];
    assert_eq!(node_events(world.told(early)), expected);
    assert_eq!(node_events(world.told(late)), expected);
}

#[test]
fn a_concentrators_agent_is_no_node() {
    let mut world = World::new();
    let controller = world.original_controller();
    let agent = world.join(Role::CNCIAGENT, Uuid::from_u128(7), Dialect::Original);
    world.cut(agent);
    assert_eq!(node_events(world.told(controller)), []);
}

#[test]
fn a_newer_connection_takes_the_nodes_place_and_no_one_notices() {
    let (mut world, controller, [old, other]) = World::new().with_nodes([100, 100]);
    assert_eq!(world.place(controller, "a", 1), Some(old));
    world.look_away();
    let new = world.silent_node(1);
    assert_eq!(node_events(world.told(controller)), []);
    world.ready(new, Size::of_mem(100));
    // The old connection's end is reported late, if at all.
    world.cut(old);
    assert_eq!(node_events(world.told(controller)), []);
    assert_eq!(
        world.place(controller, "b", 1),
        Some(other),
        "its place in the order is kept"
    );
    assert_eq!(world.place(controller, "c", 1), Some(new));
}

#[test]
fn a_node_that_comes_back_with_another_role_is_lost_and_found() {
    let (mut world, controller, _) = World::new().with_node(100);
    world.look_away();
    world.join(Role::NETAGENT, node_uuid(1), Dialect::Native);
    let name = node_uuid(1).to_string();
    assert_eq!(
        node_events(world.told(controller)),
        [
            (false, name.clone(), NodeType::Compute),
            (true, name, NodeType::Network)
        ]
    );
}

#[test]
fn a_bound_uuid_is_refused_to_every_other_certificate() {
    let mut world = World::new();
    let hello = |bound| Hello {
        uuid: node_uuid(1),
        role: Role::AGENT,
        dialect: Dialect::Original,
        bound,
        certificate_ends_s: None,
        address: None,
        certificate: None,
        subject: None,
    };
    assert!(world.knock(hello(false)).is_ok(), "nobody has bound it yet");
    assert!(world.knock(hello(true)).is_ok());
    assert_eq!(
        world.knock(hello(false)),
        Err(RefusedConnect::BoundElsewhere)
    );
    assert!(world.knock(hello(true)).is_ok());
}

fn operator(number: usize, bound: bool) -> Hello {
    Hello {
        bound,
        ..Hello::native(Uuid::from_u128(number as u128), Role::OPERATOR)
    }
}

#[test]
fn a_bound_uuid_is_remembered_over_a_crash() {
    let durable = || Config {
        durable: true,
        ..config()
    };
    let mut world = World::with(durable());
    let session = world.knock(operator(1, true)).unwrap();
    world.cut(session);
    for _ in 0..2 {
        world.crash(durable(), Rules::default());
        assert_eq!(
            world.knock(operator(1, false)),
            Err(RefusedConnect::BoundElsewhere)
        );
        assert!(world.knock(operator(2, false)).is_ok());
    }
    assert!(world.knock(operator(1, true)).is_ok());
}

#[test]
fn beyond_the_limit_a_bound_uuid_is_its_certificates_while_that_is_there() {
    let binding = |number| Restored {
        key: RecordKey::Binding(Uuid::from_u128(number as u128)),
        record: Record::Binding(BindingRecord::default()),
        start: None,
    };
    let mut world = World::with(Config {
        restored: (1..=MAX_BINDINGS).map(binding).collect(),
        ..config()
    });
    let beyond = MAX_BINDINGS + 1;
    let session = world.knock(operator(beyond, true)).unwrap();
    for number in [1, MAX_BINDINGS, beyond] {
        assert_eq!(
            world.knock(operator(number, false)),
            Err(RefusedConnect::BoundElsewhere)
        );
    }
    world.cut(session);
    assert!(world.knock(operator(beyond, false)).is_ok());
    assert!(world.knock(operator(1, true)).is_ok(), "it is known");
}

#[test]
fn a_peer_must_claim_a_role_its_encoding_has() {
    let mut world = World::new();
    let hello = |role, dialect| Hello {
        dialect,
        ..Hello::native(Uuid::from_u128(1), role)
    };
    assert_eq!(
        world.knock(hello(Role(0), Dialect::Original)),
        Err(RefusedConnect::NoRole)
    );
    assert_eq!(
        world.knock(hello(Role::OPERATOR, Dialect::Original)),
        Err(RefusedConnect::OriginalOperator)
    );
    assert!(world.knock(hello(Role::OPERATOR, Dialect::Native)).is_ok());
    assert_eq!(
        world.knock(hello(Role::VIEWER, Dialect::Original)),
        Err(RefusedConnect::OriginalOperator)
    );
    for other in [Role::CONTROLLER, Role::OPERATOR, Role::AGENT] {
        assert_eq!(
            world.knock(hello(Role::VIEWER | other, Dialect::Native)),
            Err(RefusedConnect::ViewerAndOther)
        );
    }
}

#[test]
fn a_viewer_hears_what_it_asks_for_and_is_listed_as_one() {
    let mut world = World::new();
    let viewer = world.join(Role::VIEWER, Uuid::from_u128(7), Dialect::Native);
    world.say(viewer, Command::Watch(vec![Topic::Nodes]));
    world.look_away();
    world.node_with(1, 100);
    let told = world.told(viewer);
    assert!(matches!(told[..], [Message::NodeConnected(_)]), "{told:?}");
    let query = Query {
        what: QueryKind::Controllers,
        ..Query::default()
    };
    world.say(viewer, Command::Query(Box::new(query)));
    let told = world.told(viewer);
    let [Message::QueryResult(result)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(result.controllers[0].standing, ControllerRole::Viewer);
}

#[test]
fn an_operator_hears_only_what_it_asks_for() {
    let mut world = World::new();
    let silent = world.operator(&[]);
    let curious = world.operator(&[Topic::Nodes, Topic::Stats]);
    world.look_away();
    let node = world.node_with(1, 100);
    world.stats(node, vec![]);
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    assert_eq!(world.told(silent), []);
    let kinds: Vec<bool> = world
        .told(curious)
        .iter()
        .map(|message| matches!(message, Message::NodeConnected(_)))
        .collect();
    assert_eq!(kinds, [true, false], "NodeConnected and STATS");
}

#[test]
fn commands_on_instances_are_the_master_s_and_the_operators_alone() {
    let mut world = World::new();
    let (_master, backup) = (world.controller(), world.controller());
    let node = world.node_with(1, 100);
    let original = world.original_controller();
    world.look_away();
    let target = || Target {
        instance: id("a"),
        node: "".into(),
    };
    let commands: [fn(Target) -> Command; 4] = [
        Command::Suspend,
        Command::Resume,
        |_| Command::Migrate(Box::default()),
        |_| Command::Update(Box::default()),
    ];
    for command in commands {
        for (peer, reason) in [
            (node, RefusalReason::NotPermitted),
            (backup, RefusalReason::NotMaster),
        ] {
            let command = command(target());
            let name = Sent::from(command.name());
            world.say(peer, command);
            let Message::CommandRefused(refused) = world.told_once(peer) else {
                panic!("{name:?} was not refused");
            };
            assert_eq!((refused.cause.reason(), refused.sent), (reason, name));
        }
        world.say(original, command(target()));
    }
    world.nothing_else();
}

#[test]
fn thousands_of_nodes_that_come_and_go_leave_nothing_behind() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (0..300)
        .map(|number| world.node_with(number, 100))
        .collect();
    for node in &nodes[..299] {
        world.cut(*node);
    }
    world.advance(std::time::Duration::from_secs(60));
    let known = world.scheduler.known_nodes().into_iter();
    let not_lost = known.filter(|node| node.lost_since_ms.is_none());
    let not_lost: Vec<Uuid> = not_lost.map(|node| node.uuid).collect();
    assert_eq!(not_lost, [node_uuid(299)]);
    assert_eq!(world.place(controller, "a", 1), Some(nodes[299]));
}
