//! Jobs that finish: an end by itself is final in every state, and the end of an earlier run never becomes the outcome.

use std::time::Duration;

use bytes::Bytes;
use proto_frames::payload::{CommandFailureReason, Topic};
use proto_frames::{Kind, Uuid};
use sched_core::{
    Command, EndHow, EndReport, EndsReport, IN_DOUBT_TIME, LauncherCommand, Message, Report,
    SessionId, StatsReport, Target,
};

use crate::support::durability::{LEASE, crash, durable, leased, leased_ready};
use crate::support::preemption::sized;
use crate::support::requests::Asking;
use crate::support::sending::{gone, kind_in, parcel};
use crate::support::world::{World, config, id, node_uuid, request, running};

impl World {
    /// A launcher says that an instance has ended by itself.
    fn finishes(&mut self, node: SessionId, name: &str) {
        self.say(node, Report::InstanceExited(id(name)));
    }

    /// The first STATS of a launcher that is back: nothing runs, and this ended so long ago.
    fn returns_with(&mut self, node: SessionId, name: &str, (how, code): (EndHow, i64), ago: u64) {
        let end = EndReport {
            seq: 1,
            instance: id(name),
            how,
            exit_code: Some(code),
            ago: Some(Duration::from_secs(ago)),
            parcel: parcel(Kind::INSTANCE_STOPPED, self.uuid_of(node), Bytes::new()),
            facts: None,
        };
        let report = StatsReport {
            is_plain: true,
            node: self.uuid_of(node).to_string().into(),
            starts_seen: Some(0),
            ends: Some(Box::new(EndsReport {
                incarnation: Uuid::from_u128(0xc0),
                seq: 1,
                ended: vec![end],
            })),
            ..StatsReport::default()
        };
        self.say(node, Report::Stats(Box::new(report)));
    }

    /// The codes, run numbers and whether a later run has begun, of all ended runs of an instance.
    fn outcomes(&mut self, name: &str) -> Vec<(Option<i64>, Option<i64>, bool)> {
        let runs = self.ended(name).into_iter();
        runs.map(|it| (it.exit_code, it.run, it.earlier)).collect()
    }

    /// It is over: it exists nowhere, and no node is given it.
    fn is_finished(&mut self, name: &str) {
        self.advance(Duration::from_secs(3600));
        assert!(self.placements().is_empty());
        assert!(self.seen(name).is_empty());
        assert_eq!(self.ended(name).len(), 1);
    }
}

#[test]
fn a_job_that_ends_by_itself_while_it_is_to_move_is_over() {
    let (mut world, controller, source, target) = World::with_moving();
    world.finishes(source, "a");
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::WrongState);
    assert_eq!(world.place(controller, "b", 1000), Some(source));
    assert_eq!(world.place(controller, "c", 1000), Some(target));
    world.is_finished("a");
}

#[test]
fn a_plain_job_that_ended_while_its_launcher_was_away_ended_then() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, request("a", 10));
    world.stats(node, vec![running("a", 1)]);
    world.cut(node);
    world.advance(Duration::from_secs(8));
    let node = world.node_with(1, 100);
    world.returns_with(node, "a", (EndHow::Exited, 3), 5);
    world.advance(Duration::from_secs(10));
    assert_eq!(world.ended("a")[0].age_s, 15);
}

#[test]
fn a_job_that_is_stopped_while_it_is_to_move_goes_on_elsewhere() {
    let (mut world, _, source, target) = World::with_moving();
    world.has_stopped(source, "a");
    assert_eq!(world.given(target).request.instance, id("a"));
}

#[test]
fn a_job_that_ends_by_itself_after_its_target_was_lost_is_over() {
    let (mut world, controller, source, target) = World::with_moving();
    world.lose(target);
    world.look_away();
    world.finishes(source, "a");
    let failure = world.failed_command(controller);
    assert_eq!(failure.reason, CommandFailureReason::WrongState);
    world.is_finished("a");
}

#[test]
fn a_victim_that_ends_by_itself_is_over_and_its_preemptor_has_the_room() {
    let mut world = World::with_preemption();
    let (controller, node) = (world.controller(), world.node_with(1, 100));
    let victim = sized("low", 100, 10).movable().waiting(600);
    world.run_on(controller, node, vec![victim]);
    world.start_as(controller, sized("high", 100, 90));
    assert_eq!(world.stops(node), ["low"]);
    world.finishes(node, "low");
    assert_eq!(world.placements(), [("high".to_owned(), node)]);
    world.list(node, &["high"]);
    world.gone(node, Kind::INSTANCE_STOPPED, "high");
    world.is_finished("low");
}

