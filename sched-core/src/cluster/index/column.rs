//! One custom resource of all slots. Few nodes have one, so a block without it takes one pointer, and a resource
//! that no one has any more takes nothing.

use super::packed::{BLOCK, Lanes, at_least, pack};
use crate::tree::Tree;

/// How much of one custom resource each slot has. Grows with the nodes that have it, not with the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Column {
    /// Beyond the end, or `None`: nothing in the whole block.
    blocks: Vec<Option<Box<ColumnBlock>>>,
    /// Blocks that exist.
    used: usize,
    /// The most in each block, in a tree of the same shape as the index's; empty while no block exists.
    maxima: Tree<i64>,
}

/// A block of which at least one slot has something.
#[derive(Debug, Clone)]
struct ColumnBlock {
    /// The amounts as small numbers, for a first comparison of all 64.
    packed: Lanes,
    exact: [i64; BLOCK],
    /// Slots whose amount is not 0.
    used: u8,
}

impl Column {
    /// How much a slot has.
    #[inline]
    pub(super) fn amount(&self, slot: usize) -> i64 {
        self.block(slot / BLOCK)
            .map_or(0, |block| block.exact[slot % BLOCK])
    }

    /// Whether no slot has any of it.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The most below a node of the tree; the index asks only with positions of its own tree.
    #[inline]
    pub(super) fn most_below(&self, at: usize) -> i64 {
        if self.is_empty() {
            0
        } else {
            self.maxima.node(at)
        }
    }

    /// The slots of a block that may have this much (more than 0), as bits.
    #[inline]
    pub(super) fn candidates(&self, block: usize, asked: i64) -> u64 {
        self.block(block)
            .map_or(0, |block| at_least(&block.packed, pack(asked)))
    }

    /// Changes how much a slot has. `leaves` is the number of leaves of the index's tree, in case this column is empty
    /// so far. A block whose last amount becomes 0 is freed.
    pub(super) fn set(&mut self, slot: usize, amount: i64, leaves: usize) {
        let (at, lane) = (slot / BLOCK, slot % BLOCK);
        let old = self.amount(slot);
        if old == amount {
            return;
        }
        if self.is_empty() {
            self.maxima.grow(leaves);
        }
        if self.blocks.len() <= at {
            self.blocks.resize_with(at + 1, || None);
        }
        let block = self.blocks[at].get_or_insert_with(|| {
            self.used += 1;
            Box::new(ColumnBlock::EMPTY)
        });
        block.set(lane, amount);
        let most = self.maxima.leaf(at);
        let most = if amount >= most {
            amount
        } else if old == most {
            block.most()
        } else {
            most
        };
        self.maxima.set(at, most);
        if block.used == 0 {
            self.drop_block(at);
        }
    }

    /// Follows the index's tree when it grows.
    pub(super) fn grow(&mut self, leaves: usize) {
        if !self.is_empty() {
            self.maxima.grow(leaves);
        }
    }

    fn block(&self, block: usize) -> Option<&ColumnBlock> {
        self.blocks.get(block)?.as_deref()
    }

    /// Frees a block without amounts, and the whole column with its last block.
    fn drop_block(&mut self, at: usize) {
        self.blocks[at] = None;
        self.used -= 1;
        if self.used == 0 {
            *self = Self::default();
        }
    }

    /// Whether counts, images and maxima are what a walk over the slots finds.
    pub(super) fn is_consistent(&self, leaves: usize) -> bool {
        let used = self.blocks.iter().flatten().count();
        let blocks_agree = self.blocks.iter().enumerate().all(|(at, block)| {
            block.as_ref().map_or_else(
                || self.is_empty() || self.maxima.leaf(at) == 0,
                |block| block.is_consistent() && self.maxima.leaf(at) == block.most(),
            )
        });
        let leaves = if used == 0 { 0 } else { leaves };
        used == self.used
            && blocks_agree
            && self.maxima.leaves() == leaves
            && self.maxima.is_consistent()
    }

    /// Bytes on the heap.
    #[cfg(any(test, feature = "test-support"))]
    pub(super) fn size(&self) -> usize {
        self.blocks.capacity() * size_of::<Option<Box<ColumnBlock>>>()
            + self.used * size_of::<ColumnBlock>()
            + self.maxima.size()
    }
}

impl ColumnBlock {
    const EMPTY: Self = Self {
        // The image of 0; a test holds it to `pack`.
        packed: [i16::MIN + 1; BLOCK],
        exact: [0; BLOCK],
        used: 0,
    };

    fn set(&mut self, lane: usize, amount: i64) {
        self.used += u8::from(amount != 0);
        self.used -= u8::from(self.exact[lane] != 0);
        self.exact[lane] = amount;
        self.packed[lane] = pack(amount);
    }

    /// The most that a slot has, and no less than nothing.
    fn most(&self) -> i64 {
        self.exact.iter().copied().fold(0, i64::max)
    }

    fn is_consistent(&self) -> bool {
        let used = self.exact.iter().filter(|&&amount| amount != 0).count();
        let mut lanes = self.exact.iter().zip(&self.packed);
        used == usize::from(self.used)
            && used > 0
            && lanes.all(|(exact, packed)| pack(*exact) == *packed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, ColumnBlock};
    use crate::cluster::index::packed::pack;

    #[test]
    fn an_empty_block_holds_the_image_of_nothing() {
        assert!(
            ColumnBlock::EMPTY
                .packed
                .iter()
                .all(|&lane| lane == pack(0))
        );
    }

    #[test]
    fn a_resource_that_no_one_has_any_more_takes_no_memory() {
        let mut column = Column::default();
        column.set(700, 4, 16);
        column.set(3, -1, 16);
        assert!(column.size() > 0 && column.is_consistent(16));
        assert_eq!((column.most_below(1), column.amount(3)), (4, -1));
        column.set(700, 0, 16);
        column.set(3, 0, 16);
        assert_eq!(column.size(), 0);
        assert_eq!((column.most_below(1), column.amount(700)), (0, 0));
    }
}
