//! MIGRATE: an instance leaves one node and comes to another, or stays where it is; it is never lost and never on two.

use std::time::Duration;

use proto_frames::payload::{
    CommandFailure, CommandFailureReason, LifecycleCommand, Migrate, PhaseName, Scheduling, Span,
    StartFailureReason,
};
use proto_frames::{Kind, Role};
use sched_core::{Capabilities, Dialect, Input, LauncherCommand, Message, SessionId, StartRequest};

use crate::support::durability::{crash, durable};
use crate::support::migration::able;
use crate::support::preemption::frozen;
use crate::support::requests::Asking;
use crate::support::sending::kind_in;
use crate::support::words::asking;
use crate::support::world::{Size, World, id, node_uuid, request, running};

/// Longer than a move may take, and than a lost node is waited for.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn a_cold_move_stops_the_instance_before_it_is_started_elsewhere() {
    let (mut world, controller, source, target) = World::with_movable();
    world.migrate(controller, "a", Some(target));
    assert_eq!(world.stops(source), ["a"]);
    assert!(world.told(target).is_empty());
    // Its room is claimed: nothing else gets it.
    assert_eq!(world.place(controller, "b", 500), None);
    world.has_stopped(source, "a");
    let start = world.given(target);
    assert!(start.request.restart);
    assert!(start.changes.is_some_and(|changes| changes.restart));
    world.list(target, &["a"]);
    assert_eq!(
        world.states_of(controller, "a"),
        [PhaseName::Placing, PhaseName::Running]
    );
    // The node that it left has room again.
    assert_eq!(world.place(controller, "c", 900), Some(source));
}

#[test]
fn without_a_target_the_instance_goes_wherever_it_fits() {
    let (mut world, controller, source, target) = World::with_movable();
    world.migrate(controller, "a", None);
    assert_eq!(world.stops(source), ["a"]);
    world.has_stopped(source, "a");
    assert_eq!(world.given(target).request.instance, id("a"));
}

#[test]
fn a_target_without_room_is_refused_with_figures_and_nothing_is_stopped() {
    let (mut world, controller, source, target) = World::with_movable();
    world.start(controller, "b", 900);
    world.list(target, &["b"]);
    world.look_away();
    for to in [Some(target), None] {
        world.migrate(controller, "a", to);
        let failure = world.failed_command(controller);
        assert_eq!(failure.reason, CommandFailureReason::NoRoom);
        assert!(failure.detail.contains("asks 600"), "{}", failure.detail);
        assert!(world.ordered(source).is_empty());
    }
    world.nothing_else();
}

#[test]
fn a_move_to_where_the_instance_is_or_to_nowhere_is_refused() {
    let (mut world, controller, source, _) = World::with_movable();
    world.migrate(controller, "a", Some(source));
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::InvalidData);
    let migrate = Migrate {
        instance_uuid: "a".to_owned(),
        target_node_uuid: node_uuid(99).to_string(),
        ..Migrate::default()
    };
    world.migrate_as(controller, migrate);
    assert_eq!(
        world.failed_command(controller).reason,
        CommandFailureReason::InvalidData
    );
    world.migrate(controller, "nobody", None);
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::NoInstance);
    assert_eq!(failure.command, LifecycleCommand::Migrate);
}

#[test]
fn what_no_one_knows_how_to_start_again_is_not_stopped() {
    let (mut world, controller, source) = World::new().with_node(1000);
    world.start(controller, "plain", 100);
    world.list(source, &["plain", "stranger"]);
    world.node_with(2, 1000);
    world.look_away();
    for name in ["plain", "stranger"] {
        world.migrate(controller, name, None);
        let failure = world.failed_command(controller);
        assert_eq!(failure.reason, CommandFailureReason::NotSupported);
        assert!(failure.detail.contains("relocate"), "{}", failure.detail);
    }
    assert!(world.ordered(source).is_empty());
}

