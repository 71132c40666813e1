//! STARTs on their way to nodes whose latest word is FULL, which may yet refuse them (`workflow::tries`).

use crate::api::action::PlacedStart;
use crate::api::ids::{InstanceId, NodeKey};
use crate::maps::Map;
use crate::placement::Placement;

/// STARTs that are tried at once on nodes that called themselves full. Further ones are answered as if there were no
/// such nodes; there are more only in the moment after thousands of instances have ended.
pub const MAX_TRIES: usize = 1024;

/// Bytes of payloads kept to send those STARTs to another node; one more START may exceed it.
pub const MAX_TRIED_BYTES: usize = 16 * 1024 * 1024;

/// Nodes that may refuse one START as full before it is placed on READY ones alone: each costs its sender a round trip.
pub const MAX_REFUSALS: u8 = 16;

/// What is tried on such nodes.
#[derive(Debug, Default)]
pub(super) struct Tries {
    tries: Map<InstanceId, Try>,
    /// Bytes of payloads in `tries`.
    bytes: usize,
    /// The START that is placed again just now, and how often it was refused.
    refused: Option<(InstanceId, u8)>,
}

/// A START on its way to such a node.
#[derive(Debug)]
struct Try {
    node: NodeKey,
    refusals: u8,
    /// To be placed again; `None` of what is managed, whose START is kept anyway.
    start: Option<Box<PlacedStart>>,
}

impl Placement {
    /// STARTs that are tried, and the bytes of their payloads.
    pub(crate) fn tries(&self) -> (usize, usize) {
        (self.tries.tries.len(), self.tries.bytes)
    }

    /// Whether one more START may be tried.
    pub(crate) fn has_room_to_try(&self) -> bool {
        self.tries.has_room()
    }

    /// Whether this START may be tried.
    pub(crate) fn may_try(&self, instance: &InstanceId) -> bool {
        self.tries.has_room() && self.tries.refusals(instance) < MAX_REFUSALS
    }

    /// A START has room on such a node.
    pub(crate) fn begin_try(&mut self, instance: &InstanceId, node: NodeKey) {
        self.forget_try(instance);
        let attempt = Try {
            node,
            refusals: self.tries.refusals(instance),
            start: None,
        };
        self.tries.tries.insert(instance.clone(), attempt);
    }

    /// Keeps a START that is tried: it leaves for its node now.
    pub(crate) fn keep_tried(&mut self, start: &PlacedStart) {
        if let Some(attempt) = self.tries.tries.get_mut(&start.request.instance) {
            self.tries.bytes += start.parcel.payload.len();
            attempt.start = Some(Box::new(start.clone()));
        }
    }

    /// Whether a START is tried on this node; if so, whether it is kept.
    pub(crate) fn is_tried_on(&self, node: NodeKey, instance: &InstanceId) -> Option<bool> {
        let attempt = self.tries.tries.get(instance)?;
        (attempt.node == node).then_some(attempt.start.is_some())
    }

    /// A node has refused a START that was tried there: it is placed again now, until [`Placement::end_refusal`]. The START,
    /// where it is kept; `None` if it is not tried any more.
    pub(crate) fn begin_refusal(
        &mut self,
        instance: &InstanceId,
    ) -> Option<Option<Box<PlacedStart>>> {
        let attempt = self.tries.take(instance)?;
        let refusals = attempt.refusals.saturating_add(1);
        self.tries.refused = Some((instance.clone(), refusals));
        Some(attempt.start)
    }

    /// The START that a node refused has been placed again, or not.
    pub(crate) fn end_refusal(&mut self) {
        self.tries.refused = None;
    }

    /// A START is not tried any more: it was confirmed, has failed, or is on its way a second time.
    pub(crate) fn forget_try(&mut self, instance: &InstanceId) {
        if !self.tries.tries.is_empty() {
            self.tries.take(instance);
        }
    }

    /// Forgets what is tried on a node, but for what is still to be answered.
    pub(crate) fn forget_tries_on(&mut self, key: NodeKey, is_open: impl Fn(&InstanceId) -> bool) {
        self.tries.forget_on(key, is_open);
    }

    /// Whether what is counted of tries is what there is.
    pub(crate) fn is_consistent(&self) -> bool {
        self.tries.is_consistent()
    }
}

impl Tries {
    /// Whether one more START may be tried.
    fn has_room(&self) -> bool {
        self.tries.len() < MAX_TRIES && self.bytes < MAX_TRIED_BYTES
    }

    fn refusals(&self, instance: &InstanceId) -> u8 {
        let refused = self.refused.as_ref();
        refused.map_or(0, |(of, times)| if of == instance { *times } else { 0 })
    }

    fn take(&mut self, instance: &InstanceId) -> Option<Try> {
        let attempt = self.tries.swap_remove(instance)?;
        self.bytes -= attempt.bytes();
        Some(attempt)
    }

    /// Forgets what is tried on a node, but for what is still to be answered.
    fn forget_on(&mut self, key: NodeKey, is_open: impl Fn(&InstanceId) -> bool) {
        let bytes = &mut self.bytes;
        self.tries.retain(|instance, attempt| {
            let stays = attempt.node != key || is_open(instance);
            *bytes -= if stays { 0 } else { attempt.bytes() };
            stays
        });
        if self.tries.is_empty() {
            self.tries = Map::default();
        }
    }

    /// Whether what is counted is what there is.
    fn is_consistent(&self) -> bool {
        self.bytes == self.tries.values().map(Try::bytes).sum::<usize>() && self.refused.is_none()
    }
}

impl Try {
    fn bytes(&self) -> usize {
        let start = self.start.as_ref();
        start.map_or(0, |start| start.parcel.payload.len())
    }
}
