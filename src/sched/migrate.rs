//! Instances move from one node to another: claimed on the target, stopped where they are, started there.

use proto_frames::payload::Migrate;

use super::Scheduler;
use super::care::Heard;
use super::ids::{InstanceId, NodeKey, SessionId};

impl Scheduler {
    /// MIGRATE from a controller or operator.
    pub(super) fn migrate(&mut self, _id: SessionId, _migrate: &Migrate) {}

    /// The claim on the target is on disk: the holder is told.
    pub(super) fn begin_move(&mut self, _instance: &InstanceId) {}

    /// The target lists an instance whose state its launcher ships.
    pub(super) fn arrived(&mut self, _key: NodeKey, _instance: &InstanceId) {}

    /// The holder says that an instance which moves has ended there.
    pub(super) fn has_left(&mut self, _key: NodeKey, _instance: &InstanceId) -> Heard {
        Heard::ByAll
    }

    /// The node that an instance was to move to is lost.
    pub(super) fn target_is_lost(&mut self, _instance: &InstanceId) {}

    /// A move has not come to its end in time.
    pub(super) fn move_is_late(&mut self, _instance: &InstanceId) {}
}
