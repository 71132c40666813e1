//! The settle window: after a restart, STARTs that fit nowhere wait a while for nodes that are still coming back.
//!
//! Only with a list of nodes from before the restart; without one there is no window.

use std::collections::VecDeque;
use std::time::Instant;

use indexmap::IndexSet;
use proto_frames::Uuid;

use super::action::PlacedStart;
use super::config::{Config, MAX_SETTLING, MAX_SETTLING_BYTES};
use super::ids::InstanceId;

/// STARTs tried again when one node becomes ready: all of them would make the return of a large cluster quadratic.
pub(super) const RETRIES_PER_READY: usize = 16;

/// Who is still missing, and who waits for them.
#[derive(Debug)]
pub(super) struct Settling {
    missing: IndexSet<Uuid>,
    until: Option<Instant>,
    waiting: VecDeque<PlacedStart>,
    bytes: usize,
}

impl Settling {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        let missing: IndexSet<Uuid> = config.expected_nodes.iter().copied().collect();
        let until = (!missing.is_empty()).then(|| now + config.settle_time);
        Self {
            missing,
            until,
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    /// When the window closes; `None` once it has.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Nodes known before the restart that have not reported yet.
    pub(super) fn missing(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.missing.iter().copied()
    }

    /// STARTs waiting.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a START in if the window is open and has room, and names its instance; gives it back otherwise.
    pub(super) fn hold(&mut self, start: PlacedStart) -> Result<InstanceId, PlacedStart> {
        let bytes = start.frame.payload.len();
        if self.until.is_none()
            || self.len() >= MAX_SETTLING
            || self.bytes + bytes > MAX_SETTLING_BYTES
        {
            return Err(start);
        }
        let instance = start.request.instance.clone();
        self.bytes += bytes;
        self.waiting.push_back(start);
        Ok(instance)
    }

    /// Puts STARTs that were taken out back in front, in order.
    pub(super) fn put_back(&mut self, starts: Vec<PlacedStart>) {
        for start in starts.into_iter().rev() {
            self.bytes += start.frame.payload.len();
            self.waiting.push_front(start);
        }
    }

    /// Takes out the START that has waited longest.
    pub(super) fn take(&mut self) -> Option<PlacedStart> {
        let start = self.waiting.pop_front()?;
        self.bytes -= start.frame.payload.len();
        Some(start)
    }

    /// Takes out a START by its instance: it was deleted, or sent again.
    pub(super) fn take_instance(&mut self, instance: &InstanceId) -> Option<PlacedStart> {
        let at = self
            .waiting
            .iter()
            .position(|start| start.request.instance == *instance)?;
        let start = self.waiting.remove(at)?;
        self.bytes -= start.frame.payload.len();
        Some(start)
    }

    /// Notes that a node is back; closes the window if it was the last.
    pub(super) fn is_back(&mut self, node: Uuid) {
        if self.missing.swap_remove(&node) && self.missing.is_empty() {
            self.until = None;
        }
    }

    /// Closes the window at its time; whether it just closed.
    pub(super) fn close_if_due(&mut self, now: Instant) -> bool {
        if self.until.is_some_and(|until| until <= now) {
            self.until = None;
            self.missing.clear();
            return true;
        }
        false
    }
}
