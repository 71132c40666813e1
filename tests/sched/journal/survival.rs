//! What outlives the scheduler, a node, and a connection.

use std::time::Duration;

use proto_frames::payload::{
    InstanceView, PlacementState, QueryKind, ReportReceived, Scheduling, StartFailureReason,
};
use proto_frames::{Kind, Role};
use sched_core::{
    Action, Capabilities, Config, Dialect, IN_DOUBT_TIME, Input, Message, NodeExtras, Report,
    SessionId, StatsReport, Workload,
};

use crate::support::durability::{LEASE, crash, durable, leased, leased_ready};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::words::asking;
use crate::support::world::{World, config, id, node_uuid, request, running};

#[test]
fn a_start_is_acknowledged_as_queued_once_it_is_on_disk() {
    let (mut world, controller, _) = World::with(durable()).with_full_node();
    world.store.be_slow();
    world.start_as(controller, request("b", 50).waiting(30));
    assert_eq!(world.queued(controller).len(), 0);
    world.store.commit();
    world.handle(Input::Tick);
    assert_eq!(world.queued(controller).len(), 1);
}

#[test]
fn a_plain_start_puts_nothing_on_disk_and_does_not_wait_for_it() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.store.be_slow();
    assert_eq!(world.place(controller, "a", 50), Some(node));
    world.store.commit();
    assert_eq!(world.store.len(), 0);
}

#[test]
fn a_start_that_has_room_at_once_is_not_waited_for_and_a_crash_forgets_what_it_said_of_later() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.store.be_slow();
    let scheduling = Scheduling {
        priority: Some(90),
        ..Scheduling::default()
    };
    let placed = world.place_as(controller, asking("a", 50, scheduling));
    assert_eq!(placed, Some(node));
    crash(&mut world, 1);
    let controller = world.controller();
    let node = world.node_with(1, 100);
    world.stats(node, vec![running("a", 1)]);
    assert_eq!(world.failures(controller), []);
    let operator = world.operator(&[]);
    let rows = world.instances(operator);
    assert_eq!((rows.len(), rows[0].priority), (1, None), "it runs on");
}

#[test]
fn a_node_is_told_of_a_start_that_waited_once_the_choice_is_on_disk() {
    let (mut world, controller, node) = World::with(durable()).with_full_node();
    world.start_as(controller, request("b", 50).waiting(30));
    world.store.be_slow();
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    assert_eq!(world.placements(), []);
    world.store.commit();
    world.handle(Input::Tick);
    assert_eq!(world.placements(), [("b".to_owned(), node)]);
}

#[test]
fn what_was_acknowledged_as_queued_is_queued_after_a_crash_in_its_order() {
    let (mut world, controller, _) = World::with(durable()).with_full_node();
    world.start_as(controller, request("b", 60).waiting(30));
    world.start_as(controller, request("c", 40).waiting(30));
    crash(&mut world, 1);
    world.controller();
    let node = world.node_with(1, 100);
    world.stats(node, vec![]);
    let names: Vec<String> = world.placements().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["b", "c"]);
}

#[test]
fn what_waited_long_enough_across_a_crash_is_told_so() {
    let (mut world, controller, _) = World::with(durable()).with_full_node();
    world.start_as(controller, request("b", 60).waiting(30));
    world.advance(Duration::from_secs(20));
    crash(&mut world, 1);
    let controller = world.controller();
    world.advance(Duration::from_secs(9));
    assert_eq!(world.failures(controller), []);
    world.advance(Duration::from_secs(1));
    let failures = world.failures(controller);
    assert_eq!(failures, one_failure("b", StartFailureReason::QueueTimeout));
}

#[test]
fn what_a_node_lists_after_a_crash_is_not_started_twice() {
    let (mut world, controller, node) = World::with(durable()).with_full_node();
    world.start_as(controller, request("b", 50).waiting(30));
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    assert_eq!(world.placements().len(), 1);
    crash(&mut world, 2);
    world.controller();
    let other = world.node_with(2, 100);
    world.stats(other, vec![]);
    assert_eq!(world.placements(), [], "its node may have it");
    let node = world.node_with(1, 100);
    world.stats_seen(node, Some(0), vec![running("b", 10)]);
    assert_eq!(world.placements(), []);
}

