//! Nodes and what they offer: ledgers of claims, tables and their indexes, labels, groups, what nodes are.
//!
//! [`Cluster`] owns all of it and keeps it in step: every change of a node or of its claims goes through one of its
//! methods, after which tables, labels and groups are up to date. What others have to know of a change (a node offers
//! more, claims are to be remembered) it notes as a [`ClusterChange`], for [`Cluster::take_change`]; it calls nothing
//! outside its folder.
//!
//! ```text
//!  reports, claims ─▶ node ── ledger (claims) ─┐
//!                      │      room (report)    ├─▶ what it offers ─▶ table, index    (refresh_offer, each START)
//!                      │                       ┘
//!                      └───── traits ─▶ labels, columns, groups                     (refresh_traits, seldom)
//! ```
//!
//! Read-only access for searches is a `view::View`. What must hold between the parts is checked in `consistent`.

pub(crate) mod absent;
pub(crate) mod advice;
pub(crate) mod candidate;
pub(crate) mod capacity;
pub(crate) mod columns;
pub(crate) mod cordons;
pub(crate) mod derive;
pub(crate) mod facts;
pub(crate) mod failing;
pub(crate) mod failures;
pub(crate) mod full;
pub(crate) mod groups;
pub(crate) mod index;
pub(crate) mod inventory;
pub(crate) mod isolation;
pub(crate) mod labels;
pub(crate) mod ledger;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod processes;
pub(crate) mod query;
pub(crate) mod questions;
pub(crate) mod slot_set;
pub(crate) mod table;
pub(crate) mod traits;
pub(crate) mod tries;
pub(crate) mod view;

mod abilities;
mod claims;
mod consistent;
mod reads;
pub(crate) mod reported;
mod reports;
mod room;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use indexmap::IndexSet;
use sched_model::Uuid;

use crate::api::config::{Config, MAX_INSTANCES_PER_NODE};
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::ConfigurationFlags;
use crate::api::known_node::KnownNode;
use crate::api::rules::{NodeRule, OfferRules, Rules};
use crate::cluster::absent::AbsentNodes;
use crate::cluster::advice::Advice;
use crate::cluster::columns::{Amounts, Columns};
use crate::cluster::cordons::Cordons;
use crate::cluster::derive::Named;
use crate::cluster::groups::Groups;
use crate::cluster::isolation::Isolation;
use crate::cluster::labels::LabelIndex;
use crate::cluster::ledger::{Ended, Entry, EntryEnd, Ledger, Unconfirmed};
use crate::cluster::node::Pool;
use crate::cluster::nodes::NodeStore;
use crate::cluster::query::Query;
use crate::cluster::table::{Slot, Table};
use crate::cluster::tries::Tries;
use crate::cluster::view::View;
use crate::maps::Map;

/// All nodes, the claims on them, and the indexes by which they are found.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    nodes: NodeStore,
    /// Compute and network nodes; indexed by [`Pool`].
    tables: [Table; 2],
    /// The labels of the nodes in these tables, by the same slots.
    labels: [LabelIndex; 2],
    /// Custom resources by name.
    columns: Columns,
    /// Where the members of groups are, by the entries of all ledgers.
    groups: Groups,
    /// What the configuration says of nodes by name.
    named: Named,
    /// What the aggregates say of images and limits.
    isolation: Isolation,
    config: Arc<Config>,
    flags: ConfigurationFlags,
    rules: Rules,
    /// Whether the policy has a filter that goes by nodes' load.
    follows_load: bool,
    /// What the node file says of single nodes.
    node_file: Vec<NodeRule>,
    /// The same, and behind it what the rules say of them.
    overrides: Vec<NodeRule>,
    /// Nodes whose queue is filling: outside the tables' offers, tried when nothing else fits.
    filling: IndexSet<NodeKey>,
    /// Nodes whose latest status is FULL and on which room was released since: tried when nothing READY fits.
    full: IndexSet<NodeKey>,
    /// Nodes with many recent failures; one whose failures have faded is removed when this is looked at.
    failing: IndexSet<NodeKey>,
    /// Which nodes are cordoned or drained, connected or not.
    cordons: Cordons,
    /// The node that each instance is placed on: that has it, or was given it. Each placement has an entry in that
    /// node's ledger, while a ledger may have entries of instances that are placed elsewhere.
    placements: Map<InstanceId, NodeKey>,
    /// STARTs that are tried on nodes which called themselves full.
    tries: Tries,
    /// Nodes that were connected once and are not in the store.
    absent: AbsentNodes,
    /// How often any node has changed in what it is; gives nodes their generation.
    alterations: u64,
    /// What has happened and was not taken by [`Cluster::take_change`] yet, oldest first.
    changes: VecDeque<ClusterChange>,
}

