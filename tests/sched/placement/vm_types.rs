//! What runs an instance: virtual machines and containers go to the original's launchers, processes to this project's, and
//! nothing to a launcher that would refuse it.

use proto_frames::Role;
use proto_frames::payload::StartFailureReason;
use sched_core::{Dialect, Message, NodeExtras, SessionId, StartRequest, VmType, VmTypes};

use crate::support::world::{Size, World, node_uuid, report, request};

fn start(name: &str, vm_type: VmType) -> StartRequest {
    StartRequest {
        vm_type: Some(vm_type),
        ..request(name, 1)
    }
}

/// A node of the original's.
fn original(world: &mut World, number: u64) -> SessionId {
    let node = world.join(Role::AGENT, node_uuid(number), Dialect::Original);
    world.ready(node, Size::default());
    node
}

/// A node whose launcher says what it runs.
fn running(world: &mut World, number: u64, names: &[&str]) -> SessionId {
    let node = world.silent_node(number);
    let mut said = report(Size::default());
    said.extras = Some(Box::new(NodeExtras {
        vm_types: Some(VmTypes::from_names(names.iter().copied())),
        ..NodeExtras::default()
    }));
    world.report(node, said);
    node
}

#[test]
fn each_start_goes_to_launchers_that_run_it_and_to_these_in_turn() {
    let (mut world, controller) = World::new().with_controller();
    let old = [original(&mut world, 1), original(&mut world, 2)];
    let new = [
        running(&mut world, 3, &["process"]),
        running(&mut world, 4, &["process"]),
    ];
    for (round, vm_type, nodes) in [
        (1, VmType::Process, new),
        (2, VmType::Qemu, old),
        (3, VmType::Docker, old),
        (4, VmType::Other, old),
        (5, VmType::Process, new),
    ] {
        let mut placed: Vec<SessionId> = (0..2)
            .map(|at| world.place_as(controller, start(&format!("{round}-{at}"), vm_type)))
            .map(|node| node.expect("room"))
            .collect();
        placed.sort_unstable();
        assert_eq!(placed, nodes, "{vm_type:?}");
    }
    assert!(world.place(controller, "unknown", 1).is_some());
}

#[test]
fn a_start_that_no_launcher_runs_fails_and_is_told_why() {
    for (vm_type, word) in [(VmType::Qemu, "qemu"), (VmType::Docker, "docker")] {
        let (mut world, controller) = World::new().with_controller();
        running(&mut world, 1, &["process"]);
        assert_eq!(world.place_as(controller, start("a", vm_type)), None);
        let Message::StartFailure(failure) = world.told_once(controller) else {
            panic!("no StartFailure")
        };
        assert_eq!(failure.reason, StartFailureReason::FullCloud);
        let detail = failure.payload.detail.unwrap();
        assert!(
            detail.contains(&format!("1 whose launchers do not run vm_type '{word}'")),
            "{detail}"
        );
        original(&mut world, 2);
        assert!(world.place_as(controller, start("b", vm_type)).is_some());
    }
}

#[test]
fn a_process_never_goes_to_a_launcher_of_the_originals() {
    let (mut world, controller) = World::new().with_controller();
    original(&mut world, 1);
    assert_eq!(
        world.place_as(controller, start("a", VmType::Process)),
        None
    );
    running(&mut world, 2, &["docker", "process", "qemu"]);
    let placed = world.place_as(controller, start("b", VmType::Process));
    assert!(placed.is_some());
}

#[test]
fn a_launcher_of_this_projects_that_does_not_say_takes_anything() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.node(1, Size::default());
    for (name, vm_type) in [("a", VmType::Process), ("b", VmType::Qemu)] {
        assert_eq!(world.place_as(controller, start(name, vm_type)), Some(node));
    }
}

#[test]
fn what_a_launcher_runs_may_change_and_is_no_label() {
    let mut world = World::new();
    let (controller, operator) = (world.controller(), world.operator(&[]));
    let node = running(&mut world, 1, &["qemu"]);
    assert_eq!(
        world.place_as(controller, start("a", VmType::Process)),
        None
    );
    let mut said = report(Size::default());
    said.extras = Some(Box::new(NodeExtras {
        vm_types: Some(VmTypes::from_names(["process"])),
        ..NodeExtras::default()
    }));
    world.report(node, said);
    let placed = world.place_as(controller, start("b", VmType::Process));
    assert_eq!(placed, Some(node));
    assert!(world.nodes(operator)[0].labels.is_empty());
}
