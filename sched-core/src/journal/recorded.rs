//! Of which instances something may be on disk.

use std::collections::VecDeque;

use crate::api::ids::InstanceId;
use crate::maps::Map;

/// Instances of which something may be on disk.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// With the latest change that put it there.
    put: Map<InstanceId, u64>,
    /// Those that were taken off the disk by changes that may not be there yet.
    removals: VecDeque<(u64, InstanceId)>,
}

impl Recorded {
    /// This change puts a record of an instance on disk.
    pub(super) fn note_put(&mut self, instance: &InstanceId, ticket: u64) {
        self.put.insert(instance.clone(), ticket);
    }

    /// This change takes what there is of an instance off the disk.
    pub(super) fn note_removed(&mut self, instance: &InstanceId, ticket: u64) {
        if self.put.contains_key(instance) {
            self.removals.push_back((ticket, instance.clone()));
        }
    }

    /// Everything up to this change is on disk: forgets what is off it for certain.
    pub(super) fn settle(&mut self, committed: u64) {
        while let Some((ticket, instance)) = self.removals.front()
            && *ticket <= committed
        {
            if self.put.get(instance).is_some_and(|put| put < ticket) {
                self.put.swap_remove(instance);
            }
            self.removals.pop_front();
        }
    }

    /// The latest change that put something of an instance on disk, unless it is off it for certain.
    pub(super) fn put_with(&self, instance: &InstanceId) -> Option<u64> {
        self.put.get(instance).copied()
    }

    /// Records that are to be taken off the disk, as far as that is not certain.
    pub(super) fn removals(&self) -> usize {
        self.removals.len()
    }
}
