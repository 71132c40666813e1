//! Rows of nodes: what each has, what of that is free, and what its launcher can do. First absent ones, by
//! UUID: those that were lost and given up, and those from before a restart that are not back; then the nodes that the
//! store has, by key.

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::time::Instant;

use sched_model::{NodeView, Query, Role, UNKNOWN, Uuid};

use super::page::{Allowance, NodeCursor, Page, amounts_len, labels_len, limit, start_of};
use crate::api::explained::DrainSummary;
use crate::api::ids::{NodeKey, uuid_starts_with};
use crate::api::input::{Capabilities, NodeReport};
use crate::api::known_node::KnownNode;
use crate::cluster::facts::{LACKS_VM_TYPE, VOLUME};
use crate::cluster::node::{Node, Pool, Presence};
use crate::sight::Sight;

/// The status of a node whose connection has ended. The words for connected nodes are those of `NodeStatus`.
pub(super) const LOST: &str = "LOST";

/// The status of a node that was connected before a restart of the scheduler, and may still return.
pub(super) const EXPECTED: &str = "EXPECTED";

impl Sight<'_> {
    /// Nodes whose host name is the pattern or whose UUID begins with it; all nodes for an empty pattern.
    pub(super) fn query_nodes(&self, now: Instant, query: &Query, result: &mut Page) {
        let Some(from) = start_of(query, result) else {
            return;
        };
        let pattern = query.matching.as_deref().unwrap_or_default();
        let mut allowance = Allowance::new(limit(query));
        let nodes = (&mut result.payload.nodes, &mut result.cause.drains);
        let next = self.node_page(now, from, pattern, &mut allowance, nodes);
        result.next = next.map(|cursor| cursor.to_string());
    }

    /// Adds the rows of nodes that match, from a cursor on. Returns the cursor of the next page if there is more.
    ///
    /// `drains` gets the position of each row whose node is being drained, with how far that is. A row is counted
    /// against the allowance after it was added, so a page has at least one row, and may exceed its bytes by one row.
    pub(crate) fn node_page(
        &self,
        now: Instant,
        from: NodeCursor,
        pattern: &str,
        allowance: &mut Allowance,
        (rows, drains): (&mut Vec<NodeView>, &mut Vec<(usize, DrainSummary)>),
    ) -> Option<NodeCursor> {
        let (first_absent, first) = match from {
            NodeCursor::Absent(uuid) => (Some(uuid), 0),
            NodeCursor::Present(key) => (None, key),
        };
        let absent = first_absent.map(|uuid| self.cluster.absent_from(uuid));
        for node in absent.into_iter().flatten() {
            if allowance.is_used_up() {
                return Some(NodeCursor::Absent(node.uuid));
            }
            allowance.look();
            if matches(&node.hostname, node.uuid, pattern) {
                let row = self.absent_row(node);
                allowance.take_row(row.hostname.len());
                rows.push(row);
            }
        }
        let most_recent = Pool::ALL.map(|pool| self.cluster.table(pool).most_recently_used());
        for (key, node) in self.cluster.nodes_from(first) {
            if allowance.is_used_up() {
                return Some(NodeCursor::Present(key.0 as usize));
            }
            allowance.look();
            if matches(node.hostname(), node.uuid(), pattern) {
                let row = self.node_row(now, key, most_recent.contains(&Some(key)));
                let left_out: usize = row.resources_left_out.iter().map(String::len).sum();
                let amounts = amounts_len(&row.resources_total) * 2;
                allowance.take_row(labels_len(&row.labels) + amounts + left_out);
                let drain = self.drain_summary(node.uuid());
                allowance.look_at(drain.as_ref().map_or(0, |it| it.unmovable));
                drains.extend(drain.map(|drain| (rows.len(), drain)));
                rows.push(row);
            }
        }
        None
    }

    /// The row of a node that is not in the store: only its names, roles, number of instances and last address are
    /// remembered.
    fn absent_row(&self, node: &KnownNode) -> NodeView {
        let lost_ms = node
            .lost_since_ms
            .map(|since_ms| self.clock.unix_ms(self.now).saturating_sub(since_ms));
        let status = if lost_ms.is_some() { LOST } else { EXPECTED };
        NodeView {
            node_uuid: node.uuid.to_string(),
            hostname: node.hostname.to_string(),
            roles: match node.roles {
                Role(0) => String::new(),
                roles => roles.to_string(),
            },
            status: status.to_owned(),
            instances: self.lost_with(node.uuid) as i64,
            connected_s: UNKNOWN,
            cordoned: self.cluster.is_cordoned(node.uuid),
            lost_s: lost_ms.map(|ms| (ms / 1000) as i64),
            address: address_text(node.address),
            ..NodeView::default()
        }
    }

    /// The row of a node in the store. Figures that are not known are -1, and so are negative ones of a node that is
    /// overcommitted.
    fn node_row(&self, now: Instant, key: NodeKey, most_recently_used: bool) -> NodeView {
        let node = self.cluster.node(key);
        let free = self.cluster.free(key);
        let (report, columns) = (node.report(), self.cluster.columns());
        let of = |figure: fn(&NodeReport) -> i64| report.map_or(-1, figure);
        let (status, lost_since) = match node.presence() {
            Presence::Connected(_) => (node.status().name(), None),
            Presence::Lost(since) => (LOST, Some(since)),
        };
        let lost_s = lost_since.map(|since| now.saturating_duration_since(since).as_secs() as i64);
        NodeView {
            node_uuid: node.uuid().to_string(),
            hostname: node.hostname().to_owned(),
            roles: node.roles().to_string(),
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
            instances: (node.ledger().len() + self.lost_with(node.uuid())) as i64,
            unconfirmed: node.ledger().unconfirmed() as i64,
            connected_s: match lost_since {
                Some(_) => UNKNOWN,
                None => now.saturating_duration_since(node.since()).as_secs() as i64,
            },
            most_recently_used,
            labels: labels_of(node),
            resources_total: columns.named(&node.traits().resources, |_, total| total),
            resources_free: columns.named(&node.traits().resources, |column, _| {
                self.cluster.free_custom(key, column).max(0)
            }),
            resources_left_out: node.left_out().iter().map(|it| it.to_string()).collect(),
            failures: match node.failures().at(now) {
                0.0 => String::new(),
                failures => format!("{failures:.2}"),
            },
            capabilities: node.capabilities().names().map(str::to_owned).collect(),
            lease_ms: lease_ms(node),
            fault: node.fault().map_or_else(String::new, ToString::to_string),
            cordoned: node.is_cordoned(),
            drain: String::new(),
            lost_s,
            reported_s: match lost_since {
                Some(_) => None,
                None => {
                    let since = now.saturating_duration_since(node.reported().at());
                    Some(since.as_secs() as i64)
                }
            },
            address: address_text(node.address()),
            certificate_ends_at_s: node
                .session()
                .and_then(|id| self.peers.session(id).certificate_ends_s()),
        }
    }
}

