//! A query: what a node is looked for. That is what a START asks for, and what workflows know beyond it of where it may
//! go.
//!
//! Workflows build it up by value: `Query::of(start).avoiding(tried).pinned(node)`. The START is shared, so a query
//! costs no copy of it. Whatever decides the choice must be compared in [`Query::is_like`], because answers are reused
//! for queries that are alike.

use std::sync::Arc;

use sched_model::{Scheduling, Uuid};

use crate::api::ids::{InstanceId, canonical_uuid};
use crate::api::resources::Resources;
use crate::api::start::{Demand, StartRequest};
use crate::cluster::node::Pool;

/// A question for a node. It shares the START that it is about, so that it costs nothing to ask another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    request: Arc<StartRequest>,
    /// In a dry run, the instance in place of the START's, since several of one kind are tried.
    dry_run: Option<InstanceId>,
    /// The amounts in place of the START's: after or for an UPDATE.
    demand: Option<Box<Demand>>,
    /// The one node that it is for, where the START does not name it itself.
    pin: Option<Uuid>,
    /// Nodes that it is not for: those that could not start it, that are reserved for others, or that it is to leave.
    avoid: Vec<Uuid>,
    /// The one of them that it is to leave: unlike the others it never comes into question again.
    leaves: Option<Uuid>,
}

impl Query {
    /// What a START asks for itself.
    pub(crate) fn of(request: &Arc<StartRequest>) -> Self {
        Self {
            request: Arc::clone(request),
            dry_run: None,
            demand: None,
            pin: None,
            avoid: Vec::new(),
            leaves: None,
        }
    }

    /// The same for one node alone, if one is given.
    pub(crate) fn pinned(mut self, node: Option<Uuid>) -> Self {
        if let Some(node) = node {
            let is_said = self.start_pin() == Some(Some(node));
            self.pin = (!is_said).then_some(node);
        }
        self
    }

    /// The same for none of these nodes, nor of those that it was not for before.
    pub(crate) fn avoiding(mut self, nodes: impl IntoIterator<Item = Uuid>) -> Self {
        self.avoid.extend(nodes);
        self
    }

    /// The same for an instance that is to leave this node.
    pub(crate) fn leaving(mut self, node: Uuid) -> Self {
        self.leaves = Some(node);
        self.avoiding([node])
    }

    /// The same for other amounts.
    pub(crate) fn demanding(mut self, demand: Demand) -> Self {
        self.demand = Some(Box::new(demand));
        self
    }

    /// The same for an instance that is not to be: one of a dry run.
    pub(crate) fn for_dry_run(mut self, number: u32) -> Self {
        self.dry_run = Some(InstanceId::DryRun(number));
        self
    }

    /// What its START asks for; [`Query::asked`] and [`Query::amounts`] may say otherwise.
    pub(crate) fn request(&self) -> &StartRequest {
        &self.request
    }

    /// The instance that is to be placed.
    pub(crate) fn instance(&self) -> &InstanceId {
        self.dry_run.as_ref().unwrap_or(&self.request.instance)
    }

    /// The nodes it is for.
    pub(crate) fn pool(&self) -> Pool {
        Pool::of(&self.request)
    }

    /// What its START says about its placement.
    pub(crate) fn scheduling(&self) -> Option<&Scheduling> {
        self.request.scheduling.as_deref()
    }

    /// Memory, vcpus and disk asked for.
    pub(crate) fn asked(&self) -> Resources {
        let demand = self.demand.as_ref();
        demand.map_or(self.request.asked, |demand| demand.base())
    }

