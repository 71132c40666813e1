//! STARTs that are on no node and not managed: one table of all, each with what it waits for. An instance has one entry at
//! most, so that a DELETE, a later START and a name are each looked up once.
//!
//! What waits for room is not here: it is managed, and its place in the order is the queue's.
//!
//! ```text
//!  disk      the START has to survive a restart, and the disk takes no writes     for Config::disk_patience, then it fails
//!  nodes     it fits nowhere, and nodes are still coming back after a restart     the recovery window (`recovery`)
//!  batch     the rest of its batch has not come, or a complete one waits for nodes   `pending::batches`
//! ```

pub(crate) mod batches;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use self::batches::{BatchId, Batches};
use crate::api::config::{MAX_RECOVERING, MAX_RECOVERING_BYTES};
use crate::api::ids::InstanceId;
use crate::api::start::PlacedStart;
use crate::maps::Map;

/// STARTs that wait for the disk at once: beyond that they fail at once.
pub const MAX_HELD_FOR_DISK: usize = 1024;

/// Bytes of their payloads.
pub const MAX_HELD_FOR_DISK_BYTES: usize = 16 * 1024 * 1024;

/// What a START waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waits {
    /// For the disk, until this time.
    Disk(Instant),
    /// For nodes that are still coming back after a restart.
    Nodes,
    /// For the rest of this batch, or, once that is complete, for nodes.
    Batch(BatchId),
}

/// A START, and what it waits for.
#[derive(Debug)]
struct Entry {
    start: Box<PlacedStart>,
    waits: Waits,
}

/// Who waits for one thing, in order.
#[derive(Debug, Default)]
struct Line {
    order: VecDeque<InstanceId>,
    /// Of their payloads.
    bytes: usize,
}

impl Line {
    /// Whether one more may wait, of so many bytes.
    fn has_room(&self, bytes: usize, most: usize, most_bytes: usize) -> bool {
        self.order.len() < most && self.bytes + bytes <= most_bytes
    }

    fn push(&mut self, start: &PlacedStart) {
        self.bytes += start.parcel.payload.len();
        self.order.push_back(start.request.instance.clone());
    }

    fn remove(&mut self, start: &PlacedStart) {
        let instance = &start.request.instance;
        if let Some(at) = self.order.iter().position(|it| it == instance) {
            self.order.remove(at);
            self.bytes -= start.parcel.payload.len();
        }
    }
}

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    starts: Map<InstanceId, Entry>,
    for_disk: Line,
    for_nodes: Line,
    batches: Batches,
}

impl Pending {
    /// Whether a START of this instance waits.
    pub(crate) fn has(&self, instance: &InstanceId) -> bool {
        !self.starts.is_empty() && self.starts.contains_key(instance)
    }

    /// What the START of an instance waits for.
    pub(crate) fn waits(&self, instance: &InstanceId) -> Option<&Waits> {
        if self.starts.is_empty() {
            return None;
        }
        self.starts.get(instance).map(|entry| &entry.waits)
    }

    /// How many wait for the disk, and their bytes.
    pub(crate) fn for_disk(&self) -> (usize, usize) {
        (self.for_disk.order.len(), self.for_disk.bytes)
    }

    /// How many wait for nodes, but for batches.
    pub(crate) fn for_nodes(&self) -> usize {
        self.for_nodes.order.len()
    }

    /// Has a START wait for the disk until then; gives it back if as many wait as may.
    pub(crate) fn hold_for_disk(
        &mut self,
        until: Instant,
        start: Box<PlacedStart>,
    ) -> Result<(), Box<PlacedStart>> {
        let bytes = start.parcel.payload.len();
        if !(self.for_disk).has_room(bytes, MAX_HELD_FOR_DISK, MAX_HELD_FOR_DISK_BYTES) {
            return Err(start);
        }
        self.put(start, Waits::Disk(until));
        Ok(())
    }

