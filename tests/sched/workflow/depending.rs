//! STARTs that come after others: they wait until these have ended as they were to, and fail once that will not come.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{After, EvacuateMode, QueryKind, StartFailureReason};
use sched_core::{EndHow, EndReport, Message, SessionId, StartRequest};

use super::ends::end;
use crate::support::durability::{crash, durable};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{World, config, request, running};

/// A START of 10 MiB that comes after these, each `NAME` or `NAME:END`.
fn after(name: &str, others: &[&str]) -> StartRequest {
    let others = others.iter().map(|it| {
        let (instance, end) = it.split_once(':').unwrap_or((it, "ok"));
        After {
            instance: instance.to_owned(),
            end: end.into(),
            ..After::default()
        }
    });
    request(name, 10).placed_as(|it| it.after = others.collect())
}

fn own_end(seq: u64, name: &str, code: Option<i64>) -> EndReport {
    EndReport {
        how: EndHow::Exited,
        exit_code: code,
        ..end(seq, name)
    }
}

impl World {
    fn names_placed(&mut self) -> Vec<String> {
        let placed = self.placements().into_iter();
        placed.map(|(name, _)| name).collect()
    }

    /// What waits, as the queue is listed: names, what blocks them and why.
    fn rows_of_queue(&mut self) -> Vec<(String, String, String)> {
        let page = self.page(QueryKind::Queue, "", None, 100);
        let rows = page.instances.into_iter();
        rows.map(|row| (row.instance_uuid, row.blocked_by, row.waits_for))
            .collect()
    }

    /// The node lists these and tells this end.
    fn told_end(&mut self, node: SessionId, seen: u64, end: EndReport) {
        self.ends(node, seen, vec![end], Vec::new());
        self.advance(Duration::from_millis(1));
    }
}

#[test]
fn one_waits_in_the_queue_with_its_reason_until_what_it_comes_after_has_ended_well() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.start_as(controller, request("a", 50));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    world.start_as(controller, after("b", &["a"]));
    assert_eq!(world.names_placed(), ["a"]);
    let queued = world.queued(controller);
    assert_eq!(queued.len(), 1);
    let row = (
        "b".to_owned(),
        "after".to_owned(),
        "waits for a to end".to_owned(),
    );
    assert_eq!(world.rows_of_queue(), [row]);
    world.advance(Duration::from_secs(3600));
    assert_eq!(world.names_placed(), Vec::<String>::new());
    world.told_end(node, 1, own_end(1, "a", Some(0)));
    assert_eq!(world.names_placed(), ["b"]);
    assert_eq!(world.rows_of_queue(), []);
}

#[test]
fn what_will_not_come_ends_as_dependency_failed_with_its_name() {
    for (wanted, code, is_placed) in [
        ("a", Some(0), true),
        ("a", Some(3), false),
        ("a", Some(-9), false),
        ("a", None, false),
        ("a:any", Some(3), true),
        ("a:any", None, true),
        ("a:failed", Some(3), true),
        ("a:failed", Some(0), false),
        ("a:failed", None, false),
    ] {
        let (mut world, controller, node) = World::with(config()).with_node(100);
        world.start_as(controller, request("a", 50));
        world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
        world.start_as(controller, after("b", &[wanted]));
        world.look_away();
        world.told_end(node, 1, own_end(1, "a", code));
        let placed = world.names_placed();
        assert_eq!(placed.len(), usize::from(is_placed), "{wanted} {code:?}");
        let failed = match is_placed {
            true => Vec::new(),
            false => Vec::from(one_failure("b", StartFailureReason::DependencyFailed)),
        };
        assert_eq!(world.failures(controller), failed, "{wanted} {code:?}");
        // It had ended before: the answer is the same at once.
        world.start_as(controller, after("c", &[wanted]));
        world.advance(Duration::from_millis(1));
        assert_eq!(
            world.names_placed().len(),
            usize::from(is_placed),
            "{wanted} {code:?}"
        );
    }
}

#[test]
fn what_is_not_known_at_all_fails_at_once_and_the_failure_names_it() {
    let (mut world, controller, _) = World::with(config()).with_node(100);
    world.start_as(controller, after("b", &["nothing"]));
    let failures = world.told_of(controller, |message| match message {
        Message::StartFailure(failure) => Some(failure.payload),
        _ => None,
    });
    assert_eq!(failures.len(), 1);
    let reason = StartFailureReason::DependencyFailed;
    assert_eq!(failures[0].reason, reason);
    let detail = failures[0].detail.clone().unwrap();
    assert!(
        detail.contains("to come after nothing, of which"),
        "{detail}"
    );
}

#[test]
fn a_failure_goes_through_a_chain_and_an_end_that_was_told_by_command_is_no_success() {
    let (mut world, controller, node) = World::with(config()).with_node(100);
    world.start_as(controller, request("a", 50));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    for (name, other) in [("b", "a"), ("c", "b"), ("d", "c:any")] {
        world.start_as(controller, after(name, &[other]));
    }
    world.look_away();
    world.delete(controller, "a", node);
    let deleted = EndReport {
        how: EndHow::Deleted,
        exit_code: Some(0),
        ..end(1, "a")
    };
    world.told_end(node, 1, deleted);
    world.advance(Duration::from_millis(1));
    assert_eq!(world.names_placed(), ["d"]);
    assert_eq!(world.failures(controller).len(), 2);
}

