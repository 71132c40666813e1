//! What one peer can make the core hold: texts, names, numbers and lists that others choose are cut or refused at a
//! limit, and are given back once no one uses them.

use ciao_scheduler::server::sim_support;
use proto_frames::Kind;
use proto_frames::payload::{
    Payload, Query, QueryKind, RefusalReason, Restore, Scheduling, Span, StartFailure,
    StartFailureReason, Topic, Update,
};
use sched_core::{
    Command, MAX_AWAITED_BY_OPERATOR, MAX_INSTANCES_PER_NODE, MAX_MANAGED_BYTES,
    MAX_MANAGED_BYTES_OF_OPERATORS, MAX_OPERATOR_BATCHES, MAX_RESOURCE_NAMES,
    MAX_RESOURCES_PER_NODE, Message, NodeExtras, Report, Resources, SessionId, StartRequest,
};

use crate::support::requests::Asking;
use crate::support::words::{asking, needing, resources, tried};
use crate::support::world::{World, id, node_uuid, request, running};

/// Bytes of a text as a hostile peer would choose it: most of what the payload of a StartFailure may have.
const LONG: usize = 250_000;

/// A text that takes four bytes for each of its own when it is written as YAML.
fn long_text() -> String {
    "\u{1}".repeat(LONG)
}

pub(crate) fn refuse_at_length(world: &mut World, node: SessionId, name: &str) {
    let failed = Report::StartFailed {
        node: world.uuid_of(node).to_string().into(),
        instance: Some(id(name)),
        reason: StartFailureReason::LaunchFailure,
        detail: long_text().into(),
    };
    world.say(node, failed);
}

/// Has a START refused by ten nodes, at length; what its sender and an operator that watches are told.
fn refused_by_ten(world: &mut World, controller: SessionId, name: &str) {
    world.start_as(controller, request(name, 1).attempts(10));
    for _ in 0..10 {
        let (_, node) = world.placements().pop().expect("the next node is tried");
        refuse_at_length(world, node, name);
    }
}

fn history(world: &mut World, operator: SessionId, name: &str) -> Vec<String> {
    let query = Query {
        what: QueryKind::History,
        matching: Some(name.to_owned()),
        ..Query::default()
    };
    world.look_away();
    world.say(operator, Command::Query(Box::new(query)));
    match world.told_once(operator) {
        Message::QueryResult(result) => result
            .payload
            .history
            .into_iter()
            .map(|row| row.detail)
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_launchers_say_of_a_failure_is_cut() {
    let (mut world, controller) = World::new().check_every(16).with_controller();
    let operator = world.operator(&[Topic::Failures]);
    for number in 1..=10 {
        world.node_with(number, 1000);
    }
    world.look_away();
    refused_by_ten(&mut world, controller, "a");
    for peer in [controller, operator] {
        let failures = world
            .told(peer)
            .into_iter()
            .filter_map(|message| match message {
                Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
                    Some(failure.payload)
                }
                _ => None,
            });
        let failures: Vec<StartFailure> = failures.collect();
        let [failure] = &failures[..] else {
            panic!("{} failures", failures.len());
        };
        assert_eq!(failure.attempts.len(), 10);
        for attempt in &failure.attempts {
            assert!(
                attempt.detail.len() <= 1024,
                "{} bytes",
                attempt.detail.len()
            );
            assert!(attempt.detail.ends_with('…'));
        }
        let len = failure.encode().len();
        assert!(len < 64 * 1024, "{len} bytes");
    }
    for detail in history(&mut world, operator, "a") {
        assert!(detail.len() <= 1024, "{} bytes", detail.len());
    }
}

pub(crate) fn names_of(prefix: &str) -> NodeExtras {
    let names: Vec<String> = (0..MAX_RESOURCES_PER_NODE)
        .map(|at| format!("{prefix}-{at}"))
        .collect();
    let amounts: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    resources(&amounts)
}

#[test]
pub(crate) fn names_of_resources_that_no_one_has_any_more_make_room_for_others() {
    let (mut world, controller, restless) = World::new().with_node(1000);
    for round in 0..2 * MAX_RESOURCE_NAMES / MAX_RESOURCES_PER_NODE {
        world.ready_with(restless, names_of(&format!("simulated-{round}")));
    }
    world.advance(std::time::Duration::from_secs(2));
    let honest = world.node_with(2, 1000);
    world.ready_with(honest, resources(&[("gpu", 4)]));
    let placed = world.place_as(controller, needing("a", 1, "gpu", 4));
    assert_eq!(placed, Some(honest));
}

#[test]
fn what_instances_are_said_to_have_asked_for_takes_no_names() {
    let (mut world, controller, liar) = World::new().with_node(1000);
    let mut listed = Vec::new();
    for at in 0..MAX_RESOURCE_NAMES {
        let mut it = running(&format!("i-{at}"), 1);
        it.requested = Some(Resources::ZERO);
        it.custom = vec![(format!("simulated-{at}").into(), 1)];
        listed.push(it);
    }
    world.stats(liar, listed);
    let honest = world.node_with(2, 1000);
    world.ready_with(honest, resources(&[("gpu", 4)]));
    let placed = world.place_as(controller, needing("a", 1, "gpu", 4));
    assert_eq!(placed, Some(honest));
}

#[test]
fn two_senders_whose_batches_have_one_id_do_not_meet() {
    let (mut world, controller) = World::new().with_controller();
    let (one, other) = (world.operator(&[]), world.operator(&[]));
    world.node_with(1, 1000);
    world.look_away();
    for (sender, name) in [(controller, "a-0"), (one, "b-0"), (other, "c-0")] {
        world.start_as(sender, request(name, 1).of_batch("b", 2));
    }
    assert_eq!(world.placements(), []);
    world.start_as(other, request("c-1", 1).of_batch("b", 2));
    let names: Vec<String> = world.placements().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["c-0", "c-1"]);
    // Another count is another batch's affair.
    world.start_as(one, request("b-1", 1).of_batch("b", 3));
    assert_eq!(world.failures(one).len(), 1);
    world.start_as(controller, request("a-1", 1).of_batch("b", 2));
    let names: Vec<String> = world.placements().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["a-0", "a-1"]);
}

