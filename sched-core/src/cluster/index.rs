//! Which slots offer enough, from a given one on? Blocks of 64 slots below a tree of maxima.
//!
//! ```text
//!                  maxima: (8192, 16, 90000)               the most of each amount below
//!                 /                         \
//!      (8192, 4, 90000)                (2048, 16, 5000)
//!        /          \                    /          \
//!    block 0      block 1            block 2      block 3   64 slots each: packed columns, exact amounts
//! ```
//!
//! A search walks the tree over blocks, which passes over whole ranges that cannot help. With several resources a range
//! can look promising without holding a fit (one node has the memory, another the disk); then every block is entered,
//! each once, by comparing packed columns ([`packed`]), and only slots that may cover are looked at exactly. So a
//! search costs at most one visit of each block and of each inner node above, whatever the mix.
//!
//! It knows slots and amounts only; [`crate::cluster::table`] says which node is in which slot, and in which order
//! slots are tried. Custom resources are columns by number; the numbers are given out by `cluster::columns`.

mod column;
mod maxima;
mod packed;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use self::column::Column;
use self::packed::{BLOCK, PackedBlock, PackedResources};
use crate::api::resources::Resources;
use crate::tree::{Tree, right_of};

/// The least that a request is taken to ask for: more than [`Resources::NEVER`], which covers no request at all.
const LEAST_ASKED: Resources = Resources {
    mem_mib: i64::MIN + 1,
    vcpus: i64::MIN + 1,
    disk_mib: i64::MIN + 1,
};

/// A custom resource, numbered by the owner of their names; small numbers, given out one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ColumnId(pub(crate) u16);

/// What a slot must offer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need<'a> {
    /// Memory, vcpus and disk.
    pub(crate) asked: &'a Resources,
    /// Custom resources in the order of their numbers, each once; amounts are more than 0.
    pub(crate) custom: &'a [(ColumnId, i64)],
}

impl<'a> Need<'a> {
    /// Memory, vcpus and disk alone.
    pub(crate) fn base(asked: &'a Resources) -> Self {
        Self { asked, custom: &[] }
    }
}

/// What each slot offers, searchable by "first from here that covers this".
#[derive(Debug, Clone, Default)]
pub(crate) struct OfferIndex {
    /// Slots in use; those beyond, up to a whole block, offer nothing.
    len: usize,
    /// What each slot offers, in blocks. `Resources::NEVER` for slots that are not in use.
    exact: Vec<[Resources; BLOCK]>,
    /// The same amounts as small numbers, block by block, for a first comparison of 64 slots at a time.
    packed: Vec<PackedBlock>,
    /// The largest amounts of each block's slots.
    maxima: Tree<Resources>,
    /// Custom resources by number.
    columns: Vec<Column>,
}

impl OfferIndex {
    /// Slots in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What a slot offers.
    #[inline]
    pub(crate) fn offer(&self, slot: usize) -> Resources {
        self.exact[slot / BLOCK][slot % BLOCK]
    }

    /// How much of a custom resource a slot offers; 0 if it was never told.
    pub(crate) fn custom(&self, slot: usize, column: ColumnId) -> i64 {
        self.columns
            .get(usize::from(column.0))
            .map_or(0, |column| column.amount(slot))
    }

    /// Appends a slot, without custom resources.
    pub(crate) fn push(&mut self, offer: Resources) {
        if self.len == self.exact.len() * BLOCK {
            self.add_block();
        }
        self.len += 1;
        self.set(self.len - 1, offer);
    }

    /// Changes what a slot offers; what it offered before.
    pub(crate) fn set(&mut self, slot: usize, offer: Resources) -> Resources {
        debug_assert!(slot < self.len, "slot {slot} of {}", self.len);
        let (block, lane) = (slot / BLOCK, slot % BLOCK);
        let old = std::mem::replace(&mut self.exact[block][lane], offer);
        if old != offer {
            self.packed[block].set(lane, &offer);
            let most = self.most_after(block, lane, old);
            self.maxima.set(block, most);
        }
        old
    }

    /// Changes how much of a custom resource a slot offers. What is not above 0 covers no request.
    pub(crate) fn set_custom(&mut self, slot: usize, column: ColumnId, amount: i64) {
        debug_assert!(slot < self.len, "slot {slot} of {}", self.len);
        let at = usize::from(column.0);
        if at >= self.columns.len() {
            if amount == 0 {
                return;
            }
            self.columns.resize_with(at + 1, Column::default);
        }
        self.columns[at].set(slot, amount, self.maxima.leaves());
    }

    /// Takes all custom resources from a slot.
    pub(crate) fn clear_custom(&mut self, slot: usize) {
        let leaves = self.maxima.leaves();
        for column in &mut self.columns {
            column.set(slot, 0, leaves);
        }
    }

