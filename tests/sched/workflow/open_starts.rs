//! STARTs of an instance that are on their way while its node says that it ended: whatever that end is, the claim lasts
//! until the last of them is answered, and nothing is started elsewhere that one of them may start.

use proto_frames::Kind;
use proto_frames::payload::StartFailureReason;
use sched_core::{InstanceReport, InstanceState, SessionId};

use crate::support::durability::{durable, leased, leased_able};
use crate::support::preemption::{cpus, frozen};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{World, request, running};

impl World {
    fn nodes_started_on(&mut self) -> Vec<SessionId> {
        self.placements()
            .into_iter()
            .map(|(_, node)| node)
            .collect()
    }

    fn listed(&mut self, node: SessionId, seen: u64, names: &[&str]) {
        let listed: Vec<InstanceReport> = names.iter().map(|name| running(name, 1)).collect();
        self.stats_seen(node, Some(seen), listed);
    }
}

/// A leased node that runs `x`, a second START of which is on its way to it; and another node with room.
fn repeated() -> (World, SessionId, SessionId, SessionId) {
    let (mut world, controller) = World::new().with_controller();
    let node = leased(&mut world, 1, 100);
    assert_eq!(
        world.place_as(controller, request("x", 50).restarting()),
        Some(node)
    );
    world.listed(node, 1, &["x"]);
    let other = leased(&mut world, 2, 100);
    world.look_away();
    world.start_as(controller, request("x", 50).restarting());
    assert_eq!(world.nodes_started_on(), [node]);
    (world, controller, node, other)
}

#[test]
fn what_was_cut_off_is_not_started_elsewhere_while_a_start_is_on_its_way_to_its_node() {
    let (mut world, controller, node, other) = repeated();
    world.cut_off(node, "x");
    assert_eq!(world.nodes_started_on(), [], "the START may start it there");
    // It does.
    world.listed(node, 2, &["x"]);
    assert_eq!(world.nodes_started_on(), []);
    // Its claim is still there.
    assert_eq!(world.place(controller, "y", 60), Some(other));
}

#[test]
fn what_was_cut_off_is_placed_again_once_the_start_on_its_way_has_failed() {
    let (mut world, controller, node, other) = repeated();
    world.cut_off(node, "x");
    world.start_failed(node, "x", StartFailureReason::LaunchFailure);
    assert_eq!(world.nodes_started_on(), [other]);
    world.listed(other, 1, &["x"]);
    assert_eq!(world.failures(controller), []);
}

#[test]
fn what_fails_after_it_was_listed_as_starting_is_not_started_elsewhere_while_a_start_is_open() {
    let (mut world, controller) = World::new().with_controller();
    let node = leased(&mut world, 1, 100);
    world.listed(node, 0, &[]);
    let other = leased(&mut world, 2, 100);
    let start = request("x", 50).restarting().attempts(3);
    world.place_as(controller, start.clone());
    world.start_as(controller, start);
    let starting = InstanceReport {
        state: InstanceState::Pending,
        ..running("x", 1)
    };
    world.stats_seen(node, Some(1), vec![starting]);
    world.look_away();
    world.start_failed(node, "x", StartFailureReason::ImageFailure);
    assert_eq!(world.nodes_started_on(), [], "the other START may start it");
    world.start_failed(node, "x", StartFailureReason::ImageFailure);
    assert_eq!(world.nodes_started_on(), [other]);
}

#[test]
fn the_failure_of_an_earlier_start_is_not_that_of_a_later_one() {
    let (mut world, controller, node, _) = repeated();
    // One more: two are on their way when it is cut off.
    world.start_as(controller, request("x", 50).restarting());
    world.cut_off(node, "x");
    world.start_failed(node, "x", StartFailureReason::LaunchFailure);
    world.look_away();
    assert_eq!(world.nodes_started_on(), []);
    // A third does not go to another node while the second is on its way.
    world.start_as(controller, request("x", 50).restarting());
    assert_eq!(world.nodes_started_on(), [node]);
    world.listed(node, 3, &["x"]);
    assert_eq!(world.nodes_started_on(), []);
}

#[test]
fn what_was_cut_off_before_anybody_knew_that_it_ran_waits_for_the_start_on_its_way() {
    let (mut world, controller) = World::new().with_controller();
    let node = leased(&mut world, 1, 100);
    world.listed(node, 0, &[]);
    leased(&mut world, 2, 100);
    world.place_as(controller, request("x", 50).restarting());
    world.start_as(controller, request("x", 50).restarting());
    world.look_away();
    world.cut_off(node, "x");
    assert_eq!(world.nodes_started_on(), []);
    world.listed(node, 2, &["x"]);
    assert_eq!(world.nodes_started_on(), []);
}

