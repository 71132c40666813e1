//! Instances that one report has placed again: they are placed together, in the order of the queue, once all of the
//! report is known.

use super::Queue;
use crate::api::cause::Cause;
use crate::api::ids::InstanceId;

/// What is collected of a report while it is taken in; `None` while none is.
#[derive(Debug, Default)]
pub(super) struct Together(Option<Vec<(InstanceId, Cause)>>);

impl Queue {
    /// From now on instances that are to be placed again are collected.
    pub(crate) fn collect(&mut self) {
        self.together.0 = Some(Vec::new());
    }

    /// Collects an instance that is to be placed again; whether instances are collected now.
    pub(crate) fn add_to_collected(&mut self, instance: &InstanceId, cause: &Cause) -> bool {
        match &mut self.together.0 {
            Some(collected) => {
                collected.push((instance.clone(), cause.clone()));
                true
            }
            None => false,
        }
    }

    /// Those that were collected; from now on each is placed at once.
    pub(crate) fn take_collected(&mut self) -> Vec<(InstanceId, Cause)> {
        self.together.0.take().unwrap_or_default()
    }
}
