//! What filters and weighers look at beside a node: the cluster, and what a START asks for, read-only.
//!
//! [`View`] is the cluster for one pool at one moment. [`Asked`] is a query resolved against it once: names of custom
//! resources become columns, groups and `near` become places, instances become nodes. A filter compares a [`Candidate`]
//! with what is asked and looks nothing up by name.

use std::time::Instant;

use indexmap::{IndexMap, IndexSet};
use sched_model::scheduling::SCOPE_NODE;
use sched_model::{Expression, Group as GroupAsked, Near, Scheduling};

use crate::api::ids::{InstanceId, NodeKey, canonical_uuid};
use crate::api::resources::Resources;
use crate::cluster::candidate::Candidate;
use crate::cluster::columns::{Amounts, Columns};
use crate::cluster::facts;
use crate::cluster::groups::{Group, Groups};
use crate::cluster::index::{ColumnId, Need};
use crate::cluster::isolation::Isolation;
use crate::cluster::labels::{self, LabelIndex};
use crate::cluster::node::Pool;
use crate::cluster::nodes::NodeStore;
use crate::cluster::query::Query;
use crate::cluster::slot_set::SlotSet;
use crate::cluster::table::{Slot, Table};
use crate::maps::Map;

/// The scope of groups and `near` that means the node itself rather than a label's value.
pub(crate) const NODE_SCOPE: &str = SCOPE_NODE;

/// The cluster as it is while one START is placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(super) now: Instant,
    pub(crate) nodes: &'a NodeStore,
    pub(super) groups: &'a Groups,
    pub(crate) columns: &'a Columns,
    /// Nodes whose outgoing queue is filling: the table offers none of them.
    pub(crate) filling: &'a IndexSet<NodeKey>,
    pub(crate) table: &'a Table,
    pub(super) placements: &'a Map<InstanceId, NodeKey>,
    pub(crate) isolation: &'a Isolation,
    pub(crate) pool: Pool,
}

/// What a START asks for, with what the cluster has of it now.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) query: &'a Query,
    /// Memory, vcpus and disk.
    room: Resources,
    /// Custom resources, by number.
    custom: Amounts,
    /// Custom resources asked for that no node ever reported: with any of these the START fits nowhere.
    unknown_names: Vec<&'a str>,
    group: Option<GroupNow<'a>>,
    pub(crate) near: Vec<NearNow<'a>>,
    /// The nodes that have the instances of `same_node`; `None` where it names none.
    pub(crate) same_node: Option<Vec<NodeKey>>,
    /// The nodes that have the instances of `different_node`; empty where it names none.
    pub(crate) different_node: Vec<NodeKey>,
    /// The cluster in which it is searched for.
    pub(crate) view: View<'a>,
    /// Volumes and ports of the START that some node reports; others may be anywhere.
    pub(crate) volumes: Vec<&'a str>,
    /// Whether any node of the pool is reserved for tenants.
    pub(crate) is_any_reserved: bool,
    /// Whether any node of the pool cannot run the START's type of workload.
    pub(crate) is_lacking: bool,
}

/// A group a START is to join, and where its members are.
#[derive(Debug)]
pub(crate) struct GroupNow<'a> {
    asked: &'a GroupAsked,
    pub(crate) members: Option<&'a Group>,
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
    pub(crate) looked_at: usize,
}

