//! Which instances are looked at where other rules are tried on a copy of the cluster ([`crate::placement::trial`]).

use std::sync::Arc;
use std::time::Instant;

use crate::Scheduler;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::start::StartRequest;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::placement::trial::{Placed, Trial};
use crate::sight::Sight;

impl Trial {
    /// A copy of what placement depends on, to try other rules on: every node, and every instance that is placed. Of one
    /// whose START is not kept only the amounts and the tenant are known.
    #[must_use]
    pub fn of(scheduler: &Scheduler, now: Instant) -> Self {
        let sight = scheduler.sight();
        let cluster = sight.cluster;
        let mut placed = Vec::with_capacity(cluster.placements().0);
        for (key, node) in cluster.nodes_from(0) {
            let here = node.ledger().entries_from(0);
            let here = here.filter(|(id, _)| cluster.placement(id) == Some(key));
            placed.extend(here.map(|(id, _)| sight.placed(key, id)));
        }
        Self::new(now, cluster, placed)
    }
}

impl Sight<'_> {
    /// An instance where it is, with what it asks for.
    fn placed(&self, key: NodeKey, instance: &InstanceId) -> Placed {
        let about = self.instances.about(instance);
        let query = self.instances.query_of(instance).unwrap_or_else(|| {
            let mut request = StartRequest::plain(instance.clone());
            request.network_node = self.cluster.node(key).slots()[Pool::Compute as usize].is_none();
            request.tenant = about.and_then(|it| it.tenant.cloned());
            Query::of(&Arc::new(request))
        });
        let amounts = self.cluster.demand_on(key, instance);
        let query = match amounts.filter(|_| !self.instances.has_start(instance)) {
            Some(amounts) => query.demanding(amounts),
            None => query,
        };
        Placed::new(key, about.map_or("", |it| it.name), query)
    }
}
