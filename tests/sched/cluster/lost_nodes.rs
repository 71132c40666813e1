//! Lost nodes stay listed, with what is known of them, until they return or an operator forgets them.

use std::time::Duration;

use ciao_scheduler::server::sim_support;
use proto_frames::payload::{
    CommandRefused, Evacuate, EvacuateMode, InstanceView, NodeView, PlacementState, Query,
    QueryKind, QueryResult, RefusalReason,
};
use sched_core::{
    Command, Departure, IN_DOUBT_TIME, Input, Message, RECOVERY_WINDOW, Rules, SessionId,
    StartRequest,
};

use crate::support::durability::durable;
use crate::support::requests::Asking;
use crate::support::world::{World, node_uuid, request, running};

fn ask(world: &mut World, what: QueryKind, limit: u32, after: Option<String>) -> QueryResult {
    let operator = world.operator(&[]);
    let query = Query {
        what,
        after,
        limit: Some(limit),
        ..Query::default()
    };
    world.say(operator, Command::Query(Box::new(query)));
    let results = world.told_of(operator, |message| match message {
        Message::QueryResult(result) => Some(result.payload),
        _ => None,
    });
    let [result] = <[_; 1]>::try_from(results).expect("one answer");
    result
}

fn nodes(world: &mut World) -> Vec<NodeView> {
    ask(world, QueryKind::Nodes, 100, None).nodes
}

fn instances(world: &mut World) -> Vec<InstanceView> {
    ask(world, QueryKind::Instances, 100, None).instances
}

fn leave_in_order(world: &mut World, session: SessionId) {
    world.handle(Input::Disconnected {
        session,
        unsent: Vec::new(),
        departure: Departure::Closed,
    });
}

fn forget(world: &mut World, number: u64) -> Vec<CommandRefused> {
    let operator = world.operator(&[]);
    let evacuate = Evacuate {
        workload_agent_uuid: node_uuid(number).to_string(),
        mode: EvacuateMode::Forget,
        ..Evacuate::default()
    };
    world.say(operator, Command::Evacuate(Box::new(evacuate)));
    world.told_of(operator, |message| match message {
        Message::CommandRefused(refused) => Some(sim_support::refused(&refused)),
        _ => None,
    })
}

/// A node with a running instance, whose connection has broken off.
fn world_with_a_loss() -> World {
    let (mut world, controller) = World::new().with_controller();
    let node = world.node_with(1, 1000);
    world.start(controller, "a", 100);
    world.stats(node, vec![running("a", 100)]);
    world.cut(node);
    world
}

#[test]
fn a_lost_node_is_listed_before_and_after_it_is_given_up() {
    let mut world = world_with_a_loss();
    world.advance(Duration::from_secs(5));
    let [early] = <[_; 1]>::try_from(nodes(&mut world)).unwrap();
    assert_eq!((&*early.status, early.lost_s), ("LOST", Some(5)));
    assert_eq!(early.connected_s, -1);

    world.advance(IN_DOUBT_TIME);
    let [late] = <[_; 1]>::try_from(nodes(&mut world)).unwrap();
    assert_eq!(late.node_uuid, node_uuid(1).to_string());
    assert_eq!(late.hostname, early.hostname);
    assert_eq!((&*late.status, late.lost_s), ("LOST", Some(20)));
    assert_eq!((&*late.roles, late.instances), ("AGENT", 1));

    world.node_with(1, 1000);
    let [back] = <[_; 1]>::try_from(nodes(&mut world)).unwrap();
    assert_eq!((&*back.status, back.lost_s), ("READY", None));
}

#[test]
fn the_instances_of_a_lost_node_are_lost_and_say_for_how_long_that_counts() {
    let mut world = world_with_a_loss();
    world.advance(Duration::from_secs(5));
    let [row] = <[_; 1]>::try_from(instances(&mut world)).unwrap();
    assert_eq!(row.state, PlacementState::Lost);
    assert_eq!(row.deadline_ms, Some(10_000));
    assert!(!row.hostname.is_empty());
}

#[test]
fn a_node_that_left_in_order_is_listed_only_if_it_had_instances() {
    let (mut world, controller) = World::new().with_controller();
    let empty = world.node_with(1, 1000);
    leave_in_order(&mut world, empty);
    world.advance(IN_DOUBT_TIME);
    assert_eq!(nodes(&mut world), []);

    let node = world.node_with(2, 1000);
    world.start(controller, "a", 100);
    world.stats(node, vec![running("a", 100)]);
    leave_in_order(&mut world, node);
    world.advance(IN_DOUBT_TIME);
    let [row] = <[_; 1]>::try_from(nodes(&mut world)).unwrap();
    assert_eq!((&*row.status, row.instances), ("LOST", 1));
}

