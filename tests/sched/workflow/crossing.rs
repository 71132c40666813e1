//! Commands and news that cross each other on their way, so that who speaks does not know yet what the other has done.

use bytes::{Bytes, BytesMut};
use ciao_scheduler::server::sim_support;
use proto_frames::payload::{Delete, Payload, Topic};
use proto_frames::{Decoder, Encoder, Encoding, Limits, Uuid};
use sched_core::{Command, IN_DOUBT_TIME, Message, Report, SessionId, Target};

use crate::support::durability::leased;
use crate::support::preemption::{cpus, sized};
use crate::support::requests::Asking;
use crate::support::world::{Size, World, id, report, request, running};

impl World {
    /// DELETE of an instance on a node that its sender takes for the one that has it.
    fn delete_from_where_it_was(&mut self, from: SessionId, name: &str, node: Uuid) {
        let delete = Delete {
            instance_uuid: name.to_owned(),
            workload_agent_uuid: node.to_string(),
            stop: true,
            ..Delete::default()
        };
        let target = Target {
            instance: id(name),
            node: node.to_string().into(),
        };
        self.say_with(from, Command::Delete(target), delete.encode());
    }

    /// The DELETE that a launcher was sent, as it reads it.
    fn delete_read_by(&mut self, node: SessionId) -> Delete {
        let told = self.told(node).into_iter();
        let mut deletes = told.filter(|message| matches!(message, Message::Targeted(_)));
        let message = deletes.next().expect("a DELETE was sent");
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new(Encoding::Native);
        let uuid = self.uuid_of(node);
        // A connection begins with the answer to CONNECT.
        let configuration = Bytes::new();
        for message in [&Message::Connected { configuration }, &message] {
            sim_support::encode(message, (Uuid::nil(), None), uuid, &mut encoder, &mut bytes);
        }
        let mut decoder = Decoder::client(Encoding::Native, Limits::default());
        decoder.decode(&mut bytes).expect("CONNECTED is whole");
        match decoder.decode(&mut bytes) {
            Ok(Some(proto_frames::Message::Frame(frame))) => {
                Delete::decode(&frame.payload).expect("it can be read")
            }
            other => panic!("not a frame: {other:?}"),
        }
    }
}

#[test]
fn a_delete_reaches_an_instance_that_was_given_a_node_meanwhile() {
    let (mut world, controller, node) = World::new().with_running([cpus("before", 4, 50)]);
    world.start_as(controller, cpus("it", 4, 50).waiting(60));
    world.stopped(node, "before");
    assert_eq!(world.orders(node), ["start it"]);
    world.stats(node, vec![running("it", 0)]);
    // The one who deletes it does not know yet where it is.
    world.delete_from_where_it_was(controller, "it", Uuid::from_u128(99));
    let delete = world.delete_read_by(node);
    assert_eq!(delete.workload_agent_uuid, world.uuid_of(node).to_string());
    assert_eq!(delete.instance_uuid, "it");
    assert!(delete.stop);
}

#[test]
fn what_left_goes_on_although_its_node_says_so_only_after_it_was_lost() {
    let mut world = World::with_preemption();
    let operator = world.operator(&[Topic::Instances]);
    let controller = world.controller();
    let node = world.node(1, Size::default());
    let room = Size::default().mem;
    world.run_on(controller, node, vec![sized("low", room, 10)]);
    world.start_as(controller, sized("high", room, 90));
    assert_eq!(world.orders(node), ["stop low"]);
    world.cut(node);
    world.advance(IN_DOUBT_TIME);
    world.look_away();
    // Its launcher has done it, and could not say so.
    let node = world.silent_node(1);
    world.stopped(node, "low");
    assert_eq!(world.lives(operator).last().unwrap(), "low waiting");
    world.report(node, report(Size::default()));
    assert_eq!(world.orders(node), ["start low"]);
}

#[test]
fn what_was_cut_off_does_not_go_before_who_waits_for_the_same_room() {
    let (mut world, controller) = World::new().with_controller();
    let node = leased(&mut world, 1, 100);
    world.run_on(controller, node, vec![request("low", 60).restarting()]);
    world.start_as(controller, sized("high", 90, 90).waiting(600));
    assert_eq!(world.orders(node), [""; 0]);
    world.say(node, Report::InstanceCutOff(id("low")));
    assert_eq!(world.orders(node), ["start high"]);
}
