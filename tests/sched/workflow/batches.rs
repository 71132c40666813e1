//! Batches: STARTs of which all are placed or none.

use bytes::Bytes;
use proto_frames::Kind;
use proto_frames::payload::{GroupPolicy, StartFailureReason};
use sched_core::{
    BATCH_TIME, Command, MAX_BATCH_BYTES, MAX_BATCHES, Message, RECOVERY_WINDOW, SessionId,
};

use std::time::Duration;

use crate::support::requests::Asking;
use crate::support::words::group;
use crate::support::world::{World, request, running};

const SECOND: Duration = Duration::from_secs(1);

/// The failures a peer was told, by instance, with what is said for people.
fn failures(world: &mut World, session: SessionId) -> Vec<(String, StartFailureReason, String)> {
    world.told_of(session, |message| match message {
        Message::StartFailure(failure) => Some((
            failure.instance_uuid.clone(),
            failure.reason.clone(),
            failure.detail.clone().unwrap_or_default(),
        )),
        _ => None,
    })
}

fn named(names: &[&str], nodes: &[SessionId]) -> Vec<(String, SessionId)> {
    let names = names.iter().map(|name| (*name).to_owned());
    names.zip(nodes.iter().copied()).collect()
}

/// Both STARTs of a batch of two.
fn start_two(world: &mut World, controller: SessionId, mem: i64) {
    for name in ["x", "y"] {
        world.start_as(controller, request(name, mem).of_batch("b", 2));
    }
}

#[test]
fn nothing_is_placed_before_the_last_of_a_batch_has_come() {
    let (mut world, controller, [a, b]) = World::new().with_nodes([1000, 1000]);
    world.look_away();
    world.start_as(controller, request("x", 1).of_batch("b", 3));
    world.start_as(controller, request("y", 1).of_batch("b", 3));
    world.nothing_else();
    world.start_as(controller, request("z", 1).of_batch("b", 3));
    assert_eq!(world.placements(), named(&["x", "y", "z"], &[a, b, a]));
    world.nothing_else();
    world.start_as(controller, request("alone", 1).of_batch("b", 1));
    assert_eq!(world.placements(), named(&["alone"], &[b]));
}

#[test]
fn if_one_of_a_batch_does_not_fit_none_is_placed_and_nothing_stays_claimed() {
    let (mut world, controller, [a, b]) = World::new().with_nodes([1000, 1000]);
    world.look_away();
    for name in ["x", "y", "z"] {
        world.start_as(controller, request(name, 600).of_batch("b", 3));
    }
    let failures = failures(&mut world, controller);
    world.nothing_else();
    let names: Vec<_> = failures.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["x", "y", "z"]);
    for (_, reason, detail) in &failures {
        assert_eq!(*reason, StartFailureReason::FullCloud);
        assert!(detail.starts_with("2 of a batch of 3 fit: "), "{detail}");
        assert!(detail.contains("short of memory"), "{detail}");
    }
    assert_eq!(
        world.place(controller, "next", 1000),
        Some(a),
        "the search goes on where it was"
    );
    assert_eq!(world.place(controller, "over next", 1000), Some(b));
}

#[test]
fn a_batch_whose_last_starts_do_not_come_fails_in_time() {
    let (mut world, controller, _) = World::new().with_node(1000);
    world.look_away();
    world.start_as(controller, request("x", 1).of_batch("b", 3));
    world.advance(BATCH_TIME / 2);
    world.start_as(controller, request("y", 1).of_batch("b", 3));
    world.advance(BATCH_TIME / 2 - SECOND);
    world.nothing_else();
    world.advance(SECOND);
    let failures = failures(&mut world, controller);
    assert_eq!(failures.len(), 2, "{failures:?}");
    for (_, reason, detail) in failures {
        assert_eq!(reason, StartFailureReason::InvalidData);
        assert_eq!(detail, "batch 'b' has 2 of 3 STARTs after 30 s");
    }
    world.start_as(controller, request("z", 1).of_batch("b", 1));
    assert_eq!(world.placements().len(), 1, "the name is free again");
}

#[test]
fn a_start_that_counts_its_batch_otherwise_is_refused() {
    let (mut world, controller, _) = World::new().with_node(1000);
    world.start_as(controller, request("x", 1).of_batch("b", 2));
    let failure = world.refused(controller, request("y", 1).of_batch("b", 3));
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    let detail = failure.detail.unwrap_or_default();
    assert!(
        detail.starts_with("start.scheduling.batch.count: "),
        "{detail}"
    );
    world.start_as(controller, request("y", 1).of_batch("b", 2));
    assert_eq!(world.placements().len(), 2);
}