impl<'a> View<'a> {
    /// A node, with what it has free, computed from its ledger.
    pub(crate) fn candidate(&self, key: NodeKey) -> Candidate<'a> {
        let free = self.nodes.free(key);
        self.candidate_with(key, free)
    }

    /// A node for which what it has free is known already, from the table.
    pub(crate) fn candidate_with(&self, key: NodeKey, free: Resources) -> Candidate<'a> {
        Candidate::new(self.nodes, key, free, self.now)
    }

    /// The slots of the nodes that an expression names by UUID or host name, found by index instead of by asking every
    /// node; `None` if it does not name nodes in this way.
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
        Some(nodes.into_iter().filter_map(|key| self.slot(key)).collect())
    }

    /// The slot of a node in the pool; `None` for one of the other pool.
    pub(crate) fn slot(&self, key: NodeKey) -> Option<Slot> {
        self.nodes.node(key).slots[self.pool as usize]
    }

    /// Resolves a query against this cluster. For a START that asks for room alone this costs a few comparisons; `near`
    /// with a scope costs a look at each node that has the label. `Cluster::count_group_by` must have been called for a
    /// group with a scope.
    pub(crate) fn asked(&self, query: &'a Query, labels: &LabelIndex) -> Asked<'a> {
        let mut asked = Asked {
            query,
            room: query.asked(),
            custom: Amounts::default(),
            unknown_names: Vec::new(),
            group: None,
            near: Vec::new(),
            same_node: None,
            different_node: Vec::new(),
            view: *self,
            volumes: self.volumes(query, labels),
            is_any_reserved: labels.has_made() && labels.has_key(facts::TENANT),
            is_lacking: is_lacking(query, labels),
        };
        if query.asks_for_room_alone() {
            return asked;
        }
        let mut custom = Vec::new();
        for (name, amount) in query.amounts().filter(|(_, amount)| *amount > 0) {
            match self.columns.find(name) {
                Some(column) => custom.push((column, amount)),
                None => asked.unknown_names.push(name),
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
        if !scheduling.same_node.is_empty() {
            asked.same_node = Some(self.nodes_of(query, &scheduling.same_node));
        }
        asked.different_node = self.nodes_of(query, &scheduling.different_node);
        asked
    }

    /// The first node for a query in the order of the search, if room alone decides; the outer `None` if more does, so
    /// that the whole search is needed. The short cut of plain STARTs in a cluster without rules that concern all.
    pub(crate) fn first_with_room(
        &self,
        query: &Query,
        labels: &LabelIndex,
    ) -> Option<Option<Slot>> {
        let is_plain = query.is_plain()
            && self.filling.is_empty()
            && !self.isolation.concerns_all()
            && self.volumes(query, labels).is_empty()
            && (!labels.has_made() || !labels.has_key(facts::TENANT) && !is_lacking(query, labels));
        is_plain.then(|| self.table.first_fit(&query.asked()))
    }

    /// The nodes that have these instances; the one that is to be placed does not count.
    fn nodes_of(&self, query: &Query, instances: &[String]) -> Vec<NodeKey> {
        let ids = instances.iter().map(|it| InstanceId::new(it));
        let others = ids.filter(|it| it != query.instance());
        others
            .filter_map(|it| self.placements.get(&it).copied())
            .collect()
    }

    /// Volumes and ports of a START that some node has.
    fn volumes<'q>(&self, query: &'q Query, labels: &LabelIndex) -> Vec<&'q str> {
        let attached = &query.request().volumes;
        if attached.is_empty() || !labels.has_made() || !labels.has_key(facts::VOLUME) {
            return Vec::new();
        }
        let attached = attached.iter().map(|it| &**it);
        attached
            .filter(|it| labels.has(facts::VOLUME, it))
            .collect()
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

    /// The values of the scope's label at all nodes that have the wanted label.
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

impl<'a> Asked<'a> {
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
    pub(crate) fn unknown_names(&self) -> &[&'a str] {
        &self.unknown_names
    }

    /// The group it is to join.
    pub(crate) fn group(&self) -> Option<&GroupNow<'a>> {
        self.group.as_ref()
    }

    /// How much of a custom resource a node has free.
    pub(crate) fn free_custom(&self, node: &Candidate<'_>, name: &str) -> i64 {
        let column = self.view.columns.find(name);
        column.map_or(0, |column| self.view.nodes.free_custom(node.key, column))
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

    /// Whether at most [`GroupNow::max`] members may be in place on each node: such members may be preempted for the
    /// place alone, and give it up while they are suspended for that.
    pub(crate) fn is_apart_by_node(&self) -> bool {
        is_apart_by_node(self.asked)
    }

    /// Members that take a place on a node: all but those that were preempted and are suspended there.
    pub(crate) fn in_place(&self, node: &Candidate<'_>) -> u32 {
        self.members.map_or(0, |group| group.in_place(node.key))
    }

    /// Members in the place where a node is: on it, or in its scope. If the node has several values of the scope's
    /// label, the place with the most members counts.
    pub(crate) fn members_at(&self, node: &Candidate<'_>) -> u32 {
        if self.is_node_scope() {
            return self.members.map_or(0, |group| group.on(node.key));
        }
        let Some(domains) = self.domains else {
            return 0;
        };
        node.label(&self.asked.scope)
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

/// Whether at most so many members of a group may be in place on each node.
pub(crate) fn is_apart_by_node(group: &GroupAsked) -> bool {
    is_hard(group) && group.policy.is_anti() && group.scope == NODE_SCOPE
}

impl<'a> NearNow<'a> {
    /// What its START says of it.
    pub(crate) fn asked(&self) -> &'a Near {
        self.asked
    }

    /// The slots that are near it.
    pub(crate) fn slots(&self, labels: &LabelIndex) -> SlotSet {
        if self.asked.scope == NODE_SCOPE {
            labels.with_key(&self.asked.label)
        } else {
            let values = self.domains.iter().copied();
            labels.with_values(&self.asked.scope, values)
        }
    }

    /// Whether a node is near what is wanted.
    pub(crate) fn is_at(&self, node: &Candidate<'_>) -> bool {
        if self.asked.scope == NODE_SCOPE {
            node.label(&self.asked.label).next().is_some()
        } else {
            let mut places = node.label(&self.asked.scope);
            places.any(|place| self.domains.contains(place))
        }
    }
}
