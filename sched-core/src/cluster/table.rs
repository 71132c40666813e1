//! One ordered table of nodes (compute or network) and its cursor: the original's first fit, not most recently used.
//!
//! Slots are in the order of connection. A slot whose node has left stays as a hole until holes outnumber nodes; then
//! slots are renumbered. What may narrow a search (labels, groups) is kept elsewhere as bits over slots;
//! [`Table::remove`] reports renumbered slots to those who keep them. What a slot offers, and the search for it, is in
//! `index`; the table adds nodes, order and cursor.

use std::ops::ControlFlow;

use crate::api::ids::NodeKey;
use crate::api::resources::Resources;
use crate::cluster::index::{ColumnId, Need, OfferIndex};

/// Fewer holes than this are not worth renumbering slots for.
const MIN_HOLES_TO_CLOSE: usize = 32;

/// A place in a [`Table`]; valid until the table renumbers its slots.
pub(crate) type Slot = u32;

/// Nodes in order of connection, what each offers, and which was used last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// Nodes by slot; `None` for a hole.
    slots: Vec<Option<NodeKey>>,
    offers: OfferIndex,
    /// The most recently used node's slot.
    cursor: Option<usize>,
    holes: usize,
}

impl Table {
    /// Nodes in the table.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.holes
    }

    /// Slots in use, holes included: every slot is below it.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The nodes in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeKey> + '_ {
        self.slots.iter().filter_map(|slot| *slot)
    }

    /// The node in a slot.
    pub(crate) fn node(&self, slot: Slot) -> Option<NodeKey> {
        self.slots[slot as usize]
    }

    /// What is offered at a slot.
    pub(crate) fn offer(&self, slot: Slot) -> Resources {
        self.offers.offer(slot as usize)
    }

    /// The most recently used node.
    pub(crate) fn most_recently_used(&self) -> Option<NodeKey> {
        self.cursor.and_then(|slot| self.slots[slot])
    }

    /// Appends a node; it offers nothing before [`Table::set_offer`].
    pub(crate) fn push(&mut self, node: NodeKey) -> Slot {
        self.slots.push(Some(node));
        self.offers.push(Resources::NEVER);
        to_slot(self.slots.len() - 1)
    }

    /// Sets what the node in a slot offers; `Resources::NEVER` keeps it out of every search. Returns what it offered
    /// before.
    pub(crate) fn set_offer(&mut self, slot: Slot, offer: Resources) -> Resources {
        self.offers.set(slot as usize, offer)
    }

    /// Sets how much of a custom resource the node in a slot offers.
    pub(crate) fn set_custom(&mut self, slot: Slot, column: ColumnId, amount: i64) {
        self.offers.set_custom(slot as usize, column, amount);
    }

    /// Takes a node out. If it was the most recently used, the next search starts at the beginning. If slots were
    /// renumbered, `moved` is called for every node with its slot.
    pub(crate) fn remove(&mut self, slot: Slot, moved: impl FnMut(NodeKey, Slot)) {
        let at = slot as usize;
        self.slots[at] = None;
        self.offers.set(at, Resources::NEVER);
        self.offers.clear_custom(at);
        self.holes += 1;
        if self.cursor == Some(at) {
            self.cursor = None;
        }
        if self.holes >= MIN_HOLES_TO_CLOSE && self.holes > self.len() {
            self.close_holes(moved);
        }
    }

    /// Makes the node in this slot the most recently used.
    pub(crate) fn touch(&mut self, slot: Slot) {
        self.cursor = Some(slot as usize);
    }

    /// The slot to use for a request: the first after the most recently used that covers it, else the first of all,
    /// the most recently used included.
    pub(crate) fn first_fit(&self, asked: &Resources) -> Option<Slot> {
        let need = Need::base(asked);
        let end = self.slot_count();
        let start = self.first_to_try();
        let after = self.offers.first_covering(&need, start, end);
        after
            .or_else(|| self.offers.first_covering(&need, 0, start))
            .map(to_slot)
    }

    /// As [`Table::first_fit`], of the slots that are in the mask of their block (bit `i` of block `b`: slot
    /// `64 * b + i`) and that `admit` lets pass. `admit` is asked last; a mask may be asked for twice.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn first_fit_in(
        &self,
        need: &Need<'_>,
        mask: impl FnMut(usize) -> u64,
        mut admit: impl FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        let found = self.fits_in_order(need, mask, |slot| {
            if admit(slot) {
                ControlFlow::Break(slot)
            } else {
                ControlFlow::Continue(())
            }
        });
        found.break_value()
    }

    /// Calls `visit` for every slot that covers a need and is in its block's mask, in the order of
    /// [`Table::first_fit`], until it breaks. `mask` may be called twice for the block with the cursor.
    pub(crate) fn fits_in_order<B>(
        &self,
        need: &Need<'_>,
        mut mask: impl FnMut(usize) -> u64,
        mut visit: impl FnMut(Slot) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let end = self.slot_count();
        let start = self.first_to_try();
        for (from, to) in [(start, end), (0, start)] {
            self.offers
                .visit_covering(need, from, to, &mut mask, |slot| visit(to_slot(slot)))?;
        }
        ControlFlow::Continue(())
    }

    /// Sorts slots into the order in which a search reaches them.
    pub(crate) fn sort_in_order(&self, slots: &mut [Slot]) {
        let cursor = self.cursor;
        slots.sort_unstable_by_key(|&slot| {
            (cursor.is_some_and(|cursor| slot as usize <= cursor), slot)
        });
    }

    /// The slot behind the most recently used one; 0 without a cursor.
    fn first_to_try(&self) -> usize {
        self.cursor.map_or(0, |slot| slot + 1)
    }

    /// Renumbers the slots so that there are no holes; the cursor stays with its node. O(nodes), after as many
    /// removals.
    fn close_holes(&mut self, mut moved: impl FnMut(NodeKey, Slot)) {
        let mut kept = Vec::with_capacity(self.len());
        let mut nodes = Vec::with_capacity(self.len());
        let mut cursor = None;
        for (at, node) in self.slots.iter().enumerate() {
            let Some(node) = *node else { continue };
            if self.cursor == Some(at) {
                cursor = Some(kept.len());
            }
            moved(node, to_slot(kept.len()));
            kept.push(at);
            nodes.push(Some(node));
        }
        self.offers.keep(&kept);
        self.slots = nodes;
        self.cursor = cursor;
        self.holes = 0;
    }

    /// Bytes on the heap.
    #[cfg(feature = "test-support")]
    pub(crate) fn size(&self) -> usize {
        self.slots.capacity() * size_of::<Option<NodeKey>>() + self.offers.size()
    }

    /// Whether holes, length and tree agree with each other.
    pub(crate) fn is_consistent(&self) -> bool {
        self.holes == self.slots.iter().filter(|slot| slot.is_none()).count()
            && self.offers.len() == self.slots.len()
            && self
                .cursor
                .is_none_or(|slot| self.slots.get(slot).is_some_and(Option::is_some))
            && self.offers.is_consistent()
    }
}

