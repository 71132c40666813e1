//! A tree of maxima over blocks: which ranges of blocks can hold enough of one kind of amount?
//!
//! Trees over the same blocks have the same shape, so that a search walks several of them with one position.

use crate::api::resources::Resources;

/// What a tree keeps the largest of.
pub(super) trait Amounts: Copy + PartialEq {
    /// What a block without slots has.
    const NONE: Self;

    /// The larger of both, each amount on its own.
    fn larger(self, other: Self) -> Self;
}

impl Amounts for Resources {
    const NONE: Self = Self::NEVER;

    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
}

/// One custom resource: requests ask for more than nothing, so that what is below nothing need not be told apart.
impl Amounts for i64 {
    const NONE: Self = 0;

    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
}

/// The largest amounts of each block, of each pair of blocks, and so on up to the root.
#[derive(Debug, Clone)]
pub(super) struct MaxTree<T> {
    /// `1 ..` = inner nodes from the root on, then as many leaves, one for each block; empty while there are none.
    nodes: Vec<T>,
}

impl<T> Default for MaxTree<T> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<T: Amounts> MaxTree<T> {
    /// Leaves: a power of two, 0 while empty. Also the number of the first leaf's node.
    pub(super) fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// What is below a node.
    pub(super) fn node(&self, at: usize) -> T {
        self.nodes[at]
    }

    /// What a block has.
    pub(super) fn block(&self, block: usize) -> T {
        self.nodes[self.leaves() + block]
    }

    /// Changes what a block has.
    pub(super) fn set(&mut self, block: usize, largest: T) {
        let mut at = self.leaves() + block;
        if self.nodes[at] == largest {
            return;
        }
        self.nodes[at] = largest;
        while at > 1 {
            at /= 2;
            let largest = self.nodes[2 * at].larger(self.nodes[2 * at + 1]);
            if self.nodes[at] == largest {
                return;
            }
            self.nodes[at] = largest;
        }
    }

    /// Makes it a tree with this many leaves, a power of two and no fewer than it has.
    pub(super) fn grow(&mut self, leaves: usize) {
        let old = self.leaves();
        let mut nodes = vec![T::NONE; 2 * leaves];
        nodes[leaves..leaves + old].copy_from_slice(&self.nodes[old..]);
        for at in (1..leaves).rev() {
            nodes[at] = nodes[2 * at].larger(nodes[2 * at + 1]);
        }
        self.nodes = nodes;
    }

    /// Whether every inner node is the maximum of its children.
    pub(super) fn is_consistent(&self) -> bool {
        (1..self.leaves())
            .all(|at| self.nodes[at] == self.nodes[2 * at].larger(self.nodes[2 * at + 1]))
    }

    /// Bytes on the heap.
    #[cfg(any(test, feature = "test-support"))]
    pub(super) fn size(&self) -> usize {
        self.nodes.capacity() * size_of::<T>()
    }
}

/// The next subtree to the right of a node's, as large as possible; `None` past the last.
pub(super) fn right_of(at: usize) -> Option<usize> {
    let as_left_child = at >> at.trailing_ones();
    (as_left_child != 0).then(|| as_left_child + 1)
}
