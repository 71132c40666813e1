//! Waiters in order, searchable by "first from here that fits": chunks of up to 64 below a tree with the least that
//! each chunk asks for.
//!
//! A search passes over whole ranges in which no waiter can fit, and looks at the rest chunk by chunk. With several
//! kinds of amounts a range can look promising without a waiter that fits (one asks for little memory, another for
//! little disk), so the steps of a search are bounded, and it says where it has given up. A chunk that overflows is
//! split, and the tree built again: some microseconds at 100 000 waiters, once for every 32 that come in.

use super::rank::Key;
use super::summary::{NO_WAITER, Sum};
use crate::api::resources::Resources;
use crate::tree::{Tree, first_leaf_below, right_of};

/// Most waiters in a chunk: some 25 cache lines to look through, and few enough chunks for the tree to stay in cache.
const CHUNK: usize = 64;

/// Steps that looking through one chunk counts for: it takes as long as looking at that many nodes of the tree.
const CHUNK_STEPS: u32 = 24;

/// Some waiters in order, at least one: keys and amounts in two lists of the same length, so that a search reads
/// amounts alone.
#[derive(Debug)]
struct Chunk {
    keys: Vec<Key>,
    asked: Vec<Resources>,
}

impl Chunk {
    fn sum(&self) -> Sum {
        Sum {
            least: self.asked.iter().copied().fold(NO_WAITER, Resources::min),
            count: u32::try_from(self.keys.len()).expect("a chunk is small"),
        }
    }

    fn first(&self) -> Key {
        self.keys[0]
    }

    fn insert(&mut self, key: Key, asked: Resources) {
        let at = self.keys.partition_point(|other| *other < key);
        self.keys.insert(at, key);
        self.asked.insert(at, asked);
    }

    /// Takes everything from a position on into another chunk.
    fn split_off(&mut self, at: usize) -> Self {
        Self {
            keys: self.keys.split_off(at),
            asked: self.asked.split_off(at),
        }
    }

    /// The first waiter from a place on that asks for no more than is free.
    fn first_fit(&self, free: &Resources, from: Key) -> Option<Key> {
        let skipped = if from <= self.first() {
            0
        } else {
            self.keys.partition_point(|key| *key < from)
        };
        let mut asked = self.asked[skipped..].iter();
        let at = asked.position(|asked| free.covers(asked))?;
        Some(self.keys[skipped + at])
    }
}

/// What a search through waiters in order has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    /// The first that fits.
    Fits(Key),
    /// No one fits.
    Nothing,
    /// No waiter before this place fits; the steps were used up there.
    GaveUp(Key),
}

/// Waiters in order. Each key is in it once.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    chunks: Vec<Chunk>,
    /// Chunks are its leaves.
    tree: Tree<Sum>,
}

