//! What a node is, as opposed to what is free on it: labels, custom resources, ratios, and whose resources it shares.

use sched_model::Uuid;

use crate::api::config::Config;
use crate::api::resources::MAX_REPORTED;
use crate::cluster::columns::Amounts;
use crate::cluster::isolation::ByAggregates;
use crate::cluster::labels::Labels;

/// What a node is. Two derivations that are equal change nothing in tables and indexes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Traits {
    /// Pairs of key and value, sorted, each once; a key may have several values. Includes labels that the scheduler
    /// gives itself, such as `aggregate.NAME` and `node.tenant`.
    pub(crate) labels: Labels,
    /// Custom resources it has in all.
    pub(crate) resources: Amounts,
    /// The node whose resources it shares.
    pub(crate) shares: Option<Uuid>,
    /// How much of what it has is offered.
    pub(crate) limits: Limits,
    /// What aggregates say of how much it takes and how it is weighed; `None` where they say nothing.
    pub(crate) by_aggregates: Option<Box<ByAggregates>>,
}

/// How much of what a node has is offered: first what is reserved is taken off, then the rest is multiplied by the
/// ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// Virtual CPUs per CPU online.
    pub(crate) cpu_ratio: f64,
    pub(crate) mem_ratio: f64,
    pub(crate) disk_ratio: f64,
    pub(crate) reserved_mem_mib: i64,
    /// In the unit in which nodes report their disk.
    pub(crate) reserved_disk_mib: i64,
    pub(crate) reserved_cpus: i64,
}

impl Limits {
    /// The limits of the command line, which capacity rules may change for some nodes.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            cpu_ratio: config.cpu_ratio,
            mem_ratio: config.mem_ratio,
            disk_ratio: config.disk_ratio,
            reserved_mem_mib: config.reserved_mem_mib,
            reserved_disk_mib: config.reserved_disk_mib,
            reserved_cpus: 0,
        }
    }

    /// Virtual CPUs that this number of CPUs online offers; `None` for a negative number, which means that it is not
    /// known.
    pub(crate) fn vcpus(&self, cpus_online: i64) -> Option<i64> {
        if cpus_online < 0 {
            return None;
        }
        let cpus = cpus_online
            .min(MAX_REPORTED)
            .saturating_sub(self.reserved_cpus);
        Some((cpus.max(0) as f64 * self.cpu_ratio) as i64)
    }
}

impl Traits {
    /// A node of which nothing is known.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            labels: Labels::default(),
            resources: Amounts::default(),
            shares: None,
            limits: Limits::new(config),
            by_aggregates: None,
        }
    }
}
