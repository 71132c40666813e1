//! STARTs on their way to nodes whose latest status is FULL, and which may yet refuse them. The rule for using such
//! nodes is in `workflow::tries`; this is the memory that it needs.
//!
//! A launcher that is full says FULL with its figures of that moment. When instances end there, the scheduler knows of
//! room before the launcher reports READY. A START that fits nowhere else is then tried there, and one of three things
//! follows:
//!
//! - the node confirms it: [`Cluster::forget_try`];
//! - the node refuses it as full: [`Cluster::begin_refusal`] gives the START back, to be placed on another node, and
//!   its sender gets no failure. After [`MAX_REFUSALS`] of these it is placed on READY nodes alone;
//! - the node lists what runs on it ([`Cluster::forget_answered_tries`]), or is lost.
//!
//! To be able to place a START again its payload has to be kept; a plain START is kept here, a managed one by its
//! instance. Number and bytes are bounded, and all of it is only in memory.

use crate::api::ids::{InstanceId, NodeKey};
use crate::api::start::PlacedStart;
use crate::cluster::Cluster;
use crate::cluster::node::NodeStatus;
use crate::maps::Map;

/// STARTs that may be under way to nodes that called themselves full. Beyond that, a START is answered as if there were
/// no such nodes; that many occur only in the moment after thousands of instances have ended.
pub const MAX_TRIES: usize = 1024;

/// Bytes of payloads kept to send those STARTs to another node; one more START may exceed it.
pub const MAX_TRIED_BYTES: usize = 16 * 1024 * 1024;

/// Nodes that may refuse one START as full before it is placed on READY ones alone: each costs its sender a round trip.
pub const MAX_REFUSALS: u8 = 16;

/// All tries, and what they take.
#[derive(Debug, Clone, Default)]
pub(super) struct Tries {
    /// By instance: there is at most one try of each.
    tries: Map<InstanceId, Try>,
    /// Bytes of payloads in `tries`.
    bytes: usize,
    /// The START that is being placed again within the present input, and how often it was refused. `None` between
    /// inputs: that is part of `is_consistent`.
    refused: Option<(InstanceId, u8)>,
}

/// A START on its way to a node that called itself full.
#[derive(Debug, Clone)]
struct Try {
    /// Where it was sent: a refusal from another node answers an earlier START of the same instance.
    node: NodeKey,
    /// How many such nodes have refused it before this one.
    refusals: u8,
    /// The START, to be placed again if this node refuses it too; `None` for a managed instance, whose START the table
    /// of instances has, and between [`Cluster::note_try`] and [`Cluster::keep_tried`].
    start: Option<Box<PlacedStart>>,
}

impl Cluster {
    /// STARTs that are tried, and the bytes of their payloads; for `Scheduler::footprint`.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn tries(&self) -> (usize, usize) {
        (self.tries.tries.len(), self.tries.bytes)
    }

    /// Whether one more START may be tried, as far as memory goes.
    pub(crate) fn has_room_to_try(&self) -> bool {
        self.tries.has_room()
    }

    /// Whether this START may be tried: there is memory, and it was not refused too often. Where not, `choose` answers
    /// as if there were no full nodes.
    pub(crate) fn may_try(&self, instance: &InstanceId) -> bool {
        self.tries.has_room() && self.tries.refusals(instance) < MAX_REFUSALS
    }

    /// Notes that room was claimed for a START on a node: if that calls itself full, it may yet refuse it. Refusals so
    /// far carry over if this is done while the START is placed again. Undoing the claim forgets the try.
    pub(crate) fn note_try(&mut self, instance: &InstanceId, node: NodeKey) {
        if self.node(node).status() != NodeStatus::Full {
            return;
        }
        self.forget_try(instance);
        let attempt = Try {
            node,
            refusals: self.tries.refusals(instance),
            start: None,
        };
        self.tries.tries.insert(instance.clone(), attempt);
    }

    /// Keeps a copy of a plain START that is sent to its node now; does nothing if it is not tried. Called before the
    /// START is handed over.
    pub(crate) fn keep_tried(&mut self, start: &PlacedStart) {
        if let Some(attempt) = self.tries.tries.get_mut(&start.request.instance) {
            self.tries.bytes += start.parcel.payload.len();
            attempt.start = Some(Box::new(start.clone()));
        }
    }

    /// Whether a START is tried on this node; if so, whether a copy of it is kept here.
    pub(crate) fn is_tried_on(&self, node: NodeKey, instance: &InstanceId) -> Option<bool> {
        let attempt = self.tries.tries.get(instance)?;
        (attempt.node == node).then_some(attempt.start.is_some())
    }

    /// Takes back a START that its node has refused as full. Until [`Cluster::end_refusal`], which the caller must
    /// call within the same input, the START is being placed again and its refusals are counted on. Returns the kept
    /// START (`None` within for a managed instance), or `None` if it is not tried any more.
    pub(crate) fn begin_refusal(
        &mut self,
        instance: &InstanceId,
    ) -> Option<Option<Box<PlacedStart>>> {
        let attempt = self.tries.take(instance)?;
        let refusals = attempt.refusals.saturating_add(1);
        self.tries.refused = Some((instance.clone(), refusals));
        Some(attempt.start)
    }

    /// Ends what [`Cluster::begin_refusal`] began: the START has been placed again, or has failed.
    pub(crate) fn end_refusal(&mut self, instance: &InstanceId) {
        let refused = &mut self.tries.refused;
        refused.take_if(|(of, _)| of == instance);
    }

    /// Forgets a try: the START was confirmed, has failed, was taken back, or the same START was sent again.
    pub(crate) fn forget_try(&mut self, instance: &InstanceId) {
        if !self.tries.tries.is_empty() {
            self.tries.take(instance);
        }
    }

    /// A node has listed what runs on it: forgets what is tried there, except for STARTs whose answer is still to come.
    pub(crate) fn forget_answered_tries(&mut self, key: NodeKey) {
        let ledger = &self.nodes.node(key).ledger;
        let is_open = |instance: &InstanceId| ledger.is_unanswered(instance);
        self.tries.forget_on(key, is_open);
    }
}

impl Tries {
    /// Whether one more START may be tried.
    fn has_room(&self) -> bool {
        self.tries.len() < MAX_TRIES && self.bytes < MAX_TRIED_BYTES
    }

    /// How many full nodes refused the START that is being placed again, if it is this one; 0 for any other.
    fn refusals(&self, instance: &InstanceId) -> u8 {
        let refused = self.refused.as_ref();
        refused.map_or(0, |(of, times)| if of == instance { *times } else { 0 })
    }

    /// Removes a try and takes its bytes off.
    fn take(&mut self, instance: &InstanceId) -> Option<Try> {
        let attempt = self.tries.swap_remove(instance)?;
        self.bytes -= attempt.bytes();
        Some(attempt)
    }

    /// Forgets what is tried on a node, but for what is still to be answered.
    pub(super) fn forget_on(&mut self, key: NodeKey, is_open: impl Fn(&InstanceId) -> bool) {
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

    /// Whether the bytes counted are those kept, and no START is being placed again. Part of `Scheduler::invariants`.
    pub(super) fn is_consistent(&self) -> bool {
        self.bytes == self.tries.values().map(Try::bytes).sum::<usize>() && self.refused.is_none()
    }
}

impl Try {
    /// Bytes of the payload that is kept.
    fn bytes(&self) -> usize {
        let start = self.start.as_ref();
        start.map_or(0, |start| start.parcel.payload.len())
    }
}
