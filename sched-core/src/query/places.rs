//! Where an instance may go, and before whom.

use std::sync::Arc;

use sched_model::Uuid;

use crate::api::declined::Objection;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::start::{Demand, StartRequest};
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::instance::{DEFAULT_PRIORITY, Instance};
use crate::queue::Rank;
use crate::sight::Sight;

impl Sight<'_> {
    /// What an instance on a node asks for, as a query that avoids that node. From its START, or, for one without a
    /// START, from what the node's ledger says; `demand` replaces the amounts.
    pub(crate) fn query_on(
        &self,
        key: NodeKey,
        instance: &InstanceId,
        demand: Option<&Demand>,
    ) -> Query {
        let node = self.cluster.node(key);
        let query = self.instances.query_of(instance).unwrap_or_else(|| {
            let mut request = StartRequest::plain(instance.clone());
            request.network_node = node.slots()[Pool::Compute as usize].is_none();
            Query::of(&Arc::new(request))
        });
        let query = query.leaving(node.uuid());
        // What it has may be more than its START says: an instance that was adopted, or was changed.
        let known = self.cluster.demand_on(key, instance);
        let demand = demand.or(known
            .as_ref()
            .filter(|_| !self.instances.has_start(instance)));
        match demand {
            Some(demand) => query.demanding(demand.clone()),
            None => query,
        }
    }

    /// Checks that the policy of a suspended instance's group holds on its node once it runs again, where that is to keep
    /// members apart on nodes. Other policies go by all members, suspended or not.
    ///
    /// # Errors
    /// That so many others are in place as there may be in all, or that the node has not said yet who is there.
    pub(crate) fn has_place_for(
        &self,
        instance: &InstanceId,
        key: NodeKey,
    ) -> Result<(), Objection> {
        let managed = self.instances.get(instance);
        let group = managed.and_then(Instance::apart_by_node);
        let Some(group) = group.filter(|_| self.placement.policy().understands("group")) else {
            return Ok(());
        };
        let node = self.cluster.node(key);
        let entry = node.ledger().get(instance);
        let is_member = entry.is_some_and(|it| it.group().is_some_and(|id| **id == *group.id));
        let own = u32::from(is_member && entry.is_some_and(|it| !it.gives_way()));
        let members = self.cluster.groups().find(&group.id);
        let others = members.map_or(0, |members| members.in_place(key).saturating_sub(own));
        if !node.has_listed() {
            return Err(Objection::NotListedYetBy(node.uuid()));
        }
        if others < group.max_in_place() {
            return Ok(());
        }
        Err(Objection::NoPlace {
            group: group.id.as_str().into(),
            node: node.uuid(),
        })
    }

    /// Whether the place of a suspended instance in its group is free on its node, and its launcher has answered the
    /// latest RESUME.
    pub(crate) fn is_to_resume(&self, instance: &InstanceId, key: NodeKey) -> bool {
        let entry = self.cluster.entry(key, instance);
        let is_free = entry.is_some_and(|entry| !entry.may_resume());
        is_free && self.has_place_for(instance, key).is_ok()
    }

    /// Whether all filters of the policy admit a node for a query; room is not among them.
    pub(crate) fn may_run(&self, pool: Pool, key: NodeKey, query: &Query) -> bool {
        let view = self.cluster.view(pool, self.now);
        let asked = view.asked(query, self.cluster.labels(pool));
        let node = view.candidate(key);
        asked.unknown_names().is_empty()
            && self
                .placement
                .policy()
                .concerned(&asked)
                .iter()
                .all(|filter| filter.admits(&node, &asked).is_ok())
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
    pub(crate) fn rank(&self, instance: &InstanceId, request: &StartRequest) -> Rank {
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
}
