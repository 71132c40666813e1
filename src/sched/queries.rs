//! Read-only pictures for people: pages of nodes, instances and controllers, and the heartbeat's few rows.

use std::collections::BTreeMap;
use std::time::Instant;

use proto_frames::payload::query::MAX_LIMIT;
use proto_frames::payload::{
    ControllerView, InstanceView, NodeView, PlacementState, Query, QueryKind, QueryResult, Standing,
};
use proto_frames::{Role, Uuid};

use super::Scheduler;
use super::action::Message;
use super::columns::Columns;
use super::ids::{InstanceId, NodeKey, SessionId, uuid_starts_with};
use super::index::ColumnId;
use super::ledger::{Entry, Phase};
use super::node::{Node, NodeStatus, Pool, Presence};

/// Rows looked at for one answer, wanted or not: what bounds the time a query takes.
const MAX_QUERY_SCAN: usize = 4_000;

/// Bytes of labels, resources and groups in one answer, beyond which it ends with a further page to come. Each may be
/// long and a row may have many; written with every character escaped, which takes four bytes for one, and the rest of
/// [`MAX_LIMIT`] rows beside them, they stay below the longest payload of a frame.
const MAX_TRAITS_LEN: usize = 256 * 1024;

/// What the YAML around a label or resource takes, in bytes: indentation, colon, dash, line ends.
const ENTRY_LEN: usize = 24;

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

/// One compute node in the heartbeat line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatNode {
    /// Which.
    pub uuid: Uuid,
    /// What it last said of itself.
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
        let table = &self.tables[Pool::Compute as usize];
        let row = |key: NodeKey| {
            let node = self.nodes.node(key);
            let figures = node.report.as_ref().map(|report| {
                (
                    self.nodes.free(key).mem_mib.max(-1),
                    report.mem_total_mib,
                    report.load,
                )
            });
            HeartbeatNode {
                uuid: node.uuid,
                status: node.status,
                is_most_recently_used: table.most_recently_used() == Some(key),
                figures,
            }
        };
        Heartbeat {
            controllers: self
                .controllers
                .iter()
                .take(max_controllers)
                .map(|&id| (self.session(id).uuid, self.is_master(id)))
                .collect(),
            controller_count: self.controllers.len(),
            nodes: table.iter().take(max_nodes).map(row).collect(),
            node_count: table.len(),
        }
    }

    pub(super) fn query(&mut self, now: Instant, id: SessionId, query: &Query) {
        let mut result = QueryResult {
            id: query.id,
            what: query.what.clone(),
            ..QueryResult::default()
        };
        match &query.what {
            QueryKind::Nodes => self.query_nodes(now, query, &mut result),
            QueryKind::Instances => self.query_instances(now, query, &mut result),
            QueryKind::Controllers => result.controllers = self.controller_rows(now),
            QueryKind::Queue | QueryKind::History => {
                result.error = Some(format!("query.what is '{}': none is kept", query.what));
            }
            QueryKind::Other(what) => {
                result.error = Some(format!(
                    "query.what is '{what}': expected nodes, instances or controllers"
                ));
            }
        }
        self.send(id, Message::QueryResult(Box::new(result)));
    }

    fn query_nodes(&self, now: Instant, query: &Query, result: &mut QueryResult) {
        let Some(start) = cursor(query, result) else {
            return;
        };
        let (from, _) = start;
        let pattern = query.matching.as_deref().unwrap_or_default();
        let most_recent = Pool::ALL.map(|pool| self.tables[pool as usize].most_recently_used());
        let mut traits_len = 0;
        for (scanned, (key, node)) in self.nodes.iter_from(from).enumerate() {
            let is_full = result.nodes.len() >= limit(query) || traits_len >= MAX_TRAITS_LEN;
            if is_full || scanned >= MAX_QUERY_SCAN {
                result.next = Some(format!("{}:0", key.0));
                return;
            }
            if matches_node(node, pattern) {
                let is_most_recent = most_recent.contains(&Some(key));
                let row = self.node_row(now, key, is_most_recent);
                traits_len += labels_len(&row.labels);
                traits_len += amounts_len(&row.resources_total) * 2;
                result.nodes.push(row);
            }
        }
    }

    fn node_row(&self, now: Instant, key: NodeKey, most_recently_used: bool) -> NodeView {
        let node = self.nodes.node(key);
        let free = self.nodes.free(key);
        let report = node.report.as_deref();
        let of = |figure: fn(&super::input::NodeReport) -> i64| report.map_or(-1, figure);
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
            resources_total: named(&node.traits.resources, &self.columns, |_, total| total),
            resources_free: named(&node.traits.resources, &self.columns, |column, _| {
                self.nodes.free_custom(key, column).max(0)
            }),
            failures: match node.failures.at(now) {
                0.0 => String::new(),
                failures => format!("{failures:.2}"),
            },
            cordoned: node.is_cordoned,
            drain: self.drain_words(node.uuid),
            ..NodeView::default()
        }
    }

    fn query_instances(&self, now: Instant, query: &Query, result: &mut QueryResult) {
        let pattern = query.matching.as_deref().unwrap_or_default();
        let named = InstanceId::new(pattern);
        if let Some(&key) = self.holders.get(&named) {
            let node = self.nodes.node(key);
            let entry = node.ledger.get(&named);
            let row = entry.map(|entry| self.instance_row(now, node, &named, entry));
            result.instances.extend(row);
            return;
        }
        let Some((from, mut first)) = cursor(query, result) else {
            return;
        };
        let (mut scanned, mut traits_len) = (0, 0);
        for (key, node) in self.nodes.iter_from(from) {
            let by_host = !pattern.is_empty() && node.hostname() == pattern;
            for (at, (instance, entry)) in node.ledger.entries_from(first).enumerate() {
                let is_full =
                    result.instances.len() >= limit(query) || traits_len >= MAX_TRAITS_LEN;
                if is_full || scanned >= MAX_QUERY_SCAN {
                    result.next = Some(format!("{}:{}", key.0, first + at));
                    return;
                }
                scanned += 1;
                if by_host || pattern.is_empty() || instance.starts_with(pattern) {
                    let row = self.instance_row(now, node, instance, entry);
                    traits_len += row.group.len() + amounts_len(&row.resources);
                    result.instances.push(row);
                }
            }
            first = 0;
            scanned += 1;
        }
    }

    fn instance_row(
        &self,
        now: Instant,
        node: &Node,
        instance: &InstanceId,
        entry: &Entry,
    ) -> InstanceView {
        let state = match (node.presence, entry.phase) {
            (Presence::Lost(_), _) | (_, Phase::InDoubt(_)) => PlacementState::InDoubt,
            (_, Phase::Claimed | Phase::Placed(_)) => PlacementState::Placed,
            (_, Phase::Running) => PlacementState::Running,
        };
        InstanceView {
            instance_uuid: instance.to_string(),
            node_uuid: node.uuid.to_string(),
            hostname: node.hostname().to_owned(),
            state,
            reported: entry.reported.map(|state| state.name().to_owned()),
            mem_mb: entry.asked.mem_mib,
            vcpus: entry.asked.vcpus,
            disk_mb: entry.asked.disk_mib,
            mem_used_mb: entry.used_mem_mib,
            disk_used_mb: entry.used_disk_mib,
            age_s: now.saturating_duration_since(entry.since).as_secs() as i64,
            group: entry.group().map_or_else(String::new, ToString::to_string),
            resources: named(entry.custom(), &self.columns, |_, asked| asked),
            ..InstanceView::default()
        }
    }

    fn controller_rows(&self, now: Instant) -> Vec<ControllerView> {
        let controllers = self.controllers.iter().map(|&id| {
            (
                id,
                if self.is_master(id) {
                    Standing::Master
                } else {
                    Standing::Backup
                },
            )
        });
        let operators = self
            .sessions
            .iter()
            .filter(|(_, session)| session.role.contains(Role::OPERATOR))
            .filter(|(_, session)| !session.role.contains(Role::CONTROLLER))
            .map(|(&id, _)| (id, Standing::Operator));
        let row = |(id, standing): (SessionId, Standing)| {
            let session = self.session(id);
            ControllerView {
                uuid: session.uuid.to_string(),
                standing,
                connected_s: now.saturating_duration_since(session.since).as_secs() as i64,
            }
        };
        controllers
            .chain(operators)
            .take(MAX_LIMIT as usize)
            .map(row)
            .collect()
    }
}

