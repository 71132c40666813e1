//! The snapshot in pages: all nodes, then all arrays, then all instances, in the order and with the limits of queries. When pages are
//! made and sent is in `workflow::sync`; here is what is on them.

use std::time::Instant;

use sched_model::Snapshot;
use sched_model::query::MAX_LIMIT;

use crate::Scheduler;
use crate::api::explained::{Explained, RowCauses};
use crate::query::page::{Allowance, InstanceCursor, InstanceRows, NodeCursor};
use crate::query::waiting::Detail;

/// How much of a snapshot was sent: where the next page begins.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The number of the next page.
    page: u32,
    /// Where it begins among the nodes; `None` once all were shown.
    nodes: Option<NodeCursor>,
    /// Where it begins among the arrays; `None` once all were shown.
    arrays: Option<u64>,
    /// Where it begins among the instances.
    instances: InstanceCursor,
}

impl Default for Shown {
    /// Nothing yet.
    fn default() -> Self {
        Self {
            page: 0,
            nodes: Some(NodeCursor::default()),
            arrays: Some(0),
            instances: InstanceCursor::default(),
        }
    }
}

impl Scheduler {
    /// The next page, with its rows as they are now. [`Snapshot::last`] says that it is the last one. A page with the
    /// last nodes goes on with arrays, and one with the last of these with instances.
    pub(crate) fn snapshot_page(
        &mut self,
        now: Instant,
        shown: &mut Shown,
    ) -> Explained<Snapshot, RowCauses> {
        let mut allowance = Allowance::new(MAX_LIMIT as usize);
        let mut snapshot = Explained::<_, RowCauses>::from(Snapshot {
            page: shown.page,
            ..Snapshot::default()
        });
        shown.page += 1;
        if let Some(from) = shown.nodes {
            let nodes = (&mut snapshot.payload.nodes, &mut snapshot.cause.drains);
            shown.nodes = self.sight().node_page(now, from, "", &mut allowance, nodes);
        }
        if let (None, Some(from)) = (&shown.nodes, shown.arrays) {
            let rows = &mut snapshot.payload.arrays;
            shown.arrays = self.sight().array_page(from, "", &mut allowance, rows);
        }
        if shown.nodes.is_none() && shown.arrays.is_none() {
            let from = std::mem::take(&mut shown.instances);
            let (rows, causes) = (
                &mut snapshot.payload.instances,
                &mut snapshot.cause.instances,
            );
            let mut rows = InstanceRows::new(rows, causes, allowance);
            match self.sight().instance_page(now, from, "", &mut rows) {
                Some(next) => shown.instances = next,
                None => snapshot.last = true,
            }
            let rows = &mut snapshot.payload.instances;
            self.explain_rows(now, Detail::Cause, (rows, &mut snapshot.cause.instances));
        }
        snapshot
    }
}
