//! What Nova's users know as hints, isolated hosts, aggregate limits and multipliers, and alternates.

use proto_frames::Kind;
use proto_frames::payload::{ReasonKind, Scheduling, Span};
use sched_core::{
    Aggregate, InstanceReport, NodeExtras, NodeName, PolicyRules, Rules, SessionId, StartRequest,
    WeigherRule,
};

use crate::support::words::{asking, resources, tried};
use crate::support::world::{World, config, node_uuid, request, running};

/// A START that must, or must not, be with these instances.
fn hinted(name: &str, same: &[&str], different: &[&str]) -> StartRequest {
    let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    let scheduling = Scheduling {
        same_node: owned(same),
        different_node: owned(different),
        ..Scheduling::default()
    };
    asking(name, 1, scheduling)
}

fn with_image(name: &str, image: &str) -> StartRequest {
    StartRequest {
        image: Some(image.into()),
        ..request(name, 1)
    }
}

/// An aggregate of these nodes.
fn of_nodes(name: &str, nodes: &[u64]) -> Aggregate {
    let nodes = nodes.iter().map(|&it| NodeName::Uuid(node_uuid(it)));
    Aggregate {
        name: name.into(),
        nodes: nodes.collect(),
        ..Aggregate::default()
    }
}

fn ruled(aggregates: Vec<Aggregate>, policy: PolicyRules) -> World {
    let rules = Rules {
        aggregates,
        policy,
        ..Rules::default()
    };
    rules.check().expect("these rules hold together");
    World::ruled(config(), rules)
}

fn weighing(name: &str, multiplier: f64) -> PolicyRules {
    PolicyRules {
        weighers: vec![WeigherRule {
            name: name.into(),
            multiplier,
        }],
        ..PolicyRules::default()
    }
}

/// The reason that most nodes fail for.
fn reason(world: &mut World, controller: SessionId, start: StartRequest) -> (ReasonKind, String) {
    let mut decision = world.decided(controller, tried(start, 1));
    assert_eq!(decision.fits, 0);
    let first = decision.reasons.remove(0);
    (first.reason, first.what)
}

#[test]
fn a_start_goes_to_the_node_of_another_instance_or_to_none_of_theirs() {
    let (mut world, controller) = World::new().with_controller();
    let nodes = [1, 2, 3].map(|number| world.labelled(number, &[]));
    assert_eq!(world.place(controller, "a", 1), Some(nodes[0]));
    assert_eq!(world.place(controller, "b", 1), Some(nodes[1]));
    let start = hinted("c", &["b", "nowhere"], &[]);
    assert_eq!(world.place_as(controller, start), Some(nodes[1]));
    for _ in 0..3 {
        let start = hinted("d", &[], &["a", "c", "nowhere"]);
        let decision = world.decided(controller, tried(start, 1));
        let third = world.uuid_of(nodes[2]).to_string();
        assert_eq!(decision.placements[0].node_uuid, third);
    }
    let both = hinted("e", &["a"], &["a"]);
    assert_eq!(world.place_as(controller, both), None);
    let found = reason(&mut world, controller, hinted("f", &["nowhere"], &[]));
    assert_eq!(found, (ReasonKind::SameNode, String::new()));
    world.labelled(4, &[]);
    let everywhere = hinted("g", &[], &["a", "b"]);
    let decision = world.decided(controller, tried(everywhere, 3));
    assert_eq!(decision.fits, 3, "they are not kept apart from each other");
}

#[test]
fn who_waits_for_the_end_of_another_instance_gets_its_node() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.labelled(1, &[]);
    assert_eq!(world.place(controller, "a", 1), Some(node));
    world.stats(node, vec![running("a", 1)]);
    let mut start = hinted("b", &[], &["a"]);
    let scheduling = start.scheduling.as_mut().expect("it has hints");
    scheduling.queue = Some(Span::from_ms(60_000));
    assert_eq!(world.place_as(controller, start), None);
    world.look_away();
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    assert_eq!(world.placements().pop().map(|(_, node)| node), Some(node));
}

