//! The two doors through which frames pass between peers and the core, for `tests/sim` alone and no part of the
//! interface: a simulated network carries the bytes that a real one would.

use bytes::BytesMut;
use proto_frames::{Encoder, Frame, Uuid};

use super::wire;
use sched_core::{Meaning, Message};

/// What a peer's frame says, as a session reads it.
#[must_use]
pub fn understand(frame: &Frame) -> Meaning {
    wire::of(frame)
}

/// Appends the bytes of a message of the core for one peer, as its writer does. `own` is the scheduler's UUID.
pub fn encode(message: &Message, own: Uuid, peer: Uuid, encoder: &mut Encoder, dst: &mut BytesMut) {
    wire::encode(message, own, peer, encoder, dst);
}
