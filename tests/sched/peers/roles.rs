//! Controllers: one master, the others backup, in order.

use ciao_scheduler::server::sim_support;
use proto_frames::Role;
use proto_frames::payload::{ControllerRole, RefusalReason};
use sched_core::{Dialect, Message};

use crate::support::world::World;

fn roles(told: &[Message]) -> Vec<ControllerRole> {
    told.iter()
        .filter_map(|message| match message {
            Message::ControllerStatus(status) => Some(status.status.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn controllers_are_told_their_role_on_connect_and_on_promotion() {
    let mut world = World::new();
    let first = world.controller();
    let second = world.controller();
    let third = world.controller();
    assert_eq!(roles(&world.told(first)), [ControllerRole::Master]);
    assert_eq!(roles(&world.told(second)), [ControllerRole::Backup]);
    assert_eq!(roles(&world.told(third)), [ControllerRole::Backup]);
    world.cut(second);
    world.nothing_else();
    world.cut(first);
    assert_eq!(roles(&world.told(third)), [ControllerRole::Master]);
}

#[test]
fn original_controllers_are_not_sent_what_they_do_not_know() {
    let mut world = World::new();
    let first = world.original_controller();
    let second = world.original_controller();
    world.node_with(1, 100);
    world.start(second, "a", 1);
    let first_told = world.told(first);
    world.cut(first);
    for told in [first_told, world.told(second)] {
        let is_original = |message: &Message| {
            matches!(
                message,
                Message::Connected { .. } | Message::NodeConnected(_)
            )
        };
        assert!(told.iter().all(is_original), "{told:#?}");
    }
}

#[test]
fn a_backups_command_has_no_effect_and_a_native_one_is_told_so() {
    let mut world = World::new();
    world.controller();
    let backup = world.controller();
    let original = world.original_controller();
    world.node_with(1, 100);
    assert_eq!(world.place(original, "a", 1), None);
    assert_eq!(world.told(original), []);
    assert_eq!(world.place(backup, "b", 1), None);
    match world.told_once(backup) {
        Message::CommandRefused(refused) => {
            let refused = sim_support::refused(&refused);
            assert_eq!(refused.reason, RefusalReason::NotMaster);
            assert_eq!(refused.name, "COMMAND START");
            assert_eq!(refused.instance_uuid.as_deref(), Some("b"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_promoted_controllers_commands_count() {
    let mut world = World::new();
    let first = world.controller();
    let second = world.original_controller();
    let node = world.node_with(1, 100);
    world.cut(first);
    assert_eq!(world.place(second, "a", 1), Some(node));
}

#[test]
fn a_newer_connection_of_the_master_stays_master() {
    let mut world = World::new();
    let first = world.controller();
    let backup = world.controller();
    let node = world.node_with(1, 100);
    world.look_away();
    let again = world.join(Role::CONTROLLER, world.uuid_of(first), Dialect::Native);
    assert_eq!(roles(&world.told(again)), [ControllerRole::Master]);
    assert_eq!(roles(&world.told(backup)), []);
    assert_eq!(world.place(again, "a", 1), Some(node));
}

#[test]
fn an_operator_commands_beside_the_master_and_never_becomes_it() {
    let mut world = World::new();
    let operator = world.operator(&[]);
    let master = world.controller();
    let node = world.node_with(1, 100);
    assert_eq!(world.place(operator, "a", 1), Some(node));
    assert_eq!(world.place(master, "b", 1), Some(node));
    world.cut(master);
    assert_eq!(roles(&world.told(operator)), []);
}