#[test]
fn isolated_images_run_on_their_nodes_alone_also_while_there_is_none() {
    let licensed = Aggregate {
        images: vec!["windows".into()],
        images_only: true,
        ..of_nodes("licensed", &[2])
    };
    let mut world = ruled(vec![licensed], PolicyRules::default());
    let controller = world.controller();
    let plain = world.labelled(1, &[]);
    let found = reason(&mut world, controller, with_image("a", "windows"));
    assert_eq!(found, (ReasonKind::Images, "windows".to_owned()));
    let licensed = world.labelled(2, &[]);
    for name in ["b", "c", "d"] {
        let start = with_image(name, "windows");
        assert_eq!(world.place_as(controller, start), Some(licensed));
    }
    for name in ["e", "f", "g"] {
        let start = with_image(name, "linux");
        assert_eq!(world.place_as(controller, start), Some(plain));
    }
    for name in ["h", "i"] {
        assert_eq!(world.place(controller, name, 1), Some(plain));
    }
    world.status(plain, Kind::FULL);
    let found = reason(&mut world, controller, request("j", 1));
    assert!(
        matches!(found.0, ReasonKind::NotReady | ReasonKind::Images),
        "{found:?}"
    );
}

#[test]
fn nodes_for_isolated_images_take_other_work_where_that_is_allowed() {
    let shared = Aggregate {
        images: vec!["windows".into()],
        images_only: false,
        ..of_nodes("shared", &[1])
    };
    let mut world = ruled(vec![shared], PolicyRules::default());
    let controller = world.controller();
    let node = world.labelled(1, &[]);
    assert_eq!(world.place(controller, "a", 1), Some(node));
    let start = with_image("b", "linux");
    assert_eq!(world.place_as(controller, start), Some(node));
}

#[test]
fn the_least_limit_of_a_nodes_aggregates_counts() {
    let of = |name: &str, max_instances: Option<i64>, max_starts: Option<i64>| Aggregate {
        max_instances,
        max_starts,
        ..of_nodes(name, &[1])
    };
    let aggregates = vec![
        of("a", Some(5), None),
        of("b", Some(2), Some(4)),
        of("c", None, Some(1)),
    ];
    let mut world = ruled(aggregates, PolicyRules::default());
    let controller = world.controller();
    let node = world.labelled(1, &[]);
    assert_eq!(world.place(controller, "i1", 1), Some(node));
    let found = reason(&mut world, controller, request("i2", 1));
    assert_eq!(found, (ReasonKind::Starts, String::new()));
    world.stats(node, vec![running("i1", 1)]);
    assert_eq!(world.place(controller, "i2", 1), Some(node));
    world.stats(node, vec![running("i1", 1), running("i2", 1)]);
    let found = reason(&mut world, controller, request("i3", 1));
    assert_eq!(found, (ReasonKind::Instances, String::new()));
    let other = world.labelled(2, &[]);
    for name in ["i3", "i4", "i5"] {
        assert_eq!(world.place(controller, name, 1), Some(other));
    }
}

#[test]
fn an_aggregate_turns_a_weigher_round_on_its_nodes() {
    let mut favoured = of_nodes("favoured", &[1]);
    favoured.multipliers = vec![("free-memory".into(), -1.0)];
    let mut world = ruled(vec![favoured], weighing("free-memory", 1.0));
    let controller = world.controller();
    let small = world.node_with(2, 100);
    world.node_with(1, 1000);
    // Node 1 is the best by its memory, and the aggregate makes that count against it.
    assert_eq!(world.place(controller, "a", 1), Some(small));
}

#[test]
fn of_several_aggregates_the_least_multiplier_counts() {
    for order in [[-1.0, 2.0], [2.0, -1.0]] {
        let aggregates = ["a", "b"].into_iter().zip(order).map(|(name, multiplier)| {
            let mut aggregate = of_nodes(name, &[1]);
            aggregate.multipliers = vec![("free-memory".into(), multiplier)];
            aggregate
        });
        let mut world = ruled(aggregates.collect(), weighing("free-memory", 1.0));
        let controller = world.controller();
        let small = world.node_with(2, 100);
        world.node_with(1, 1000);
        // Node 1 has the most memory, which counts against it by one aggregate and twice for it by the other.
        assert_eq!(world.place(controller, "a", 1), Some(small), "{order:?}");
    }
}

