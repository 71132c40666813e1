//! The rule against starvation at work: placements are counted, a node is reserved for an instance that is passed over
//! too often, and no other is placed there. The rule itself is stated in `queue`.

use std::time::Instant;

use crate::Scheduler;
use crate::api::ids::NodeKey;
use crate::api::resources::Resources;
use crate::cluster::node::Pool;
use crate::queue::{AllowedNodes, Purpose, Waiter};
use crate::sight::Sight;

/// Nodes looked at to find one to reserve: a few milliseconds. That happens once in as many placements as may pass an
/// instance over before a node is reserved for it.
const MAX_NODES_CONSIDERED: usize = 4096;

impl Scheduler {
    /// Ends reservations whose time is over, and offers their nodes to all that wait.
    pub(crate) fn end_reservations(&mut self, now: Instant) {
        while let Some(key) = self.queue.take_ended_reservation(now) {
            self.wake(key);
        }
    }
}

impl Sight<'_> {
    /// Of the nodes that could run an instance if they were empty, the one that lacks least of what it asks for, so
    /// that the reservation lasts as short as possible. Nodes that are reserved already are left out.
    pub(crate) fn node_to_keep(&self, pool: Pool, waiter: &Waiter) -> Option<NodeKey> {
        let view = self.cluster.view(pool, self.now);
        let asked = view.asked(waiter.shape().query(), self.cluster.labels(pool));
        if !asked.unknown_names().is_empty() {
            return None;
        }
        let filters = self.placement.policy().concerned(&asked);
        // A place in a group does not become free by what a reservation does.
        let has_place = |key: NodeKey| {
            waiter.purpose() != Purpose::Resume
                || self.has_place_for(waiter.instance(), key).is_ok()
        };
        let could_run = |&key: &NodeKey| {
            let node = self.cluster.node(key);
            let may_go = !matches!(waiter.place(), AllowedNodes::Only(only) if only != key);
            let custom = || {
                let mut custom = asked.custom().iter();
                custom.all(|&(column, amount)| node.custom_total(column) >= amount)
            };
            may_go
                && node.takes_work()
                && self.queue.reserved(key).is_none()
                && node.capacity().covers(waiter.asked())
                && custom()
                && has_place(key)
                && {
                    let candidate = view.candidate(key);
                    filters
                        .iter()
                        .all(|filter| filter.admits(&candidate, &asked).is_ok())
                }
        };
        let nodes = self.cluster.table(pool).iter();
        nodes
            .take(MAX_NODES_CONSIDERED)
            .filter(could_run)
            .min_by_key(|&key| lacking(waiter.asked(), &self.cluster.free(key)))
    }
}

/// How much of what is asked for is not free: thousandths of each amount, added up. So memory and vcpus weigh the same.
fn lacking(asked: &Resources, free: &Resources) -> i64 {
    let part = |asked: i64, free: i64| {
        let lacks = asked.saturating_sub(free).max(0);
        if asked > 0 {
            (lacks.saturating_mul(1000) / asked).min(i64::from(i32::MAX))
        } else {
            0
        }
    };
    part(asked.mem_mib, free.mem_mib)
        + part(asked.vcpus, free.vcpus)
        + part(asked.disk_mib, free.disk_mib)
}
