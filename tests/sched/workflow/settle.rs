//! After a restart: a START that fits nowhere waits for nodes that are still coming back.

use std::time::Duration;

use proto_frames::payload::StartFailureReason;

use super::arrays::template;
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{World, node_uuid, request};
use proto_frames::Uuid;

#[test]
fn a_start_waits_for_a_node_that_comes_back() {
    let mut world = World::expecting(2);
    let controller = world.controller();
    world.look_away();
    world.start(controller, "a", 10);
    world.nothing_else();
    let node = world.node_with(1, 100);
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
}

#[test]
fn a_node_that_is_back_and_not_ready_is_known_once() {
    let mut world = World::expecting(2);
    world.silent_node(1);
    let known = world.scheduler.known_nodes();
    let mut known: Vec<Uuid> = known.into_iter().map(|node| node.uuid).collect();
    known.sort();
    assert_eq!(known, [node_uuid(1), node_uuid(2)]);
}

#[test]
fn once_all_are_back_nothing_waits() {
    let mut world = World::expecting(1);
    let controller = world.controller();
    world.start(controller, "too large", 1000);
    let node = world.node_with(1, 100);
    world.advance(Duration::ZERO);
    assert_eq!(
        world.failures(controller),
        [],
        "it is back once it has said what runs on it as well"
    );
    world.stats(node, Vec::new());
    world.advance(Duration::ZERO);
    assert_eq!(
        world.failures(controller),
        one_failure("too large", StartFailureReason::FullCloud)
    );
    world.start(controller, "b", 1000);
    assert_eq!(
        world.failures(controller),
        one_failure("b", StartFailureReason::FullCloud)
    );
}

#[test]
fn all_that_come_before_a_start_that_waited_for_nodes_are_placed_before_it() {
    let (mut world, controller) = World::expecting(1).with_controller();
    for name in ["first", "second"] {
        world.start_as(controller, request(name, 50).priority(90).waiting(600));
    }
    world.start(controller, "later", 50);
    // Its elements begin once nodes are back: after the first that is placed it is asked for the next.
    world.start_array(controller, template(50), (2, None));
    let node = world.node_with(1, 100);
    world.stats(node, Vec::new());
    world.advance(Duration::ZERO);
    let placed = ["first", "second"].map(|name| (name.to_owned(), node));
    assert_eq!(world.placements(), placed);
}

/// Launchers of the original dial again after up to 5 s, and then after up to 10 s: the last of them were seen back after
/// 17 s.
#[test]
fn the_window_lasts_for_launchers_that_come_back_late_and_ends_with_the_last_of_them() {
    let mut world = World::expecting(3);
    let controller = world.controller();
    for number in 1..=2 {
        let node = world.node_with(number, 100);
        world.stats(node, Vec::new());
    }
    world.start(controller, "large", 1000);
    world.advance(Duration::from_secs(17));
    assert_eq!(world.failures(controller), [], "a node is missing");
    let late = world.node_with(3, 1500);
    assert_eq!(world.placements(), [("large".to_owned(), late)]);
    world.start(controller, "larger", 1200);
    assert_eq!(world.failures(controller), []);
    world.stats(late, Vec::new());
    world.advance(Duration::ZERO);
    let full = StartFailureReason::FullCloud;
    assert_eq!(
        world.failures(controller),
        [("larger".to_owned(), full.clone())],
        "all are back, and nothing waits any longer"
    );
    world.start(controller, "later", 1200);
    assert_eq!(world.failures(controller), [("later".to_owned(), full)]);
}

#[test]
fn at_the_end_of_the_window_what_still_fits_nowhere_fails() {
    let mut world = World::expecting(2);
    let controller = world.controller();
    let node = world.node_with(1, 100);
    world.start(controller, "large", 1000);
    world.start(controller, "small", 10);
    assert_eq!(
        world.placements(),
        [("small".to_owned(), node)],
        "what fits does not wait"
    );
    world.advance(Duration::from_secs(19));
    assert_eq!(world.failures(controller), []);
    world.advance(Duration::from_secs(1));
    assert_eq!(
        world.failures(controller),
        one_failure("large", StartFailureReason::FullCloud)
    );
    world.start(controller, "later", 1000);
    assert_eq!(world.failures(controller).len(), 1, "the window is closed");
}

#[test]
fn a_waiting_start_can_be_deleted() {
    let mut world = World::expecting(1);
    let controller = world.controller();
    let other = world.silent_node(9);
    world.start(controller, "a", 10);
    world.look_away();
    world.delete(controller, "a", other);
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::LaunchFailure)
    );
    world.node_with(1, 100);
    assert_eq!(world.placements(), []);
}

#[test]
fn the_same_start_twice_waits_once() {
    let mut world = World::expecting(1);
    let controller = world.controller();
    world.start(controller, "a", 10);
    world.start(controller, "a", 10);
    let node = world.node_with(1, 100);
    world.advance(Duration::ZERO);
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
}

#[test]
fn without_a_list_of_nodes_nothing_waits() {
    let (mut world, controller) = World::new().with_controller();
    world.start(controller, "a", 10);
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::NoComputeNodes)
    );
}