#[test]
fn a_multiplier_for_a_weigher_that_is_not_there_is_a_mistake() {
    let mut aggregate = of_nodes("a", &[1]);
    aggregate.multipliers = vec![("free-disk".into(), 2.0)];
    let rules = Rules {
        aggregates: vec![aggregate],
        policy: weighing("free-memory", 1.0),
        ..Rules::default()
    };
    let error = rules.check().expect_err("it has no effect").to_string();
    assert_eq!(
        error,
        "aggregates[0].multipliers.free-disk: the policy has no weigher 'free-disk', so that a multiplier has no effect; \
         list it in policy.weighers"
    );
}

#[test]
fn custom_resources_and_processor_use_are_weighed() {
    for (multiplier, expected) in [(1.0, 1), (-1.0, 0)] {
        let mut world = ruled(Vec::new(), weighing("resource.gpu", multiplier));
        let controller = world.controller();
        let nodes = [(1, 2), (2, 7)].map(|(number, gpus)| {
            let node = world.silent_node(number);
            world.ready_with(node, resources(&[("gpu", gpus)]));
            node
        });
        let placed = world.place(controller, "a", 1);
        assert_eq!(placed, Some(nodes[expected]), "resource.gpu {multiplier}");

        let mut world = ruled(Vec::new(), weighing("cpu-use", multiplier));
        let controller = world.controller();
        let nodes = [(1, 20), (2, 90)].map(|(number, percent)| {
            let node = world.labelled(number, &[]);
            let busy = InstanceReport {
                cpu_used_percent: percent,
                ..running(&format!("busy-{number}"), 1)
            };
            world.stats(node, vec![busy]);
            node
        });
        let placed = world.place(controller, "a", 1);
        assert_eq!(placed, Some(nodes[expected]), "cpu-use {multiplier}");
    }
}

#[test]
fn a_dry_run_names_alternates_best_first() {
    let mut world = ruled(Vec::new(), weighing("free-memory", 1.0));
    let controller = world.controller();
    let nodes =
        [(1, 300), (2, 900), (3, 500), (4, 5)].map(|(number, mem)| world.node_with(number, mem));
    let ask = |alternates: u32| {
        let mut start = tried(request("a", 10), 1);
        let scheduling = start.scheduling.as_mut().expect("a dry run");
        scheduling.alternates = Some(alternates);
        start
    };
    for (wanted, expected) in [(0, &[][..]), (1, &[nodes[2]]), (9, &[nodes[2], nodes[0]])] {
        let decision = world.decided(controller, ask(wanted));
        let uuid = |node: &SessionId| world.uuid_of(*node).to_string();
        assert_eq!(decision.placements[0].node_uuid, uuid(&nodes[1]));
        let found: Vec<&str> = decision
            .alternates
            .iter()
            .map(|it| &*it.node_uuid)
            .collect();
        let expected: Vec<String> = expected.iter().map(uuid).collect();
        assert_eq!(found, expected, "{wanted}");
    }
    // Nothing was claimed and no cursor moved by any of these.
    assert_eq!(world.place(controller, "b", 10), Some(nodes[1]));
}

#[test]
fn a_start_goes_where_its_volumes_are_if_it_can() {
    let volumes = |ids: &[&str]| NodeExtras {
        volumes: ids.iter().map(|it| (*it).into()).collect(),
        ..NodeExtras::default()
    };
    let attached = |name: &str, mem: i64, ids: &[&str]| StartRequest {
        volumes: ids.iter().map(|it| (*it).into()).collect(),
        ..request(name, mem)
    };
    let (mut world, controller) = World::new().with_controller();
    let nodes = [1, 2, 3].map(|number| world.labelled(number, &[]));
    world.stats_saying(nodes[1], volumes(&["v1", "v2"]));
    world.stats_saying(nodes[2], volumes(&["v2", "port"]));
    for (name, ids, at) in [
        ("a", &["v1"][..], 1),
        ("b", &["port"], 2),
        ("c", &["v2", "port"], 2),
        ("d", &["v1", "v2", "unheard of"], 1),
    ] {
        let placed = world.place_as(controller, attached(name, 1, ids));
        assert_eq!(placed, Some(nodes[at]), "{name}");
    }
    // As any START where no node reports them, and where no node that does has room.
    let placed = world.place_as(controller, attached("e", 1, &["unheard of"]));
    assert_eq!(placed, Some(nodes[2]), "the next in order");
    world.status(nodes[1], Kind::FULL);
    let placed = world.place_as(controller, attached("f", 1, &["v1"]));
    assert!(placed.is_some_and(|node| node != nodes[1]));
}
