//! Output of workloads is read from the node that has it, a chunk at a time.

use std::time::Duration;

use bytes::Bytes;
use ciao_scheduler::server::sim_support::frame_of;
use proto_frames::payload::{DeleteOutput, OutputFailure, OutputPart, ReadOutput};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    Capabilities, Command, Dialect, Hello, KeptRun, KeptRuns, Message, NodeReport, Report,
    SessionId,
};

use crate::support::migration::able;
use crate::support::requests::Asking;
use crate::support::world::{Size, World, config, id, node_uuid, report, request};

/// Chunks that one peer may wait for.
const MOST: u64 = 16;

/// Longer than a launcher may take for an answer.
const TOO_LATE: Duration = Duration::from_secs(31);

/// A world with a controller and one node whose launcher can be asked, which runs `it`.
fn one_node() -> (World, SessionId, SessionId) {
    let mut world = World::new();
    let (controller, node) = (world.controller(), world.silent_node(1));
    let said = NodeReport {
        extras: Some(Box::new(able(Capabilities::OUTPUT))),
        ..report(Size::default())
    };
    world.report(node, said);
    world.run_on(controller, node, vec![request("it", 100)]);
    (world, controller, node)
}

fn viewer(world: &mut World) -> SessionId {
    let viewer = world.join(Role::VIEWER, Uuid::from_u128(0x71e), Dialect::Native);
    world.look_away();
    viewer
}

fn ask(world: &mut World, from: SessionId, name: &str, number: u64) {
    let read = ReadOutput {
        id: number,
        instance_uuid: name.to_owned(),
        offset: Some(7),
        ..ReadOutput::default()
    };
    world.say(from, Command::ReadOutput(Box::new(read)));
}

/// What the launcher of a node was asked.
fn asked(world: &mut World, node: SessionId) -> Vec<ReadOutput> {
    let told = world.told(node).into_iter();
    let reads = told.map(|message| match message {
        Message::ReadOutput(read) => *read,
        other => panic!("{other:?}"),
    });
    reads.collect()
}

/// Why a peer got no output.
fn refused(world: &mut World, peer: SessionId) -> OutputPart {
    match world.told_once(peer) {
        Message::NoOutput(part) => part.payload,
        other => panic!("{other:?}"),
    }
}

fn answer(world: &mut World, node: SessionId, read: u64, text: &'static str) {
    world.say_with(
        node,
        Report::Output(read),
        Bytes::from_static(text.as_bytes()),
    );
}

