//! What people see of instances that are managed: where they are or why they are nowhere, the queue in its order, and
//! what became of each.

use std::collections::BTreeSet;
use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{
    HistoryRow, InstanceView, PlacementState, Query, QueryKind, QueryResult, Scheduling,
    StartFailureReason,
};
use sched_core::{
    Capabilities, Command, IN_DOUBT_TIME, Message, NodeExtras, Report, SessionId, StartRequest,
    TenantId, Workload,
};

use crate::support::durability::{LEASE, crash, durable};
use crate::support::preemption::{cpus, frozen};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::words::asking;
use crate::support::world::{World, config, id, request, running};

impl World {
    /// One page of the answer to a query.
    pub(crate) fn page(
        &mut self,
        what: QueryKind,
        matching: &str,
        after: Option<String>,
        limit: u32,
    ) -> QueryResult {
        let operator = self.operator(&[]);
        self.look_away();
        let query = Query {
            what,
            after,
            matching: Some(matching.to_owned()),
            limit: Some(limit),
            ..Query::default()
        };
        self.say(operator, Command::Query(Box::new(query)));
        let answer = self.told_once(operator);
        self.cut(operator);
        match answer {
            Message::QueryResult(result) => result.payload,
            other => panic!("{other:?}"),
        }
    }

    /// All instances that match, in one page.
    pub(crate) fn seen(&mut self, matching: &str) -> Vec<InstanceView> {
        let page = self.page(QueryKind::Instances, matching, None, 1000);
        assert_eq!((page.next, page.error), (None, None));
        page.instances
    }

    /// All instances that have ended and match, in one page.
    pub(crate) fn ended(&mut self, matching: &str) -> Vec<InstanceView> {
        let page = self.page(QueryKind::Ended, matching, None, 1000);
        assert_eq!((page.next, page.error), (None, None));
        page.instances
    }

    /// What became of an instance.
    pub(crate) fn history_of(&mut self, name: &str) -> Vec<HistoryRow> {
        self.history(name)
    }

    fn history(&mut self, name: &str) -> Vec<HistoryRow> {
        let page = self.page(QueryKind::History, name, None, 1000);
        assert_eq!((page.next, page.error), (None, None));
        page.history
    }

    /// A cluster of one node of 100 MiB, full with `a`.
    fn full(&mut self) -> (SessionId, SessionId) {
        let controller = self.controller();
        let node = self.node_with(1, 100);
        self.start_as(controller, request("a", 100).waiting(60).priority(50));
        self.stats(node, vec![running("a", 100)]);
        self.look_away();
        (controller, node)
    }
}

fn names(rows: &[InstanceView]) -> Vec<&str> {
    rows.iter().map(|row| row.instance_uuid.as_str()).collect()
}

#[test]
fn who_waits_is_listed_with_its_place_its_time_and_the_reason() {
    let mut world = World::new();
    let (controller, _) = world.full();
    world.start_as(controller, request("b", 10).waiting(60).priority(40));
    world.start_as(controller, request("c", 20).waiting(60).priority(60));
    world.advance(Duration::from_secs(20));

    let rows = world.seen("");
    assert_eq!(names(&rows), ["b", "c", "a"]);
    let (waits, runs) = (&rows[0], &rows[2]);
    assert_eq!(waits.state, PlacementState::Waiting);
    assert_eq!(
        (&*waits.node_uuid, &*waits.hostname, &*waits.life),
        ("", "", "waiting")
    );
    assert_eq!(
        (waits.mem_mb, waits.age_s, waits.priority),
        (10, 20, Some(40))
    );
    assert_eq!((waits.attempts, waits.position), (Some(0), Some(2)));
    assert_eq!(waits.deadline_ms, Some(40_000));
    assert!(waits.waits_for.contains("memory"), "{}", waits.waits_for);
    assert_eq!(rows[1].position, Some(1));
    assert_eq!(
        (runs.state.clone(), &*runs.life),
        (PlacementState::Running, "running")
    );
    assert_eq!(
        (runs.attempts, runs.position, runs.deadline_ms),
        (Some(1), None, None)
    );
    assert_eq!(runs.waits_for, "");

    assert_eq!(names(&world.seen("b")), ["b"], "by its whole name");
    assert_eq!(world.seen("d"), []);
}

