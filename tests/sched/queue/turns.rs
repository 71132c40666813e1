//! The rule against starvation at work: no one who waits is passed over for ever, and a node that is kept for one does
//! not keep everybody else waiting for ever either.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{StartFailureReason, Update};
use sched_core::{Backlog, Input, SessionId};

use crate::support::preemption::sized;
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{Size, World, running};

/// How often the head of the queue is passed over before a node is kept for it.
const OFTEN: usize = 64;

/// On a node that is never quite empty small instances come and go, each new one before the one before has gone, until
/// the head of the queue has been passed over often enough; beside them these stay. The last one runs on.
fn come_and_go(world: &mut World, controller: SessionId, node: SessionId, stay: &[&str]) {
    for at in 0..OFTEN {
        let (new, old) = (format!("small-{}", at + 1), format!("small-{at}"));
        let placed = world.place_as(controller, sized(&new, 400, 50));
        assert_eq!(placed, Some(node), "nothing is kept yet");
        let all = [&*old, &*new].into_iter().chain(stay.iter().copied());
        world.stats(node, all.map(|name| running(name, 0)).collect());
        world.stopped(node, &old);
    }
    world.look_away();
}

/// A node that is kept for `big`, which waits for all of it; `small-64` runs there.
fn kept() -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.run_on(controller, node, vec![sized("small-0", 400, 50)]);
    world.start_as(controller, sized("big", 1000, 50).waiting(3600));
    come_and_go(&mut world, controller, node, &[]);
    (world, controller, node)
}

#[test]
fn small_ones_do_not_pass_a_big_one_over_for_ever() {
    let (mut world, controller, node) = kept();
    world.start_as(controller, sized("next", 400, 50));
    assert_eq!(world.failures(controller).len(), 1, "the node is kept");
    world.stopped(node, "small-64");
    assert_eq!(world.orders(node), ["start big"]);
}

#[test]
fn a_big_one_whose_room_never_comes_does_not_keep_small_ones_waiting_for_ever() {
    let (mut world, controller, node) = World::new().with_node(1000);
    let steady = sized("steady", 100, 50);
    world.run_on(controller, node, vec![steady, sized("small-0", 400, 50)]);
    world.start_as(controller, sized("big", 1000, 50).waiting(36_000));
    come_and_go(&mut world, controller, node, &["steady"]);
    world.start_as(controller, sized("late", 400, 50).waiting(36_000));
    assert_eq!(world.orders(node), [""; 0], "the node is kept");
    world.advance(Duration::from_secs(5 * 60));
    assert_eq!(world.orders(node), ["start late"]);
}

#[test]
fn what_stands_before_it_goes_to_the_node_that_is_kept_for_one() {
    let (mut world, controller, node) = kept();
    world.start_as(controller, sized("equal", 400, 50));
    assert_eq!(
        world.failures(controller),
        one_failure("equal", StartFailureReason::FullCloud)
    );
    world.look_away();
    world.start_as(controller, sized("urgent", 400, 90));
    assert_eq!(world.orders(node), ["start urgent"]);
}

#[test]
fn the_node_is_open_to_all_once_the_one_it_is_kept_for_is_deleted() {
    let (mut world, controller, node) = kept();
    world.start_as(controller, sized("next", 400, 50).waiting(3600));
    assert_eq!(world.orders(node), [""; 0]);
    world.delete(controller, "big", node);
    assert_eq!(world.orders(node), ["start next"]);
}

#[test]
fn the_node_kept_is_one_that_could_run_it_and_others_go_on_being_used() {
    let (mut world, controller, [small, big]) = World::new().with_nodes([500, 1000]);
    world.run_on(controller, small, vec![sized("filler", 500, 50)]);
    world.run_on(controller, big, vec![sized("small-0", 400, 50)]);
    world.start_as(controller, sized("big", 1000, 50).waiting(3600));
    come_and_go(&mut world, controller, big, &[]);
    world.stopped(small, "filler");
    assert_eq!(
        world.place_as(controller, sized("other", 400, 50)),
        Some(small)
    );
}

#[test]
fn a_kept_node_that_is_lost_is_kept_no_more_and_another_is() {
    let (mut world, controller, one) = World::new().with_node(1000);
    world.run_on(controller, one, vec![sized("small-0", 400, 50)]);
    world.start_as(controller, sized("big", 1000, 50).waiting(3600));
    come_and_go(&mut world, controller, one, &[]);
    world.cut(one);
    let two = world.node_with(2, 1000);
    assert_eq!(world.orders(two), ["start big"]);
}

/// A node whose queue is long but moving: it is used where nothing else fits.
fn fill_queue(world: &mut World, session: SessionId) {
    let backlog = Backlog::Filling;
    world.handle(Input::Backlog { session, backlog });
}

#[test]
fn the_room_on_a_node_whose_queue_is_filling_goes_to_the_start_that_waits_first() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.run_on(controller, node, vec![sized("old", 1000, 50)]);
    world.start_as(controller, sized("first", 1000, 90).waiting(3600));
    fill_queue(&mut world, node);
    world.stopped(node, "old");
    assert_eq!(world.orders(node), ["start first"]);
    assert_eq!(world.place_as(controller, sized("late", 1000, 50)), None);
}

#[test]
fn a_node_that_is_ready_again_while_its_queue_is_filling_is_given_to_the_start_that_waits_first() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.status(node, Kind::MAINTENANCE);
    world.start_as(controller, sized("first", 1000, 50).waiting(3600));
    fill_queue(&mut world, node);
    let size = Size::of_mem(1000);
    world.ready(node, size);
    assert_eq!(world.orders(node), ["start first"]);
}

/// A controller changes what a START that waits asks for, and its priority.
fn update(world: &mut World, controller: SessionId, name: &str, mem: i64, priority: i64) {
    let update = Update {
        instance_uuid: name.to_owned(),
        mem_mb: Some(mem),
        priority: Some(priority),
        ..Update::default()
    };
    world.update_as(controller, update);
}

#[test]
fn a_start_whose_priority_is_lowered_leaves_the_node_that_was_kept_for_it_to_who_stands_before_it()
{
    let (mut world, controller, node) = kept();
    world.start_as(controller, sized("next", 400, 50).waiting(3600));
    assert_eq!(world.orders(node), [""; 0], "the node is kept");
    update(&mut world, controller, "big", 600, 10);
    assert_eq!(world.orders(node), ["start next"]);
}

#[test]
fn a_node_that_was_kept_for_a_start_that_changes_is_open_to_those_behind_it_at_once() {
    let (mut world, controller, node) = kept();
    world.start_as(controller, sized("next", 400, 50).waiting(3600));
    update(&mut world, controller, "big", 900, 50);
    assert_eq!(world.orders(node), ["start next"]);
}