#[test]
fn a_start_by_name_means_the_instance_of_its_tenant_that_is_or_was_called_so() {
    let (mut world, controller, node) = World::with(config()).with_node(100);
    let named = |start: StartRequest, name: &str| {
        let name = name.to_owned();
        start.placed_as(|it| it.name = name)
    };
    world.start_as(controller, named(request("a", 50), "prepare"));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    world.start_as(controller, named(after("b", &["prepare"]), "compute"));
    world.start_as(controller, after("c", &["compute", "prepare"]));
    world.look_away();
    world.told_end(node, 1, own_end(1, "a", Some(0)));
    assert_eq!(world.names_placed(), ["b"]);
    world.told_end(node, 2, own_end(2, "b", Some(0)));
    assert_eq!(world.names_placed(), ["c"]);
}

#[test]
fn a_chain_goes_on_over_a_crash_and_what_was_met_stays_met() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.start_as(controller, request("a", 20).priority(50));
    world.start_as(controller, request("x", 20).priority(50));
    let both = vec![running("a", 20), running("x", 20)];
    world.ends(node, 2, Vec::new(), both);
    world.start_as(controller, after("b", &["a", "x:any"]));
    world.start_as(controller, after("c", &["b"]));
    world.look_away();
    world.ends(
        node,
        2,
        vec![own_end(1, "x", Some(5))],
        vec![running("a", 20)],
    );
    world.advance(Duration::from_millis(1));
    crash(&mut world, 1);
    let controller = world.controller();
    let names: Vec<_> = world.rows_of_queue().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["b", "c"]);
    let node = world.node_with(1, 100);
    world.ends(node, 0, vec![own_end(2, "a", Some(0))], Vec::new());
    world.advance(Duration::from_secs(120));
    assert_eq!(world.names_placed(), ["b"]);
    world.told_end(node, 1, own_end(3, "b", Some(0)));
    assert_eq!(world.names_placed(), ["c"]);
    assert_eq!(world.failures(controller), []);
}

#[test]
fn one_that_waits_for_others_is_deleted_and_listed_as_any_other_and_its_place_is_free_again() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.start_as(controller, request("a", 50));
    world.ends(node, 1, Vec::new(), vec![running("a", 50)]);
    world.start_as(controller, after("b", &["a"]));
    world.look_away();
    world.delete(controller, "b", node);
    assert_eq!(world.rows_of_queue(), []);
    assert!(!world.store.has("b"));
    world.told_end(node, 1, own_end(1, "a", Some(0)));
    assert_eq!(world.names_placed(), Vec::<String>::new());
}

#[test]
fn one_that_waits_for_others_may_be_sent_to_a_node_and_goes_on_waiting() {
    let (mut world, controller, [a, b]) = World::with(durable()).with_nodes([100, 100]);
    world.start_as(controller, request("a", 50));
    world.ends(a, 1, Vec::new(), vec![running("a", 50)]);
    world.start_as(controller, after("b", &["a"]));
    world.look_away();
    world.migrate(controller, "b", Some(b));
    assert_eq!(world.names_placed(), Vec::<String>::new());
    assert_eq!(world.rows_of_queue().len(), 1);
    world.told_end(a, 1, own_end(1, "a", Some(0)));
    assert_eq!(world.placements(), [("b".to_owned(), b)]);
}

#[test]
fn an_own_end_on_a_node_that_is_evacuated_is_its_own() {
    let (mut world, controller, [a, _b]) = World::with(durable()).with_nodes([100, 100]);
    world.start_as(controller, request("a", 50).movable());
    world.ends(a, 1, Vec::new(), vec![running("a", 50)]);
    world.start_as(controller, after("b", &["a"]));
    world.evacuate(controller, a, EvacuateMode::default());
    world.look_away();
    world.told_end(a, 1, own_end(1, "a", Some(0)));
    assert_eq!(world.names_placed(), ["b"], "it has ended well");
}

#[test]
fn how_long_it_waits_for_room_counts_from_when_the_others_have_ended() {
    let (mut world, controller, node) = World::with(config()).with_node(100);
    world.start_as(controller, request("a", 100));
    world.ends(node, 1, Vec::new(), vec![running("a", 100)]);
    world.start_as(controller, after("b", &["a"]).waiting(60));
    world.start_as(controller, request("c", 100).priority(90).waiting(7200));
    world.advance(Duration::from_secs(3600));
    world.look_away();
    world.told_end(node, 1, own_end(1, "a", Some(0)));
    assert_eq!(world.names_placed(), ["c"]);
    world.ends(node, 2, Vec::new(), vec![running("c", 100)]);
    world.advance(Duration::from_secs(59));
    assert_eq!(world.failures(controller), []);
    world.advance(Duration::from_secs(1));
    let late = one_failure("b", StartFailureReason::QueueTimeout);
    assert_eq!(world.failures(controller), late);
}

#[test]
fn one_of_a_batch_does_not_come_after_others() {
    let (mut world, controller, _) = World::with(config()).with_node(100);
    world.start_as(controller, after("b", &["a"]).of_batch("x", 2));
    let refused = one_failure("b", StartFailureReason::InvalidData);
    assert_eq!(world.failures(controller), refused);
}

#[test]
fn an_original_launcher_tells_of_an_end_and_not_how_so_that_only_any_is_met() {
    let (mut world, controller, node) = World::with(config()).with_node(100);
    world.place(controller, "a", 50);
    world.stats(node, vec![running("a", 50)]);
    world.start_as(controller, after("b", &["a"]));
    world.start_as(controller, after("c", &["a:any"]));
    world.look_away();
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    world.advance(Duration::from_millis(1));
    assert_eq!(world.names_placed(), ["c"]);
    let failed = one_failure("b", StartFailureReason::DependencyFailed);
    assert_eq!(world.failures(controller), failed);
}
