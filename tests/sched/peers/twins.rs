//! Two processes of launchers that report for one node.

use std::time::Duration;

use proto_frames::payload::{ConditionView, QueryKind, StartFailureReason};
use proto_frames::{Role, Uuid};
use sched_core::{
    Dialect, FREE_REPLACEMENTS, Hello, IN_DOUBT_TIME, Message, NEWCOMER_TIME, NodeExtras, SessionId,
};

use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{Size, World, node_uuid, report, request, running};

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

/// A controller, and the first of two machines with one UUID, which has read a START.
fn with_a_start(world: &mut World) -> (SessionId, SessionId) {
    let controller = world.controller();
    let first = connects(world, 1);
    assert_eq!(world.place(controller, "a", 10), Some(first));
    (controller, first)
}

#[test]
fn what_one_of_two_machines_was_given_has_not_failed_because_the_other_does_not_list_it() {
    let mut world = World::new();
    let (controller, _) = with_a_start(&mut world);
    let newcomer = connects(&mut world, 2);
    world.stats_seen(newcomer, Some(0), vec![running("theirs", 1)]);
    let first = connects(&mut world, 1);
    assert_eq!(world.twins, [node_uuid(1)]);
    world.stats_seen(first, Some(1), vec![running("a", 1)]);
    world.advance(2 * IN_DOUBT_TIME);
    assert_eq!(world.failures(controller), []);
}

#[test]
fn nor_is_it_started_elsewhere_or_taken_for_not_being_there() {
    let mut world = World::new();
    let controller = world.controller();
    let first = connects(&mut world, 1);
    let placed = world.place_as(controller, request("a", 10).movable());
    assert_eq!(placed, Some(first));
    world.place(controller, "b", 10);
    world.node_with(2, 1000);
    let newcomer = connects(&mut world, 2);
    world.look_away();
    world.stats_seen(newcomer, Some(0), vec![]);
    world.has_none(newcomer, "b");
    assert_eq!(world.placements(), []);
    let first = connects(&mut world, 1);
    world.stats_seen(first, Some(2), vec![running("a", 1), running("b", 1)]);
    assert_eq!(
        (world.placements(), world.failures(controller)),
        (vec![], vec![])
    );
}

#[test]
fn the_same_of_two_original_launchers_which_replace_each_other() {
    let mut world = World::new();
    let controller = world.controller();
    let connects = |world: &mut World| {
        let session = world.join(Role::AGENT, node_uuid(1), Dialect::Original);
        world.report(session, report(Size::of_mem(1000)));
        session
    };
    connects(&mut world);
    assert!(world.place(controller, "a", 10).is_some());
    for _ in 0..3 {
        let other = connects(&mut world);
        world.stats(other, vec![running("theirs", 1)]);
        world.advance(Duration::from_secs(2));
    }
    let first = connects(&mut world);
    world.stats(first, vec![running("a", 1)]);
    world.advance(2 * IN_DOUBT_TIME);
    assert_eq!(world.failures(controller), []);
}

#[test]
fn what_neither_lists_in_time_has_failed() {
    let mut world = World::new();
    let (controller, _) = with_a_start(&mut world);
    let newcomer = connects(&mut world, 2);
    world.stats_seen(newcomer, Some(0), vec![]);
    assert_eq!(world.failures(controller), []);
    world.advance(IN_DOUBT_TIME);
    world.stats_seen(newcomer, Some(0), vec![]);
    let failed = one_failure("a", StartFailureReason::LaunchFailure);
    assert_eq!(world.failures(controller), failed);
}

#[test]
fn a_process_that_connects_again_says_at_once_what_became_of_what_it_was_given() {
    let mut world = World::new();
    let (controller, _) = with_a_start(&mut world);
    let again = connects(&mut world, 1);
    world.stats_seen(again, Some(0), vec![]);
    let failed = one_failure("a", StartFailureReason::LaunchFailure);
    assert_eq!(world.failures(controller), failed);
}

