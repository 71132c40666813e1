//! Nodes are cordoned and drained: no new work, and what they have goes elsewhere, as far as it fits.

use std::time::Duration;

use bytes::Bytes;
use proto_frames::payload::{
    DrainProgress, DrainState, Evacuate, EvacuateMode, Restore, RestoreMode, Span, Topic,
};
use proto_frames::{Kind, Uuid};
use sched_core::{Command, EndHow, EndReport, EndsReport, Message, Report, SessionId, StatsReport};

use crate::support::durability::{crash, durable};
use crate::support::requests::Asking;
use crate::support::sending::parcel;
use crate::support::world::{World, id, node_uuid, request, running};

impl World {
    pub(crate) fn evacuate(&mut self, asker: SessionId, node: SessionId, mode: EvacuateMode) {
        let evacuate = Evacuate {
            workload_agent_uuid: self.uuid_of(node).to_string(),
            mode,
            ..Evacuate::default()
        };
        self.evacuate_as(asker, evacuate);
    }

    fn evacuate_as(&mut self, asker: SessionId, evacuate: Evacuate) {
        let command = Command::Evacuate(Box::new(evacuate));
        self.say(asker, command);
    }

    fn restore(&mut self, asker: SessionId, number: u64, mode: RestoreMode) {
        let restore = Restore {
            workload_agent_uuid: node_uuid(number).to_string(),
            mode,
        };
        let command = Command::Restore(Box::new(restore));
        self.say(asker, command);
    }

    /// What a peer was told of drains since the test last looked.
    fn progress(&mut self, peer: SessionId) -> Vec<DrainProgress> {
        self.told_of(peer, |message| match message {
            Message::DrainProgress(progress) => Some(progress.payload),
            _ => None,
        })
    }
}

fn states(progress: &[DrainProgress]) -> Vec<DrainState> {
    progress.iter().map(|it| it.state.clone()).collect()
}

/// A controller, and a node with these instances of 100 MiB each, the later the more urgent.
fn one_node(names: &[&str]) -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = World::new().with_node(1000);
    for (at, name) in names.iter().enumerate() {
        let start = request(name, 100).movable().priority(at as i64);
        assert_eq!(world.place_as(controller, start), Some(node));
    }
    world.list(node, names);
    world.look_away();
    (world, controller, node)
}

#[test]
fn a_cordoned_node_keeps_what_it_has_and_gets_no_more() {
    let (mut world, controller, node) = one_node(&["a"]);
    world.evacuate(controller, node, EvacuateMode::Cordon);
    assert_eq!(world.place(controller, "b", 1), None);
    let operator = world.operator(&[]);
    assert!(world.nodes(operator)[0].cordoned);
    world.restore(controller, 1, RestoreMode::Uncordon);
    assert!(world.told(node).is_empty());
    assert_eq!(world.place(controller, "b", 1), Some(node));
    assert!(!world.nodes(operator)[0].cordoned);
}

#[test]
fn a_cordon_holds_for_a_node_that_comes_later_and_says_why_nothing_fits() {
    let (mut world, controller) = World::new().with_controller();
    let evacuate = Evacuate {
        workload_agent_uuid: node_uuid(1).to_string(),
        mode: EvacuateMode::Cordon,
        ..Evacuate::default()
    };
    world.evacuate_as(controller, evacuate);
    let node = world.node_with(1, 1000);
    world.look_away();
    world.start(controller, "a", 1);
    match world.told_once(controller) {
        Message::StartFailure(failure) => {
            let detail = failure
                .detail
                .as_deref()
                .expect("a native peer is told why");
            assert!(detail.contains("1 cordoned"), "{detail}");
            assert!(!failure.never);
        }
        other => panic!("{other:?}"),
    }
    // The original's Restore lifts it too, and is carried to the launcher as ever.
    world.restore(controller, 1, RestoreMode::default());
    assert!(matches!(world.told_once(node), Message::Forward(_)));
    assert_eq!(world.place(controller, "b", 1), Some(node));
}

#[test]
fn what_waits_is_served_when_a_cordon_is_lifted() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.evacuate(controller, node, EvacuateMode::Cordon);
    let scheduling = proto_frames::payload::Scheduling {
        queue: Some(Span::from_ms(60_000)),
        ..Default::default()
    };
    world.start_as(
        controller,
        crate::support::words::asking("a", 1, scheduling),
    );
    world.look_away();
    world.restore(controller, 1, RestoreMode::Uncordon);
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
}

