//! Launchers that come to what they were told after its time is over.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{CommandFailureReason, PhaseName};
use sched_core::{InstanceReport, MISSED_STATS, Message, SessionId};

use crate::support::durability::{crash, durable};
use crate::support::preemption::{TOO_LONG, cpus, frozen, sized};
use crate::support::requests::Asking;
use crate::support::world::{World, request, running};

/// Longer than a move may take.
const A_MOVE: Duration = Duration::from_secs(600);

/// A node that runs `low`, which was told to stop for `high`.
fn with_victim() -> (World, SessionId, SessionId) {
    let (mut world, controller, node) =
        World::with_preemption().with_running([sized("low", 600, 10)]);
    world.start_as(controller, sized("high", 600, 90));
    (world, controller, node)
}

#[test]
fn a_victim_that_its_launcher_cannot_stop_stays_and_who_waited_for_it_is_told() {
    let (mut world, controller, node) = with_victim();
    world.look_away();
    world.cannot_delete(node, "low");
    let said = world.told(controller);
    let fails = |message: &Message| matches!(message, Message::StartFailure(_));
    assert!(said.iter().any(fails), "{said:?}");
    assert_eq!(world.seen("low").remove(0).life, "running");
    world.look_away();
    // What it does now is its own end.
    world.stopped(node, "low");
    assert_eq!(world.lives(controller), ["low gone"]);
}

#[test]
fn what_could_not_be_stopped_in_time_nor_later_ends_by_itself() {
    let (mut world, controller, node) = with_victim();
    world.advance(TOO_LONG);
    world.cannot_delete(node, "low");
    world.look_away();
    world.stopped(node, "low");
    assert_eq!(world.lives(controller), ["low gone"]);
}

#[test]
fn a_victim_that_is_stopped_too_late_is_placed_again() {
    let (mut world, controller, node) = with_victim();
    assert_eq!(world.orders(node), ["stop low"]);
    world.advance(TOO_LONG);
    world.look_away();
    world.stopped(node, "low");
    assert_eq!(world.lives(controller), ["low placing"]);
}

#[test]
fn a_victim_whose_delete_never_left_is_resumed_by_itself() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.orders(node), ["suspend low"]);
    world.delete(controller, "low", node);
    world.suspended(node, "low");
    world.cut_unsent(node);
    let node = world.able(1, 1000, 4);
    world.stats(node, vec![frozen("low")]);
    world.advance(TOO_LONG);
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn a_move_is_not_over_before_its_launcher_has_refused_it_and_not_only_an_earlier_one() {
    let (mut world, controller, source, target) = World::with_movable();
    world.migrate(controller, "a", Some(target));
    world.advance(A_MOVE);
    world.migrate(controller, "a", Some(target));
    assert_eq!(world.stops(source), ["a", "a"]);
    world.look_away();
    world.cannot_delete(source, "a");
    assert_eq!(world.states_of(controller, "a"), []);
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), [("a".to_owned(), target)]);
}

#[test]
fn what_was_told_to_stop_twice_and_refused_once_may_still_end() {
    let (mut world, controller, source, target) = World::with_movable();
    world.migrate(controller, "a", Some(target));
    world.advance(A_MOVE);
    world.migrate(controller, "a", Some(target));
    world.advance(A_MOVE);
    world.look_away();
    world.cannot_delete(source, "a");
    world.list(source, &["a"]);
    world.has_stopped(source, "a");
    let states = world.states_of(controller, "a");
    assert_eq!(states.last(), Some(&PhaseName::Placing), "{states:?}");
}

#[test]
fn what_is_suspended_and_was_told_to_resume_before_is_not_taken_for_suspended() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    // It is to run on after all; its launcher has come to neither.
    world.advance(TOO_LONG);
    assert_eq!(world.orders(node), ["suspend low", "resume low"]);
    world.advance(TOO_LONG);
    world.look_away();
    world.suspended(node, "low");
    world.start_as(controller, cpus("other", 4, 5));
    assert_eq!(world.failures(controller).len(), 1);
    world.resumed(node, "low");
    world.stats(node, vec![running("low", 0)]);
    assert_eq!(world.seen("low").remove(0).life, "running");
}