/// For searches that keep something by slot, or try a choice and take it back.
impl Table {
    /// How much of a custom resource is offered at a slot; 0 unless [`Table::set_custom`] said otherwise.
    pub(crate) fn custom(&self, slot: Slot, column: ColumnId) -> i64 {
        self.offers.custom(slot as usize, column)
    }

    /// Whether a slot covers a need; a hole never does.
    pub(crate) fn covers(&self, slot: Slot, need: &Need<'_>) -> bool {
        self.offers.covers(slot as usize, need)
    }

    /// The most recently used node's slot, to be put back with [`Table::set_cursor`] after the choices of a dry run.
    pub(crate) fn cursor(&self) -> Option<Slot> {
        self.cursor.map(to_slot)
    }

    /// Puts back a cursor taken before. No slot may have been renumbered meanwhile; if its node has left, there is no
    /// cursor.
    pub(crate) fn set_cursor(&mut self, cursor: Option<Slot>) {
        let at = cursor.map(|slot| slot as usize);
        self.cursor = at.filter(|&at| self.slots[at].is_some());
    }
}

/// An index as a slot.
fn to_slot(at: usize) -> Slot {
    Slot::try_from(at)
        .expect("a table has fewer than 2^32 slots: sessions are bounded by open files")
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::{NodeKey, Resources, Slot, Table};
    use crate::cluster::index::{ColumnId, Need};

    const GPU: ColumnId = ColumnId(1);

    fn room(amount: i64) -> Resources {
        Resources {
            mem_mib: amount,
            vcpus: amount,
            disk_mib: amount,
        }
    }

    /// A table of nodes with so much room each.
    fn table(rooms: &[i64]) -> Table {
        let mut table = Table::default();
        for (node, &amount) in (0..).zip(rooms) {
            let slot = table.push(NodeKey(node));
            table.set_offer(slot, room(amount));
        }
        table
    }

    /// All slots that fit, in the search's order.
    fn fits(table: &Table, need: &Need<'_>, mask: impl FnMut(usize) -> u64) -> Vec<Slot> {
        let mut fits = Vec::new();
        let flow = table.fits_in_order(need, mask, |slot| {
            fits.push(slot);
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(flow, ControlFlow::Continue(()));
        fits
    }

    proptest! {
        #[test]
        fn the_search_goes_round_from_behind_the_most_recently_used(
            rooms in proptest::collection::vec(0i64..4, 1..200),
            used in any::<Option<Index>>(),
            mask in any::<u64>(),
        ) {
            let mut table = table(&rooms);
            let used = used.map(|used| used.index(rooms.len()));
            table.set_cursor(used.map(|used| used as Slot));
            let start = used.map_or(0, |used| used + 1);
            let order: Vec<Slot> = (start..rooms.len())
                .chain(0..start)
                .filter(|&at| rooms[at] >= 2)
                .map(|at| at as Slot)
                .collect();
            let asked = room(2);
            let need = Need::base(&asked);
            prop_assert_eq!(table.first_fit(&asked), order.first().copied());
            prop_assert_eq!(&fits(&table, &need, |_| u64::MAX), &order);

            let mut masked = order;
            masked.retain(|slot| mask >> (slot % 64) & 1 == 1);
            prop_assert_eq!(&fits(&table, &need, |_| mask), &masked);
            let admit = |slot: Slot| slot % 3 == 1;
            prop_assert_eq!(
                table.first_fit_in(&need, |_| mask, admit),
                masked.into_iter().find(|&slot| admit(slot))
            );
        }
    }

    #[test]
    fn custom_amounts_and_the_cursor_move_when_holes_are_closed() {
        let mut table = table(&[1; 200]);
        for slot in 0..200 {
            table.set_custom(slot, GPU, i64::from(slot));
        }
        table.touch(190);
        let mut moves = Vec::new();
        for slot in 0..101 {
            assert_eq!((moves.len(), table.slot_count()), (0, 200));
            table.remove(slot, |node, slot| moves.push((node, slot)));
        }
        let expected: Vec<_> = (101..200).map(|node| (NodeKey(node), node - 101)).collect();
        assert_eq!(moves, expected);
        assert_eq!((table.slot_count(), table.len()), (99, 99));
        assert_eq!(table.cursor(), Some(89));
        for (node, slot) in moves {
            assert_eq!(table.node(slot), Some(node));
            assert_eq!(table.custom(slot, GPU), i64::from(node.0));
        }
        assert!(table.is_consistent());
    }

    #[test]
    fn a_node_that_has_left_takes_its_custom_amounts_along() {
        let mut table = table(&[1; 3]);
        table.set_custom(1, GPU, 4);
        let asked = room(1);
        let need = Need {
            asked: &asked,
            custom: &[(GPU, 2)],
        };
        assert_eq!(fits(&table, &need, |_| u64::MAX), [1]);
        assert!(table.covers(1, &need) && !table.covers(0, &need));
        table.remove(1, |_, _| ());
        assert_eq!(table.custom(1, GPU), 0);
        assert!(fits(&table, &need, |_| u64::MAX).is_empty());
        let slot = table.push(NodeKey(7));
        assert_eq!(table.custom(slot, GPU), 0);
    }

    #[test]
    fn a_cursor_whose_node_has_left_is_none() {
        let mut table = table(&[1; 3]);
        table.touch(1);
        let saved = table.cursor();
        table.remove(1, |_, _| ());
        table.set_cursor(saved);
        assert_eq!(table.cursor(), None);
        table.set_cursor(Some(2));
        assert_eq!(table.first_fit(&room(1)), Some(0));
    }
}
