//! Nodes whose latest word is FULL although room was released there since. FULL is a word about the moment it was sent:
//! such a node is tried once nothing that is READY fits, with as much as was released: by STARTs that wait when it is
//! released, then by new ones. What it refuses as full goes to the next node, and its sender hears of no refusal but that of
//! all.
//!
//! An addition to the rule of first fit, in which only READY nodes fit. Not for moves: what runs is not sent to a node
//! that may refuse it.

use crate::Scheduler;
use crate::api::action::PlacedStart;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::StartRequest;
use crate::cluster::ledger::{Ended, EntryEnd};
use crate::cluster::node::NodeStatus;
use crate::instance::Awaits;
use crate::maps::Map;
use crate::workflow::care::placing;

/// STARTs that are tried at once on nodes that called themselves full. Further ones are answered as if there were no
/// such nodes; there are more only in the moment after thousands of instances have ended.
pub const MAX_TRIES: usize = 1024;

/// Bytes of payloads kept to send those STARTs to another node; one more START may exceed it.
pub const MAX_TRIED_BYTES: usize = 16 * 1024 * 1024;

/// Nodes that may refuse one START as full before it is placed on READY ones alone: each costs its sender a round trip.
pub const MAX_REFUSALS: u8 = 16;

/// What is tried on such nodes.
#[derive(Debug, Default)]
pub(crate) struct Tries {
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
    /// To be placed again; `None` of what is looked after, whose START is kept anyway.
    start: Option<Box<PlacedStart>>,
}

impl Tries {
    /// STARTs that are tried, and the bytes of their payloads.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.tries.len(), self.bytes)
    }

    /// Whether one more START may be tried.
    pub(crate) fn has_room(&self) -> bool {
        self.tries.len() < MAX_TRIES && self.bytes < MAX_TRIED_BYTES
    }

    /// Whether this START may be tried.
    fn may_try(&self, instance: &InstanceId) -> bool {
        self.has_room() && self.refusals(instance) < MAX_REFUSALS
    }

    fn refusals(&self, instance: &InstanceId) -> u8 {
        let refused = self.refused.as_ref();
        refused.map_or(0, |(of, times)| if of == instance { *times } else { 0 })
    }

    /// A START has room on such a node.
    fn begin(&mut self, instance: &InstanceId, node: NodeKey) {
        self.forget(instance);
        let attempt = Try {
            node,
            refusals: self.refusals(instance),
            start: None,
        };
        self.tries.insert(instance.clone(), attempt);
    }

    /// Keeps a START that is tried: it leaves for its node now.
    pub(crate) fn keep(&mut self, start: &PlacedStart) {
        if let Some(attempt) = self.tries.get_mut(&start.request.instance) {
            self.bytes += start.frame.payload.len();
            attempt.start = Some(Box::new(start.clone()));
        }
    }

    /// A START is not tried any more: it was confirmed, has failed, or is on its way a second time.
    pub(crate) fn forget(&mut self, instance: &InstanceId) {
        if !self.tries.is_empty() {
            self.take(instance);
        }
    }

    fn take(&mut self, instance: &InstanceId) -> Option<Try> {
        let attempt = self.tries.swap_remove(instance)?;
        self.bytes -= attempt.bytes();
        Some(attempt)
    }

    /// Forgets what is tried on a node, but for what is still to be answered.
    pub(crate) fn forget_on(&mut self, key: NodeKey, is_open: impl Fn(&InstanceId) -> bool) {
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
    pub(crate) fn is_consistent(&self) -> bool {
        self.bytes == self.tries.values().map(Try::bytes).sum::<usize>() && self.refused.is_none()
    }
}

impl Try {
    fn bytes(&self) -> usize {
        let start = self.start.as_ref();
        start.map_or(0, |start| start.frame.payload.len())
    }
}

impl Scheduler {
    /// Of the nodes that called themselves full before room was released there, the first that could take a START; it
    /// becomes the most recently used.
    pub(crate) fn choose_full(&mut self, request: &StartRequest) -> Option<NodeKey> {
        if self.cluster.full_nodes().is_empty() || !self.tries.may_try(&request.instance) {
            return None;
        }
        self.placement
            .choose_full(&mut self.cluster, request, self.now)
    }

    /// A START was given room on a node: if the node called itself full, it may yet refuse it.
    pub(crate) fn note_try(&mut self, instance: &InstanceId, key: NodeKey) {
        if self.cluster.nodes().node(key).status == NodeStatus::Full {
            self.tries.begin(instance, key);
        }
    }

    /// A node refuses a START because it is full. If it was a try on a node that had called itself full, the START is
    /// placed again; whether it was.
    pub(crate) fn refused_as_full(&mut self, key: NodeKey, instance: &InstanceId) -> bool {
        let tries = &self.tries.tries;
        let Some(attempt) = tries.get(instance).filter(|attempt| attempt.node == key) else {
            return false;
        };
        let kept = self.instances.get(instance);
        let is_awaited = match kept {
            Some(kept) => *kept.state() == placing(key, Awaits::Node),
            None => attempt.start.is_some(),
        };
        let is_kept = kept.is_some();
        if !is_awaited {
            return false;
        }
        if self.end_entry(key, instance, Ended::Failed) != EntryEnd::Over {
            // It answers an earlier START of the same instance; the outcome of the latest is still to come.
            return true;
        }
        let Some(attempt) = self.tries.take(instance) else {
            return true;
        };
        self.release(key, instance);
        self.note_full_again(key);
        self.tries.refused = Some((instance.clone(), attempt.refusals.saturating_add(1)));
        if is_kept {
            let uuid = self.cluster.nodes().node(key).uuid;
            self.seek(instance, &format!("node {uuid} is still full"));
        } else if let Some(start) = attempt.start {
            self.place(self.now, *start);
        }
        self.tries.refused = None;
        true
    }

    /// A node says that it is full, after all that was released there before.
    pub(crate) fn note_full_again(&mut self, key: NodeKey) {
        if self.cluster.nodes().node(key).status == NodeStatus::Full {
            self.cluster.ledger_mut(key).count_released();
        }
    }
}
