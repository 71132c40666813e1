//! Which instances are looked at where other rules are tried on a copy of the cluster ([`crate::placement::trial`]).

use std::time::Instant;

use crate::Scheduler;
use crate::api::ids::{InstanceId, NodeKey};
use crate::placement::trial::{Found, Trial};
use crate::sight::Sight;

impl Trial {
    /// A copy of what placement depends on, to try other rules on: every node, and every instance that is placed. Of one
    /// whose START is not kept only the amounts and the tenant are known.
    #[must_use]
    pub fn of(scheduler: &Scheduler, now: Instant) -> Self {
        let sight = scheduler.sight();
        let cluster = sight.cluster;
        let mut found = Vec::with_capacity(cluster.placements().0);
        for (key, node) in cluster.nodes_from(0) {
            let here = node.ledger().entries_from(0);
            let here = here.filter(|(id, _)| cluster.placement(id) == Some(key));
            found.extend(here.map(|(id, _)| sight.found(key, id)));
        }
        Self::new(now, cluster, found)
    }
}

impl Sight<'_> {
    /// An instance where it is, with what is known of its START.
    fn found(&self, node: NodeKey, instance: &InstanceId) -> Found {
        let about = self.instances.about(instance);
        Found {
            node,
            instance: instance.clone(),
            name: about.map_or("", |it| it.name).into(),
            tenant: about.and_then(|it| it.tenant.cloned()),
            query: self.instances.query_of(instance).map(Box::new),
            has_start: self.instances.has_start(instance),
        }
    }
}
