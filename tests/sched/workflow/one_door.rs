//! Whatever way a START comes in, its instance is asked for in the same place: one that a node has goes there, one that
//! the scheduler has is not started a second time.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::StartFailureReason;
use sched_core::{
    BATCH_TIME, Capabilities, Config, IN_DOUBT_TIME, Input, NodeExtras, NodeReport, Rules,
    SessionId, StartRequest,
};

use crate::support::durability::{crash, durable, leased, leased_ready};
use crate::support::preemption::{cpus, sized};
use crate::support::requests::Asking;
use crate::support::words::tried;
use crate::support::world::{Size, World, config, known_node, report, request, running};

/// Longer than any lease of these nodes, with all that is added to it.
const LEASE_IS_OVER: Duration = Duration::from_secs(60);

/// The ways in which one START comes: alone, as a batch of its own, and as the last of a batch.
fn ways(start: &StartRequest) -> [Vec<StartRequest>; 3] {
    let first = request("first", 1).of_batch("b2", 2);
    [
        vec![start.clone()],
        vec![start.clone().of_batch("b1", 1)],
        vec![first, start.clone().of_batch("b2", 2)],
    ]
}

/// Where an instance was started since the test last looked.
fn starts_of(world: &mut World, name: &str) -> Vec<SessionId> {
    let placed = world.placements().into_iter();
    placed
        .filter(|(placed, _)| placed == name)
        .map(|(_, node)| node)
        .collect()
}

fn refused(name: &str) -> Vec<(String, StartFailureReason)> {
    vec![(name.to_owned(), StartFailureReason::InstanceExists)]
}

#[test]
fn an_instance_that_will_be_restarted_when_its_lease_is_over_is_started_once_whatever_comes_in() {
    for (at, starts) in ways(&request("x", 50).restarting()).into_iter().enumerate() {
        let (mut world, controller) = World::new().with_controller();
        let node = leased(&mut world, 1, 100);
        assert_eq!(
            world.place_as(controller, request("x", 50).restarting()),
            Some(node)
        );
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        let other = leased(&mut world, 2, 200);
        world.lose(node);
        world.look_away();
        for start in starts {
            world.start_as(controller, start);
        }
        assert_eq!(starts_of(&mut world, "x"), [], "way {at}: its copy runs");
        assert_eq!(world.failures(controller), refused("x"), "way {at}");
        world.advance(LEASE_IS_OVER);
        assert_eq!(starts_of(&mut world, "x"), [other], "way {at}");
    }
}

#[test]
fn what_was_on_nodes_before_a_restart_is_not_started_before_they_have_said_what_they_have() {
    for (at, starts) in ways(&request("x", 50).restarting()).into_iter().enumerate() {
        let (mut world, controller) = World::with(durable()).with_controller();
        let node = leased(&mut world, 1, 100);
        assert_eq!(
            world.place_as(controller, request("x", 50).restarting()),
            Some(node)
        );
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        crash(&mut world, 2);
        let controller = world.controller();
        let other = leased(&mut world, 2, 200);
        world.stats_seen(other, Some(0), vec![]);
        world.look_away();
        for start in starts {
            world.start_as(controller, start);
        }
        assert_eq!(starts_of(&mut world, "x"), [], "way {at}: its copy runs");
        let node = leased(&mut world, 1, 100);
        world.stats_seen(node, Some(0), vec![running("x", 1)]);
        world.advance(LEASE_IS_OVER);
        let others = starts_of(&mut world, "x").into_iter();
        assert_eq!(others.filter(|it| *it != node).count(), 0, "way {at}");
    }
}

#[test]
fn a_start_of_an_instance_whose_node_is_expected_back_after_a_restart_waits_for_the_node() {
    for (at, starts) in ways(&request("x", 50).waiting(30)).into_iter().enumerate() {
        let (mut world, controller, node) = World::with(durable()).with_node(100);
        assert_eq!(
            world.place_as(controller, request("x", 50).waiting(30)),
            Some(node)
        );
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        crash(&mut world, 2);
        let controller = world.controller();
        let other = world.node_with(2, 200);
        world.look_away();
        for start in starts {
            world.start_as(controller, start);
        }
        assert_eq!(starts_of(&mut world, "x"), [], "way {at}: its copy runs");
        let node = world.node_with(1, 100);
        assert_eq!(starts_of(&mut world, "x"), [], "way {at}: its copy runs");
        world.stats_seen(node, Some(0), vec![running("x", 1)]);
        world.stats_seen(other, Some(0), vec![]);
        world.advance(Duration::from_secs(1));
        assert_eq!(starts_of(&mut world, "x"), [node], "way {at}");
        assert_eq!(world.failures(controller), [], "way {at}");
    }
}