#[test]
fn a_job_that_was_to_move_and_runs_on_after_its_node_was_lost_is_over_when_it_ends() {
    for told in [true, false] {
        let (mut world, _, source, target) = World::with_moving();
        world.lose(source);
        let source = world.node_with(1, 1000);
        world.list(source, &["a"]);
        world.look_away();
        if told {
            world.finishes(source, "a");
            assert!(world.told(target).is_empty());
            world.is_finished("a");
        } else {
            // An original launcher, or one of an earlier version, cannot tell: it may have been the stop.
            world.has_stopped(source, "a");
            assert_eq!(world.placements().len(), 1);
        }
    }
}

#[test]
fn a_job_that_ended_by_itself_while_its_node_was_away_is_over() {
    let (mut world, _, source, _) = World::with_moving();
    world.lose(source);
    world.look_away();
    let source = world.node_with(1, 1000);
    world.returns_with(source, "a", (EndHow::Exited, 0), 5);
    world.is_finished("a");
    assert_eq!(world.outcomes("a"), [(Some(0), Some(1), false)]);
}

#[test]
fn a_job_that_waits_to_be_started_again_is_over_if_it_had_ended_by_itself() {
    let (mut world, _, node) = World::new().with_leased("a");
    world.lose(node);
    world.advance(2 * LEASE);
    assert_eq!(world.seen("a")[0].life, "waiting");
    let node = world.silent_node(1);
    world.returns_with(node, "a", (EndHow::Exited, 0), 70);
    world.is_finished("a");
    assert_eq!(world.outcomes("a"), [(Some(0), Some(1), false)]);
}

#[test]
fn a_job_whose_next_run_is_claimed_and_not_given_is_over_if_it_had_ended_by_itself() {
    let (mut world, _, node) = World::with(durable()).with_leased("a");
    world.lose(node);
    world.advance(2 * LEASE);
    let other = leased(&mut world, 2, 100);
    world.store.be_slow();
    let node = world.silent_node(1);
    world.look_away();
    world.returns_with(node, "a", (EndHow::Exited, 3), 70);
    world.store.be_fast();
    assert!(
        world
            .told(other)
            .iter()
            .all(|it| !matches!(it, Message::Start(_)))
    );
}

#[test]
fn the_end_of_an_earlier_run_does_not_replace_the_outcome() {
    let (mut world, _, node) = World::with(durable()).with_leased("a");
    world.lose(node);
    world.advance(2 * LEASE);
    let other = leased(&mut world, 2, 100);
    assert_eq!(world.placements(), [("a".to_owned(), other)]);
    world.stats_seen(other, Some(1), vec![running("a", 1)]);
    world.returns_with(other, "a", (EndHow::Exited, 0), 0);
    let operator = world.operator(&[Topic::Instances]);
    world.look_away();
    let node = world.silent_node(1);
    world.returns_with(node, "a", (EndHow::CutOff, -9), 80);
    let told = world.told(operator);
    assert!(told.is_empty(), "watchers know the outcome: {told:?}");
    for _ in 0..2 {
        let outcomes = [(Some(0), Some(2), false), (Some(-9), Some(1), true)];
        assert_eq!(world.outcomes("a"), outcomes);
        let ended: Vec<_> = world.ended("a").iter().map(|it| it.ended_at_ms).collect();
        assert!(ended[1] < ended[0], "each at its own time: {ended:?}");
        let now = world.now;
        let row = world
            .scheduler
            .instance(now, &id("a"))
            .expect("it is known");
        assert_eq!(row.exit_code, Some(0));
        world.crash(config(), Default::default());
    }
}

#[test]
fn the_end_of_an_earlier_run_is_listed_while_the_later_one_goes_on() {
    let (mut world, _, node) = World::new().with_leased("a");
    world.lose(node);
    world.advance(2 * LEASE);
    let other = leased(&mut world, 2, 100);
    world.stats_seen(other, Some(1), vec![running("a", 1)]);
    let node = world.silent_node(1);
    world.returns_with(node, "a", (EndHow::CutOff, -9), 80);
    assert_eq!(world.seen("a")[0].life, "running");
    assert_eq!(world.outcomes("a"), [(Some(-9), Some(1), true)]);
    world.returns_with(other, "a", (EndHow::Exited, 0), 0);
    let outcomes = [(Some(-9), Some(1), true), (Some(0), Some(2), false)];
    assert_eq!(world.outcomes("a"), outcomes);
}

