//! What filters and weighers look at: the cluster, one node of it, and what a START asks for, all read-only.

use std::time::Instant;

use indexmap::{IndexMap, IndexSet};
use sched_model::Uuid;
use sched_model::scheduling::SCOPE_NODE;
use sched_model::{Expression, Group as GroupAsked, Near, Scheduling};

use crate::api::ids::{NodeKey, canonical_uuid};
use crate::api::input::{Capabilities, NodeReport};
use crate::api::resources::Resources;
use crate::cluster::columns::{Amounts, Columns};
use crate::cluster::facts;
use crate::cluster::groups::{Group, Groups};
use crate::cluster::index::{ColumnId, Need};
use crate::cluster::labels::{self, LabelIndex};
use crate::cluster::node::{Node, Pool};
use crate::cluster::nodes::NodeStore;
use crate::cluster::query::Query;
use crate::cluster::slot_set::SlotSet;
use crate::cluster::table::{Slot, Table};

/// The scope of groups and `near` that means the node itself rather than a label's value.
pub(crate) const NODE_SCOPE: &str = SCOPE_NODE;

/// What stands before an image's name in the label of nodes that have it.
const IMAGE: &str = "image.";

/// The key of the label of nodes that have an image.
pub(crate) fn image_label(name: &str) -> String {
    format!("{IMAGE}{name}")
}

/// The cluster as it is while one START is placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(super) now: Instant,
    pub(super) nodes: &'a NodeStore,
    pub(super) groups: &'a Groups,
    pub(super) columns: &'a Columns,
    /// Nodes whose queue is filling.
    pub(super) filling: &'a IndexSet<NodeKey>,
    pub(super) table: &'a Table,
    pub(super) pool: Pool,
}

/// One node that may be chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    key: NodeKey,
    node: &'a Node,
    free: Resources,
    now: Instant,
}

/// What a START asks for, with what the cluster has of it now.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    query: &'a Query,
    /// Memory, vcpus and disk.
    room: Resources,
    /// Custom resources, by number.
    custom: Amounts,
    /// Custom resources that no node ever reported.
    unheard_of: Vec<&'a str>,
    group: Option<GroupNow<'a>>,
    near: Vec<NearNow<'a>>,
    /// Whether any node is reserved for tenants.
    any_reserved: bool,
    /// Whether any node does not run what it is.
    is_lacking: bool,
}

/// A group a START is to join, and where its members are.
#[derive(Debug)]
pub(crate) struct GroupNow<'a> {
    asked: &'a GroupAsked,
    members: Option<&'a Group>,
    /// Members by value of the scope's label; `None` where there are none, or the scope is the node.
    domains: Option<&'a IndexMap<Box<str>, u32>>,
}

/// What a START is to be near to, and where that is.
#[derive(Debug)]
pub(crate) struct NearNow<'a> {
    asked: &'a Near,
    /// Values of the scope's label at which the wanted label is; empty where the scope is the node.
    domains: IndexSet<&'a str>,
    /// Nodes that were looked at to find them.
    looked_at: usize,
}

