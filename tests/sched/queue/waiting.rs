//! STARTs that wait for room, and those that are tried on other nodes.

use std::time::Duration;

use bytes::Bytes;
use proto_frames::Kind;
use proto_frames::payload::{
    Batch, GroupPolicy, PhaseName, Scheduling, Span, StartFailureReason, Update,
};
use sched_core::{InstanceReport, InstanceState, Message, NodeReport, SessionId};

use crate::support::durability::{LEASE, crash, durable, leased};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::words::{asking, expressions, group, labels, member};
use crate::support::world::{Size, World, report, request, running};

#[test]
fn a_start_that_fits_nowhere_waits_and_is_told_its_place() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place(controller, "a", 80);
    world.start_as(controller, request("b", 50).waiting(30));
    world.start_as(controller, request("c", 60).waiting(30));
    let queued = world.queued(controller);
    let places: Vec<_> = queued
        .iter()
        .map(|it| (&*it.instance_uuid, it.position))
        .collect();
    assert_eq!(places, [("b", 1), ("c", 2)]);
    assert!(queued[0].detail.contains("memory"), "{}", queued[0].detail);
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    assert_eq!(world.placements(), [("b".to_owned(), node)]);
}

#[test]
fn the_more_urgent_is_served_first_and_then_who_came_first() {
    let (mut world, controller, node) = World::new().with_full_node();
    for (name, priority) in [("low", 10), ("first", 50), ("second", 50), ("high", 90)] {
        world.start_as(controller, request(name, 25).waiting(30).priority(priority));
    }
    world.look_away();
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    let names: Vec<String> = world.placements().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["high", "first", "second", "low"]);
}

#[test]
fn what_is_too_big_does_not_keep_the_smaller_from_room_that_is_there() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place(controller, "a", 60);
    world.place(controller, "b", 40);
    world.start_as(controller, request("big", 90).waiting(30));
    world.start_as(controller, request("small", 30).waiting(30));
    world.look_away();
    world.gone(node, Kind::INSTANCE_DELETED, "b");
    assert_eq!(world.placements(), [("small".to_owned(), node)]);
}

#[test]
fn a_node_that_joins_serves_who_waits() {
    let (mut world, controller, _) = World::new().with_node(10);
    world.node_with(3, 200);
    world.place(controller, "a", 150);
    world.start_as(controller, request("b", 100).waiting(30));
    world.look_away();
    let node = world.node_with(2, 100);
    assert_eq!(world.placements(), [("b".to_owned(), node)]);
}

#[test]
fn what_can_never_fit_is_answered_at_once() {
    let (mut world, controller, _) = World::new().with_node(100);
    world.start_as(controller, request("a", 101).waiting(30));
    let failures = world.failures(controller);
    assert_eq!(failures, one_failure("a", StartFailureReason::FullCloud));
}

#[test]
fn a_wait_that_times_out_fails_with_a_reason_the_sender_can_read() {
    let mut world = World::new();
    world.node_with(1, 100);
    for original in [false, true] {
        let controller = if original {
            world.original_controller()
        } else {
            world.controller()
        };
        world.place(controller, "a", 100);
        world.start_as(controller, request("b", 50).waiting(30));
        world.advance(Duration::from_secs(29));
        assert_eq!(world.failures(controller), []);
        world.advance(Duration::from_secs(1));
        let told = world.told(controller);
        let Some(Message::StartFailure(failure)) = told
            .into_iter()
            .find(|it| matches!(it, Message::StartFailure(_)))
        else {
            panic!("nobody was told");
        };
        let expected = if original {
            StartFailureReason::FullCloud
        } else {
            StartFailureReason::QueueTimeout
        };
        assert_eq!(failure.reason, expected);
        assert_eq!(failure.reasons.is_empty(), original);
        world.cut(controller);
    }
}

#[test]
fn a_start_that_waits_is_deleted_without_having_run() {
    let (mut world, controller, node) = World::new().with_full_node();
    world.start_as(controller, request("b", 50).waiting(30));
    world.look_away();
    world.delete(controller, "b", node);
    let told = world.told(controller);
    assert!(
        told.iter()
            .any(|it| matches!(it, Message::InstanceDeleted(it) if it.instance_uuid == "b")),
        "{told:?}"
    );
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    assert_eq!(world.placements(), []);
}