    /// Keeps only these slots, in this order; they become 0, 1, 2 and so on. O(slots kept).
    pub(crate) fn keep(&mut self, kept: &[usize]) {
        let mut new = Self::default();
        for &old in kept {
            new.push(self.offer(old));
        }
        for (column, amounts) in (0..).map(ColumnId).zip(&self.columns) {
            for (slot, &old) in kept.iter().enumerate() {
                new.set_custom(slot, column, amounts.amount(old));
            }
        }
        new.exact.shrink_to_fit();
        new.packed.shrink_to_fit();
        *self = new;
    }

    /// The first slot in `from .. to` that covers a need.
    #[inline]
    pub(crate) fn first_covering(&self, need: &Need<'_>, from: usize, to: usize) -> Option<usize> {
        let is_next = from < to.min(self.len) && self.covers(from, need);
        if is_next {
            return Some(from);
        }
        self.first_covering_in(need, from, to, |_| u64::MAX, |_| true)
    }

    /// The first slot in `from .. to` that covers a need, is in its block's mask (bit `i` of block `b`: slot
    /// `64 * b + i`) and that `admit` lets pass. The mask is asked for once for each block that the tree does not rule
    /// out; `admit` is asked last.
    pub(crate) fn first_covering_in(
        &self,
        need: &Need<'_>,
        from: usize,
        to: usize,
        mask: impl FnMut(usize) -> u64,
        mut admit: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let found = self.visit_covering(need, from, to, mask, |slot| {
            if admit(slot) {
                ControlFlow::Break(slot)
            } else {
                ControlFlow::Continue(())
            }
        });
        found.break_value()
    }

