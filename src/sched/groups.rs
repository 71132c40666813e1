//! Which nodes have members of which group of instances.
//!
//! Kept up to date with every change of a ledger, so that affinity is decided in the same step as the claim. Nothing
//! is stored beside it: after a restart it is filled from what launchers list.

use std::sync::Arc;

use indexmap::IndexMap;

use super::ids::NodeKey;
use super::slot_set::SlotSet;
use super::table::Slot;

/// The groups that have members.
#[derive(Debug, Default)]
pub(super) struct Groups(IndexMap<Arc<str>, Group>);

/// One group's members by node.
#[derive(Debug, Default)]
pub(super) struct Group {
    members: IndexMap<NodeKey, Member>,
    /// The slots of nodes with a member, in the compute and the network table.
    slots: [Arc<SlotSet>; 2],
}

/// What of a group is on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    instances: u32,
    slots: [Option<Slot>; 2],
}

impl Groups {
    /// A group, if it has members.
    pub(super) fn find(&self, id: &str) -> Option<&Group> {
        self.0.get(id)
    }

    /// Counts members that came to a node, or left it.
    pub(super) fn count(
        &mut self,
        id: &Arc<str>,
        node: NodeKey,
        slots: [Option<Slot>; 2],
        change: i32,
    ) {
        let group = self.0.entry(Arc::clone(id)).or_default();
        let before = group
            .members
            .get(&node)
            .map_or(0, |member| member.instances);
        match before.saturating_add_signed(change) {
            0 => group.remove(node),
            instances => group.set(node, Member { instances, slots }),
        }
        if group.members.is_empty() {
            self.0.swap_remove(id);
        }
    }

    /// Notes that a node has other slots now, or none.
    pub(super) fn moved<'a>(
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
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Group)> {
        self.0.iter()
    }

    /// Groups that have members.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Group {
    /// Members on one node.
    pub(super) fn on(&self, node: NodeKey) -> u32 {
        self.members.get(&node).map_or(0, |member| member.instances)
    }

    /// The nodes with members, and how many each has.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeKey, u32)> + '_ {
        self.members
            .iter()
            .map(|(&node, member)| (node, member.instances))
    }

    /// The slots of nodes with at least so many members.
    pub(super) fn slots(&self, pool: usize, at_least: u32) -> Arc<SlotSet> {
        if at_least <= 1 {
            return Arc::clone(&self.slots[pool]);
        }
        let mut set = SlotSet::default();
        for member in self.members.values() {
            if let (true, Some(slot)) = (member.instances >= at_least, member.slots[pool]) {
                set.insert(slot);
            }
        }
        Arc::new(set)
    }

    /// The slots in which a node's members are counted.
    pub(super) fn slots_of(&self, node: NodeKey) -> Option<[Option<Slot>; 2]> {
        self.members.get(&node).map(|member| member.slots)
    }

    fn set(&mut self, node: NodeKey, member: Member) {
        let before = self.members.insert(node, member);
        let before = before.map_or([None; 2], |member| member.slots);
        self.move_slots(before, member.slots);
    }

    fn remove(&mut self, node: NodeKey) {
        if let Some(member) = self.members.swap_remove(&node) {
            self.move_slots(member.slots, [None; 2]);
        }
    }

    fn move_slots(&mut self, from: [Option<Slot>; 2], to: [Option<Slot>; 2]) {
        for ((set, from), to) in self.slots.iter_mut().zip(from).zip(to) {
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

    /// Whether the sets of slots are what the members' slots say.
    pub(super) fn is_consistent(&self) -> bool {
        (0..2).all(|pool| {
            let mut set = SlotSet::default();
            for slot in self
                .members
                .values()
                .filter_map(|member| member.slots[pool])
            {
                set.insert(slot);
            }
            set.iter().eq(self.slots[pool].iter())
        })
    }
}
