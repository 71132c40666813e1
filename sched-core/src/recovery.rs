//! The recovery window: after a restart, STARTs that fit nowhere wait a while for nodes that are still coming back.
//!
//! Only with a list of nodes from before the restart; without one there is no window.

use std::collections::VecDeque;
use std::time::Instant;

use indexmap::IndexSet;
use sched_model::Uuid;

use crate::api::config::{Config, MAX_RECOVERING, MAX_RECOVERING_BYTES};
use crate::api::ids::InstanceId;
use crate::api::start::PlacedStart;
use crate::maps::Map;

/// STARTs tried again when one node becomes ready: all of them would make the return of a large cluster quadratic.
pub(crate) const RETRIES_PER_READY: usize = 16;

/// Who is still missing, and who waits for them.
#[derive(Debug)]
pub(crate) struct Recovery {
    missing: IndexSet<Uuid>,
    /// Instances that missing nodes had when STARTs of them came to wait in batches: no more than there are such STARTs on
    /// disk.
    had: Map<InstanceId, Uuid>,
    window: Window,
    waiting: VecDeque<Box<PlacedStart>>,
    /// The instances of `waiting`.
    instances: IndexSet<InstanceId>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    /// Nothing ever waits, or nothing any more.
    Absent,
    /// Until this moment at the latest.
    Open(Instant),
    /// Since this moment; what still waits is tried once more.
    Closed(Instant),
}

impl Recovery {
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let expected = config
            .known_nodes
            .iter()
            .filter(|node| node.lost_since_ms.is_none());
        let missing: IndexSet<Uuid> = expected.map(|node| node.uuid).collect();
        let window = if missing.is_empty() {
            Window::Absent
        } else {
            Window::Open(now + config.recovery_window)
        };
        Self {
            missing,
            had: Map::default(),
            window,
            waiting: VecDeque::new(),
            instances: IndexSet::new(),
            bytes: 0,
        }
    }

    /// When there is something to do because of time: the window closes, or what waited is to be tried once more.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.window {
            Window::Absent => None,
            Window::Open(until) => Some(until),
            Window::Closed(since) => (!self.waiting.is_empty()).then_some(since),
        }
    }

    /// Whether a START that fits nowhere may wait.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.window, Window::Open(_))
    }

    /// Whether this node was there before the restart, and may still come back with what it had.
    pub(crate) fn is_awaited(&self, node: Uuid) -> bool {
        self.is_open() && self.missing.contains(&node)
    }

    /// Notes that a node had an instance before the restart.
    pub(crate) fn note_had(&mut self, instance: InstanceId, node: Uuid) {
        if self.is_awaited(node) {
            self.had.insert(instance, node);
        }
    }

    /// The node that had an instance before the restart and may still come back with it.
    pub(crate) fn expected_on(&self, instance: &InstanceId) -> Option<Uuid> {
        let node = self.had.get(instance).copied();
        node.filter(|&node| self.is_awaited(node))
    }

    /// STARTs waiting.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a START in if the window is open and has room, and names its instance; gives it back otherwise.
    pub(crate) fn hold(&mut self, start: Box<PlacedStart>) -> Result<InstanceId, Box<PlacedStart>> {
        let bytes = self.bytes + start.parcel.payload.len();
        if !self.is_open() || self.len() >= MAX_RECOVERING || bytes > MAX_RECOVERING_BYTES {
            return Err(start);
        }
        let instance = start.request.instance.clone();
        self.put_back(start);
        Ok(instance)
    }

    /// Puts a START that was taken out behind the others, so that what fits does not wait behind what does not.
    pub(crate) fn put_back(&mut self, start: Box<PlacedStart>) {
        self.bytes += start.parcel.payload.len();
        self.instances.insert(start.request.instance.clone());
        self.waiting.push_back(start);
    }

    /// Lets nothing wait any more.
    pub(crate) fn close(&mut self) {
        self.window = Window::Absent;
        self.had = Map::default();
    }

    /// Takes out the START whose turn it is.
    pub(crate) fn take(&mut self) -> Option<Box<PlacedStart>> {
        let start = self.waiting.pop_front()?;
        self.forget(&start);
        Some(start)
    }

    /// Takes out a START by its instance: it was deleted, or sent again.
    pub(crate) fn take_instance(&mut self, instance: &InstanceId) -> Option<Box<PlacedStart>> {
        if !self.instances.contains(instance) {
            return None;
        }
        let at = self
            .waiting
            .iter()
            .position(|start| start.request.instance == *instance)?;
        let start = self.waiting.remove(at)?;
        self.forget(&start);
        Some(start)
    }

    /// Whether a START of this instance waits.
    pub(crate) fn has(&self, instance: &InstanceId) -> bool {
        self.instances.contains(instance)
    }

    /// The instances of the STARTs that wait.
    pub(crate) fn instances(&self) -> impl Iterator<Item = &InstanceId> {
        self.instances.iter()
    }

    /// Whether its index and its sum are those of the STARTs that wait, one for each instance.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut starts = self.waiting.iter();
        let bytes = self.waiting.iter().map(|start| start.parcel.payload.len());
        self.instances.len() == self.waiting.len()
            && bytes.sum::<usize>() == self.bytes
            && starts.all(|start| self.instances.contains(&start.request.instance))
    }

    fn forget(&mut self, start: &PlacedStart) {
        self.bytes -= start.parcel.payload.len();
        self.instances.swap_remove(&start.request.instance);
    }

    /// Notes that a node is back, or never will be; closes the window if it was the last. Whether it closed it.
    pub(crate) fn note_back(&mut self, node: Uuid, now: Instant) -> bool {
        let is_last = self.missing.swap_remove(&node) && self.missing.is_empty();
        if is_last {
            self.window = Window::Closed(now);
            self.had = Map::default();
        }
        is_last
    }

    /// Closes the window at its time; whether it just closed.
    pub(crate) fn close_if_due(&mut self, now: Instant) -> bool {
        let is_due = matches!(self.window, Window::Open(until) if until <= now);
        if is_due {
            self.window = Window::Closed(now);
            self.missing.clear();
            self.had = Map::default();
        }
        is_due
    }
}
