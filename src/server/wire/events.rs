//! Events as values, for doors that tell them in another form than frames: what a watching operator would be sent.
//!
//! The HTTP API (`GET /v1/events`) is such a door: it writes each event as JSON. Names here are the values of its field
//! for the kind of an event, and part of its interface.

use proto_frames::payload::{
    AttachVolumeFailure, CommandFailure, ConcentratorInstanceAdded, DeleteFailure, InstanceDeleted,
    InstanceStateEvent, InstanceStopped, Payload, StartFailure, Topic,
};
use proto_frames::{Frame, Kind};
use sched_model::value::Record;

use super::parcels::frame_of;
use sched_core::Message;

/// Takes an event of some type: a generic method, because each event is a [`Record`] of its own and no common type
/// holds them all without encoding them.
pub(in crate::server) trait EventVisitor {
    /// What the visitor makes of an event, such as a line of JSON.
    type Out;

    /// Takes it: its topic, its name, what it says.
    fn event<T: Record>(self, topic: Topic, name: &'static str, it: &T) -> Self::Out;
}

/// Shows the event that a message is; `None` if it is none: answers, commands and frames on their way to launchers.
pub(in crate::server) fn visit<V: EventVisitor>(message: &Message, visitor: V) -> Option<V::Out> {
    Some(match message {
        // Nodes: what becomes of them, and of drains.
        Message::NodeConnected(it) => visitor.event(Topic::Nodes, "node_connected", it),
        Message::NodeDisconnected(it) => visitor.event(Topic::Nodes, "node_disconnected", it),
        Message::DrainProgress(it) => visitor.event(Topic::Nodes, "drain_progress", &it.payload),
        // What the scheduler does itself.
        Message::Reloaded(it) => visitor.event(Topic::Scheduler, "reloaded", &**it),
        // Where STARTs went.
        Message::InstancePlaced(it) => visitor.event(Topic::Placements, "instance_placed", it),
        // What becomes of instances, as far as the core says it itself.
        Message::InstanceDeleted(it) => visitor.event(Topic::Instances, "instance_deleted", it),
        Message::InstanceQueued(it) => {
            visitor.event(Topic::Instances, "instance_queued", &it.payload)
        }
        Message::ArrayState(it) => visitor.event(Topic::Instances, "array_state", &**it),
        Message::InstanceState(it) => {
            visitor.event(Topic::Instances, "instance_state", &it.payload)
        }
        // What came to nothing: STARTs, and commands.
        Message::StartFailure(it) | Message::StartFailureCopy(it) => {
            visitor.event(Topic::Failures, "start_failure", &it.payload)
        }
        Message::DeleteFailure(it) => visitor.event(Topic::Failures, "delete_failure", it),
        Message::AttachVolumeFailure(it) => {
            visitor.event(Topic::Failures, "attach_volume_failure", it)
        }
        Message::CommandFailure(it) => {
            visitor.event(Topic::Failures, "command_failure", &it.payload)
        }
        // What launchers say themselves, carried on.
        Message::Forward(parcel) => return carried(&frame_of(parcel), visitor),
        _ => return None,
    })
}

/// What a launcher said, carried on. It was read once before it came here; what cannot be read is dropped.
fn carried<V: EventVisitor>(frame: &Frame, visitor: V) -> Option<V::Out> {
    let payload = &frame.payload[..];
    Some(match frame.kind {
        Kind::INSTANCE_DELETED => {
            let it = InstanceDeleted::decode(payload).ok()?;
            visitor.event(Topic::Instances, "instance_deleted", &it)
        }
        Kind::INSTANCE_STOPPED => {
            let it = InstanceStopped::decode(payload).ok()?;
            visitor.event(Topic::Instances, "instance_stopped", &it)
        }
        Kind::INSTANCE_STATE => {
            let it = InstanceStateEvent::decode(payload).ok()?;
            visitor.event(Topic::Instances, "instance_state", &it)
        }
        Kind::CONCENTRATOR_INSTANCE_ADDED => {
            let it = ConcentratorInstanceAdded::decode(payload).ok()?;
            visitor.event(Topic::Instances, "concentrator_instance_added", &it)
        }
        Kind::START_FAILURE => {
            let it = StartFailure::decode(payload).ok()?;
            visitor.event(Topic::Failures, "start_failure", &it)
        }
        Kind::DELETE_FAILURE => {
            let it = DeleteFailure::decode(payload).ok()?;
            visitor.event(Topic::Failures, "delete_failure", &it)
        }
        Kind::ATTACH_VOLUME_FAILURE => {
            let it = AttachVolumeFailure::decode(payload).ok()?;
            visitor.event(Topic::Failures, "attach_volume_failure", &it)
        }
        Kind::COMMAND_FAILURE => {
            let it = CommandFailure::decode(payload).ok()?;
            visitor.event(Topic::Failures, "command_failure", &it)
        }
        _ => return None,
    })
}

/// A failure that a launcher reported, as the core's own message of it; any other message as it is. So the HTTP API
/// waits for one kind of message, whether the core or a launcher refused. What cannot be read stays a frame.
pub(in crate::server) fn opened(message: Message) -> Message {
    let Message::Forward(parcel) = &message else {
        return message;
    };
    let frame = frame_of(parcel);
    let payload = &frame.payload[..];
    let opened =
        match frame.kind {
            Kind::START_FAILURE => StartFailure::decode(payload)
                .map(|it| Message::StartFailureCopy(Box::new(it.into()))),
            Kind::DELETE_FAILURE => DeleteFailure::decode(payload).map(Message::DeleteFailure),
            Kind::COMMAND_FAILURE => CommandFailure::decode(payload)
                .map(|it| Message::CommandFailure(Box::new(it.into()))),
            _ => return message,
        };
    opened.unwrap_or(message)
}