#[test]
fn a_start_whose_node_came_back_without_it_is_placed_again() {
    let (mut world, controller, node) = World::with(durable()).with_full_node();
    world.start_as(controller, request("b", 50).waiting(30));
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    crash(&mut world, 1);
    world.controller();
    let node = world.node_with(1, 100);
    world.look_away();
    world.stats_seen(node, Some(0), vec![]);
    assert_eq!(world.placements(), [("b".to_owned(), node)]);
}

#[test]
fn what_is_over_leaves_nothing_on_disk() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.start_as(controller, request("a", 50).waiting(30));
    world.stats(node, vec![running("a", 1)]);
    assert_eq!(world.store.len(), 1);
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    assert_eq!(world.store.len(), 0);
}

#[test]
fn how_an_instance_ended_is_known_after_a_crash() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.start_as(controller, request("kept", 50).waiting(30));
    world.start_as(controller, request("plain", 10));
    world.stats(node, vec![running("kept", 1), running("plain", 1)]);
    for name in ["kept", "plain"] {
        world.gone(node, Kind::INSTANCE_STOPPED, name);
    }
    let before = world.ended("");
    assert_eq!(before.len(), 2);
    assert_eq!(before[0].state, PlacementState::Ended);
    assert_eq!(before[0].node_uuid, node_uuid(1).to_string());
    world.crash(config(), Default::default());
    assert_eq!(world.ended("kept").len(), 1);
    let after = world.history_of("plain");
    let whats: Vec<&str> = after.iter().map(|row| &*row.what).collect();
    assert_eq!(whats, ["running", "gone"]);
}

#[test]
fn a_nights_sweep_is_known_by_name_and_program_after_a_crash() {
    const JOBS: usize = 6_000;
    let world = World::with(durable()).check_every(2000);
    let (mut world, controller, node) = world.with_node(100);
    for number in 0..JOBS {
        let instance = format!("job {number}");
        let start = request(&instance, 1);
        let named = start.placed_as(|asked| asked.name = format!("sweep-{number}"));
        world.start_as(controller, named);
        world.stats(node, vec![running(&instance, 1)]);
        let workload = Workload {
            instance: id(&instance),
            name: format!("sweep-{number}").into(),
            tenant: None,
            program: format!("fit.py {number}").into(),
            age: Duration::ZERO,
        };
        world.say(node, Report::Workloads(vec![workload]));
        world.gone(node, Kind::INSTANCE_STOPPED, &instance);
        world.look_away();
    }
    let all_are_known = |world: &mut World| {
        let found = all_ended(world, "");
        assert_eq!(found.len(), JOBS);
        for (number, row) in found.iter().enumerate() {
            assert_eq!(row.instance_uuid, format!("job {number}"));
            assert_eq!(row.name, format!("sweep-{number}"));
            assert_eq!(row.program, format!("fit.py {number}"));
        }
    };
    all_are_known(&mut world);
    world.crash(config(), Default::default());
    all_are_known(&mut world);
    for pattern in ["sweep-17", "job 17"] {
        let found = all_ended(&mut world, pattern);
        assert_eq!((found.len(), &*found[0].instance_uuid), (1, "job 17"));
    }
}