#[test]
fn an_evacuation_in_the_originals_way_is_its_launchers_business() {
    let (mut world, controller, node) = one_node(&["a"]);
    world.evacuate(controller, node, EvacuateMode::default());
    assert!(matches!(world.told_once(node), Message::Forward(_)));
    world.nothing_else();
}

#[test]
fn a_drain_moves_the_most_urgent_first_and_a_few_at_a_time() {
    let (mut world, controller, node) = one_node(&["a", "b", "c"]);
    let other = world.node_with(2, 1000);
    world.list(other, &[]);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    assert_eq!(world.stops(node), ["c", "b"]);
    let progress = world.progress(controller);
    assert_eq!(
        states(&progress),
        [DrainState::Checking, DrainState::Moving]
    );
    assert_eq!(progress[0].detail, "all of 3 fit elsewhere");
    let figures = |it: &DrainProgress| (it.total, it.moved, it.moving, it.left);
    assert_eq!(figures(&progress[1]), (3, 0, 2, 1));
    // One has to be up again before the next one leaves.
    world.has_stopped(node, "c");
    assert_eq!(world.placements(), [("c".to_owned(), other)]);
    assert!(world.stops(node).is_empty());
    assert_eq!(figures(&world.progress(controller)[0]), (3, 1, 1, 1));
    world.list(other, &["c"]);
    assert_eq!(world.stops(node), ["a"]);
    world.has_stopped(node, "b");
    world.has_stopped(node, "a");
    let progress = world.progress(controller);
    assert_eq!(progress.last().map(figures), Some((3, 3, 0, 0)));
    assert_eq!(progress.last().map(|it| &it.state), Some(&DrainState::Done));
    // It stays out of service until somebody says otherwise.
    world.list(other, &["c", "b", "a"]);
    assert_eq!(world.place(controller, "d", 900), None);
}

#[test]
fn a_drain_is_not_done_before_the_node_says_so() {
    let (mut world, controller, node) = one_node(&["a"]);
    let other = world.node_with(2, 1000);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    world.look_away();
    world.advance(Duration::from_secs(60));
    assert!(world.progress(controller).is_empty());
    // The launcher does not say that it stopped it; that it is gone its STATS say.
    for _ in 0..3 {
        world.list(node, &[]);
    }
    assert_eq!(world.placements(), [("a".to_owned(), other)]);
    assert_eq!(states(&world.progress(controller)), [DrainState::Done]);
}

#[test]
fn a_check_names_what_does_not_fit_and_changes_nothing() {
    let (mut world, controller, node) = one_node(&["a", "b", "c", "d"]);
    world.node_with(2, 250);
    let watcher = world.operator(&[Topic::Nodes]);
    let operator = world.operator(&[]);
    world.look_away();
    world.evacuate(operator, node, EvacuateMode::Check);
    let progress = world.progress(operator);
    assert_eq!(states(&progress), [DrainState::Checking]);
    assert_eq!((progress[0].total, progress[0].unmovable_count), (4, 2));
    let unmovable = progress[0].unmovable.iter();
    let names: Vec<_> = unmovable.map(|it| it.instance_uuid.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    let detail = &progress[0].detail;
    assert!(detail.starts_with("2 of 4 will not fit: b ("), "{detail}");
    assert!(world.progress(watcher).is_empty());
    world.nothing_else();
    assert_eq!(world.place(controller, "e", 600), Some(node));
}

#[test]
fn what_does_not_fit_is_tried_again_when_there_is_room() {
    let (mut world, controller, node) = one_node(&["a", "b"]);
    let operator = world.operator(&[]);
    let small = world.node_with(2, 150);
    world.look_away();
    world.evacuate(operator, node, EvacuateMode::Relocate);
    assert_eq!(world.stops(node), ["b"]);
    world.has_stopped(node, "b");
    world.list(small, &["b"]);
    let progress = world.progress(operator);
    assert_eq!(
        progress.last().map(|it| it.unmovable.len()),
        Some(1),
        "{progress:#?}"
    );
    world.look_away();
    let large = world.node_with(3, 1000);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.stops(node), ["a"]);
    world.has_stopped(node, "a");
    assert_eq!(world.placements(), [("a".to_owned(), large)]);
    let progress = world.progress(operator);
    assert_eq!(progress.last().map(|it| &it.state), Some(&DrainState::Done));
    assert!(world.failures(controller).is_empty());
}