#[test]
fn a_start_of_what_was_on_a_node_that_stays_away_after_a_restart_is_placed_elsewhere() {
    for (at, starts) in ways(&request("x", 50).waiting(3000))
        .into_iter()
        .enumerate()
    {
        let (mut world, controller, node) = World::with(durable()).with_node(100);
        world.start_as(controller, request("x", 50).waiting(3000));
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        crash(&mut world, 2);
        let controller = world.controller();
        let other = world.node_with(2, 200);
        world.stats_seen(other, Some(0), vec![]);
        world.look_away();
        for start in starts {
            world.start_as(controller, start);
        }
        assert_eq!(starts_of(&mut world, "x"), [], "way {at}");
        world.advance(Duration::from_secs(600));
        assert_eq!(starts_of(&mut world, "x"), [other], "way {at}");
    }
}

#[test]
fn a_node_that_is_back_is_waited_for_until_it_has_said_what_it_has() {
    for (at, starts) in ways(&request("x", 50).waiting(30)).into_iter().enumerate() {
        let (mut world, controller, node) = World::new().with_node(100);
        world.start_as(controller, request("x", 50).waiting(30));
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        world.lose(node);
        world.node_with(2, 200);
        let node = world.node_with(1, 100);
        world.look_away();
        for start in starts {
            world.start_as(controller, start);
        }
        assert_eq!(starts_of(&mut world, "x"), [], "way {at}");
        assert_eq!(world.failures(controller), refused("x"), "way {at}");
        world.stats_seen(node, Some(0), vec![running("x", 1)]);
        assert_eq!(starts_of(&mut world, "x"), [], "way {at}");
    }
}

#[test]
fn of_an_instance_that_was_started_again_the_copy_on_its_lost_node_is_stopped() {
    for (at, starts) in ways(&request("x", 50)).into_iter().enumerate() {
        let (mut world, controller, node) = World::new().with_node(100);
        world.start_as(controller, request("x", 50).waiting(30));
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        world.lose(node);
        let other = world.node_with(2, 200);
        world.look_away();
        for start in starts {
            world.start_as(controller, start);
        }
        assert_eq!(starts_of(&mut world, "x"), [other], "way {at}");
        world.stats_seen(other, Some(2), vec![running("x", 1), running("first", 1)]);
        world.look_away();
        let node = world.silent_node(1);
        world.stats_seen(node, Some(0), vec![running("x", 1)]);
        assert_eq!(world.stops(node), ["x"], "way {at}");
        assert_eq!(world.stops(other), [""; 0], "way {at}");
    }
}

#[test]
fn a_batch_does_not_start_what_was_lost_after_its_start_had_come() {
    for start in [request("x", 50), request("x", 50).waiting(30)] {
        let (mut world, controller, node) = World::new().with_node(100);
        world.start_as(controller, start.clone());
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        world.cut(node);
        let other = world.node_with(2, 200);
        world.start_as(controller, start.of_batch("b", 3));
        world.advance(IN_DOUBT_TIME + Duration::from_secs(1));
        world.look_away();
        world.start_as(controller, request("y", 1).of_batch("b", 3));
        world.start_as(controller, request("z", 1).of_batch("b", 3));
        assert_eq!(starts_of(&mut world, "x"), [], "its lost node may run it");
        assert_eq!(world.failures(controller), refused("x"));
        // Who sends it again knows of the loss.
        world.start_as(controller, request("x", 50).of_batch("b", 1));
        assert_eq!(starts_of(&mut world, "x"), [other]);
    }
}

#[test]
fn a_start_that_comes_after_the_loss_is_placed_also_where_an_earlier_batch_failed_or_waits() {
    for waits in [false, true] {
        let (mut world, controller, node) = World::new().with_node(100);
        world.place_as(controller, request("x", 50));
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        world.cut(node);
        let other = world.node_with(2, 200);
        world.start_as(controller, request("x", 50).of_batch("b", 2));
        world.advance(IN_DOUBT_TIME + Duration::from_secs(1));
        if !waits {
            world.advance(BATCH_TIME);
        }
        world.look_away();
        world.start_as(controller, request("x", 50).of_batch("b", 2));
        world.start_as(controller, request("y", 1).of_batch("b", 2));
        assert_eq!(starts_of(&mut world, "x"), [other], "waits: {waits}");
    }
}

