//! Dry runs: what would be done with a START, without doing it.

use proto_frames::Kind;
use proto_frames::payload::{
    Batch, Group, GroupPolicy, PlacementDecision, ReasonKind, Scheduling, StartFailureReason,
};
use sched_core::{InstanceReport, PolicyRules, Rules, SessionId, StartRequest, WeigherRule};

use crate::support::requests::Asking;
use crate::support::words::{asking, group, member, needing, requiring, resources, tried};
use crate::support::world::{World, config, request, running};

/// Where a decision puts instances: the node's session, and how many.
fn found(
    world: &World,
    decision: &PlacementDecision,
    nodes: &[SessionId],
) -> Vec<(SessionId, u32)> {
    let session = |uuid: &str| {
        let mut nodes = nodes.iter();
        nodes.find(|node| world.uuid_of(**node).to_string() == uuid)
    };
    let placements = decision.placements.iter();
    placements
        .map(|placement| {
            let node = session(&placement.node_uuid).expect("it is one of these nodes");
            assert_eq!(placement.hostname, format!("host-{}", node.0));
            (*node, placement.count)
        })
        .collect()
}

#[test]
fn a_dry_run_claims_nothing_and_starts_nothing() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    world.ready_with(node, resources(&[("gpu", 1)]));
    let ask = |name: &str| needing(name, 1000, "gpu", 1);
    for _ in 0..3 {
        let decision = world.decided(controller, tried(ask("a"), 1));
        assert_eq!((decision.count, decision.fits), (1, 1));
        assert_eq!(found(&world, &decision, &[node]), [(node, 1)]);
        assert_eq!(decision.instance_uuid, "a");
        assert!(decision.reasons.is_empty() && decision.detail.is_empty());
    }
    assert_eq!(world.place_as(controller, ask("a")), Some(node));
}

#[test]
fn no_instance_has_a_name_that_a_dry_run_takes_for_its_own() {
    let (mut world, controller, node) = World::new().with_node(1000);
    let asked = request("", 600).asked;
    for name in ["\0dry run 0", "dry run 0", "dry-run-0"] {
        let large = InstanceReport {
            requested: Some(asked),
            ..running(name, 0)
        };
        world.stats(node, vec![large]);
        let decision = world.decided(controller, tried(request("x", 100), 10));
        assert_eq!(decision.fits, 4, "{name}");
        assert_eq!(world.place(controller, "y", 401), None, "{name}");
        world.gone(node, Kind::INSTANCE_DELETED, name);
    }
}

#[test]
fn a_dry_run_that_takes_too_long_says_how_far_it_came() {
    let (mut world, controller) = World::new().check_every(1000).with_controller();
    for number in 0..500 {
        world.labelled(number, &[]);
    }
    let all = tried(request("x", 0), 10_000);
    assert_eq!(
        world.decided(controller, all).fits,
        10_000,
        "nothing is in its way"
    );
    let last = world.labelled(500, &[]);
    world.ready_as(last, |report| report.load = 1);
    // Looks at every node for each.
    let facts = tried(requiring("x", 0, &["node.load > 0"]), 10_000);
    let decision = world.decided(controller, facts);
    assert!((1990..2010).contains(&decision.fits), "{}", decision.fits);
    assert!(
        decision.detail.contains("were tried: more take too long"),
        "{}",
        decision.detail
    );
}

#[test]
fn the_next_start_goes_where_the_dry_run_said() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (1..6)
        .map(|number| {
            world.labelled(
                number,
                &[("parity", if number % 2 == 0 { "even" } else { "odd" })],
            )
        })
        .collect();
    for round in 0..10 {
        let name = format!("i-{round}");
        let start = match round % 3 {
            0 => request(&name, 100),
            1 => requiring(&name, 100, &["parity = even"]),
            _ => member(&name, &group("web", GroupPolicy::SoftAntiAffinity)),
        };
        let decision = world.decided(controller, tried(start.clone(), 7));
        let expected = found(&world, &decision, &nodes)[0].0;
        assert_eq!(world.place_as(controller, start), Some(expected), "{round}");
    }
}

#[test]
fn what_is_left_to_chance_is_not_used_up() {
    let policy = PolicyRules {
        weighers: vec![WeigherRule {
            name: "free-disk".into(),
            multiplier: 1.0,
        }],
        subset_size: 4,
        ..PolicyRules::default()
    };
    let rules = Rules {
        policy,
        ..Rules::default()
    };
    let (mut world, controller) = World::ruled(config(), rules).with_controller();
    let nodes: Vec<_> = (1..9).map(|number| world.node_with(number, 1000)).collect();
    for round in 0..20 {
        let start = request(&round.to_string(), 1);
        let decision = world.decided(controller, tried(start.clone(), 5));
        let expected = found(&world, &decision, &nodes)[0].0;
        assert_eq!(world.place_as(controller, start), Some(expected), "{round}");
    }
}

#[test]
fn so_many_of_a_kind_are_counted_over_all_nodes_in_the_order_of_their_choice() {
    let (mut world, controller) = World::new().with_controller();
    let nodes = [
        world.node_with(1, 1000),
        world.node_with(2, 2500),
        world.node_with(3, 100),
        world.node_with(4, 1000),
    ];
    assert_eq!(world.place(controller, "before", 1), Some(nodes[0]));
    let decision = world.decided(controller, tried(request("x", 500), 7));
    assert_eq!((decision.count, decision.fits), (7, 7));
    let expected = [(nodes[1], 4), (nodes[3], 2), (nodes[0], 1)];
    assert_eq!(found(&world, &decision, &nodes), expected);
}