#[test]
fn a_drain_that_runs_out_of_time_ends_incomplete_and_says_what_is_left() {
    let (mut world, controller, node) = one_node(&["a", "b"]);
    let evacuate = Evacuate {
        workload_agent_uuid: world.uuid_of(node).to_string(),
        mode: EvacuateMode::Relocate,
        deadline: Some(Span::from_ms(5_000)),
        parallel: Some(1),
    };
    let target = world.node_with(2, 100);
    world.list(target, &[]);
    world.look_away();
    world.evacuate_as(controller, evacuate);
    world.has_stopped(node, "b");
    world.list(target, &["b"]);
    world.look_away();
    world.advance(Duration::from_secs(5));
    let progress = world.progress(controller);
    assert_eq!(states(&progress), [DrainState::Incomplete]);
    assert_eq!((progress[0].moved, progress[0].left), (1, 1));
    assert_eq!(progress[0].detail, "its time is over");
    assert_eq!(progress[0].unmovable[0].instance_uuid, "a");
}

#[test]
fn what_cannot_be_moved_at_all_ends_a_drain_at_once() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.node_with(2, 1000);
    assert_eq!(world.place(controller, "plain", 1), Some(node));
    world.list(node, &["plain"]);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    let progress = world.progress(controller);
    assert_eq!(
        states(&progress),
        [DrainState::Checking, DrainState::Incomplete]
    );
    assert!(progress[1].unmovable[0].detail.contains("START"));
    world.nothing_else();
}

#[test]
fn a_drain_can_be_ended_and_what_is_on_its_way_goes_on() {
    let (mut world, controller, node) = one_node(&["a", "b", "c"]);
    let other = world.node_with(2, 1000);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    assert_eq!(world.stops(node), ["c", "b"]);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Abort);
    assert_eq!(states(&world.progress(controller)), [DrainState::Aborted]);
    world.has_stopped(node, "c");
    assert_eq!(world.placements(), [("c".to_owned(), other)]);
    world.list(other, &["c"]);
    assert!(world.stops(node).is_empty());
    assert!(world.progress(controller).is_empty());
    world.evacuate(controller, node, EvacuateMode::Abort);
    assert!(matches!(
        world.told(controller)[..],
        [.., Message::CommandRefused(_)]
    ));
}

#[test]
fn another_drain_of_the_same_node_changes_its_limits() {
    let (mut world, controller, node) = one_node(&["a", "b", "c"]);
    world.node_with(2, 1000);
    let mut evacuate = Evacuate {
        workload_agent_uuid: world.uuid_of(node).to_string(),
        mode: EvacuateMode::Relocate,
        deadline: None,
        parallel: Some(1),
    };
    world.look_away();
    world.evacuate_as(controller, evacuate.clone());
    assert_eq!(world.stops(node), ["c"]);
    evacuate.parallel = Some(3);
    world.evacuate_as(controller, evacuate);
    assert_eq!(world.stops(node), ["b", "a"]);
}

#[test]
fn an_instance_that_its_launcher_keeps_is_not_asked_for_over_and_over() {
    let (mut world, controller, node) = one_node(&["a"]);
    world.node_with(2, 1000);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    assert_eq!(world.stops(node), ["a"]);
    let refused = Report::DeleteFailed {
        node: world.uuid_of(node).to_string().into(),
        instance: id("a"),
        no_instance: false,
    };
    world.say(node, refused);
    assert!(world.stops(node).is_empty());
    let progress = world.progress(controller);
    let unmovable = progress.last().map(|it| it.unmovable[0].detail.clone());
    assert_eq!(unmovable.as_deref(), Some("its launcher could not stop it"));
}

#[test]
fn what_starts_on_a_node_when_its_drain_begins_is_moved_once_it_runs() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.list(node, &["x"]);
    assert_eq!(
        world.place_as(controller, request("a", 1).movable()),
        Some(node)
    );
    world.gone(node, Kind::INSTANCE_DELETED, "x");
    world.node_with(2, 1000);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    assert!(world.stops(node).is_empty());
    world.list(node, &["a"]);
    assert_eq!(world.stops(node), ["a"]);
}

#[test]
fn a_drain_of_a_node_that_is_lost_does_not_say_that_it_is_done() {
    let (mut world, controller, node) = one_node(&["a"]);
    world.evacuate(controller, node, EvacuateMode::Relocate);
    world.look_away();
    world.cut(node);
    world.advance(Duration::from_secs(60));
    let progress = world.progress(controller);
    assert_eq!(states(&progress), [DrainState::Incomplete]);
    assert!(progress[0].detail.contains("lost"));
}