#[test]
fn what_ended_by_itself_with_a_start_on_its_way_is_what_becomes_of_that() {
    // It runs: the scheduler goes on managing it.
    let (mut world, _, node, other) = repeated();
    world.gone(node, Kind::INSTANCE_STOPPED, "x");
    world.listed(node, 2, &["x"]);
    world.look_away();
    world.cut_off(node, "x");
    let nodes = world.nodes_started_on();
    assert!([vec![node], vec![other]].contains(&nodes), "{nodes:?}");
    // It fails: so does the START, and nothing is left.
    let (mut world, controller, node, _) = repeated();
    world.gone(node, Kind::INSTANCE_STOPPED, "x");
    world.look_away();
    world.start_failed(node, "x", StartFailureReason::FullComputeNode);
    assert_eq!(world.nodes_started_on(), []);
    let failures = world.failures(controller);
    assert_eq!(
        failures,
        one_failure("x", StartFailureReason::FullComputeNode)
    );
    for name in ["y", "z"] {
        assert!(
            world.place(controller, name, 100).is_some(),
            "both are free"
        );
    }
}

#[test]
fn what_is_cut_off_while_it_is_about_to_be_suspended_is_placed_again() {
    for change in ["suspending", "suspended", "resuming"] {
        let (mut world, controller) = World::new().with_controller();
        let node = leased_able(&mut world, 1, 100);
        world.place_as(controller, request("x", 50).restarting());
        world.listed(node, 1, &["x"]);
        let other = leased(&mut world, 2, 100);
        world.ask_suspend(controller, "x");
        if change != "suspending" {
            world.suspended(node, "x");
        }
        if change == "resuming" {
            world.ask_resume(controller, "x");
        }
        world.look_away();
        world.cut_off(node, "x");
        let nodes = world.nodes_started_on();
        assert!(
            [vec![node], vec![other]].contains(&nodes),
            "{change}: {nodes:?}"
        );
    }
}

#[test]
fn what_is_cut_off_before_its_move_has_begun_goes_to_the_target() {
    let (mut world, controller, node) = World::with(durable()).with_leased("x");
    let other = leased(&mut world, 2, 100);
    world.store.be_slow();
    world.migrate(controller, "x", Some(other));
    world.look_away();
    world.cut_off(node, "x");
    assert_eq!(world.nodes_started_on(), [], "its room is not on disk");
    world.store.commit();
    world.handle(sched_core::Input::Tick);
    assert_eq!(world.nodes_started_on(), [other]);
}

#[test]
fn an_end_that_is_told_again_does_not_take_the_room_that_is_claimed_for_what_comes_next() {
    let (mut world, _, node) = World::with(durable()).with_leased("x");
    world.look_away();
    world.store.be_slow();
    world.cut_off(node, "x");
    world.cut_off(node, "x");
    assert_eq!(world.nodes_started_on(), [], "its room is not on disk");
    world.store.commit();
    world.handle(sched_core::Input::Tick);
    assert_eq!(world.nodes_started_on(), [node]);
}

#[test]
fn what_was_suspended_and_is_started_again_where_it_was_cut_off_is_found_suspended() {
    let (mut world, controller) = World::new().with_controller();
    let node = leased_able(&mut world, 1, 100);
    world.place_as(controller, request("x", 50).restarting());
    world.listed(node, 1, &["x"]);
    world.start_as(controller, request("x", 50).restarting());
    world.ask_suspend(controller, "x");
    // The node had ended it before both, started it again, and suspended that.
    world.cut_off(node, "x");
    world.stats_seen(node, Some(2), vec![frozen("x")]);
    world.look_away();
    world.ask_resume(controller, "x");
    assert_eq!(world.orders(node), ["resume x"]);
}

#[test]
fn a_victim_that_ends_while_it_is_suspended_frees_its_preemptor() {
    let mut world = World::with_preemption();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    let mut low = cpus("low", 4, 10);
    low.scheduling.as_mut().expect("it has one").relocate = Some(true);
    world.run_on(controller, node, vec![low]);
    // Its node is told to stop it, for a move that comes to nothing: it may yet do so.
    let other = world.able(2, 1000, 4);
    world.migrate(controller, "low", Some(other));
    assert_eq!(world.orders(node), ["stop low"]);
    world.advance(crate::support::preemption::TOO_LONG * 6);
    world.cut(other);
    world.advance(sched_core::IN_DOUBT_TIME);
    world.look_away();
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.orders(node), ["suspend low"]);
    world.stopped(node, "low");
    assert_eq!(world.orders(node), ["start high"]);
}
