//! Nodes that call themselves full: room is made on them for who may have it, and they say what they are short of.

use proto_frames::Kind;

use crate::support::preemption::cpus;
use crate::support::requests::Asking;
use crate::support::world::{World, running};

#[test]
fn a_node_that_calls_itself_full_is_made_room_on() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.status(node, Kind::FULL);
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.orders(node), ["suspend low"]);
    world.suspended(node, "low");
    assert_eq!(world.orders(node), ["start high"]);
}

#[test]
fn who_waits_has_room_made_on_a_full_node_as_soon_as_somebody_there_can_leave() {
    let mut world = World::with_preemption();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.start_as(controller, cpus("low", 4, 10));
    world.start_as(controller, cpus("high", 4, 90).waiting(3600));
    assert_eq!(world.orders(node), ["start low"]);
    world.stats(node, vec![running("low", 0)]);
    world.status(node, Kind::FULL);
    assert_eq!(world.orders(node), ["suspend low"]);
}

#[test]
fn what_a_full_node_is_short_of_is_said() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 50)]);
    world.status(node, Kind::FULL);
    world.start_as(controller, cpus("high", 4, 50));
    let said = world.told(controller);
    let said = format!("{said:?}");
    assert!(said.contains("short of vcpus"), "{said}");
}

#[test]
fn a_node_that_calls_itself_full_for_another_reason_is_left_alone() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 1, 10)]);
    world.status(node, Kind::FULL);
    world.start_as(controller, cpus("high", 1, 90));
    assert_eq!(world.failures(controller).len(), 1);
    assert_eq!(world.orders(node), [""; 0]);
}
