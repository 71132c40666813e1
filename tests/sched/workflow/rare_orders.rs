//! Rare orders of events, each of which once had the wrong end.

use std::time::Duration;

use proto_frames::payload::{Evacuate, EvacuateMode, StartFailureReason};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    Backlog, Capabilities, Command, Dialect, Hello, Input, InstanceReport, InstanceState, Message,
    NodeReport, RefusedConnect,
};

use crate::support::durability::durable;
use crate::support::migration::able;
use crate::support::preemption::{frozen, sized};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::sending::kind_in;
use crate::support::world::{Size, World, node_uuid, report, request, running};

const IN_DOUBT: Duration = Duration::from_secs(15);

#[test]
fn a_peer_with_controller_and_agent_roles_may_leave() {
    let mut world = World::new();
    let both = world.join(
        Role::CONTROLLER | Role::AGENT,
        Uuid::from_u128(7),
        Dialect::Native,
    );
    world.cut(both);
}

#[test]
fn first_empty_stats_of_an_original_launcher_settles_what_is_in_doubt() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start(controller, "a", 10);
    world.cut(node);
    let again = world.node_with(1, 100);
    world.look_away();
    for _ in 0..20 {
        world.stats(again, vec![]);
        world.advance(Duration::from_secs(6));
    }
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::LaunchFailure)
    );
}

#[test]
fn a_start_still_queued_for_a_stalled_node_is_not_failed_and_then_placed() {
    let (mut world, controller, node) = World::new().with_node(100);
    let other = world.silent_node(2);
    world.stats(node, vec![running("other", 0)]);
    world.look_away();
    world.start(controller, "a", 10);
    let session = node;
    world.handle(Input::Backlog {
        session,
        backlog: Backlog::Stalled,
    });
    for _ in 0..3 {
        world.stats(node, vec![running("other", 0)]);
    }
    let failed = world.failures(controller);
    world.ready(other, Size::default());
    world.cut_unsent(node);
    let placed = world.placements();
    assert!(
        failed.is_empty() || placed.is_empty(),
        "told {failed:?}, then placed {placed:?}"
    );
}

#[test]
fn a_start_that_waits_goes_to_the_node_that_lists_its_instance() {
    let (mut world, controller) = World::expecting(3).with_controller();
    world.start(controller, "a", 50);
    let holder = world.silent_node(1);
    world.ready(holder, Size::of_mem(10));
    world.stats(holder, vec![running("a", 50)]);
    world.look_away();
    world.node_with(2, 100);
    assert_eq!(world.placements(), [("a".to_owned(), holder)]);
}

#[test]
fn a_command_not_yet_written_to_a_replaced_connection_reaches_the_newer_one() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.stats(node, vec![running("a", 0)]);
    world.look_away();
    world.delete(controller, "a", node);
    let again = world.silent_node(1);
    let told = world.told(controller);
    assert!(told.is_empty(), "the node is there: {told:?}");
    assert!(
        world
            .told(again)
            .iter()
            .any(|message| matches!(message, Message::Targeted(_)))
    );
}

#[test]
fn a_failure_not_yet_written_to_its_sender_goes_to_the_others() {
    let mut world = World::new();
    let sender = world.controller();
    let backup = world.controller();
    world.node_with(1, 100);
    world.look_away();
    world.start(sender, "a", 1000);
    world.cut_unsent(sender);
    assert_eq!(
        world.failures(backup),
        one_failure("a", StartFailureReason::FullCloud)
    );
}

#[test]
fn a_start_after_a_delete_that_were_not_written_is_placed_again() {
    let (mut world, controller, node) = World::new().with_node(100);
    let other = world.silent_node(2);
    world.look_away();
    world.delete(controller, "a", node);
    world.start(controller, "a", 10);
    world.ready(other, Size::default());
    world.cut_unsent(node);
    assert_eq!(world.placements(), [("a".to_owned(), other)]);
}