/// All that have ended and match, on however many pages; none is forgotten.
fn all_ended(world: &mut World, matching: &str) -> Vec<InstanceView> {
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let page = world.page(QueryKind::Ended, matching, after, 1000);
        assert_eq!((page.forgotten, page.error), (None, None));
        found.extend(page.instances);
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

#[test]
fn an_instance_of_a_lost_node_is_placed_again_only_after_its_lease() {
    let (mut world, controller) = World::new().with_controller();
    let node = leased(&mut world, 1, 100);
    assert_eq!(
        world.place_as(controller, request("a", 50).restarting()),
        Some(node)
    );
    world.stats_seen(node, Some(1), vec![running("a", 1)]);
    let other = leased(&mut world, 2, 100);
    world.cut(node);
    world.advance(LEASE);
    assert_eq!(world.placements(), []);
    world.advance(Duration::from_secs(10));
    assert_eq!(world.placements(), [("a".to_owned(), other)]);
}

#[test]
fn a_node_that_comes_back_before_its_lease_is_over_keeps_its_instance() {
    let (mut world, _, node) = World::new().with_leased("a");
    leased(&mut world, 2, 100);
    world.lose(node);
    let node = world.silent_node(1);
    world.look_away();
    world.advance(LEASE * 2);
    assert_eq!(
        world.placements(),
        [],
        "it is there, and has not said what it has"
    );
    world.stats_seen(node, Some(0), vec![running("a", 1)]);
    leased_ready(&mut world, node, 100);
    world.advance(LEASE * 2);
    assert_eq!(world.placements(), []);
}

#[test]
fn what_a_launcher_stopped_because_it_was_cut_off_is_placed_again_at_once() {
    let (mut world, _, node) = World::new().with_leased("a");
    let other = leased(&mut world, 2, 200);
    world.look_away();
    world.cut_off(node, "a");
    let placed = world.placements();
    assert_eq!(placed.len(), 1);
    assert!([node, other].contains(&placed[0].1));
}

#[test]
fn without_a_lease_nothing_that_was_lost_is_started_elsewhere() {
    let (mut world, controller, _) = World::new().with_node(100);
    assert_eq!(
        world.place_as(controller, request("a", 50).restarting()),
        None
    );
    let failures = world.failures(controller);
    assert_eq!(failures, one_failure("a", StartFailureReason::FullCloud));
    let node = world
        .place_as(controller, request("b", 50).waiting(30))
        .expect("fits");
    world.stats(node, vec![running("b", 1)]);
    world.node_with(2, 100);
    world.cut(node);
    world.look_away();
    world.advance(Duration::from_secs(7200));
    assert_eq!(world.placements(), []);
}

#[test]
fn an_instance_that_was_deleted_while_its_node_was_lost_is_deleted_when_it_is_back() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.place_as(controller, request("b", 50).waiting(30));
    world.stats(node, vec![running("b", 1)]);
    world.cut(node);
    world.advance(IN_DOUBT_TIME);
    world.delete_at(controller, "b", node_uuid(1));
    let node = world.node_with(1, 100);
    world.look_away();
    world.stats(node, vec![running("b", 1)]);
    let told = world.told(node);
    assert!(
        told.iter()
            .any(|it| matches!(it, Message::LauncherCommand(_))),
        "{told:?}"
    );
}

#[test]
fn a_batch_that_waits_for_its_last_start_goes_on_after_a_crash() {
    let (mut world, controller, _) = World::with(durable()).with_node(100);
    world.look_away();
    world.start_as(controller, request("a", 10).of_batch("b1", 2));
    crash(&mut world, 1);
    let controller = world.controller();
    let node = world.node_with(1, 100);
    world.stats(node, vec![]);
    world.look_away();
    world.start_as(controller, request("b", 10).of_batch("b1", 2));
    // What is on disk of `a` says that it waits: its node is told once it does not say so any more.
    let names: Vec<String> = world.placements().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["b", "a"]);
    crash(&mut world, 1);
    world.controller();
    let other = world.node_with(2, 100);
    world.stats(other, vec![]);
    assert_eq!(world.placements(), [], "its node may have it");
}

#[test]
fn what_waits_when_the_scheduler_stops_is_told_so_unless_it_outlives_it() {
    for durable in [false, true] {
        let (mut world, controller, _) = World::with(Config {
            durable,
            ..config()
        })
        .with_full_node();
        world.start_as(controller, request("b", 60).waiting(30));
        world.look_away();
        world.handle(Input::Leaving);
        let failures = world.failures(controller);
        assert_eq!(failures.is_empty(), durable, "{failures:?}");
    }
}

#[test]
fn while_nodes_are_coming_back_nothing_is_said_never_to_fit() {
    let (mut world, controller, _) = World::expecting(2).with_node(10);
    world.look_away();
    world.start_as(controller, request("a", 100).waiting(30));
    assert_eq!(world.failures(controller), []);
    let node = world.node_with(2, 100);
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
}