#[test]
fn launchers_that_can_ship_instances_are_asked_to_and_need_no_start() {
    let (mut world, controller) = World::new().with_controller();
    let source = world.silent_node(1);
    world.ready_with(source, able(Capabilities::MIGRATE));
    world.start(controller, "plain", 100);
    world.list(source, &["plain"]);
    let other = world.node_with(2, 1000);
    let target = world.silent_node(3);
    world.ready_with(target, able(Capabilities::MIGRATE));
    world.look_away();
    world.migrate(controller, "plain", None);
    let [LauncherCommand::Migrate(order)] = &world.ordered(source)[..] else {
        panic!("it is not asked to ship it");
    };
    assert_eq!(order.target_node_uuid, world.uuid_of(target).to_string());
    world.look_away();
    world.list(target, &["plain"]);
    assert_eq!(world.states_of(controller, "plain"), [PhaseName::Running]);
    world.has_stopped(source, "plain");
    // What it says of its own copy is no one's news.
    assert!(world.told(controller).is_empty());
    assert!(world.told(other).is_empty());
    world.list(target, &["plain"]);
    assert!(world.ordered(source).is_empty() && world.ordered(target).is_empty());
}

#[test]
fn a_migrated_instance_may_leave_before_it_is_listed_and_is_started_again_if_it_never_is() {
    let (mut world, controller) = World::new().with_controller();
    let source = world.silent_node(1);
    world.ready_with(source, able(Capabilities::MIGRATE));
    world.run_movable(controller, source, request("a", 100).movable(), &["a"]);
    let target = world.silent_node(2);
    world.ready_with(target, able(Capabilities::MIGRATE));
    world.list(target, &["other"]);
    world.migrate(controller, "a", Some(target));
    world.has_stopped(source, "a");
    world.look_away();
    for _ in 0..3 {
        world.stats_seen(target, Some(0), vec![running("other", 0)]);
    }
    let placed = world.placements();
    assert_eq!(placed.len(), 1, "{placed:?}");
    assert_eq!(placed[0].0, "a");
}

#[test]
fn a_launcher_that_cannot_ship_or_stop_it_leaves_it_where_it_is() {
    let (mut world, controller, source, target) = World::with_moving();
    world.cannot_delete(source, "a");
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::Failed);
    assert_eq!(world.place(controller, "b", 1000), Some(target));
    // It really ends now, and that is its end.
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), []);
    assert_eq!(world.states_of(controller, "a"), [PhaseName::Gone]);
}

#[test]
fn a_node_that_does_not_have_it_any_more_is_as_good_as_one_that_has_stopped_it() {
    let (mut world, _, source, target) = World::with_moving();
    world.has_none(source, "a");
    assert_eq!(world.placements(), [("a".to_owned(), target)]);
}

#[test]
fn a_move_that_takes_too_long_is_undone_and_what_ends_late_is_started_again() {
    let (mut world, controller, source, target) = World::with_movable();
    let migrate = Migrate {
        instance_uuid: "a".to_owned(),
        deadline: Some(Span::from_ms(10_000)),
        ..Migrate::default()
    };
    world.migrate_as(controller, migrate);
    world.look_away();
    world.advance(Duration::from_secs(10));
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::Timeout);
    assert_eq!(world.place(controller, "b", 1000), Some(target));
    world.look_away();
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
}

#[test]
fn a_target_that_refuses_is_not_the_end() {
    let (mut world, controller, source, target) = World::with_movable();
    world.migrate(controller, "a", Some(target));
    world.has_stopped(source, "a");
    world.look_away();
    world.start_failed(target, "a", StartFailureReason::ImageFailure);
    // Back to where it came from, as no other node fits.
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
    world.start_failed(source, "a", StartFailureReason::FullComputeNode);
    assert_eq!(world.placements(), []);
    assert!(world.failures(controller).is_empty());
    // It waits, and a node that is new may have it.
    let third = world.node_with(3, 1000);
    assert_eq!(world.placements(), [("a".to_owned(), third)]);
}