#[test]
fn of_victims_that_are_found_gone_at_once_the_higher_is_placed_first() {
    let mut world = World::with_preemption();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    let (low, mid) = (sized("low", 500, 10), sized("mid", 500, 20));
    world.run_on(controller, node, vec![low, mid]);
    let other = world.able(2, 500, 4);
    world.run_on(controller, other, vec![sized("top", 500, 95)]);
    world.start_as(controller, sized("high", 1000, 90));
    let mut orders = world.orders(node);
    orders.sort();
    assert_eq!(orders, ["stop low", "stop mid"]);
    world.stopped(other, "top");
    world.look_away();
    for _ in 0..MISSED_STATS {
        world.stats(node, vec![]);
    }
    let placed = world.placements();
    assert!(placed.contains(&("high".to_owned(), node)), "{placed:?}");
    assert!(placed.contains(&("mid".to_owned(), other)), "{placed:?}");
}

#[test]
fn who_waits_for_one_whose_delete_is_late_goes_elsewhere() {
    let (mut world, controller, node) =
        World::with_preemption().with_running([cpus("low", 2, 10), cpus("mid", 2, 20)]);
    world.start_as(controller, cpus("high", 4, 80));
    let mut orders = world.orders(node);
    orders.sort();
    assert_eq!(orders, ["suspend low", "suspend mid"]);
    world.suspended(node, "mid");
    // Its DELETE takes the place of what it was told before.
    world.delete(controller, "low", node);
    world.look_away();
    world.advance(TOO_LONG);
    let failed = world.failures(controller);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].0, "high");
}

#[test]
fn of_several_that_their_node_does_not_have_the_higher_is_placed_first() {
    let mut world = World::new();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.start_as(controller, sized("low", 500, 10).waiting(300));
    world.start_as(controller, sized("high", 500, 90).waiting(300));
    let other = world.able(2, 500, 4);
    world.place(controller, "plain", 500);
    world.cut(node);
    world.gone(other, Kind::INSTANCE_STOPPED, "plain");
    let node = world.silent_node(1);
    world.look_away();
    world.stats_seen(node, Some(0), vec![]);
    assert_eq!(world.placements(), [("high".to_owned(), other)]);
}

#[test]
fn of_several_that_their_node_does_not_have_none_gives_its_room_to_one_that_waits_behind_it() {
    let mut world = World::new();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.start_as(controller, sized("high", 500, 90).waiting(300));
    world.start_as(controller, sized("mid", 500, 80).waiting(300));
    world.start_as(controller, sized("low", 400, 10).waiting(300));
    world.cut(node);
    let node = world.silent_node(1);
    world.ready_able(node, 1000, 4);
    world.look_away();
    world.stats_seen(node, Some(0), vec![]);
    let placed = world.placements();
    assert_eq!(
        placed,
        [("high".to_owned(), node), ("mid".to_owned(), node)]
    );
}

#[test]
fn of_what_a_lost_node_was_not_given_the_higher_is_placed_before_a_plain_one() {
    let mut world = World::new();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.start_as(controller, request("plain", 500));
    world.start_as(controller, sized("high", 500, 90).waiting(300));
    let other = world.able(2, 500, 4);
    world.cut_unsent(node);
    assert_eq!(world.placements(), [("high".to_owned(), other)]);
}

/// A world with a store in which the holder of `a` was told to stop it for a move that took too long; and what it says of it
/// after a crash of the scheduler.
fn undone_before_a_crash(says: Vec<InstanceReport>) -> (World, SessionId) {
    let (mut world, controller, source) = World::with(durable()).with_node(1000);
    world.run_movable(controller, source, request("a", 600).movable(), &["a"]);
    let target = world.node_with(2, 1000);
    world.migrate(controller, "a", Some(target));
    assert_eq!(world.stops(source), ["a"]);
    world.advance(A_MOVE);
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::Timeout);
    crash(&mut world, 2);
    world.controller();
    let source = world.node_with(1, 1000);
    world.look_away();
    world.stats_seen(source, Some(0), says);
    (world, source)
}

#[test]
fn what_was_told_to_stop_for_a_move_that_was_undone_is_started_again_if_it_ends_after_a_crash() {
    let (mut world, source) = undone_before_a_crash(vec![running("a", 0)]);
    assert_eq!(world.placements(), []);
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
}

#[test]
fn what_was_told_to_stop_for_a_move_that_was_undone_is_started_again_if_a_crash_hid_its_end() {
    let (mut world, source) = undone_before_a_crash(vec![]);
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
}