#[test]
fn a_start_that_an_original_launcher_does_not_list_is_not_started_elsewhere() {
    for counts in [false, true] {
        let (mut world, controller, node) = World::new().with_node(100);
        world.place_as(controller, request("a", 50).waiting(30));
        let other = world.node_with(2, 100);
        world.look_away();
        for _ in 0..3 {
            let seen = counts.then_some(1);
            world.stats_seen(node, seen, vec![running("b", 1)]);
        }
        let placed: Vec<SessionId> = world.placements().into_iter().map(|it| it.1).collect();
        if counts {
            assert!(placed == [node] || placed == [other], "{placed:?}");
        } else {
            assert_eq!(placed, []);
            let failures = world.failures(controller);
            assert_eq!(
                failures,
                one_failure("a", StartFailureReason::LaunchFailure)
            );
        }
    }
}

#[test]
fn a_launcher_that_hangs_with_its_connection_open_is_lost_after_its_lease() {
    let (mut world, controller) = World::new().with_controller();
    let node = leased(&mut world, 1, 100);
    assert_eq!(
        world.place_as(controller, request("a", 50).restarting()),
        Some(node)
    );
    let other = leased(&mut world, 2, 100);
    for _ in 0..20 {
        leased_stats(&mut world, node, &["a"]);
        leased_stats(&mut world, other, &[]);
        world.advance(Duration::from_secs(6));
    }
    world.look_away();
    let mut placed = Vec::new();
    for _ in 0..30 {
        if placed.is_empty() {
            leased_stats(&mut world, other, &[]);
            world.advance(Duration::from_secs(6));
            placed = world.placements();
        }
    }
    assert_eq!(placed, [("a".to_owned(), other)]);
}