    /// Custom resources asked for, in the order of their names.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = (&str, i64)> {
        let other = self.demand.as_ref().map(|demand| &demand.resources);
        let own = self.scheduling().filter(|_| other.is_none());
        let own = own.into_iter().flat_map(|own| &own.resources);
        let other = other.into_iter().flatten();
        let own = own.map(|(name, &amount)| (name.as_str(), amount));
        own.chain(other.map(|(name, &amount)| (&**name, amount)))
    }

    /// Whether it asks for nothing but memory, vcpus and disk of any node.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.asks_for_room_alone()
            && self.request.image.is_none()
            && self.avoid.is_empty()
            && !self.is_pinned()
    }

    /// Whether it asks for memory, vcpus and disk alone: the START has no `scheduling`, and no workflow has set other
    /// amounts.
    #[inline]
    pub(crate) fn asks_for_room_alone(&self) -> bool {
        self.request.scheduling.is_none() && self.demand.is_none()
    }

    /// Whether it is for one node or host alone.
    pub(crate) fn is_pinned(&self) -> bool {
        self.names_node() || self.request.hostname.is_some()
    }

    /// Whether it is for one node alone, by its UUID.
    pub(crate) fn names_node(&self) -> bool {
        self.pin.is_some() || self.request.node_id.is_some()
    }

    /// The one node that it is for, if it is for one by its UUID; none at all if what the START says is no UUID.
    pub(crate) fn node(&self) -> Option<Option<Uuid>> {
        self.pin.map(Some).or_else(|| self.start_pin())
    }

    /// The host that it is for, if it is for one.
    pub(crate) fn hostname(&self) -> Option<&str> {
        self.request.hostname.as_deref()
    }

    /// The name of the node or host that it is for, as it was asked for.
    pub(crate) fn pin_text(&self) -> String {
        match (self.pin, &self.request.node_id) {
            (Some(node), _) => node.to_string(),
            (None, Some(node)) => node.to_string(),
            (None, None) => self.hostname().unwrap_or_default().to_owned(),
        }
    }

    /// Whether it is not for this node.
    pub(crate) fn avoids(&self, node: Uuid) -> bool {
        self.avoid.contains(&node)
    }

    /// Whether there are nodes that it is not for.
    pub(crate) fn avoids_any(&self) -> bool {
        !self.avoid.is_empty()
    }

    /// Whether it is about an instance that is to leave this node.
    pub(crate) fn leaves(&self, node: Uuid) -> bool {
        self.leaves == Some(node)
    }

    /// The nodes that it is not for.
    pub(crate) fn avoided(&self) -> &[Uuid] {
        &self.avoid
    }

    /// Whether it finds the same nodes as another: all of both that matters for the choice is the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let (one, two) = (&*self.request, &*other.request);
        let is_same = Arc::ptr_eq(&self.request, &other.request);
        let is_start_like = || {
            one.asked == two.asked
                && one.network_node == two.network_node
                && one.node_id == two.node_id
                && one.hostname == two.hostname
                && one.tenant == two.tenant
                && one.vm_type == two.vm_type
                && one.image == two.image
                && one.fetches_image == two.fetches_image
                && one.more_images.is_empty() == two.more_images.is_empty()
                && one.volumes == two.volumes
                && one.scheduling == two.scheduling
        };
        self.demand == other.demand
            && self.pin == other.pin
            && self.avoid == other.avoid
            && self.leaves == other.leaves
            && (is_same || is_start_like())
    }

    fn start_pin(&self) -> Option<Option<Uuid>> {
        self.request.node_id.as_deref().map(canonical_uuid)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{InstanceId, Query, StartRequest, Uuid};

    fn start(node_id: Option<&str>) -> Arc<StartRequest> {
        Arc::new(StartRequest {
            node_id: node_id.map(Into::into),
            ..StartRequest::plain(InstanceId::new("a"))
        })
    }

    #[test]
    fn a_pin_counts_before_what_the_start_says_and_is_the_same_where_it_says_so_itself() {
        let node = Uuid::from_u128(7);
        let plain = Query::of(&start(None));
        assert_eq!((plain.node(), plain.is_pinned()), (None, false));
        let pinned = plain.clone().pinned(Some(node));
        assert_eq!(pinned.node(), Some(Some(node)));
        assert_eq!(pinned.pin_text(), node.to_string());
        assert!(!pinned.is_like(&plain));
        let says = Query::of(&start(Some(&node.to_string())));
        assert_eq!(says.clone().pinned(Some(node)), says);
        let other = Uuid::from_u128(8);
        assert_eq!(says.pinned(Some(other)).node(), Some(Some(other)));
        let nowhere = Query::of(&start(Some("no UUID")));
        assert_eq!(nowhere.node(), Some(None));
    }

    #[test]
    fn a_query_does_not_change_the_start_it_is_about() {
        let start = start(None);
        let query = Query::of(&start).avoiding([Uuid::nil()]).for_dry_run(3);
        assert!(query.avoids(Uuid::nil()));
        assert_eq!(*query.instance(), InstanceId::DryRun(3));
        assert!(query.is_like(&Query::of(&start).avoiding([Uuid::nil()])));
        assert_eq!(*start, StartRequest::plain(InstanceId::new("a")));
        assert!(std::ptr::eq(query.request(), &*start));
    }
}
