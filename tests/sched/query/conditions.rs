//! What is not well, as one list: each with what it is about, and for how long.

use std::time::Duration;

use bytes::Bytes;
use proto_frames::payload::{EvacuateMode, QueryKind, StatusView};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    Backlog, Config, EndHow, EndReport, EndsReport, Hello, Input, NodeExtras, Report, SessionId,
    StatsReport, Unwell,
};

use crate::support::durability::LEASE;
use crate::support::requests::Asking;
use crate::support::sending::parcel;
use crate::support::world::{AT_THE_BEGINNING, World, config, id, node_uuid, request, running};

impl World {
    /// An instance of a node has ended with this code; what is left is listed.
    fn ended_with(
        &mut self,
        node: SessionId,
        (seq, name): (u64, &str),
        exit_code: i64,
        left: &[&str],
    ) {
        let uuid = self.uuid_of(node);
        let ended = EndReport {
            seq,
            instance: id(name),
            how: EndHow::Stopped,
            exit_code: Some(exit_code),
            ago: None,
            parcel: parcel(Kind::INSTANCE_STOPPED, uuid, Bytes::new()),
            facts: None,
        };
        let report = StatsReport {
            is_plain: true,
            node: uuid.to_string().into(),
            starts_seen: Some(2),
            instances: left.iter().map(|name| running(name, 1)).collect(),
            ends: Some(Box::new(EndsReport {
                incarnation: Uuid::from_u128(0xc0),
                seq,
                ended: vec![ended],
            })),
            ..StatsReport::default()
        };
        self.say(node, Report::Stats(Box::new(report)));
    }
}

/// The status as it is shown.
fn status(world: &mut World) -> StatusView {
    let page = world.page(QueryKind::Status, "", None, 1);
    page.status.expect("it was asked for")
}

/// The kinds of what is not well.
fn kinds(world: &mut World) -> Vec<String> {
    let status = status(world);
    assert_eq!(status.well, Some(status.conditions.is_empty()));
    status.conditions.into_iter().map(|it| it.kind).collect()
}

/// A world whose wall clock is known.
fn with_clock() -> World {
    World::with(Config {
        start_unix_ms: AT_THE_BEGINNING,
        ..config()
    })
}

/// A world with two nodes in which all is well, and what of one of them is listed after something was done to it.
fn one_kind(change: impl FnOnce(&mut World, SessionId)) -> String {
    let mut world = with_clock();
    world.controller();
    let node = world.node_with(1, 1000);
    world.node_with(2, 1000);
    world.stats(node, Vec::new());
    assert_eq!(kinds(&mut world), [] as [String; 0]);
    change(&mut world, node);
    let conditions = status(&mut world).conditions;
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    assert!(!conditions[0].what.is_empty() && !conditions[0].advice.is_empty());
    conditions[0].kind.clone()
}

#[test]
fn each_thing_that_is_not_well_with_a_node_is_listed() {
    assert_eq!(one_kind(|world, node| world.cut(node)), "node_lost");
    let stalled = |world: &mut World, session| {
        let backlog = Backlog::Stalled;
        world.handle(Input::Backlog { session, backlog });
    };
    assert_eq!(one_kind(stalled), "node_stalled");
    let faulty = |world: &mut World, node| {
        let extras = NodeExtras {
            fault: Some("its disk takes no writes".into()),
            ..NodeExtras::default()
        };
        world.ready_with(node, extras);
    };
    assert_eq!(one_kind(faulty), "node_fault");
    let full = |world: &mut World, node| {
        world.ready_as(node, |report| report.disk_available_mb = 3);
    };
    assert_eq!(one_kind(full), "node_disk_full");
    let evacuated = |world: &mut World, node| world.status(node, Kind::MAINTENANCE);
    assert_eq!(one_kind(evacuated), "node_out_of_service");
    let cordoned = |world: &mut World, node| {
        let controller = world.operator(&[]);
        world.evacuate(controller, node, EvacuateMode::Cordon);
        world.advance(Duration::from_secs(7));
        let cordoned = &status(world).conditions[0];
        assert_eq!(cordoned.since_s, Some(7));
    };
    assert_eq!(one_kind(cordoned), "node_cordoned");
    // A full one does what it is for.
    let mut world = World::new();
    let node = world.node_with(1, 1000);
    world.status(node, Kind::FULL);
    assert_eq!(kinds(&mut world), [] as [String; 0]);
}

