//! Instances that are to be placed again because of one input: they are collected while it is handled, and placed in the
//! order of the queue once all of it is known. Otherwise the first row of a STATS would get the room, and not the most
//! urgent instance.

use super::Queue;
use crate::api::cause::Cause;
use crate::api::ids::InstanceId;

impl Queue {
    /// Collects an instance that is to be placed again.
    pub(crate) fn add_to_collected(&mut self, instance: &InstanceId, cause: &Cause) {
        self.together.push((instance.clone(), cause.clone()));
    }

    /// Takes what was collected.
    pub(crate) fn take_collected(&mut self) -> Vec<(InstanceId, Cause)> {
        std::mem::take(&mut self.together)
    }
}
