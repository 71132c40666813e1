//! The recovery window: after a restart, STARTs that fit nowhere wait a while for nodes that are still coming back
//! (`pending` has them).
//!
//! Only with a list of nodes from before the restart; without one there is no window.

use std::time::Instant;

use indexmap::IndexSet;
use sched_model::Uuid;

use crate::api::config::Config;
use crate::api::ids::InstanceId;
use crate::maps::Map;

/// STARTs tried again when one node becomes ready: all of them would make the return of a large cluster quadratic.
pub(crate) const RETRIES_PER_READY: usize = 16;

/// Who is still missing.
#[derive(Debug)]
pub(crate) struct Recovery {
    missing: IndexSet<Uuid>,
    /// Instances that missing nodes had when STARTs of them came to wait in batches: no more than there are such STARTs on
    /// disk.
    had: Map<InstanceId, Uuid>,
    window: Window,
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
        }
    }

    /// When there is something to do because of time: the window closes, or what waited is to be tried once more, if
    /// anything still waits.
    pub(crate) fn due(&self, is_waited: bool) -> Option<Instant> {
        match self.window {
            Window::Absent => None,
            Window::Open(until) => Some(until),
            Window::Closed(since) => is_waited.then_some(since),
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

    /// Lets nothing wait any more.
    pub(crate) fn close(&mut self) {
        self.window = Window::Absent;
        self.had = Map::default();
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