#[test]
fn a_target_that_is_lost_while_its_node_stops_it_is_replaced() {
    let (mut world, controller, source, target) = World::with_movable();
    let third = world.node_with(3, 1000);
    world.migrate(controller, "a", Some(target));
    world.look_away();
    world.cut(target);
    world.advance(Duration::from_secs(60));
    world.look_away();
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), [("a".to_owned(), third)]);
}

#[test]
fn room_that_it_left_for_a_target_that_is_away_is_not_given_to_one_behind_it() {
    let (mut world, controller, source, target) = World::with_moving();
    world.start_as(controller, request("b", 1000).waiting(600));
    world.cut(target);
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
}

#[test]
fn without_a_target_left_an_instance_that_stops_is_placed_again() {
    let (mut world, _, source, target) = World::with_moving();
    world.cut(target);
    world.advance(Duration::from_secs(30));
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
}

#[test]
fn a_node_that_is_lost_while_it_stops_the_instance_is_the_only_one_that_may_have_it() {
    let (mut world, controller, source, target) = World::with_moving();
    world.cut(source);
    world.advance(LONG);
    assert_eq!(world.placements(), []);
    // And the target is free for others.
    assert_eq!(world.place(controller, "b", 1000), Some(target));
}

#[test]
fn an_instance_that_is_deleted_while_it_moves_is_gone() {
    let (mut world, controller, source, target) = World::with_moving();
    world.delete(controller, "a", target);
    let told = world.told(source);
    assert!(matches!(&told[..], [Message::Targeted(_)]), "{told:?}");
    world.has_stopped(source, "a");
    world.has_none(source, "a");
    assert_eq!(world.placements(), []);
    assert!(world.place(controller, "b", 1000).is_some());
    assert!(world.place(controller, "c", 1000).is_some());
}

#[test]
fn one_that_waits_for_room_waits_for_that_of_the_node_it_is_to_go_to() {
    let (mut world, controller, [first, second]) = World::new().with_nodes([100, 1000]);
    for node in [first, second] {
        let name = format!("on {}", node.0);
        let mem = if node == first { 100 } else { 1000 };
        assert_eq!(world.place(controller, &name, mem), Some(node));
        world.list(node, &[&name]);
    }
    let scheduling = Scheduling {
        queue: Some(Span::from_ms(600_000)),
        ..Scheduling::default()
    };
    world.start_as(controller, asking("a", 50, scheduling));
    world.look_away();
    world.migrate(controller, "a", None);
    assert_eq!(
        world.failed_command(controller).reason,
        CommandFailureReason::WrongState
    );
    world.migrate(controller, "a", Some(second));
    world.look_away();
    world.has_stopped(first, &format!("on {}", first.0));
    assert_eq!(world.placements(), []);
    world.has_stopped(second, &format!("on {}", second.0));
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
}

#[test]
fn an_instance_that_is_on_its_way_already_is_not_moved_twice() {
    let (mut world, controller, source, _) = World::with_moving();
    world.migrate(controller, "a", None);
    let failure: CommandFailure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::WrongState);
    assert!(world.ordered(source).is_empty());
    world.has_stopped(source, "a");
    world.look_away();
    world.migrate(controller, "a", None);
    assert_eq!(
        world.failed_command(controller).reason,
        CommandFailureReason::WrongState
    );
}

#[test]
fn a_start_that_did_not_change_is_given_as_it_came() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.look_away();
    world.start_as(controller, request("a", 1).movable());
    assert_eq!(world.given(node).changes, None);
    world.start_as(controller, request("b", 1));
    assert_eq!(world.given(node).changes, None);
}

