//! A launcher is told what its node offers, before the first START and when that changes: not with every report.

use proto_frames::Role;
use sched_core::{
    Accounting, Capabilities, CapacityRule, Config, Dialect, Message, NodeExtras, OfferRules,
    Rules, SessionId,
};

use crate::support::world::{Size, World, config, node_uuid, report};

/// Reports room, a label, and that it can be told.
fn says(world: &mut World, node: SessionId, zone: &str, capabilities: Capabilities) {
    let mut said = report(Size::of_mem(1000));
    said.extras = Some(Box::new(NodeExtras {
        capabilities,
        labels: vec![("zone".into(), zone.into())],
        ..NodeExtras::default()
    }));
    world.report(node, said);
}

/// What a node was told since the last look, and of whatever else in which order.
fn told(world: &mut World, node: SessionId) -> Vec<Option<OfferRules>> {
    let told = world.told(node).into_iter();
    told.map(|message| match message {
        Message::OfferRules(rules) => Some(*rules),
        _ => None,
    })
    .collect()
}

fn rules(zone: &str, mem_ratio: f64) -> Rules {
    Rules {
        capacity: vec![CapacityRule {
            select: vec![format!("zone = {zone}").parse().expect("an expression")],
            mem_ratio: Some(mem_ratio),
            reserved_cpus: Some(1),
            ..CapacityRule::default()
        }],
        ..Rules::default()
    }
}

#[test]
fn a_launcher_is_told_before_its_first_start_and_when_rules_or_labels_change_it() {
    let mut world = World::with(Config {
        mem_ratio: 2.0,
        accounting: Accounting::Measured,
        ..config()
    });
    let controller = world.controller();
    let node = world.silent_node(1);
    world.look_away();
    says(&mut world, node, "a", Capabilities::CAPACITY);
    world.start(controller, "web", 1500);
    let first = told(&mut world, node);
    let [Some(rules_told), None] = first[..] else {
        panic!("the rules, and then a START: {first:?}")
    };
    assert_eq!((rules_told.mem_ratio, rules_told.reserved_cpus), (2.0, 0));
    assert_eq!(rules_told.accounting, Accounting::Measured);

    says(&mut world, node, "a", Capabilities::CAPACITY);
    world.configure_rules(controller, rules("b", 3.0));
    assert_eq!(told(&mut world, node), [], "nothing is new to it");

    says(&mut world, node, "b", Capabilities::CAPACITY);
    let [Some(now)] = told(&mut world, node)[..] else {
        panic!("its label has changed")
    };
    assert_eq!((now.mem_ratio, now.reserved_cpus), (3.0, 1));
    world.configure_rules(controller, rules("b", 1.5));
    let [Some(now)] = told(&mut world, node)[..] else {
        panic!("the rule has changed")
    };
    assert_eq!((now.mem_ratio, now.reserved_cpus), (1.5, 1));
}

#[test]
fn it_is_told_again_on_each_connection() {
    let mut world = World::new();
    let node = world.silent_node(1);
    says(&mut world, node, "a", Capabilities::CAPACITY);
    assert_eq!(told(&mut world, node).iter().flatten().count(), 1);
    world.cut(node);
    let node = world.silent_node(1);
    says(&mut world, node, "a", Capabilities::CAPACITY);
    assert_eq!(told(&mut world, node).iter().flatten().count(), 1);
}

#[test]
fn who_did_not_say_that_it_understands_is_not_told() {
    let mut world = World::new();
    let other = world.silent_node(1);
    says(&mut world, other, "a", Capabilities::LEASE);
    let original = world.join(Role::AGENT, node_uuid(2), Dialect::Original);
    says(&mut world, original, "a", Capabilities::CAPACITY);
    for node in [other, original] {
        assert_eq!(told(&mut world, node).iter().flatten().count(), 0);
    }
}
