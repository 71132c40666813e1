//! Why a START was not placed: reasons with counts, the nearest miss, and "never" told apart from "not now".

use std::time::Duration;

use proto_frames::payload::{GroupPolicy, ReasonKind, StartFailure, StartFailureReason};
use proto_frames::{Kind, Role};
use sched_core::{
    Aggregate, Backlog, Dialect, FilterRule, Input, InstanceId, NodeName, PolicyRules, Rules,
    SessionId, StartRequest,
};

use crate::support::requests::Asking;
use crate::support::words::{counts, group, labels, member, near, needing, requiring, resources};
use crate::support::world::{Size, World, config, node_uuid, request};

/// A world whose policy has every filter, and whose node 9 is reserved.
fn filtering() -> World {
    let rule = |(name, max): (&str, Option<i64>)| FilterRule {
        name: name.into(),
        max,
    };
    let filters = [
        ("pin", None),
        ("tenants", None),
        ("labels", None),
        ("near", None),
        ("group", None),
        ("starts-under-way", Some(1)),
        ("instances", Some(1)),
        ("load", Some(5)),
    ];
    let rules = Rules {
        aggregates: vec![Aggregate {
            name: "reserved".into(),
            nodes: vec![NodeName::new(&node_uuid(9).to_string())],
            tenants: vec![InstanceId::new("blue")],
            ..Aggregate::default()
        }],
        policy: PolicyRules {
            filters: Some(filters.into_iter().map(rule).collect()),
            ..PolicyRules::default()
        },
        ..Rules::default()
    };
    World::ruled(config(), rules)
}

fn backlog(world: &mut World, node: SessionId, backlog: Backlog) {
    world.handle(Input::Backlog {
        session: node,
        backlog,
    });
}

fn near_volume(name: &str) -> StartRequest {
    near(name, "volume", "node", true)
}

fn of_group(name: &str) -> StartRequest {
    member(name, &group("web", GroupPolicy::AntiAffinity))
}

/// The kind of the only reason why the only node does not take a START, after something was done to it.
fn only_reason(
    start: StartRequest,
    number: u64,
    change: impl FnOnce(&mut World, SessionId, SessionId),
) -> ReasonKind {
    let mut world = filtering();
    let controller = world.controller();
    let node = world.labelled(number, &[]);
    change(&mut world, controller, node);
    let failure = world.refused(controller, start);
    assert_eq!(failure.reason, StartFailureReason::FullCloud);
    assert_eq!(failure.reasons.len(), 1, "{failure:?}");
    assert_eq!(failure.reasons[0].nodes, 1);
    failure.reasons[0].reason.clone()
}

fn untouched(_: &mut World, _: SessionId, _: SessionId) {}

#[test]
fn what_a_node_is_not_or_says_not_is_named() {
    let pinned = StartRequest {
        node_id: Some(node_uuid(2).to_string().into()),
        ..request("x", 1)
    };
    for (start, expected) in [
        (pinned, ReasonKind::Pinned),
        (requiring("x", 1, &["zone = a"]), ReasonKind::Labels),
        (near_volume("x"), ReasonKind::Near),
        (request("x", 1001), ReasonKind::Memory),
        (needing("x", 1, "gpu", 1), ReasonKind::Resource),
    ] {
        assert_eq!(only_reason(start, 1, untouched), expected);
    }
    for (vcpus, disk_mib, expected) in [(101, 0, ReasonKind::Vcpus), (0, 10_001, ReasonKind::Disk)]
    {
        let mut start = request("x", 1);
        (start.asked.vcpus, start.asked.disk_mib) = (vcpus, disk_mib);
        assert_eq!(only_reason(start, 1, untouched), expected);
    }
    let found = only_reason(request("x", 1), 9, untouched);
    assert_eq!(found, ReasonKind::Tenants);
}

