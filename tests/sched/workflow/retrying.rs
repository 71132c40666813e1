//! Retries: an instance that has ended as its START says is placed again by the scheduler, so often and no more.

use std::time::Duration;

use proto_frames::payload::{EndFacts, EndWhy, PhaseName, RetryPolicy, Span, StartFailureReason};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    Capabilities, Config, Dialect, EndHow, EndReport, InstanceReport, Message, NodeExtras,
    NodeReport, Report, SessionId, StartRequest,
};

use super::ends::end;
use crate::support::durability::{LEASE, crash, durable};
use crate::support::preemption::preempting;
use crate::support::requests::Asking;
use crate::support::sending::kind_in;
use crate::support::world::{Size, World, config, id, report, request, running};

/// Beyond the fencing deadline of a lease.
const FENCED: Duration = Duration::from_secs(2 * LEASE.as_secs());

fn retried(name: &str, on: &[&str], max: u32) -> StartRequest {
    let on = on.iter().map(|word| word.parse().expect("an end"));
    let on = on.collect();
    let max = Some(max);
    request(name, 50).placed_as(|it| it.retry = Some(RetryPolicy { on, max }))
}

/// An end by itself.
fn own_end(seq: u64, name: &str, code: i64) -> EndReport {
    EndReport {
        how: EndHow::Exited,
        exit_code: Some(code),
        ..end(seq, name)
    }
}

/// The same, of which more is known.
fn own_end_with(seq: u64, name: &str, code: i64, facts: EndFacts) -> EndReport {
    EndReport {
        facts: Some(Box::new(facts)),
        ..own_end(seq, name, code)
    }
}

/// A node whose launcher has a lease, and does what STARTs say of limits and restarts.
pub(super) fn able(world: &mut World, number: u64) -> SessionId {
    able_with(world, number, Vec::new())
}

/// The same, whose first report lists these.
fn able_with(world: &mut World, number: u64, listed: Vec<InstanceReport>) -> SessionId {
    let node = world.silent_node(number);
    able_ready(world, node);
    world.ends(node, 0, Vec::new(), listed);
    node
}

/// READY of such a node.
fn able_ready(world: &mut World, node: SessionId) {
    let extras = NodeExtras {
        capabilities: Capabilities::LEASE.and(Capabilities::RUN_LIMITS),
        lease: Some(LEASE),
        ..NodeExtras::default()
    };
    let report = NodeReport {
        extras: Some(Box::new(extras)),
        ..report(Size::of_mem(100))
    };
    world.report(node, report);
}

fn with_able_node(config: Config) -> (World, SessionId, SessionId) {
    let (mut world, controller) = World::with(config).with_controller();
    let node = able(&mut world, 1);
    (world, controller, node)
}

impl World {
    /// The node lists it as running, and then it ends so.
    fn runs_and_ends(&mut self, node: SessionId, seen: u64, end: EndReport) {
        let name = end.instance.to_string();
        self.ends(node, seen, Vec::new(), vec![running(&name, 50)]);
        self.ends(node, seen, vec![end], Vec::new());
    }

    fn retries_of(&mut self, name: &str) -> Vec<u32> {
        let operator = self.operator(&[]);
        let rows = self.instances(operator).into_iter();
        let of_it = rows.filter(|row| row.instance_uuid == name);
        of_it.map(|row| row.retries).collect()
    }
}

#[test]
fn one_that_ends_with_a_status_of_its_list_is_placed_again_so_often_and_then_it_has_ended() {
    let (mut world, controller, node) = with_able_node(durable());
    world.start_as(controller, retried("a", &["75", "100-120"], 2));
    for (seen, (seq, code)) in [(1, 75), (2, 110)].into_iter().enumerate() {
        assert_eq!(world.placements(), [("a".to_owned(), node)]);
        world.runs_and_ends(node, seen as u64 + 1, own_end(seq, "a", code));
        assert_eq!(world.retries_of("a"), [seen as u32 + 1]);
    }
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
    world.runs_and_ends(node, 3, own_end(3, "a", 75));
    assert_eq!(world.placements(), [], "its retries are used up");
    assert!(world.retries_of("a").is_empty());
    assert_eq!(
        world.store.runs_of("a"),
        [(Some(75), 2)],
        "one record, of the last"
    );
}

