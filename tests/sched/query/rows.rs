//! Rows of answers to queries: what they tell of nodes and instances beyond the original's figures, and how long an answer
//! may become.

use std::time::Duration;

use proto_frames::limits::MAX_PAYLOAD_LEN;
use proto_frames::payload::{
    Evacuate, EvacuateMode, Group, GroupPolicy, Payload, Query, QueryKind, QueryResult, Scheduling,
    StartFailureReason,
};
use proto_frames::{Kind, Uuid};
use sched_core::{
    Command, Departure, EndsReport, IN_DOUBT_TIME, Input, Message, NodeExtras, Report, SessionId,
    StatsReport,
};

use crate::support::durability::{crash, durable};
use crate::support::requests::Asking;
use crate::support::world::{World, config, node_uuid, request, running};

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
    // As long as identifiers of originals' instances may be: so that few fill what is remembered.
    let long = "x".repeat(64 * 1024);
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
    let mut number = 0;
    while world.forgotten().is_none() {
        assert!(number < 1_000, "it is bounded by bytes");
        number += 1;
        run(&mut world, &format!("other {number} {long}"));
    }
    assert_eq!(
        complete_for_s(&mut world),
        Some(0),
        "the first and one of the others are forgotten"
    );
    assert_eq!(world.forgotten(), Some(2));
}

#[test]
fn the_list_of_ends_can_be_of_the_latest_alone_however_late_they_became_known() {
    let (mut world, controller, node) = World::new().check_every(1000).with_node(100);
    for number in 0..40 {
        let name = format!("old {number}");
        world.start_as(controller, request(&name, 1).waiting(30));
        world.stats(node, vec![running(&name, 1)]);
        world.gone(node, Kind::INSTANCE_STOPPED, &name);
    }
    world.advance(Duration::from_secs(3600));
    world.start_as(controller, request("new", 1).waiting(30));
    world.stats(node, vec![running("new", 1)]);
    world.gone(node, Kind::INSTANCE_STOPPED, "new");
    world.advance(Duration::from_secs(10));
    world.look_away();
    let mut within = |within_ms, limit| {
        let query = Query {
            what: QueryKind::Ended,
            within_ms,
            limit: Some(limit),
            ..Query::default()
        };
        let page = world.ask(query);
        let names = page.instances.into_iter().map(|row| row.instance_uuid);
        (names.collect::<Vec<_>>(), page.next)
    };
    assert_eq!(within(Some(60_000), 1), (vec!["new".to_owned()], None));
    assert_eq!(within(Some(9_000), 1000), (vec![], None));
    assert_eq!(within(Some(u64::MAX), 1000).0.len(), 41);
    assert_eq!(within(None, 1000).0.len(), 41);
}

impl World {
    /// The answer to a query of an operator's.
    fn ask(&mut self, query: Query) -> QueryResult {
        let operator = self.operator(&[]);
        self.look_away();
        self.say(operator, Command::Query(Box::new(query)));
        match self.told_once(operator) {
            Message::QueryResult(result) => result.payload,
            other => panic!("{other:?}"),
        }
    }

    /// How many ends are forgotten, as the scheduler says.
    fn forgotten(&mut self) -> Option<u64> {
        query(self, QueryKind::Ended, Some(u64::MAX.to_string())).forgotten
    }
}

