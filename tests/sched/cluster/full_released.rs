//! FULL is a word about the moment it was sent: a node on which room was released since is tried, after all others, and
//! what it refuses goes to the next node.

use proto_frames::Kind;
use proto_frames::payload::{ReasonKind, Scheduling, Span, StartFailureReason, Topic};
use sched_core::{Message, Resources, SessionId, StartRequest};

use crate::support::scenes::one_failure;
use crate::support::world::{World, request, running};

const FULL_NODE: StartFailureReason = StartFailureReason::FullComputeNode;

/// A node on which one instance of `mem` runs, and that calls itself full.
fn full(world: &mut World, controller: SessionId, number: u64, mem: i64) -> SessionId {
    let node = world.node_with(number, mem);
    let name = format!("on-{number}");
    assert_eq!(world.place(controller, &name, mem), Some(node));
    world.stats(node, vec![running(&name, mem)]);
    world.status(node, Kind::FULL);
    world.look_away();
    node
}

/// The instance on such a node ends.
fn release(world: &mut World, node: SessionId, number: u64) {
    world.gone(node, Kind::INSTANCE_DELETED, &format!("on-{number}"));
    world.look_away();
}

/// A START that waits for room.
fn waiting(name: &str, mem: i64) -> StartRequest {
    StartRequest {
        scheduling: Some(Box::new(Scheduling {
            queue: Some(Span::from_ms(60_000)),
            ..Scheduling::default()
        })),
        ..request(name, mem)
    }
}

#[test]
fn what_was_released_since_a_node_called_itself_full_is_given_again() {
    let (mut world, controller) = World::new().with_controller();
    let node = full(&mut world, controller, 1, 100);
    assert_eq!(world.place(controller, "early", 10), None);
    release(&mut world, node, 1);
    assert_eq!(world.place(controller, "more", 101), None, "more than that");
    assert_eq!(world.place(controller, "a", 60), Some(node));
    assert_eq!(world.place(controller, "b", 60), None, "less is left of it");
    assert_eq!(world.place(controller, "c", 40), Some(node));
    world.check();
}

#[test]
fn full_nodes_are_tried_after_all_that_are_ready_and_in_order() {
    let (mut world, controller) = World::new().with_controller();
    let first = full(&mut world, controller, 1, 100);
    let second = full(&mut world, controller, 2, 100);
    let ready = world.node_with(3, 20);
    release(&mut world, second, 2);
    release(&mut world, first, 1);
    assert_eq!(world.place(controller, "a", 10), Some(ready));
    assert_eq!(world.place(controller, "b", 10), Some(ready));
    assert_eq!(world.place(controller, "c", 10), Some(first));
    assert_eq!(world.place(controller, "d", 10), Some(second));
}

#[test]
fn a_newer_full_counts_from_the_beginning() {
    let (mut world, controller) = World::new().with_controller();
    let node = full(&mut world, controller, 1, 100);
    release(&mut world, node, 1);
    world.status(node, Kind::FULL);
    assert_eq!(world.place(controller, "a", 10), None);
}

#[test]
fn a_node_that_is_in_maintenance_is_not_tried() {
    let (mut world, controller) = World::new().with_controller();
    let node = full(&mut world, controller, 1, 100);
    release(&mut world, node, 1);
    world.status(node, Kind::MAINTENANCE);
    assert_eq!(world.place(controller, "a", 10), None);
}

#[test]
fn a_refusal_by_a_node_that_called_itself_full_goes_to_the_next_node() {
    let mut world = World::new();
    let (controller, backup) = (world.controller(), world.controller());
    let first = full(&mut world, controller, 1, 100);
    let second = full(&mut world, controller, 2, 100);
    release(&mut world, first, 1);
    release(&mut world, second, 2);
    assert_eq!(world.place(controller, "a", 10), Some(first));
    world.start_failed(first, "a", FULL_NODE);
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
    world.start_failed(second, "a", FULL_NODE);
    let failures = world.failures(controller);
    assert_eq!(
        failures,
        one_failure("a", StartFailureReason::FullCloud),
        "no node's word, but that of all"
    );
    assert_eq!(world.told(backup), []);
    assert_eq!(
        world.place(controller, "b", 10),
        None,
        "a refusal is as new a word as FULL"
    );
    world.check();
}

#[test]
fn a_refusal_without_a_name_is_that_of_the_start_it_can_only_be() {
    let (mut world, controller) = World::new().with_controller();
    let node = full(&mut world, controller, 1, 100);
    release(&mut world, node, 1);
    assert_eq!(world.place(controller, "a", 10), Some(node));
    world.start_failed(node, "", FULL_NODE);
    let failures = world.failures(controller);
    assert_eq!(failures, one_failure("a", StartFailureReason::FullCloud));
}