#[test]
fn an_explanation_is_not_hours_old() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place(controller, "x", 80);
    world.look_away();
    world.start(controller, "a", 50);
    world.look_away();
    world.advance(Duration::from_secs(8 * 3600));
    world.status(node, Kind::MAINTENANCE);
    world.start(controller, "b", 50);
    let Message::StartFailure(failure) = world.told_once(controller) else {
        panic!("no failure")
    };
    let detail = failure.payload.detail.unwrap();
    assert!(detail.contains("in maintenance"), "{detail}");
}

#[test]
fn what_the_latest_stats_do_not_list_counts_as_using_nothing() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, "a", 600);
    world.stats(node, vec![running("a", 600)]);
    world.stats(node, vec![running("other", 0)]);
    assert_eq!(world.place(controller, "b", 500), None);
}

#[test]
fn the_instance_that_two_nodes_listed_is_known_once_one_of_them_drops_it() {
    let (mut world, controller, [first, second]) = World::new().with_nodes([1000, 1000]);
    world.node_with(3, 1000);
    world.stats(first, vec![running("a", 0)]);
    world.stats(second, vec![running("a", 0)]);
    world.gone(first, Kind::INSTANCE_STOPPED, "a");
    world.stats(second, vec![running("a", 0)]);
    assert_eq!(world.place(controller, "a", 10), Some(second));
}

#[test]
fn a_full_node_that_is_back_is_back() {
    let (mut world, controller) = World::expecting(1).with_controller();
    let node = world.silent_node(1);
    world.status(node, Kind::FULL);
    world.stats(node, Vec::new());
    world.look_away();
    world.start(controller, "a", 10);
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::FullCloud)
    );
}

#[test]
fn what_fits_does_not_wait_behind_what_does_not() {
    let (mut world, controller) = World::expecting(3).with_controller();
    for at in 0..16 {
        world.start(controller, &format!("large-{at}"), 1000);
    }
    world.start(controller, "small", 10);
    world.look_away();
    let node = world.node_with(1, 100);
    for _ in 0..5 {
        world.ready(node, Size::of_mem(100));
    }
    assert_eq!(world.placements(), [("small".to_owned(), node)]);
}

#[test]
fn no_one_is_operator_and_controller_at_once() {
    let mut world = World::new();
    let role = Role::CONTROLLER | Role::OPERATOR;
    let hello = Hello::native(Uuid::from_u128(7), role);
    assert_eq!(
        world.knock(hello),
        Err(RefusedConnect::OperatorAndController)
    );
}

#[test]
fn a_repeated_start_of_a_running_instance_has_an_outcome_when_its_node_is_lost() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start(controller, "a", 10);
    world.stats(node, vec![running("a", 0)]);
    world.start(controller, "a", 10);
    world.cut(node);
    world.look_away();
    world.advance(IN_DOUBT);
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::LaunchFailure)
    );
}

#[test]
fn duplicates_in_stats_do_not_hide_what_is_missing() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, "a", 600);
    world.look_away();
    for _ in 0..3 {
        world.stats(node, vec![running("x", 0), running("x", 0)]);
    }
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::LaunchFailure)
    );
}

#[test]
fn a_concentrator_that_is_also_a_launcher_is_found() {
    let (mut world, controller) = World::new().with_controller();
    let uuid = Uuid::from_u128(0xcc);
    let both = world.join(Role::CNCIAGENT | Role::AGENT, uuid, Dialect::Native);
    world.look_away();
    let agent = uuid.to_string().into();
    world.say(controller, Command::RefreshCnci { agent });
    assert_eq!(world.told(both).len(), 1);
}

#[test]
fn a_failure_that_all_were_told_is_not_told_again_when_one_of_them_leaves() {
    let mut world = World::new();
    let sender = world.controller();
    let (stays, leaves) = (world.controller(), world.controller());
    let node = world.node_with(1, 100);
    world.start(sender, "a", 10);
    world.cut(node);
    world.cut(sender);
    world.look_away();
    world.advance(IN_DOUBT);
    assert_eq!(world.failures(stays).len(), 1);
    world.cut_unsent(leaves);
    assert_eq!(world.failures(stays), []);
}

