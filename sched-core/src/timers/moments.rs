//! Moments by key, one at most for each, and in order.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::time::Instant;

use crate::maps::Map;

/// Places in the table that are kept for the next burst.
const KEEP_PLACES: usize = 64;

/// Which moment each key has, and whose comes next.
#[derive(Debug)]
pub(super) struct Moments<K> {
    of: Map<K, (Instant, u64)>,
    in_order: BTreeSet<(Instant, u64, K)>,
}

impl<K> Default for Moments<K> {
    fn default() -> Self {
        Self {
            of: Map::default(),
            in_order: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Ord + Hash> Moments<K> {
    /// Gives a key a moment in place of the one it has. At one moment the lesser turn comes first, then the lesser key.
    pub(super) fn set(&mut self, key: K, at: Instant, turn: u64) {
        if let Some((at, turn)) = self.of.insert(key.clone(), (at, turn)) {
            self.in_order.remove(&(at, turn, key.clone()));
        }
        self.in_order.insert((at, turn, key));
    }

    /// Takes a key's moment away.
    pub(super) fn cancel(&mut self, key: &K) {
        if self.of.is_empty() {
            return;
        }
        if let Some((at, turn)) = self.of.swap_remove(key) {
            self.in_order.remove(&(at, turn, key.clone()));
            self.give_back_memory();
        }
    }

    /// Takes out the first key whose moment has come.
    pub(super) fn pop(&mut self, now: Instant) -> Option<K> {
        self.in_order.first().filter(|(at, ..)| *at <= now)?;
        let (_, _, key) = self.in_order.pop_first()?;
        self.of.swap_remove(&key);
        self.give_back_memory();
        Some(key)
    }

    /// The moment of a key.
    pub(super) fn at(&self, key: &K) -> Option<Instant> {
        self.of.get(key).map(|(at, _)| *at)
    }

    /// The first moment.
    pub(super) fn first(&self) -> Option<Instant> {
        self.in_order.first().map(|(at, ..)| *at)
    }

    /// Keys that have a moment.
    #[cfg(any(test, feature = "test-support"))]
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// Places in its table.
    #[cfg(any(test, feature = "test-support"))]
    pub(super) fn capacity(&self) -> usize {
        self.of.capacity()
    }

    /// Shrinks what has become far too large, so that a burst is not paid for for ever.
    fn give_back_memory(&mut self) {
        if self.of.capacity() > KEEP_PLACES && self.of.len() < self.of.capacity() / 4 {
            self.of.shrink_to(2 * self.of.len());
        }
    }
}
