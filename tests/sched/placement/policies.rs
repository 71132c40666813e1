//! Policies: which filters are asked, what is weighed, and what a START may insist on under them.

use std::time::Duration;

use proto_frames::payload::{GroupPolicy, ReasonKind, Scheduling, StartFailureReason};
use sched_core::{
    Aggregate, FilterRule, NodeName, PolicyRules, Rules, SessionId, StartRequest, WeigherRule,
};

use crate::support::words::{asking, group, labels, member, near, preferring, requiring, tried};
use crate::support::world::{Size, World, config, node_uuid, request, running};

fn filters(rules: &[(&str, Option<i64>)]) -> PolicyRules {
    let rule = |(name, max): &(&str, Option<i64>)| FilterRule {
        name: (*name).into(),
        max: *max,
    };
    PolicyRules {
        filters: Some(rules.iter().map(rule).collect()),
        ..PolicyRules::default()
    }
}

fn weighers(rules: &[(&str, f64)]) -> PolicyRules {
    let rule = |(name, multiplier): &(&str, f64)| WeigherRule {
        name: (*name).into(),
        multiplier: *multiplier,
    };
    PolicyRules {
        weighers: rules.iter().map(rule).collect(),
        ..PolicyRules::default()
    }
}

fn preset(name: &str) -> PolicyRules {
    PolicyRules::preset(name).expect("there is such a preset")
}

fn ruling(policy: PolicyRules) -> Rules {
    Rules {
        policy,
        ..Rules::default()
    }
}

fn under(policy: PolicyRules) -> World {
    World::ruled(config(), ruling(policy))
}

/// A controller, and nodes that have so much memory.
fn sized(world: &mut World, sizes: &[i64]) -> (SessionId, Vec<SessionId>) {
    let controller = world.controller();
    let nodes = (1..).zip(sizes);
    let nodes = nodes.map(|(number, &mem)| world.node_with(number, mem));
    (controller, nodes.collect())
}

#[test]
fn spread_takes_the_emptiest_node_and_pack_the_fullest_that_fits() {
    for (name, expected) in [("spread", [2, 2, 1]), ("pack", [1, 1, 2])] {
        let mut world = under(preset(name));
        let (controller, nodes) = sized(&mut world, &[50, 300, 1000]);
        // After two of them nodes 1 and 2 have 100 and 1000, or 300 and 600: a third fits the other one only, or better.
        let mems = if name == "pack" {
            [100, 100, 200]
        } else {
            [200, 600, 150]
        };
        for (mem, at) in mems.into_iter().zip(expected) {
            let start = format!("{name}-{at}-{mem}");
            assert_eq!(
                world.place(controller, &start, mem),
                Some(nodes[at]),
                "{start}"
            );
        }
    }
}

#[test]
fn first_fit_is_what_is_done_without_a_policy() {
    let mut world = under(preset("first-fit"));
    let (controller, nodes) = sized(&mut world, &[100, 1000, 500]);
    for (name, at) in [("a", 0), ("b", 1), ("c", 2), ("d", 0)] {
        assert_eq!(world.place(controller, name, 1), Some(nodes[at]));
    }
    assert_eq!(PolicyRules::preset("best"), None);
}

#[test]
fn every_weigher_prefers_more_of_its_figure_and_less_with_a_negative_multiplier() {
    for name in [
        "free-memory",
        "free-cpu",
        "free-disk",
        "starts-under-way",
        "instances",
        "load",
        "failures",
    ] {
        for (multiplier, expected) in [(1.0, 1), (-1.0, 0)] {
            let mut world = under(weighers(&[(name, multiplier)]));
            let controller = world.controller();
            let low = world.silent_node(1);
            world.ready_as(low, |report| report.cpus_online = 50);
            let pinned = |name: &str| StartRequest {
                node_id: Some(node_uuid(2).to_string().into()),
                ..request(name, 0)
            };
            let high = world.silent_node(2);
            world.ready_as(high, |report| {
                (report.mem_total_mib, report.mem_available_mib) = (2000, 2000);
                (report.disk_total_mb, report.disk_available_mb) = (20_000, 20_000);
                report.load = 7;
            });
            world.start_as(controller, pinned("failing"));
            world.start_failed(high, "failing", StartFailureReason::LaunchFailure);
            world.start_as(controller, pinned("under way"));
            let nodes = [low, high];
            for start in ["a", "b"] {
                let decision = world.decided(controller, tried(request(start, 1), 1));
                let found = &decision.placements[0].node_uuid;
                let expected = world.uuid_of(nodes[expected]).to_string();
                assert_eq!(*found, expected, "{name} {multiplier}");
            }
        }
    }
}