#[test]
fn a_launcher_that_connected_again_and_hangs_is_disconnected_once_however_late_that_is_seen() {
    let mut world = World::new();
    let node = leased(&mut world, 1, 100);
    leased_stats(&mut world, node, &[]);
    world.advance(Duration::from_secs(1));
    let node = leased(&mut world, 1, 100);
    leased_stats(&mut world, node, &[]);
    // The scheduler's machine stood still.
    let late = world.now + 10 * LEASE;
    world.scheduler.handle(late, Input::Tick);
    let actions = std::iter::from_fn(|| world.scheduler.poll_action());
    let ended: Vec<SessionId> = actions
        .filter_map(|action| match action {
            Action::Disconnect { session, .. } => Some(session),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [node]);
}

#[test]
fn a_lease_that_has_grown_is_on_disk_before_it_is_extended() {
    const LONGER: Duration = Duration::from_secs(120);
    let (mut world, controller) = World::with(durable()).with_controller();
    let node = leased(&mut world, 1, 100);
    assert_eq!(
        world.place_as(controller, request("a", 50).restarting()),
        Some(node)
    );
    leased_stats(&mut world, node, &["a"]);
    world.told(node);
    // Its launcher is restarted with a longer lease.
    let node = world.silent_node(1);
    world.store.be_slow();
    let is_renewed = |world: &mut World| {
        announcing(world, node, &["a"], Some(LONGER));
        let told = world.told(node);
        told.iter()
            .any(|message| matches!(message, Message::LeaseRenewed(_)))
    };
    assert!(!is_renewed(&mut world) && !is_renewed(&mut world));
    world.store.commit();
    world.handle(Input::Tick);
    assert!(is_renewed(&mut world));
    crash(&mut world, 2);
    let other = leased(&mut world, 2, 100);
    world.advance(LONGER);
    assert_eq!(world.placements(), [], "its node may still run it");
    world.advance(LONGER / 4);
    world.store.commit();
    world.handle(Input::Tick);
    assert_eq!(world.placements(), [("a".to_owned(), other)]);
}

#[test]
fn a_report_is_answered_also_while_the_lease_cannot_be_extended() {
    let mut world = World::with(durable());
    let controller = world.controller();
    let node = leased(&mut world, 1, 100);
    world.place_as(controller, request("a", 50).restarting());
    leased_stats(&mut world, node, &["a"]);
    let node = world.silent_node(1);
    world.told(node);
    world.store.be_slow();
    announcing(&mut world, node, &["a"], Some(LEASE * 4));
    let told = world.told(node);
    let is_renewed = |it: &Message| matches!(it, Message::LeaseRenewed(_));
    assert!(!told.iter().any(is_renewed), "{told:?}");
    assert!(told.contains(&Message::ReportReceived(ReportReceived { seq: 1 })));
    // One answer to each report.
    world.store.commit();
    world.handle(Input::Tick);
    leased_stats(&mut world, node, &["a"]);
    let told = world.told(node);
    let answers = told
        .iter()
        .filter(|it| is_renewed(it) || matches!(it, Message::ReportReceived(_)));
    assert_eq!(answers.count(), 1, "{told:?}");
}

#[test]
fn a_numbered_report_is_answered_to_native_launchers_alone() {
    let mut world = World::new();
    for (dialect, is_answered) in [(Dialect::Native, true), (Dialect::Original, false)] {
        let number = u64::from(is_answered) + 1;
        let node = world.join(Role::AGENT, node_uuid(number), dialect);
        world.told(node);
        for report_seq in [Some(7), None] {
            let report = StatsReport {
                is_plain: true,
                node: world.uuid_of(node).to_string().into(),
                report_seq,
                ..StatsReport::default()
            };
            world.say(node, Report::Stats(Box::new(report)));
            let told = world.told_of(node, |it| match it {
                Message::ReportReceived(received) => Some(received.seq),
                _ => None,
            });
            let expected = report_seq.filter(|_| is_answered);
            assert_eq!(told, Vec::from_iter(expected));
        }
    }
}

#[test]
fn an_extended_lease_that_was_not_told_is_not_told_to_a_launcher_that_was_started_again() {
    let mut world = World::new();
    let node = leased(&mut world, 1, 100);
    leased_stats(&mut world, node, &[]);
    // The old connection ends with it still to be written.
    let node = world.silent_node(1);
    let told = world.told(node);
    let renewed = |message: &Message| matches!(message, Message::LeaseRenewed(_));
    assert!(!told.iter().any(renewed), "{told:?}");
}

/// A report that asks for the lease to be extended.
fn leased_stats(world: &mut World, node: SessionId, names: &[&str]) {
    announcing(world, node, names, None);
}

/// A report that asks for the lease to be extended and may say how long it is.
fn announcing(world: &mut World, node: SessionId, names: &[&str], lease: Option<Duration>) {
    let extras = NodeExtras {
        capabilities: Capabilities::LEASE,
        lease,
        ..NodeExtras::default()
    };
    let report = StatsReport {
        is_plain: true,
        node: world.uuid_of(node).to_string().into(),
        starts_seen: Some(1),
        lease_seq: Some(1),
        extras: lease.map(|_| Box::new(extras)),
        instances: names.iter().map(|name| running(name, 1)).collect(),
        ..StatsReport::default()
    };
    world.say(node, Report::Stats(Box::new(report)));
}

#[test]
fn a_claim_that_no_node_was_told_of_is_not_made_again_on_the_node_that_is_lost() {
    let mut world = World::with(durable());
    let (controller, node) = (world.controller(), world.node_with(1, 100));
    assert_eq!(world.place(controller, "taken", 100), Some(node));
    world.stats(node, vec![running("taken", 1)]);
    world.start_as(controller, request("waits", 100).waiting(3600));
    world.look_away();
    world.store.be_slow();
    world.gone(node, Kind::INSTANCE_STOPPED, "taken");
    assert_eq!(world.placements(), [], "the claim is not on disk");
    world.cut(node);
    world.advance(IN_DOUBT_TIME);
    assert_eq!(world.failures(controller), [], "it waits as before");
    let other = world.node_with(2, 100);
    world.store.commit();
    world.handle(Input::Tick);
    assert_eq!(world.placements(), [("waits".to_owned(), other)]);
    world.check();
}
