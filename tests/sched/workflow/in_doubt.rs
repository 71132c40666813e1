//! A node is lost: every START given to it ends in exactly one way.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::Uuid;
use proto_frames::payload::StartFailureReason;
use sched_core::{Message, NodeExtras, NodeReport, Report, SessionId, StartRequest};

use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{Size, World, id, report, request, running};

const IN_DOUBT: Duration = Duration::from_secs(15);
const JUST_BEFORE: Duration = Duration::from_millis(14_999);

fn lost(name: &str) -> (String, StartFailureReason) {
    (name.to_owned(), StartFailureReason::LaunchFailure)
}

#[test]
fn starts_that_were_not_written_are_placed_again_at_once() {
    let (mut world, controller, node) = World::new().with_node(100);
    let other = world.silent_node(2);
    world.look_away();
    world.start(controller, "a", 60);
    world.start(controller, "b", 40);
    world.ready(other, Size::of_mem(50));
    world.cut_unsent(node);
    assert_eq!(world.placements(), [("b".to_owned(), other)]);
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::FullCloud)
    );
    world.advance(IN_DOUBT);
    assert_eq!(world.failures(controller), [], "their outcomes stand");
}

#[test]
fn a_written_start_fails_when_its_node_does_not_come_back() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start(controller, "a", 10);
    world.cut(node);
    world.look_away();
    world.advance(JUST_BEFORE);
    assert_eq!(world.failures(controller), [], "never early");
    world.advance(Duration::from_millis(1));
    assert_eq!(world.failures(controller), [lost("a")]);
    world.advance(IN_DOUBT);
    world.nothing_else();
}

#[test]
fn a_node_that_comes_back_settles_its_starts_with_its_first_stats() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start(controller, "kept", 10);
    world.start(controller, "dropped", 10);
    world.cut(node);
    world.advance(JUST_BEFORE);
    let again = world.node_with(1, 100);
    world.advance(IN_DOUBT);
    assert_eq!(
        world.failures(controller),
        [],
        "it is back; time no longer settles anything"
    );
    world.stats(again, vec![running("kept", 0)]);
    assert_eq!(world.failures(controller), [lost("dropped")]);
    assert_eq!(
        world.place(controller, "kept", 10),
        Some(again),
        "a repeated START goes to the holder"
    );
}

#[test]
fn confirmed_instances_of_a_lost_node_are_no_failures() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start(controller, "a", 10);
    world.stats(node, vec![running("a", 0)]);
    world.cut(node);
    world.look_away();
    world.advance(IN_DOUBT);
    world.nothing_else();
}

#[test]
fn claims_of_a_node_that_comes_back_still_count() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start(controller, "a", 90);
    world.stats(node, vec![running("a", 0)]);
    world.cut(node);
    let again = world.node_with(1, 100);
    assert_eq!(world.place(controller, "b", 20), None);
    assert_eq!(world.place(controller, "c", 10), Some(again));
}

#[test]
fn a_start_repeated_while_its_node_is_lost_shares_the_doubt() {
    let (mut world, controller, [node, other]) = World::new().with_nodes([100, 100]);
    world.start(controller, "a", 10);
    world.stats(node, vec![running("a", 0)]);
    world.cut(node);
    world.look_away();
    world.start(controller, "a", 10);
    assert_eq!(world.placements(), [], "it may still run on the lost node");
    world.advance(IN_DOUBT);
    assert_eq!(world.failures(controller), [lost("a")]);
    assert_eq!(
        world.place(controller, "a", 10),
        Some(other),
        "now it is free to run elsewhere"
    );
}

#[test]
fn the_failure_goes_to_all_controllers_once_its_sender_has_left() {
    let (mut world, sender, node) = World::new().with_node(100);
    let backup = world.controller();
    world.start(sender, "a", 10);
    world.cut(node);
    world.cut(sender);
    world.look_away();
    world.advance(IN_DOUBT);
    assert_eq!(world.failures(backup), [lost("a")]);
}

#[test]
fn a_newer_connection_puts_the_older_ones_starts_in_doubt() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start(controller, "a", 10);
    world.look_away();
    // Everything said so far was written to the older connection.
    let again = world.silent_node(1);
    world.ready(again, Size::of_mem(100));
    assert_eq!(world.told(node), []);
    // It may be another machine's, with the same UUID.
    world.stats(again, vec![running("other", 0)]);
    assert_eq!(world.failures(controller), []);
    world.advance(IN_DOUBT);
    world.stats(again, vec![running("other", 0)]);
    assert_eq!(world.failures(controller), [lost("a")]);
}

#[test]
fn what_the_replaced_connection_had_not_written_is_placed_again() {
    let (mut world, controller, _) = World::new().with_node(100);
    world.look_away();
    world.start(controller, "a", 10);
    let again = world.silent_node(1);
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::FullCloud)
    );
    world.ready(again, Size::of_mem(100));
    world.stats(again, vec![running("other", 0)]);
    assert_eq!(world.failures(controller), [], "it has had its outcome");
}