#[test]
fn of_equals_the_first_in_the_order_of_the_search_is_taken() {
    let mut world = under(weighers(&[("load", -1.0)]));
    let (controller, nodes) = sized(&mut world, &[100, 100, 100]);
    for (name, at) in [("a", 0), ("b", 1), ("c", 2), ("d", 0)] {
        assert_eq!(world.place(controller, name, 1), Some(nodes[at]));
    }
}

#[test]
fn what_is_weighed_more_counts_more() {
    for (memory, expected) in [(1.0, 1), (3.0, 0)] {
        let mut world = under(weighers(&[("free-memory", memory), ("free-cpu", 2.0)]));
        let controller = world.controller();
        let mut node = |number, mem, cpus| {
            let size = Size {
                mem,
                cpus,
                ..Size::default()
            };
            world.node(number, size)
        };
        let nodes = [node(1, 1000, 1), node(2, 10, 100)];
        assert_eq!(world.place(controller, "a", 1), Some(nodes[expected]));
    }
}

#[test]
fn only_the_first_candidates_that_fit_are_weighed() {
    for (candidates, expected) in [(Some(1), 1), (Some(2), 2), (None, 3)] {
        let policy = PolicyRules {
            candidates,
            ..weighers(&[("free-memory", 1.0)])
        };
        let mut world = under(policy);
        let (controller, nodes) = sized(&mut world, &[10, 100, 200, 1000]);
        let placed = world.place(controller, "a", 50);
        assert_eq!(placed, Some(nodes[expected]), "{candidates:?}");
    }
}

fn drawn(seed: u64, starts: usize) -> Vec<usize> {
    let policy = PolicyRules {
        subset_size: 3,
        seed,
        ..weighers(&[("load", -1.0)])
    };
    let mut world = under(policy);
    let controller = world.controller();
    let mut nodes = Vec::new();
    for load in [9_i64, 1, 0, 8, 2] {
        let node = world.silent_node(load.unsigned_abs());
        world.ready_as(node, |report| report.load = load);
        nodes.push(node);
    }
    let mut place = |number: usize| {
        let node = world.place(controller, &number.to_string(), 1)?;
        nodes.iter().position(|&other| other == node)
    };
    (0..starts)
        .map(|number| place(number).expect("all fit"))
        .collect()
}

#[test]
fn chance_spreads_over_the_best_few_and_is_the_same_for_the_same_seed() {
    let first = drawn(7, 60);
    let mut used = first.clone();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used, [1, 2, 4], "the three with the least load");
    assert_eq!(drawn(7, 60), first);
    assert_ne!(drawn(8, 60), first);
}

#[test]
fn a_node_that_fails_is_avoided_and_used_again_in_time() {
    let mut world = under(preset("spread"));
    let (controller, nodes) = sized(&mut world, &[1000, 100]);
    assert_eq!(world.place(controller, "a", 1), Some(nodes[0]));
    world.start_failed(nodes[0], "a", StartFailureReason::LaunchFailure);
    for name in ["b", "c"] {
        assert_eq!(
            world.place(controller, name, 1),
            Some(nodes[1]),
            "however empty the failing one is"
        );
    }
    assert_eq!(
        world.place(controller, "large", 500),
        Some(nodes[0]),
        "it is the last choice, not forbidden"
    );
    world.advance(Duration::from_secs(3600));
    assert_eq!(world.place(controller, "d", 1), Some(nodes[0]));
}