#[test]
fn the_same_instance_twice_is_one_of_its_batch() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.look_away();
    world.start_as(controller, request("x", 2000).of_batch("b", 2));
    world.start_as(controller, request("x", 1).of_batch("b", 2));
    world.nothing_else();
    world.start_as(controller, request("y", 1).of_batch("b", 2));
    assert_eq!(world.placements(), named(&["x", "y"], &[node, node]));
    world.nothing_else();
}

#[test]
fn an_instance_waits_in_one_batch_only() {
    let (mut world, controller, _) = World::new().with_node(1000);
    world.start_as(controller, request("x", 1).of_batch("b", 2));
    let failure = world.refused(controller, request("x", 1).of_batch("c", 2));
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    let detail = failure.detail.unwrap_or_default();
    assert!(detail.contains("'b'"), "{detail}");
}

#[test]
fn a_member_deleted_while_it_waits_ends_its_batch() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.look_away();
    world.start_as(controller, request("x", 1).of_batch("b", 3));
    world.start_as(controller, request("y", 1).of_batch("b", 3));
    world.delete(controller, "y", node);
    let mut failures = failures(&mut world, controller);
    failures.sort();
    let reasons: Vec<_> = failures.iter().map(|(_, reason, _)| reason).collect();
    assert_eq!(reasons, [&StartFailureReason::LaunchFailure; 2]);
    assert!(failures[0].2.contains("has lost y"), "{failures:?}");
    assert!(failures[1].2.contains("deleted"), "{failures:?}");
    world.look_away();
    world.start_as(controller, request("z", 1).of_batch("b", 3));
    world.nothing_else();
}

#[test]
fn two_batches_come_together_side_by_side() {
    let mut world = World::new();
    let first = world.controller();
    let second = world.operator(&[]);
    let node = world.node_with(1, 1000);
    world.look_away();
    world.start_as(first, request("x-1", 600).of_batch("x", 2));
    world.start_as(second, request("y-1", 300).of_batch("y", 2));
    world.start_as(second, request("y-2", 300).of_batch("y", 2));
    assert_eq!(world.placements(), named(&["y-1", "y-2"], &[node, node]));
    world.start_as(first, request("x-2", 1).of_batch("x", 2));
    assert_eq!(failures(&mut world, first).len(), 2);
    world.nothing_else();
}

#[test]
fn each_sender_hears_of_its_own_batch() {
    let (mut world, controller) = World::new().with_controller();
    let operator = world.operator(&[]);
    world.node_with(1, 100);
    world.look_away();
    for name in ["x", "y"] {
        world.start_as(controller, request(name, 1000).of_batch("b", 2));
        world.start_as(
            operator,
            request(&format!("{name}-too"), 1000).of_batch("b", 2),
        );
    }
    let names = |failures: Vec<(String, StartFailureReason, String)>| {
        let names = failures.into_iter().map(|it| it.0);
        names.collect::<Vec<String>>()
    };
    assert_eq!(names(failures(&mut world, controller)), ["x", "y"]);
    assert_eq!(names(failures(&mut world, operator)), ["x-too", "y-too"]);
    world.nothing_else();
}

#[test]
fn a_batch_of_a_controller_that_has_left_is_placed_all_the_same() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start_as(controller, request("x", 1).of_batch("b", 2));
    world.cut(controller);
    let next = world.controller();
    world.look_away();
    world.start_as(next, request("y", 1).of_batch("b", 2));
    assert_eq!(world.placements(), named(&["x", "y"], &[node, node]));
}

#[test]
fn a_batch_keeps_the_rule_of_its_group() {
    let web = group("web", GroupPolicy::AntiAffinity);
    for count in [3, 4] {
        let (mut world, controller) = World::new().with_controller();
        let nodes: Vec<_> = (1..4).map(|number| world.labelled(number, &[])).collect();
        world.look_away();
        let names: Vec<_> = (0..count).map(|number| format!("i-{number}")).collect();
        for name in &names {
            world.start_as(
                controller,
                request(name, 1).of_batch("b", count).of_group(&web),
            );
        }
        let placements = world.placements();
        if count == 3 {
            let used: Vec<_> = placements.into_iter().map(|(_, node)| node).collect();
            assert_eq!(used, nodes);
        } else {
            assert_eq!(placements, []);
            assert_eq!(failures(&mut world, controller).len(), 4);
            let alone = request("alone", 1).of_batch("b", 1).of_group(&web);
            assert_eq!(world.place_as(controller, alone), Some(nodes[0]));
        }
    }
}

