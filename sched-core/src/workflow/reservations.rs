//! The rule against starvation at work: placements are counted, a node is reserved for an instance that is passed over
//! too often, and no other is placed there. The rule itself is stated in `queue`.

use std::time::Instant;

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::resources::Resources;
use crate::api::start::StartRequest;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::instance::DEFAULT_PRIORITY;
use crate::queue::{AllowedNodes, Purpose, Rank, Waiter};

/// Nodes looked at to find one to reserve: a few milliseconds. That happens once in as many placements as may pass an
/// instance over before a node is reserved for it.
const MAX_NODES_CONSIDERED: usize = 4096;

impl Scheduler {
    /// The rank of a request in the order of the queue: that of its instance if it is managed, else behind all of its
    /// priority that have come so far.
    pub(crate) fn rank_of(&self, request: &StartRequest) -> Rank {
        self.rank(&request.instance, request)
    }

    /// The same of what a query is for.
    pub(crate) fn rank_of_query(&self, query: &Query) -> Rank {
        self.rank(query.instance(), query.request())
    }

    /// The rank of an instance, by its record or by the request alone.
    fn rank(&self, instance: &InstanceId, request: &StartRequest) -> Rank {
        if let Some(kept) = self.instances.get(instance) {
            return Rank::new(kept.priority(), kept.order());
        }
        let asked = request.scheduling.as_deref();
        let priority = asked.and_then(|asked| u8::try_from(asked.priority?).ok());
        Rank::newest(priority.unwrap_or(DEFAULT_PRIORITY))
    }

    /// Sorts instances that are to be dealt with one after the other by the order of the queue; those that are not
    /// managed come last.
    pub(crate) fn put_in_order<T>(&self, of: &mut [T], instance: impl Fn(&T) -> &InstanceId) {
        if of.len() < 2 {
            return;
        }
        let rank = |one: &T| {
            let kept = self.instances.get(instance(one));
            kept.map_or(Rank::newest(0), |kept| {
                Rank::new(kept.priority(), kept.order())
            })
        };
        of.sort_by_key(rank);
    }

    /// The nodes that are reserved for instances before this query in the order: at most one for each pool. A choice
    /// for it has to avoid them.
    pub(crate) fn closed_to(&self, query: &Query) -> Vec<Uuid> {
        if self.queue.is_empty() {
            return Vec::new();
        }
        let reservations = Pool::ALL.into_iter();
        let nodes = reservations.filter_map(|pool| Some(self.queue.reservation(pool)?.1));
        let (pool, rank) = (query.pool(), self.rank_of_query(query));
        nodes
            .filter(|&key| !self.queue.is_open(key, pool, rank))
            .map(|key| self.cluster.uuid(key))
            .collect()
    }

    /// Whether a managed instance may be placed on a node as far as reservations go.
    pub(crate) fn is_open_to(&self, pool: Pool, key: NodeKey, instance: &InstanceId) -> bool {
        let Some(kept) = self.instances.get(instance) else {
            return true;
        };
        let rank = Rank::new(kept.priority(), kept.order());
        self.queue.is_open(key, pool, rank)
    }

    /// Counts a placement against those in the queue that it passed over, and reserves a node for the first that was
    /// passed over too often. If no node could ever run that one, it is parked, so that the rule goes on to the next.
    pub(crate) fn note_placed(&mut self, pool: Pool, rank: Rank) {
        if self.queue.is_empty() {
            return;
        }
        self.queue.placed(pool, rank);
        let Some(head) = self.queue.reserving(pool) else {
            return;
        };
        let instance = head.instance().clone();
        let kept = self.node_to_keep(pool, head);
        let is_kept = kept.is_some_and(|key| self.queue.reserve(&instance, key, self.now));
        if !is_kept {
            self.queue.park(&instance);
        }
    }

    /// Of the nodes that could run an instance if they were empty, the one that lacks least of what it asks for, so
    /// that the reservation lasts as short as possible. Nodes that are reserved already are left out.
    fn node_to_keep(&self, pool: Pool, waiter: &Waiter) -> Option<NodeKey> {
        let view = self.view(pool);
        let asked = view.asked(waiter.shape().query(), self.cluster.labels(pool));
        if !asked.unknown_names().is_empty() {
            return None;
        }
        let filters: Vec<_> = self.placement.policy().concerned(&asked).collect();
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

    /// Ends reservations whose time is over, and offers their nodes to all that wait.
    pub(crate) fn end_reservations(&mut self, now: Instant) {
        while let Some(key) = self.queue.take_ended_reservation(now) {
            self.wake(key);
        }
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