#[test]
fn a_batch_that_ends_does_not_give_a_node_what_is_not_on_disk() {
    for deletes in [false, true] {
        let (mut world, controller, node) = World::with(durable()).with_full_node();
        // It waits for room, and is one of a batch whose other STARTs do not come.
        world.start_as(controller, request("x", 50).waiting(300));
        world.start_as(controller, request("x", 50).waiting(300).of_batch("b", 3));
        world.start_as(controller, request("y", 1).of_batch("b", 3));
        world.store.be_slow();
        world.gone(node, Kind::INSTANCE_DELETED, "a");
        assert_eq!(starts_of(&mut world, "x"), [], "its room is not on disk");
        world.look_away();
        if deletes {
            world.delete(controller, "y", node);
        } else {
            world.advance(BATCH_TIME);
        }
        assert_eq!(starts_of(&mut world, "x"), [], "its room is not on disk");
        let failures = world.failures(controller);
        assert!(failures.contains(&refused("x")[0]), "{failures:?}");
        world.store.commit();
        world.handle(Input::Tick);
        assert_eq!(starts_of(&mut world, "x"), [node]);
    }
}

#[test]
fn of_a_batch_an_instance_that_waits_for_room_goes_on_waiting() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place(controller, "a", 60);
    world.start_as(controller, request("x", 50).waiting(300));
    world.look_away();
    world.start_as(controller, request("x", 50).waiting(300).of_batch("b", 2));
    world.start_as(controller, request("y", 40).of_batch("b", 2));
    assert_eq!(world.placements(), [("y".to_owned(), node)]);
    assert_eq!(world.queued(controller).len(), 1, "it is told again");
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    assert_eq!(starts_of(&mut world, "x"), [node]);
}

#[test]
fn of_a_batch_an_instance_whose_victims_are_not_away_is_not_given_to_its_node() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("x", 4, 90));
    assert_eq!(world.orders(node), ["suspend low"]);
    world.start_as(controller, cpus("x", 4, 90).of_batch("b", 1));
    assert_eq!(world.orders(node), [""; 0]);
    assert_eq!(world.failures(controller), refused("x"));
    world.suspended(node, "low");
    assert_eq!(world.orders(node), ["start x"]);
}

#[test]
fn an_instance_waits_for_the_settle_window_or_for_its_batch_and_not_for_both() {
    let (mut world, controller) = World::expecting(2).with_controller();
    world.start(controller, "x", 50);
    world.start_as(controller, request("x", 50).of_batch("b", 2));
    let node = world.node_with(1, 100);
    assert_eq!(starts_of(&mut world, "x"), [], "it waits for its batch");
    world.start_as(controller, request("y", 50).of_batch("b", 2));
    assert_eq!(starts_of(&mut world, "x"), [node]);
}

#[test]
fn a_dry_run_knows_what_the_scheduler_has_as_a_start_does() {
    let (mut world, controller, node) = World::new().with_leased("lost");
    world.lose(node);
    let node = leased(&mut world, 2, 100);
    world.place(controller, "a", 60);
    world.start_as(controller, request("waits", 50).waiting(300));
    world.look_away();
    for name in ["lost", "waits"] {
        let decision = world.decided(controller, tried(request(name, 1), 1));
        assert_eq!(decision.fits, 0, "{name}");
        assert_eq!(
            decision.reason,
            StartFailureReason::InstanceExists,
            "{name}"
        );
        assert!(decision.detail.contains("here already"), "{decision:?}");
    }
    // Where a START would be given to the node that has it, and of several of a kind, nothing has changed.
    let decision = world.decided(controller, tried(request("a", 60), 1));
    assert_eq!(decision.fits, 1);
    let decision = world.decided(controller, tried(request("waits", 10), 3));
    assert_eq!(decision.fits, 3);
    world.look_away();
    assert_eq!(world.place(controller, "c", 40), Some(node));
}

#[test]
fn an_unwritten_start_of_an_instance_that_is_elsewhere_by_now_places_no_third_copy() {
    let (mut world, controller) = World::new().with_controller();
    let first = leased(&mut world, 1, 100);
    world.place_as(controller, request("x", 50).restarting());
    world.stats(first, vec![running("x", 1)]);
    world.look_away();
    // This one is never written; the launcher, an original one as to counting, has lost its lease meanwhile.
    world.start_as(controller, request("x", 50).restarting());
    let unsent = world.told(first);
    world.status(first, Kind::FULL);
    let second = leased(&mut world, 2, 60);
    world.cut_off(first, "x");
    assert_eq!(starts_of(&mut world, "x"), [second]);
    let third = leased(&mut world, 3, 60);
    world.look_away();
    world.cut_returning(first, unsent);
    let nodes = starts_of(&mut world, "x");
    assert!(!nodes.contains(&third), "{nodes:?}");
    assert!(nodes.iter().all(|node| *node == second), "{nodes:?}");
}

