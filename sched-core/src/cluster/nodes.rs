//! The store of all nodes: by key, UUID and host name, and which of them share resources.
//!
//! Keys are small numbers that are used again once a node was removed. A node that is lost stays in the store, with its
//! claims, until it is given up; then the cluster removes its key everywhere.
//!
//! Nodes that share resources: several launchers on one machine may each report a part of it (a NUMA node, say), and
//! one may report the whole. A claim on a part is a claim on the whole, and the other way round.

use std::hash::Hash;
use std::sync::Arc;

use indexmap::{Equivalent, IndexMap};
use sched_model::Uuid;

use crate::api::ids::NodeKey;
use crate::api::input::{NodeExtras, NodeReport};
use crate::api::resources::Resources;
use crate::cluster::index::ColumnId;
use crate::cluster::node::{IsOther, MAX_PARTS, Node, NodeStatus, amount_of};
use crate::maps::{Map, change_or_drop};
use crate::slots::Slots;

/// All nodes known: connected, or lost with claims in doubt.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeStore {
    /// Nodes by key.
    slots: Slots<Node>,
    by_uuid: Map<Uuid, NodeKey>,
    /// Several nodes may report the same host name.
    by_hostname: IndexMap<Box<str>, Vec<NodeKey>>,
    /// The nodes that share the resources of another, by that one's UUID.
    sharers: IndexMap<Uuid, Vec<NodeKey>>,
}

impl NodeStore {
    /// The node with this key.
    ///
    /// # Panics
    /// If the node was removed: keys are dropped everywhere when a node is.
    pub(crate) fn node(&self, key: NodeKey) -> &Node {
        self.slots
            .at(key.0)
            .expect("a node's key is dropped with it")
    }

    /// The node with this key, to be changed. Panics as [`NodeStore::node`].
    pub(super) fn node_mut(&mut self, key: NodeKey) -> &mut Node {
        self.slots
            .at_mut(key.0)
            .expect("a node's key is dropped with it")
    }

    /// Whether a node with this key is known.
    pub(crate) fn contains(&self, key: NodeKey) -> bool {
        self.slots.at(key.0).is_some()
    }

    /// The node with this UUID.
    pub(crate) fn by_uuid(&self, uuid: Uuid) -> Option<NodeKey> {
        self.by_uuid.get(&uuid).copied()
    }

    /// The nodes whose latest report has this host name.
    pub(crate) fn by_hostname(&self, hostname: &str) -> &[NodeKey] {
        self.by_hostname.get(hostname).map_or(&[], Vec::as_slice)
    }

    /// Every node from a key on, in order of keys.
    pub(crate) fn iter_from(&self, start: usize) -> impl Iterator<Item = (NodeKey, &Node)> {
        let nodes = self.slots.iter_from(start);
        nodes.map(|(key, node)| (NodeKey(key), node))
    }

    /// Adds a node; its UUID must not be in the store.
    pub(super) fn insert(&mut self, node: Node) -> NodeKey {
        let uuid = node.uuid;
        let key = NodeKey(self.slots.insert(node));
        self.by_uuid.insert(uuid, key);
        key
    }

    /// Takes a node out. Its key is free at once, so every other use of it must be gone.
    pub(super) fn remove(&mut self, key: NodeKey) -> Option<Node> {
        self.set_shares(key, None);
        let node = self.slots.remove(key.0)?;
        self.by_uuid.swap_remove(&node.uuid);
        forget_key(&mut self.by_hostname, node.hostname(), key);
        if self.by_uuid.is_empty() {
            *self = Self::default();
        }
        Some(node)
    }

