//! The shape of a START: everything that decides which nodes could run it, except how much memory, vcpus and disk it
//! asks for.
//!
//! Waiters of one shape form a class (`queue::line`), and filters are asked about a class once for a node instead of
//! once for each waiter. So a queue of 100 000 STARTs in three shapes costs three questions for each node that has
//! room.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sched_model::{Expression, Scheduling, Uuid};

use crate::api::ids::InstanceId;
use crate::api::start::StartRequest;
use crate::cluster::query::Query;

/// What decides which nodes could run a START.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// A query for a START with everything else left out: no amounts, no identifier, no priority.
    query: Query,
}

/// The one node or host that a shape names: by it a class is put into a bunch, and found from the node's side.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Pin {
    /// None: it goes wherever else it may.
    None,
    /// The node with this UUID.
    Node(Uuid),
    /// The nodes with this host name.
    Host(Box<str>),
    /// A node by a name that no node can have, such as a `node_id` that is no UUID. No node looks at these.
    Nowhere,
}

impl Shape {
    /// The shape of a query. Only keys of `scheduling` that filters read are taken over; what is missing here would put
    /// STARTs into one class that may not run on the same nodes.
    pub(crate) fn of(query: &Query) -> Self {
        let request = query.request();
        let amounts = query.amounts();
        let amounts = amounts.map(|(name, amount)| (name.to_owned(), amount));
        let resources: BTreeMap<String, i64> = amounts.collect();
        let scheduling = query.scheduling().map(|all| Scheduling {
            require: all.require.clone(),
            group: all.group.clone(),
            near: all.near.clone(),
            same_node: all.same_node.clone(),
            different_node: all.different_node.clone(),
            image: all.image.clone(),
            ..Scheduling::default()
        });
        let scheduling = Scheduling {
            resources,
            ..scheduling.unwrap_or_default()
        };
        let shape = StartRequest {
            network_node: request.network_node,
            node_id: request.node_id.clone(),
            hostname: request.hostname.clone(),
            tenant: request.tenant.clone(),
            image: request.image.clone(),
            fetches_image: request.fetches_image,
            // One nameless for all: which ones they are matters to no filter, and many STARTs of a program may differ
            // in nothing else.
            more_images: match request.more_images.is_empty() {
                true => Box::default(),
                false => [Box::default()].into(),
            },
            vm_type: request.vm_type,
            volumes: request.volumes.clone(),
            scheduling: (scheduling != Scheduling::default()).then(|| Box::new(scheduling)),
            ..StartRequest::plain(InstanceId::DryRun(0))
        };
        let query = Query::of(&Arc::new(shape))
            .pinned(query.node().flatten())
            .avoiding(query.avoided().iter().copied());
        Self { query }
    }

    /// A query of this shape for no memory, vcpus and disk: what filters are asked about.
    pub(crate) fn query(&self) -> &Query {
        &self.query
    }

    /// The one node or host it names; of both the node, which is more exact.
    pub(super) fn pin(&self) -> Pin {
        match (self.query.node(), self.query.hostname()) {
            (Some(node), _) => node.map_or(Pin::Nowhere, Pin::Node),
            (None, Some(hostname)) => Pin::Host(hostname.into()),
            (None, None) => Pin::None,
        }
    }
}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let request = self.query.request();
        request.network_node.hash(state);
        self.query.node().hash(state);
        request.hostname.hash(state);
        request.tenant.hash(state);
        request.image.hash(state);
        request.fetches_image.hash(state);
        request.more_images.is_empty().hash(state);
        request.vm_type.hash(state);
        request.volumes.hash(state);
        let Some(scheduling) = request.scheduling.as_deref() else {
            return;
        };
        for expression in scheduling.require.iter().map(Expression::as_str) {
            expression.hash(state);
        }
        scheduling.resources.hash(state);
        scheduling.group.as_ref().map(|group| &group.id).hash(state);
        for near in &scheduling.near {
            near.label.hash(state);
        }
        scheduling.same_node.hash(state);
        scheduling.different_node.hash(state);
        scheduling.image.hash(state);
    }
}