impl<'a> View<'a> {
    /// All nodes.
    #[inline]
    pub(crate) fn nodes(&self) -> &'a NodeStore {
        self.nodes
    }

    /// The nodes of the pool in order.
    #[inline]
    pub(crate) fn table(&self) -> &'a Table {
        self.table
    }

    /// Custom resources by name.
    pub(crate) fn columns(&self) -> &'a Columns {
        self.columns
    }

    /// Nodes whose queue is filling.
    pub(crate) fn filling(&self) -> impl Iterator<Item = NodeKey> + use<'a> {
        self.filling.iter().copied()
    }

    /// Which nodes these are.
    pub(crate) fn pool(&self) -> Pool {
        self.pool
    }

    /// A node, with what it has free.
    pub(crate) fn candidate(&self, key: NodeKey) -> Candidate<'a> {
        let free = self.nodes.free(key);
        self.candidate_with(key, free)
    }

    /// A node of which is known what it has free.
    pub(crate) fn candidate_with(&self, key: NodeKey, free: Resources) -> Candidate<'a> {
        Candidate::new(self.nodes, key, free, self.now)
    }

    /// The slots of the nodes that an expression names by UUID or host name; `None` if it names none in this way.
    pub(crate) fn named(&self, expression: &Expression) -> Option<SlotSet> {
        if expression.test().is_negative() {
            return None;
        }
        let texts = expression.test().exact_texts()?;
        let nodes: Vec<NodeKey> = match expression.key() {
            facts::HOSTNAME => texts
                .flat_map(|name| self.nodes.by_hostname(name).iter().copied())
                .collect(),
            facts::UUID => texts
                .filter_map(|uuid| self.nodes.by_uuid(canonical_uuid(uuid)?))
                .collect(),
            _ => return None,
        };
        let mut set = SlotSet::default();
        for key in nodes {
            if let Some(slot) = self.nodes.node(key).slots[self.pool as usize] {
                set.insert(slot);
            }
        }
        Some(set)
    }

    /// A query as it stands in this cluster.
    pub(crate) fn asked(&self, query: &'a Query, labels: &LabelIndex) -> Asked<'a> {
        let mut asked = Asked {
            query,
            room: query.asked(),
            custom: Amounts::default(),
            unheard_of: Vec::new(),
            group: None,
            near: Vec::new(),
            any_reserved: labels.has_made() && labels.has_key(facts::TENANT),
            is_lacking: is_lacking(query, labels),
        };
        if query.asks_for_room_alone() {
            return asked;
        }
        let mut custom = Vec::new();
        for (name, amount) in query.amounts().filter(|(_, amount)| *amount > 0) {
            match self.columns.find(name) {
                Some(column) => custom.push((column, amount)),
                None => asked.unheard_of.push(name),
            }
        }
        if !custom.is_empty() {
            custom.sort_unstable();
            asked.custom = custom.into();
        }
        let Some(scheduling) = query.scheduling() else {
            return asked;
        };
        asked.group = scheduling.group.as_ref().map(|group| self.group(group));
        let near = scheduling.near.iter();
        asked.near = near.map(|near| self.near(near, labels)).collect();
        asked
    }

    /// The first node for a query in the order of the search where room alone decides; `None` where more does.
    pub(crate) fn first_with_room(
        &self,
        query: &Query,
        labels: &LabelIndex,
    ) -> Option<Option<Slot>> {
        let is_plain = query.is_plain()
            && self.filling.is_empty()
            && (!labels.has_made() || !labels.has_key(facts::TENANT) && !is_lacking(query, labels));
        is_plain.then(|| self.table.first_fit(&query.asked()))
    }

    /// [`Groups::count_by`] has counted its members by the scope's values before.
    fn group(&self, asked: &'a GroupAsked) -> GroupNow<'a> {
        let members = self.groups.find(&asked.id);
        GroupNow {
            asked,
            members,
            domains: members.and_then(|group| group.by_value_of(&asked.scope)),
        }
    }

    fn near(&self, asked: &'a Near, index: &LabelIndex) -> NearNow<'a> {
        let (mut domains, mut looked_at) = (IndexSet::new(), 0);
        if asked.scope != NODE_SCOPE {
            let has_it = index.with_key(&asked.label);
            looked_at = has_it.len();
            for key in has_it.iter().filter_map(|slot| self.table.node(slot)) {
                let values = labels::values_of(&self.nodes.node(key).traits.labels, &asked.scope);
                domains.extend(values);
            }
        }
        NearNow {
            asked,
            domains,
            looked_at,
        }
    }
}

impl<'a> Candidate<'a> {
    /// A node that has so much free.
    pub(crate) fn new(nodes: &'a NodeStore, key: NodeKey, free: Resources, now: Instant) -> Self {
        let node = nodes.node(key);
        Self {
            key,
            node,
            free,
            now,
        }
    }

    /// Its key.
    pub(crate) fn key(&self) -> NodeKey {
        self.key
    }

    /// Its UUID.
    pub(crate) fn uuid(&self) -> Uuid {
        self.node.uuid
    }

    /// The host name it reported; empty before.
    pub(crate) fn hostname(&self) -> &'a str {
        self.node.hostname()
    }

    /// Its latest report.
    pub(crate) fn report(&self) -> Option<&'a NodeReport> {
        self.node.report.as_deref()
    }

    /// What it has free.
    pub(crate) fn free(&self) -> Resources {
        self.free
    }

    /// The values of one of its labels.
    pub(crate) fn label<'k>(&self, key: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        labels::values_of(&self.node.traits.labels, key)
    }

    /// Whether its launcher can do all of this.
    pub(crate) fn can(&self, what: Capabilities) -> bool {
        self.node.can(what)
    }

    /// Whether its launcher can be sent what the original's do not know.
    pub(crate) fn is_native(&self) -> bool {
        self.node.is_native
    }

    /// Whether it says that it has an image: by the label `image.NAME`.
    pub(crate) fn has_image(&self, name: &str) -> bool {
        let labels = &self.node.traits.labels;
        let of_images = &labels[labels.partition_point(|(key, _)| &**key < IMAGE)..];
        let mut names = of_images
            .iter()
            .map_while(|(key, _)| key.strip_prefix(IMAGE));
        names.any(|other| other == name)
    }

    /// Instances in its ledger.
    pub(crate) fn instances(&self) -> usize {
        self.node.ledger.len()
    }

    /// STARTs given to it that have no outcome.
    pub(crate) fn starts_under_way(&self) -> usize {
        self.node.ledger.unconfirmed()
    }

    /// Its failures recently, older ones counting less.
    pub(crate) fn failures(&self) -> f64 {
        self.node.failures.at(self.now)
    }

    /// Whether it has said what runs on it.
    pub(crate) fn has_listed(&self) -> bool {
        self.node.has_listed
    }

    /// Whether an expression over its labels or facts holds.
    pub(crate) fn holds(&self, expression: &Expression) -> bool {
        if facts::is_fact(expression.key()) {
            facts::holds(self, expression)
        } else {
            labels::holds(&self.node.traits.labels, expression)
        }
    }
}

