//! UPDATE: an instance gets more or less than it asked for, in place or on another node, or is told why not.

use std::time::Duration;

use proto_frames::payload::{
    CommandFailure, CommandFailureReason, InstanceStateEvent, LifecycleCommand, PhaseName, Query,
    QueryKind, Scheduling, Span, Update,
};
use proto_frames::{Kind, Role};
use sched_core::{
    Capabilities, Command, Dialect, InstanceReport, LauncherCommand, Message, Report, Resources,
    SessionId,
};

use crate::support::durability::{crash, durable};
use crate::support::migration::able;
use crate::support::preemption::frozen;
use crate::support::requests::Asking;
use crate::support::words::asking;
use crate::support::world::{Size, World, node_uuid, request, running};

impl World {
    /// A launcher says that it has changed an instance.
    fn updated(&mut self, node: SessionId, name: &str) {
        let event = InstanceStateEvent {
            instance_uuid: name.to_owned(),
            state: PhaseName::Updated,
            ..InstanceStateEvent::default()
        };
        let report = Report::InstanceState(Box::new(event));
        self.say(node, report);
    }

    fn update_fails(&mut self, node: SessionId, name: &str) {
        let failure = CommandFailure {
            command: LifecycleCommand::Update,
            instance_uuid: name.to_owned(),
            reason: CommandFailureReason::NoRoom,
            detail: "no".to_owned(),
            ..CommandFailure::default()
        };
        let report = Report::CommandFailed(Box::new(failure));
        self.say(node, report);
    }

    /// The update that a launcher was ordered to make.
    fn ordered_update(&mut self, node: SessionId) -> Update {
        match self.ordered(node).pop() {
            Some(LauncherCommand::Update(update)) => update,
            other => panic!("{other:?}"),
        }
    }

    /// Memory that an instance asks for, as a query says.
    fn asks(&mut self, name: &str) -> i64 {
        let operator = self.operator(&[]);
        self.look_away();
        let query = Query {
            what: QueryKind::Instances,
            matching: Some(name.to_owned()),
            ..Query::default()
        };
        self.say(operator, Command::Query(Box::new(query)));
        match self.told_once(operator) {
            Message::QueryResult(result) => result.instances[0].mem_mb,
            other => panic!("{other:?}"),
        }
    }
}

fn memory(name: &str, mem: i64) -> Update {
    Update {
        instance_uuid: name.to_owned(),
        mem_mb: Some(mem),
        ..Update::default()
    }
}

fn moving(name: &str, mem: i64) -> Update {
    Update {
        may_move: true,
        ..memory(name, mem)
    }
}

/// What a node says of an instance that asks for so much.
fn asking_for(name: &str, mem: i64) -> InstanceReport {
    InstanceReport {
        requested: Some(Resources {
            mem_mib: mem,
            vcpus: 0,
            disk_mib: 0,
        }),
        ..running(name, 0)
    }
}

/// A controller, and a node of 1000 MiB whose launcher can change instances, with `a` of 400 MiB.
fn one_node(capabilities: Capabilities) -> (World, SessionId, SessionId) {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    world.ready_with(node, able(capabilities));
    world.run_movable(controller, node, request("a", 400).movable(), &["a"]);
    (world, controller, node)
}

#[test]
fn more_is_claimed_before_the_launcher_is_told() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, memory("a", 700));
    let order = world.ordered_update(node);
    assert_eq!(
        (order.mem_mb, order.vcpus, order.disk_mb),
        (Some(700), Some(0), Some(0))
    );
    assert_eq!(world.place(controller, "b", 400), None);
    // What the launcher said before it came to it does not give the room away.
    world.stats(node, vec![asking_for("a", 400)]);
    assert_eq!(world.place(controller, "b", 400), None);
    world.look_away();
    world.updated(node, "a");
    assert_eq!(
        world.states_of(controller, "a"),
        [PhaseName::Running, PhaseName::Updated]
    );
    world.stats(node, vec![asking_for("a", 700)]);
    assert_eq!(world.asks("a"), 700);
    assert_eq!(world.place(controller, "b", 300), Some(node));
}

#[test]
fn less_is_free_for_others_only_when_the_launcher_says_so() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, memory("a", 100));
    assert_eq!(world.ordered_update(node).mem_mb, Some(100));
    assert_eq!(world.place(controller, "b", 900), None);
    world.updated(node, "a");
    assert_eq!(world.place(controller, "b", 900), Some(node));
}