#[test]
fn a_drain_goes_on_after_a_crash_once_its_node_has_said_what_it_has() {
    let (mut world, controller, node) = World::with(durable()).with_node(1000);
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        let start = request(name, 100).movable().priority(at as i64);
        assert_eq!(world.place_as(controller, start), Some(node));
    }
    world.list(node, &["a", "b"]);
    let evacuate = Evacuate {
        workload_agent_uuid: world.uuid_of(node).to_string(),
        mode: EvacuateMode::Relocate,
        deadline: Some(Span::from_ms(60_000)),
        parallel: Some(1),
    };
    // Before anything fits elsewhere.
    world.evacuate_as(controller, evacuate);
    crash(&mut world, 1);
    let controller = world.controller();
    let node = world.node_with(1, 1000);
    let other = world.node_with(2, 1000);
    world.list(other, &[]);
    assert_eq!(world.place(controller, "c", 1), Some(other));
    assert!(world.stops(node).is_empty());
    world.list(node, &["a", "b"]);
    assert_eq!(world.stops(node), ["b"]);
    let operator = world.operator(&[]);
    let rows = world.nodes(operator);
    assert!(rows[0].cordoned && rows[0].drain.starts_with("0 of 2 moved"));
    world.look_away();
    world.advance(Duration::from_secs(60));
    let ends = states(&world.progress(controller));
    assert_eq!(ends.last(), Some(&DrainState::Incomplete));
    // The cordon outlives that as well.
    crash(&mut world, 2);
    let controller = world.controller();
    world.node_with(1, 1000);
    assert_eq!(world.place(controller, "d", 1), None);
}

#[test]
fn what_ends_by_itself_is_not_counted_as_moved() {
    let (mut world, controller, node) = one_node(&["a", "b", "c"]);
    assert_eq!(world.place(controller, "plain", 1), Some(node));
    world.list(node, &["a", "b", "c", "plain"]);
    let other = world.node_with(2, 1000);
    world.list(other, &[]);
    world.look_away();
    let evacuate = Evacuate {
        workload_agent_uuid: world.uuid_of(node).to_string(),
        mode: EvacuateMode::Relocate,
        deadline: None,
        parallel: Some(1),
    };
    world.evacuate_as(controller, evacuate);
    assert_eq!(world.stops(node), ["c"]);
    world.has_stopped(node, "c");
    world.list(other, &["c"]);
    assert_eq!(world.stops(node), ["b"]);
    // One that is managed, and one that is not.
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    world.look_away();
    world.gone(node, Kind::INSTANCE_DELETED, "plain");
    let progress = world.progress(controller);
    let figures = |it: &DrainProgress| (it.total, it.moved, it.ended, it.moving, it.left);
    assert_eq!(progress.last().map(figures), Some((4, 3, 2, 1, 0)));
    let operator = world.operator(&[]);
    let drain = &world.nodes(operator)[0].drain;
    assert_eq!(
        drain,
        "1 of 4 moved, 2 ended; waits for b to leave the node"
    );
    world.has_stopped(node, "b");
    let progress = world.progress(controller);
    assert_eq!(progress.last().map(figures), Some((4, 4, 2, 0, 0)));
    assert_eq!(progress.last().map(|it| &it.state), Some(&DrainState::Done));
    assert_eq!(
        progress.last().map(|it| &*it.detail),
        Some("2 moved, 2 ended")
    );
}

#[test]
fn what_has_ended_is_known_after_a_crash() {
    let (mut world, controller, node) = World::with(durable()).with_node(1000);
    for name in ["a", "b"] {
        let start = request(name, 100).movable();
        assert_eq!(world.place_as(controller, start), Some(node));
    }
    world.list(node, &["a", "b"]);
    world.evacuate(controller, node, EvacuateMode::Relocate);
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    crash(&mut world, 1);
    let node = world.node_with(1, 1000);
    let operator = world.operator(&[]);
    let drain = |world: &mut World| world.nodes(operator)[0].drain.clone();
    assert_eq!(
        drain(&mut world),
        "waits for the node to say what runs on it"
    );
    world.list(node, &["b"]);
    let expected = "0 of 2 moved, 1 ended; waits for room elsewhere for b";
    assert_eq!(drain(&mut world), expected);
}

