//! Nodes go out of service: the original's way, which is their launchers' business, or with their instances moved.

use proto_frames::Frame;
use proto_frames::payload::{Evacuate, Restore};

use super::Scheduler;
use super::ids::SessionId;

impl Scheduler {
    /// EVACUATE from a controller or operator.
    pub(super) fn evacuate(&mut self, id: SessionId, frame: Frame, evacuate: &Evacuate) {
        self.carry_to_node(id, frame, &evacuate.workload_agent_uuid);
    }

    /// Restore from a controller or operator.
    pub(super) fn restore_node(&mut self, id: SessionId, frame: Frame, restore: &Restore) {
        self.carry_to_node(id, frame, &restore.workload_agent_uuid);
    }
}
