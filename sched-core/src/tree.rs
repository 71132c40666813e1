//! A binary tree that keeps, for every range of its leaves, a summary of them, so that a search can pass over ranges
//! that cannot hold what it looks for. As a heap in one list: node `n` has the children `2n` and `2n + 1`, the root is
//! 1.
//!
//! The queue uses it for chunks of waiters (`queue::ordered`) and for classes (`queue::bunch`), the index of nodes for what
//! blocks of them offer (`cluster::index`). Trees with as many leaves have the same shape, so that a search walks several
//! of them with one position.

/// What a tree keeps of its leaves. `join` must be associative, with `NONE` as its neutral element.
pub(crate) trait Summary: Copy + PartialEq {
    /// Of a leaf that has nothing.
    const NONE: Self;

    /// Of both together.
    fn join(self, other: Self) -> Self;
}

/// Summaries of each leaf, each pair of leaves, and so on up to the root.
#[derive(Debug, Clone)]
pub(crate) struct Tree<T> {
    /// `1 ..` = inner nodes from the root on, then as many leaves, a power of two; empty while there are none.
    nodes: Vec<T>,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<T: Summary> Tree<T> {
    /// The number of leaves, a power of two; those at the end may be empty. Also the number of the first leaf's node.
    pub(crate) fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// What is below a node.
    #[inline]
    pub(crate) fn node(&self, at: usize) -> T {
        self.nodes[at]
    }

    /// What is in a leaf.
    pub(crate) fn leaf(&self, leaf: usize) -> T {
        self.nodes[self.leaves() + leaf]
    }

    /// What is in all leaves.
    pub(crate) fn root(&self) -> T {
        self.nodes.get(1).copied().unwrap_or(T::NONE)
    }

    /// The summary of all leaves before this one, in O(log n).
    pub(crate) fn before(&self, leaf: usize) -> T {
        let mut at = self.leaves() + leaf;
        let mut all = T::NONE;
        while at > 1 {
            if at % 2 == 1 {
                all = self.nodes[at - 1].join(all);
            }
            at /= 2;
        }
        all
    }

    /// Changes a leaf; leaves up to it are added where they are missing.
    pub(crate) fn put(&mut self, leaf: usize, summary: T) {
        if leaf >= self.leaves() {
            self.grow(leaf + 1);
        }
        self.set(leaf, summary);
    }

    /// Changes a leaf that is there. Stops on the way up where nothing changes.
    pub(crate) fn set(&mut self, leaf: usize, summary: T) {
        let mut at = self.leaves() + leaf;
        if self.nodes[at] == summary {
            return;
        }
        self.nodes[at] = summary;
        while at > 1 {
            at /= 2;
            let joined = self.nodes[2 * at].join(self.nodes[2 * at + 1]);
            if self.nodes[at] == joined {
                return;
            }
            self.nodes[at] = joined;
        }
    }

    /// Makes it the tree of exactly these leaves. O(n).
    pub(crate) fn rebuild(&mut self, summaries: impl ExactSizeIterator<Item = T>) {
        let leaves = match summaries.len() {
            0 => 0,
            len => len.next_power_of_two(),
        };
        self.nodes.clear();
        self.nodes.resize(leaves, T::NONE);
        self.nodes.extend(summaries);
        self.nodes.resize(2 * leaves, T::NONE);
        self.join_all();
    }

    /// Makes room for at least this many leaves.
    pub(crate) fn grow(&mut self, leaves: usize) {
        let leaves = leaves.next_power_of_two();
        let old = self.leaves();
        let mut nodes = vec![T::NONE; 2 * leaves];
        nodes[leaves..leaves + old].copy_from_slice(&self.nodes[old..]);
        self.nodes = nodes;
        self.join_all();
    }

    /// Computes all inner nodes from the leaves.
    fn join_all(&mut self) {
        for at in (1..self.leaves()).rev() {
            self.nodes[at] = self.nodes[2 * at].join(self.nodes[2 * at + 1]);
        }
    }

    /// Whether its leaves are these, and every node joins what is below it.
    pub(crate) fn is_of(&self, summaries: impl ExactSizeIterator<Item = T>) -> bool {
        let mut again = Self::default();
        again.rebuild(summaries);
        let leaves = |tree: &Self| {
            let all = tree.nodes[tree.leaves()..].iter().copied();
            let mut all: Vec<T> = all.collect();
            while all.pop_if(|last| *last == T::NONE).is_some() {}
            all
        };
        leaves(self) == leaves(&again) && self.is_consistent()
    }

    /// Whether every node joins what is below it.
    pub(crate) fn is_consistent(&self) -> bool {
        let joins = |at: usize| self.nodes[at] == self.nodes[2 * at].join(self.nodes[2 * at + 1]);
        (1..self.leaves()).all(joins)
    }

    /// Bytes on the heap.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn size(&self) -> usize {
        self.nodes.capacity() * size_of::<T>()
    }
}

/// The next subtree to the right of a node's, as large as possible; `None` past the last.
#[inline]
pub(crate) fn right_of(at: usize) -> Option<usize> {
    let as_left_child = at >> at.trailing_ones();
    (as_left_child != 0).then(|| as_left_child + 1)
}

/// The leaf, counted from 0, that is leftmost below a node of a tree with so many leaves.
#[inline]
pub(crate) fn first_leaf_below(at: usize, leaves: usize) -> usize {
    (at << (leaves.ilog2() - at.ilog2())) - leaves
}
