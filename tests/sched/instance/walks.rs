//! Transitions that an instance seldom takes, each walked once: what comes of it is what its launcher and its controller
//! are told.

use std::time::Duration;

use proto_frames::payload::{CommandFailureReason, LifecycleCommand, PhaseName, Update};
use sched_core::{Capabilities, IN_DOUBT_TIME, Input, NodeExtras, SessionId};

use crate::support::durability::{LEASE, durable, leased};
use crate::support::migration::able;
use crate::support::preemption::{TOO_LONG, cpus, frozen, sized};
use crate::support::requests::Asking;
use crate::support::world::{World, request, running};

/// What is under way on the node of `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnderWay {
    Nothing,
    Update,
    Suspend,
    Suspended,
    Resume,
}

impl UnderWay {
    /// `x`, which is restarted when its node is lost, on a node that can do all of it within its lease, and a START of it that
    /// is on its way there if it `is_repeated`.
    fn begun(self, is_repeated: bool) -> (World, SessionId, SessionId) {
        let (mut world, controller) = World::new().with_controller();
        let node = world.silent_node(1);
        let capabilities = Capabilities::LEASE
            .and(Capabilities::UPDATE)
            .and(Capabilities::SUSPEND);
        let extras = NodeExtras {
            lease: Some(LEASE),
            ..able(capabilities)
        };
        world.ready_with(node, extras);
        let start = request("x", 50).restarting();
        world.place_as(controller, start.clone());
        world.stats_seen(node, Some(1), vec![running("x", 1)]);
        if is_repeated {
            world.start_as(controller, start);
        }
        match self {
            Self::Nothing => {}
            Self::Update => {
                let update = Update {
                    instance_uuid: "x".to_owned(),
                    mem_mb: Some(40),
                    ..Update::default()
                };
                world.update_as(controller, update);
            }
            Self::Suspend => world.ask_suspend(controller, "x"),
            Self::Suspended | Self::Resume => {
                world.ask_suspend(controller, "x");
                world.suspended(node, "x");
            }
        }
        if self == Self::Resume {
            world.ask_resume(controller, "x");
        }
        world.look_away();
        (world, controller, node)
    }
}

#[test]
fn whatever_is_under_way_what_its_node_has_cut_off_is_placed_again() {
    for under_way in [UnderWay::Update, UnderWay::Suspend, UnderWay::Resume] {
        let (mut world, controller, node) = under_way.begun(false);
        world.cut_off(node, "x");
        assert_eq!(world.placements(), [("x".to_owned(), node)]);
        // Whose command it was has heard what came of it.
        assert_eq!(world.command_failures(controller).len(), 1, "{under_way:?}");
    }
}

#[test]
fn whatever_is_under_way_what_ended_is_what_becomes_of_its_next_start() {
    for under_way in [UnderWay::Update, UnderWay::Suspended, UnderWay::Resume] {
        let (mut world, controller, node) = under_way.begun(true);
        world.cut_off(node, "x");
        assert_eq!(world.placements(), [], "{under_way:?}");
        assert_eq!(world.states_of(controller, "x"), [PhaseName::Placing]);
        world.stats_seen(node, Some(2), vec![running("x", 2)]);
        assert_eq!(world.states_of(controller, "x"), [PhaseName::Running]);
    }
}

#[test]
fn whatever_is_under_way_a_lost_node_has_its_instance_if_it_comes_back_in_time() {
    for under_way in [
        UnderWay::Nothing,
        UnderWay::Update,
        UnderWay::Suspend,
        UnderWay::Resume,
    ] {
        let (mut world, controller, node) = under_way.begun(false);
        world.cut(node);
        world.advance(IN_DOUBT_TIME);
        assert_eq!(world.states_of(controller, "x"), [PhaseName::Lost]);
        let node = world.silent_node(1);
        world.list(node, &["x"]);
        assert_eq!(world.states_of(controller, "x"), [PhaseName::Running]);
    }
}

#[test]
fn what_is_being_resumed_can_be_deleted() {
    let (mut world, controller, node) = UnderWay::Resume.begun(false);
    world.delete(controller, "x", node);
    assert_eq!(world.states_of(controller, "x"), [PhaseName::Stopping]);
    world.has_stopped(node, "x");
    assert_eq!(world.states_of(controller, "x"), [PhaseName::Gone]);
}