    /// Takes in a node's READY. Labels and the like that this report does not mention stay as they were said before on
    /// the same connection. Returns whether the node is a different one by it: in labels, name or size.
    pub(super) fn set_report(&mut self, key: NodeKey, mut report: Box<NodeReport>) -> IsOther {
        let node = self.node_mut(key);
        if let Some(extras) = &mut report.extras {
            extras.available = None;
        }
        if let Some(old) = &node.report
            && node.has_extras
            && report.extras.is_none()
        {
            report.extras.clone_from(&old.extras);
            end_lone_pressure(&mut report);
        }
        node.has_extras |= report.extras.is_some();
        let old = node.report.replace(report.into());
        node.measure_room();
        let is_other = match (&old, &node.report) {
            (Some(old), Some(new)) => IsOther::new(old.differs_from(new)),
            _ => IsOther::Yes,
        };
        let old_name = old.as_ref().map_or("", |report| &*report.hostname);
        let new_name = node.hostname();
        if old_name == new_name {
            return is_other;
        }
        let new_name: Box<str> = new_name.into();
        forget_key(&mut self.by_hostname, old_name, key);
        self.by_hostname.entry(new_name).or_default().push(key);
        is_other
    }

    /// Takes in labels and the like that came without figures. Returns whether the node is a different one by it.
    /// Before the first READY there is no report to put them in, and they are dropped: READY says them as well.
    pub(super) fn set_extras(&mut self, key: NodeKey, mut extras: Box<NodeExtras>) -> IsOther {
        let node = self.node_mut(key);
        let available = extras.available.take();
        // FULL has no figures: what a full node has is known from its STATS alone.
        if node.status == NodeStatus::Full
            && let (Some(report), Some(available)) = (&mut node.report, available)
        {
            Arc::make_mut(report).take_in(available);
            node.measure_room();
        }
        node.has_extras = true;
        node.has_extras_in_stats = true;
        match &mut node.report {
            Some(report) if report.extras.as_ref() != Some(&extras) => {
                Arc::make_mut(report).extras = Some(extras);
                IsOther::Yes
            }
            // Without figures it takes no work; the READY to come says its labels as well.
            _ => IsOther::No,
        }
    }

    /// A STATS came without labels and the like. If such came before, and said only that the node is short of memory, that
    /// is over; whether it is by this.
    pub(super) fn note_no_extras(&mut self, key: NodeKey) -> bool {
        let node = self.node_mut(key);
        let report = node.report.as_mut().filter(|_| node.has_extras_in_stats);
        report.is_some_and(|report| end_lone_pressure(Arc::make_mut(report)))
    }

    /// Sets whose resources a node shares. If [`MAX_PARTS`] nodes share the whole already, it shares nothing.
    pub(super) fn set_shares(&mut self, key: NodeKey, with: Option<Uuid>) {
        let has_place = |with: &Uuid| {
            let keys = self.sharers.get(with);
            keys.is_none_or(|keys| keys.len() < MAX_PARTS || keys.contains(&key))
        };
        let with = with.filter(has_place);
        let node = self.node_mut(key);
        let old = std::mem::replace(&mut node.traits.shares, with);
        if old == with {
            return;
        }
        if let Some(old) = old {
            forget_key(&mut self.sharers, &old, key);
        }
        if let Some(with) = with {
            self.sharers.entry(with).or_default().push(key);
        }
    }

    /// Whether a node agrees that another shares its resources; `None` while it has not reported. Both have to say so,
    /// so that no node can take the room of another by a claim of its own.
    pub(crate) fn lets_share(&self, whole: Uuid, part: Uuid) -> Option<bool> {
        let report = self.node(self.by_uuid(whole)?).report.as_ref()?;
        let extras = report.extras.as_ref();
        Some(extras.is_some_and(|extras| extras.shared_by.contains(&part)))
    }