#[test]
fn each_row_of_a_history_says_which_run_it_is_of_and_the_oldest_comes_first() {
    let (mut world, _, node) = World::with(durable()).with_leased("a");
    world.lose(node);
    world.advance(2 * LEASE);
    let other = leased(&mut world, 2, 100);
    world.advance(Duration::from_secs(1));
    world.stats_seen(other, Some(1), vec![running("a", 1)]);
    world.advance(Duration::from_secs(1));
    let node = world.silent_node(1);
    world.returns_with(node, "a", (EndHow::CutOff, -9), 80);
    let (first, second) = (node_uuid(1).to_string(), node_uuid(2).to_string());
    for crashes in 0..2 {
        let rows = world.history_of("a");
        assert!(rows.is_sorted_by_key(|row| row.at_ms), "{rows:?}");
        for row in &rows {
            let run = match row.node_uuid.as_str() {
                // It was lost with the first, and waited for the second.
                "" => (row.what == "lost").then_some(1),
                node if node == first => Some(1),
                node if node == second => Some(2),
                other => panic!("it was never on {other}"),
            };
            assert_eq!(row.run, run, "{row:?}");
        }
        let shown = |what: &str, run| rows.iter().any(|it| it.what == what && it.run == Some(run));
        for what in ["placing", "running"] {
            assert!(shown(what, 1) && shown(what, 2), "{what}: {rows:?}");
        }
        assert!(shown("lost", 1) && shown("gone", 1), "{rows:?}");
        assert!(crashes == 1 || !shown("lost", 2), "{rows:?}");
        crash(&mut world, 2);
    }
}

#[test]
fn the_end_of_a_run_that_was_given_up_becomes_known_when_its_node_is_back() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.run_movable(controller, node, request("a", 50).movable(), &["a"]);
    world.lose(node);
    world.advance(Duration::from_secs(7200));
    assert_eq!(world.outcomes("a"), [(None, Some(1), false)]);
    let node = world.silent_node(1);
    world.returns_with(node, "a", (EndHow::Exited, 4), 100);
    assert_eq!(world.outcomes("a"), [(Some(4), Some(1), false)]);
}

#[test]
fn a_plain_instance_that_was_started_elsewhere_has_the_outcome_of_its_last_run() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place(controller, "a", 50);
    world.list(node, &["a"]);
    world.lose(node);
    world.advance(Duration::from_secs(7200));
    let other = world.node_with(2, 100);
    assert_eq!(world.place(controller, "a", 50), Some(other));
    world.list(other, &["a"]);
    world.advance(Duration::from_secs(10));
    world.returns_with(other, "a", (EndHow::Exited, 0), 1);
    let node = world.silent_node(1);
    world.returns_with(node, "a", (EndHow::Exited, 5), 3600);
    let last = world.outcomes("a").into_iter().rfind(|it| !it.2);
    assert_eq!(last.map(|it| it.0), Some(Some(0)));
}

#[test]
fn a_stop_that_a_returning_launcher_has_not_carried_out_is_sent_again() {
    let (mut world, _, source, target) = World::with_moving();
    world.cut(source);
    let source = world.node_with(1, 1000);
    world.list(source, &["a"]);
    assert_eq!(world.stops(source), ["a"]);
    world.list(source, &["a"]);
    assert!(world.stops(source).is_empty(), "once for each connection");
    world.has_stopped(source, "a");
    assert_eq!(world.given(target).request.instance, id("a"));
}

#[test]
fn a_deletion_that_a_returning_launcher_has_not_carried_out_is_sent_again() {
    let (mut world, controller, source, _) = World::with_movable();
    world.delete(controller, "a", source);
    world.cut(source);
    let source = world.node_with(1, 1000);
    world.list(source, &["a"]);
    let ordered = world.ordered(source);
    let [LauncherCommand::Stop(delete)] = &ordered[..] else {
        panic!("{ordered:?}");
    };
    assert!(!delete.stop, "nothing of it is to be kept");
    world.look_away();
    world.gone(source, Kind::INSTANCE_DELETED, "a");
    let told = world.told(controller);
    let kinds = told.iter().filter_map(|it| match it {
        Message::Forward(parcel) => Some(kind_in(parcel)),
        _ => None,
    });
    assert!(kinds.into_iter().any(|kind| kind == Kind::INSTANCE_DELETED));
}

#[test]
fn a_node_that_is_back_is_not_given_the_next_run_before_it_has_said_what_ended_there() {
    for (how, code) in [(EndHow::Exited, 0), (EndHow::CutOff, -9)] {
        let (mut world, _, node) = World::new().with_leased("a");
        world.lose(node);
        world.advance(2 * LEASE);
        assert_eq!(world.seen("a")[0].life, "waiting");
        let node = world.silent_node(1);
        leased_ready(&mut world, node, 100);
        assert_eq!(world.placements(), []);
        world.returns_with(node, "a", (how, code), 70);
        if code == 0 {
            world.is_finished("a");
            assert_eq!(world.outcomes("a"), [(Some(0), Some(1), false)]);
        } else {
            assert_eq!(world.placements(), [("a".to_owned(), node)]);
        }
    }
}