    /// Has a START wait for nodes; gives it back if as many wait as may.
    pub(crate) fn hold_for_nodes(
        &mut self,
        start: Box<PlacedStart>,
    ) -> Result<(), Box<PlacedStart>> {
        let bytes = start.parcel.payload.len();
        if !(self.for_nodes).has_room(bytes, MAX_RECOVERING, MAX_RECOVERING_BYTES) {
            return Err(start);
        }
        self.put(start, Waits::Nodes);
        Ok(())
    }

    /// Puts a START that waited for nodes and was taken out behind the others, so that what fits does not wait behind what
    /// does not.
    pub(crate) fn put_back(&mut self, start: Box<PlacedStart>) {
        self.put(start, Waits::Nodes);
    }

    /// Takes out the START of an instance that waits for the disk or for nodes: it was deleted, or a newer one takes its
    /// place. One of a batch stays, because the others of its batch wait for it.
    pub(crate) fn take(&mut self, instance: &InstanceId) -> Option<Box<PlacedStart>> {
        match self.waits(instance)? {
            Waits::Disk(_) | Waits::Nodes => self.remove(instance),
            Waits::Batch(_) => None,
        }
    }

    /// Takes out the START that has waited for nodes longest.
    pub(crate) fn take_for_nodes(&mut self) -> Option<Box<PlacedStart>> {
        let first = self.for_nodes.order.front()?.clone();
        self.remove(&first)
    }

    /// Takes out all that wait for the disk, in the order they came.
    pub(crate) fn take_for_disk(&mut self) -> Vec<PlacedStart> {
        let held: Vec<InstanceId> = self.for_disk.order.iter().cloned().collect();
        let held = held.iter().filter_map(|it| self.remove(it));
        held.map(|start| *start).collect()
    }

    /// Takes out a START that has waited for the disk too long.
    pub(crate) fn take_late(&mut self, now: Instant) -> Option<Box<PlacedStart>> {
        let first = self.for_disk.order.front()?.clone();
        (self.disk_due()? <= now).then(|| self.remove(&first))?
    }

    /// When the first that waits for the disk has waited too long.
    pub(crate) fn disk_due(&self) -> Option<Instant> {
        match self.waits(self.for_disk.order.front()?)? {
            Waits::Disk(due) => Some(*due),
            Waits::Nodes | Waits::Batch(_) => None,
        }
    }

    /// Has a START wait, in place of an earlier one of the same instance.
    fn put(&mut self, start: Box<PlacedStart>, waits: Waits) {
        self.remove(&start.request.instance);
        match &waits {
            Waits::Disk(_) => self.for_disk.push(&start),
            Waits::Nodes => self.for_nodes.push(&start),
            // In the order of its batch, which has counted it.
            Waits::Batch(_) => {}
        }
        let instance = start.request.instance.clone();
        self.starts.insert(instance, Entry { start, waits });
    }

    /// Takes out the START of an instance, of a batch as well.
    fn remove(&mut self, instance: &InstanceId) -> Option<Box<PlacedStart>> {
        let Entry { start, waits } = self.starts.swap_remove(instance)?;
        match waits {
            Waits::Disk(_) => self.for_disk.remove(&start),
            Waits::Nodes => self.for_nodes.remove(&start),
            Waits::Batch(_) => {}
        }
        if self.starts.is_empty() {
            // A burst of them does not hold its memory for good.
            self.starts = Map::default();
        }
        Some(start)
    }

    /// Whether each line has just the STARTs that wait for that, and counts their bytes; for batches,
    /// [`Pending::are_batches_consistent`].
    pub(crate) fn is_consistent(&self) -> bool {
        let is_whole = |line: &Line, is_of: fn(&Waits) -> bool| {
            let here = self.starts.values().filter(|entry| is_of(&entry.waits));
            let bytes = here.clone().map(|entry| entry.start.parcel.payload.len());
            let is_here = |it: &InstanceId| self.waits(it).is_some_and(is_of);
            bytes.sum::<usize>() == line.bytes
                && here.count() == line.order.len()
                && line.order.iter().all(is_here)
        };
        is_whole(&self.for_disk, |it| matches!(it, Waits::Disk(_)))
            && is_whole(&self.for_nodes, |it| matches!(it, Waits::Nodes))
    }
}