#[test]
fn other_failures_and_those_of_ready_nodes_reach_the_sender_as_ever() {
    let (mut world, controller) = World::new().with_controller();
    let node = full(&mut world, controller, 1, 100);
    release(&mut world, node, 1);
    let spare = world.node_with(2, 5);
    assert_eq!(world.place(controller, "a", 10), Some(node));
    world.start_failed(node, "a", StartFailureReason::LaunchFailure);
    assert_eq!(world.told(controller).len(), 1);
    assert_eq!(world.place(controller, "b", 5), Some(spare));
    world.start_failed(spare, "b", FULL_NODE);
    assert_eq!(world.told(controller).len(), 1);
    assert_eq!(world.placements(), []);
}

#[test]
fn a_start_that_is_managed_is_tried_as_well_and_no_attempt_is_counted() {
    let (mut world, controller) = World::new().with_controller();
    let first = full(&mut world, controller, 1, 100);
    let second = full(&mut world, controller, 2, 100);
    release(&mut world, first, 1);
    release(&mut world, second, 2);
    assert_eq!(world.place_as(controller, waiting("a", 10)), Some(first));
    world.start_failed(first, "a", FULL_NODE);
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
    world.start_failed(second, "a", FULL_NODE);
    assert_eq!(world.failures(controller), [], "it waits");
    world.ready(second, crate::support::world::Size::default());
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
    world.check();
}

#[test]
fn a_waiting_start_is_tried_on_a_full_node_when_room_is_released_there() {
    let (mut world, controller) = World::new().with_controller();
    let node = full(&mut world, controller, 1, 100);
    assert_eq!(world.place_as(controller, waiting("first", 100)), None);
    world.gone(node, Kind::INSTANCE_DELETED, "on-1");
    assert_eq!(world.placements(), [("first".to_owned(), node)]);
    assert_eq!(world.place(controller, "late", 100), None);
    world.start_failed(node, "first", FULL_NODE);
    assert_eq!(world.placements(), [], "the node's word is new");
    assert_eq!(
        world.failures(controller),
        one_failure("late", StartFailureReason::FullCloud),
        "first waits again"
    );
    world.ready(node, crate::support::world::Size::default());
    assert_eq!(world.placements(), [("first".to_owned(), node)]);
    world.check();
}

#[test]
fn waiting_starts_are_tried_on_a_full_node_in_their_order_as_far_as_the_room_goes() {
    let (mut world, controller) = World::new().with_controller();
    let node = full(&mut world, controller, 1, 100);
    for (name, mem) in [("a", 60), ("b", 60), ("c", 40)] {
        assert_eq!(world.place_as(controller, waiting(name, mem)), None);
    }
    world.gone(node, Kind::INSTANCE_DELETED, "on-1");
    let placed = ["a", "c"].map(|name| (name.to_owned(), node));
    assert_eq!(world.placements(), placed);
    world.check();
}

#[test]
fn a_waiting_start_for_which_a_full_node_is_too_small_does_not_keep_it_from_others() {
    let (mut world, controller) = World::new().with_controller();
    let node = full(&mut world, controller, 1, 100);
    let large = world.node_with(2, 300);
    assert_eq!(world.place(controller, "large", 300), Some(large));
    assert_eq!(world.place_as(controller, waiting("first", 200)), None);
    release(&mut world, node, 1);
    assert_eq!(world.place(controller, "late", 100), Some(node));
    world.check();
}

#[test]
fn a_node_says_of_what_it_is_full_and_others_why_they_are_not_ready() {
    let (mut world, controller) = World::new().with_controller();
    let _operator = world.operator(&[Topic::Failures]);
    full(&mut world, controller, 1, 100);
    let leaving = world.node_with(2, 1000);
    world.status(leaving, Kind::OFFLINE);
    let evacuated = world.node_with(3, 1000);
    world.status(evacuated, Kind::MAINTENANCE);
    world.silent_node(4);
    let overloaded = world.node_with(5, 1000);
    world.status(overloaded, Kind::FULL);
    world.look_away();
    let asks_little = StartRequest {
        asked: Resources::ZERO,
        ..request("a", 0)
    };
    world.start_as(controller, asks_little);
    let Message::StartFailure(failure) = world.told_once(controller) else {
        panic!("nothing fits");
    };
    let detail = failure.detail.clone().unwrap();
    for part in [
        "1 full (of memory)",
        "1 going offline",
        "1 in maintenance",
        "1 that have not reported yet",
        "1 full (by their own word",
    ] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    let what: Vec<_> = failure
        .reasons
        .iter()
        .map(|reason| (reason.reason.clone(), reason.what.as_str()))
        .collect();
    assert!(what.contains(&(ReasonKind::NotReady, "full")), "{what:?}");
    assert!(
        what.contains(&(ReasonKind::NotReady, "maintenance")),
        "{what:?}"
    );
}