impl Ordered {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.tree.root().count as usize
    }

    /// The first.
    pub(super) fn first(&self) -> Option<Key> {
        self.chunks.first().map(Chunk::first)
    }

    /// The last.
    pub(super) fn last(&self) -> Option<Key> {
        self.chunks.last()?.keys.last().copied()
    }

    /// The least of each amount that anybody asks for.
    pub(super) fn least(&self) -> Resources {
        self.tree.root().least
    }

    /// Puts one in.
    pub(super) fn insert(&mut self, key: Key, asked: Resources) {
        let at = self.chunk_of(key);
        let is_last = at + 1 == self.chunks.len() && self.last() < Some(key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return self.append(key, asked);
        };
        if chunk.keys.len() < CHUNK {
            chunk.insert(key, asked);
            self.tree.put(at, chunk.sum());
        } else if is_last {
            // A waiter that comes later is usually the last of all; a chunk of its own keeps the full ones full.
            self.append(key, asked);
        } else {
            let mut upper = chunk.split_off(CHUNK / 2);
            if key < upper.first() {
                chunk.insert(key, asked);
            } else {
                upper.insert(key, asked);
            }
            self.chunks.insert(at + 1, upper);
            self.rebuild();
        }
    }

    /// Takes one out; whether it was there.
    pub(super) fn remove(&mut self, key: Key) -> bool {
        let at = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return false;
        };
        let Ok(found) = chunk.keys.binary_search(&key) else {
            return false;
        };
        chunk.keys.remove(found);
        chunk.asked.remove(found);
        let left = chunk.keys.len();
        let next = self
            .chunks
            .get(at + 1)
            .map_or(CHUNK, |next| next.keys.len());
        if left == 0 {
            self.chunks.remove(at);
            self.rebuild();
        } else if left + next <= CHUNK / 2 {
            let next = self.chunks.remove(at + 1);
            self.chunks[at].keys.extend(next.keys);
            self.chunks[at].asked.extend(next.asked);
            self.rebuild();
        } else {
            self.tree.put(at, self.chunks[at].sum());
        }
        true
    }

    /// How many waiters are before a place: a position in the queue. O(log n).
    pub(super) fn count_before(&self, key: Key) -> usize {
        let at = self.chunk_of(key);
        let Some(chunk) = self.chunks.get(at) else {
            return 0;
        };
        let in_chunk = chunk.keys.partition_point(|other| *other < key);
        self.tree.before(at).count as usize + in_chunk
    }

    /// All from a place on, in order.
    pub(super) fn iter_from(&self, from: Key) -> impl Iterator<Item = Key> {
        let chunks = self.chunks.iter().skip(self.chunk_of(from));
        let keys = chunks.flat_map(|chunk| chunk.keys.iter().copied());
        keys.skip_while(move |key| *key < from)
    }

    /// The first waiter in `from .. before` that asks for no more than is free. Takes the steps it needs from `steps`;
    /// with none left it says where to go on.
    pub(super) fn first_fit(
        &self,
        free: &Resources,
        from: Key,
        before: Key,
        steps: &mut u32,
    ) -> Scan {
        let leaves = self.tree.leaves();
        let start = self.chunk_of(from);
        let mut at = if start == 0 { 1 } else { leaves + start };
        if leaves == 0 {
            return Scan::Nothing;
        }
        loop {
            let next = first_leaf_below(at, leaves);
            if next >= self.chunks.len() {
                return Scan::Nothing;
            }
            if *steps == 0 {
                return Scan::GaveUp(self.chunks[next].first().max(from));
            }
            *steps -= 1;
            if !free.covers(&self.tree.node(at).least) {
                let Some(right) = right_of(at) else {
                    return Scan::Nothing;
                };
                at = right;
                continue;
            }
            if at < leaves {
                at *= 2;
                continue;
            }
            let chunk = &self.chunks[next];
            if chunk.first() >= before {
                return Scan::Nothing;
            }
            *steps = steps.saturating_sub(CHUNK_STEPS);
            if let Some(found) = chunk.first_fit(free, from) {
                return if found < before {
                    Scan::Fits(found)
                } else {
                    Scan::Nothing
                };
            }
            // Where one chunk promises without success its neighbour is likely to, so it is looked at before the node
            // above it.
            at += 1;
            if at == 2 * leaves {
                return Scan::Nothing;
            }
        }
    }

    /// The chunk that a place belongs to: the last that does not begin behind it, or the first. 0 where there is none.
    fn chunk_of(&self, key: Key) -> usize {
        if key == Key::FIRST {
            return 0;
        }
        let behind = self.chunks.partition_point(|chunk| chunk.first() <= key);
        behind.saturating_sub(1)
    }

    /// Adds a chunk with one waiter at the end. The waiter must come after all others.
    fn append(&mut self, key: Key, asked: Resources) {
        let chunk = Chunk {
            keys: vec![key],
            asked: vec![asked],
        };
        self.tree.put(self.chunks.len(), chunk.sum());
        self.chunks.push(chunk);
    }

    /// Builds the tree again, after the number of chunks has changed other than at the end.
    fn rebuild(&mut self) {
        self.tree.rebuild(self.chunks.iter().map(Chunk::sum));
    }

    /// Whether all stand in order, in chunks of the right size, and the tree is of them.
    pub(super) fn is_consistent(&self) -> bool {
        let keys = self.chunks.iter().flat_map(|chunk| &chunk.keys);
        let sizes = |chunk: &Chunk| {
            (1..=CHUNK).contains(&chunk.keys.len()) && chunk.keys.len() == chunk.asked.len()
        };
        keys.is_sorted_by(|one, next| one < next)
            && self.chunks.iter().all(sizes)
            && self.tree.is_of(self.chunks.iter().map(Chunk::sum))
    }
}
