//! What is asked of a cluster about one node: by its key, or by its UUID. The node, its ledger and the list of nodes are
//! not reached through from elsewhere.

use std::sync::Arc;
use std::time::Duration;

use sched_model::{StartFailureReason, Uuid};

use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
use crate::api::input::Capabilities;
use crate::api::resources::Resources;
use crate::api::start::{Demand, StartRequest};
use crate::api::text::ShortText;
use crate::cluster::Cluster;
use crate::cluster::columns::Amounts;
use crate::cluster::index::ColumnId;
use crate::cluster::ledger::{Ended, Entry, Extras, Ledger, Remains};
use crate::cluster::node::{Node, Pool};
use crate::cluster::query::Query;

/// All of these but [`Cluster::contains`] panic with a key that is no node's any more.
impl Cluster {
    /// Whether a node has this key; its key is invalid once it was given up.
    #[inline]
    pub(crate) fn contains(&self, key: NodeKey) -> bool {
        self.nodes.contains(key)
    }

    /// A node, to be looked at.
    #[inline]
    pub(crate) fn node(&self, key: NodeKey) -> &Node {
        self.nodes.node(key)
    }

    /// The nodes from a key on, in order of keys.
    pub(crate) fn nodes_from(&self, start: usize) -> impl Iterator<Item = (NodeKey, &Node)> {
        self.nodes.iter_from(start)
    }

    /// The key of a node, if it is connected, or in doubt.
    #[inline]
    pub(crate) fn by_uuid(&self, uuid: Uuid) -> Option<NodeKey> {
        self.nodes.by_uuid(uuid)
    }

    /// The same by the UUID as a command has it.
    pub(crate) fn by_name(&self, node: &str) -> Option<NodeKey> {
        self.by_uuid(canonical_uuid(node)?)
    }

    /// Whether a node is connected and has not listed yet what runs on it: its STATS is still to come.
    pub(crate) fn is_to_list(&self, uuid: Uuid) -> bool {
        let node = self.by_uuid(uuid).map(|key| self.node(key));
        node.is_some_and(|node| node.session().is_some() && !node.has_listed())
    }

    /// The UUID of a node.
    #[inline]
    pub(crate) fn uuid(&self, key: NodeKey) -> Uuid {
        self.node(key).uuid()
    }

    /// The UUID and the host name of a node, to be kept elsewhere.
    pub(crate) fn host(&self, key: NodeKey) -> (Uuid, ShortText) {
        let node = self.node(key);
        (node.uuid(), node.hostname_text())
    }

    /// The connection of a node, if there is one.
    #[inline]
    pub(crate) fn session(&self, key: NodeKey) -> Option<SessionId> {
        self.node(key).session()
    }

    /// The claims on a node.
    #[inline]
    pub(crate) fn ledger(&self, key: NodeKey) -> &Ledger {
        self.node(key).ledger()
    }

    /// The claim of an instance on a node.
    #[inline]
    pub(crate) fn entry(&self, key: NodeKey, instance: &InstanceId) -> Option<&Entry> {
        self.ledger(key).get(instance)
    }

    /// Whether a node is still to answer a stop of a run of an instance that had ended by itself.
    pub(crate) fn owes_answer(&self, key: NodeKey, instance: &InstanceId) -> bool {
        self.entry(key, instance).is_some_and(Entry::owes_answer)
    }

    /// What is free on a node, whether or not it takes work.
    #[inline]
    pub(crate) fn free(&self, key: NodeKey) -> Resources {
        self.nodes.free(key)
    }

    /// What was released on a node since it called itself full.
    pub(crate) fn released(&self, key: NodeKey) -> Resources {
        self.nodes.released(key)
    }

    /// How much of a custom resource is free on a node.
    #[inline]
    pub(crate) fn free_custom(&self, key: NodeKey, column: ColumnId) -> i64 {
        self.nodes.free_custom(key, column)
    }

