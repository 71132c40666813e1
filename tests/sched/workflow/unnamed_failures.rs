//! StartFailures that name no instance, as the original's launchers send them of STARTs that they cannot read: each is of
//! the START that it can only be meant for, if there is one.

use proto_frames::Role;
use proto_frames::payload::StartFailureReason;
use sched_core::{Dialect, Message, SessionId};

use crate::support::requests::Asking;
use crate::support::world::{Size, World, node_uuid, request};

fn original(world: &mut World, number: u64) -> SessionId {
    let node = world.join(Role::AGENT, node_uuid(number), Dialect::Original);
    world.ready(node, Size::default());
    node
}

#[test]
fn the_only_open_start_of_a_node_is_tried_elsewhere_when_it_fails_without_a_name() {
    let (mut world, controller) = World::new().with_controller();
    let nodes = [original(&mut world, 1), original(&mut world, 2)];
    let first = world
        .place_as(controller, request("a", 1).attempts(3))
        .unwrap();
    let other = nodes.into_iter().find(|node| *node != first).unwrap();
    world.start_failed(first, "", StartFailureReason::LaunchFailure);
    assert_eq!(world.placements(), [("a".to_owned(), other)]);
}

#[test]
fn a_start_that_cannot_be_read_fails_for_its_sender_under_its_name() {
    let (mut world, controller) = World::new().with_controller();
    let node = original(&mut world, 1);
    world
        .place_as(controller, request("a", 1).attempts(3))
        .unwrap();
    world.look_away();
    world.start_failed(node, "", StartFailureReason::InvalidData);
    let failed = world.told(controller);
    let is_of_a = |message: &Message| match message {
        Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
            failure.instance_uuid == "a"
        }
        _ => false,
    };
    assert!(failed.iter().any(is_of_a), "{failed:#?}");
}

#[test]
fn of_two_open_starts_none_is_taken_for_the_one_that_failed_without_a_name() {
    let (mut world, controller) = World::new().with_controller();
    let node = original(&mut world, 1);
    for name in ["a", "b"] {
        assert_eq!(
            world.place_as(controller, request(name, 1).attempts(3)),
            Some(node)
        );
    }
    world.start_failed(node, "", StartFailureReason::LaunchFailure);
    assert!(world.placements().is_empty());
}
