//! What the records of ends say of managed instances that a command has ended: which command that was, and who gave it.

use proto_frames::Kind;
use sched_core::{Cause, Command, Report, SessionId, Target};

use super::arrays::{ARRAY, element, list, template};
use crate::support::durability::durable;
use crate::support::requests::Asking;
use crate::support::world::{World, id, request, running};

/// A controller, who as records say, and a node that runs `a`, which is managed.
fn with_running() -> (World, SessionId, String, SessionId) {
    let (mut world, controller, [node]) = World::with(durable()).with_nodes([100]);
    world.start_as(controller, request("a", 10).waiting(60));
    world.stats(node, vec![running("a", 1)]);
    world.look_away();
    let who = format!("CONTROLLER {}", world.uuid_of(controller));
    (world, controller, who, node)
}

fn stop(world: &mut World, controller: SessionId, node: SessionId) {
    let target = Target {
        instance: id("a"),
        node: world.uuid_of(node).to_string().into(),
    };
    world.say(controller, Command::Stop(target));
}

#[test]
fn what_was_deleted_was_deleted_and_what_was_stopped_was_stopped_by_who_asked_for_it() {
    // Launchers answer either with either.
    for told in [Kind::INSTANCE_DELETED, Kind::INSTANCE_STOPPED] {
        let (mut world, controller, who, node) = with_running();
        world.delete(controller, "a", node);
        world.gone(node, told, "a");
        assert_eq!(
            world.store.last_end_of("a"),
            Some((Some(Cause::Deleted), Some(who)))
        );

        let (mut world, controller, who, node) = with_running();
        stop(&mut world, controller, node);
        world.gone(node, told, "a");
        assert_eq!(
            world.store.last_end_of("a"),
            Some((Some(Cause::Stopped), Some(who)))
        );
    }
}

#[test]
fn what_ended_by_itself_before_it_was_deleted_has_ended() {
    let (mut world, controller, _, node) = with_running();
    world.delete(controller, "a", node);
    world.say(node, Report::InstanceExited(id("a")));
    assert_eq!(
        world.store.last_end_of("a"),
        Some((Some(Cause::Ended), None))
    );
}

#[test]
fn elements_are_deleted_by_who_deletes_their_array() {
    let (mut world, controller, [node]) = World::with(durable()).with_nodes([100]);
    world.start_array(controller, template(10), (2, None));
    list(&mut world, node, [0, 1]);
    world.delete(controller, ARRAY, node);
    for index in [0, 1] {
        world.gone(node, Kind::INSTANCE_DELETED, &element(index));
        let who = format!("CONTROLLER {}", world.uuid_of(controller));
        assert_eq!(
            world.store.last_end_of(&element(index)),
            Some((Some(Cause::Deleted), Some(who)))
        );
    }
}