    /// How many nodes have members of a request's group: part of the cost of one choice for it.
    pub(crate) fn nodes_of_group(&self, request: &StartRequest) -> usize {
        let group = request.scheduling.as_ref().and_then(|it| it.group.as_ref());
        group
            .and_then(|group| self.groups().find(&group.id))
            .map_or(0, |group| group.node_count())
    }

    /// The reason on the wire where nothing fits, by the original's rules: network STARTs have one reason; of the
    /// others it depends on whether any compute node is connected at all.
    pub(crate) fn no_room(&self, request: &StartRequest) -> StartFailureReason {
        if request.network_node {
            StartFailureReason::NoNetworkNodes
        } else if self.table(Pool::Compute).len() == 0 {
            StartFailureReason::NoComputeNodes
        } else {
            StartFailureReason::FullCloud
        }
    }

    /// What a query asks for beyond memory, vcpus and disk: amounts of custom resources, and membership in a group.
    pub(crate) fn extras(&self, query: &Query) -> Extras {
        if query.asks_for_room_alone() {
            return Extras::default();
        }
        let group = query.scheduling().and_then(|it| it.group.as_ref());
        Extras {
            custom: self.amounts(query.amounts()),
            group: group.map(|group| Arc::from(&*group.id)),
        }
    }

    /// The custom resources of a demand, by column instead of by name.
    pub(crate) fn amounts_of(&self, demand: &Demand) -> Amounts {
        let resources = demand.resources.iter();
        self.amounts(resources.map(|(name, amount)| (&**name, *amount)))
    }

    /// Why something ended that was not deleted: because its node is evacuated, or by itself. Where its launcher says
    /// that it had not told it to end, it is the latter.
    pub(crate) fn cause_of_end(&self, node: Option<NodeKey>, how: Ended) -> Cause {
        let node = node.map(|key| self.node(key));
        match node.is_some_and(|node| node.is_evacuated()) {
            true if how != Ended::ByItself => Cause::Evacuated,
            _ => Cause::Ended,
        }
    }

    /// Why an instance ended that its node reports as stopped: its launcher was sent a stop, or as of any other end.
    pub(crate) fn cause_of_stop(&self, node: Option<NodeKey>, instance: &InstanceId) -> Cause {
        let entry = node.and_then(|key| self.entry(key, instance));
        match self.cause_of_end(node, Ended::Gone) {
            Cause::Ended if entry.is_some_and(Entry::may_stop) => Cause::Stopped,
            cause => cause,
        }
    }

    /// Why an instance ended that was to end: by DELETE, or by one that has it leave what a restart needs.
    pub(crate) fn cause_of_delete(&self, key: NodeKey, instance: &InstanceId) -> Cause {
        match self.entry(key, instance).map(Entry::remains) {
            Some(Remains::ForRestart) => Cause::Stopped,
            Some(Remains::Nothing) | None => Cause::Deleted,
        }
    }

    /// The managed instances with an entry in a node's ledger.
    pub(crate) fn managed_on(&self, key: NodeKey) -> Vec<InstanceId> {
        let ledger = self.ledger(key);
        let entries = ledger.entries_from(0);
        entries
            .filter(|(_, entry)| entry.is_managed())
            .map(|(instance, _)| instance.clone())
            .collect()
    }

    /// How long a node's launcher lets instances run while it is cut off; `None` if it has not promised to stop them
    /// then. By its latest report, also of a lost node.
    pub(crate) fn lease_of(&self, key: NodeKey) -> Option<Duration> {
        let extras = self.node(key).report().as_ref()?.extras.as_ref()?;
        let promised = extras.capabilities.contains(Capabilities::LEASE);
        extras.lease.filter(|_| promised)
    }

    /// Whether all STARTs of an instance that its node is known to have been given came after this end: the end is that
    /// of an earlier run then, and is only noted as dealt with.
    pub(crate) fn is_of_earlier(
        &self,
        key: NodeKey,
        instance: &InstanceId,
        starts_seen: u64,
    ) -> bool {
        let entry = self.entry(key, instance);
        entry.is_some_and(|entry| entry.is_all_after(starts_seen))
    }
}