#[test]
fn a_launcher_that_hangs_is_noticed_after_some_of_its_own_intervals() {
    let mut world = World::new();
    let node = world.node_with(1, 1000);
    for _ in 0..5 {
        world.stats(node, Vec::new());
        world.advance(Duration::from_secs(6));
    }
    assert_eq!(kinds(&mut world), [] as [String; 0]);
    let operator = world.operator(&[]);
    assert_eq!(world.nodes(operator)[0].reported_s, Some(6));
    world.advance(Duration::from_secs(29));
    assert_eq!(kinds(&mut world), ["node_silent"]);
    assert_eq!(status(&mut world).conditions[0].since_s, Some(35));
    assert_eq!(world.nodes(operator)[0].reported_s, Some(35));
    world.stats(node, Vec::new());
    assert_eq!(kinds(&mut world), [] as [String; 0]);
}

#[test]
fn a_lost_node_has_as_many_instances_as_the_list_of_nodes_says() {
    let (mut world, _, node) = World::new().with_leased("a");
    let said = |world: &mut World| {
        let lost = status(world).conditions.into_iter();
        let lost = lost.filter(|it| it.kind == "node_lost");
        lost.map(|it| it.what).collect::<Vec<_>>().concat()
    };
    world.lose(node);
    assert!(said(&mut world).ends_with("with 1 instance"));
    // It may be started elsewhere by now.
    world.advance(2 * LEASE);
    let operator = world.operator(&[]);
    assert_eq!(world.nodes(operator)[0].instances, 0);
    assert!(said(&mut world).ends_with("with 0 instances"));
}

#[test]
fn a_drain_that_waits_for_room_says_so() {
    let (mut world, controller, node) = World::new().with_node(1000);
    assert_eq!(
        world.place_as(controller, request("a", 400).movable()),
        Some(node)
    );
    world.list(node, &["a"]);
    world.evacuate(controller, node, EvacuateMode::Relocate);
    let conditions = status(&mut world).conditions;
    let drained = conditions.iter().find(|it| it.kind == "node_drained");
    let what = &drained.expect("it is drained").what;
    assert!(what.contains("0 of 1 moved"), "{what}");
    assert!(what.contains("waits for room elsewhere for a"), "{what}");
    assert!(conditions.iter().any(|it| it.kind == "no_node"));
}

#[test]
fn certificates_of_all_peers_are_listed_a_month_before_their_end() {
    let mut world = with_clock();
    let now_s = i64::try_from(world.unix_ms() / 1000).unwrap();
    let day = 86_400;
    let mut join = |number: u64, role, ends_in_days: i64| {
        let hello = Hello {
            certificate_ends_s: Some(now_s + ends_in_days * day),
            ..Hello::native(node_uuid(number), role)
        };
        world.knock(hello).expect("it is let in")
    };
    join(1, Role::AGENT, 400);
    let ended = join(2, Role::AGENT, -3);
    join(3, Role::CONTROLLER, 7);
    world.ready_as(ended, |report| report.hostname = "node-2".into());
    let conditions = status(&mut world).conditions;
    let of: Vec<_> = conditions
        .iter()
        .filter(|it| it.kind == "certificate")
        .collect();
    assert_eq!(of.len(), 2, "{conditions:?}");
    assert_eq!(of[0].what, "the certificate of node node-2 ended 3d ago");
    assert_eq!(of[0].subject, node_uuid(2).to_string());
    assert!(of[1].what.ends_with("ends in 7d"), "{}", of[1].what);
}