#[test]
fn a_start_that_is_itself_at_fault_is_not_held_against_its_node() {
    let mut world = under(preset("spread"));
    let (controller, nodes) = sized(&mut world, &[1000, 100]);
    for reason in [
        StartFailureReason::InvalidData,
        StartFailureReason::FullComputeNode,
        StartFailureReason::AlreadyRunning,
    ] {
        let name = reason.to_string();
        assert_eq!(world.place(controller, &name, 1), Some(nodes[0]));
        world.start_failed(nodes[0], &name, reason);
    }
    assert_eq!(world.place(controller, "next", 1), Some(nodes[0]));
}

#[test]
fn preferences_count_more_than_what_a_preset_spreads() {
    let mut world = under(preset("spread"));
    let controller = world.controller();
    world.labelled(1, &[]);
    let small = world.silent_node(2);
    world.ready_as(small, |report| {
        report.mem_available_mib = 10;
        report.extras = Some(Box::new(labels(&[("rack", "r7")])));
    });
    let start = preferring("a", 1, &["rack = r7"]);
    assert_eq!(world.place_as(controller, start), Some(small));
}

#[test]
fn an_image_that_is_there_already_draws_its_starts() {
    let mut world = under(weighers(&[("image", 1.0)]));
    let controller = world.controller();
    let without = world.labelled(1, &[("image.debian", "true")]);
    let with = world.labelled(2, &[("image.ubuntu-24.04", "true")]);
    let of = |name: &str, image: Option<&str>| StartRequest {
        image: image.map(Into::into),
        ..request(name, 1)
    };
    for name in ["a", "b"] {
        let placed = world.place_as(controller, of(name, Some("ubuntu-24.04")));
        assert_eq!(placed, Some(with));
    }
    let placed = world.place_as(controller, of("c", Some("alpine")));
    assert_eq!(placed, Some(without), "nobody has it: first fit");
    assert_eq!(world.place_as(controller, of("d", None)), Some(with));
}

#[test]
fn the_one_node_of_many_that_has_the_image_is_found_wherever_it_is() {
    let mut world = under(weighers(&[("image", 1.0)]));
    let controller = world.controller();
    let nodes: Vec<_> = (0..200)
        .map(|number| world.node_with(number, 1000))
        .collect();
    world.ready_with(nodes[150], labels(&[("image.ubuntu", "true")]));
    let start = StartRequest {
        image: Some("ubuntu".into()),
        ..request("a", 1)
    };
    assert_eq!(world.place_as(controller, start), Some(nodes[150]));
}

#[test]
fn a_node_gets_no_more_starts_at_once_than_the_policy_says() {
    let mut world = under(filters(&[("starts-under-way", Some(2))]));
    let (controller, nodes) = sized(&mut world, &[1000]);
    for name in ["a", "b"] {
        assert_eq!(world.place(controller, name, 1), Some(nodes[0]));
    }
    let failure = world.refused(controller, request("c", 1));
    assert_eq!(failure.reasons[0].reason, ReasonKind::Starts);
    assert!(!failure.never);
    world.stats(nodes[0], vec![running("a", 1)]);
    assert_eq!(world.place(controller, "d", 1), Some(nodes[0]));
}

#[test]
fn a_node_gets_no_more_instances_than_the_policy_says() {
    let mut world = under(filters(&[("instances", Some(2))]));
    let (controller, nodes) = sized(&mut world, &[1000]);
    world.stats(nodes[0], vec![running("old", 1)]);
    assert_eq!(world.place(controller, "a", 1), Some(nodes[0]));
    let failure = world.refused(controller, request("b", 1));
    assert_eq!(failure.reasons[0].reason, ReasonKind::Instances);
    assert!(!failure.never);
    world.gone(nodes[0], proto_frames::Kind::INSTANCE_DELETED, "old");
    assert_eq!(world.place(controller, "c", 1), Some(nodes[0]));
}

