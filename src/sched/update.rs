//! What an instance asks for is changed while it runs: in place, or by moving it.

use proto_frames::payload::Update;

use super::Scheduler;
use super::ids::SessionId;

impl Scheduler {
    /// UPDATE from a controller or operator.
    pub(super) fn update(&mut self, _id: SessionId, _update: &Update) {}
}
