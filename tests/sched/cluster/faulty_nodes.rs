//! Nodes whose launchers say that they take no work, whatever room there is: because they cannot keep what they take.

use proto_frames::Kind;
use sched_core::{Available, Capabilities, NodeExtras, SessionId, ShortText};

use crate::support::preemption::cpus;
use crate::support::world::{Size, World, report};

const CPUS: i64 = 4;

const FAULT: &str = "the state directory cannot be written";

/// What a launcher says of itself that can suspend, and has a fault or not.
fn extras(fault: Option<&str>) -> NodeExtras {
    NodeExtras {
        capabilities: Capabilities::SUSPEND,
        fault: fault.map(ShortText::new),
        ..NodeExtras::default()
    }
}

fn says(world: &mut World, node: SessionId, fault: Option<&str>) {
    let mut said = report(Size::of_cpus(CPUS));
    said.extras = Some(Box::new(extras(fault)));
    world.report(node, said);
}

#[test]
fn a_node_with_a_fault_is_given_nothing_until_it_has_none() {
    let mut world = World::new();
    let (controller, operator) = (world.controller(), world.operator(&[]));
    let node = world.silent_node(1);
    says(&mut world, node, Some(FAULT));
    assert_eq!(world.place(controller, "a", 1), None);
    assert_eq!(world.nodes(operator)[0].fault, FAULT);
    says(&mut world, node, None);
    assert_eq!(world.place(controller, "b", 1), Some(node));
    assert_eq!(world.nodes(operator)[0].fault, "");
}

#[test]
fn nothing_leaves_on_a_node_that_takes_no_work_even_then() {
    for (fault, is_placed) in [(None, true), (Some(FAULT), false)] {
        let (mut world, controller) = World::with_preemption().with_controller();
        let node = world.silent_node(1);
        says(&mut world, node, None);
        world.run_on(controller, node, vec![cpus("low", CPUS, 1)]);
        says(&mut world, node, fault);
        world.status(node, Kind::FULL);
        world.look_away();
        world.start_as(controller, cpus("high", CPUS, 9));
        assert_eq!(!world.orders(node).is_empty(), is_placed, "{fault:?}");
    }
}

#[test]
fn what_a_full_node_has_left_is_known_from_its_stats() {
    let mut world = World::new();
    let operator = world.operator(&[]);
    let node = world.silent_node(1);
    says(&mut world, node, None);
    let available = Available {
        mem_mib: 30,
        disk_mb: 0,
        load: 7,
    };
    let told = |world: &mut World| {
        let it = &world.nodes(operator)[0];
        (it.mem_available_mb, it.disk_available_mb, it.load)
    };
    let before = told(&mut world);
    for (status, expected) in [(None, before), (Some(Kind::FULL), (30, 0, 7))] {
        if let Some(status) = status {
            world.status(node, status);
        }
        let said = NodeExtras {
            available: Some(available),
            ..extras(None)
        };
        world.stats_as(node, None, Some(said), Vec::new());
        assert_eq!(told(&mut world), expected);
    }
}