#[test]
fn what_does_not_fit_any_more_is_explained() {
    let (mut world, controller) = World::new().with_controller();
    let nodes = [world.node_with(1, 1000), world.node_with(2, 700)];
    let decision = world.decided(controller, tried(request("x", 400), 10));
    assert_eq!((decision.count, decision.fits), (10, 3));
    assert_eq!(
        found(&world, &decision, &nodes),
        [(nodes[0], 2), (nodes[1], 1)]
    );
    assert_eq!(decision.reason, StartFailureReason::FullCloud);
    assert_eq!(decision.reasons.len(), 1);
    let reason = &decision.reasons[0];
    assert_eq!((&reason.reason, reason.nodes), (&ReasonKind::Memory, 2));
    assert_eq!(reason.best, Some(300), "after those that fit");
    assert!(!decision.never);
    let decision = world.decided(controller, tried(request("x", 1001), 2));
    assert_eq!(decision.fits, 0);
    assert!(decision.never && decision.placements.is_empty());
}

#[test]
fn a_group_of_at_most_so_many_on_a_node_is_kept_in_a_dry_run() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (1..4).map(|number| world.labelled(number, &[])).collect();
    let web = Group {
        max: Some(2),
        ..group("web", GroupPolicy::AntiAffinity)
    };
    world.place_as(controller, member("first", &web));
    let decision = world.decided(controller, tried(member("x", &web), 10));
    assert_eq!(decision.fits, 5);
    let expected = [(nodes[1], 2), (nodes[2], 2), (nodes[0], 1)];
    assert_eq!(found(&world, &decision, &nodes), expected);
    assert_eq!(decision.reasons[0].reason, ReasonKind::Group);
    assert!(!decision.never);
    for name in ["a", "b", "c", "d", "e"] {
        assert!(world.place_as(controller, member(name, &web)).is_some());
    }
    assert_eq!(world.place_as(controller, member("f", &web)), None);
}

#[test]
fn operators_may_ask_as_controllers_may() {
    let (mut world, controller) = World::new().with_controller();
    let operator = world.operator(&[]);
    let node = world.node_with(1, 1000);
    for session in [controller, operator] {
        let decision = world.decided(session, tried(request("x", 1), 1));
        assert_eq!(found(&world, &decision, &[node]), [(node, 1)]);
    }
}

#[test]
fn who_could_not_read_the_answer_is_refused_and_nothing_is_started() {
    let mut world = World::new();
    let controller = world.original_controller();
    world.node_with(1, 1000);
    let failure = world.refused(controller, tried(request("x", 1), 1));
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
}

#[test]
fn a_dry_run_is_of_no_batch() {
    let (mut world, controller, _) = World::new().with_node(1000);
    let scheduling = Scheduling {
        batch: Some(Batch {
            id: "b".to_owned(),
            count: 1,
        }),
        ..Scheduling::default()
    };
    let failure = world.refused(controller, tried(asking("x", 1, scheduling), 1));
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    let detail = failure.detail.unwrap_or_default();
    assert!(detail.starts_with("start.scheduling.dry_run: "), "{detail}");
}

#[test]
fn an_instance_that_runs_is_not_disturbed_by_a_dry_run_of_it() {
    let (mut world, controller, [holder, other]) = World::new().with_nodes([1000, 1000]);
    assert_eq!(world.place(controller, "x", 600), Some(holder));
    world.stats(holder, vec![running("x", 1)]);
    let decision = world.decided(controller, tried(request("x", 600), 1));
    assert_eq!(
        found(&world, &decision, &[holder, other]),
        [(holder, 1)],
        "where a START of it would go"
    );
    assert_eq!(world.place(controller, "x", 600), Some(holder));
    assert_eq!(world.place(controller, "y", 600), Some(other));
}

#[test]
fn a_dry_run_without_nodes_says_so() {
    let (mut world, controller) = World::new().with_controller();
    for (network_node, reason) in [
        (false, StartFailureReason::NoComputeNodes),
        (true, StartFailureReason::NoNetworkNodes),
    ] {
        let start = StartRequest {
            network_node,
            ..request("x", 1)
        };
        let decision = world.decided(controller, tried(start, 3));
        assert_eq!((decision.fits, decision.count), (0, 3));
        assert_eq!(decision.reason, reason);
        assert!(!decision.detail.is_empty() && !decision.never);
    }
}

#[test]
fn a_dry_run_says_that_a_name_is_taken() {
    let (mut world, controller, _) = World::new().with_node(1000);
    let web = |instance: &str| {
        let start = request(instance, 100).priority(50);
        start.placed_as(|it| it.name = "web".into())
    };
    world.place_as(controller, web("a")).expect("it fits");
    let decision = world.decided(controller, tried(web("b"), 1));
    assert_eq!(decision.fits, 0);
    assert!(
        decision.detail.contains("'web' is the name of"),
        "{}",
        decision.detail
    );
    let failure = world.refused(controller, web("b"));
    assert_eq!(failure.reason, decision.reason);
    // Several have no names, so none is taken.
    assert_eq!(world.decided(controller, tried(web("b"), 3)).fits, 3);
}
