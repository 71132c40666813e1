//! Which nodes have members of which group of instances.
//!
//! A member that was preempted and is suspended has given up its place: its preemptor goes there, and it is resumed only
//! when the place is free again. So two numbers are kept for each node: all members, by which affinity goes, and those
//! in place, by which anti-affinity over nodes goes. By the values of a label all members are counted, so that a place
//! in a zone or rack is not given up.
//!
//! Kept up to date with every change of a ledger, so that affinity is decided in the same step as the claim. Nothing of
//! it is stored: after a restart it is filled from what launchers list, which is why STARTs of groups with a hard
//! policy wait for the recovery window to close.

use std::sync::Arc;

use indexmap::IndexMap;

use crate::api::ids::NodeKey;
use crate::cluster::labels::values_of;
use crate::cluster::ledger::Members;
use crate::cluster::nodes::NodeStore;
use crate::cluster::slot_set::SlotSet;
use crate::cluster::table::Slot;
use crate::maps::Map;

/// The groups that have members, by id. A group without members does not exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct Groups(IndexMap<Arc<str>, Group>);

/// One group's members by node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    members: Map<NodeKey, Member>,
    /// The slots of nodes with a member, in the compute and the network table.
    slots: [Arc<SlotSet>; 2],
    /// The slots of nodes with a member in place, in the same tables.
    taken: [Arc<SlotSet>; 2],
    /// Members by the values of labels that STARTs have used as scopes, the most recently added last. Made on demand.
    scopes: Vec<Scope>,
}

/// Labels by whose values a group's members are counted at the same time; the oldest is dropped for a further one.
/// STARTs of one group mostly use one scope.
const MAX_SCOPES: usize = 4;

/// A group's members by the values of one label. Values without members are not listed.
#[derive(Debug, Clone, PartialEq)]
struct Scope {
    key: Box<str>,
    by_value: IndexMap<Box<str>, u32>,
}

impl Scope {
    /// Counts members that came to a node with these labels (`change` above 0), or left it. A node with several values
    /// counts for each of them.
    fn count(&mut self, labels: &[(Box<str>, Box<str>)], change: i32) {
        for value in values_of(labels, &self.key) {
            let count = match self.by_value.get_mut(value) {
                Some(count) => count,
                None => self.by_value.entry(value.into()).or_default(),
            };
            *count = count.saturating_add_signed(change);
            if *count == 0 {
                self.by_value.swap_remove(value);
            }
        }
    }
}

/// How many members of a group a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    instances: u32,
    /// Of these the ones in place: not preempted and suspended.
    in_place: u32,
    /// The node's slots when this was noted, to be taken out of the sets later.
    slots: [Option<Slot>; 2],
}

impl Groups {
    /// A group, if it has members.
    pub(crate) fn find(&self, id: &str) -> Option<&Group> {
        self.0.get(id)
    }

    /// Counts members that came to a node, or left it, or that took or gave up their place there.
    pub(crate) fn count(
        &mut self,
        id: &Arc<str>,
        node: NodeKey,
        slots: [Option<Slot>; 2],
        labels: &[(Box<str>, Box<str>)],
        change: Members,
    ) {
        let group = self.0.entry(Arc::clone(id)).or_default();
        let before = group.members.get(&node);
        let (instances, in_place) = before.map_or((0, 0), |it| (it.instances, it.in_place));
        let member = Member {
            instances: instances.saturating_add_signed(change.all),
            in_place: in_place.saturating_add_signed(change.in_place),
            slots,
        };
        match member.instances {
            0 => group.remove(node),
            _ => group.set(node, member),
        }
        if change.all != 0 {
            for scope in &mut group.scopes {
                scope.count(labels, change.all);
            }
        }
        if group.members.is_empty() {
            self.0.swap_remove(id);
            if self.0.is_empty() {
                self.0 = IndexMap::new();
            }
        }
    }

    /// Makes a group's members be counted by the values of a label. Costs a walk over the group's nodes where they are
    /// not yet.
    pub(crate) fn count_by(&mut self, id: &str, key: &str, nodes: &NodeStore) {
        let Some(group) = self.0.get_mut(id) else {
            return;
        };
        if group.by_value_of(key).is_some() {
            return;
        }
        if group.scopes.len() >= MAX_SCOPES {
            group.scopes.remove(0);
        }
        let scope = group.counted_by(key, nodes);
        group.scopes.push(scope);
    }

