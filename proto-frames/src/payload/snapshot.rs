//! Snapshot: all nodes and instances, page by page, for a controller that becomes master (added by this project).

use sched_model::record;

use super::document::payload;
use super::guard::LARGE;
use super::query::{InstanceView, NodeView};

record! {
    /// `snapshot: {page, last, nodes, instances}`, with at most [`super::query::MAX_LIMIT`] rows in all.
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

payload!(Snapshot under "snapshot", LARGE);
