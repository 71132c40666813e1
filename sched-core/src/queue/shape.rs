//! The shape of a START: all that decides which nodes could run it, but how much memory, vcpus and disk it asks for.
//!
//! Waiters of one shape are asked about once: what one of them may not run on, none of them may.

use std::hash::{Hash, Hasher};

use sched_model::{Expression, Scheduling, Uuid};

use crate::api::ids::{InstanceId, canonical_uuid};
use crate::api::input::StartRequest;
use crate::api::resources::Resources;

/// What decides which nodes could run a START.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// A request with all else left out.
    request: StartRequest,
}

/// The one node or host that a shape names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Pin {
    /// None: it goes wherever else it may.
    None,
    /// The node with this UUID.
    Node(Uuid),
    /// The nodes with this host name.
    Host(Box<str>),
    /// A node by a name that none has.
    Nowhere,
}

impl Shape {
    /// The shape of a request.
    pub(crate) fn of(request: &StartRequest) -> Self {
        let scheduling = request.scheduling.as_deref().map(|all| Scheduling {
            require: all.require.clone(),
            resources: all.resources.clone(),
            group: all.group.clone(),
            near: all.near.clone(),
            image: all.image.clone(),
            ..Scheduling::default()
        });
        Self {
            request: StartRequest {
                instance: InstanceId::Trial(0),
                asked: Resources::ZERO,
                network_node: request.network_node,
                node_id: request.node_id.clone(),
                hostname: request.hostname.clone(),
                restart: false,
                tenant: request.tenant.clone(),
                avoid: request.avoid.clone(),
                image: request.image.clone(),
                vm_type: request.vm_type,
                scheduling: scheduling
                    .filter(|kept| *kept != Scheduling::default())
                    .map(Box::new),
            },
        }
    }

    /// A request of this shape that asks for no memory, vcpus and disk: what filters are asked about.
    pub(crate) fn request(&self) -> &StartRequest {
        &self.request
    }

    /// The one node or host it names; of both the node, which is more exact.
    pub(super) fn pin(&self) -> Pin {
        match (&self.request.node_id, &self.request.hostname) {
            (Some(id), _) => canonical_uuid(id).map_or(Pin::Nowhere, Pin::Node),
            (None, Some(hostname)) => Pin::Host(hostname.clone()),
            (None, None) => Pin::None,
        }
    }
}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let request = &self.request;
        request.network_node.hash(state);
        request.node_id.hash(state);
        request.hostname.hash(state);
        request.tenant.hash(state);
        request.image.hash(state);
        request.vm_type.hash(state);
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
        scheduling.image.hash(state);
    }
}