#[test]
fn a_batch_that_a_master_died_over_is_completed_by_the_next() {
    let mut world = World::new();
    let (first, second) = (world.controller(), world.controller());
    world.node_with(1, 1000);
    world.look_away();
    world.start_as(first, request("a-0", 1).of_batch("b", 2));
    world.cut(first);
    world.look_away();
    for name in ["a-0", "a-1"] {
        world.start_as(second, request(name, 1).of_batch("b", 2));
    }
    let names: Vec<String> = world.placements().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["a-0", "a-1"]);
}

#[test]
fn a_launcher_cannot_take_the_room_of_a_node_that_does_not_say_so() {
    let (mut world, controller, _) = World::new().with_node(1000);
    let liar = world.silent_node(2);
    world.ready_as(liar, |report| {
        report.mem_total_mib = 1_000_000;
        report.mem_available_mib = 1_000_000;
        report.extras = Some(Box::new(NodeExtras {
            shares: Some(node_uuid(1)),
            ..NodeExtras::default()
        }));
    });
    let on = |number: u64, name: &str, mem| StartRequest {
        node_id: Some(node_uuid(number).to_string().into()),
        ..request(name, mem)
    };
    world.start_as(controller, on(2, "big", 900));
    assert_eq!(world.placements(), [("big".to_owned(), liar)]);
    let decision = world.decided(controller, tried(on(1, "x", 1000), 1));
    assert_eq!(decision.fits, 1, "{}", decision.detail);
}

#[test]
fn an_instance_cannot_come_to_ask_for_more_resources_than_one_start_may() {
    let (mut world, controller) = World::new().with_controller();
    // No one has room: it waits.
    let scheduling = Scheduling {
        queue: Some(Span::from_ms(600_000)),
        ..Scheduling::default()
    };
    world.start_as(controller, asking("a", 1, scheduling));
    for round in 0..3 {
        let resources = (0..16).map(|at| (format!("r-{round}-{at}"), 1)).collect();
        let update = Update {
            instance_uuid: "a".to_owned(),
            resources,
            ..Update::default()
        };
        world.update_as(controller, update);
    }
    let failed = world
        .told(controller)
        .into_iter()
        .filter_map(|message| match message {
            Message::CommandFailure(failure) => Some(failure.payload.detail),
            _ => None,
        });
    let failed: Vec<String> = failed.collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(failed[0].contains("16"), "{failed:?}");
}

/// What a launcher is told of what it said.
fn refusals(world: &mut World, peer: SessionId) -> Vec<(Kind, RefusalReason, String)> {
    let told = world.told(peer).into_iter();
    let refused = told.filter_map(|message| match message {
        Message::CommandRefused(it) => Some(sim_support::refused(&it)),
        _ => None,
    });
    refused
        .map(|it| (Kind::new(it.ty, it.operand), it.reason, it.detail))
        .collect()
}

