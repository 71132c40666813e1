//! Nodes whose latest status is FULL although room was released there since. FULL describes the moment when it was
//! sent: such a node is tried once nothing that is READY fits, with as much as was released, first by STARTs that wait
//! when it is released, then by those that come. The workflow is `workflow::tries`.

use crate::api::config::MAX_INSTANCES_PER_NODE;
use crate::api::ids::NodeKey;
use crate::api::input::Backlog;
use crate::api::resources::Resources;
use crate::cluster::node::{Node, NodeStatus};
use crate::cluster::nodes::NodeStore;

impl Node {
    /// Whether a START may be tried on it although it called itself full: room was released since.
    pub(crate) fn may_be_tried(&self) -> bool {
        self.has_room_again()
            && self.fault().is_none()
            && self.session().is_some()
            && !self.is_cordoned
            && self.backlog == Backlog::Clear
            && self.ledger.len() < MAX_INSTANCES_PER_NODE
    }

    /// Whether its latest word is FULL, and room was released on it since.
    pub(crate) fn has_room_again(&self) -> bool {
        let is_some = |it: Resources| it.mem_mib > 0 || it.vcpus > 0 || it.disk_mib > 0;
        self.status == NodeStatus::Full && self.ledger.released().is_some_and(is_some)
    }
}

impl NodeStore {
    /// What a node offers to STARTs for which the tables offer nothing, those that wait among them: what is free while
    /// its queue is filling, and what was released since it called itself full. `NEVER` for any other node.
    pub(crate) fn last_resort(&self, key: NodeKey) -> Resources {
        let node = self.node(key);
        if node.takes_work() && node.backlog == Backlog::Filling {
            self.free(key)
        } else if node.may_be_tried() {
            self.released(key)
        } else {
            Resources::NEVER
        }
    }

    /// What was released on a node since it called itself full, as far as its capacity is not asked for. What it
    /// reported before was reported with those instances on it, and is out of date.
    pub(crate) fn released(&self, key: NodeKey) -> Resources {
        let node = self.node(key);
        let Some(released) = node.ledger.released() else {
            return Resources::NEVER;
        };
        let (known, capacity) = (self.free(key), node.capacity());
        let asked = node.ledger.claims().asked;
        Resources::each(|of| {
            let (released, capacity) = (released.amount(of).max(0), capacity.amount(of));
            match known.amount(of) {
                i64::MIN => i64::MIN,
                _ if capacity < 0 => released,
                _ => released.min(capacity.saturating_sub(asked.amount(of))),
            }
        })
    }
}