/// Whether a node is meant by a pattern: its whole host name, or the beginning of its UUID.
fn matches(hostname: &str, uuid: Uuid, pattern: &str) -> bool {
    pattern.is_empty() || hostname == pattern || uuid_starts_with(&uuid, pattern)
}

/// The address of the latest connection as `IP:PORT`; empty where none is known.
fn address_text(address: Option<SocketAddr>) -> String {
    address.map_or_else(String::new, |address| address.to_string())
}

/// A node's labels by key. Labels that only the search needs are left out: the types it does not run, and its volumes,
/// of which there are many.
fn labels_of(node: &Node) -> BTreeMap<String, Vec<String>> {
    let mut labels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let is_shown = |(key, _): &&(Box<str>, Box<str>)| ![LACKS_VM_TYPE, VOLUME].contains(&&**key);
    for (key, value) in node.traits().labels.iter().filter(is_shown) {
        labels
            .entry(key.to_string())
            .or_default()
            .push(value.to_string());
    }
    labels
}

/// How long a node's launcher lets instances run once it is cut off, in milliseconds; `None` where it has not promised
/// to stop them then.
fn lease_ms(node: &Node) -> Option<i64> {
    if !node.can(Capabilities::LEASE) {
        return None;
    }
    let extras = node.report().as_ref()?.extras.as_ref()?;
    i64::try_from(extras.lease?.as_millis()).ok()
}