#[test]
fn a_start_and_its_delete_that_were_not_written_end_in_failures() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.node_with(2, 100);
    world.look_away();
    world.start(controller, "a", 10);
    world.delete(controller, "a", node);
    world.cut_unsent(node);
    assert_eq!(world.placements(), [], "it was deleted");
    let told = world.told(controller);
    let kinds: Vec<_> = told.iter().map(std::mem::discriminant).collect();
    assert_eq!(
        kinds.len(),
        3,
        "NodeDisconnected, StartFailure, DeleteFailure: {told:#?}"
    );
}

/// A node that was given a START and the DELETE of its instance, and is back on a newer connection: the START was written to
/// the older one, and did not arrive.
fn deleted_in_doubt(world: &mut World, start: StartRequest, controller: SessionId) -> SessionId {
    let node = connects(world);
    world.stats_seen(node, Some(0), Vec::new());
    let instance = start.instance.to_string();
    world.start_as(controller, start);
    world.look_away();
    world.delete(controller, &instance, node);
    connects(world)
}

/// A connection of node 1, always of the same process.
fn connects(world: &mut World) -> SessionId {
    let node = world.silent_node(1);
    let extras = NodeExtras {
        incarnation: Some(Uuid::from_u128(1)),
        ..NodeExtras::default()
    };
    let ready = NodeReport {
        extras: Some(Box::new(extras)),
        ..report(Size::of_mem(100))
    };
    world.report(node, ready);
    node
}

fn denied(world: &mut World, node: SessionId, name: &str) {
    let denied = Report::DeleteFailed {
        node: world.uuid_of(node).to_string().into(),
        instance: id(name),
        no_instance: true,
    };
    world.say(node, denied);
}

#[test]
fn a_start_in_doubt_fails_when_its_node_has_no_instance_to_delete() {
    let managed = request("a", 10).waiting(60).priority(50);
    for start in [request("a", 10), managed] {
        let (mut world, controller) = World::new().with_controller();
        let node = deleted_in_doubt(&mut world, start, controller);
        let told = world.told(node);
        let is_delete = |message: &Message| matches!(message, Message::Targeted(_));
        assert!(told.iter().any(is_delete), "{told:?}");
        world.look_away();
        denied(&mut world, node, "a");
        let told = world.told(controller);
        let is_answer = |message: &&Message| matches!(message, Message::Forward(_));
        assert_eq!(told.iter().filter(is_answer).count(), 1, "{told:?}");
        world.put_back(told.into_iter().map(|it| (controller, it)).collect());
        assert_eq!(world.failures(controller), [lost("a")]);
        world.stats_seen(node, Some(0), Vec::new());
        world.advance(IN_DOUBT);
        assert_eq!(world.failures(controller), [], "it has had its outcome");
    }
}

#[test]
fn a_start_in_doubt_that_was_deleted_fails_when_its_node_does_not_list_it() {
    let (mut world, controller) = World::new().with_controller();
    let node = connects(&mut world);
    world.stats_seen(node, Some(0), Vec::new());
    world.start_as(controller, request("a", 10).waiting(60).priority(50));
    world.delete(controller, "a", node);
    world.look_away();
    // Both were written, and neither arrived.
    let again = connects(&mut world);
    world.stats_seen(again, Some(0), Vec::new());
    assert_eq!(world.failures(controller), [lost("a")]);
}

#[test]
fn what_ran_before_and_is_denied_when_it_is_deleted_is_no_failure() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start(controller, "a", 10);
    world.stats_seen(node, Some(1), vec![running("a", 0)]);
    world.delete(controller, "a", node);
    world.look_away();
    let again = world.silent_node(1);
    denied(&mut world, again, "a");
    assert_eq!(world.failures(controller), []);
}

#[test]
fn an_unwritten_repetition_of_a_running_instances_start_is_no_news() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.node_with(2, 100);
    world.start(controller, "a", 10);
    world.stats(node, vec![running("a", 0)]);
    world.look_away();
    world.start(controller, "a", 10);
    world.cut_unsent(node);
    assert_eq!(world.placements(), []);
    world.status(node, Kind::FULL);
    assert_eq!(world.failures(controller), []);
}

#[test]
fn a_start_that_was_not_written_fails_as_cancelled_if_its_instance_is_being_deleted() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.node_with(2, 100);
    world.look_away();
    world.start_as(controller, request("a", 10).attempts(3));
    let start = world.told(node);
    assert_eq!(start.len(), 1, "{start:?}");
    // The START comes back, and its DELETE does not.
    world.delete(controller, "a", node);
    world.look_away();
    world.cut_returning(node, start);
    assert_eq!(world.placements(), [], "it is not started elsewhere");
    let told = world.told(controller).into_iter();
    let failures = told.filter_map(|message| match message {
        Message::StartFailure(failure) => Some(failure.payload),
        _ => None,
    });
    let failures: Vec<_> = failures.map(|it| (it.instance_uuid, it.detail)).collect();
    let cancelled = "deleted before any node was told of it".to_owned();
    assert_eq!(failures, [("a".to_owned(), Some(cancelled))]);
}
