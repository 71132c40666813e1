//! Arrays and what comes after what: instances after an array, and an array after an instance.

use std::collections::BTreeSet;
use std::time::Duration;

use proto_frames::payload::{After, AfterEnd, ArrayState, QueryKind, StartFailureReason};
use sched_core::{
    ArrayCommand, Command, ElementId, IN_DOUBT_TIME, RECOVERY_WINDOW, Report, SessionId,
};

use super::arrays::{ARRAY, element, elements, exited, list, template, view};
use crate::support::durability::{crash, durable};
use crate::support::requests::Asking;
use crate::support::world::{World, id, request, running};

/// A START that comes after the array, and one that comes after it however it ended.
fn followers(world: &mut World, controller: SessionId) {
    for (name, after) in [
        (
            "then",
            After {
                array: ARRAY.to_owned(),
                ..After::default()
            },
        ),
        (
            "anyway",
            After {
                // No instance is called so, but an array is.
                instance: "sweep".to_owned(),
                end: AfterEnd::Any,
                ..After::default()
            },
        ),
        (
            "repair",
            After {
                array: "sweep".to_owned(),
                end: AfterEnd::Failed,
                ..After::default()
            },
        ),
    ] {
        let start = request(name, 1).placed_as(|it| it.after = vec![after]);
        world.start_as(controller, start);
    }
}

/// What was placed of those that come after the array, and what failed of them.
fn what_followed(world: &mut World, controller: SessionId) -> (Vec<String>, Vec<String>) {
    world.advance(Duration::from_millis(1));
    let placed = world.placements().into_iter().map(|(name, _)| name);
    let placed = placed.collect();
    let failed = world.failures(controller).into_iter();
    (placed, failed.map(|(name, _)| name).collect())
}

#[test]
fn what_comes_after_an_array_begins_when_all_of_it_has_ended_as_it_was_to() {
    for (code, placed, failed) in [
        (0, ["then", "anyway"], "repair"),
        (3, ["anyway", "repair"], "then"),
    ] {
        let (mut world, controller, [a]) = World::with(durable()).with_nodes([1000]);
        let sweep = template(10).placed_as(|it| "sweep".clone_into(&mut it.name));
        world.start_array(controller, sweep, (3, None));
        list(&mut world, a, [0, 1, 2]);
        world.placements();
        followers(&mut world, controller);
        exited(&mut world, a, 0, 0);
        exited(&mut world, a, 1, code);
        assert_eq!(
            what_followed(&mut world, controller),
            (Vec::new(), Vec::new())
        );
        let rows = world.page(QueryKind::Queue, "", None, 100).instances;
        let waits: BTreeSet<_> = rows.iter().map(|it| &*it.waits_for).collect();
        let expected = [
            format!("waits for {ARRAY} to end"),
            "waits for sweep to end".to_owned(),
        ];
        assert_eq!(waits, expected.iter().map(|it| &**it).collect());
        // That is remembered, however the scheduler ends.
        crash(&mut world, 1);
        let controller = world.controller();
        let a = world.node_with(1, 1000);
        list(&mut world, a, [2]);
        world.look_away();
        exited(&mut world, a, 2, 0);
        let (begun, not) = what_followed(&mut world, controller);
        assert_eq!(
            (begun, not),
            (placed.map(str::to_owned).into(), vec![failed.to_owned()])
        );
    }
}

#[test]
fn an_array_that_comes_after_itself_is_refused() {
    let (mut world, controller, _) = World::new().with_nodes([100]);
    world.look_away();
    let array = |array: &str| After {
        array: array.to_owned(),
        ..After::default()
    };
    let instance = |instance: &str| After {
        instance: instance.to_owned(),
        ..After::default()
    };
    for after in [
        array(ARRAY),
        array("sweep"),
        instance("sweep"),
        instance("sweep-1"),
        instance(&element(0)),
    ] {
        let own = template(10).placed_as(|it| {
            "sweep".clone_into(&mut it.name);
            it.after = vec![after];
        });
        world.start_array(controller, own, (2, None));
        let failed = StartFailureReason::InvalidData;
        assert_eq!(world.failures(controller), [(ARRAY.to_owned(), failed)]);
    }
}

