//! The original's defects that concern decisions: none may come back. Numbers as in the specification.

use proto_frames::payload::{
    AttachVolumeFailureReason, DeleteFailureReason, Evacuate, RefusalReason, StartFailureReason,
    Topic,
};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    Command, CommandName, Dialect, Fault, Malformed, Message, Report, StatsReport, Target,
};

use crate::support::sending::{Sending, kind_in};
use crate::support::world::{World, id, node_uuid, request};

#[test]
fn defect_1_start_and_delete_of_one_instance_keep_their_order() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.look_away();
    for number in 0..10 {
        let name = format!("i{number}");
        world.start(controller, &name, 1);
        world.delete(controller, &name, node);
    }
    let told = world.told(node);
    let order: Vec<String> = told
        .iter()
        .map(|message| match message {
            Message::Start(start) => format!("start {}", start.request.instance),
            Message::Targeted(command) => format!("delete {}", command.target.instance),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected: Vec<String> = (0..10)
        .flat_map(|n| [format!("start i{n}"), format!("delete i{n}")])
        .collect();
    assert_eq!(order, expected);
}

#[test]
fn defect_5_unusable_commands_are_answered() {
    let mut world = World::new();
    let controller = world.original_controller();
    world.look_away();
    let bad = |name, fault| {
        let malformed = Malformed {
            node: "n".into(),
            volume: "v".into(),
            ..Malformed::new(fault, Some(id("a")), "why".into())
        };
        Sending::malformed_command(name, malformed)
    };
    world.say(controller, bad(CommandName::Start, Fault::Payload));
    world.say(controller, bad(CommandName::Start, Fault::Data));
    world.say(controller, bad(CommandName::Delete, Fault::Data));
    world.say(controller, bad(CommandName::AttachVolume, Fault::Payload));
    world.say(controller, bad(CommandName::Configure, Fault::Payload));
    let told = world.told(controller);
    let answers: Vec<String> = told
        .iter()
        .map(|message| match message {
            Message::StartFailure(failure) => failure.reason.to_string(),
            Message::DeleteFailure(failure) => {
                assert_eq!((&*failure.node_uuid, &*failure.instance_uuid), ("n", "a"));
                failure.reason.to_string()
            }
            Message::AttachVolumeFailure(failure) => {
                // Original controllers reset the volume that it names.
                let named = (
                    &*failure.node_uuid,
                    &*failure.instance_uuid,
                    &*failure.volume_uuid,
                );
                assert_eq!(named, ("n", "a", "v"));
                failure.reason.to_string()
            }
            Message::InvalidConfiguration(payload) => String::from_utf8_lossy(payload).into_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        answers,
        [
            "invalid_payload",
            "invalid_data",
            "invalid_data",
            "invalid_payload",
            "COMMAND CONFIGURE"
        ]
    );
}

#[test]
fn defect_5_commands_for_a_node_that_is_not_there_are_answered() {
    let mut world = World::new();
    let controller = world.original_controller();
    world.look_away();
    let target = || Target {
        instance: id("a"),
        node: node_uuid(9).to_string().into(),
    };
    world.say(controller, Command::Delete(target()));
    match world.told_once(controller) {
        Message::DeleteFailure(failure) => {
            assert_eq!(failure.reason, DeleteFailureReason::NoInstance)
        }
        other => panic!("{other:?}"),
    }
    let attach = Command::AttachVolume {
        target: target(),
        volume: "v".into(),
    };
    world.say(controller, attach);
    match world.told_once(controller) {
        Message::AttachVolumeFailure(failure) => {
            assert_eq!(failure.reason, AttachVolumeFailureReason::NoInstance);
            assert_eq!(failure.volume_uuid, "v");
        }
        other => panic!("{other:?}"),
    }
    world.say(
        controller,
        Command::Evacuate(Box::new(Evacuate {
            workload_agent_uuid: "elsewhere".to_owned(),
            ..Evacuate::default()
        })),
    );
    world.nothing_else();
}

#[test]
fn defect_7_no_one_sends_what_is_not_for_its_role() {
    let (mut world, controller, node) = World::new().with_node(100);
    let cnci = world.join(Role::CNCIAGENT, Uuid::from_u128(5), Dialect::Native);
    let server = world.join(Role::SERVER, Uuid::from_u128(6), Dialect::Original);
    world.look_away();
    world.say(node, Command::Start(request("a", 1).into()));
    world.say(cnci, Report::InstanceDeleted(id("a")));
    world.say(server, Command::Start(request("b", 1).into()));
    world.say(controller, Report::Full);
    for peer in [node, cnci, controller] {
        match world.told_once(peer) {
            Message::CommandRefused(refused) => {
                assert_eq!(refused.cause.reason(), RefusalReason::NotPermitted)
            }
            other => panic!("{other:?}"),
        }
    }
    world.nothing_else();
    assert_eq!(world.scheduler.counters().refused, 4);
}

#[test]
fn defect_16_forged_reports_are_refused() {
    let (mut world, controller, [liar, victim]) = World::new().with_nodes([100, 100]);
    assert_eq!(world.place(controller, "a", 1), Some(liar));
    assert_eq!(world.place(controller, "b", 60), Some(victim));
    world.look_away();
    let node: Box<str> = node_uuid(2).to_string().into();
    let report = StatsReport {
        is_plain: true,
        node: node.clone(),
        ..StatsReport::default()
    };
    world.say(liar, Report::Stats(Box::new(report)));
    let reason = StartFailureReason::LaunchFailure;
    let forged = Report::StartFailed {
        detail: "".into(),
        node,
        instance: Some(id("b")),
        reason,
    };
    world.say(liar, forged);
    world.nothing_else();
    assert_eq!(
        world.place(controller, "c", 60),
        Some(liar),
        "the victim's claim stands"
    );
}

#[test]
fn defect_17_bursts_are_spread_exactly() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (0..50)
        .map(|number| world.node_with(number, 1_000_000))
        .collect();
    world.look_away();
    for number in 0..1000 {
        world.start(controller, &format!("i{number}"), 1);
    }
    let placements = world.placements();
    for node in nodes {
        assert_eq!(placements.iter().filter(|(_, to)| *to == node).count(), 20);
    }
}

#[test]
fn unknown_types_are_answered_and_unknown_operands_dropped() {
    let mut world = World::new();
    let node = world.node_with(1, 100);
    world.controller();
    world.look_away();
    world.say(node, Sending::Unknown(Kind::new(9, 3)));
    assert_eq!(world.told_once(node), Message::InvalidFrameType);
    world.say(node, Sending::Unknown(Kind::new(3, 0x3f)));
    world.nothing_else();
    assert_eq!(world.scheduler.counters().unknown, 2);
}

#[test]
fn reports_go_to_all_controllers_and_not_back() {
    let mut world = World::new();
    let first = world.original_controller();
    let second = world.original_controller();
    let node = world.node_with(1, 100);
    let other = world.node_with(2, 100);
    world.look_away();
    world.stats(node, vec![]);
    world.say(node, Report::TraceReport);
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    for controller in [first, second] {
        let kinds: Vec<Kind> = world
            .told(controller)
            .into_iter()
            .map(|message| match message {
                Message::Forward(parcel) => kind_in(&parcel),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            kinds,
            [Kind::STATS, Kind::TRACE_REPORT, Kind::INSTANCE_DELETED]
        );
    }
    assert_eq!(world.told(other), []);
    world.nothing_else();
}

#[test]
fn an_operator_gets_the_answers_to_its_own_commands() {
    let mut world = World::new();
    let operator = world.operator(&[]);
    let watching = world.operator(&[Topic::Instances, Topic::Failures]);
    let node = world.node_with(1, 100);
    world.look_away();
    world.start(operator, "a", 1);
    world.placements();
    world.start_failed(node, "a", StartFailureReason::LaunchFailure);
    assert!(
        matches!(world.told_once(operator), Message::Forward(parcel) if kind_in(&parcel) == Kind::START_FAILURE)
    );
    world.start(operator, "b", 1);
    world.delete(operator, "b", node);
    world.gone(node, Kind::INSTANCE_DELETED, "b");
    assert!(
        matches!(world.told_once(operator), Message::Forward(parcel) if kind_in(&parcel) == Kind::INSTANCE_DELETED)
    );
    assert_eq!(world.told(watching).len(), 2);
    let target = Target {
        instance: id("b"),
        node: world.uuid_of(node).to_string().into(),
    };
    let attach = Command::AttachVolume {
        target,
        volume: "v".into(),
    };
    world.say(operator, attach);
    world.look_away();
    let node_name = world.uuid_of(node).to_string().into();
    let failed = Report::AttachVolumeFailed {
        node: node_name,
        instance: id("b"),
    };
    world.say(node, failed);
    assert!(
        matches!(world.told_once(operator), Message::Forward(parcel) if kind_in(&parcel) == Kind::ATTACH_VOLUME_FAILURE)
    );
    assert_eq!(world.told(watching).len(), 1);
    world.start(watching, "c", 1);
    world.delete(watching, "c", node);
    world.look_away();
    world.gone(node, Kind::INSTANCE_DELETED, "c");
    assert_eq!(
        world.told(watching).len(),
        1,
        "once, though it watches and asked"
    );
}

#[test]
fn concentrators_get_what_names_them() {
    let (mut world, controller, node) = World::new().with_node(100);
    let agent = world.join(Role::CNCIAGENT, Uuid::from_u128(5), Dialect::Original);
    world.look_away();
    let named = |agent: u128| Uuid::from_u128(agent).to_string().into();
    let refresh = |agent| Command::RefreshCnci {
        agent: named(agent),
    };
    world.say(controller, refresh(5));
    world.say(node, Report::TenantAdded { agent: named(5) });
    assert_eq!(world.told(agent).len(), 2);
    world.say(controller, refresh(6));
    assert!(matches!(
        world.told_once(controller),
        Message::CommandRefused(_)
    ));
}