#[test]
fn a_node_with_more_load_than_the_policy_says_takes_nothing() {
    let mut world = under(filters(&[("load", Some(4))]));
    let controller = world.controller();
    let node = world.silent_node(1);
    for (load, fits) in [(5, false), (4, true), (0, true), (-1, true)] {
        world.ready_as(node, |report| report.load = load);
        let placed = world.place(controller, &load.to_string(), 1);
        assert_eq!(placed.is_some(), fits, "{load}");
    }
    world.ready_as(node, |report| report.load = 5);
    let failure = world.refused(controller, request("x", 1));
    let other = ReasonKind::Other("load".to_owned());
    assert_eq!(failure.reasons[0].reason, other);
    assert!(!failure.never);
}

#[test]
fn rules_that_do_not_hold_together_are_told_by_their_key() {
    let no_candidates = PolicyRules {
        candidates: Some(0),
        ..PolicyRules::default()
    };
    let no_subset = PolicyRules {
        subset_size: 0,
        ..PolicyRules::default()
    };
    for (policy, key, problem) in [
        (
            filters(&[("pin", None), ("pins", None)]),
            "policy.filters[1]",
            "there is no filter 'pins'; there are pin, avoid, tenants, lease, vm_type, images, image-fetch, run-limits, aggregate-instances, aggregate-starts, labels, near, group, \
             same-node, different-node, volumes, starts-under-way, instances, load, load_per_cpu",
        ),
        (
            filters(&[("pin", Some(1))]),
            "policy.filters[0]",
            "filter 'pin' has no max",
        ),
        (
            filters(&[("load", None)]),
            "policy.filters[0]",
            "filter 'load' needs a max",
        ),
        (
            filters(&[("load", Some(-1))]),
            "policy.filters[0]",
            "max is -1: expected a number from 0",
        ),
        (
            weighers(&[("free-ram", 1.0)]),
            "policy.weighers[0]",
            "there is no weigher 'free-ram'; there are free-memory, free-cpu, free-disk, starts-under-way, instances, \
             load, cpu-use, failures, image, prefer, soft-affinity, near, volumes, resource.NAME",
        ),
        (
            weighers(&[("load", f64::NAN)]),
            "policy.weighers[0]",
            "multiplier is NaN: expected a number",
        ),
        (
            no_candidates,
            "policy.candidates",
            "expected a number above 0",
        ),
        (no_subset, "policy.subset_size", "expected a number above 0"),
        (
            filters(&[("load", Some(8)); 55]),
            "policy.filters",
            "with those that every policy has there are 65; at most 64 are possible: list each once",
        ),
        (
            weighers(&[("load", 1.0); 61]),
            "policy.weighers",
            "with those that every policy has there are 65; at most 64 are possible: list each once",
        ),
    ] {
        let error = ruling(policy).check().expect_err(key);
        assert_eq!((error.key.as_str(), error.problem.as_str()), (key, problem));
    }
}

fn insisting(on: &str, scheduling: Scheduling) -> StartRequest {
    let scheduling = Scheduling {
        must_understand: vec![on.to_owned()],
        ..scheduling
    };
    asking(on, 1, scheduling)
}

#[test]
fn a_key_that_nothing_weighs_cannot_be_insisted_on() {
    let image = Scheduling {
        image: "ubuntu".to_owned(),
        ..Scheduling::default()
    };
    let preferred = preferring("a", 1, &["zone = x"]);
    let prefer = preferred.scheduling.as_deref().cloned().unwrap_or_default();
    let weighing = |name, multiplier| weighers(&[(name, multiplier)]);
    for (key, scheduling, policy, is_understood) in [
        ("image", &image, PolicyRules::default(), false),
        ("image", &image, weighing("image", 0.0), false),
        ("image", &image, weighing("image", 1.0), true),
        ("prefer", &prefer, PolicyRules::default(), true),
        ("prefer", &prefer, weighing("prefer", 0.0), false),
        ("prefer", &prefer, weighing("free-memory", 1.0), true),
    ] {
        let mut world = under(policy.clone());
        let controller = world.controller();
        let node = world.labelled(1, &[]);
        let found = world.place_as(controller, insisting(key, scheduling.clone()));
        let expected = is_understood.then_some(node);
        assert_eq!(found, expected, "{key} under {policy:?}");
    }
}