    /// Calls `visit` for the slots in `from .. to` that cover a need and are in their block's mask, in ascending order,
    /// until it breaks. The caller goes round by two calls.
    ///
    /// One loop over the tree: a subtree whose maxima do not cover is passed over; another is descended into; a block
    /// is compared by masks, then by packed amounts, then slot by slot.
    pub(crate) fn visit_covering<B>(
        &self,
        need: &Need<'_>,
        from: usize,
        to: usize,
        mut mask: impl FnMut(usize) -> u64,
        mut visit: impl FnMut(usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let to = to.min(self.len);
        if from >= to {
            return ControlFlow::Continue(());
        }
        let sought = PreparedNeed::new(need);
        let first_leaf = self.maxima.leaves();
        let mut at = first_leaf + from / BLOCK;
        let last = first_leaf + (to - 1) / BLOCK;
        loop {
            if !self.promises(at, &sought) {
                match right_of(at) {
                    Some(next) if leaf_below(next, first_leaf) <= last => at = next,
                    _ => return ControlFlow::Continue(()),
                }
                continue;
            }
            if at < first_leaf {
                at *= 2;
                continue;
            }
            let block = at - first_leaf;
            let mut slots = mask(block) & within(block, from, to);
            if slots != 0 {
                slots &= self.candidates(block, &sought, slots);
            }
            let exact = &self.exact[block];
            while slots != 0 {
                let lane = slots.trailing_zeros() as usize;
                slots = without_first(slots);
                let slot = block * BLOCK + lane;
                if exact[lane].covers(&sought.asked) && self.has_custom(slot, sought.custom) {
                    visit(slot)?;
                }
            }
            // Where one block promises without success its neighbour is likely to, so it is looked at before the node
            // above it.
            if at == last {
                return ControlFlow::Continue(());
            }
            at += 1;
        }
    }

    /// Whether a slot covers a need.
    #[inline]
    pub(crate) fn covers(&self, slot: usize, need: &Need<'_>) -> bool {
        self.offer(slot).covers(&need.asked.max(LEAST_ASKED)) && self.has_custom(slot, need.custom)
    }

    /// Whether a slot offers enough of these custom resources.
    #[inline]
    fn has_custom(&self, slot: usize, custom: &[(ColumnId, i64)]) -> bool {
        custom
            .iter()
            .all(|&(column, asked)| self.custom(slot, column) >= asked)
    }

    /// Whether the blocks below a node of the tree have enough of each resource, if not all in one slot.
    #[inline]
    fn promises(&self, at: usize, sought: &PreparedNeed<'_>) -> bool {
        self.maxima.node(at).covers(&sought.asked)
            && sought.custom.iter().all(|&(column, asked)| {
                self.columns
                    .get(usize::from(column.0))
                    .is_some_and(|column| column.most_below(at) >= asked)
            })
    }

    /// Of these slots of a block, those that may cover.
    #[inline]
    fn candidates(&self, block: usize, sought: &PreparedNeed<'_>, of: u64) -> u64 {
        // Looking at two slots costs less than comparing a block's packed columns.
        if without_first(without_first(of)) == 0 {
            return of;
        }
        let mut slots = of & self.packed[block].candidates(sought.packed);
        for &(column, asked) in sought.custom {
            if slots == 0 {
                return 0;
            }
            slots &= self.columns[usize::from(column.0)].candidates(block, asked);
        }
        slots
    }

    /// A block's largest amounts after one of its slots has changed from `old`. Only what falls from a maximum is
    /// searched for again.
    fn most_after(&self, block: usize, lane: usize, old: Resources) -> Resources {
        let (exact, most) = (&self.exact[block], self.maxima.leaf(block));
        let new = exact[lane];
        // Nodes are used one after the other, so the next one has most likely not been used yet and has as much still.
        let next = exact[(lane + 1) % BLOCK];
        let after = |amount: fn(&Resources) -> i64| {
            let bound = amount(&most);
            if amount(&new) >= bound {
                amount(&new)
            } else if amount(&old) < bound || amount(&next) == bound {
                bound
            } else {
                most_of(exact, amount)
            }
        };
        Resources {
            mem_mib: after(|offer| offer.mem_mib),
            vcpus: after(|offer| offer.vcpus),
            disk_mib: after(|offer| offer.disk_mib),
        }
    }

    /// Adds a block of slots that offer nothing; the trees grow to the next power of two.
    #[cold]
    fn add_block(&mut self) {
        self.exact.push([Resources::NEVER; BLOCK]);
        self.packed.push(PackedBlock::EMPTY);
        if self.exact.len() > self.maxima.leaves() {
            let leaves = self.exact.len().next_power_of_two();
            self.maxima.grow(leaves);
            for column in &mut self.columns {
                column.grow(leaves);
            }
        }
    }

    /// Whether images and maxima are what a walk over the slots finds.
    pub(crate) fn is_consistent(&self) -> bool {
        let blocks = self.exact.iter().zip(&self.packed).enumerate();
        let blocks_agree = blocks.into_iter().all(|(at, (exact, packed))| {
            let largest = exact.iter().copied().fold(Resources::NEVER, Resources::max);
            let mut lanes = exact.iter().enumerate();
            self.maxima.leaf(at) == largest
                && lanes.all(|(lane, offer)| packed.is_image(lane, offer))
        });
        let leaves = self.maxima.leaves();
        blocks_agree
            && self.exact.len() == self.len.div_ceil(BLOCK)
            && self.exact.len() == self.packed.len()
            && self.maxima.is_consistent()
            && self
                .columns
                .iter()
                .all(|column| column.is_consistent(leaves))
    }

    /// Bytes on the heap.
    #[cfg(feature = "test-support")]
    pub(crate) fn size(&self) -> usize {
        self.exact.capacity() * size_of::<[Resources; BLOCK]>()
            + self.packed.capacity() * size_of::<PackedBlock>()
            + self.maxima.size()
            + self.columns.capacity() * size_of::<Column>()
            + self.columns.iter().map(Column::size).sum::<usize>()
    }
}

/// A need, made ready for a search.
struct PreparedNeed<'a> {
    asked: Resources,
    packed: PackedResources,
    custom: &'a [(ColumnId, i64)],
}

impl<'a> PreparedNeed<'a> {
    #[inline]
    fn new(need: &Need<'a>) -> Self {
        let asked = need.asked.max(LEAST_ASKED);
        Self {
            asked,
            packed: PackedResources::new(&asked),
            custom: need.custom,
        }
    }
}

/// The most of one resource in a block. Four maxima side by side, because one would wait for itself.
#[inline]
fn most_of(exact: &[Resources; BLOCK], amount: impl Fn(&Resources) -> i64) -> i64 {
    let mut most = [i64::MIN; 4];
    for offers in exact.as_chunks::<4>().0 {
        for (most, offer) in most.iter_mut().zip(offers) {
            *most = amount(offer).max(*most);
        }
    }
    most[0].max(most[1]).max(most[2].max(most[3]))
}

/// The bits of a block's slots that are in `from .. to`.
#[inline]
fn within(block: usize, from: usize, to: usize) -> u64 {
    let start = block * BLOCK;
    let skipped = from.saturating_sub(start);
    let taken = to.saturating_sub(start).min(BLOCK);
    if skipped >= taken {
        return 0;
    }
    (u64::MAX >> (BLOCK - taken)) & (u64::MAX << skipped)
}

/// Bits without the lowest that is set.
#[inline]
fn without_first(bits: u64) -> u64 {
    bits & bits.wrapping_sub(1)
}

/// The leftmost leaf below a node of a tree whose leaves begin at `first_leaf`.
#[inline]
fn leaf_below(at: usize, first_leaf: usize) -> usize {
    at << (first_leaf.ilog2() - at.ilog2())
}