#[test]
fn what_an_earlier_try_left_on_another_node_is_no_run_of_its_own_when_it_is_deleted() {
    let (mut world, controller, first) = with_able_node(durable());
    world.start_as(controller, retried("a", &["1"], 1));
    assert_eq!(world.placements(), [("a".to_owned(), first)]);
    let second = able(&mut world, 2);
    world.ends(first, 1, Vec::new(), vec![running("a", 50)]);
    world.status(first, Kind::MAINTENANCE);
    world.ends(first, 1, vec![own_end(1, "a", 1)], Vec::new());
    assert_eq!(world.placements(), [("a".to_owned(), second)]);
    world.runs_and_ends(second, 1, own_end(1, "a", 0));
    assert_eq!(world.store.runs_of("a"), [(Some(0), 1)]);
    world.delete(controller, "a", first);
    let removed = EndReport {
        how: EndHow::Deleted,
        ..own_end(2, "a", 1)
    };
    world.ends(first, 1, vec![removed], Vec::new());
    assert_eq!(world.store.runs_of("a"), [(Some(0), 1)]);
}

/// One with a time limit runs on a node that has a lease, is lost, and is to be started again; none is there.
fn lost_with_time_limit() -> (World, SessionId) {
    let (mut world, controller, first) = with_able_node(durable());
    let limited = request("a", 50)
        .restarting()
        .placed_as(|it| it.time_limit = Some(Span::from_ms(60_000)));
    world.start_as(controller, limited);
    assert_eq!(world.placements(), [("a".to_owned(), first)]);
    world.ends(first, 1, Vec::new(), vec![running("a", 50)]);
    world.cut(first);
    world.advance(FENCED);
    assert_eq!(world.placements(), [], "no other node is there");
    (world, controller)
}

/// Its node is back, and says that it ended there because its time was over: that is its end.
fn ended_before_it_was_lost(world: &mut World) {
    let over = EndFacts {
        why: EndWhy::TimeLimit,
        ..EndFacts::default()
    };
    let end = EndReport {
        how: EndHow::Stopped,
        ..own_end_with(1, "a", -15, over)
    };
    world.look_away();
    let first = world.silent_node(1);
    world.ends(first, 0, vec![end], Vec::new());
    able_ready(world, first);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.placements(), []);
    assert_eq!(world.store.runs_of("a"), [(Some(-15), 0)]);
}

#[test]
fn one_whose_time_was_over_on_a_lost_node_is_not_started_again() {
    let (mut world, _) = lost_with_time_limit();
    ended_before_it_was_lost(&mut world);
}

#[test]
fn one_that_had_ended_on_its_lost_node_is_not_started_again_after_others_refused_it() {
    let (mut world, _) = lost_with_time_limit();
    for number in [2, 3] {
        let other = able(&mut world, number);
        assert_eq!(world.placements(), [("a".to_owned(), other)]);
        world.start_failed(other, "a", StartFailureReason::LaunchFailure);
        assert_eq!(world.placements(), []);
    }
    ended_before_it_was_lost(&mut world);
}

#[test]
fn one_that_ends_otherwise_has_ended() {
    let (mut world, controller, node) = with_able_node(durable());
    let over = EndFacts {
        why: EndWhy::TimeLimit,
        ..EndFacts::default()
    };
    for (number, end) in [
        own_end(1, "a", 0),
        own_end(2, "a", 76),
        own_end(3, "a", 137),
        own_end_with(4, "a", -15, over.clone()),
        own_end_with(5, "a", 75, over),
    ]
    .into_iter()
    .enumerate()
    {
        world.start_as(controller, retried("a", &["75", "signal"], 3));
        assert_eq!(world.placements().len(), 1, "{end:?}");
        world.runs_and_ends(node, number as u64 + 1, end);
        assert_eq!(
            (world.placements(), world.retries_of("a")),
            (vec![], vec![])
        );
    }
}

#[test]
fn a_signal_that_no_command_sent_may_be_retried_and_events_name_it() {
    let (mut world, controller, node) = with_able_node(config());
    let operator = world.operator(&[]);
    world.start_as(controller, retried("a", &["signal"], 3));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    world.start_as(controller, request("b", 50).waiting(60));
    world.start_as(controller, request("c", 50).priority(90).waiting(60));
    world.look_away();
    // `c` comes first in the order, and takes the room.
    world.ends(node, 2, vec![own_end(1, "a", -9)], vec![running("b", 50)]);
    let rows = world.instances(operator);
    let row = rows.iter().find(|row| row.instance_uuid == "a").unwrap();
    assert_eq!((row.retries, row.life.as_str()), (1, "waiting"));
    let events = world.told(controller).into_iter();
    let mut said = events.map(|event| format!("{event:?}"));
    assert!(said.any(|event| event.contains("Retried(-9, 1, 3)")));
}

