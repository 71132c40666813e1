//! What is asked of a cluster about one node: by its key, or by its UUID. The node, its ledger and the list of nodes are
//! not reached through from elsewhere.

use sched_model::Uuid;

use crate::api::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
use crate::api::resources::Resources;
use crate::api::text::ShortText;
use crate::cluster::Cluster;
use crate::cluster::index::ColumnId;
use crate::cluster::ledger::{Entry, Ledger};
use crate::cluster::node::Node;

/// All of these but [`Cluster::contains`] panic with a key that is no node's any more.
impl Cluster {
    /// Whether a node has this key; its key is invalid once it was given up.
    #[inline]
    pub(crate) fn contains(&self, key: NodeKey) -> bool {
        self.nodes.contains(key)
    }

    /// A node, to be looked at.
    #[inline]
    pub(crate) fn node(&self, key: NodeKey) -> &Node {
        self.nodes.node(key)
    }

    /// The nodes from a position in the list of all, in the order in which they first connected.
    pub(crate) fn nodes_from(&self, start: usize) -> impl Iterator<Item = (NodeKey, &Node)> {
        self.nodes.iter_from(start)
    }

    /// The key of a node, if it is connected, or in doubt.
    #[inline]
    pub(crate) fn by_uuid(&self, uuid: Uuid) -> Option<NodeKey> {
        self.nodes.by_uuid(uuid)
    }

    /// The same by the UUID as a command has it.
    pub(crate) fn by_name(&self, node: &str) -> Option<NodeKey> {
        self.by_uuid(canonical_uuid(node)?)
    }

    /// The UUID of a node.
    #[inline]
    pub(crate) fn uuid(&self, key: NodeKey) -> Uuid {
        self.node(key).uuid()
    }

    /// The UUID and the host name of a node, to be kept elsewhere.
    pub(crate) fn host(&self, key: NodeKey) -> (Uuid, ShortText) {
        let node = self.node(key);
        (node.uuid(), node.hostname_text())
    }

    /// The connection of a node, if there is one.
    #[inline]
    pub(crate) fn session(&self, key: NodeKey) -> Option<SessionId> {
        self.node(key).session()
    }

    /// The claims on a node.
    #[inline]
    pub(crate) fn ledger(&self, key: NodeKey) -> &Ledger {
        self.node(key).ledger()
    }

    /// The claim of an instance on a node.
    #[inline]
    pub(crate) fn entry(&self, key: NodeKey, instance: &InstanceId) -> Option<&Entry> {
        self.ledger(key).get(instance)
    }

    /// What is free on a node, whether or not it takes work.
    #[inline]
    pub(crate) fn free(&self, key: NodeKey) -> Resources {
        self.nodes.free(key)
    }

    /// What was released on a node since it called itself full.
    pub(crate) fn released(&self, key: NodeKey) -> Resources {
        self.nodes.released(key)
    }

    /// How much of a custom resource is free on a node.
    #[inline]
    pub(crate) fn free_custom(&self, key: NodeKey, column: ColumnId) -> i64 {
        self.nodes.free_custom(key, column)
    }
}