/// An array of three that run one after the other, and a START after the last of them by each way to name it.
fn after_the_last_element() -> (World, SessionId, SessionId) {
    let (mut world, controller, [a]) = World::with(durable()).with_nodes([1000]);
    let sweep = template(10).placed_as(|it| "sweep".clone_into(&mut it.name));
    world.start_array(controller, sweep, (3, Some(1)));
    list(&mut world, a, [0]);
    world.placements();
    for (name, instance, end) in [
        ("by-name", "sweep-2", AfterEnd::Ok),
        ("by-uuid", &*element(2), AfterEnd::Ok),
        ("failed", "sweep-2", AfterEnd::Failed),
    ] {
        let after = After {
            instance: instance.to_owned(),
            end,
            ..After::default()
        };
        let start = request(name, 1).placed_as(|it| it.after = vec![after]);
        world.start_as(controller, start);
    }
    (world, controller, a)
}

#[test]
fn what_comes_after_an_element_waits_for_it_before_it_has_begun() {
    for is_restarted in [false, true] {
        let (mut world, mut controller, mut a) = after_the_last_element();
        if is_restarted {
            crash(&mut world, 1);
            controller = world.controller();
            a = world.node_with(1, 1000);
            list(&mut world, a, [0]);
            world.look_away();
        }
        for index in 0..3 {
            list(&mut world, a, [index]);
            assert_eq!(world.failures(controller), []);
            exited(&mut world, a, index, 0);
            world.advance(Duration::from_millis(1));
            let placed = world.placements();
            let expected = match index {
                2 => ["by-name", "by-uuid"].map(|it| (it.to_owned(), a)).to_vec(),
                _ => elements([index + 1], a),
            };
            assert_eq!(placed, expected, "{index} {is_restarted}");
        }
        let failed = StartFailureReason::DependencyFailed;
        let failures = [("failed".to_owned(), failed)];
        assert_eq!(world.failures(controller), failures);
    }
}

#[test]
fn what_comes_after_an_element_that_never_begins_fails_at_once() {
    let (mut world, controller, a) = after_the_last_element();
    world.delete_at(controller, ARRAY, world.uuid_of(a));
    world.advance(Duration::from_millis(1));
    let failed = |name: &str| (name.to_owned(), StartFailureReason::DependencyFailed);
    let failures = world.failures(controller);
    assert_eq!(failures, [failed("by-name"), failed("by-uuid")]);
    assert_eq!(world.placements(), [("failed".to_owned(), a)]);
}

#[test]
fn a_name_that_was_used_before_means_the_element_that_is_still_to_end() {
    let (mut world, controller, [a]) = World::with(durable()).with_nodes([1000]);
    let named = |array: &str| request(array, 10).placed_as(|it| "sweep".clone_into(&mut it.name));
    // One of the same name has ended, with its element 1.
    world.start_array(controller, named(ARRAY), (2, None));
    list(&mut world, a, [0, 1]);
    exited(&mut world, a, 0, 0);
    exited(&mut world, a, 1, 0);
    world.look_away();
    let latest = "a77a0000-0000-4000-8000-0000000000ff";
    world.start_array(controller, named(latest), (2, Some(1)));
    let of_latest = |index| {
        let array = latest.parse().expect("it is a UUID");
        ElementId { array, index }.instance().to_string()
    };
    assert_eq!(world.placements(), [(of_latest(0), a)]);
    let after = After {
        instance: "sweep-1".to_owned(),
        ..After::default()
    };
    let start = request("then", 1).placed_as(|it| it.after = vec![after]);
    world.start_as(controller, start);
    for index in 0..2 {
        world.advance(Duration::from_millis(1));
        let placed = world.placements();
        assert!(!placed.contains(&("then".to_owned(), a)), "{placed:?}");
        world.stats(a, vec![running(&of_latest(index), 10)]);
        let told = Box::new(Report::InstanceExited(id(&of_latest(index))));
        let (seq, exit_code) = (u64::from(index) + 3, Some(0));
        world.say(
            a,
            Report::Numbered {
                seq,
                exit_code,
                facts: None,
                told,
            },
        );
    }
    world.advance(Duration::from_millis(1));
    assert_eq!(world.placements(), [("then".to_owned(), a)]);
}

