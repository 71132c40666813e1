//! Rows of answers to queries: what they tell of nodes and instances beyond the original's figures, and how long an answer
//! may become.

use std::time::Duration;

use proto_frames::limits::MAX_PAYLOAD_LEN;
use proto_frames::payload::{
    Group, GroupPolicy, Payload, Query, QueryKind, QueryResult, Scheduling, StartFailureReason,
};
use proto_frames::{Kind, Uuid};
use sched_core::{Command, EndsReport, Message, NodeExtras, Report, SessionId, StatsReport};

use crate::support::durability::durable;
use crate::support::requests::Asking;
use crate::support::world::{World, config, request, running};

/// Reports as a node with these labels and resources.
fn say(world: &mut World, node: SessionId, extras: NodeExtras) {
    world.ready_with(node, extras);
    world.stats(node, Vec::new());
}

fn query(world: &mut World, what: QueryKind, after: Option<String>) -> QueryResult {
    let operator = world.operator(&[]);
    world.look_away();
    let query = Query {
        what,
        after,
        limit: Some(1000),
        ..Query::default()
    };
    world.say(operator, Command::Query(Box::new(query)));
    match world.told_once(operator) {
        Message::QueryResult(result) => result.payload,
        other => panic!("{other:?}"),
    }
}

fn gpus(total: i64) -> NodeExtras {
    NodeExtras {
        labels: vec![("zone".into(), "eu-1".into()), ("rack".into(), "r7".into())],
        resources: vec![("gpu".into(), total)],
        shares: None,
        ..NodeExtras::default()
    }
}

#[test]
fn a_node_shows_its_labels_and_what_of_its_resources_is_free() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    say(&mut world, node, gpus(4));
    let mut start = request("a", 10);
    start.scheduling = Some(Box::new(Scheduling {
        resources: [("gpu".to_owned(), 3)].into(),
        group: Some(Group {
            id: "web".to_owned(),
            policy: GroupPolicy::AntiAffinity,
            ..Group::default()
        }),
        ..Scheduling::default()
    }));
    assert_eq!(world.place_as(controller, start), Some(node));

    let nodes = query(&mut world, QueryKind::Nodes, None).nodes;
    assert_eq!(nodes[0].labels["zone"], ["eu-1"]);
    assert_eq!(nodes[0].labels["rack"], ["r7"]);
    assert_eq!(nodes[0].resources_total["gpu"], 4);
    assert_eq!(nodes[0].resources_free["gpu"], 1);
    assert_eq!(nodes[0].failures, "");
    let instances = query(&mut world, QueryKind::Instances, None).instances;
    assert_eq!(instances[0].group, "web");
    assert_eq!(instances[0].resources["gpu"], 3);

    world.start_failed(node, "a", StartFailureReason::LaunchFailure);
    let nodes = query(&mut world, QueryKind::Nodes, None).nodes;
    assert_eq!(nodes[0].resources_free["gpu"], 4);
    assert_eq!(nodes[0].failures, "1.00");
}

#[test]
fn an_answer_about_nodes_with_the_most_labels_fits_a_frame_and_goes_on() {
    const NODES: u64 = 30;
    let mut world = World::new();
    for number in 0..NODES {
        let node = world.silent_node(number);
        let label = |at: u64| {
            let key = format!("{at:02}{}", "k".repeat(126));
            // Written as four bytes each.
            (key.into(), "\u{1}".repeat(255).into())
        };
        let extras = NodeExtras {
            labels: (0..64).map(label).collect(),
            ..NodeExtras::default()
        };
        say(&mut world, node, extras);
    }
    let (mut seen, mut pages, mut after) = (0, 0, None);
    loop {
        let page = query(&mut world, QueryKind::Nodes, after);
        assert!(page.encode().len() * 2 < MAX_PAYLOAD_LEN);
        assert!(!page.nodes.is_empty(), "every page brings something");
        (seen, pages) = (seen + page.nodes.len(), pages + 1);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, 30);
    assert!((2..=5).contains(&pages), "{pages} pages");
}

