//! Instances are suspended and resumed: by command, and to make way for others.

use proto_frames::payload::{CommandFailure, InstanceStateEvent, LifeCommand, LifeState};
use proto_frames::{Frame, Kind};

use super::Scheduler;
use super::ids::{InstanceId, NodeKey, SessionId};
use super::input::Target;

impl Scheduler {
    /// SUSPEND from a controller or operator.
    pub(super) fn suspend(&mut self, _id: SessionId, _target: &Target) {}

    /// RESUME from a controller or operator.
    pub(super) fn resume(&mut self, _id: SessionId, _target: &Target) {}

    /// CommandFailure from a launcher.
    pub(super) fn command_failed(&mut self, id: SessionId, frame: Frame, failure: &CommandFailure) {
        if self.is_forged(id, frame.kind, &failure.node_uuid) {
            return;
        }
        let Some(key) = self.sessions.get(&id).and_then(|session| session.node) else {
            return;
        };
        match failure.command {
            LifeCommand::Migrate => self.move_failed(key, failure),
            LifeCommand::Update => self.update_failed(key, failure),
            _ => {}
        }
    }

    /// InstanceState from a launcher.
    pub(super) fn instance_state(&mut self, id: SessionId, event: &InstanceStateEvent) {
        if self.is_forged(id, Kind::INSTANCE_STATE, &event.node_uuid) {
            return;
        }
        let Some(key) = self.sessions.get(&id).and_then(|session| session.node) else {
            return;
        };
        if event.state == LifeState::Updated {
            self.update_confirmed(key, &InstanceId::new(&event.instance_uuid));
        }
    }

    /// A launcher says whether an instance is suspended, in an event or in STATS.
    pub(super) fn suspension_reported(
        &mut self,
        _key: NodeKey,
        _instance: &InstanceId,
        _is_suspended: bool,
    ) {
    }

    /// A launcher did not suspend or resume an instance in time.
    pub(super) fn suspension_late(&mut self, _instance: &InstanceId) {}

    /// Resumes an instance that had to make way, on the node where it is, if nobody of higher priority waits for that
    /// room; whether it did.
    pub(super) fn resume_evicted(&mut self, _instance: &InstanceId, _key: NodeKey) -> bool {
        false
    }
}