#[test]
fn the_same_start_again_is_told_its_place_again_and_waits_once() {
    let (mut world, controller, node) = World::new().with_full_node();
    world.start_as(controller, request("b", 50).waiting(30));
    world.look_away();
    world.start_as(controller, request("b", 50).waiting(30));
    assert_eq!(world.queued(controller).len(), 1);
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    assert_eq!(world.placements(), [("b".to_owned(), node)]);
}

#[test]
fn a_start_without_queue_fails_at_once_as_ever() {
    let (mut world, controller, _) = World::new().with_full_node();
    world.start_as(controller, request("b", 50).waiting(0));
    let failures = world.failures(controller);
    assert_eq!(failures, one_failure("b", StartFailureReason::FullCloud));
}

#[test]
fn a_refused_start_goes_to_the_next_node_and_its_sender_hears_of_the_end_alone() {
    let (mut world, controller, [one, two]) = World::new().with_nodes([100, 100]);
    let first = world.place_as(controller, request("a", 50).attempts(2));
    let first = first.expect("a node fits");
    let second = if first == one { two } else { one };
    world.look_away();
    world.start_failed(first, "a", StartFailureReason::FullComputeNode);
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
    assert_eq!(world.failures(controller), []);
    world.start_failed(second, "a", StartFailureReason::LaunchFailure);
    let told = world.told(controller);
    let failures: Vec<_> = told
        .iter()
        .filter_map(|it| match it {
            Message::StartFailure(failure) => Some(failure),
            _ => None,
        })
        .collect();
    assert_eq!(failures.len(), 1, "{told:?}");
    assert_eq!(failures[0].reason, StartFailureReason::LaunchFailure);
    let tried: Vec<_> = failures[0]
        .attempts
        .iter()
        .map(|it| it.reason.clone())
        .collect();
    assert_eq!(
        tried,
        [
            StartFailureReason::FullComputeNode,
            StartFailureReason::LaunchFailure
        ]
    );
}

#[test]
fn a_start_that_may_wait_and_is_refused_as_full_waits_and_its_node_is_asked_again() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place_as(controller, request("a", 50).waiting(30));
    for wait in [1, 1, 2, 4, 8] {
        world.look_away();
        world.start_failed(node, "a", StartFailureReason::FullComputeNode);
        assert_eq!(world.failures(controller), []);
        // Not at once, however often it reports.
        world.ready(node, Size::of_mem(100));
        world.advance(Duration::from_millis(wait * 1000 - 1));
        assert_eq!(world.placements(), []);
        world.advance(Duration::from_millis(1));
        assert_eq!(world.placements(), [("a".to_owned(), node)]);
    }
    world.start_failed(node, "a", StartFailureReason::FullComputeNode);
    world.advance(Duration::from_secs(30));
    let failures = world.failures(controller);
    assert_eq!(failures, one_failure("a", StartFailureReason::QueueTimeout));
}

#[test]
fn what_full_nodes_refuse_is_no_attempt_of_one_that_may_wait() {
    let (mut world, controller, [one, two]) = World::new().with_nodes([100, 100]);
    let first = world.place_as(controller, request("a", 50).waiting(30).attempts(2));
    let first = first.expect("a node fits");
    let second = if first == one { two } else { one };
    world.look_away();
    world.start_failed(first, "a", StartFailureReason::FullComputeNode);
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
    world.start_failed(second, "a", StartFailureReason::LaunchFailure);
    assert_eq!(world.placements(), []);
    // Only the one that was full: a failure to start is an attempt.
    world.advance(Duration::from_secs(1));
    assert_eq!(world.placements(), [("a".to_owned(), first)]);
    assert_eq!(world.failures(controller), []);
    world.start_failed(first, "a", StartFailureReason::LaunchFailure);
    let failures = world.failures(controller);
    assert_eq!(
        failures,
        one_failure("a", StartFailureReason::LaunchFailure)
    );
}

#[test]
fn a_node_that_could_not_start_what_waits_is_not_asked_again() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place_as(controller, request("a", 50).waiting(30).attempts(2));
    world.look_away();
    world.start_failed(node, "a", StartFailureReason::LaunchFailure);
    world.advance(Duration::from_secs(29));
    assert_eq!(world.placements(), []);
}

#[test]
fn a_start_that_no_node_is_left_for_fails_for_what_the_last_one_said() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place_as(controller, request("a", 50).attempts(3));
    world.start_failed(node, "a", StartFailureReason::ImageFailure);
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::ImageFailure)
    );
}