#[test]
fn what_a_node_does_at_present_is_named() {
    let full = |world: &mut World, _, node| world.status(node, Kind::FULL);
    let found = only_reason(request("x", 1), 1, full);
    assert_eq!(found, ReasonKind::NotReady);
    let stalled = |world: &mut World, _, node| backlog(world, node, Backlog::Stalled);
    let found = only_reason(request("x", 1), 1, stalled);
    assert_eq!(found, ReasonKind::BackedUp);
    let mute = |world: &mut World, _, node| {
        world.ready_as(node, |report| report.mem_available_mib = -1);
    };
    let found = only_reason(request("x", 1), 1, mute);
    assert_eq!(found, ReasonKind::UnknownFigures);
    let started = |world: &mut World, controller, _| world.start_as(controller, of_group("a"));
    let found = only_reason(of_group("x"), 1, started);
    assert_eq!(found, ReasonKind::Group);
    let found = only_reason(request("x", 1), 1, started);
    assert_eq!(found, ReasonKind::Starts);
    let running = |world: &mut World, controller, node| {
        world.start(controller, "a", 1);
        world.stats(node, vec![crate::support::world::running("a", 1)]);
    };
    let found = only_reason(request("x", 1), 1, running);
    assert_eq!(found, ReasonKind::Instances);
    let loaded = |world: &mut World, _, node| world.ready_as(node, |report| report.load = 6);
    let found = only_reason(request("x", 1), 1, loaded);
    assert_eq!(found, ReasonKind::Other("load".to_owned()));
}

#[test]
fn figures_that_are_unknown_are_named() {
    let told = |memory: i64, vcpus: i64, disk: i64| {
        let (mut world, controller, node) = World::new().with_node(700);
        world.ready_as(node, |report| {
            report.mem_available_mib = memory;
            report.cpus_online = vcpus;
            report.disk_available_mb = disk;
        });
        let failure = world.refused(controller, request("x", 1));
        let reason = &failure.reasons[0];
        assert_eq!(reason.reason, ReasonKind::UnknownFigures);
        (reason.what.clone(), failure.detail.unwrap_or_default())
    };
    for (figures, what, words) in [
        ((700, 8, -1), "disk", "1 whose free disk is not known"),
        ((-1, 8, 700), "memory", "1 whose free memory is not known"),
        ((700, -1, 700), "vcpus", "1 whose vcpus are not known"),
        (
            (-1, 8, -1),
            "memory, disk",
            "1 whose free memory and disk are not known",
        ),
        (
            (-1, -1, -1),
            "memory, vcpus, disk",
            "1 whose free memory, vcpus and disk are not known",
        ),
    ] {
        let (found, detail) = told(figures.0, figures.1, figures.2);
        assert_eq!(found, what);
        assert!(detail.contains(words), "{detail}");
    }
}

#[test]
fn the_nearest_miss_is_named_with_its_amount() {
    let (mut world, controller, _) = World::new().with_node(700);
    let nearest = world.node_with(2, 900);
    world.node_with(3, 800);
    world.start_as(
        controller,
        StartRequest {
            hostname: Some(format!("host-{}", nearest.0).into()),
            ..request("a", 50)
        },
    );
    let failure = world.refused(controller, request("x", 880));
    let reason = &failure.reasons[0];
    assert_eq!(
        (reason.asked, reason.best, reason.capacity),
        (Some(880), Some(850), Some(900))
    );
    assert_eq!(reason.node_uuid, node_uuid(2).to_string());
    assert_eq!(reason.hostname, format!("host-{}", nearest.0));
    assert!(!reason.never && !failure.never, "it fits once 'a' is gone");
}

#[test]
fn custom_resources_are_named_with_their_amounts() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    world.ready_with(node, resources(&[("gpu", 4)]));
    world.start_as(controller, needing("a", 1, "gpu", 3));
    for (name, asked, best, capacity, never) in [
        ("gpu", 2, 1, 4, false),
        ("gpu", 5, 1, 4, true),
        ("fpga", 1, 0, 0, true),
    ] {
        let start = needing(&format!("{name}-{asked}"), 1, name, asked);
        let failure = world.refused(controller, start);
        let reason = &failure.reasons[0];
        assert_eq!(reason.what, name);
        let found = (reason.asked, reason.best, reason.capacity);
        assert_eq!(found, (Some(asked), Some(best), Some(capacity)));
        assert_eq!((failure.never, reason.never), (never, never), "{name}");
    }
}