#[test]
fn what_ended_while_the_scheduler_was_down_is_not_moved() {
    let (mut world, controller, node) = World::with(durable()).with_node(1000);
    for name in ["a", "b"] {
        let start = request(name, 100).movable();
        assert_eq!(world.place_as(controller, start), Some(node));
    }
    world.list(node, &["a", "b"]);
    world.evacuate(controller, node, EvacuateMode::Relocate);
    crash(&mut world, 1);
    let node = world.node_with(1, 1000);
    let ended = EndReport {
        seq: 1,
        instance: id("a"),
        how: EndHow::Stopped,
        exit_code: Some(0),
        ago: None,
        parcel: parcel(Kind::INSTANCE_STOPPED, node_uuid(1), Bytes::new()),
        facts: None,
    };
    let report = StatsReport {
        is_plain: true,
        node: node_uuid(1).to_string().into(),
        starts_seen: Some(2),
        instances: vec![running("b", 100)],
        ends: Some(Box::new(EndsReport {
            incarnation: Uuid::from_u128(0xc0),
            seq: 1,
            ended: vec![ended],
        })),
        ..StatsReport::default()
    };
    world.say(node, Report::Stats(Box::new(report)));
    let operator = world.operator(&[]);
    let expected = "0 of 2 moved, 1 ended; waits for room elsewhere for b";
    assert_eq!(world.nodes(operator)[0].drain, expected);
}

#[test]
fn a_drain_says_that_it_waits_for_room_and_names_who_waits_by_name() {
    let (mut world, controller, node) = World::new().with_node(1000);
    let uuid = "c0ffee00-0000-4000-8000-000000000001";
    for (name, called) in [(uuid, ""), ("b", "web-1")] {
        let mut start = request(name, 100).movable();
        start.scheduling.get_or_insert_default().name = called.to_owned();
        assert_eq!(world.place_as(controller, start), Some(node));
    }
    world.list(node, &[uuid, "b"]);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    let progress = world.progress(controller);
    let checked = &progress[0].detail;
    assert!(checked.contains("web-1 ("), "{checked}");
    assert!(checked.contains("c0ffee00 ("), "{checked}");
    let moving = progress.last().expect("it goes on");
    assert_eq!(moving.unmovable[1].name, "web-1");
    let expected = "waits for room elsewhere for c0ffee00 and 1 more";
    assert_eq!(moving.detail, expected);
}

#[test]
fn what_is_pinned_to_its_node_ends_its_drain_and_is_named_from_the_first_moment() {
    for by_host in [false, true] {
        let (mut world, controller, node) = World::new().with_node(1000);
        world.ready_as(node, |report| report.hostname = "node-1".into());
        world.node_with(2, 1000);
        let mut start = request("a", 100).movable();
        match by_host {
            true => start.hostname = Some("node-1".into()),
            false => start.node_id = Some(world.uuid_of(node).to_string().into()),
        }
        assert_eq!(world.place_as(controller, start), Some(node));
        world.list(node, &["a"]);
        world.look_away();
        world.evacuate(controller, node, EvacuateMode::Relocate);
        let progress = world.progress(controller);
        assert_eq!(
            states(&progress),
            [DrainState::Checking, DrainState::Incomplete]
        );
        for said in &progress {
            assert_eq!(said.unmovable.len(), 1, "{said:?}");
            let why = &said.unmovable[0].detail;
            assert!(why.contains("asked for"), "{why}");
        }
    }
}

#[test]
fn what_has_room_elsewhere_once_others_end_is_waited_for() {
    let (mut world, controller, node) = World::new().with_node(1000);
    let small = request("b", 100).movable();
    assert_eq!(world.place_as(controller, small), Some(node));
    world.list(node, &["b"]);
    let other = world.node_with(2, 150);
    let mut start = request("full", 150).movable();
    start.node_id = Some(world.uuid_of(other).to_string().into());
    assert_eq!(world.place_as(controller, start), Some(other));
    world.list(other, &["full"]);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    let progress = world.progress(controller);
    assert_eq!(states(&progress).last(), Some(&DrainState::Moving));
    world.look_away();
    world.gone(other, Kind::INSTANCE_DELETED, "full");
    world.advance(Duration::from_secs(60));
    assert_eq!(world.stops(node), ["b"]);
}

#[test]
fn what_is_too_large_for_all_other_nodes_ends_its_drain() {
    let (mut world, controller, node) = World::new().with_node(1000);
    assert_eq!(
        world.place_as(controller, request("a", 400).movable()),
        Some(node)
    );
    world.list(node, &["a"]);
    let other = world.node_with(2, 150);
    world.cut(other);
    world.look_away();
    world.evacuate(controller, node, EvacuateMode::Relocate);
    // It is the only node, so that any other may join; and the one that is lost would not do.
    assert_eq!(
        states(&world.progress(controller)).last(),
        Some(&DrainState::Moving)
    );
    world.node_with(3, 150);
    world.advance(Duration::from_secs(60));
    let progress = world.progress(controller);
    assert_eq!(
        states(&progress).last(),
        Some(&DrainState::Incomplete),
        "{progress:?}"
    );
}