#[test]
fn once_two_are_known_what_one_was_given_is_not_settled_by_the_other_after_a_cut() {
    let mut world = World::new();
    for process in [1, 2] {
        connects(&mut world, process);
    }
    let first = connects(&mut world, 1);
    let controller = world.controller();
    assert_eq!(world.place(controller, "a", 10), Some(first));
    world.cut(first);
    let newcomer = connects(&mut world, 2);
    world.stats_seen(newcomer, Some(0), vec![]);
    assert_eq!(world.failures(controller), []);
}

/// What is not well because two machines have one UUID.
fn twice(world: &mut World) -> Vec<ConditionView> {
    let page = world.page(QueryKind::Status, "", None, 1);
    let conditions = page.status.expect("it was asked for").conditions;
    let of_it = conditions.into_iter();
    of_it.filter(|it| it.kind == "uuid_used_twice").collect()
}

/// An original launcher of node 1 connects from this address, and reports.
fn connects_from(world: &mut World, address: &str) -> SessionId {
    let hello = Hello {
        dialect: Dialect::Original,
        address: address.parse().ok(),
        ..Hello::native(node_uuid(1), Role::AGENT)
    };
    let session = world.knock(hello).expect("it is let in");
    world.report(session, report(Size::of_mem(1000)));
    session
}

#[test]
fn that_two_native_launchers_have_one_uuid_is_a_condition_until_it_has_been_quiet() {
    let mut world = World::new();
    for process in [1, 2] {
        connects(&mut world, process);
        assert_eq!(twice(&mut world), [], "it may have been started again");
    }
    connects(&mut world, 1);
    world.advance(Duration::from_secs(60));
    let found = twice(&mut world);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].subject, node_uuid(1).to_string());
    assert_eq!(found[0].since_s, Some(60));
    assert!(
        found[0].what.contains(&node_uuid(1).to_string()),
        "{found:?}"
    );
    assert!(
        found[0].advice.contains("remove its --state-dir"),
        "{found:?}"
    );
    // The copy is started again by its service manager.
    world.advance(NEWCOMER_TIME - Duration::from_secs(61));
    connects(&mut world, 2);
    world.advance(NEWCOMER_TIME - Duration::from_secs(1));
    let found = twice(&mut world);
    assert_eq!(
        found[0].since_s,
        i64::try_from(2 * NEWCOMER_TIME.as_secs() - 2).ok(),
        "since the first sign of it"
    );
    world.advance(Duration::from_secs(1));
    assert_eq!(twice(&mut world), []);
}

#[test]
fn so_it_is_of_original_launchers_that_take_each_others_place_from_two_hosts() {
    let mut world = World::new();
    for (address, is_known) in [
        ("192.0.2.1:7", false),
        // It may be the same, with another address.
        ("192.0.2.2:7", false),
        ("192.0.2.1:8", true),
        ("192.0.2.2:8", true),
    ] {
        connects_from(&mut world, address);
        assert_eq!(!twice(&mut world).is_empty(), is_known, "{address}");
        world.advance(Duration::from_secs(120));
    }
    let found = twice(&mut world);
    let both = "one at 192.0.2.2:8, the other at 192.0.2.1:8";
    assert!(found[0].what.ends_with(both), "{found:?}");
    world.advance(NEWCOMER_TIME);
    assert_eq!(twice(&mut world), []);
}

#[test]
fn a_launcher_that_connects_again_is_no_second_machine() {
    let mut world = World::new();
    for _ in 0..20 {
        // Its connection has ended before it connects again: however often, and wherever it is by then.
        for address in ["192.0.2.1:7", "192.0.2.2:7"] {
            let session = connects_from(&mut world, address);
            world.cut(session);
        }
    }
    assert_eq!(twice(&mut world), []);
    // Its network fails now and then, which it notices before the scheduler does.
    for _ in 0..=FREE_REPLACEMENTS {
        connects_from(&mut world, "192.0.2.1:7");
    }
    assert_eq!(twice(&mut world), []);
    connects_from(&mut world, "192.0.2.1:7");
    assert_eq!(twice(&mut world).len(), 1, "that is too often for that");
}