#[test]
fn its_node_is_told_once_the_claim_is_on_disk_and_so_is_the_target() {
    let (mut world, controller, source) = World::with(durable()).with_node(1000);
    world.run_movable(controller, source, request("a", 600).movable(), &["a"]);
    let target = world.node_with(2, 1000);
    world.look_away();
    world.store.be_slow();
    world.migrate(controller, "a", Some(target));
    assert!(world.stops(source).is_empty());
    world.store.commit();
    world.handle(Input::Tick);
    assert_eq!(world.stops(source), ["a"]);
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), []);
    world.store.commit();
    world.handle(Input::Tick);
    assert_eq!(world.placements(), [("a".to_owned(), target)]);
}

#[test]
fn what_was_being_moved_when_the_scheduler_crashed_is_started_where_no_one_has_it() {
    for has_stopped in [true, false] {
        let (mut world, controller, source) = World::with(durable()).with_node(1000);
        world.run_movable(controller, source, request("a", 600).movable(), &["a"]);
        let target = world.node_with(2, 1000);
        world.migrate(controller, "a", Some(target));
        assert_eq!(world.stops(source), ["a"]);
        crash(&mut world, 2);
        world.controller();
        let source = world.node_with(1, 1000);
        let target = world.node_with(2, 1000);
        world.stats_seen(target, Some(0), vec![]);
        assert_eq!(world.placements(), []);
        let left = if has_stopped {
            vec![]
        } else {
            vec![running("a", 0)]
        };
        world.stats_seen(source, Some(0), left);
        if !has_stopped {
            assert_eq!(world.placements(), []);
            // It was told to before.
            world.has_stopped(source, "a");
        }
        let placed = world.placements();
        assert_eq!(placed.len(), 1, "{has_stopped} {placed:?}");
    }
}

#[test]
fn a_node_that_comes_back_without_what_it_was_told_to_stop_is_believed() {
    let (mut world, controller, source, target) = World::with_movable();
    world.migrate(controller, "a", Some(target));
    world.cut(source);
    world.advance(Duration::from_secs(30));
    world.look_away();
    let source = world.node_with(1, 1000);
    assert_eq!(world.placements(), []);
    world.stats_seen(source, Some(0), vec![]);
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
}

/// A node on which `a` is suspended, which may be moved.
fn with_suspended_movable(world: World) -> (World, SessionId, SessionId) {
    let (mut world, controller) = world.with_controller();
    let source = world.silent_node(1);
    world.ready_with(source, able(Capabilities::SUSPEND));
    world.run_movable(controller, source, request("a", 600).movable(), &["a"]);
    world.ask_suspend(controller, "a");
    world.suspended(source, "a");
    (world, controller, source)
}

#[test]
fn a_suspended_instance_moves_too_and_runs_then() {
    let (mut world, controller, source) = with_suspended_movable(World::new());
    let target = world.node_with(2, 1000);
    world.look_away();
    world.migrate(controller, "a", Some(target));
    assert_eq!(world.stops(source), ["a"]);
    world.look_away();
    world.has_stopped(source, "a");
    world.list(target, &["a"]);
    assert_eq!(
        world.states_of(controller, "a"),
        [PhaseName::Placing, PhaseName::Running]
    );
}

#[test]
fn a_suspended_instance_that_is_not_moved_after_all_stays_suspended() {
    let (mut world, controller, source) = with_suspended_movable(World::new());
    world.node_with(2, 1000);
    world.migrate(controller, "a", None);
    world.look_away();
    world.cannot_delete(source, "a");
    assert_eq!(world.states_of(controller, "a"), [PhaseName::Suspended]);
}

#[test]
fn a_suspended_instance_whose_move_a_crash_cut_short_is_known_to_be_suspended() {
    let (mut world, controller, _) = with_suspended_movable(World::with(durable()));
    world.node_with(2, 1000);
    world.migrate(controller, "a", None);
    crash(&mut world, 2);
    let controller = world.controller();
    let source = world.silent_node(1);
    world.look_away();
    world.stats(source, vec![frozen("a")]);
    assert_eq!(world.states_of(controller, "a"), [PhaseName::Suspended]);
}