#[test]
fn a_broken_connection_is_a_loss_also_of_an_empty_node() {
    let mut world = World::new();
    let node = world.node_with(1, 1000);
    world.cut(node);
    world.advance(IN_DOUBT_TIME);
    assert_eq!(nodes(&mut world)[0].status, "LOST");
}

#[test]
fn a_forgotten_node_is_not_listed_and_a_connected_one_cannot_be_forgotten() {
    let mut world = world_with_a_loss();
    world.advance(IN_DOUBT_TIME);
    assert_eq!(forget(&mut world, 1), []);
    assert_eq!(nodes(&mut world), []);
    assert_eq!(world.scheduler.known_nodes(), []);

    let [refused] = <[_; 1]>::try_from(forget(&mut world, 1)).unwrap();
    assert_eq!(refused.reason, RefusalReason::NoSuchNode);
    world.node_with(2, 1000);
    let [refused] = <[_; 1]>::try_from(forget(&mut world, 2)).unwrap();
    assert_eq!(refused.reason, RefusalReason::Unsupported);
    assert_eq!(nodes(&mut world).len(), 1);
}

#[test]
fn a_node_can_be_forgotten_before_it_is_given_up_and_its_starts_fail_then() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.node_with(1, 1000);
    world.start(controller, "a", 100);
    world.cut(node);
    world.look_away();
    assert_eq!(forget(&mut world, 1), []);
    assert_eq!(world.failures(controller).len(), 1);
    assert_eq!(nodes(&mut world), []);
    world.advance(IN_DOUBT_TIME);
    assert_eq!(nodes(&mut world), []);
}

#[test]
fn known_nodes_are_expected_after_a_restart_and_lost_once_the_window_is_over() {
    let mut world = world_with_a_loss();
    world.advance(IN_DOUBT_TIME);
    world.node_with(2, 1000);
    let known_nodes = world.scheduler.known_nodes();
    let config = sched_core::Config {
        known_nodes,
        start_unix_ms: 1_000_000,
        ..durable()
    };
    world.restart(config, Rules::default());
    let status = |world: &mut World| -> Vec<(String, Option<i64>)> {
        let mut rows = nodes(world);
        rows.sort_by(|a, b| a.node_uuid.cmp(&b.node_uuid));
        let row = |row: NodeView| (row.status, row.lost_s);
        rows.into_iter().map(row).collect()
    };
    let [lost, expected] = <[_; 2]>::try_from(status(&mut world)).unwrap();
    assert_eq!(lost.0, "LOST");
    assert_eq!(expected, ("EXPECTED".to_owned(), None));

    world.advance(RECOVERY_WINDOW + Duration::from_secs(7));
    let [_, not_back] = <[_; 2]>::try_from(status(&mut world)).unwrap();
    assert_eq!(not_back, ("LOST".to_owned(), Some(7)));
}

#[test]
fn pages_of_nodes_begin_with_those_that_are_not_connected() {
    let mut world = World::new();
    for number in 1..=5 {
        let node = world.node_with(number, 100);
        if number > 2 {
            world.cut(node);
        }
    }
    world.advance(IN_DOUBT_TIME);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = ask(&mut world, QueryKind::Nodes, 2, after);
        assert_eq!(page.error, None);
        seen.extend(page.nodes.into_iter().map(|row| row.node_uuid));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    // One that comes back meanwhile is behind them: it is not skipped.
    let all = [3, 4, 5, 1, 2].map(|number| node_uuid(number).to_string());
    assert_eq!(seen, all);
}

#[test]
fn a_start_for_a_lost_node_alone_may_wait_until_it_is_back() {
    let mut world = World::new();
    let controller = world.controller();
    let node = world.node_with(1, 100);
    let other = world.node_with(2, 100);
    world.lose(node);
    world.look_away();
    let pinned = StartRequest {
        node_id: Some(node_uuid(1).to_string().into()),
        ..request("pinned", 50).waiting(600)
    };
    world.start_as(controller, pinned);
    assert_eq!(world.queued(controller).len(), 1, "it may be back");
    let node = world.node_with(1, 100);
    assert_eq!(world.placements(), [("pinned".to_owned(), node)]);
    // Of a node that was never there nothing is expected.
    let never = StartRequest {
        node_id: Some(node_uuid(9).to_string().into()),
        ..request("never", 50).waiting(600)
    };
    world.start_as(controller, never);
    assert_eq!(world.failures(controller).len(), 1);
    assert_ne!(node, other);
}