#[test]
fn an_end_so_early_that_no_report_listed_it_is_retried_as_well() {
    let (mut world, controller, node) = with_able_node(config());
    world.start_as(controller, retried("a", &["75"], 1));
    assert_eq!(world.placements().len(), 1);
    world.ends(node, 1, vec![own_end(1, "a", 75)], Vec::new());
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
    // The same end in the next report is the same end.
    world.ends(node, 2, vec![own_end(1, "a", 75)], vec![running("a", 50)]);
    assert_eq!(
        (world.placements(), world.retries_of("a")),
        (vec![], vec![1])
    );
}

#[test]
fn what_was_used_of_its_time_limit_goes_with_a_retry() {
    let (mut world, controller, node) = with_able_node(config());
    let limit = Some(Span::from_ms(60_000));
    let limited = retried("a", &["75"], 1).placed_as(|it| it.time_limit = limit);
    world.start_as(controller, limited);
    world.look_away();
    let facts = EndFacts {
        time_used_ms: Some(4200),
        ..EndFacts::default()
    };
    world.ends(node, 1, vec![own_end_with(1, "a", 75, facts)], Vec::new());
    let changes = world.told_of(node, |message| match message {
        Message::Start(start) => start.changes,
        _ => None,
    });
    let [changes] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!((changes.time_used_ms, changes.restart), (Some(4200), true));
}

#[test]
fn a_command_wins_over_a_retry() {
    let (mut world, controller, node) = with_able_node(durable());
    world.start_as(controller, retried("a", &["75", "signal"], 3));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    world.look_away();
    world.delete(controller, "a", node);
    world.ends(node, 1, vec![own_end(1, "a", 75)], Vec::new());
    assert_eq!(
        (world.placements(), world.retries_of("a")),
        (vec![], vec![])
    );
    // One that its launcher stopped is not its own end either.
    world.start_as(controller, retried("a", &["75", "signal"], 3));
    world.ends(node, 2, Vec::new(), vec![running("a", 50)]);
    world.look_away();
    world.ends(node, 2, vec![end(2, "a")], Vec::new());
    assert_eq!(
        (world.placements(), world.retries_of("a")),
        (vec![], vec![])
    );
}

#[test]
fn a_retry_is_counted_over_a_crash_of_the_scheduler() {
    let (mut world, controller, node) = with_able_node(durable());
    world.start_as(controller, retried("a", &["75"], 2));
    world.runs_and_ends(node, 1, own_end(1, "a", 75));
    world.ends(node, 2, Vec::new(), vec![running("a", 50)]);
    crash(&mut world, 1);
    world.controller();
    let node = able_with(&mut world, 1, vec![running("a", 50)]);
    assert_eq!(world.retries_of("a"), [1]);
    world.ends(node, 0, vec![own_end(2, "a", 75)], Vec::new());
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
    world.runs_and_ends(node, 1, own_end(3, "a", 75));
    assert_eq!(world.placements(), [], "its retries are used up");
    assert_eq!(world.store.runs_of("a"), [(Some(75), 2)]);
}

#[test]
fn a_lost_node_is_one_of_its_retries_and_the_last_loss_is_its_end() {
    let (mut world, controller, node) = with_able_node(config());
    world.start_as(controller, retried("a", &["node_failure"], 1));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    let other = able(&mut world, 2);
    world.look_away();
    world.cut(node);
    world.advance(FENCED);
    assert_eq!(world.placements(), [("a".to_owned(), other)]);
    world.ends(other, 1, Vec::new(), vec![running("a", 50)]);
    assert_eq!(world.retries_of("a"), [1]);
    let third = able(&mut world, 3);
    world.look_away();
    world.cut(other);
    world.advance(FENCED);
    assert_eq!(world.placements(), [], "{third:?} must not get it");
    let operator = world.operator(&[]);
    let rows = world.instances(operator);
    let row = rows.iter().find(|row| row.instance_uuid == "a").unwrap();
    assert_eq!(row.life, PhaseName::Lost.as_str());
}

