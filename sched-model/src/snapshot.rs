//! Snapshot: all nodes and instances, page by page, for a controller that becomes master (added by this project).

use crate::record;

use crate::query::{InstanceView, NodeView};

record! {
    /// `snapshot: {page, last, nodes, instances}`, with at most [`crate::query::MAX_LIMIT`] rows in all.
    pub struct Snapshot {
        /// Number of the page, from 0.
        page: u32 as "page",
        /// Whether no page follows.
        last: bool as "last",
        /// Nodes.
        nodes: Vec<NodeView> as "nodes" unless empty,
        /// Instances.
        instances: Vec<InstanceView> as "instances" unless empty,
    }
}
