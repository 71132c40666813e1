//! Several ends of one instance of which the scheduler heard nothing in between: which of them is its outcome.

use std::time::Duration;

use proto_frames::payload::Topic;
use sched_core::{EndHow, EndReport};

use super::ends::end;
use crate::support::durability::leased;
use crate::support::requests::Asking;
use crate::support::world::{World, node_uuid, request};

/// Nodes tell one end each of the same instance, in this order; the node and exit code of what is the outcome then.
fn outcome_of(told: [(u64, EndReport); 2]) -> (String, Option<i64>) {
    let mut world = World::new();
    for (number, end) in told {
        let node = world.silent_node(number);
        world.ends(node, 0, vec![end], vec![]);
    }
    let ended = world.ended("a");
    assert_eq!(ended.len(), 2, "{ended:?}");
    let outcome = ended.iter().find(|run| !run.earlier);
    let outcome = outcome.expect("one is the latest");
    (outcome.node_uuid.clone(), outcome.exit_code)
}

#[test]
fn of_two_ends_of_which_nothing_else_is_known_the_one_that_happened_later_is_the_outcome() {
    let ago = |seconds, code, seq| EndReport {
        ago: Some(Duration::from_secs(seconds)),
        exit_code: Some(code),
        ..end(seq, "a")
    };
    // As after a crash without a state directory: the one that happened first is told last, and the other way round.
    for told in [
        [(1, ago(10, 0, 1)), (2, ago(30, -15, 1))],
        [(2, ago(30, -15, 1)), (1, ago(10, 0, 1))],
    ] {
        assert_eq!(outcome_of(told), (node_uuid(1).to_string(), Some(0)));
    }
}

#[test]
fn an_end_of_which_neither_time_nor_code_is_known_replaces_none_with_a_code() {
    // A launcher that crashed before it began the process; and another node ran the instance to its end.
    let unknown = EndReport {
        exit_code: None,
        ..end(1, "a")
    };
    let known = EndReport {
        ago: Some(Duration::from_secs(30)),
        ..end(1, "a")
    };
    for told in [
        [(1, known.clone()), (2, unknown.clone())],
        [(2, unknown), (1, known)],
    ] {
        assert_eq!(outcome_of(told), (node_uuid(1).to_string(), Some(7)));
    }
}

#[test]
fn of_two_ends_in_one_report_the_last_is_the_outcome_of_what_is_managed_too() {
    let mut world = World::new();
    let operator = world.operator(&[Topic::Instances]);
    let controller = world.controller();
    let node = leased(&mut world, 1, 100);
    world.run_on(controller, node, vec![request("a", 10).restarting()]);
    // It ends by itself, is started once more and deleted, and nothing is heard of that in between.
    world.start_as(controller, request("a", 10).restarting());
    let exited = EndReport {
        how: EndHow::Exited,
        ..end(1, "a")
    };
    let deleted = EndReport {
        how: EndHow::Deleted,
        exit_code: Some(-15),
        ..end(2, "a")
    };
    world.ends(node, 2, vec![exited, deleted], vec![]);
    assert_eq!(world.lives(operator).last().unwrap(), "a gone");
    let runs = world.ended("a");
    let runs: Vec<_> = runs
        .iter()
        .map(|run| (run.exit_code, run.earlier))
        .collect();
    assert_eq!(runs, [(Some(7), true), (Some(-15), false)]);
}

#[test]
fn what_has_ended_by_itself_and_is_removed_has_two_ends_of_one_run() {
    let mut world = World::new();
    let operator = world.operator(&[Topic::Instances]);
    let controller = world.controller();
    let node = leased(&mut world, 1, 100);
    world.run_on(controller, node, vec![request("a", 10).restarting()]);
    let exited = EndReport {
        how: EndHow::Exited,
        ..end(1, "a")
    };
    let removed = EndReport {
        how: EndHow::Deleted,
        ..end(2, "a")
    };
    world.ends(node, 1, vec![exited, removed], vec![]);
    assert_eq!(world.lives(operator).last().unwrap(), "a gone");
    let runs = world.ended("a");
    assert_eq!((runs.len(), runs[0].exit_code), (1, Some(7)), "{runs:?}");
}