/// A change of the cluster that concerns others.
#[derive(Debug, Clone)]
pub(crate) enum ClusterChange {
    /// A node offers more than before, or is another one: it may be what a request waits for.
    Capacity(NodeKey),
    /// A node may run less than before: who waited for it may not be able to run there any more, and gives way to who is
    /// suspended there.
    Narrowed(NodeKey),
    /// A node joined, left or is another one, with the tables it is in: what is reserved on it may be for an instance
    /// that it cannot run any more.
    Altered(NodeKey, [bool; 2]),
    /// The claims on a node with an original launcher have changed.
    Claims(Uuid),
    /// A node is in two availability zones; the one named here is left out.
    TwoZones(Uuid, Box<str>),
    /// What the node behind a connection offers is new to its launcher, which is to be told.
    Offered(SessionId, OfferRules),
    /// A node is short of memory, or not any more.
    Pressure(NodeKey),
    /// Part of what a node reports over a connection does not count.
    LeftOut(SessionId, Uuid, Advice),
}

impl Cluster {
    /// A cluster without nodes.
    pub(crate) fn new(config: Arc<Config>, flags: ConfigurationFlags, rules: Rules) -> Self {
        let mut cluster = Self {
            nodes: NodeStore::default(),
            tables: Default::default(),
            labels: Default::default(),
            columns: Columns::default(),
            groups: Groups::default(),
            named: Named::default(),
            isolation: Isolation::new(&rules.aggregates),
            follows_load: rules.policy.goes_by_load(),
            node_file: config.nodes.clone(),
            overrides: Vec::new(),
            config,
            flags,
            rules,
            filling: IndexSet::new(),
            full: IndexSet::new(),
            failing: IndexSet::new(),
            cordons: Cordons::default(),
            placements: Map::default(),
            tries: Tries::default(),
            absent: AbsentNodes::default(),
            alterations: 0,
            changes: VecDeque::new(),
        };
        cluster.name_nodes();
        cluster
    }

    /// The next change, oldest first; `None` once all were taken.
    #[inline]
    pub(crate) fn take_change(&mut self) -> Option<ClusterChange> {
        const KEEP_CHANGES: usize = 4096;
        if self.changes.is_empty() {
            if self.changes.capacity() > KEEP_CHANGES {
                self.changes.shrink_to(KEEP_CHANGES);
            }
            return None;
        }
        self.changes.pop_front()
    }

    /// The nodes of a pool in order, to be looked at.
    #[inline]
    pub(crate) fn table(&self, pool: Pool) -> &Table {
        &self.tables[pool as usize]
    }

    /// Which slots of a pool have which labels.
    pub(crate) fn labels(&self, pool: Pool) -> &LabelIndex {
        &self.labels[pool as usize]
    }

    /// Custom resources by name.
    pub(crate) fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The names of the configured aggregates.
    pub(crate) fn aggregate_names(&self) -> impl Iterator<Item = &str> {
        self.rules.aggregates.iter().map(|it| &*it.name)
    }

    /// What is known of a node that was connected and is not.
    pub(crate) fn absent(&self, uuid: Uuid) -> Option<&KnownNode> {
        self.absent.get(uuid)
    }

    /// Those nodes from a UUID on, in order.
    pub(crate) fn absent_from(&self, first: Uuid) -> impl Iterator<Item = &KnownNode> {
        self.absent.iter_from(first)
    }

    /// Since when the first one is lost that was known only briefly, in unix milliseconds.
    pub(crate) fn first_brief(&self) -> Option<u64> {
        self.absent.first_brief()
    }

    /// Whether the one node or host that a query names is absent.
    pub(crate) fn is_absent(&self, query: &Query) -> bool {
        self.absent.has_what_is_named_by(query)
    }

