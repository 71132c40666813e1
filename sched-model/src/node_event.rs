//! NodeConnected and NodeDisconnected: a launcher came or went.

use crate::{record, words};

record! {
    /// `node_connected: {node_uuid, node_type}`.
    pub struct NodeConnected {
        /// The node.
        node_uuid: String as "node_uuid",
        /// Compute or network node.
        node_type: NodeType as "node_type",
    }
}

record! {
    /// `node_disconnected: {node_uuid, node_type}`.
    pub struct NodeDisconnected {
        /// The node.
        node_uuid: String as "node_uuid",
        /// Compute or network node.
        node_type: NodeType as "node_type",
    }
}

words! {
    /// What a node is for.
    pub enum NodeType {
        /// Runs tenants' instances.
        Compute = "compute_node",
        /// Runs concentrator instances.
        Network = "network_node",
    }
}