#[test]
fn a_plain_instance_shows_nothing_of_a_life() {
    let (mut world, controller, node) = World::new().with_node(100);
    assert_eq!(world.place(controller, "a", 1), Some(node));
    let row = world.seen("a").remove(0);
    let plain = InstanceView {
        instance_uuid: row.instance_uuid.clone(),
        node_uuid: row.node_uuid.clone(),
        hostname: row.hostname.clone(),
        state: PlacementState::Placed,
        mem_mb: 1,
        vcpus: 0,
        disk_mb: 0,
        mem_used_mb: 0,
        disk_used_mb: 0,
        age_s: 0,
        ..InstanceView::default()
    };
    assert_eq!(row, plain);
}

#[test]
fn the_queue_is_shown_in_its_order_page_by_page() {
    let mut world = World::new();
    let (controller, _) = world.full();
    for at in 0..7 {
        let name = format!("w{at}");
        world.start_as(
            controller,
            request(&name, 10)
                .waiting(60)
                .priority(if at == 5 { 90 } else { 10 }),
        );
    }
    let (mut seen, mut after) = (Vec::new(), None);
    for _ in 0..3 {
        let page = world.page(QueryKind::Queue, "", after.take(), 3);
        seen.extend(page.instances);
        after = page.next;
    }
    assert_eq!(after, None);
    assert_eq!(names(&seen), ["w5", "w0", "w1", "w2", "w3", "w4", "w6"]);
    let positions: Vec<_> = seen.iter().filter_map(|row| row.position).collect();
    assert_eq!(positions, [1, 2, 3, 4, 5, 6, 7]);
    let matching = world.page(QueryKind::Queue, "w6", None, 3).instances;
    assert_eq!(
        matching[0].position,
        Some(7),
        "of all, not of those that match"
    );
}

#[test]
fn no_page_passes_over_who_stays_while_others_leave() {
    let (mut world, controller, node) = World::new().with_node(100_000);
    let placed: Vec<String> = (0..40).map(|at| format!("p{at:02}")).collect();
    for name in &placed {
        world.start(controller, name, 1);
    }
    for at in 0..40 {
        world.start_as(
            controller,
            request(&format!("w{at:02}"), 99_970)
                .waiting(60)
                .priority(50),
        );
    }
    let (mut seen, mut after, mut leaving) = (BTreeSet::new(), None, 0..40);
    loop {
        let page = world.page(QueryKind::Instances, "", after.take(), 3);
        seen.extend(page.instances.into_iter().map(|row| row.instance_uuid));
        after = page.next;
        if after.is_none() {
            break;
        }
        // Every other one leaves while the pages are read.
        if let Some(at) = leaving.next().filter(|at| at % 2 == 0) {
            world.gone(node, Kind::INSTANCE_DELETED, &format!("p{at:02}"));
            world.delete(controller, &format!("w{at:02}"), node);
        }
    }
    for at in (1..40).step_by(2) {
        assert!(seen.contains(&format!("p{at:02}")), "p{at:02}");
        assert!(seen.contains(&format!("w{at:02}")), "w{at:02}");
    }
}

#[test]
fn a_cursor_that_no_page_gave_is_answered_with_an_error() {
    let mut world = World::new();
    for what in [
        QueryKind::Instances,
        QueryKind::Queue,
        QueryKind::Nodes,
        QueryKind::History,
    ] {
        let page = world.page(what.clone(), "a", Some("nonsense".to_owned()), 10);
        let error = page.error.unwrap_or_default();
        assert!(error.contains("'nonsense'"), "{what}: {error}");
    }
}