    /// The host name of a node, whether it is connected or not; empty where it is not known.
    pub(crate) fn name_of(&self, uuid: Uuid) -> &str {
        match self.nodes.by_uuid(uuid) {
            Some(key) => self.nodes.node(key).hostname(),
            None => {
                let node = self.absent.get(uuid);
                node.map_or("", |node| &*node.hostname)
            }
        }
    }

    /// Remembers a node that is not connected. Returns the one that was forgotten to make room, if the list was full.
    pub(crate) fn note_absent(&mut self, node: KnownNode) -> Option<KnownNode> {
        self.absent.insert(node)
    }

    /// Forgets the first of those that were known only briefly.
    pub(crate) fn forget_first_brief(&mut self) -> Option<KnownNode> {
        self.absent.forget_first_brief()
    }

    /// Forgets a node that is not connected; returns what was known of it.
    pub(crate) fn forget_absent(&mut self, uuid: Uuid) -> Option<KnownNode> {
        self.absent.remove(uuid)
    }

    /// Where the members of groups are.
    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Makes the members of a group be counted by the values of a label (`groups`).
    pub(crate) fn count_group_by(&mut self, group: &str, scope: &str) {
        self.groups.count_by(group, scope, &self.nodes);
    }

    /// The node that an instance is placed on.
    #[inline]
    pub(crate) fn placement(&self, instance: &InstanceId) -> Option<NodeKey> {
        self.placements.get(instance).copied()
    }

    /// Instances that have a node, and how many there is memory for.
    pub(crate) fn placements(&self) -> (usize, usize) {
        (self.placements.len(), self.placements.capacity())
    }

    /// Nodes whose latest status is FULL and on which room was released since; the tables do not offer them.
    pub(crate) fn full_nodes(&self) -> &IndexSet<NodeKey> {
        &self.full
    }