#[test]
fn of_starts_that_were_not_sent_the_most_urgent_is_placed_again_first() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.node_with(1, 200);
    for (name, priority) in [("low", 10), ("high", 90)] {
        let start = request(name, 60).movable().priority(priority);
        world.start_as(controller, start);
    }
    let other = world.node_with(2, 60);
    world.cut_unsent(node);
    assert_eq!(world.placements(), [("high".to_owned(), other)]);
}

/// A START has the room of one that leaves for it, and has not been given to the node; which lists it as being started.
#[test]
fn a_node_may_list_a_start_as_pending_that_it_was_not_given_because_its_room_is_not_free() {
    let (mut world, controller) = World::with_preemption().with_controller();
    let node = world.able(1, 100, 8);
    world.run_on(controller, node, vec![sized("low", 100, 10)]);
    world.start_as(controller, sized("high", 100, 90));
    assert_eq!(world.orders(node), ["stop low"]);
    assert_eq!(world.placements(), []);
    let pending = InstanceReport {
        state: InstanceState::Pending,
        ..running("high", 0)
    };
    world.stats_seen(node, Some(1), vec![running("low", 0), pending]);
    assert_eq!(world.placements(), [], "it is there");
    // What it was started by there has failed.
    world.start_failed(node, "high", StartFailureReason::LaunchFailure);
    world.stats_seen(node, Some(1), vec![running("low", 0)]);
    let forwarded = world.told_of(controller, |message| match message {
        Message::Forward(parcel) => (kind_in(&parcel) == Kind::START_FAILURE).then_some(()),
        _ => None,
    });
    assert_eq!(forwarded.len(), 1);
}

/// An instance of which no START is known cannot be moved while it is suspended: neither by its launcher nor by being
/// started elsewhere.
#[test]
fn a_drain_does_not_begin_again_and_again_what_cannot_be_moved() {
    let (mut world, controller) = World::with(durable()).with_controller();
    let nodes = [1, 2].map(|number| {
        let node = world.silent_node(number);
        let all = Capabilities::SUSPEND.and(Capabilities::MIGRATE);
        let ready = NodeReport {
            extras: Some(Box::new(able(all))),
            ..report(Size::of_mem(100))
        };
        world.report(node, ready);
        node
    });
    world.stats_seen(nodes[1], Some(0), vec![]);
    world.stats_seen(nodes[0], Some(0), vec![frozen("found")]);
    let evacuate = Evacuate {
        workload_agent_uuid: node_uuid(1).to_string(),
        mode: EvacuateMode::Relocate,
        ..Evacuate::default()
    };
    world.say(controller, Command::Evacuate(Box::new(evacuate)));
    world.advance(Duration::from_secs(60));
    assert_eq!(world.orders(nodes[0]), Vec::<String>::new());
    // It goes as soon as it runs.
    world.stats_seen(nodes[0], Some(0), vec![running("found", 1)]);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.orders(nodes[0]), ["migrate found"]);
}

/// The target of a move lists a copy that should not be there, and then not any more: its room is kept for the one that
/// is to come.
#[test]
fn a_copy_on_the_target_of_a_move_does_not_take_the_claim_with_it() {
    let (mut world, controller, from) = World::new().with_node(100);
    world.start_as(controller, request("a", 50).movable());
    world.list(from, &["a"]);
    let to = world.node_with(2, 100);
    world.migrate(controller, "a", Some(to));
    assert_eq!(world.stops(from), ["a"]);
    world.list(to, &["a"]);
    world.gone(to, Kind::INSTANCE_DELETED, "a");
    world.look_away();
    assert_eq!(
        world.place(controller, "other", 60),
        None,
        "the room is claimed"
    );
    world.has_stopped(from, "a");
    assert_eq!(world.placements(), [("a".to_owned(), to)]);
}