#[test]
fn of_many_certificates_those_that_have_ended_are_named_and_then_those_that_end_first() {
    let mut world = with_clock();
    let now_s = i64::try_from(world.unix_ms() / 1000).unwrap();
    // 1 to 19 days, not in order, and one that has ended, which came last.
    let days = (1..20).map(|number| number * 7 % 19 + 1).chain([-1]);
    for (number, days) in days.enumerate() {
        let hello = Hello {
            certificate_ends_s: Some(now_s + days * 86_400),
            ..Hello::native(node_uuid(number as u64), Role::AGENT)
        };
        world.knock(hello).expect("it is let in");
    }
    let conditions = status(&mut world).conditions;
    let of = conditions.iter().filter(|it| it.kind == "certificate");
    let of: Vec<&str> = of.map(|it| it.what.as_str()).collect();
    assert_eq!(of.len(), 6, "{conditions:?}");
    for (what, end) in of.iter().zip([
        "ended 1d ago",
        "ends in 1d",
        "ends in 2d",
        "ends in 3d",
        "ends in 4d",
    ]) {
        assert!(what.ends_with(end), "{of:?}");
    }
    let more = conditions
        .iter()
        .find(|it| it.what.contains("(certificate)"));
    assert_eq!(more.unwrap().what, "and 15 more of this kind (certificate)");
}

#[test]
fn a_set_that_has_crashed_is_not_forgotten() {
    let (mut world, controller, node) = World::new().with_node(1000);
    for number in 0..2 {
        let mut start = request(&format!("i{number}"), 100);
        start.scheduling.get_or_insert_default().name = format!("websvc.0123abcd.{number}");
        assert_eq!(world.place_as(controller, start), Some(node));
    }
    world.stats(node, vec![running("i0", 1), running("i1", 1)]);
    assert_eq!(kinds(&mut world), [] as [String; 0]);
    let _ = controller;
    world.ended_with(node, (1, "i0"), 1, &["i1"]);
    let crashed = status(&mut world).conditions;
    assert_eq!(crashed.len(), 1, "{crashed:?}");
    assert_eq!(
        (&*crashed[0].kind, &*crashed[0].subject),
        ("set_crashed", "websvc")
    );
    assert!(crashed[0].what.contains("1 are left"), "{crashed:?}");
    world.ended_with(node, (2, "i1"), 139, &[]);
    let crashed = status(&mut world).conditions;
    assert!(
        crashed[0].what.contains("2 instances of set websvc"),
        "{crashed:?}"
    );
    assert!(
        crashed[0].what.contains("exit status 139; none is left"),
        "{crashed:?}"
    );
    // It is started again.
    for number in 0..2 {
        let mut start = request(&format!("j{number}"), 100);
        start.scheduling.get_or_insert_default().name = format!("websvc.89abcdef.{number}");
        assert_eq!(world.place_as(controller, start), Some(node));
    }
    assert_eq!(kinds(&mut world), [] as [String; 0]);
}

#[test]
fn much_of_one_kind_is_counted() {
    let mut world = World::new();
    world.node_with(100, 1000);
    for number in 0..20 {
        let node = world.node_with(number, 1000);
        world.cut(node);
    }
    let found = world.scheduler.conditions(world.now);
    assert_eq!(found.len(), 6);
    assert_eq!(found[5].what, Unwell::More("node_lost", 15));
}

#[test]
fn what_an_evacuation_stops_is_not_said_to_have_ended() {
    let (mut world, controller, node) = World::new().with_node(1000);
    assert_eq!(world.place(controller, "plain", 100), Some(node));
    let managed = request("managed", 100).movable();
    assert_eq!(world.place_as(controller, managed), Some(node));
    world.list(node, &["plain", "managed"]);
    world.evacuate(controller, node, EvacuateMode::default());
    for name in ["plain", "managed"] {
        world.gone(node, Kind::INSTANCE_STOPPED, name);
    }
    let ended = world.page(QueryKind::Ended, "", None, 10).instances;
    assert_eq!(ended.len(), 2);
    for row in ended {
        assert_eq!(row.waits_for, "stopped: its node is evacuated", "{row:?}");
    }
}