impl<'a> Asked<'a> {
    /// What is asked.
    #[inline]
    pub(crate) fn query(&self) -> &'a Query {
        self.query
    }

    /// Memory, vcpus and disk.
    #[inline]
    pub(crate) fn room(&self) -> &Resources {
        &self.room
    }

    /// Custom resources, by number.
    #[inline]
    pub(crate) fn custom(&self) -> &[(ColumnId, i64)] {
        &self.custom
    }

    /// Custom resources that no node ever reported: what asks for any fits nowhere.
    #[inline]
    pub(crate) fn unheard_of(&self) -> &[&'a str] {
        &self.unheard_of
    }

    /// The group it is to join.
    pub(crate) fn group(&self) -> Option<&GroupNow<'a>> {
        self.group.as_ref()
    }

    /// What it is to be near to.
    pub(crate) fn near(&self) -> &[NearNow<'a>] {
        &self.near
    }

    /// Whether any node is reserved for tenants.
    pub(crate) fn is_any_reserved(&self) -> bool {
        self.any_reserved
    }

    /// Whether any node does not run what it is.
    pub(crate) fn is_lacking(&self) -> bool {
        self.is_lacking
    }

    /// What is asked of a node's resources.
    pub(crate) fn need(&self) -> Need<'_> {
        Need {
            asked: &self.room,
            custom: &self.custom,
        }
    }

    /// The START's `scheduling`.
    pub(crate) fn scheduling(&self) -> Option<&'a Scheduling> {
        self.query.scheduling()
    }
}

impl<'a> GroupNow<'a> {
    /// What its START says of it.
    pub(crate) fn asked(&self) -> &'a GroupAsked {
        self.asked
    }

    /// Its members; `None` where there are none.
    pub(crate) fn members(&self) -> Option<&'a Group> {
        self.members
    }

    /// Whether the policy must hold rather than should.
    pub(crate) fn is_hard(&self) -> bool {
        is_hard(self.asked)
    }

    /// Whether members are wanted together rather than apart.
    pub(crate) fn is_together(&self) -> bool {
        !self.asked.policy.is_anti()
    }

    /// Whether the scope is the node rather than a label.
    pub(crate) fn is_node_scope(&self) -> bool {
        self.asked.scope == NODE_SCOPE
    }

    /// Most members in one place.
    pub(crate) fn max(&self) -> u32 {
        self.asked.max_in_place()
    }

    /// Members where a node is: on it, or in the scope it is in; of several, in the one that has the most.
    pub(crate) fn members_at(&self, node: &Candidate<'_>) -> u32 {
        if self.is_node_scope() {
            return self.members.map_or(0, |group| group.on(node.key()));
        }
        let Some(domains) = self.domains else {
            return 0;
        };
        labels::values_of(&node.node.traits.labels, &self.asked.scope)
            .filter_map(|value| domains.get(value))
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// The values of the scope's label at which there are at least so many members.
    pub(crate) fn values_with(&self, at_least: u32) -> impl Iterator<Item = &str> {
        let domains = self.domains.into_iter().flatten();
        domains
            .filter(move |(_, count)| **count >= at_least)
            .map(|(value, _)| &**value)
    }
}

/// Whether any node does not run what a query is for.
fn is_lacking(query: &Query, labels: &LabelIndex) -> bool {
    let vm_type = query.request().vm_type.filter(|_| labels.has_made());
    vm_type.is_some_and(|it| labels.has(facts::LACKS_VM_TYPE, it.name()))
}

/// Whether a group's policy must hold rather than should.
pub(crate) fn is_hard(group: &GroupAsked) -> bool {
    !group.policy.is_soft()
}

impl<'a> NearNow<'a> {
    /// What its START says of it.
    pub(crate) fn asked(&self) -> &'a Near {
        self.asked
    }

    /// Values of the scope's label at which the wanted label is; none where the scope is the node.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &'a str> {
        self.domains.iter().copied()
    }

    /// Nodes that were looked at to find them.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Whether a node is near what is wanted.
    pub(crate) fn is_at(&self, node: &Candidate<'_>) -> bool {
        let labels = &node.node.traits.labels;
        if self.asked.scope == NODE_SCOPE {
            labels::values_of(labels, &self.asked.label)
                .next()
                .is_some()
        } else {
            labels::values_of(labels, &self.asked.scope).any(|value| self.domains.contains(value))
        }
    }
}
