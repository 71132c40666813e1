//! Why nothing fits: how many nodes fail for which reason, and the nearest miss. From the same figures as the choice.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::Scheduler;
use super::config::Config;
use super::ids::NodeKey;
use super::input::{Backlog, StartRequest};
use super::node::{Node, NodeStatus};
use super::placement::pool_of;
use super::resources::Resources;

/// Explanations kept: requests come in few shapes.
const KEPT: usize = 16;

/// How long an explanation is reused: spares a full cluster a walk over all nodes for each of a burst of STARTs.
const FRESH: Duration = Duration::from_millis(100);

/// Explanations of the latest refusals, by shape of request.
#[derive(Debug, Default)]
pub(super) struct Explanations {
    kept: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    shape: Shape,
    text: String,
    at: Instant,
}

/// All of a request that matters for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shape {
    asked: Resources,
    network_node: bool,
    node_id: Option<Box<str>>,
    hostname: Option<Box<str>>,
    nodes: usize,
}

/// How many nodes fail for each reason. A node counts for the first that applies.
#[derive(Debug, Default)]
struct Tally {
    nodes: usize,
    not_named: usize,
    not_ready: usize,
    backed_up: usize,
    unknown: usize,
    memory: usize,
    vcpus: usize,
    disk: usize,
    /// The most that any node that takes work has free, per resource.
    most_free: Option<Resources>,
    /// The most that any node reported in all, per resource.
    largest: Resources,
}

impl Scheduler {
    /// Why no node fits a request now, for people.
    pub(super) fn why_not(&mut self, request: &StartRequest) -> String {
        let shape = Shape {
            asked: request.asked,
            network_node: request.network_node,
            node_id: request.node_id.clone(),
            hostname: request.hostname.clone(),
            nodes: self.tables[pool_of(request) as usize].len(),
        };
        let now = self.now;
        let is_fresh = |kept: &&Kept| now.saturating_duration_since(kept.at) < FRESH;
        let kept = self
            .explanations
            .kept
            .iter()
            .filter(is_fresh)
            .find(|kept| kept.shape == shape);
        if let Some(kept) = kept {
            return kept.text.clone();
        }
        let text = self.explain(request);
        let kept = &mut self.explanations.kept;
        kept.retain(|kept| kept.shape != shape);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(Kept {
            shape,
            text: text.clone(),
            at: now,
        });
        text
    }

    fn explain(&self, request: &StartRequest) -> String {
        let table = &self.tables[pool_of(request) as usize];
        let mut tally = Tally {
            nodes: table.len(),
            ..Tally::default()
        };
        if request.node_id.is_some() || request.hostname.is_some() {
            // The others are of no interest, however many they are.
            let named = self.named_nodes(request, pool_of(request));
            tally.not_named = table.len() - named.len();
            self.count_all(named.into_iter(), request, &mut tally);
        } else {
            self.count_all(table.iter(), request, &mut tally);
        }
        tally.to_text(request, &self.config)
    }

    fn count_all(
        &self,
        keys: impl Iterator<Item = NodeKey>,
        request: &StartRequest,
        tally: &mut Tally,
    ) {
        for key in keys {
            let node = self.nodes.node(key);
            tally.count(node, node.free(&self.config), request);
        }
    }
}

impl Tally {
    fn count(&mut self, node: &Node, free: Resources, request: &StartRequest) {
        if let Some(report) = &node.report {
            self.largest = self.largest.max(Resources {
                mem_mib: report.mem_total_mib,
                vcpus: report.cpus_online,
                disk_mib: report.disk_total_mb,
            });
        }
        let asked = &request.asked;
        if node.status != NodeStatus::Ready {
            self.not_ready += 1;
        } else if node.backlog != Backlog::Clear {
            self.backed_up += 1;
        } else if free.mem_mib == i64::MIN || free.vcpus == i64::MIN || free.disk_mib == i64::MIN {
            self.unknown += 1;
        } else {
            self.most_free = Some(self.most_free.map_or(free, |most| most.max(free)));
            if free.mem_mib < asked.mem_mib {
                self.memory += 1;
            } else if free.vcpus < asked.vcpus {
                self.vcpus += 1;
            } else {
                self.disk += 1;
            }
        }
    }

    fn to_text(&self, request: &StartRequest, config: &Config) -> String {
        let what = if request.network_node {
            "network"
        } else {
            "compute"
        };
        if self.nodes == 0 {
            return format!("no {what} node is connected");
        }
        let asked = &request.asked;
        let mut text = format!("none of {} {what} nodes fits:", self.nodes);
        let mut add = |count: usize, reason: &dyn Fn(&mut String)| {
            if count > 0 {
                let _ = write!(text, " {count} ");
                reason(&mut text);
                text.push(';');
            }
        };
        let most = self.most_free.unwrap_or_default();
        add(self.not_named, &|text| {
            text.push_str("not the node or host asked for")
        });
        add(self.not_ready, &|text| text.push_str("not ready"));
        add(self.backed_up, &|text| text.push_str("with a full queue"));
        add(self.unknown, &|text| text.push_str("with unknown figures"));
        add(self.memory, &|text| {
            let _ = write!(
                text,
                "short of memory (asks {} MiB, most free {})",
                asked.mem_mib, most.mem_mib
            );
        });
        add(self.vcpus, &|text| {
            let _ = write!(
                text,
                "short of vcpus (asks {}, most free {})",
                asked.vcpus, most.vcpus
            );
        });
        add(self.disk, &|text| {
            let _ = write!(
                text,
                "short of disk (asks {} MiB, most free {})",
                asked.disk_mib, most.disk_mib
            );
        });
        text.pop();
        let most_ever = |present: i64, ratio: f64| (present as f64 * ratio) as i64;
        if self.not_named < self.nodes
            && (asked.mem_mib > most_ever(self.largest.mem_mib, config.mem_ratio)
                || asked.vcpus > most_ever(self.largest.vcpus, config.cpu_ratio)
                || asked.disk_mib > most_ever(self.largest.disk_mib, config.disk_ratio))
        {
            text.push_str("; it never can: it asks for more than the largest of them has in all");
        }
        text
    }
}