#[test]
fn never_is_said_of_what_no_node_could_take_if_it_were_empty() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.labelled(1, &[("zone", "eu-1")]);
    world.start(controller, "a", 400);
    let failure = world.refused(controller, request("later", 900));
    assert!(!failure.never && !failure.reasons[0].never);
    let failure = world.refused(controller, request("too large", 1001));
    assert!(failure.never && failure.reasons[0].never);
    let detail = failure.detail.unwrap_or_default();
    assert!(detail.contains("the largest has 1000"), "{detail}");
    let failure = world.refused(controller, requiring("elsewhere", 1, &["zone = us-1"]));
    assert!(failure.never && failure.reasons[0].never);
    world.status(node, Kind::MAINTENANCE);
    let failure = world.refused(controller, requiring("here", 1, &["zone = eu-1"]));
    assert!(!failure.never && !failure.reasons[0].never);
}

/// Why 500 MiB and 8 vcpus are refused where nodes have so much memory and so many CPUs.
fn refused_by(sizes: [(i64, i64); 2]) -> StartFailure {
    let (mut world, controller) = World::new().with_controller();
    for (number, (mem, cpus)) in (1..).zip(sizes) {
        let size = Size {
            cpus,
            ..Size::of_mem(mem)
        };
        world.node(number, size);
    }
    world.refused(controller, request("x", 500).vcpus(8))
}

#[test]
fn no_single_node_may_have_all_that_is_asked_though_each_amount_is_somewhere() {
    let failure = refused_by([(1000, 1), (10, 64)]);
    assert!(failure.never, "{failure:?}");
}

#[test]
fn without_any_node_there_is_nothing_to_count_and_never_is_not_said() {
    let (mut world, controller) = World::new().with_controller();
    let failure = world.refused(controller, request("x", 1));
    assert_eq!(failure.reason, StartFailureReason::NoComputeNodes);
    assert_eq!(
        failure.detail.as_deref(),
        Some("no compute node is connected")
    );
    assert!(failure.reasons.is_empty() && !failure.never);
    let mut network = request("y", 1);
    network.network_node = true;
    let failure = world.refused(controller, network);
    assert_eq!(failure.reason, StartFailureReason::NoNetworkNodes);
}

#[test]
fn network_nodes_are_counted_for_network_starts() {
    let (mut world, controller, _) = World::new().with_node(1000);
    let node = world.join(Role::NETAGENT, node_uuid(2), Dialect::Native);
    world.ready_as(node, |_| ());
    let mut start = request("x", 2000);
    start.network_node = true;
    let failure = world.refused(controller, start);
    assert_eq!(failure.reason, StartFailureReason::NoNetworkNodes);
    assert_eq!(counts(&failure), [(ReasonKind::Memory, 1)]);
}

#[test]
fn a_pin_explains_the_node_it_names_and_counts_the_others() {
    let (mut world, controller) = World::new().with_controller();
    for number in 1..5 {
        world.node_with(number, 1000);
    }
    let start = StartRequest {
        node_id: Some(node_uuid(2).to_string().into()),
        ..request("x", 2000)
    };
    let failure = world.refused(controller, start);
    assert_eq!(
        counts(&failure),
        [(ReasonKind::Pinned, 3), (ReasonKind::Memory, 1)]
    );
    assert!(failure.never);
}