/// The DELETEs that a node was sent by the scheduler itself since the test last looked: whether they leave something.
fn deletes(world: &mut World, node: SessionId) -> Vec<(String, bool)> {
    let ordered = world.ordered(node).into_iter();
    let deletes = ordered.map(|order| match order {
        LauncherCommand::Stop(delete) => (delete.instance_uuid, delete.stop),
        other => panic!("{other:?}"),
    });
    deletes.collect()
}

/// A plain instance on node 1 of which a DELETE was written, and not carried out, when the connection ended.
fn with_lost_delete(command: impl Fn(Target) -> Command) -> (World, SessionId) {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.place(controller, "a", 50);
    world.list(node, &["a"]);
    let target = Target {
        instance: id("a"),
        node: node_uuid(1).to_string().into(),
    };
    world.say(controller, command(target));
    world.cut(node);
    (world, controller)
}

#[test]
fn a_delete_of_a_plain_instance_that_was_lost_is_sent_again_once_its_launcher_is_back_with_it() {
    let commands: [fn(Target) -> Command; 2] = [Command::Delete, Command::Stop];
    for (command, leaves) in commands.into_iter().zip([false, true]) {
        for away in [Duration::ZERO, 2 * IN_DOUBT_TIME] {
            let (mut world, _) = with_lost_delete(command);
            world.advance(away);
            let node = world.node_with(1, 100);
            world.list(node, &["a"]);
            assert_eq!(deletes(&mut world, node), [("a".to_owned(), leaves)]);
            world.list(node, &["a"]);
            assert_eq!(deletes(&mut world, node), [], "once for each connection");
            world.cut(node);
            let node = world.node_with(1, 100);
            world.list(node, &[]);
            assert_eq!(deletes(&mut world, node), [], "it is not there any more");
        }
    }
}

#[test]
fn nor_does_a_crash_of_the_scheduler_forget_it_once_the_node_is_given_up() {
    let (mut world, _) = with_lost_delete(Command::Delete);
    world.advance(2 * IN_DOUBT_TIME);
    crash(&mut world, 1);
    let node = world.node_with(1, 100);
    world.list(node, &["a"]);
    assert_eq!(deletes(&mut world, node), [("a".to_owned(), false)]);
}

#[test]
fn a_lost_delete_does_not_end_what_was_started_again_after_it() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place(controller, "a", 50);
    world.list(node, &["a"]);
    world.delete(controller, "a", node);
    assert_eq!(world.place(controller, "a", 50), Some(node));
    world.cut(node);
    let node = world.node_with(1, 100);
    world.list(node, &["a"]);
    assert_eq!(deletes(&mut world, node), []);
}

#[test]
fn what_is_deleted_of_an_earlier_run_is_no_run_of_its_own() {
    for kind in [Kind::INSTANCE_STOPPED, Kind::INSTANCE_DELETED] {
        let (mut world, controller, first) = World::new().with_node(100);
        let ends = |world: &mut World, node, (seq, code), told| {
            let report = Report::Numbered {
                seq,
                exit_code: Some(code),
                facts: None,
                told: Box::new(told),
            };
            world.say(node, report);
        };
        world.start_as(controller, request("a", 10).waiting(60));
        world.stats(first, vec![running("a", 1)]);
        ends(&mut world, first, (1, -15), Report::InstanceExited(id("a")));
        world.cut(first);
        let second = world.node_with(2, 100);
        world.look_away();
        world.start_as(controller, request("a", 10).waiting(60));
        assert_eq!(world.placements(), [("a".to_owned(), second)]);
        world.stats(second, vec![running("a", 1)]);
        ends(&mut world, second, (1, 1), Report::InstanceExited(id("a")));
        let expected = [(Some(-15), Some(1), true), (Some(1), Some(2), false)];
        assert_eq!(world.outcomes("a"), expected);
        // What the first run has left is deleted there.
        let first = world.node_with(1, 100);
        world.delete(controller, "a", first);
        ends(&mut world, first, (2, -15), gone(kind, id("a")));
        assert_eq!(world.outcomes("a"), expected, "{kind}");
        // Nor with another exit status: no START has left since the second run ended.
        ends(&mut world, first, (3, 7), gone(kind, id("a")));
        assert_eq!(world.outcomes("a"), expected, "{kind}");
    }
}