#[test]
fn what_is_listed_before_its_node_was_told_runs() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    assert_eq!(world.place(controller, "first", 100), Some(node));
    world.list(node, &["first"]);
    world.start_as(controller, request("x", 50).waiting(600));
    world.store.be_slow();
    world.look_away();
    world.has_stopped(node, "first");
    assert_eq!(world.states_of(controller, "x"), [PhaseName::Placing]);
    world.list(node, &["x"]);
    assert_eq!(world.states_of(controller, "x"), [PhaseName::Running]);
    world.store.be_fast();
    world.handle(Input::Tick);
    assert_eq!(world.placements(), [], "it need not be told any more");
}

#[test]
fn a_preemptor_that_is_listed_beside_its_victim_runs() {
    let (mut world, controller, node) =
        World::with_preemption().with_running([sized("low", 600, 10)]);
    world.start_as(controller, sized("high", 600, 90));
    world.look_away();
    world.list(node, &["low", "high"]);
    assert_eq!(world.states_of(controller, "high"), [PhaseName::Running]);
    assert_eq!(world.placements(), []);
}

#[test]
fn what_its_node_last_called_suspended_is_so_if_it_is_not_suspended_again_in_time() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    world.advance(TOO_LONG);
    assert_eq!(world.orders(node), ["suspend low", "resume low"]);
    // It has come to neither, and is told once more.
    world.resumed(node, "low");
    world.ask_suspend(controller, "low");
    assert_eq!(world.orders(node), ["suspend low"]);
    // That is of the first time: the RESUME is still before it.
    world.suspended(node, "low");
    world.look_away();
    world.advance(TOO_LONG);
    assert_eq!(world.states_of(controller, "low"), [PhaseName::Suspended]);
}

/// `a`, which is on the first node and may move, and the second node. It is suspended if it `is_suspended`.
fn beside_target(world: World, is_suspended: bool) -> (World, SessionId, SessionId, SessionId) {
    let (mut world, controller) = world.with_controller();
    let source = world.silent_node(1);
    world.ready_with(source, able(Capabilities::SUSPEND));
    world.run_movable(controller, source, request("a", 600).movable(), &["a"]);
    if is_suspended {
        world.ask_suspend(controller, "a");
        world.suspended(source, "a");
    }
    let target = world.node_with(2, 1000);
    (world, controller, source, target)
}

/// The same, while it moves from the first node to the second, and the second is given up while the first is stopping it.
fn without_target(is_suspended: bool) -> (World, SessionId, SessionId) {
    let (mut world, controller, source, target) = beside_target(World::new(), is_suspended);
    world.migrate(controller, "a", Some(target));
    world.cut(target);
    world.advance(IN_DOUBT_TIME);
    world.look_away();
    (world, controller, source)
}

#[test]
fn what_was_to_move_to_a_lost_node_and_could_not_be_stopped_is_what_it_was() {
    for (is_suspended, state) in [(false, PhaseName::Running), (true, PhaseName::Suspended)] {
        let (mut world, controller, source) = without_target(is_suspended);
        world.cannot_delete(source, "a");
        let told = world.told(controller);
        assert_eq!(
            told.len(),
            2,
            "its state, and that it does not move: {told:?}"
        );
        assert_eq!(world.seen("a").remove(0).life, state.as_str());
    }
}

#[test]
fn what_was_to_move_to_a_lost_node_can_be_deleted_or_lost_with_its_own() {
    let (mut world, controller, source) = without_target(false);
    world.delete(controller, "a", source);
    world.look_away();
    world.has_stopped(source, "a");
    assert_eq!(world.states_of(controller, "a"), [PhaseName::Gone]);

    let (mut world, controller, source) = without_target(false);
    world.cut(source);
    world.advance(IN_DOUBT_TIME);
    assert_eq!(world.states_of(controller, "a"), [PhaseName::Lost]);
}