#[test]
fn what_every_node_refuses_is_offered_to_them_again_after_a_while() {
    let (mut world, controller, source, target) = World::with_movable();
    world.migrate(controller, "a", Some(target));
    world.has_stopped(source, "a");
    for node in [target, source] {
        world.look_away();
        world.start_failed(node, "a", StartFailureReason::FullComputeNode);
    }
    world.advance(Duration::from_secs(59));
    assert_eq!(world.placements(), []);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
}

/// Kinds of the frames that an original controller was told.
fn told_original(world: &mut World, original: SessionId) -> Vec<Kind> {
    let told = world.told(original);
    let kind = |message| match message {
        Message::Forward(parcel) if kind_in(&parcel) != Kind::STATS => Some(kind_in(&parcel)),
        Message::InstanceStopped(_) => Some(Kind::INSTANCE_STOPPED),
        _ => None,
    };
    told.into_iter().filter_map(kind).collect()
}

#[test]
fn original_controllers_are_told_of_a_move_only_if_it_ends_with_the_instance_on_no_node() {
    for is_lost in [false, true] {
        let (mut world, controller, source, target) = World::with_movable();
        let original = world.original_controller();
        world.look_away();
        world.migrate(controller, "a", Some(target));
        world.has_stopped(source, "a");
        assert_eq!(told_original(&mut world, original), []);
        world.given(target);
        if is_lost {
            world.status(source, Kind::FULL);
            world.start_failed(target, "a", StartFailureReason::LaunchFailure);
            assert_eq!(
                told_original(&mut world, original),
                [Kind::INSTANCE_STOPPED]
            );
        } else {
            world.list(target, &["a"]);
            world.gone(target, Kind::INSTANCE_STOPPED, "a");
            let told = told_original(&mut world, original);
            assert_eq!(told, [Kind::INSTANCE_STOPPED], "its own end");
        }
    }
}

#[test]
fn original_controllers_start_no_second_cnci_because_one_moves() {
    let mut world = World::new();
    let (controller, original) = (world.controller(), world.original_controller());
    let [source, target] = [1, 2].map(|number| {
        let node = world.join(Role::NETAGENT, node_uuid(number), Dialect::Native);
        world.ready(node, Size::default());
        node
    });
    let start = StartRequest {
        network_node: true,
        ..request("cnci", 600).movable()
    };
    assert_eq!(world.place_as(controller, start), Some(source));
    world.list(source, &["cnci"]);
    world.look_away();
    world.migrate(controller, "cnci", Some(target));
    world.has_stopped(source, "cnci");
    world.given(target);
    world.status(source, Kind::FULL);
    world.start_failed(target, "cnci", StartFailureReason::LaunchFailure);
    assert_eq!(
        world.states_of(controller, "cnci").last(),
        Some(&PhaseName::Waiting)
    );
    assert_eq!(told_original(&mut world, original), []);
}

#[test]
fn what_waits_for_one_node_alone_does_so_also_after_a_crash_on_its_way_there() {
    let (mut world, controller, [first, second]) = World::with(durable()).with_nodes([1000, 1000]);
    for node in [first, second] {
        let name = format!("on {}", node.0);
        assert_eq!(world.place(controller, &name, 1000), Some(node));
        world.list(node, &[&name]);
    }
    world.start_as(controller, request("a", 50).waiting(600));
    world.migrate(controller, "a", Some(second));
    world.look_away();
    world.has_stopped(second, &format!("on {}", second.0));
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
    // Whether its START has arrived no one knows; it has not.
    crash(&mut world, 2);
    world.controller();
    let first = world.node_with(1, 1000);
    world.stats_seen(first, Some(0), vec![]);
    let second = world.node_with(2, 40);
    world.stats_seen(second, Some(0), vec![]);
    assert_eq!(
        world.placements(),
        [],
        "the other node has room, and is not the one"
    );
    world.look_away();
    world.ready(second, Size::of_mem(1000));
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
}
