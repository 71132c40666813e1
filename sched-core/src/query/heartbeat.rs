//! The heartbeat's few rows, for the line that the original scheduler writes to its log: its counts and figures, and
//! nothing that this project added.

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::ids::NodeKey;
use crate::cluster::node::{NodeStatus, Pool};

/// What the heartbeat line shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// Controllers, master first, up to the number asked for.
    pub controllers: Vec<(Uuid, bool)>,
    /// All controllers.
    pub controller_count: usize,
    /// Compute nodes in order, up to the number asked for.
    pub nodes: Vec<HeartbeatNode>,
    /// All compute nodes.
    pub node_count: usize,
}

/// One compute node in the heartbeat line, as the original shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatNode {
    /// The node's UUID.
    pub uuid: Uuid,
    /// The status it reported last.
    pub status: NodeStatus,
    /// Whether it was used last.
    pub is_most_recently_used: bool,
    /// Memory free after claims, present, in MiB, and load; `None` before its first report.
    pub figures: Option<(i64, i64, i64)>,
}

impl Scheduler {
    /// The first few controllers and compute nodes, and how many there are.
    #[must_use]
    pub fn heartbeat(&self, max_controllers: usize, max_nodes: usize) -> Heartbeat {
        let table = self.cluster.table(Pool::Compute);
        let row = |key: NodeKey| {
            let node = self.cluster.node(key);
            let figures = node.report().as_ref().map(|report| {
                (
                    self.cluster.free(key).mem_mib.max(-1),
                    report.mem_total_mib,
                    report.load,
                )
            });
            HeartbeatNode {
                uuid: node.uuid(),
                status: node.status(),
                is_most_recently_used: table.most_recently_used() == Some(key),
                figures,
            }
        };
        Heartbeat {
            controllers: self
                .peers
                .controllers()
                .iter()
                .take(max_controllers)
                .map(|&id| (self.peers.session(id).uuid(), self.peers.is_master(id)))
                .collect(),
            controller_count: self.peers.controllers().len(),
            nodes: table.iter().take(max_nodes).map(row).collect(),
            node_count: table.len(),
        }
    }
}
