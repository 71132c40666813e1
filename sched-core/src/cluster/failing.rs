//! Nodes with many recent failures: managed instances go there only if no other node fits. A plain START is placed as
//! ever, unless the policy weighs failures. Failures fade with time (`failures`), so a node comes back into use by
//! itself.

use std::time::Instant;

use sched_model::Uuid;

use crate::api::ids::NodeKey;
use crate::cluster::Cluster;

/// Failures from which on a node is avoided; older ones count less than 1. One may be chance, and so may two.
pub(crate) const AVOIDED_FROM: f64 = 2.5;

/// Nodes that are avoided at once. If more of them fail, the cause is not in the nodes.
const MAX_AVOIDED: usize = 64;

impl Cluster {
    /// Records a failure of a node.
    pub(crate) fn record_failure(&mut self, key: NodeKey, now: Instant) {
        let node = self.nodes.node_mut(key);
        node.failures.add(now);
        if node.failures.at(now) >= AVOIDED_FROM && self.failing.len() < MAX_AVOIDED {
            self.failing.insert(key);
        }
    }

    /// Retracts the latest failure of a node: the instance has failed in the same way elsewhere, so it is at fault
    /// itself.
    pub(crate) fn retract_failure(&mut self, key: NodeKey, now: Instant) {
        self.nodes.node_mut(key).failures.retract(now);
    }

    /// The nodes that are avoided at present; those whose failures have faded are dropped.
    pub(crate) fn failing_nodes(&mut self, now: Instant) -> Vec<Uuid> {
        if self.failing.is_empty() {
            return Vec::new();
        }
        let nodes = &self.nodes;
        let fails = |key: &NodeKey| {
            nodes.contains(*key) && nodes.node(*key).failures.at(now) >= AVOIDED_FROM
        };
        self.failing.retain(fails);
        let failing = self.failing.iter();
        failing.map(|&key| nodes.node(key).uuid).collect()
    }
}