#[test]
fn what_the_launcher_refuses_or_does_not_do_is_undone() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, memory("a", 700));
    world.look_away();
    world.update_fails(node, "a");
    let failure = world.failed_command(controller);
    assert_eq!(failure.command, LifecycleCommand::Update);
    assert_eq!(failure.reason, CommandFailureReason::NoRoom);
    assert_eq!(world.asks("a"), 400);
    world.update_as(controller, memory("a", 700));
    world.look_away();
    world.advance(Duration::from_secs(60));
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::Timeout);
    assert_eq!(world.place(controller, "b", 600), Some(node));
}

#[test]
fn a_launcher_that_lists_the_new_amounts_has_made_the_change() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, memory("a", 700));
    world.stats(node, vec![asking_for("a", 700)]);
    world.look_away();
    world.advance(Duration::from_secs(60));
    assert!(
        world
            .states_of(controller, "a")
            .contains(&PhaseName::Updated)
    );
    assert_eq!(world.asks("a"), 700);
}

#[test]
fn without_room_for_the_difference_the_figures_are_said() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, memory("a", 1200));
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::NoRoom);
    let needs = "memory (needs 800 MiB more, 600 MiB free)";
    assert!(failure.detail.contains(needs), "{}", failure.detail);
    assert!(world.ordered(node).is_empty());
    assert_eq!(world.asks("a"), 400);
}

#[test]
fn without_room_an_instance_that_may_goes_to_another_node_with_the_new_amounts() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.start(controller, "b", 600);
    let other = world.node_with(2, 1000);
    world.look_away();
    world.update_as(controller, moving("a", 700));
    assert_eq!(world.stops(node), ["a"]);
    assert_eq!(world.place(controller, "c", 400), None);
    world.look_away();
    world.has_stopped(node, "a");
    let start = world.given(other);
    assert_eq!(start.request.asked.mem_mib, 700);
    let demand = start.changes.and_then(|changes| changes.demand);
    assert_eq!(demand.map(|demand| demand.mem_mib), Some(700));
}

#[test]
fn a_move_that_fails_leaves_the_old_amounts() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, moving("a", 1200));
    assert_eq!(
        world.failed_command(controller).reason,
        CommandFailureReason::NoRoom
    );
    world.node_with(2, 2000);
    world.look_away();
    world.update_as(controller, moving("a", 1200));
    assert_eq!(world.stops(node), ["a"]);
    world.look_away();
    world.advance(Duration::from_secs(300));
    let failure = world.failed_command(controller);
    assert_eq!(failure.command, LifecycleCommand::Update);
    assert_eq!(failure.reason, CommandFailureReason::Timeout);
    assert_eq!(world.asks("a"), 400);
}

#[test]
fn a_launcher_that_cannot_change_instances_is_not_asked_to() {
    let (mut world, controller, node) = one_node(Capabilities::default());
    world.update_as(controller, memory("a", 500));
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::NotSupported);
    assert!(world.ordered(node).is_empty());
    world.node_with(2, 1000);
    world.update_as(controller, moving("a", 500));
    assert_eq!(world.stops(node), ["a"]);
}

#[test]
fn the_new_amounts_are_asked_for_wherever_it_is_placed_from_then_on() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, memory("a", 700));
    world.updated(node, "a");
    let other = world.node_with(2, 1000);
    world.look_away();
    world.migrate(controller, "a", None);
    world.has_stopped(node, "a");
    world.told(node);
    assert_eq!(world.given(other).request.asked.mem_mib, 700);
}

#[test]
fn what_has_changed_is_said_beside_a_start_only_to_launchers_that_take_it_so() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, memory("a", 700));
    world.updated(node, "a");
    let original = world.join(Role::AGENT, node_uuid(2), Dialect::Original);
    let overrides = world.silent_node(3);
    world.ready(original, Size::of_mem(1000));
    world.ready_with(overrides, able(Capabilities::OVERRIDES));
    let mut from = node;
    for (to, as_fields) in [(original, false), (overrides, true), (node, false)] {
        world.look_away();
        world.migrate(controller, "a", Some(to));
        world.has_stopped(from, "a");
        let changes = *world.given(to).changes.unwrap();
        assert_eq!((changes.restart, changes.as_fields), (true, as_fields));
        assert_eq!(changes.demand.map(|demand| demand.mem_mib), Some(700));
        world.list(to, &["a"]);
        from = to;
    }
}

