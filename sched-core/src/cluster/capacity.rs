//! What launchers are sent of how much their nodes offer: ratios, reserved amounts, and how what runs is counted. A
//! launcher that knows these refuses no START for which the scheduler counts room.

use std::time::Instant;

use crate::api::ids::NodeKey;
use crate::api::input::Capabilities;
use crate::api::rules::OfferRules;
use crate::cluster::{Cluster, ClusterChange};

impl Cluster {
    /// Has a node's launcher told what its node offers, if it can be told and that is new to it on this connection.
    ///
    /// Called wherever that may have changed, before anything is placed on the node for the change.
    pub(super) fn notify_capacity(&mut self, key: NodeKey) {
        let node = self.nodes.node(key);
        let Some(session) = node.session() else {
            return;
        };
        if !node.can(Capabilities::CAPACITY) {
            return;
        }
        let limits = node.traits.limits;
        let rules = OfferRules {
            cpu_ratio: limits.cpu_ratio,
            mem_ratio: limits.mem_ratio,
            disk_ratio: limits.disk_ratio,
            reserved_mem_mib: limits.reserved_mem_mib,
            reserved_disk_mib: limits.reserved_disk_mib,
            reserved_cpus: limits.reserved_cpus,
            accounting: self.config.accounting,
            limited: self.flags,
        };
        if node.told != Some(rules) {
            self.nodes.node_mut(key).told = Some(rules);
            self.changes
                .push_back(ClusterChange::Offered(session, rules));
        }
    }

    /// Notes whether a node is short of memory now, where that has changed; after each of its reports.
    pub(super) fn note_pressure(&mut self, key: NodeKey) {
        let node = self.nodes.node_mut(key);
        let is_short = node.is_short_of_memory();
        if std::mem::replace(&mut node.was_short_of_memory, is_short) != is_short {
            self.changes.push_back(ClusterChange::Pressure(key));
        }
    }

    /// Notes that something was moved away from a node that is short of memory, or that nothing could be.
    pub(crate) fn note_relieved(&mut self, key: NodeKey, now: Instant) {
        self.nodes.node_mut(key).relieved_at = Some(now);
    }
}