#[test]
fn a_launcher_that_reports_later_restarts_what_was_lost_although_a_batch_named_it() {
    let (mut world, controller) = World::new().with_controller();
    let node = leased(&mut world, 1, 100);
    world.place_as(controller, request("x", 50).restarting());
    world.place_as(controller, request("y", 50).restarting());
    world.stats_seen(node, Some(2), vec![running("x", 1), running("y", 1)]);
    world.lose(node);
    world.start_as(controller, request("x", 50).restarting().of_batch("b", 1));
    world.advance(LEASE_IS_OVER);
    world.look_away();
    let other = world.silent_node(2);
    leased_ready(&mut world, other, 1000);
    let mut names: Vec<_> = world.placements().into_iter().map(|it| it.0).collect();
    names.sort();
    assert_eq!(names, ["x", "y"]);
}

#[test]
fn a_shared_start_is_sized_by_what_its_node_says() {
    // A batch that names an instance which a node has is that node's affair, and claims nothing beside it.
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    let extras = NodeExtras {
        capabilities: Capabilities::SUSPEND,
        ..NodeExtras::default()
    };
    let size = Size::of_mem(1000);
    let said = NodeReport {
        extras: Some(Box::new(extras)),
        ..report(size)
    };
    world.report(node, said);
    world.run_on(controller, node, vec![sized("x", 600, 50)]);
    world.start_as(controller, sized("x", 600, 50).of_batch("b", 1));
    assert_eq!(world.placements(), [("x".to_owned(), node)]);
    assert_eq!(world.place(controller, "z", 400), Some(node));
}

#[test]
fn after_a_crash_a_batch_that_names_what_waits_in_the_queue_starts_it_once() {
    let (mut world, controller, _) = World::with(durable()).with_full_node();
    world.start_as(controller, request("x", 50).waiting(300));
    world.crash(config(), Rules::default());
    let controller = world.controller();
    world.look_away();
    world.start_as(controller, request("x", 50).waiting(300).of_batch("b", 1));
    let node = world.node_with(1, 100);
    world.stats_seen(node, Some(0), vec![]);
    assert_eq!(starts_of(&mut world, "x"), [node]);
}

#[test]
fn what_was_deleted_while_its_node_is_lost_is_not_started_again_before_its_lease_is_over() {
    let (mut world, controller, node) = World::new().with_leased("x");
    let other = leased(&mut world, 2, 200);
    world.lose(node);
    world.delete(controller, "x", node);
    world.look_away();
    world.start_as(controller, request("x", 50).restarting());
    assert_eq!(world.failures(controller), refused("x"), "its copy runs");
    assert_eq!(starts_of(&mut world, "x"), []);
    world.advance(LEASE_IS_OVER);
    assert_eq!(
        world.place_as(controller, request("x", 50).restarting()),
        Some(other)
    );
}

/// After a crash both nodes are expected back.
fn expecting() -> Config {
    Config {
        known_nodes: vec![known_node(1), known_node(2)],
        ..durable()
    }
}

/// After a crash the second node is back, alone, and the other START of the batch of `x` comes: `x` is not started.
fn rest_of_batch(world: &mut World) -> SessionId {
    let controller = world.controller();
    let other = world.node_with(2, 100);
    world.stats_seen(other, Some(0), vec![]);
    world.start_as(controller, request("y", 50).of_batch("b", 2));
    assert_eq!(starts_of(world, "x"), []);
    other
}

#[test]
fn after_crashes_a_batch_that_names_what_a_node_has_waits_for_that_node() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.place(controller, "x", 50);
    world.stats_seen(node, Some(1), vec![running("x", 1)]);
    world.node_with(2, 100);
    world.start_as(controller, request("x", 50).of_batch("b", 2));
    // Twice, so that it is known also where the node was not back between.
    world.crash(expecting(), Rules::default());
    world.crash(expecting(), Rules::default());
    rest_of_batch(&mut world);
    let node = world.node_with(1, 100);
    world.stats_seen(node, Some(0), vec![running("x", 1)]);
    world.advance(Duration::ZERO);
    let placed = world.placements();
    assert!(placed.contains(&("x".to_owned(), node)), "{placed:?}");
    assert_eq!(placed.len(), 2);
}

#[test]
fn what_a_node_is_found_to_have_a_batch_knows_after_a_crash() {
    let (mut world, controller) = World::with(durable()).with_controller();
    world.start_as(controller, request("x", 50).of_batch("b", 2));
    let node = world.node_with(1, 100);
    world.stats_seen(node, Some(0), vec![running("x", 1)]);
    world.crash(expecting(), Rules::default());
    let other = rest_of_batch(&mut world);
    // It comes back without it.
    let node = world.node_with(1, 0);
    world.stats_seen(node, Some(0), vec![]);
    world.advance(Duration::ZERO);
    assert_eq!(starts_of(&mut world, "x"), [other]);
}
