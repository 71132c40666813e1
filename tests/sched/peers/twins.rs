//! Two processes of launchers that report for one node.

use std::time::Duration;

use proto_frames::{Role, Uuid};
use sched_core::{Dialect, Message, NodeExtras, SessionId};

use crate::support::world::{Size, World, node_uuid, report};

/// A connection of node 1 that reports as this process.
fn connects(world: &mut World, process: u128) -> SessionId {
    let session = world.join(Role::AGENT, node_uuid(1), Dialect::Native);
    reports(world, session, process);
    session
}

fn reports(world: &mut World, session: SessionId, process: u128) {
    let mut report = report(Size::of_mem(1000));
    report.extras = Some(Box::new(NodeExtras {
        incarnation: Some(Uuid::from_u128(process)),
        ..NodeExtras::default()
    }));
    world.report(session, report);
}

/// Whether node 1 is this connection.
fn is_node(world: &mut World, session: SessionId, instance: &str) -> bool {
    let controller = world.controller();
    world.look_away();
    world.start(controller, instance, 10);
    let told = world.told(session);
    let is = told.iter().any(|it| matches!(it, Message::Start(_)));
    world.cut(controller);
    is
}

#[test]
fn a_launcher_that_is_started_again_takes_its_node_back() {
    let mut world = World::new();
    for process in 1..4 {
        let session = connects(&mut world, process);
        assert!(is_node(&mut world, session, &format!("i{process}")));
        let again = connects(&mut world, process);
        assert!(is_node(&mut world, again, &format!("j{process}")));
    }
    assert!(world.twins.is_empty());
}

#[test]
fn a_newcomer_is_refused_once_the_first_has_come_back() {
    let mut world = World::new();
    connects(&mut world, 1);
    let newcomer = connects(&mut world, 2);
    assert!(
        is_node(&mut world, newcomer, "a"),
        "it may be the same launcher, started again"
    );
    assert!(world.twins.is_empty());
    let first = connects(&mut world, 1);
    assert_eq!(world.twins, [node_uuid(1)]);
    for process in [2, 3] {
        let newcomer = connects(&mut world, process);
        assert!(
            is_node(&mut world, first, &format!("b{process}")),
            "it was not disturbed"
        );
        reports(&mut world, newcomer, process);
        assert!(!is_node(&mut world, newcomer, &format!("c{process}")));
    }
    let again = connects(&mut world, 1);
    assert!(
        is_node(&mut world, again, "d"),
        "it may connect again itself"
    );
    assert_eq!(world.twins, [node_uuid(1)], "said once");
}

#[test]
fn a_newcomer_is_let_in_once_the_first_is_gone() {
    let mut world = World::new();
    for process in [1, 2] {
        connects(&mut world, process);
    }
    let first = connects(&mut world, 1);
    world.cut(first);
    let newcomer = connects(&mut world, 2);
    assert!(is_node(&mut world, newcomer, "a"));
    // It proves nothing by coming back: the first launcher was started again.
    let first = connects(&mut world, 3);
    connects(&mut world, 2);
    assert!(is_node(&mut world, first, "b"));
    assert_eq!(world.twins, [node_uuid(1)]);
}

#[test]
fn a_connection_that_has_not_said_which_process_it_is_of_disturbs_no_one() {
    let mut world = World::new();
    for process in [1, 2] {
        connects(&mut world, process);
    }
    let first = connects(&mut world, 1);
    let silent = world.join(Role::AGENT, node_uuid(1), Dialect::Native);
    assert!(matches!(world.told_once(silent), Message::Connected { .. }));
    assert!(is_node(&mut world, first, "a"));
    world.cut(silent);
    assert!(is_node(&mut world, first, "b"));
    // One that says nothing of its process is taken for the launcher of this node, as ever.
    let older = world.join(Role::AGENT, node_uuid(1), Dialect::Native);
    world.report(older, report(Size::of_mem(1000)));
    assert!(is_node(&mut world, older, "c"));
    // So is one of the original.
    let original = world.join(Role::AGENT, node_uuid(1), Dialect::Original);
    world.report(original, report(Size::of_mem(1000)));
    assert!(is_node(&mut world, original, "d"));
}

#[test]
fn after_a_while_a_process_that_is_not_known_is_let_in() {
    let mut world = World::new();
    for process in [1, 2] {
        connects(&mut world, process);
    }
    let first = connects(&mut world, 1);
    world.advance(Duration::from_secs(599));
    connects(&mut world, 3);
    assert!(is_node(&mut world, first, "a"));
    world.advance(Duration::from_secs(600));
    let other = connects(&mut world, 3);
    assert!(is_node(&mut world, other, "b"));
}