#[test]
fn a_history_tells_every_turn_with_its_time_and_outlives_the_instance() {
    let mut world = World::with(sched_core::Config {
        start_unix_ms: 1_000_000,
        ..config()
    });
    let (controller, node) = world.full();
    world.start_as(controller, request("b", 100).waiting(60).priority(50));
    world.advance(Duration::from_secs(2));
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    world.stats(node, vec![running("b", 100)]);
    world.advance(Duration::from_secs(3));
    world.gone(node, Kind::INSTANCE_DELETED, "b");

    let rows = world.history("b");
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.at_ms, row.what.as_str()))
        .collect();
    let expected = [
        (1_000_000, "waiting"),
        (1_002_000, "placing"),
        (1_002_000, "running"),
        (1_005_000, "gone"),
    ];
    assert_eq!(told, expected);
    assert!(rows[0].detail.contains("memory"), "{}", rows[0].detail);
    assert_eq!(rows[0].node_uuid, "");
    assert_eq!(rows[1].node_uuid, world.uuid_of(node).to_string());
}

#[test]
fn the_history_of_a_plain_instance_is_what_its_entry_says() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place(controller, "a", 1);
    assert_eq!(world.history("a")[0].what, "placed");
    world.stats(node, vec![running("a", 1)]);
    let rows = world.history("a");
    assert_eq!((rows.len(), rows[0].what.as_str()), (1, "running"));
    assert_eq!(rows[0].node_uuid, world.uuid_of(node).to_string());
    let unknown = world.page(QueryKind::History, "b", None, 10);
    assert!(unknown.error.is_some_and(|error| error.contains("'b'")));
}

#[test]
fn failed_tries_are_counted_with_the_one_being_made() {
    let (mut world, controller) = World::new().with_controller();
    let nodes = [world.node_with(1, 100), world.node_with(2, 100)];
    let scheduling = Scheduling {
        attempts: Some(2),
        ..Scheduling::default()
    };
    let first = world.place_as(controller, asking("a", 1, scheduling));
    assert_eq!(world.seen("a")[0].attempts, Some(1));
    let first = first.expect("there is room");
    world.start_failed(first, "a", StartFailureReason::LaunchFailure);
    let row = world.seen("a").remove(0);
    assert_eq!((row.attempts, &*row.life), (Some(2), "placing"));
    let second = nodes.into_iter().find(|&node| node != first);
    let second = second.map(|node| world.uuid_of(node).to_string());
    assert_eq!(Some(row.node_uuid), second);
}

#[test]
fn the_node_that_it_was_lost_with_stays_among_those_that_it_was_tried_on() {
    let one = [request("a", 10).movable()];
    let (mut world, _, node) = World::with(durable()).with_running(one);
    let shown = |world: &mut World| {
        let row = world.seen("a").remove(0);
        (row.attempts, row.life)
    };
    assert_eq!(shown(&mut world), (Some(1), "running".to_owned()));
    world.cut(node);
    assert_eq!(shown(&mut world).0, Some(1), "it may come back");
    world.advance(IN_DOUBT_TIME + Duration::from_secs(1));
    assert_eq!(shown(&mut world), (Some(1), "lost".to_owned()));
    crash(&mut world, 1);
    assert_eq!(shown(&mut world), (Some(1), "lost".to_owned()));
    // What waits has been tried on none since it last ran.
    let (mut world, _, node) = World::new().with_leased("a");
    world.lose(node);
    world.advance(2 * LEASE);
    assert_eq!(shown(&mut world), (Some(0), "waiting".to_owned()));
}

#[test]
fn a_node_shows_what_its_launcher_can_do_and_its_lease() {
    let mut world = World::new();
    let node = world.silent_node(1);
    world.ready_with(
        node,
        NodeExtras {
            capabilities: Capabilities::SUSPEND.and(Capabilities::LEASE),
            lease: Some(Duration::from_secs(30)),
            ..NodeExtras::default()
        },
    );
    let operator = world.operator(&[]);
    let row = world.nodes(operator).remove(0);
    assert_eq!(row.capabilities, ["suspend", "lease"]);
    assert_eq!(row.lease_ms, Some(30_000));
}