/// The output that a peer was told.
fn output(world: &mut World, peer: SessionId) -> Bytes {
    match world.told_once(peer) {
        Message::Forward(parcel) => {
            let frame = frame_of(&parcel);
            assert_eq!(frame.kind, Kind::OUTPUT);
            frame.payload
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_node_that_has_an_instance_is_asked_and_its_answer_goes_to_the_asker_alone() {
    let (mut world, controller, node) = one_node();
    let (first, second) = (viewer(&mut world), world.operator(&[]));
    world.look_away();
    ask(&mut world, first, "it", 5);
    ask(&mut world, second, "it", 5);
    let reads = asked(&mut world, node);
    assert_eq!((reads.len(), reads[0].id, reads[0].offset), (2, 5, Some(7)));
    assert_ne!(reads[0].read, reads[1].read, "the scheduler's own numbers");
    answer(&mut world, node, reads[1].read, "b");
    assert_eq!(output(&mut world, second), "b");
    answer(&mut world, node, reads[0].read, "a");
    assert_eq!(output(&mut world, first), "a");
    assert!(world.told(controller).is_empty());
    ask(&mut world, controller, "it", 1);
    let read = asked(&mut world, node)[0].read;
    answer(&mut world, node, read, "c");
    assert_eq!(output(&mut world, controller), "c");
    world.nothing_else();
}

#[test]
fn an_answer_counts_once_and_only_from_the_node_that_was_asked() {
    let (mut world, _, node) = one_node();
    let other = world.node_with(2, 1000);
    let reader = viewer(&mut world);
    ask(&mut world, reader, "it", 1);
    let read = asked(&mut world, node)[0].read;
    answer(&mut world, other, read, "a lie");
    answer(&mut world, node, read + 1, "of nothing");
    world.nothing_else();
    answer(&mut world, node, read, "the truth");
    answer(&mut world, node, read, "again");
    assert_eq!(output(&mut world, reader), "the truth");
    world.nothing_else();
}

#[test]
fn what_is_unknown_waits_or_is_on_an_original_node_has_a_word_for_it() {
    let (mut world, controller, _) = one_node();
    let original = world.node(2, Size::of_mem(50_000));
    world.start(controller, "old", 40_000);
    assert_eq!(world.placements(), [("old".to_owned(), original)]);
    world.start_as(controller, request("waiting", 90_000).waiting(600));
    let reader = viewer(&mut world);
    for (name, expected) in [
        ("none", OutputFailure::NoInstance),
        ("old", OutputFailure::NotSupported),
        ("waiting", OutputFailure::NeverBegan),
    ] {
        ask(&mut world, reader, name, 3);
        let part = refused(&mut world, reader);
        assert_eq!(
            (part.failure, part.id),
            (expected, 3),
            "{name}: {}",
            part.detail
        );
        assert!(!part.detail.is_empty(), "{name}");
    }
}

#[test]
fn output_of_an_ended_instance_is_asked_of_the_node_that_keeps_it() {
    let (mut world, _, node) = one_node();
    let reader = viewer(&mut world);
    world.gone(node, Kind::INSTANCE_DELETED, "it");
    world.look_away();
    // Its history alone says where it was: it is the launcher that knows whether it keeps anything.
    ask(&mut world, reader, "it", 1);
    assert_eq!(asked(&mut world, node).len(), 1);
    let run = |name: &str| KeptRun {
        instance: id(name),
        seq: 1,
        at_ms: 1,
        exit_code: Some(0),
        output: "/kept".into(),
    };
    let kept = KeptRuns {
        is_complete: true,
        runs: vec![run("older")],
    };
    world.say(node, Report::KeptRuns(Box::new(kept)));
    ask(&mut world, reader, "older", 2);
    assert_eq!(asked(&mut world, node)[0].instance_uuid, "older");
    world.cut(node);
    world.look_away();
    ask(&mut world, reader, "older", 3);
    let part = refused(&mut world, reader);
    assert_eq!(part.failure, OutputFailure::NodeLost);
}

#[test]
fn readers_are_told_when_the_node_is_lost_or_silent() {
    let (mut world, _, node) = one_node();
    let reader = viewer(&mut world);
    ask(&mut world, reader, "it", 1);
    world.look_away();
    world.cut(node);
    let part = refused(&mut world, reader);
    assert_eq!((part.failure, part.id), (OutputFailure::NodeLost, 1));
    ask(&mut world, reader, "it", 2);
    let part = refused(&mut world, reader);
    assert_eq!(part.failure, OutputFailure::NodeLost);
    let uuid = node_uuid(1).to_string();
    assert!(part.detail.contains(&uuid), "{}", part.detail);

    let (mut world, _, node) = one_node();
    let reader = viewer(&mut world);
    ask(&mut world, reader, "it", 1);
    let read = asked(&mut world, node)[0].read;
    world.advance(TOO_LATE);
    let part = refused(&mut world, reader);
    assert_eq!((part.failure, part.id), (OutputFailure::Timeout, 1));
    answer(&mut world, node, read, "late");
    assert!(world.told(reader).is_empty());
}

#[test]
fn a_newer_connection_of_a_node_does_not_leave_readers_waiting() {
    let (mut world, _, node) = one_node();
    let reader = viewer(&mut world);
    ask(&mut world, reader, "it", 1);
    let read = asked(&mut world, node)[0].read;
    let newer = world.silent_node(1);
    let part = refused(&mut world, reader);
    assert_eq!(part.failure, OutputFailure::NodeLost);
    answer(&mut world, newer, read, "late");
    assert!(world.told(reader).is_empty());
}

#[test]
fn there_are_so_many_readers_at_most_and_none_is_left_of_those_who_leave() {
    let (mut world, _, node) = one_node();
    let reader = viewer(&mut world);
    let before = world.scheduler.footprint().reads;
    for number in 0..MOST {
        ask(&mut world, reader, "it", number);
    }
    assert_eq!(asked(&mut world, node).len() as u64, MOST);
    ask(&mut world, reader, "it", 99);
    let part = refused(&mut world, reader);
    assert_eq!((part.failure, part.id), (OutputFailure::Busy, 99));
    let other = world.operator(&[]);
    world.look_away();
    ask(&mut world, other, "it", 1);
    let read = asked(&mut world, node)[0].read;
    world.cut(reader);
    assert_eq!(world.scheduler.footprint().reads, 1);
    answer(&mut world, node, read, "for the other");
    assert_eq!(output(&mut world, other), "for the other");
    assert_eq!(world.scheduler.footprint().reads, before);
    world.nothing_else();
}

#[test]
fn one_certificate_leaves_others_what_a_node_can_answer_however_many_sessions_it_has() {
    let (mut world, _, node) = one_node();
    let mut number = 0;
    let mut viewer_with = |world: &mut World, certificate: u8| {
        number += 1;
        let hello = Hello {
            certificate: Some([certificate; 32]),
            ..Hello::native(Uuid::from_u128(0x7e0 + number), Role::VIEWER)
        };
        let viewer = world.knock(hello).unwrap();
        world.look_away();
        viewer
    };
    let mut taken = 0;
    for _ in 0..4 {
        let viewer = viewer_with(&mut world, 1);
        for number in 0..8 {
            ask(&mut world, viewer, "it", number);
            let asked = asked(&mut world, node).len();
            taken += asked;
            let told = world.told(viewer).len();
            assert_eq!(asked + told, 1, "it is asked for or refused");
        }
    }
    assert_eq!(taken, 12);
    let other = viewer_with(&mut world, 2);
    for number in 0..4 {
        ask(&mut world, other, "it", number);
    }
    assert_eq!(asked(&mut world, node).len(), 4);
    assert!(world.told(other).is_empty());
}

#[test]
fn all_readers_together_are_limited_too() {
    let mut world = World::with(config()).check_every(500);
    let (controller, node) = (world.controller(), world.silent_node(1));
    let mut said = report(Size::default());
    said.extras = Some(Box::new(able(Capabilities::OUTPUT)));
    world.report(node, said);
    world.run_on(controller, node, vec![request("it", 100)]);
    let mut refusals = 0;
    for number in 0..70 {
        let uuid = Uuid::from_u128(0x7000 + number);
        let reader = world.join(Role::VIEWER, uuid, Dialect::Native);
        world.look_away();
        for _ in 0..MOST {
            ask(&mut world, reader, "it", 1);
        }
        refusals += world.told(reader).len();
    }
    assert_eq!(world.scheduler.footprint().reads, 1024);
    assert_eq!(refusals, 70 * 16 - 1024);
}

/// The same as [`one_node`], whose launcher also serves files and deletes them, and an operator.
fn with_results() -> (World, SessionId, SessionId) {
    let (mut world, _, node) = one_node();
    let said = NodeReport {
        extras: Some(Box::new(able(Capabilities::from_names([
            "output", "results",
        ])))),
        ..report(Size::default())
    };
    world.report(node, said);
    let operator = world.join(Role::OPERATOR, Uuid::from_u128(0x71f), Dialect::Native);
    world.look_away();
    (world, operator, node)
}

fn read_file(world: &mut World, from: SessionId, file: &str) {
    let read = ReadOutput {
        id: 1,
        instance_uuid: "it".to_owned(),
        file: file.to_owned(),
        ..ReadOutput::default()
    };
    world.say(from, Command::ReadOutput(Box::new(read)));
}

fn delete(world: &mut World, from: SessionId, node: Option<u64>) {
    let delete = DeleteOutput {
        id: 1,
        instance_uuid: "it".to_owned(),
        node_uuid: node
            .map(|node| node_uuid(node).to_string())
            .unwrap_or_default(),
        ..DeleteOutput::default()
    };
    world.say(from, Command::DeleteOutput(delete));
}

#[test]
fn files_are_asked_of_launchers_that_serve_them_and_not_for_viewers() {
    let (mut world, operator, node) = with_results();
    read_file(&mut world, operator, "a/b");
    assert_eq!(asked(&mut world, node)[0].file, "a/b");
    let viewer = viewer(&mut world);
    read_file(&mut world, viewer, "a/b");
    let part = refused(&mut world, viewer);
    assert_eq!(part.failure, OutputFailure::NotPermitted);
    assert!(asked(&mut world, node).is_empty());

    let (mut world, ..) = one_node();
    let operator = world.join(Role::OPERATOR, Uuid::from_u128(0x71f), Dialect::Native);
    world.look_away();
    read_file(&mut world, operator, ".");
    let part = refused(&mut world, operator);
    assert_eq!(
        (part.failure, &*part.file),
        (OutputFailure::NotSupported, ".")
    );
}

#[test]
fn what_an_instance_has_left_is_deleted_once_it_is_over_and_not_before() {
    let (mut world, operator, node) = with_results();
    delete(&mut world, operator, None);
    let part = refused(&mut world, operator);
    assert_eq!((part.failure, part.id), (OutputFailure::NotOver, 1));
    delete(&mut world, operator, Some(1));
    let part = refused(&mut world, operator);
    assert_eq!(part.failure, OutputFailure::NotOver);

    world.gone(node, Kind::INSTANCE_DELETED, "it");
    world.look_away();
    delete(&mut world, operator, None);
    let Message::DeleteOutput(sent) = world.told_once(node) else {
        panic!("it is sent to its node");
    };
    assert_eq!((&*sent.instance_uuid, sent.id), ("it", 1));
    answer(&mut world, node, sent.read, "deleted");
    assert!(matches!(world.told_once(operator), Message::Forward(_)));

    delete(&mut world, operator, Some(9));
    let part = refused(&mut world, operator);
    assert_eq!(part.failure, OutputFailure::NodeLost, "no such node");
    world.cut(node);
    world.look_away();
    for named in [None, Some(1)] {
        delete(&mut world, operator, named);
        let part = refused(&mut world, operator);
        assert_eq!(part.failure, OutputFailure::NodeLost);
    }
    let viewer = viewer(&mut world);
    delete(&mut world, viewer, None);
    assert!(matches!(
        world.told_once(viewer),
        Message::CommandRefused(_)
    ));
}