#[test]
fn a_batch_with_affinity_goes_to_one_node_or_none() {
    let (mut world, controller) = World::new().with_controller();
    world.labelled(1, &[]);
    let large = world.silent_node(2);
    world.ready_as(large, |report| {
        (report.mem_total_mib, report.mem_available_mib) = (3000, 3000);
    });
    world.stats(large, Vec::new());
    let together = group("db", GroupPolicy::Affinity);
    let start = |name: &str| {
        let mut start = request(name, 1).of_batch("b", 3).of_group(&together);
        start.asked.mem_mib = 900;
        start
    };
    world.look_away();
    for name in ["x", "y", "z"] {
        world.start_as(controller, start(name));
    }
    // The first fits the smaller node, where the others do not: there is no second try.
    assert_eq!(world.placements(), []);
    assert_eq!(failures(&mut world, controller).len(), 3);
}

#[test]
fn after_a_restart_a_batch_waits_for_nodes_that_come_back() {
    let (mut world, controller, a) = World::expecting(2).with_node(1000);
    world.look_away();
    start_two(&mut world, controller, 600);
    world.nothing_else();
    assert_eq!(
        world.place(controller, "other", 400),
        Some(a),
        "it holds nothing while it waits"
    );
    let b = world.node_with(2, 1000);
    world.stats(b, Vec::new());
    world.advance(Duration::ZERO);
    assert_eq!(world.placements(), named(&["x", "y"], &[b, a]));
}

#[test]
fn a_complete_batch_that_waits_takes_its_own_starts_again_and_no_others() {
    let (mut world, controller) = World::expecting(2).with_controller();
    world.look_away();
    start_two(&mut world, controller, 600);
    let a = world.silent_node(1);
    world.stats(a, vec![running("x", 1)]);
    world.ready_as(a, |report| report.mem_available_mib = 10);
    let failure = world.refused(controller, request("z", 600).of_batch("b", 2));
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    world.start_as(controller, request("y", 500).of_batch("b", 2));
    world.nothing_else();
    let b = world.node_with(2, 500);
    assert_eq!(world.placements(), named(&["x", "y"], &[a, b]));
}

#[test]
fn batches_that_wait_for_nodes_take_turns() {
    const BATCHES: u64 = 40;
    let (mut world, controller) = World::expecting(BATCHES).with_controller();
    for at in 0..BATCHES {
        // The first is too large for any node there will be.
        let mem = if at == 0 { 2000 } else { 1000 };
        let id = format!("b-{at}");
        world.start_as(
            controller,
            request(&format!("i-{at}"), mem).of_batch(&id, 1),
        );
    }
    world.look_away();
    let mut placed = 0;
    for number in 1..BATCHES {
        let node = world.node_with(number, 1000);
        world.stats(node, Vec::new());
        let now = world.placements().len();
        assert!(now <= 1, "the return of one node is no time to try all");
        placed += now;
    }
    assert_eq!(placed as u64, BATCHES - 2, "all but one turn find a node");
    world.look_away();
    let last = world.node_with(BATCHES, 1000);
    world.stats(last, Vec::new());
    world.advance(Duration::ZERO);
    assert_eq!(world.placements().len(), 1);
    let failures = failures(&mut world, controller);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].2.contains("short of memory"), "{failures:?}");
}

#[test]
fn why_batches_do_not_fit_is_not_counted_for_each_of_a_flood() {
    let (mut world, controller) = World::new().check_every(10_000).with_controller();
    for number in 0..500 {
        world.node_with(number, 1000);
    }
    world.look_away();
    for at in 0..500 {
        let id = at.to_string();
        world.start_as(controller, request(&id, 2000 + at).of_batch(&id, 1));
    }
    let failures = failures(&mut world, controller);
    let counted = failures
        .iter()
        .filter(|(_, _, detail)| detail.contains("short of memory"));
    assert_eq!((failures.len(), counted.count()), (500, 100));
}

