//! Rows of nodes: what each has, what of that is free, and what its launcher can do.

use std::collections::BTreeMap;
use std::time::Instant;

use proto_frames::payload::NodeView;

use super::page::{Allowance, NodeCursor};
use super::{amounts_len, labels_len, named};
use crate::Scheduler;
use crate::api::ids::{NodeKey, uuid_starts_with};
use crate::api::input::{Capabilities, NodeReport};
use crate::cluster::facts::LACKS_VM_TYPE;
use crate::cluster::node::{Node, Pool, Presence};

impl Scheduler {
    /// Adds the rows of nodes that match, from a place on; where the next page begins if there is more.
    pub(crate) fn node_page(
        &self,
        now: Instant,
        from: NodeCursor,
        pattern: &str,
        allowance: &mut Allowance,
        rows: &mut Vec<NodeView>,
    ) -> Option<NodeCursor> {
        let most_recent = Pool::ALL.map(|pool| self.cluster.table(pool).most_recently_used());
        for (key, node) in self.cluster.nodes().iter_from(from.0) {
            if allowance.is_used_up() {
                return Some(NodeCursor(key.0 as usize));
            }
            allowance.look();
            if matches_node(node, pattern) {
                let row = self.node_row(now, key, most_recent.contains(&Some(key)));
                let left_out: usize = row.resources_left_out.iter().map(String::len).sum();
                let amounts = amounts_len(&row.resources_total) * 2;
                allowance.take_row(labels_len(&row.labels) + amounts + left_out);
                rows.push(row);
            }
        }
        None
    }

    fn node_row(&self, now: Instant, key: NodeKey, most_recently_used: bool) -> NodeView {
        let node = self.cluster.nodes().node(key);
        let free = self.cluster.nodes().free(key);
        let report = node.report.as_deref();
        let of = |figure: fn(&NodeReport) -> i64| report.map_or(-1, figure);
        let status = match node.presence {
            Presence::Connected(_) => node.status.name(),
            Presence::Lost(_) => "LOST",
        };
        NodeView {
            node_uuid: node.uuid.to_string(),
            hostname: node.hostname().to_owned(),
            roles: node.roles.to_string(),
            status: status.to_owned(),
            mem_total_mb: of(|report| report.mem_total_mib),
            mem_available_mb: of(|report| report.mem_available_mib),
            mem_free_mb: free.mem_mib.max(-1),
            disk_total_mb: of(|report| report.disk_total_mb),
            disk_available_mb: of(|report| report.disk_available_mb),
            disk_free_mb: free.disk_mib.max(-1),
            cpus_online: of(|report| report.cpus_online),
            vcpus_free: free.vcpus.max(-1),
            load: of(|report| report.load),
            instances: node.ledger.len() as i64,
            unconfirmed: node.ledger.unconfirmed() as i64,
            connected_s: now.saturating_duration_since(node.since).as_secs() as i64,
            most_recently_used,
            labels: labels_of(node),
            resources_total: named(
                &node.traits.resources,
                self.cluster.columns(),
                |_, total| total,
            ),
            resources_free: named(
                &node.traits.resources,
                self.cluster.columns(),
                |column, _| self.cluster.nodes().free_custom(key, column).max(0),
            ),
            resources_left_out: node.left_out.iter().map(|it| it.to_string()).collect(),
            failures: match node.failures.at(now) {
                0.0 => String::new(),
                failures => format!("{failures:.2}"),
            },
            capabilities: node.capabilities().names().map(str::to_owned).collect(),
            lease_ms: lease_ms(node),
            fault: node.fault().map_or_else(String::new, ToString::to_string),
            cordoned: node.is_cordoned,
            drain: self.drain_words(node.uuid),
        }
    }
}

fn matches_node(node: &Node, pattern: &str) -> bool {
    pattern.is_empty() || node.hostname() == pattern || uuid_starts_with(&node.uuid, pattern)
}

/// A node's labels by key.
fn labels_of(node: &Node) -> BTreeMap<String, Vec<String>> {
    let mut labels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let is_shown = |(key, _): &&(Box<str>, Box<str>)| **key != *LACKS_VM_TYPE;
    for (key, value) in node.traits.labels.iter().filter(is_shown) {
        labels
            .entry(key.to_string())
            .or_default()
            .push(value.to_string());
    }
    labels
}

/// How long a node's launcher lets instances run when it is cut off, where it promised to stop them then.
fn lease_ms(node: &Node) -> Option<i64> {
    if !node.can(Capabilities::LEASE) {
        return None;
    }
    let extras = node.report.as_ref()?.extras.as_ref()?;
    i64::try_from(extras.lease?.as_millis()).ok()
}