/// For how many seconds no end is missing, as the scheduler says.
fn complete_for_s(world: &mut World) -> Option<i64> {
    let mut last = query(world, QueryKind::Ended, None);
    while let Some(next) = last.next {
        last = query(world, QueryKind::Ended, Some(next));
    }
    last.complete_for_ms.map(|ms| ms / 1000)
}

#[test]
fn the_list_of_ends_says_since_when_none_was_forgotten() {
    const REMEMBERED: usize = 4096;
    let (world, controller, node) = World::new().check_every(1000).with_node(100);
    let mut world = world;
    let run = |world: &mut World, name: &str| {
        world.start_as(controller, request(name, 1).waiting(30));
        world.stats(node, vec![running(name, 1)]);
        world.gone(node, Kind::INSTANCE_STOPPED, name);
        world.look_away();
    };
    world.advance(Duration::from_secs(60));
    run(&mut world, "first");
    world.advance(Duration::from_secs(5));
    assert_eq!(complete_for_s(&mut world), Some(65), "since its start");
    for number in 1..REMEMBERED {
        run(&mut world, &format!("other {number}"));
    }
    assert_eq!(complete_for_s(&mut world), Some(65), "none is forgotten");
    run(&mut world, "one more");
    assert_eq!(
        complete_for_s(&mut world),
        Some(5),
        "the first is forgotten"
    );
}

/// STATS of a launcher that numbers ends: the latest number, with nothing left to tell and nothing that runs.
fn tells(world: &mut World, node: SessionId, seq: u64) {
    let ends = EndsReport {
        incarnation: Uuid::from_u128(0xc0),
        seq,
        ended: Vec::new(),
    };
    let report = StatsReport {
        node: world.uuid_of(node).to_string().into(),
        starts_seen: Some(0),
        ends: Some(Box::new(ends)),
        ..StatsReport::default()
    };
    world.say(node, Report::Stats(Box::new(report)));
}

#[test]
fn ends_that_another_scheduler_was_told_meanwhile_are_missing() {
    // A node whose numbers have stood still, and one whose numbers have gone on.
    for (since_then, expected) in [(7, 23), (8, 3)] {
        let (mut world, controller, node) = World::with(durable()).with_node(100);
        tells(&mut world, node, 7);
        world.start_as(controller, request("a", 10).waiting(30));
        world.advance(Duration::from_secs(20));
        world.crash(config(), Default::default());
        world.advance(Duration::from_secs(1));
        let unproven = complete_for_s(&mut world);
        assert_eq!(unproven, Some(1), "before its node has reported");
        let node = world.node_with(1, 100);
        tells(&mut world, node, since_then);
        world.advance(Duration::from_secs(2));
        assert_eq!(complete_for_s(&mut world), Some(expected));
    }
}

#[test]
fn a_launcher_that_is_restarted_makes_no_gap() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    tells(&mut world, node, 7);
    world.start_as(controller, request("a", 10).waiting(30));
    world.advance(Duration::from_secs(20));
    // It numbers from further on.
    tells(&mut world, node, 1 << 32);
    world.crash(config(), Default::default());
    let node = world.node_with(1, 100);
    tells(&mut world, node, 1 << 32);
    world.advance(Duration::from_secs(1));
    assert_eq!(complete_for_s(&mut world), Some(21));
}

#[test]
fn a_scheduler_without_what_was_kept_knows_of_no_end_before_its_start() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.start_as(controller, request("a", 10).waiting(30));
    world.stats(node, vec![running("a", 1)]);
    world.advance(Duration::from_secs(20));
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    world.crash(config(), Default::default());
    world.advance(Duration::from_secs(7));
    assert_eq!(complete_for_s(&mut world), Some(27), "since the store was");
    world.restart(config(), Default::default());
    world.advance(Duration::from_secs(3));
    assert_eq!(complete_for_s(&mut world), Some(3));
}