#[test]
fn when_the_settle_window_closes_a_batch_that_still_does_not_fit_fails() {
    let (mut world, controller, _) = World::expecting(2).with_node(1000);
    world.look_away();
    start_two(&mut world, controller, 600);
    world.advance(RECOVERY_WINDOW - SECOND);
    world.nothing_else();
    world.advance(SECOND);
    assert_eq!(failures(&mut world, controller).len(), 2);
    world.nothing_else();
}

#[test]
fn a_batch_does_not_wait_for_a_node_that_is_back_without_taking_work() {
    let (mut world, controller) = World::expecting(1).with_controller();
    world.look_away();
    start_two(&mut world, controller, 1);
    let node = world.silent_node(1);
    world.stats(node, Vec::new());
    world.status(node, Kind::FULL);
    world.advance(Duration::ZERO);
    assert_eq!(failures(&mut world, controller).len(), 2);
    assert_eq!(world.scheduler.poll_timeout(), None);
}

#[test]
fn more_batches_than_may_wait_are_refused() {
    let (mut world, controller) = World::new().check_every(100).with_controller();
    for number in 0..MAX_BATCHES {
        let name = number.to_string();
        world.start_as(controller, request(&name, 1).of_batch(&name, 2));
    }
    let failure = world.refused(controller, request("x", 1).of_batch("one more", 2));
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    let detail = failure.detail.unwrap_or_default();
    assert!(detail.contains("too many batches wait"), "{detail}");
    world.start_as(controller, request("0-2", 1).of_batch("0", 2));
    assert_eq!(
        failures(&mut world, controller).len(),
        2,
        "those that wait go on: no node is there"
    );
    world.start_as(controller, request("x", 1).of_batch("one more", 2));
    world.nothing_else();
}

#[test]
fn payloads_that_wait_in_batches_are_bounded() {
    let (mut world, controller) = World::new().with_controller();
    world.look_away();
    let start = |world: &mut World, name: &str, bytes: usize| {
        let payload = Bytes::from(vec![b' '; bytes]);
        let start = Command::Start(request(name, 1).of_batch(name, 2).into());
        world.say_with(controller, start, payload);
    };
    start(&mut world, "half", MAX_BATCH_BYTES / 2);
    start(&mut world, "rest", MAX_BATCH_BYTES / 2);
    world.nothing_else();
    start(&mut world, "more", 1);
    assert_eq!(failures(&mut world, controller)[0].0, "more");
    world.advance(BATCH_TIME);
    assert_eq!(failures(&mut world, controller).len(), 2);
    start(&mut world, "again", MAX_BATCH_BYTES);
    world.nothing_else();
}

#[test]
fn an_instance_that_came_to_life_while_its_batch_waited_is_not_started_twice() {
    for way in ["listed", "started alone"] {
        let (mut world, controller, [a, b]) = World::new().with_nodes([1000, 1000]);
        world.start_as(controller, request("x", 600).of_batch("b", 2));
        world.look_away();
        match way {
            "listed" => world.stats(a, vec![running("x", 1)]),
            _ => world.start(controller, "x", 600),
        }
        world.look_away();
        world.start_as(controller, request("y", 600).of_batch("b", 2));
        let other = if way == "listed" { a } else { b };
        assert_eq!(world.placements(), named(&["x", "y"], &[a, other]), "{way}");
    }
}

#[test]
fn a_batch_that_fails_leaves_what_lives_of_it_alone() {
    let (mut world, controller, a) = World::new().with_node(1000);
    world.look_away();
    world.start_as(controller, request("x", 600).of_batch("b", 2));
    world.start(controller, "x", 600);
    assert_eq!(world.placements(), named(&["x"], &[a]));
    world.start_as(controller, request("y", 600).of_batch("b", 2));
    assert_eq!(
        world.placements(),
        named(&["x"], &[a]),
        "as ever with one that lives"
    );
    assert_eq!(failures(&mut world, controller)[0].0, "y");
    world.nothing_else();
    assert_eq!(
        world.place(controller, "z", 600),
        None,
        "'x' is still there"
    );
}

#[test]
fn a_batch_start_of_an_instance_that_exists_is_answered_by_its_node() {
    let (mut world, controller, a) = World::new().with_node(1000);
    world.node_with(2, 1000);
    world.stats(a, vec![running("x", 1)]);
    world.look_away();
    world.start_as(controller, request("x", 1).of_batch("b", 1));
    assert_eq!(world.placements(), named(&["x"], &[a]));
    world.nothing_else();
}
