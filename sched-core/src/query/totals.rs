//! What the cluster has in all: nodes by role and status, resources, what is in doubt or lost; for the metrics. Gathered in
//! steps of bounded length, between which the lock is released, so that no sum delays other work however many nodes
//! there are. Nodes that change meanwhile are counted as they are when their step comes.

use std::collections::BTreeMap;
use std::time::Instant;

use sched_model::{Role, StoreView, Uuid};

use crate::Scheduler;
use crate::api::ids::NodeKey;
use crate::api::resources::Resources;
use crate::cluster::node::{Node, NodeStatus, Presence};
use crate::sight::Sight;

/// Nodes that one step looks at: some 100 µs.
const NODES_PER_STEP: usize = 500;

/// The name under which custom resources are summed up that no configuration names. So nodes cannot make the metrics
/// grow without bound.
const OTHER: &str = "other";

/// The status under which cordoned nodes are counted that would take work otherwise.
const CORDONED: &str = "CORDONED";

/// Where the next step goes on; begins at the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TotalsCursor(usize);

/// One kind of node, as the key of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeCount {
    /// The roles of a node, AGENT, NETAGENT or both.
    pub role: Role,
    /// READY, FULL and so on; LOST, or EXPECTED after a restart of the scheduler.
    pub status: &'static str,
}

/// One resource in all connected nodes. Memory and disk in MiB (what is used of disk in 10⁶ bytes), else a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceTotal {
    /// What they could offer if nothing ran on them.
    pub capacity: i64,
    /// What their instances asked for.
    pub claimed: i64,
    /// What is in use by the nodes' own reports: of memory and disk what is not available, of vcpus the load; of custom
    /// resources what is claimed.
    pub used: i64,
    /// The most that is free on one node, of those that are READY or FULL, not cordoned and without a fault.
    pub largest_free: i64,
}

/// What the cluster has in all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Nodes of each kind; kinds without nodes are left out.
    pub nodes: BTreeMap<NodeCount, u64>,
    /// Memory, MiB.
    pub mem: ResourceTotal,
    /// Virtual CPUs.
    pub vcpus: ResourceTotal,
    /// Disk.
    pub disk: ResourceTotal,
    /// Custom resources: those that the configuration names by their names, the others together as `other`.
    pub custom: BTreeMap<String, ResourceTotal>,
    /// Instances in nodes' ledgers.
    pub instances: u64,
    /// Those of them that their nodes have not confirmed.
    pub unconfirmed: u64,
    /// Those of them whose STARTs were written to nodes which are lost.
    pub in_doubt: u64,
}

impl ResourceTotal {
    /// Adds one node; figures below 0, which are not known, count as 0. Sums saturate.
    fn add(&mut self, capacity: i64, claimed: i64, used: i64, free: i64) {
        self.capacity = self.capacity.saturating_add(capacity.max(0));
        self.claimed = self.claimed.saturating_add(claimed.max(0));
        self.used = self.used.saturating_add(used.max(0));
        self.largest_free = self.largest_free.max(free);
    }
}

/// A few numbers that cost nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// Instances that wait for room.
    pub queued: usize,
    /// Controllers that are connected.
    pub controllers: usize,
    /// Sessions of all kinds.
    pub sessions: usize,
    /// Whether nodes that were connected before a restart are still coming back.
    pub is_recovering: bool,
    /// Of the nodes that are being drained, the earliest time at which one was cordoned, in milliseconds since 1970. A
    /// node may have been cordoned long before its drain began.
    pub oldest_drain_ms: Option<u64>,
}

impl Scheduler {
    /// A few numbers that are at hand.
    #[must_use]
    pub fn glance(&self) -> Glance {
        Glance {
            queued: self.queue.len(),
            controllers: self.peers.controllers().len(),
            sessions: self.peers.len(),
            is_recovering: self.recovery.is_open(),
            oldest_drain_ms: self.cluster.oldest_drain_ms(),
        }
    }