#[test]
fn a_key_that_the_policy_leaves_without_effect_cannot_be_insisted_on() {
    let mut world = under(filters(&[("pin", None), ("tenants", None)]));
    let controller = world.controller();
    let node = world.labelled(1, &[]);
    let web = member("a", &group("web", GroupPolicy::AntiAffinity));
    let of_group = web.scheduling.as_deref().cloned().unwrap_or_default();
    let zoned = requiring("b", 1, &["zone = x"]);
    let required = zoned.scheduling.as_deref().cloned().unwrap_or_default();
    let close = near("c", "volume", "node", true);
    let close = close.scheduling.as_deref().cloned().unwrap_or_default();
    for (key, scheduling) in [("group", of_group), ("require", required), ("near", close)] {
        let failure = world.refused(controller, insisting(key, scheduling));
        assert_eq!(failure.reason, StartFailureReason::InvalidData);
        let detail = failure.detail.unwrap_or_default();
        let expected = format!("start.scheduling.must_understand[0]: '{key}' has no effect here");
        assert!(detail.starts_with(&expected), "{detail}");
    }
    assert_eq!(
        world.place_as(controller, web),
        Some(node),
        "who does not insist is placed without"
    );
}

#[test]
fn every_key_of_this_version_can_be_insisted_on() {
    let mut world = under(weighers(&[("image", 1.0)]));
    let controller = world.controller();
    let node = world.labelled(1, &[]);
    for key in Scheduling::KEYS {
        let start = insisting(key, Scheduling::default());
        assert_eq!(world.place_as(controller, start), Some(node), "{key}");
    }
}

#[test]
fn a_fact_that_there_is_not_is_refused_with_those_there_are() {
    let (mut world, controller) = World::new().with_controller();
    world.labelled(1, &[]);
    for (start, key) in [
        (
            requiring("a", 1, &["zone = x", "node.cpu > 4"]),
            "require[1]",
        ),
        (preferring("b", 1, &["node.cpu > 4"]), "prefer[0]"),
    ] {
        let failure = world.refused(controller, start);
        assert_eq!(failure.reason, StartFailureReason::InvalidData);
        let detail = failure.detail.unwrap_or_default();
        let expected = format!("start.scheduling.{key}: there is no fact 'node.cpu'; there are ");
        assert!(detail.starts_with(&expected), "{detail}");
        assert!(detail.contains("node.cpus, node.load"), "{detail}");
    }
}

#[test]
fn a_new_configuration_is_in_force_for_the_next_start() {
    let mut world = World::new();
    let (controller, nodes) = sized(&mut world, &[100, 1000]);
    assert_eq!(world.place(controller, "a", 1), Some(nodes[0]));
    let zoned = Aggregate {
        name: "west".into(),
        zone: Some("west".into()),
        nodes: vec![NodeName::new(&node_uuid(1).to_string())],
        ..Aggregate::default()
    };
    let rules = Rules {
        aggregates: vec![zoned],
        ..ruling(preset("spread"))
    };
    world.configure(controller, Some(rules));
    for name in ["b", "c"] {
        assert_eq!(world.place(controller, name, 1), Some(nodes[1]));
    }
    let west = |name: &str| requiring(name, 1, &["zone = west"]);
    assert_eq!(world.place_as(controller, west("d")), Some(nodes[0]));
    world.configure(controller, None);
    assert_eq!(world.place(controller, "e", 1), Some(nodes[1]));
    assert_eq!(
        world.place_as(controller, west("f")),
        Some(nodes[0]),
        "a configuration without rules changes none"
    );
    world.configure(controller, Some(Rules::default()));
    assert_eq!(world.place_as(controller, west("g")), None);
    assert_eq!(world.place(controller, "h", 1), Some(nodes[1]));
    assert_eq!(world.place(controller, "i", 1), Some(nodes[0]));
}

#[test]
fn a_new_configuration_whose_rules_do_not_hold_together_changes_none() {
    let mut world = under(preset("spread"));
    let (controller, nodes) = sized(&mut world, &[100, 1000]);
    world.configure(controller, Some(ruling(weighers(&[("luck", 1.0)]))));
    assert_eq!(world.place(controller, "a", 1), Some(nodes[1]));
}
