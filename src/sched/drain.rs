//! Nodes go out of service: the original's way, which is their launchers' business, or with their instances moved.

use proto_frames::payload::{Evacuate, Restore};
use proto_frames::{Frame, Uuid};

use super::Scheduler;
use super::ids::SessionId;
use super::record::{NodeRecord, Record};

impl Scheduler {
    /// What is put on disk of a node; `None` if nothing is to be there.
    pub(super) fn node_record(&self, _node: Uuid) -> Option<Record> {
        None
    }

    /// Takes up what was on disk of a node.
    pub(super) fn restore_node_record(&mut self, _node: Uuid, _record: NodeRecord) {}

    /// EVACUATE from a controller or operator.
    pub(super) fn evacuate(&mut self, id: SessionId, frame: Frame, evacuate: &Evacuate) {
        self.carry_to_node(id, frame, &evacuate.workload_agent_uuid);
    }

    /// Restore from a controller or operator.
    pub(super) fn restore_node(&mut self, id: SessionId, frame: Frame, restore: &Restore) {
        self.carry_to_node(id, frame, &restore.workload_agent_uuid);
    }
}