    /// How the state directory is.
    #[must_use]
    pub fn store(&self, now: Instant) -> StoreView {
        self.journal.view(now, self.pending.for_disk().0)
    }

    /// Adds some nodes to a sum. Returns where to go on, `None` once all were added. Nodes that come or go between two
    /// steps may be counted or not.
    pub fn add_totals(&self, from: TotalsCursor, totals: &mut Totals) -> Option<TotalsCursor> {
        let mut nodes = self.cluster.nodes_from(from.0);
        for (key, node) in nodes.by_ref().take(NODES_PER_STEP) {
            self.sight().add_node(key, node, totals);
        }
        if let Some((next, _)) = nodes.next() {
            return Some(TotalsCursor(next.0 as usize));
        }
        for node in self.cluster.absent_from(Uuid::nil()) {
            let status = match node.lost_since_ms {
                Some(_) => super::nodes::LOST,
                None => super::nodes::EXPECTED,
            };
            let role = node.roles;
            *totals.nodes.entry(NodeCount { role, status }).or_default() += 1;
        }
        None
    }
}

impl Sight<'_> {
    /// How many instances are listed as lost with a node that is not in the store, or is back and has not listed them yet.
    pub(super) fn lost_with(&self, node: Uuid) -> usize {
        self.instances.lost_count(node) + self.journal.lost_plain_on(node)
    }

    fn add_node(&self, key: NodeKey, node: &Node, totals: &mut Totals) {
        let is_connected = matches!(node.presence(), Presence::Connected(_));
        let status = match is_connected {
            // It takes no work, whatever its launcher reports.
            true if node.is_cordoned() && takes_work(node.status()) => CORDONED,
            true => node.status().name(),
            false => super::nodes::LOST,
        };
        let role = node.roles();
        *totals.nodes.entry(NodeCount { role, status }).or_default() += 1;
        let ledger = node.ledger();
        totals.instances += ledger.len() as u64;
        totals.unconfirmed += ledger.unconfirmed() as u64;
        if !is_connected {
            totals.in_doubt += ledger.unconfirmed() as u64;
            return;
        }
        // What a node that calls itself full has left of other resources is free.
        let takes_work = takes_work(node.status()) && !node.is_cordoned() && node.fault().is_none();
        let free = match takes_work {
            true => self.cluster.free(key),
            false => Resources::ZERO,
        };
        let (capacity, claims) = (node.capacity(), ledger.claims().asked);
        let report = node.report();
        let used = |total: i64, available: i64| match total < 0 || available < 0 {
            true => 0,
            false => total - available,
        };
        let mem = report.map_or(0, |it| used(it.mem_total_mib, it.mem_available_mib));
        let disk = report.map_or(0, |it| used(it.disk_total_mb, it.disk_available_mb));
        let load = report.map_or(0, |it| it.load);
        totals
            .mem
            .add(capacity.mem_mib, claims.mem_mib, mem, free.mem_mib);
        totals
            .vcpus
            .add(capacity.vcpus, claims.vcpus, load, free.vcpus);
        totals
            .disk
            .add(capacity.disk_mib, claims.disk_mib, disk, free.disk_mib);
        self.add_custom(key, node, takes_work, totals);
    }

    fn add_custom(&self, key: NodeKey, node: &Node, takes_work: bool, totals: &mut Totals) {
        let columns = self.cluster.columns();
        for &(column, total) in &node.traits().resources {
            let held = node.ledger().held_custom();
            let held = held.iter().find(|(other, _)| *other == column);
            let claimed = held.map_or(0, |(_, amount)| *amount);
            let free = match takes_work {
                true => self.cluster.free_custom(key, column),
                false => 0,
            };
            let name = match columns.is_fixed(column) {
                true => columns.name(column),
                false => OTHER,
            };
            let sum = totals.custom.entry(name.to_owned()).or_default();
            sum.add(total, claimed, claimed, free);
        }
    }
}

/// Whether a node of this status takes work, now or once there is room.
fn takes_work(status: NodeStatus) -> bool {
    matches!(status, NodeStatus::Ready | NodeStatus::Full)
}