/// Numbers of a launcher that starts over under another incarnation, with so many ends that it has told.
fn tells_anew(world: &mut World, node: SessionId, incarnation: u128, seq: u64) {
    let ends = EndsReport {
        incarnation: Uuid::from_u128(incarnation),
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

/// STATS of a launcher that numbers ends: the latest number, with nothing left to tell and nothing that runs.
fn tells(world: &mut World, node: SessionId, seq: u64) {
    tells_anew(world, node, 0xc0, seq);
}

/// A scheduler with a disk and a START on it, and a node that has told so many ends, 20 seconds later.
fn with_numbers(seq: u64) -> (World, SessionId) {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    tells(&mut world, node, seq);
    world.start_as(controller, request("a", 10).waiting(30));
    world.advance(Duration::from_secs(20));
    (world, node)
}

/// How far back the history reaches a second after the node has told this number.
fn reach_after(world: &mut World, incarnation: u128, seq: u64) -> Option<i64> {
    let node = world.node_with(1, 100);
    tells_anew(world, node, incarnation, seq);
    world.advance(Duration::from_secs(1));
    complete_for_s(world)
}

fn forget_node(world: &mut World) {
    let operator = world.operator(&[]);
    let evacuate = Evacuate {
        workload_agent_uuid: node_uuid(1).to_string(),
        mode: EvacuateMode::Forget,
        ..Evacuate::default()
    };
    world.say(operator, Command::Evacuate(Box::new(evacuate)));
}

fn leave_in_order(world: &mut World, session: SessionId) {
    world.handle(Input::Disconnected {
        session,
        unsent: Vec::new(),
        departure: Departure::Closed,
    });
    world.advance(IN_DOUBT_TIME);
}

#[test]
fn ends_that_another_scheduler_was_told_meanwhile_are_missing() {
    // A node whose numbers have stood still, and one whose numbers have gone on: then ends are missing until it says so.
    for (since_then, reaches) in [(7, [22, 23, 24]), (8, [1, 2, 3])] {
        let (mut world, _) = with_numbers(7);
        crash(&mut world, 1);
        world.advance(Duration::from_secs(1));
        let unproven = complete_for_s(&mut world);
        assert_eq!(unproven, Some(1), "before its node has reported");
        let reach = reach_after(&mut world, 0xc0, since_then);
        assert_eq!(reach, Some(reaches[0]));
        for reach in &reaches[1..] {
            crash(&mut world, 1);
            assert_eq!(reach_after(&mut world, 0xc0, since_then), Some(*reach));
        }
    }
}

#[test]
fn a_launcher_that_is_restarted_makes_no_gap() {
    let (mut world, node) = with_numbers(7);
    // It numbers from further on.
    tells(&mut world, node, 1 << 32);
    crash(&mut world, 1);
    assert_eq!(reach_after(&mut world, 0xc0, 1 << 32), Some(21));
}

#[test]
fn numbers_that_began_anew_while_connected_make_no_gap_after_a_restart() {
    for first in [0, 1 << 32] {
        let (mut world, node) = with_numbers(7);
        tells_anew(&mut world, node, 0xb0, first);
        crash(&mut world, 1);
        assert_eq!(reach_after(&mut world, 0xb0, first), Some(21));
    }
}

#[test]
fn a_new_node_makes_a_gap_unless_its_numbers_are_at_their_first() {
    for (first, reaches) in [(0, [21, 22]), (1 << 32, [21, 22]), ((1 << 32) + 1, [1, 2])] {
        let (mut world, controller) = World::with(durable()).with_controller();
        world.start_as(controller, request("a", 10).waiting(30));
        world.advance(Duration::from_secs(20));
        for reach in reaches {
            crash(&mut world, 1);
            assert_eq!(reach_after(&mut world, 0xc0, first), Some(reach));
        }
    }
}

#[test]
fn a_node_that_is_forgotten_is_not_waited_for() {
    let (mut world, _) = with_numbers(7);
    crash(&mut world, 1);
    world.advance(Duration::from_secs(5));
    forget_node(&mut world);
    world.advance(Duration::from_secs(3));
    assert_eq!(
        complete_for_s(&mut world),
        Some(3),
        "since it was forgotten"
    );
    crash(&mut world, 0);
    world.advance(Duration::from_secs(2));
    assert_eq!(complete_for_s(&mut world), Some(5), "after a restart too");
}

#[test]
fn a_node_that_was_heard_and_is_forgotten_makes_no_gap() {
    let (mut world, node) = with_numbers(7);
    world.cut(node);
    forget_node(&mut world);
    crash(&mut world, 0);
    world.advance(Duration::from_secs(2));
    assert_eq!(complete_for_s(&mut world), Some(22));
}

#[test]
fn a_node_that_left_in_order_and_empty_is_not_waited_for() {
    // It comes back as it was, with a new count, and with an end that another scheduler was told.
    for (incarnation, seq, reach) in [(0xc0, 7, 38), (0xb0, 0, 38), (0xc0, 8, 1)] {
        let (mut world, node) = with_numbers(7);
        leave_in_order(&mut world, node);
        crash(&mut world, 0);
        world.advance(Duration::from_secs(2));
        assert_eq!(complete_for_s(&mut world), Some(37));
        assert_eq!(reach_after(&mut world, incarnation, seq), Some(reach));
    }
}

#[test]
fn a_record_of_a_node_that_is_not_known_is_not_waited_for() {
    let (mut world, _) = with_numbers(7);
    crash(&mut world, 0);
    world.advance(Duration::from_secs(2));
    assert_eq!(complete_for_s(&mut world), Some(2), "since this start");
    crash(&mut world, 0);
    world.advance(Duration::from_secs(3));
    assert_eq!(complete_for_s(&mut world), Some(5), "since that start");
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