#[test]
fn a_start_that_was_not_written_to_one_launcher_is_said_as_the_next_one_takes_it() {
    for (first, second) in [
        (Capabilities::OVERRIDES, Capabilities::default()),
        (Capabilities::default(), Capabilities::OVERRIDES),
    ] {
        let (mut world, controller, node) = one_node(Capabilities::UPDATE);
        let there = world.silent_node(2);
        world.ready_with(there, able(first));
        let next = world.silent_node(3);
        world.migrate(controller, "a", None);
        world.status(node, Kind::MAINTENANCE);
        world.look_away();
        world.has_stopped(node, "a");
        world.ready_with(next, able(second));
        world.cut_unsent(there);
        let changes = world.given(next).changes.unwrap();
        assert_eq!(changes.as_fields, second == Capabilities::OVERRIDES);
    }
}

#[test]
fn what_waits_may_ask_for_less_and_then_fit() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, "big", 800);
    let scheduling = Scheduling {
        queue: Some(Span::from_ms(60_000)),
        ..Scheduling::default()
    };
    world.start_as(controller, asking("a", 500, scheduling));
    world.look_away();
    world.update_as(controller, memory("a", 5000));
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::NoRoom);
    world.look_away();
    world.update_as(controller, memory("a", 200));
    let placed = world.told(node);
    let [Message::Start(start)] = &placed[..] else {
        panic!("{placed:?}");
    };
    let demand = start.changes.as_ref().and_then(|it| it.demand.as_ref());
    assert_eq!(demand.map(|demand| demand.mem_mib), Some(200));
}

#[test]
fn a_priority_alone_changes_at_once_also_the_order_of_those_that_wait() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, "big", 1000);
    world.list(node, &["big"]);
    for name in ["a", "b"] {
        let scheduling = Scheduling {
            queue: Some(Span::from_ms(60_000)),
            ..Scheduling::default()
        };
        world.start_as(controller, asking(name, 600, scheduling));
    }
    world.look_away();
    let update = Update {
        instance_uuid: "b".to_owned(),
        priority: Some(90),
        ..Update::default()
    };
    world.update_as(controller, update);
    assert_eq!(world.states_of(controller, "b"), [PhaseName::Updated]);
    world.has_stopped(node, "big");
    assert_eq!(world.placements(), [("b".to_owned(), node)]);
}

#[test]
fn an_update_that_says_nothing_or_is_about_no_one_is_refused() {
    let (mut world, controller, _) = one_node(Capabilities::UPDATE);
    let empty = Update {
        instance_uuid: "a".to_owned(),
        ..Update::default()
    };
    world.update_as(controller, empty);
    assert_eq!(
        world.failed_command(controller).reason,
        CommandFailureReason::InvalidData
    );
    world.update_as(controller, memory("nobody", 1));
    assert_eq!(
        world.failed_command(controller).reason,
        CommandFailureReason::NoInstance
    );
    world.start_as(controller, request("early", 1));
    world.update_as(controller, memory("early", 2));
    assert_eq!(
        world.failed_command(controller).reason,
        CommandFailureReason::WrongState
    );
}

#[test]
fn one_that_is_being_changed_can_be_deleted_and_ends_as_any_other() {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    world.update_as(controller, memory("a", 700));
    world.delete(controller, "a", node);
    world.updated(node, "a");
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    world.update_as(controller, memory("a", 700));
    assert_eq!(
        world.failed_command(controller).reason,
        CommandFailureReason::NoInstance
    );
    assert_eq!(world.place(controller, "b", 1000), Some(node));
}

#[test]
fn one_that_was_to_be_deleted_while_it_was_changed_and_is_not_has_what_its_node_says() {
    // Its launcher does not come to the DELETE, or was never told.
    for is_written in [true, false] {
        let (mut world, controller, mut node) = one_node(Capabilities::UPDATE);
        world.update_as(controller, memory("a", 200));
        world.look_away();
        world.delete(controller, "a", node);
        if is_written {
            world.look_away();
            world.advance(Duration::from_secs(60));
        } else {
            world.cut_unsent(node);
            node = world.silent_node(1);
            world.ready_with(node, able(Capabilities::UPDATE));
        }
        world.stats(node, vec![asking_for("a", 200)]);
        world.advance(Duration::from_secs(60));
        assert!(
            world
                .states_of(controller, "a")
                .contains(&PhaseName::Updated)
        );
        assert_eq!(world.asks("a"), 200);
        assert_eq!(world.place(controller, "b", 800), Some(node));
    }
}