    /// Drops the counts by labels of these groups, because a node with members has other labels now. They are made
    /// again by the next START that needs them.
    pub(crate) fn forget_labels<'a>(&mut self, ids: impl Iterator<Item = &'a Arc<str>>) {
        for id in ids {
            if let Some(group) = self.0.get_mut(id) {
                group.scopes.clear();
            }
        }
    }

    /// Notes that a node has other slots now, or none.
    pub(crate) fn moved<'a>(
        &mut self,
        ids: impl Iterator<Item = &'a Arc<str>>,
        node: NodeKey,
        slots: [Option<Slot>; 2],
    ) {
        for id in ids {
            if let Some(group) = self.0.get_mut(id)
                && let Some(&member) = group.members.get(&node)
            {
                group.set(node, Member { slots, ..member });
            }
        }
    }

    /// Every group with its nodes and how many members each has.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Group)> {
        self.0.iter()
    }

    /// Places in the table.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Groups that have members.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Group {
    /// Members on one node.
    pub(crate) fn on(&self, node: NodeKey) -> u32 {
        self.members.get(&node).map_or(0, |member| member.instances)
    }

    /// Members on one node that take a place there: all but those that were preempted and are suspended.
    pub(crate) fn in_place(&self, node: NodeKey) -> u32 {
        self.members.get(&node).map_or(0, |member| member.in_place)
    }

    /// Members by the values of a label, if they are counted by it.
    pub(crate) fn by_value_of(&self, key: &str) -> Option<&IndexMap<Box<str>, u32>> {
        let scope = self.scopes.iter().find(|scope| &*scope.key == key)?;
        Some(&scope.by_value)
    }

    /// Counts the members by the values of a label from scratch.
    fn counted_by(&self, key: &str, nodes: &NodeStore) -> Scope {
        let mut scope = Scope {
            key: key.into(),
            by_value: IndexMap::new(),
        };
        for (node, count) in self.nodes() {
            let change = i32::try_from(count).unwrap_or(i32::MAX);
            scope.count(&nodes.node(node).traits.labels, change);
        }
        scope
    }

    /// The nodes with members, and how many each has.
    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeKey, u32)> + '_ {
        self.members
            .iter()
            .map(|(&node, member)| (node, member.instances))
    }

    /// How many nodes have members.
    pub(crate) fn node_count(&self) -> usize {
        self.members.len()
    }

    /// The slots of nodes with at least this many members. For one it is kept ready; for more it costs a walk over the
    /// group's nodes.
    pub(crate) fn slots(&self, pool: usize, at_least: u32) -> Arc<SlotSet> {
        if at_least <= 1 {
            return Arc::clone(&self.slots[pool]);
        }
        Arc::new(self.slots_where(pool, |member| member.instances >= at_least))
    }

    /// The slots of nodes with at least this many members in place; as costly as [`Group::slots`].
    pub(crate) fn taken(&self, pool: usize, at_least: u32) -> Arc<SlotSet> {
        if at_least <= 1 {
            return Arc::clone(&self.taken[pool]);
        }
        Arc::new(self.slots_where(pool, |member| member.in_place >= at_least))
    }

    /// The slots of nodes whose members are so.
    fn slots_where(&self, pool: usize, is_so: impl Fn(&Member) -> bool) -> SlotSet {
        let members = self.members.values().filter(|member| is_so(member));
        members.filter_map(|member| member.slots[pool]).collect()
    }

    /// The slots in which a node's members are counted.
    pub(crate) fn slots_of(&self, node: NodeKey) -> Option<[Option<Slot>; 2]> {
        self.members.get(&node).map(|member| member.slots)
    }

    /// Notes how many members a node has, and where it is in the tables.
    fn set(&mut self, node: NodeKey, member: Member) {
        let before = self.members.insert(node, member);
        self.move_slots(before, Some(member));
    }

    /// Notes that a node has no member any more.
    fn remove(&mut self, node: NodeKey) {
        let before = self.members.swap_remove(&node);
        self.move_slots(before, None);
    }

    /// Moves a node in the sets of slots.
    fn move_slots(&mut self, from: Option<Member>, to: Option<Member>) {
        let slots = |member: Option<Member>| member.map_or([None; 2], |it| it.slots);
        let taken = |member: Option<Member>| slots(member.filter(|it| it.in_place > 0));
        move_in(&mut self.slots, slots(from), slots(to));
        move_in(&mut self.taken, taken(from), taken(to));
    }

    /// Whether the sets of slots and the counts by labels are what the members say.
    pub(crate) fn is_consistent(&self, nodes: &NodeStore) -> bool {
        let is_counted = |scope: &Scope| *scope == self.counted_by(&scope.key, nodes);
        let mut pools = 0..2;
        self.scopes.iter().all(is_counted)
            && pools.all(|pool| {
                let all = self.slots_where(pool, |_| true);
                let taken = self.slots_where(pool, |member| member.in_place > 0);
                all.iter().eq(self.slots[pool].iter()) && taken.iter().eq(self.taken[pool].iter())
            })
    }
}

/// Moves a node in sets of slots, one for each pool. A set that a search still holds is copied first.
fn move_in(sets: &mut [Arc<SlotSet>; 2], from: [Option<Slot>; 2], to: [Option<Slot>; 2]) {
    for ((set, from), to) in sets.iter_mut().zip(from).zip(to) {
        if from == to {
            continue;
        }
        let set = Arc::make_mut(set);
        if let Some(slot) = from {
            set.remove(slot);
        }
        if let Some(slot) = to {
            set.insert(slot);
        }
    }
}
