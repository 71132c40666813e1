//! A START that fits nowhere takes the room of instances of strictly lower priority, if the policy allows it.

use super::Scheduler;
use super::ids::{InstanceId, NodeKey};
use super::input::StartRequest;

impl Scheduler {
    /// Makes room for an instance by having others suspended or stopped; whether it is being made.
    pub(super) fn preempt(&mut self, _instance: &InstanceId, _request: &StartRequest) -> bool {
        false
    }

    /// An instance that had to make way for another has been stopped, and is on no node.
    pub(super) fn victim_is_away(&mut self, _victim: &InstanceId, _by: &InstanceId) {}

    /// An instance that was to make way for another does not.
    pub(super) fn victim_stays(&mut self, _preemptor: &InstanceId, _victim: &InstanceId) {}

    /// Those that were to make way for an instance have not in time.
    pub(super) fn victims_are_late(&mut self, _key: NodeKey, _instance: &InstanceId) {}
}