#[test]
fn an_element_that_is_rerun_is_waited_for_again() {
    let (mut world, controller, a) = after_the_last_element();
    world.look_away();
    for index in 0..3 {
        list(&mut world, a, [index]);
        exited(&mut world, a, index, 3);
    }
    world.look_away();
    world.say(controller, Command::Array(ArrayCommand::Rerun(id(ARRAY))));
    let after = After {
        instance: "sweep-2".to_owned(),
        ..After::default()
    };
    let start = request("again", 1).placed_as(|it| it.after = vec![after]);
    world.start_as(controller, start);
    world.placements();
    for index in 0..3 {
        assert_eq!(world.failures(controller), []);
        list(&mut world, a, [index]);
        exited(&mut world, a, index, 0);
    }
    world.advance(Duration::from_millis(1));
    let placed = world.placements();
    assert!(placed.contains(&("again".to_owned(), a)), "{placed:?}");
}

#[test]
fn an_array_after_another_instance_waits_for_it_with_one_element_and_fails_as_a_whole() {
    for code in [0, 1] {
        let (mut world, controller, [a]) = World::with(durable()).with_nodes([100]);
        world.look_away();
        world.start_as(controller, request("prepare", 10));
        let second = template(10).placed_as(|it| {
            it.after = vec![After {
                instance: "prepare".to_owned(),
                ..After::default()
            }];
        });
        world.start_array(controller, second, (3, None));
        assert_eq!(world.placements(), [("prepare".to_owned(), a)]);
        let now = view(&mut world);
        assert_eq!((now.waiting, now.queued, now.running), (2, 1, 0));
        world.stats(a, vec![running("prepare", 10)]);
        crash(&mut world, 1);
        let controller = world.controller();
        let a = world.node_with(1, 100);
        world.stats(a, vec![running("prepare", 10)]);
        world.advance(RECOVERY_WINDOW);
        assert_eq!(world.placements(), []);
        world.look_away();
        let told = Box::new(Report::InstanceExited(id("prepare")));
        world.say(
            a,
            Report::Numbered {
                seq: 1,
                exit_code: Some(code),
                facts: None,
                told,
            },
        );
        world.advance(Duration::from_millis(1));
        let is_met = code == 0;
        let placed = elements(if is_met { 0..3 } else { 0..0 }, a);
        assert_eq!(world.placements(), placed);
        let now = view(&mut world);
        assert_eq!(now.not_started, if is_met { 0 } else { 3 });
        assert_eq!(now.state == ArrayState::Ended, !is_met);
        let failed = StartFailureReason::DependencyFailed;
        let failures = match is_met {
            true => Vec::new(),
            false => vec![(element(0), failed)],
        };
        assert_eq!(world.failures(controller), failures);
    }
}

#[test]
fn an_element_whose_node_is_away_waits_for_it_and_runs_once_also_where_its_start_never_arrived() {
    for (is_restarted, has_arrived) in [(false, true), (false, false), (true, true), (true, false)]
    {
        let (mut world, controller, [a]) = World::with(durable()).with_nodes([100]);
        world.look_away();
        world.start_array(controller, template(10), (1, None));
        assert_eq!(world.placements(), elements([0], a));
        world.cut(a);
        if is_restarted {
            crash(&mut world, 1);
        }
        world.advance(IN_DOUBT_TIME * 10);
        let now = view(&mut world);
        assert_eq!((now.not_started, &now.state), (0, &ArrayState::Running));
        let a = world.node_with(1, 100);
        let listed = has_arrived.then(|| running(&element(0), 1));
        world.ends(a, 0, Vec::new(), listed.into_iter().collect());
        world.advance(Duration::from_millis(1));
        let again = elements((0..1).filter(|_| !has_arrived), a);
        assert_eq!(world.placements(), again, "{is_restarted} {has_arrived}");
        list(&mut world, a, [0]);
        exited(&mut world, a, 0, 0);
        let now = view(&mut world);
        assert_eq!((now.succeeded, now.state), (1, ArrayState::Ended));
    }
}