#[test]
fn a_suspended_instance_does_not_wait_for_a_preemptor_that_is_gone() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    world.suspended(node, "low");
    world.stats(node, vec![frozen("low"), running("high", 0)]);
    let why = world.seen("low").remove(0).waits_for;
    assert!(why.contains("high"), "{why}");
    world.start_as(controller, cpus("next", 4, 90).waiting(600));
    world.stopped(node, "high");
    let low = world.seen("low").remove(0);
    assert_eq!(&*low.life, "suspended");
    assert!(
        low.waits_for.ends_with("is gone") && !low.waits_for.contains("high"),
        "{}",
        low.waits_for
    );
}

#[test]
fn a_name_is_that_of_one_living_instance_of_a_tenant() {
    let called = |instance: &str, tenant: &str| {
        let mut request = request(instance, 10).placed_as(|asked| asked.name = "web".into());
        request.tenant = Some(TenantId::new(tenant));
        request
    };
    let (mut world, controller) = World::new().with_controller();
    let node = world.node_with(1, 1000);
    world.look_away();
    world.start_as(controller, called("a", "one"));
    world.start_as(controller, called("b", "two"));
    world.stats(node, vec![running("a", 0), running("b", 0)]);
    assert_eq!(world.failures(controller).len(), 0);
    world.start_as(controller, called("c", "one"));
    let failed = one_failure("c", StartFailureReason::InvalidData);
    assert_eq!(world.failures(controller), failed);
    let rows = world.seen("web");
    let mut both = names(&rows);
    both.sort_unstable();
    assert_eq!(both, ["a", "b"]);
    assert_eq!(world.seen("a")[0].name, "web");

    world.stopped(node, "a");
    world.start_as(controller, called("c", "one"));
    assert_eq!(world.failures(controller).len(), 0);
    // A launcher that says of another that it is called so is not believed, nor of what it does not have.
    let says = |instance: &str| Workload {
        instance: id(instance),
        name: "web".into(),
        tenant: Some(TenantId::new("two")),
        program: "sleep 9".into(),
        age: Duration::from_secs(60),
    };
    world.start_as(controller, request("d", 10));
    world.stats(
        node,
        vec![running("b", 0), running("c", 0), running("d", 0)],
    );
    world.say(node, Report::Workloads(vec![says("d"), says("elsewhere")]));
    let d = world.seen("d").remove(0);
    assert_eq!((&*d.name, &*d.program), ("", "sleep 9"));
    assert!(d.age_s >= 60);
    assert_eq!(names(&world.seen("web")).len(), 2);
}

/// A START that asks for the name "web".
fn web(instance: &str, mem: i64) -> StartRequest {
    request(instance, mem).placed_as(|asked| asked.name = "web".into())
}

#[test]
fn a_start_that_waits_for_nodes_to_come_back_holds_its_name() {
    let mut world = World::expecting(2);
    let controller = world.controller();
    world.start_as(controller, web("a", 10));
    world.start_as(controller, web("b", 10));
    let failed = one_failure("b", StartFailureReason::InvalidData);
    assert_eq!(world.failures(controller), failed);
    let node = world.node_with(1, 100);
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
}

#[test]
fn a_start_that_waits_for_its_batch_holds_its_name() {
    let (mut world, controller) = World::new().with_controller();
    let of_batch = |instance: &str| web(instance, 10).of_batch("b1", 2);
    world.start_as(controller, of_batch("a"));
    for other in [of_batch("b"), web("c", 10)] {
        let name = other.instance.to_string();
        world.start_as(controller, other);
        let failed = one_failure(&name, StartFailureReason::InvalidData);
        assert_eq!(world.failures(controller), failed);
    }
}
