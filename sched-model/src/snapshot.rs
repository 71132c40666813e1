//! Snapshot: all nodes, arrays and instances, page by page, for a controller that becomes master (added by this project).

use crate::{ArrayView, record};

use crate::query::{InstanceView, NodeView};

record! {
    /// `snapshot: {page, last, nodes, arrays, instances}`, with at most [`crate::query::MAX_LIMIT`] rows in all.
    pub struct Snapshot {
        /// Number of the page, from 0.
        page: u32 as "page",
        /// Whether no page follows.
        last: bool as "last",
        /// Nodes.
        nodes: Vec<NodeView> as "nodes" unless empty,
        /// Arrays, the latest first.
        arrays: Vec<ArrayView> as "arrays" unless empty,
        /// Instances.
        instances: Vec<InstanceView> as "instances" unless empty,
    }
}
