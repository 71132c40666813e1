//! A set of slots as bits, in words that are aligned with the blocks of the search index: for a search it is a mask of
//! one word for each block it enters.
//!
//! It knows nothing of the table whose slots these are. When the table renumbers its slots, the owner of a set drops
//! it.

use crate::cluster::table::Slot;

/// A set of slots. It takes memory from its first block to its last, so that one of a few neighbours is small wherever
/// they are: there is one for every group.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotSet {
    /// The block of the first word.
    first: usize,
    words: Vec<u64>,
    len: usize,
}

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "placement keeps its sets by all of these; the benchmark by some"
    )
)]
impl SlotSet {
    /// Slots in the set.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether no slot is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a slot is in the set.
    pub(crate) fn contains(&self, slot: Slot) -> bool {
        let (block, bit) = place(slot);
        self.word(block) & bit != 0
    }

    /// The slots of a block of 64 that are in the set: bit `i` is slot `64 * block + i`.
    #[inline]
    pub(crate) fn word(&self, block: usize) -> u64 {
        // Before the first, this is beyond the last.
        let at = block.wrapping_sub(self.first);
        self.words.get(at).copied().unwrap_or(0)
    }

    /// The slots in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.words
            .iter()
            .zip(self.first..)
            .flat_map(|(&word, block)| {
                let first = block as Slot * u64::BITS;
                Bits(word).map(move |bit| first + bit)
            })
    }

    /// Puts a slot in. Whether it was not in before.
    pub(crate) fn insert(&mut self, slot: Slot) -> bool {
        let (block, bit) = place(slot);
        let word = self.reach(block);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.len += usize::from(is_new);
        is_new
    }

    /// Takes a slot out. Whether it was in.
    pub(crate) fn remove(&mut self, slot: Slot) -> bool {
        let was_in = self.contains(slot);
        if was_in {
            let (block, bit) = place(slot);
            self.words[block - self.first] &= !bit;
            self.len -= 1;
        }
        if self.len == 0 {
            // What comes next may be elsewhere.
            self.words.clear();
        }
        was_in
    }

    /// Puts in the slots of one block: bit `i` is slot `64 * block + i`.
    pub(crate) fn add_word(&mut self, block: usize, word: u64) {
        let old = self.reach(block);
        let new = (word & !*old).count_ones() as usize;
        *old |= word;
        self.len += new;
    }

    /// Puts in all slots of another set.
    pub(crate) fn union_with(&mut self, other: &Self) {
        for (&word, block) in other.words.iter().zip(other.first..) {
            self.add_word(block, word);
        }
    }

    /// The word of a block, for which memory is allocated where it is missing.
    fn reach(&mut self, block: usize) -> &mut u64 {
        if self.words.is_empty() {
            self.first = block;
        } else if block < self.first {
            let missing = self.first - block;
            self.words.splice(..0, std::iter::repeat_n(0, missing));
            self.first = block;
        }
        let at = block - self.first;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        &mut self.words[at]
    }
}

/// Sets are equal if the same slots are in them, however far each has grown.
impl PartialEq for SlotSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for SlotSet {}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<T: IntoIterator<Item = Slot>>(slots: T) -> Self {
        let mut set = Self::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

/// The numbers of the bits that are set, from the lowest on.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

/// A slot's word and its bit there.
fn place(slot: Slot) -> (usize, u64) {
    ((slot / u64::BITS) as usize, 1 << (slot % u64::BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::SlotSet;

    #[test]
    fn a_set_of_neighbours_is_small_wherever_they_are() {
        let mut set = SlotSet::default();
        for slot in [100_000, 10, 50_000] {
            set.insert(slot);
            set.insert(slot + 1);
            assert_eq!((set.words.len(), set.len()), (1, 2));
            assert!(set.iter().eq([slot, slot + 1]));
            set.remove(slot);
            set.remove(slot + 1);
            assert!(set.is_empty() && set.iter().next().is_none());
        }
    }

    proptest! {
        #[test]
        fn is_a_set(
            changes in proptest::collection::vec((any::<bool>(), 0u32..300), 0..200),
            others in proptest::collection::btree_set(0u32..500, 0..50),
        ) {
            let mut set = SlotSet::default();
            let mut plain = BTreeSet::new();
            for (inserts, slot) in changes {
                if inserts {
                    prop_assert_eq!(set.insert(slot), plain.insert(slot));
                } else {
                    prop_assert_eq!(set.remove(slot), plain.remove(&slot));
                }
                prop_assert_eq!((set.len(), set.is_empty()), (plain.len(), plain.is_empty()));
            }
            prop_assert!(set.iter().eq(plain.iter().copied()));
            prop_assert_eq!(&set, &plain.iter().copied().collect::<SlotSet>());
            set.union_with(&others.iter().copied().collect());
            plain.extend(&others);
            prop_assert!(set.iter().eq(plain.iter().copied()));
            prop_assert_eq!(set.len(), plain.len());
            for slot in 0..600u32 {
                prop_assert_eq!(set.contains(slot), plain.contains(&slot));
                let word = set.word(slot as usize / 64);
                prop_assert_eq!(word >> (slot % 64) & 1 == 1, plain.contains(&slot));
            }
        }
    }
}