#[test]
fn original_controllers_are_told_neither_detail_nor_reasons_nor_never() {
    let mut world = World::new();
    let controller = world.original_controller();
    let operator = world.operator(&[proto_frames::payload::Topic::Failures]);
    world.node_with(1, 1000);
    world.look_away();
    world.start(controller, "x", 2000);
    for (session, is_native) in [(controller, false), (operator, true)] {
        match world.told_once(session) {
            sched_core::Message::StartFailure(failure)
            | sched_core::Message::StartFailureCopy(failure) => {
                assert_eq!(failure.reason, StartFailureReason::FullCloud);
                let said = (
                    failure.detail.is_some(),
                    !failure.reasons.is_empty(),
                    failure.never,
                );
                assert_eq!(said, (is_native, is_native, is_native));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn many_shapes_at_once_are_all_answered_though_not_all_explained() {
    const NODES: u64 = 400;
    let (mut world, controller) = World::new().with_controller();
    for number in 0..NODES {
        world.node_with(number, 100);
    }
    let mut explained = 0;
    for shape in 0..700 {
        let failure = world.refused(controller, request(&shape.to_string(), 1000 + shape));
        assert_eq!(failure.reason, StartFailureReason::FullCloud);
        if failure.reasons.is_empty() {
            let detail = failure.detail.unwrap_or_default();
            assert!(
                detail.contains("too many different STARTs fail"),
                "{detail}"
            );
        } else {
            explained += 1;
        }
    }
    assert_eq!(explained, 125, "50 000 nodes may be walked in that time");
    world.advance(Duration::from_millis(100));
    let failure = world.refused(controller, request("later", 5000));
    assert_eq!(counts(&failure), [(ReasonKind::Memory, 400)]);
}

#[test]
fn one_shape_is_explained_once_in_a_while() {
    let (mut world, controller, node) = World::new().with_node(100);
    let first = world.refused(controller, request("a", 1000));
    world.ready_as(node, |report| report.mem_available_mib = 500);
    let again = world.refused(controller, request("b", 1000));
    assert_eq!(again.reasons, first.reasons);
    world.advance(Duration::from_millis(100));
    let later = world.refused(controller, request("c", 1000));
    assert_eq!(later.reasons[0].best, Some(500));
    world.node_with(2, 600);
    let other = world.refused(controller, request("d", 1000));
    assert_eq!(
        other.reasons[0].nodes, 2,
        "with another node it is another question"
    );
}

#[test]
fn reasons_count_the_nodes_they_keep_out() {
    let (mut world, controller) = World::new().with_controller();
    for number in 0..3 {
        world.labelled(number, &[("zone", "us-1")]);
    }
    for (number, mem) in [(10, 100), (11, 300)] {
        let node = world.silent_node(number);
        world.ready_as(node, |report| {
            report.mem_available_mib = mem;
            report.extras = Some(Box::new(labels(&[("zone", "eu-1")])));
        });
    }
    let full = world.labelled(20, &[("zone", "eu-1")]);
    world.status(full, Kind::FULL);
    let failure = world.refused(controller, requiring("x", 500, &["zone = eu-1"]));
    assert_eq!(
        counts(&failure),
        [
            (ReasonKind::Labels, 3),
            (ReasonKind::Memory, 2),
            (ReasonKind::NotReady, 1)
        ]
    );
    let detail = failure.detail.unwrap_or_default();
    for part in [
        "none of 6 compute nodes fits:",
        "3 without 'zone = eu-1'",
        "1 full (by their own word",
        "2 short of memory (asks 500 MiB, most free 300 on host-6)",
    ] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
}

#[test]
fn a_required_fact_that_may_pass_is_no_never_and_one_that_stays_is() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.labelled(1, &[("zone", "eu-1")]);
    world.ready_as(node, |report| {
        report.load = 9;
        report.extras = Some(Box::new(labels(&[("zone", "eu-1")])));
    });
    for (texts, what, never) in [
        (&["node.load < 5"][..], "node.load < 5", false),
        (
            &["zone = eu-1", "node.instances > 0"],
            "node.instances > 0",
            false,
        ),
        (
            &["node.mem_free_mb > 5000"],
            "node.mem_free_mb > 5000",
            false,
        ),
        (&["node.cpus > 5000"], "node.cpus > 5000", true),
        (&["node.load < 5", "zone = us-1"], "zone = us-1", true),
    ] {
        let failure = world.refused(controller, requiring("x", 1, texts));
        assert_eq!(counts(&failure), [(ReasonKind::Labels, 1)]);
        let reason = &failure.reasons[0];
        assert_eq!(reason.what, what);
        assert_eq!((reason.never, failure.never), (never, never), "{what}");
    }
}

#[test]
fn a_reason_names_what_it_was_for_programs() {
    let (mut world, controller) = World::new().with_controller();
    world.labelled(1, &[]);
    world.start_as(controller, of_group("first"));
    let pinned = StartRequest {
        hostname: Some("elsewhere".into()),
        ..request("x", 1)
    };
    for (start, kind, what) in [
        (
            requiring("x", 1, &["rack = r1", "zone = a"]),
            ReasonKind::Labels,
            "rack = r1",
        ),
        (near_volume("x"), ReasonKind::Near, "volume"),
        (of_group("x"), ReasonKind::Group, "web"),
        (needing("x", 1, "gpu", 1), ReasonKind::Resource, "gpu"),
        (pinned, ReasonKind::Pinned, ""),
        (request("x", 5000), ReasonKind::Memory, ""),
    ] {
        let failure = world.refused(controller, start);
        let reason = &failure.reasons[0];
        assert_eq!((&reason.reason, reason.what.as_str()), (&kind, what));
    }
}

#[test]
fn a_node_without_a_report_is_not_reported_as_never_fitting() {
    let pinned = StartRequest {
        hostname: Some("elsewhere".into()),
        ..request("x", 1)
    };
    for start in [
        request("x", 5000),
        requiring("x", 1, &["zone = a"]),
        needing("x", 1, "gpu", 1),
        pinned,
    ] {
        let (mut world, controller) = World::new().with_controller();
        let node = world.silent_node(1);
        let failure = world.refused(controller, start.clone());
        assert!(!failure.never, "{failure:?}");
        world.ready_as(node, |_| ());
        world.advance(Duration::from_millis(100));
        let failure = world.refused(controller, start);
        assert!(failure.never, "{failure:?}");
    }
}

#[test]
fn what_nodes_of_one_reason_have_is_not_mixed_up_with_what_others_have() {
    let failure = refused_by([(100, 64), (1000, 1)]);
    let found: Vec<_> = failure
        .reasons
        .iter()
        .map(|reason| (reason.reason.clone(), reason.capacity, reason.never))
        .collect();
    let expected = [
        (ReasonKind::Memory, Some(100), true),
        (ReasonKind::Vcpus, Some(1), true),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_node_whose_queue_fills_is_short_of_what_it_lacks() {
    let (mut world, controller, node) = World::new().with_node(1000);
    backlog(&mut world, node, Backlog::Filling);
    let failure = world.refused(controller, request("x", 2000));
    assert_eq!(counts(&failure), [(ReasonKind::Memory, 1)]);
    assert_eq!(world.place(controller, "y", 1), Some(node));
}

#[test]
fn explanations_of_an_earlier_policy_are_not_given() {
    let (mut world, controller, _) = World::new().with_node(1000);
    let start = |name: &str| requiring(name, 1, &["zone = us-1"]).waiting(30);
    world.start_as(controller, start("a"));
    assert_eq!(world.failures(controller).len(), 1, "no node could run it");
    let without_labels = PolicyRules {
        filters: Some(vec![FilterRule {
            name: "pin".into(),
            max: None,
        }]),
        ..PolicyRules::default()
    };
    let rules = Rules {
        policy: without_labels,
        ..Rules::default()
    };
    world.configure(controller, Some(rules));
    // The only node is full, so that the START waits.
    world.place(controller, "full", 1000).expect("it fits");
    world.start_as(controller, start("b"));
    assert_eq!(world.failures(controller), []);
}
