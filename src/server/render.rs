//! The core's messages as bytes for one peer: payloads written, frames built, traces stamped.

use bytes::{Bytes, BytesMut};
use proto_frames::{Connected, Encoder, Frame, Kind, Uuid};

use super::session::stamp_sent;
use crate::sched::Message;

/// What a message the scheduler words itself counts in a queue, in bytes: a frame and its short payload.
const OWN_MESSAGE_COST: usize = 384;

/// What one row of a query's answer counts in a queue, in bytes.
const ROW_COST: usize = 512;

/// What a message counts in a queue, in bytes.
pub(super) fn cost(message: &Message) -> usize {
    match message {
        Message::Start(start) => start.frame.cost(),
        Message::Targeted(command) => command.frame.cost(),
        Message::Forward(frame) => frame.cost(),
        Message::Connected { configuration } | Message::InvalidConfiguration(configuration) => {
            OWN_MESSAGE_COST + configuration.len()
        }
        Message::QueryResult(result) => {
            OWN_MESSAGE_COST + ROW_COST * (result.nodes.len() + result.instances.len())
        }
        _ => OWN_MESSAGE_COST,
    }
}

/// Appends a message's bytes. `own` is the scheduler's UUID, `peer` the receiver's.
pub(super) fn encode(
    message: &Message,
    own: Uuid,
    peer: Uuid,
    encoder: &mut Encoder,
    dst: &mut BytesMut,
) {
    match message {
        Message::Start(start) => forward(&start.frame, own, encoder, dst),
        Message::Targeted(command) => forward(&command.frame, own, encoder, dst),
        Message::Forward(frame) => forward(frame, own, encoder, dst),
        Message::Connected { configuration } => {
            let connected = Connected::new(own, peer, configuration.clone());
            encoder.encode(&proto_frames::Message::Connected(connected), dst);
        }
        own_words => {
            let (kind, payload) = payload(own_words);
            encoder.encode_frame(&Frame::new(kind, own, payload), dst);
        }
    }
}

fn forward(frame: &Frame, own: Uuid, encoder: &mut Encoder, dst: &mut BytesMut) {
    let is_traced = frame
        .trace
        .as_ref()
        .is_some_and(|trace| trace.path.is_some());
    if is_traced {
        let mut stamped = frame.clone();
        stamp_sent(&mut stamped, own);
        encoder.encode_frame(&stamped, dst);
    } else {
        encoder.encode_frame(frame, dst);
    }
}

/// Kind and payload of what the scheduler says in its own words.
fn payload(message: &Message) -> (Kind, Bytes) {
    match message {
        Message::StartFailure(failure) => (Kind::START_FAILURE, failure.encode()),
        Message::DeleteFailure(failure) => (Kind::DELETE_FAILURE, failure.encode()),
        Message::AttachVolumeFailure(failure) => (Kind::ATTACH_VOLUME_FAILURE, failure.encode()),
        Message::AssignPublicIpFailure(failure) => {
            (Kind::ASSIGN_PUBLIC_IP_FAILURE, failure.encode())
        }
        Message::UnassignPublicIpFailure(failure) => {
            (Kind::UNASSIGN_PUBLIC_IP_FAILURE, failure.encode())
        }
        Message::InvalidConfiguration(configuration) => {
            (Kind::INVALID_CONFIGURATION, configuration.clone())
        }
        Message::NodeConnected(event) => (Kind::NODE_CONNECTED, event.encode()),
        Message::NodeDisconnected(event) => (Kind::NODE_DISCONNECTED, event.encode()),
        Message::ControllerStatus(status) => (Kind::CONTROLLER_STATUS, status.encode()),
        Message::CommandRefused(refused) => (Kind::COMMAND_REFUSED, refused.encode()),
        Message::InstancePlaced(placed) => (Kind::INSTANCE_PLACED, placed.encode()),
        Message::QueryResult(result) => (Kind::QUERY_RESULT, result.encode()),
        // The others are frames already; `encode` does not ask about them.
        Message::InvalidFrameType
        | Message::Start(_)
        | Message::Targeted(_)
        | Message::Forward(_)
        | Message::Connected { .. } => (Kind::INVALID_FRAME_TYPE, Bytes::new()),
    }
}
