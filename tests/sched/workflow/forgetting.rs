//! Instances of lost nodes, which an operator need not wait for; and STARTs that change nothing for who came first.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{StartFailureReason, Topic};
use sched_core::{Command, Message, RefusalCause, SessionId, Target};

use crate::support::requests::Asking;
use crate::support::sending::kind_in;
use crate::support::world::{World, id, request, running};

impl World {
    pub(super) fn forget(&mut self, operator: SessionId, name: &str) -> Vec<Message> {
        self.look_away();
        let target = Target {
            instance: id(name),
            node: "".into(),
        };
        self.say(operator, Command::Forget(target));
        self.told(operator)
    }

    fn has(&mut self, name: &str) -> bool {
        !self.seen(name).is_empty()
    }
}

#[test]
fn an_instance_of_a_lost_node_can_be_forgotten_and_any_other_not() {
    let (mut world, controller, [node, other]) = World::new().with_nodes([100, 100]);
    let operator = world.operator(&[]);
    world.start_as(controller, request("kept", 10).waiting(30));
    world.stats(node, vec![running("kept", 1), running("plain", 1)]);
    for name in ["kept", "plain", "nobody"] {
        let told = world.forget(operator, name);
        let [Message::CommandRefused(refused)] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(refused.cause == RefusalCause::NotOnLostNode, "{refused:?}");
    }
    world.cut(node);
    let told = world.forget(operator, "plain");
    assert!(
        matches!(&told[..], [Message::InstanceDeleted(_)]),
        "{told:?}"
    );
    assert!(!world.has("plain"));
    world.advance(Duration::from_secs(60));
    assert!(world.has("kept"));
    let told = world.forget(operator, "kept");
    assert!(
        matches!(&told[..], [Message::InstanceDeleted(_)]),
        "{told:?}"
    );
    assert!(!world.has("kept"));
    assert_eq!(world.ended("").len(), 2);
    let node = world.node_with(1, 100);
    world.stats(node, vec![running("kept", 1)]);
    assert!(world.has("kept"), "it is there after all");
    assert_ne!(node, other);
}

#[test]
fn an_instance_that_was_deleted_while_its_node_is_lost_is_not_listed_for_ever() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, request("a", 10).waiting(30));
    world.stats(node, vec![running("a", 1)]);
    world.lose(node);
    world.delete_at(controller, "a", crate::support::world::node_uuid(1));
    assert!(world.has("a"), "it may run");
    world.advance(Duration::from_secs(2 * 3600));
    assert!(!world.has("a"));
}

#[test]
fn a_second_start_is_answered_to_its_sender_and_fails_for_no_other_operator() {
    let (mut world, _, node) = World::new().with_node(100);
    let topics = [Topic::Failures, Topic::Instances];
    let [first, second] = [world.operator(&topics), world.operator(&topics)];
    let failures = |told: Vec<Message>| {
        let is_failure = |it: &Message| match it {
            Message::StartFailure(_) | Message::StartFailureCopy(_) => true,
            Message::Forward(parcel) => kind_in(parcel) == Kind::START_FAILURE,
            _ => false,
        };
        told.iter().filter(|it| is_failure(it)).count()
    };
    world.start(first, "a", 10);
    world.stats(node, vec![running("a", 1)]);
    world.look_away();
    world.start(second, "a", 10);
    world.start_failed(node, "a", StartFailureReason::AlreadyRunning);
    assert_eq!(failures(world.told(first)), 0);
    assert_eq!(failures(world.told(second)), 1);
}
