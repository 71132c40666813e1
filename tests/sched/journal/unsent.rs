//! Failures of STARTs that were acknowledged: each reaches a controller, whatever happens to the scheduler meanwhile.

use std::time::Duration;

use proto_frames::payload::StartFailureReason;
use sched_core::{BATCH_TIME, SessionId};

use crate::support::durability::{crash, durable};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{World, request, running};

/// Longer than outcomes are remembered in memory for the next controller.
const LONG: Duration = Duration::from_secs(3600);

/// A START that is on disk, and whose time in the queue is over after two seconds.
fn waiting() -> (World, SessionId) {
    let (mut world, controller, _) = World::with(durable()).with_full_node();
    world.start_as(controller, request("b", 50).waiting(2));
    assert_eq!(world.queued(controller).len(), 1);
    (world, controller)
}

/// The failure is on disk, and the scheduler dies before it hears of that.
fn crash_once_on_disk(world: &mut World) {
    world.store.be_slow();
    world.advance(Duration::from_secs(2));
    assert!(world.store.has("b"));
    world.store.commit();
    assert!(!world.store.has("b"));
    crash(world, 1);
    world.store.be_fast();
}

/// What controllers are sent of STARTs that failed before they connected.
fn failures_of(world: &mut World, controller: SessionId) -> Vec<(String, StartFailureReason)> {
    world.advance(Duration::ZERO);
    world.failures(controller)
}

fn timeout() -> [(String, StartFailureReason); 1] {
    one_failure("b", StartFailureReason::QueueTimeout)
}

#[test]
fn a_failure_that_was_on_disk_and_not_sent_when_the_scheduler_died_is_sent_after_the_restart() {
    let (mut world, controller) = waiting();
    crash_once_on_disk(&mut world);
    assert_eq!(world.failures(controller), []);
    let controller = world.controller();
    assert_eq!(failures_of(&mut world, controller), timeout());
    crash(&mut world, 1);
    let controller = world.controller();
    assert_eq!(failures_of(&mut world, controller), [], "once");
}

#[test]
fn an_original_controller_is_sent_it_in_its_own_words() {
    let (mut world, _) = waiting();
    crash_once_on_disk(&mut world);
    let controller = world.original_controller();
    let failed = one_failure("b", StartFailureReason::FullCloud);
    assert_eq!(failures_of(&mut world, controller), failed);
}

#[test]
fn a_failure_of_which_no_controller_was_there_to_hear_is_sent_to_the_next_one() {
    let (mut world, controller) = waiting();
    world.cut(controller);
    world.advance(LONG);
    let controller = world.controller();
    assert_eq!(failures_of(&mut world, controller), timeout());
    world.cut(controller);
    let controller = world.controller();
    assert_eq!(failures_of(&mut world, controller), [], "once");
}

#[test]
fn and_after_a_crash_as_well() {
    let (mut world, controller) = waiting();
    world.cut(controller);
    world.advance(LONG);
    crash(&mut world, 1);
    let controller = world.controller();
    assert_eq!(failures_of(&mut world, controller), timeout());
}

#[test]
fn a_failure_that_was_not_written_to_the_last_controller_is_sent_to_the_next_one_after_a_crash() {
    let (mut world, controller) = waiting();
    world.advance(Duration::from_secs(2));
    world.cut_unsent(controller);
    crash(&mut world, 1);
    let controller = world.controller();
    assert_eq!(failures_of(&mut world, controller), timeout());
}

#[test]
fn the_failure_of_an_instance_that_was_started_again_is_not_sent() {
    let (mut world, _) = waiting();
    crash_once_on_disk(&mut world);
    let operator = world.operator(&[]);
    let node = world.node_with(1, 100);
    world.stats(node, vec![]);
    world.start_as(operator, request("b", 50));
    world.stats(node, vec![running("b", 1)]);
    let controller = world.controller();
    assert_eq!(failures_of(&mut world, controller), []);
}

#[test]
fn a_start_whose_batch_was_late_is_failed_after_a_crash_as_well() {
    let (mut world, controller) = World::with(durable()).with_controller();
    world.start_as(controller, request("b", 50).of_batch("night", 2));
    assert!(world.store.has("b"));
    world.store.be_slow();
    world.advance(BATCH_TIME);
    world.store.commit();
    crash(&mut world, 1);
    world.store.be_fast();
    let controller = world.controller();
    let failed = one_failure("b", StartFailureReason::InvalidData);
    assert_eq!(failures_of(&mut world, controller), failed);
}

#[test]
fn many_failures_are_sent_one_page_after_the_other() {
    const MANY: usize = 2500;
    let (world, controller, _) = World::with(durable()).with_full_node();
    let mut world = world.check_every(1000);
    let name = |at: usize| format!("q{at:04}");
    for at in 0..MANY {
        world.start_as(controller, request(&name(at), 50).waiting(2));
    }
    world.cut(controller);
    world.advance(LONG);
    crash(&mut world, 1);
    let controller = world.controller();
    let failed: Vec<String> = failures_of(&mut world, controller)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let expected: Vec<String> = (0..MANY).map(name).collect();
    assert_eq!(failed, expected);
}