    /// The nodes whose share in a node's resources depends on what that node says: those that it names, and those that
    /// share its resources now.
    pub(crate) fn said_parts(&self, key: NodeKey) -> Vec<NodeKey> {
        let node = self.node(key);
        let extras = node.report.as_ref().and_then(|it| it.extras.as_ref());
        let named = extras.map_or(&[][..], |extras| &extras.shared_by);
        let named = named.iter().filter_map(|&uuid| self.by_uuid(uuid));
        let sharers = self.sharers.get(&node.uuid).into_iter().flatten().copied();
        let mut parts: Vec<NodeKey> = named.chain(sharers).filter(|&part| part != key).collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// The whole node that this one shares resources with, if it is there and is no part itself.
    fn whole_of(&self, node: &Node) -> Option<NodeKey> {
        let whole = self.by_uuid(node.traits.shares?)?;
        let is_whole = self.node(whole).traits.shares.is_none();
        is_whole.then_some(whole)
    }

    /// The nodes that share this one's resources.
    fn parts_of(&self, node: &Node) -> &[NodeKey] {
        if self.sharers.is_empty() || node.traits.shares.is_some() {
            return &[];
        }
        self.sharers.get(&node.uuid).map_or(&[], Vec::as_slice)
    }

    /// Whether any node shares the resources of another.
    pub(super) fn are_any_shared(&self) -> bool {
        !self.sharers.is_empty()
    }

    /// The other nodes whose free resources change with this one's.
    pub(crate) fn relatives(&self, key: NodeKey) -> Vec<NodeKey> {
        if !self.are_any_shared() {
            return Vec::new();
        }
        let whole = self.whole_of(self.node(key));
        let parts = self.parts_of(self.node(whole.unwrap_or(key)));
        whole
            .into_iter()
            .chain(parts.iter().copied())
            .filter(|&other| other != key)
            .collect()
    }

    /// What is free on a node, whether or not it takes work now.
    ///
    /// A node that shares no resources: what its room has left after its claims. A whole: less the claims of all its
    /// parts too. A part: what it has left after its own claims and what the whole holds, because it is not known which
    /// part that will use; and no more than is free on the whole.
    pub(crate) fn free(&self, key: NodeKey) -> Resources {
        let node = self.node(key);
        if !self.are_any_shared() {
            return node.free(&node.ledger.claims());
        }
        let mut claims = node.ledger.claims();
        for &part in self.parts_of(node) {
            claims += self.node(part).ledger.claims();
        }
        let own = node.free(&claims);
        match self.whole_of(node) {
            Some(whole) if self.node(whole).report.is_some() => {
                let claims = self.node(whole).ledger.claims();
                (own - claims.held).min(self.free(whole))
            }
            _ => own,
        }
    }

    /// How much of a custom resource is free on a node; shared as [`NodeStore::free`] says.
    pub(crate) fn free_custom(&self, key: NodeKey, column: ColumnId) -> i64 {
        let node = self.node(key);
        let held = |node: &Node| amount_of(node.ledger.held_custom(), column);
        let own = node.custom_total(column).saturating_sub(held(node));
        let parts = self.parts_of(node).iter();
        let own = parts.fold(own, |free, &part| {
            free.saturating_sub(held(self.node(part)))
        });
        match self.whole_of(node) {
            Some(whole) if self.node(whole).custom_total(column) > 0 => own
                .saturating_sub(held(self.node(whole)))
                .min(self.free_custom(whole, column)),
            _ => own,
        }
    }
}

/// Takes a node out of those that are listed under one name.
fn forget_key<K, Q: ?Sized + Hash + Equivalent<K>>(
    nodes: &mut IndexMap<K, Vec<NodeKey>>,
    name: &Q,
    key: NodeKey,
) {
    change_or_drop(nodes, name, |keys| {
        keys.retain(|&other| other != key);
        !keys.is_empty()
    });
}

/// A launcher that has nothing to say of its node but that it is short of memory says nothing once that is over: has a
/// report say so where that was all that was said before. Whether it was.
fn end_lone_pressure(report: &mut NodeReport) -> bool {
    let alone = NodeExtras {
        is_short_of_memory: true,
        ..NodeExtras::default()
    };
    match &mut report.extras {
        Some(extras) if **extras == alone => {
            extras.is_short_of_memory = false;
            true
        }
        _ => false,
    }
}
