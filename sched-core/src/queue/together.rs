//! Instances that are to be placed again because of one report: they are collected while the report is handled, and
//! placed in the order of the queue once all of it is known. Otherwise the first row of a STATS would get the room, and
//! not the most urgent instance.

use super::Queue;
use crate::api::cause::Cause;
use crate::api::ids::InstanceId;

/// What was collected while a report is handled; `None` otherwise.
#[derive(Debug, Default)]
pub(super) struct Together(Option<Vec<(InstanceId, Cause)>>);

impl Queue {
    /// From now on instances that are to be placed again are collected.
    pub(crate) fn collect(&mut self) {
        self.together.0 = Some(Vec::new());
    }

    /// Collects an instance, if a report is being handled; otherwise the caller places it at once.
    pub(crate) fn add_to_collected(&mut self, instance: &InstanceId, cause: &Cause) -> bool {
        match &mut self.together.0 {
            Some(collected) => {
                collected.push((instance.clone(), cause.clone()));
                true
            }
            None => false,
        }
    }

    /// What was collected, and ends collecting.
    pub(crate) fn take_collected(&mut self) -> Vec<(InstanceId, Cause)> {
        self.together.0.take().unwrap_or_default()
    }
}