#[test]
fn what_a_launcher_says_of_a_change_counts_also_while_the_instance_is_to_be_deleted() {
    for is_done in [true, false] {
        let (mut world, controller, node) = one_node(Capabilities::UPDATE);
        world.update_as(controller, memory("a", 200));
        world.delete(controller, "a", node);
        world.look_away();
        if is_done {
            world.updated(node, "a");
            assert_eq!(world.states_of(controller, "a"), [PhaseName::Updated]);
        } else {
            world.update_fails(node, "a");
            let failure = world.failed_command(controller);
            assert_eq!(failure.command, LifecycleCommand::Update);
            assert_eq!(failure.reason, CommandFailureReason::NoRoom);
        }
        assert_eq!(world.asks("a"), if is_done { 200 } else { 400 });
        // The DELETE is not carried out, and nothing is left to be changed.
        world.look_away();
        world.advance(Duration::from_secs(60));
        assert_eq!(world.states_of(controller, "a"), [PhaseName::Running]);
        world.stats(node, vec![asking_for("a", if is_done { 200 } else { 400 })]);
        world.look_away();
        world.advance(Duration::from_secs(120));
        assert_eq!(world.command_failures(controller), []);
    }
}

/// `a`, which was to move to get more, and the node that it was to move to is lost.
fn without_target() -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = one_node(Capabilities::UPDATE);
    let target = world.node_with(2, 2000);
    world.update_as(controller, moving("a", 1200));
    world.cut(target);
    world.advance(Duration::from_secs(30));
    world.look_away();
    (world, controller, node)
}

#[test]
fn what_was_to_move_for_more_gets_it_also_if_the_target_is_lost_meanwhile() {
    let (mut world, _, node) = without_target();
    world.has_stopped(node, "a");
    assert_eq!(world.placements(), [], "its own node has no room for that");
    assert_eq!(world.asks("a"), 1200);
    world.look_away();
    let third = world.node_with(3, 2000);
    assert_eq!(world.placements(), [("a".to_owned(), third)]);
}

#[test]
fn who_wanted_more_by_a_move_hears_that_it_failed_also_if_the_target_was_lost_meanwhile() {
    for is_refused in [true, false] {
        let (mut world, controller, node) = without_target();
        if is_refused {
            world.cannot_delete(node, "a");
        } else {
            world.advance(Duration::from_secs(60));
        }
        let failure = world.failed_command(controller);
        assert_eq!(failure.command, LifecycleCommand::Update);
        assert_eq!(world.asks("a"), 400);
    }
}

#[test]
fn the_new_amounts_outlive_the_scheduler() {
    let (mut world, controller) = World::with(durable()).with_controller();
    let node = world.silent_node(1);
    world.ready_with(node, able(Capabilities::UPDATE));
    world.run_movable(controller, node, request("a", 400).movable(), &["a"]);
    world.update_as(controller, memory("a", 700));
    world.updated(node, "a");
    crash(&mut world, 1);
    let controller = world.controller();
    let node = world.node_with(1, 1000);
    world.list(node, &["a"]);
    let other = world.node_with(2, 1000);
    world.look_away();
    world.migrate(controller, "a", None);
    world.has_stopped(node, "a");
    world.told(node);
    let start = world.given(other);
    let demand = start.changes.and_then(|changes| changes.demand);
    assert_eq!(demand.map(|demand| demand.mem_mib), Some(700));
}

#[test]
fn an_instance_that_is_listed_as_suspended_is_not_changed_as_if_it_ran() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    let capabilities = Capabilities::UPDATE.and(Capabilities::SUSPEND);
    world.ready_with(node, able(capabilities));
    // No one here started it, and it is not managed yet.
    world.stats(node, vec![frozen("a")]);
    world.look_away();
    world.update_as(
        controller,
        Update {
            instance_uuid: "a".to_owned(),
            vcpus: Some(2),
            ..Update::default()
        },
    );
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::WrongState);
    assert!(failure.detail.contains("suspended"), "{failure:?}");
    assert!(world.ordered(node).is_empty());
    // Its priority may change, and it is what it is.
    world.update_as(
        controller,
        Update {
            instance_uuid: "a".to_owned(),
            priority: Some(70),
            ..Update::default()
        },
    );
    world.look_away();
    world.ask_resume(controller, "a");
    assert_eq!(world.orders(node), ["resume a"]);
}
