//! Nodes that failed often of late: instances that are looked after go there only if no other node fits. A plain START is
//! placed as ever, unless the policy weighs failures.

use proto_frames::Uuid;

use crate::Scheduler;
use crate::api::ids::NodeKey;
use crate::api::input::StartRequest;

/// Failures, older ones counting less, from which on a node is avoided: one may be chance, and two as well.
pub(crate) const AVOIDED_FROM: f64 = 2.5;

/// Nodes that are avoided at once. Where more fail than that, it is not the nodes' doing.
const MAX_AVOIDED: usize = 64;

impl Scheduler {
    /// Notes that a node has failed once more.
    pub(crate) fn note_failing(&mut self, key: NodeKey) {
        let is_failing = self.nodes.node(key).failures.at(self.now) >= AVOIDED_FROM;
        if is_failing && self.failing.len() < MAX_AVOIDED {
            self.failing.insert(key);
        }
    }

    /// The node for an instance that is looked after.
    pub(crate) fn choose_wary(&mut self, request: &StartRequest) -> Option<NodeKey> {
        let failing = self.failing_nodes();
        if failing.is_empty() {
            return self.choose(request);
        }
        let mut wary = request.clone();
        wary.avoid.extend(failing);
        self.choose_ready(&wary).or_else(|| self.choose(request))
    }

    /// The nodes that are avoided now; those that did well for a while are forgotten.
    fn failing_nodes(&mut self) -> Vec<Uuid> {
        if self.failing.is_empty() {
            return Vec::new();
        }
        let (now, nodes) = (self.now, &self.nodes);
        let fails = |key: &NodeKey| {
            nodes.contains(*key) && nodes.node(*key).failures.at(now) >= AVOIDED_FROM
        };
        self.failing.retain(fails);
        let failing = self.failing.iter();
        failing.map(|&key| nodes.node(key).uuid).collect()
    }
}