#[test]
fn a_node_that_comes_back_with_it_in_time_uses_up_no_retry() {
    let (mut world, controller, node) = with_able_node(config());
    world.start_as(controller, retried("a", &["node_failure"], 1));
    let row: Vec<InstanceReport> = vec![running("a", 50)];
    world.ends(node, 1, Vec::new(), row.clone());
    world.cut(node);
    let node = able_with(&mut world, 1, row);
    assert_eq!(world.retries_of("a"), [0]);
    world.look_away();
    let cut_off = EndReport {
        how: EndHow::CutOff,
        exit_code: Some(-9),
        ..end(1, "a")
    };
    world.ends(node, 0, vec![cut_off], Vec::new());
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
    assert_eq!(world.retries_of("a"), [1]);
}

#[test]
fn original_controllers_get_what_they_know_of_an_end_that_is_followed_by_a_retry() {
    let (mut world, controller, node) = with_able_node(config());
    let original = world.join(Role::CONTROLLER, Uuid::from_u128(0xbeef), Dialect::Original);
    world.start_as(controller, retried("a", &["75"], 1));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    world.look_away();
    world.ends(node, 1, vec![own_end(1, "a", 75)], Vec::new());
    for message in world.told(original) {
        let Message::Forward(parcel) = &message else {
            panic!("{message:?}")
        };
        let kind = kind_in(parcel);
        assert!(
            [Kind::STATS, Kind::INSTANCE_STOPPED].contains(&kind),
            "{kind}"
        );
    }
}

/// A job that was told to make room, has ended by itself with status 1 before that reached it, and is retried on the same node,
/// which has not listed it yet.
fn retried_with_a_stop_under_way() -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = with_able_node(durable());
    world.configure_rules(controller, preempting());
    world.start_as(controller, retried("a", &["1"], 1));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
    world.start_as(controller, request("high", 80).priority(90));
    world.ends(node, 1, vec![own_end(1, "a", 1)], Vec::new());
    assert_eq!(world.placements(), [("high".to_owned(), node)]);
    world.runs_and_ends(node, 2, own_end(2, "high", 0));
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
    (world, controller, node)
}

/// A launcher has stopped or removed "a".
fn removed(seq: u64, exit_code: i64, told: Report) -> Report {
    Report::Numbered {
        seq,
        exit_code: Some(exit_code),
        facts: None,
        told: Box::new(told),
    }
}

#[test]
fn an_answer_to_the_stop_of_the_run_before_does_not_end_the_retry() {
    for is_numbered in [false, true] {
        let (mut world, _, node) = retried_with_a_stop_under_way();
        let told = Report::InstanceStopped(id("a"));
        let told = match is_numbered {
            false => told,
            true => removed(3, 1, told),
        };
        world.say(node, told);
        assert_eq!(world.retries_of("a"), [1], "it is still to begin");
        world.runs_and_ends(node, 3, own_end(4, "a", 0));
        assert_eq!(world.placements(), []);
        assert_eq!(exit_codes(&world, "a"), [Some(0)]);
    }
}

#[test]
fn an_answer_to_the_stop_of_the_run_before_is_no_end_where_stats_list_the_retry_beside_it() {
    let (mut world, _, node) = retried_with_a_stop_under_way();
    let before = exit_codes(&world, "a");
    let answer = EndReport {
        how: EndHow::Stopped,
        exit_code: Some(1),
        ..end(3, "a")
    };
    world.ends(node, 3, vec![answer], vec![running("a", 50)]);
    assert_eq!(exit_codes(&world, "a"), before);
    assert_eq!(world.retries_of("a"), [1], "it runs");
    world.ends(node, 3, vec![own_end(4, "a", 0)], Vec::new());
    assert_eq!(exit_codes(&world, "a"), [Some(0)]);
}

#[test]
fn a_retry_that_is_deleted_has_that_end_also_where_no_answer_to_the_stop_before_comes() {
    for is_listed in [false, true] {
        let (mut world, controller, node) = retried_with_a_stop_under_way();
        if is_listed {
            world.ends(node, 3, Vec::new(), vec![running("a", 50)]);
        }
        world.delete(controller, "a", node);
        world.say(node, removed(3, -15, Report::InstanceDeleted(id("a"))));
        assert_eq!(world.placements(), []);
        assert!(world.retries_of("a").is_empty());
        assert_eq!(exit_codes(&world, "a"), [Some(-15)], "{is_listed}");
    }
}

/// The exit status of each record of an instance.
fn exit_codes(world: &World, name: &str) -> Vec<Option<i64>> {
    let runs = world.store.runs_of(name).into_iter();
    runs.map(|it| it.0).collect()
}