#[test]
fn a_node_that_is_still_at_it_may_yet_fail_and_the_next_is_tried() {
    let (mut world, controller, [one, two]) = World::new().with_nodes([100, 100]);
    let first = world.place_as(controller, request("a", 50).attempts(2));
    let first = first.expect("a node fits");
    let second = if first == one { two } else { one };
    world.look_away();
    let begins = InstanceReport {
        state: InstanceState::Pending,
        ..running("a", 0)
    };
    world.stats(first, vec![begins]);
    world.start_failed(first, "a", StartFailureReason::ImageFailure);
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
    assert_eq!(world.failures(controller), []);
}

#[test]
fn what_is_wrong_with_the_start_itself_is_not_tried_elsewhere() {
    let (mut world, controller, [one, _]) = World::new().with_nodes([100, 100]);
    let node = world.place_as(controller, request("a", 50).attempts(3));
    let node = node.unwrap_or(one);
    world.look_away();
    world.start_failed(node, "a", StartFailureReason::InvalidData);
    assert_eq!(world.placements(), []);
    let failures = world.failures(controller);
    assert_eq!(failures, one_failure("a", StartFailureReason::InvalidData));
}

#[test]
fn those_who_follow_an_instance_are_told_each_of_its_states() {
    let (mut world, controller, node) = World::new().with_full_node();
    world.start_as(controller, request("b", 50).waiting(30));
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    world.stats(node, vec![running("b", 1)]);
    world.gone(node, Kind::INSTANCE_STOPPED, "b");
    let states = world.states(controller);
    let of_b: Vec<_> = states.into_iter().map(|it| it.1).collect();
    let expected = [
        PhaseName::Waiting,
        PhaseName::Placing,
        PhaseName::Running,
        PhaseName::Gone,
    ];
    assert_eq!(of_b, expected);
    assert_eq!(running("b", 1).state, InstanceState::Active);
}

#[test]
fn a_node_that_becomes_what_somebody_waits_for_serves_it() {
    let (mut world, controller) = World::new().with_controller();
    world.labelled(1, &[("disk", "ssd")]);
    world.place(controller, "a", 1000);
    let second = world.labelled(2, &[("disk", "hdd")]);
    let scheduling = Scheduling {
        require: expressions(&["disk = ssd"]),
        queue: Some(Span::from_ms(30_000)),
        ..Scheduling::default()
    };
    world.start_as(controller, asking("b", 100, scheduling));
    world.look_away();
    let report = NodeReport {
        extras: Some(Box::new(labels(&[("disk", "ssd")]))),
        ..report(Size::default())
    };
    world.report(second, report);
    assert_eq!(world.placements(), [("b".to_owned(), second)]);
}

#[test]
fn who_waits_for_what_no_node_tells_of_is_looked_at_now_and_then() {
    let (mut world, controller) = World::new().with_controller();
    let nodes = [1, 2].map(|number| world.labelled(number, &[("rack", "r1")]));
    let mut apart = group("g", GroupPolicy::AntiAffinity);
    apart.scope = "rack".to_owned();
    let placed = world.place_as(controller, member("a", &apart));
    let placed = placed.expect("a node fits");
    let mut waits = member("b", &apart);
    if let Some(scheduling) = &mut waits.scheduling {
        scheduling.queue = Some(Span::from_ms(30_000));
    }
    world.start_as(controller, waits);
    world.look_away();
    // Its own node takes no work, so that it does not offer more; the other one has no part in it.
    world.status(placed, Kind::FULL);
    world.gone(placed, Kind::INSTANCE_DELETED, "a");
    world.advance(Duration::from_secs(3));
    let placements = world.placements();
    assert_eq!(placements.len(), 1);
    assert_ne!(placements[0].1, placed);
    assert!(nodes.contains(&placements[0].1));
}

#[test]
fn a_node_that_failed_often_is_the_last_choice_of_those_who_are_managed_for_a_while() {
    let (mut world, controller, bad) = World::new().with_node(1000);
    for name in ["x", "y", "z"] {
        assert_eq!(world.place(controller, name, 10), Some(bad));
        world.start_failed(bad, name, StartFailureReason::LaunchFailure);
    }
    let good = world.node_with(2, 100);
    assert_eq!(
        world.place_as(controller, request("a", 50).attempts(2)),
        Some(good)
    );
    assert_eq!(
        world.place_as(controller, request("b", 50).attempts(2)),
        Some(good)
    );
    let last = world.place_as(controller, request("c", 50).attempts(2));
    assert_eq!(last, Some(bad), "nothing else fits");
    world.advance(Duration::from_secs(3600));
    assert_eq!(
        world.place_as(controller, request("d", 10).attempts(2)),
        Some(bad)
    );
}