    /// A pool as it is now, to be looked at.
    pub(crate) fn view(&self, pool: Pool, now: Instant) -> View<'_> {
        View {
            now,
            nodes: &self.nodes,
            groups: &self.groups,
            columns: &self.columns,
            filling: &self.filling,
            table: &self.tables[pool as usize],
            placements: &self.placements,
            isolation: &self.isolation,
            pool,
        }
    }

    /// The same, with the pool's label index, in which a search keeps the sets that it makes.
    pub(crate) fn view_and_labels(
        &mut self,
        pool: Pool,
        now: Instant,
    ) -> (View<'_>, &mut LabelIndex) {
        let view = View {
            now,
            nodes: &self.nodes,
            groups: &self.groups,
            columns: &self.columns,
            filling: &self.filling,
            table: &self.tables[pool as usize],
            placements: &self.placements,
            isolation: &self.isolation,
            pool,
        };
        (view, &mut self.labels[pool as usize])
    }

    /// Makes the node in a slot the most recently used of its pool, and returns it.
    pub(crate) fn touch(&mut self, pool: Pool, slot: Slot) -> Option<NodeKey> {
        let table = &mut self.tables[pool as usize];
        table.touch(slot);
        table.node(slot)
    }

    /// The most recently used slots of both pools, to be put back after choices that are not carried out.
    pub(crate) fn cursors(&self) -> [Option<Slot>; 2] {
        Pool::ALL.map(|pool| self.tables[pool as usize].cursor())
    }

    /// Puts back cursors taken before.
    pub(crate) fn set_cursors(&mut self, cursors: [Option<Slot>; 2]) {
        for (table, cursor) in self.tables.iter_mut().zip(cursors) {
            table.set_cursor(cursor);
        }
    }

    /// A node's ledger, to be changed. When the guard is dropped, the node's offer is brought up to date; several
    /// changes under one guard cost one update.
    #[inline]
    pub(crate) fn ledger_mut(&mut self, key: NodeKey) -> LedgerMut<'_> {
        LedgerMut { cluster: self, key }
    }

    /// Makes claims on a node that is back, for what its instances asked for before it was away. No more than a ledger
    /// may have.
    pub(crate) fn restore_claims(
        &mut self,
        key: NodeKey,
        claims: impl IntoIterator<Item = (InstanceId, Entry)>,
    ) {
        let mut ledger = self.ledger_mut(key);
        for (instance, entry) in claims {
            if ledger.len() < MAX_INSTANCES_PER_NODE {
                ledger.insert(instance, entry);
            }
        }
    }

    /// Notes that a node's launcher says which STARTs it has seen.
    pub(crate) fn note_counting(&mut self, key: NodeKey) {
        self.nodes.node_mut(key).ledger.note_counting();
    }

    /// Places an instance on a node, in place of any other. The node's ledger must have an entry of it, or get one in
    /// the same step.
    pub(crate) fn set_placement(&mut self, instance: &InstanceId, key: NodeKey) {
        self.placements.insert(instance.clone(), key);
    }

    /// Places an instance on a node unless it is placed already; whether it was placed now.
    pub(crate) fn add_placement(&mut self, instance: &InstanceId, key: NodeKey) -> bool {
        match self.placements.entry(instance.clone()) {
            indexmap::map::Entry::Vacant(place) => {
                place.insert(key);
                true
            }
            indexmap::map::Entry::Occupied(_) => false,
        }
    }

    /// Removes the placement of an instance if it is placed on this node; whether it was.
    pub(crate) fn remove_placement(&mut self, instance: &InstanceId, key: NodeKey) -> bool {
        match self.placements.get_full(instance) {
            Some((at, _, &placement)) if placement == key => {
                self.placements.swap_remove_index(at);
                true
            }
            _ => false,
        }
    }

    /// Claims on a node what an instance asks for, and places the instance there. It must not be placed anywhere yet.
    #[inline]
    pub(crate) fn claim(&mut self, key: NodeKey, instance: &InstanceId, entry: Entry) {
        let earlier = self.placements.insert(instance.clone(), key);
        debug_assert_eq!(earlier, None, "{instance} has a node already");
        self.ledger_mut(key).insert(instance.clone(), entry);
    }

    /// A node reports that it does not have an instance. Returns what that means for its claim there; the caller
    /// releases a claim that is over.
    pub(crate) fn end(&mut self, key: NodeKey, instance: &InstanceId, how: Ended) -> EntryEnd {
        let end = self.nodes.node_mut(key).ledger.end(instance, how);
        if end == EntryEnd::Open {
            // Only what goes on may ask for something else by it.
            self.refresh_offer(key);
        }
        end
    }

    /// Gives the next number to a START for a node. A native launcher reports how many it has seen on this connection,
    /// and so which STARTs have not arrived.
    #[inline]
    pub(crate) fn number_start(
        &mut self,
        key: NodeKey,
        sender: SessionId,
        restart: bool,
    ) -> Unconfirmed {
        let node = self.nodes.node_mut(key);
        node.starts_sent += 1;
        Unconfirmed {
            sender,
            ordinal: node.starts_sent,
            restart,
        }
    }

    /// Custom resources as amounts by number.
    pub(crate) fn amounts<'a>(&self, named: impl Iterator<Item = (&'a str, i64)>) -> Amounts {
        self.columns.asked(named)
    }

    /// Shrinks tables that have become far too large, so that the memory of a burst of instances is given back.
    pub(crate) fn give_back_memory(&mut self, above: usize) {
        let placements = &mut self.placements;
        if placements.capacity() > above && placements.len() < placements.capacity() / 4 {
            placements.shrink_to(2 * placements.len());
        }
    }
}

/// A node's ledger while it is changed. Dropping it updates the node's offer.
#[derive(Debug)]
pub(crate) struct LedgerMut<'a> {
    cluster: &'a mut Cluster,
    key: NodeKey,
}

impl LedgerMut<'_> {
    /// The ledger, with the custom resources by name.
    pub(crate) fn with_columns(&mut self) -> (&mut Ledger, &Columns) {
        let ledger = &mut self.cluster.nodes.node_mut(self.key).ledger;
        (ledger, &self.cluster.columns)
    }
}

impl Deref for LedgerMut<'_> {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.cluster.nodes.node(self.key).ledger
    }
}

impl DerefMut for LedgerMut<'_> {
    fn deref_mut(&mut self) -> &mut Ledger {
        &mut self.cluster.nodes.node_mut(self.key).ledger
    }
}

impl Drop for LedgerMut<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cluster.refresh_offer(self.key);
    }
}