/// A node's labels by key.
fn labels_of(node: &Node) -> BTreeMap<String, Vec<String>> {
    let mut labels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in &node.traits.labels {
        labels
            .entry(key.to_string())
            .or_default()
            .push(value.to_string());
    }
    labels
}

/// Something about each of these custom resources, by their names.
fn named(
    amounts: &[(ColumnId, i64)],
    columns: &Columns,
    of: impl Fn(ColumnId, i64) -> i64,
) -> BTreeMap<String, i64> {
    amounts
        .iter()
        .map(|&(column, amount)| (columns.name(column).to_owned(), of(column, amount)))
        .collect()
}

fn labels_len(labels: &BTreeMap<String, Vec<String>>) -> usize {
    let of_key = |(key, values): (&String, &Vec<String>)| {
        let values = values.iter().map(|value| value.len() + ENTRY_LEN);
        key.len() + ENTRY_LEN + values.sum::<usize>()
    };
    labels.iter().map(of_key).sum()
}

fn amounts_len(amounts: &BTreeMap<String, i64>) -> usize {
    amounts.keys().map(|name| name.len() + ENTRY_LEN).sum()
}

fn matches_node(node: &Node, pattern: &str) -> bool {
    pattern.is_empty() || node.hostname() == pattern || uuid_starts_with(&node.uuid, pattern)
}

fn limit(query: &Query) -> usize {
    // The server refuses a limit that is out of range before the core hears of it.
    query.checked_limit().unwrap_or(1)
}

/// Where a page starts: `node:entry`, as an earlier page's `next` said. Rows that leave between two pages may shift
/// others past the border.
fn cursor(query: &Query, result: &mut QueryResult) -> Option<(usize, usize)> {
    let Some(after) = query.after.as_deref() else {
        return Some((0, 0));
    };
    let parsed = after
        .split_once(':')
        .and_then(|(node, entry)| Some((node.parse().ok()?, entry.parse().ok()?)));
    if parsed.is_none() {
        result.error = Some(format!(
            "query.after is '{after}', which no earlier page gave as its next"
        ));
    }
    parsed
}