#[test]
fn what_a_node_that_is_back_has_goes_to_who_waits_before_a_batch_of_less_priority() {
    let (mut world, controller) = World::expecting(2).with_controller();
    world.start_as(controller, request("waits", 100).waiting(300));
    let scheduling = Scheduling {
        priority: Some(10),
        batch: Some(Batch {
            id: "b".to_owned(),
            count: 1,
        }),
        ..Scheduling::default()
    };
    world.start_as(controller, asking("low", 100, scheduling));
    let node = world.node_with(1, 100);
    assert_eq!(world.placements(), [("waits".to_owned(), node)]);
}

/// Fills the queue, as far as it is open to a peer, to its last byte: with STARTs of 60 MiB each, by payloads of less and
/// less length.
fn fill_queue(world: &mut World, peer: SessionId) {
    let longest = Bytes::from(vec![b' '; 1 << 20]);
    let mut len = longest.len();
    for number in 0.. {
        let start = request(&format!("filler-{peer:?}-{number}"), 60).waiting(86_400);
        world.start_with(peer, start, longest.slice(..len));
        if !world.failures(peer).is_empty() {
            if len == 0 {
                return;
            }
            len /= 2;
        }
    }
}

/// A node of 100 MiB, none of it available.
fn full_node(world: &mut World, number: u64) {
    let node = world.silent_node(number);
    let full = NodeReport {
        mem_available_mib: 0,
        ..report(Size::of_mem(100))
    };
    world.report(node, full);
}

#[test]
fn what_has_run_waits_for_another_node_although_the_queue_is_full() {
    let (mut world, controller, node) = World::new().with_leased("a");
    fill_queue(&mut world, controller);
    let start = request("b", 60).waiting(30);
    world.start_as(controller, start);
    let failures = world.failures(controller);
    assert_eq!(failures, one_failure("b", StartFailureReason::FullCloud));

    world.lose(node);
    world.advance(2 * LEASE);
    assert_eq!(world.failures(controller), []);
    world.look_away();
    let other = leased(&mut world, 2, 100);
    assert_eq!(world.placements(), [("a".to_owned(), other)]);
}

#[test]
fn what_operators_have_waiting_counts_as_theirs_after_a_restart() {
    let (mut world, controller, _) = World::with(durable()).with_full_node();
    let operator = world.operator(&[]);
    fill_queue(&mut world, operator);
    let refused = |world: &mut World, peers: [SessionId; 2]| {
        peers.map(|peer| {
            let start = request(&format!("b-{peer:?}"), 60).waiting(30);
            world.start_as(peer, start);
            !world.failures(peer).is_empty()
        })
    };
    assert_eq!(refused(&mut world, [operator, controller]), [true, false]);

    crash(&mut world, 1);
    full_node(&mut world, 1);
    let (operator, controller) = (world.operator(&[]), world.controller());
    fill_queue(&mut world, operator);
    assert_eq!(refused(&mut world, [operator, controller]), [true, false]);
}

#[test]
fn what_waited_before_a_restart_waits_after_it_whatever_its_history_takes_up() {
    let (mut world, controller, _) = World::with(durable()).with_full_node();
    fill_queue(&mut world, controller);
    let waiting = world.store.len();
    world.store.set_details(&"x".repeat(500));
    crash(&mut world, 1);
    assert_eq!(world.store.len(), waiting);
}

#[test]
fn what_waits_is_updated_although_the_queue_is_full() {
    let (mut world, controller, node) = World::new().with_leased("a");
    world.start_as(controller, request("b", 60).waiting(3600));
    fill_queue(&mut world, controller);
    full_node(&mut world, 2);
    // Beyond its limit.
    world.lose(node);
    world.advance(2 * LEASE);
    let update = Update {
        instance_uuid: "b".to_owned(),
        mem_mb: Some(70),
        priority: Some(70),
        ..Update::default()
    };
    world.update_as(controller, update);
    assert_eq!(world.failures(controller), []);
}