#[test]
fn a_node_whose_resources_find_no_room_is_told_and_shown() {
    let (mut world, controller) = World::new().with_controller();
    let operator = world.operator(&[]);
    let hogs = MAX_RESOURCE_NAMES / MAX_RESOURCES_PER_NODE;
    let mut nodes = Vec::new();
    for number in 0..hogs as u64 {
        let node = world.node_with(number + 1, 1000);
        world.ready_with(node, names_of(&format!("hog-{number}")));
        nodes.push(node);
    }
    let honest = world.node_with(1000, 1000);
    world.look_away();
    for _ in 0..3 {
        world.ready_with(honest, resources(&[("gpu", 4)]));
    }
    let told = refusals(&mut world, honest);
    let [(Kind::READY, RefusalReason::LeftOut, detail)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(detail.contains("'gpu'"), "{detail}");
    let left_out = |world: &mut World| {
        let rows = world.nodes(operator).into_iter();
        let mut rows = rows.filter(|row| row.node_uuid == node_uuid(1000).to_string());
        rows.next().map(|row| row.resources_left_out)
    };
    assert_eq!(left_out(&mut world), Some(vec!["gpu".to_owned()]));
    assert_eq!(world.place_as(controller, needing("a", 1, "gpu", 1)), None);
    // Room comes, and its next report is taken as it is.
    world.cut(nodes[0]);
    world.advance(std::time::Duration::from_secs(60));
    world.ready_with(honest, resources(&[("gpu", 4)]));
    assert_eq!(left_out(&mut world), Some(Vec::new()));
    let placed = world.place_as(controller, needing("b", 1, "gpu", 1));
    assert_eq!(placed, Some(honest));
}

#[test]
fn what_the_node_file_says_always_finds_room() {
    use sched_core::{Config, NodeName, NodeRule};
    let rule = NodeRule {
        node: NodeName::new(&node_uuid(1000).to_string()),
        labels: Vec::new(),
        resources: vec![("gpu".into(), Some(4))],
        shares: None,
    };
    let (mut world, controller) = World::with(Config {
        nodes: vec![rule],
        ..crate::support::world::config()
    })
    .with_controller();
    for number in 0..2 * MAX_RESOURCE_NAMES / MAX_RESOURCES_PER_NODE {
        let node = world.node_with(number as u64 + 1, 1000);
        world.ready_with(node, names_of(&format!("hog-{number}")));
    }
    let honest = world.node_with(1000, 1000);
    let placed = world.place_as(controller, needing("a", 1, "gpu", 4));
    assert_eq!(placed, Some(honest));
}

#[test]
fn a_node_that_shares_alone_is_told_once_and_heard_once_both_say_so() {
    let (mut world, controller, whole) = World::new().with_node(1000);
    let part = world.silent_node(2);
    let sharing = NodeExtras {
        shares: Some(node_uuid(1)),
        ..NodeExtras::default()
    };
    world.look_away();
    for _ in 0..3 {
        world.ready_with(part, sharing.clone());
    }
    let told = refusals(&mut world, part);
    let [(Kind::READY, RefusalReason::LeftOut, detail)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(detail.contains(&node_uuid(1).to_string()), "{detail}");
    let on = |number: u64, name: &str, mem| StartRequest {
        node_id: Some(node_uuid(number).to_string().into()),
        ..request(name, mem)
    };
    world.start_as(controller, on(2, "x", 400));
    let fits = |world: &mut World| world.decided(controller, tried(on(1, "y", 1000), 1)).fits == 1;
    assert!(fits(&mut world), "the whole has not said that it shares");
    let says = |by: &[u64]| NodeExtras {
        shared_by: by.iter().map(|&it| node_uuid(it)).collect(),
        ..NodeExtras::default()
    };
    world.ready_with(whole, says(&[2]));
    assert!(!fits(&mut world), "both say so");
    world.ready_with(whole, says(&[3]));
    assert!(fits(&mut world), "the whole has thought better of it");
}

#[test]
fn one_operator_cannot_have_all_the_batches() {
    let (mut world, controller) = World::new().with_controller();
    let (greedy, modest) = (world.operator(&[]), world.operator(&[]));
    world.look_away();
    for number in 0..MAX_OPERATOR_BATCHES {
        let name = number.to_string();
        world.start_as(greedy, request(&name, 1).of_batch(&name, 2));
    }
    world.nothing_else();
    world.start_as(greedy, request("more", 1).of_batch("more", 2));
    assert_eq!(world.failures(greedy).len(), 1);
    for sender in [modest, controller] {
        let name = format!("of-{}", sender.0);
        world.start_as(sender, request(&name, 1).of_batch("more", 2));
    }
    world.nothing_else();
    // Its batches fail in time, and it may have others.
    world.advance(sched_core::BATCH_TIME);
    world.look_away();
    world.start_as(greedy, request("more", 1).of_batch("more", 2));
    world.nothing_else();
}

#[test]
fn what_is_kept_of_starts_is_bounded_and_operators_leave_some_to_controllers() {
    let (mut world, controller) = World::new().check_every(1000).with_controller();
    let operator = world.operator(&[]);
    world.look_away();
    let payload = bytes::Bytes::from(vec![b' '; 4 << 20]);
    let mut number = 0;
    let mut keep = |world: &mut World, sender: SessionId| {
        number += 1;
        let mut start = request(&format!("i-{number}"), 1).attempts(2);
        start.node_id = None;
        let start = Command::Start(start.into());
        world.say_with(sender, start, payload.clone());
        let failed = world.failures(sender);
        world.look_away();
        failed.is_empty()
    };
    let node = world.node_with(1, 1_000_000);
    let by_operator = (0..10_000)
        .take_while(|_| keep(&mut world, operator))
        .count();
    assert_eq!(
        by_operator,
        MAX_MANAGED_BYTES_OF_OPERATORS / ((4 << 20) + 2048)
    );
    let by_controller = (0..10_000)
        .take_while(|_| keep(&mut world, controller))
        .count();
    let rest = (MAX_MANAGED_BYTES - MAX_MANAGED_BYTES_OF_OPERATORS) / (4 << 20);
    assert!(by_controller + 1 >= rest, "{by_controller} of {rest}");
    let held = world.scheduler.footprint().managed_bytes;
    assert!(held <= MAX_MANAGED_BYTES, "{held}");
    world.gone(node, Kind::INSTANCE_DELETED, "i-1");
    assert!(keep(&mut world, operator));
}

#[test]
fn a_node_lists_no_more_instances_than_one_may_have() {
    let mut world = World::new().check_every(10);
    let node = world.node_with(1, 1000);
    world.look_away();
    let list = |from: usize, to: usize| (from..to).map(|at| running(&format!("i-{at}"), 1));
    world.stats(node, list(0, 10).collect());
    let all = list(0, MAX_INSTANCES_PER_NODE + 10).collect();
    world.stats(node, all);
    let held = world.scheduler.footprint();
    assert_eq!(
        (held.entries, held.placements),
        (MAX_INSTANCES_PER_NODE, MAX_INSTANCES_PER_NODE)
    );
    let told = refusals(&mut world, node);
    let [(Kind::STATS, RefusalReason::LeftOut, detail)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(detail.contains("left out 10 of them"), "{detail}");
}

#[test]
fn an_operator_waits_for_so_many_answers_and_no_more() {
    let mut world = World::new().check_every(1000);
    let operator = world.operator(&[]);
    let node = world.node_with(1, 1000);
    world.look_away();
    for number in 0..MAX_AWAITED_BY_OPERATOR {
        world.delete(operator, &format!("i-{number}"), node);
    }
    assert_eq!(refusals(&mut world, operator), []);
    world.look_away();
    world.delete(operator, "one-more", node);
    let told = refusals(&mut world, operator);
    assert_eq!(told[0].1, RefusalReason::TooMany, "{told:?}");
    world.nothing_else();
    world.gone(node, Kind::INSTANCE_DELETED, "i-0");
    world.look_away();
    world.delete(operator, "one-more", node);
    assert_eq!(world.told(node).len(), 1);
}

#[test]
fn a_notice_that_no_native_peer_could_read_is_carried_to_original_ones_alone() {
    let mut world = World::new();
    let native = world.controller();
    let original = world.original_controller();
    let operator = world.operator(&[Topic::Failures, Topic::Instances]);
    let node = world.node_with(1, 1000);
    world.look_away();
    let mut say = |len| {
        let payload = bytes::Bytes::from(vec![b' '; len]);
        world.say_with(node, Report::InstanceDeleted(id("a")), payload);
        let heard = [native, original, operator].map(|peer| {
            let told = world.told(peer).into_iter();
            told.filter(|it| matches!(it, Message::Forward(_))).count()
        });
        (heard, refusals(&mut world, node))
    };
    let most = 256 * 1024;
    assert_eq!(say(most), ([1, 1, 1], vec![]));
    let (heard, told) = say(most + 1);
    assert_eq!((heard, told.len()), ([0, 1, 0], 1));
    assert_eq!(told[0].1, RefusalReason::TooLong);
}

#[test]
fn a_command_that_its_native_node_could_not_read_is_refused() {
    let mut world = World::new();
    let controller = world.controller();
    let node = world.node_with(1, 1000);
    world.look_away();
    let command = || {
        Command::Restore(Box::new(Restore {
            workload_agent_uuid: node_uuid(1).to_string(),
            ..Restore::default()
        }))
    };
    for (len, forwarded) in [(256 * 1024, 1), (256 * 1024 + 1, 0)] {
        let payload = bytes::Bytes::from(vec![b' '; len]);
        world.say_with(controller, command(), payload);
        assert_eq!(world.told(node).len(), forwarded, "{len} bytes");
        let told = refusals(&mut world, controller);
        let reasons: Vec<_> = told.iter().map(|it| it.1.clone()).collect();
        assert_eq!(
            reasons,
            vec![RefusalReason::TooLong; 1 - forwarded],
            "{len} bytes"
        );
    }
}