#[test]
fn a_move_that_is_not_on_disk_yet_is_undone_as_if_nothing_had_been() {
    for (is_suspended, state) in [(false, PhaseName::Running), (true, PhaseName::Suspended)] {
        let (mut world, controller, source, target) =
            beside_target(World::with(durable()), is_suspended);
        world.store.be_slow();
        world.migrate(controller, "a", Some(target));
        world.cut(target);
        world.look_away();
        world.store.be_fast();
        world.handle(Input::Tick);
        assert_eq!(world.states_of(controller, "a"), [state]);
        assert_eq!(world.stops(source), Vec::<String>::new());
        // Nothing is to be stopped there, and so its end is its own.
        world.has_stopped(source, "a");
        assert_eq!(world.states_of(controller, "a"), [PhaseName::Gone]);
    }
}

#[test]
fn a_move_that_is_not_on_disk_yet_is_lost_with_its_node() {
    let (mut world, controller, source) = World::with(durable()).with_node(1000);
    world.run_movable(controller, source, request("a", 600).movable(), &["a"]);
    let target = world.node_with(2, 1000);
    world.store.be_slow();
    world.migrate(controller, "a", Some(target));
    world.cut(source);
    world.look_away();
    world.advance(IN_DOUBT_TIME);
    assert_eq!(world.command_failures(controller).len(), 1);
    assert_eq!(world.seen("a").remove(0).life, "lost");
}

#[test]
fn what_the_target_lists_has_arrived_when_its_node_has_it_no_more() {
    for is_told in [true, false] {
        let mut world = World::with(durable());
        let controller = world.controller();
        let source = world.silent_node(1);
        let extras = NodeExtras {
            lease: Some(LEASE),
            ..able(Capabilities::LEASE)
        };
        world.ready_with(source, extras);
        let start = request("a", 600).movable().restarting();
        world.run_movable(controller, source, start, &["a"]);
        let target = leased(&mut world, 2, 1000);
        world.list(target, &[]);
        if !is_told {
            world.store.be_slow();
        }
        world.migrate(controller, "a", Some(target));
        world.list(target, &["a"]);
        world.look_away();
        world.cut_off(source, "a");
        assert_eq!(world.states_of(controller, "a"), [PhaseName::Running]);
        assert_eq!(world.placements(), []);
        assert!(world.place(controller, "b", 900).is_some());
    }
}

/// `a`, which is being migrated from the first node to the second.
fn migrating() -> (World, SessionId, SessionId, SessionId) {
    let (mut world, controller) = World::new().with_controller();
    let capabilities = Capabilities::MIGRATE.and(Capabilities::SUSPEND);
    let source = world.silent_node(1);
    world.ready_with(source, able(capabilities));
    world.run_movable(controller, source, request("a", 600).movable(), &["a"]);
    let target = world.silent_node(2);
    world.ready_with(target, able(capabilities));
    world.list(target, &[]);
    world.migrate(controller, "a", Some(target));
    assert_eq!(world.orders(source), ["migrate a"]);
    world.look_away();
    (world, controller, source, target)
}

#[test]
fn what_could_not_be_migrated_is_what_its_node_said_last() {
    for (is_suspended, state) in [(false, PhaseName::Running), (true, PhaseName::Suspended)] {
        let (mut world, controller, source, _) = migrating();
        if is_suspended {
            world.suspended(source, "a");
        }
        let (command, reason) = (LifecycleCommand::Migrate, CommandFailureReason::Failed);
        world.cannot(source, command, "a", reason);
        assert_eq!(world.command_failures(controller).len(), 1);
        assert_eq!(world.seen("a").remove(0).life, state.as_str());
        world.stats(
            source,
            vec![if is_suspended {
                frozen("a")
            } else {
                running("a", 0)
            }],
        );
        assert_eq!(world.seen("a").remove(0).life, state.as_str());
    }
}

#[test]
fn what_is_migrated_to_a_node_that_is_lost_is_placed_again_if_it_leaves() {
    let (mut world, _, source, target) = migrating();
    world.cut(target);
    world.advance(IN_DOUBT_TIME);
    world.look_away();
    world.has_stopped(source, "a");
    assert_eq!(world.placements(), [("a".to_owned(), source)]);
}

#[test]
fn what_is_migrated_to_a_node_that_is_lost_and_stays_runs() {
    let (mut world, controller, _, target) = migrating();
    world.cut(target);
    world.advance(IN_DOUBT_TIME);
    world.look_away();
    world.advance(Duration::from_secs(60));
    assert_eq!(world.command_failures(controller).len(), 1);
    assert_eq!(world.seen("a").remove(0).life, "running");
}
