//! Which is the first slot, from a given one on, that offers enough? A max-tree over slots, with a bound on its work.
//!
//! Each inner node holds, per resource, the largest amount offered below it, so that whole ranges are passed over at
//! once. With several resources a range can look promising without holding a fit (one node has the memory, another
//! the disk); after [`MAX_VISITS`] tree nodes the search therefore falls back to a plain scan of the slots.

use super::resources::Resources;

/// Tree nodes visited in one search before it becomes a scan: a few root-to-leaf paths of the largest tree (2 × 17 for
/// 100 000 slots). More of them than this and the mix is adversarial, where a scan of packed slots is cheaper.
const MAX_VISITS: u32 = 256;

/// What each slot offers, searchable by "first from here that covers this".
#[derive(Debug, Clone, Default)]
pub(super) struct OfferIndex {
    /// Number of leaves: a power of two, 0 while empty.
    leaves: usize,
    /// Slots in use; those beyond offer nothing.
    len: usize,
    /// `1 ..` = inner nodes from the root on, `leaves ..` = the slots.
    tree: Vec<Resources>,
}

impl OfferIndex {
    /// Slots in use.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// What a slot offers.
    pub(super) fn offer(&self, slot: usize) -> Resources {
        self.tree[self.leaves + slot]
    }

    /// Appends a slot.
    pub(super) fn push(&mut self, offer: Resources) {
        if self.len == self.leaves {
            self.grow();
        }
        self.len += 1;
        self.set(self.len - 1, offer);
    }

    /// Changes what a slot offers.
    pub(super) fn set(&mut self, slot: usize, offer: Resources) {
        debug_assert!(slot < self.len, "slot {slot} of {}", self.len);
        let mut at = self.leaves + slot;
        if self.tree[at] == offer {
            return;
        }
        self.tree[at] = offer;
        while at > 1 {
            at /= 2;
            let largest = self.tree[2 * at].max(self.tree[2 * at + 1]);
            if self.tree[at] == largest {
                return;
            }
            self.tree[at] = largest;
        }
    }

    /// Replaces everything by these offers.
    pub(super) fn rebuild(&mut self, offers: impl ExactSizeIterator<Item = Resources>) {
        self.len = offers.len();
        self.leaves = self.len.next_power_of_two();
        self.tree.clear();
        self.tree.resize(2 * self.leaves, Resources::NEVER);
        self.tree.shrink_to_fit();
        for (slot, offer) in offers.enumerate() {
            self.tree[self.leaves + slot] = offer;
        }
        self.refresh_inner();
    }

    /// The first slot in `from .. to` that covers `asked`.
    pub(super) fn first_covering(
        &self,
        asked: &Resources,
        from: usize,
        to: usize,
    ) -> Option<usize> {
        let to = to.min(self.len);
        if from >= to {
            return None;
        }
        if self.offer(from).covers(asked) {
            return Some(from);
        }
        match self.search(asked, from, to) {
            Search::Found(slot) => Some(slot),
            Search::Nothing => None,
            Search::GaveUpAt(slot) => (slot..to).find(|&slot| self.offer(slot).covers(asked)),
        }
    }

    /// Walks the tree left to right from `from` on: up while a subtree cannot help, down where it may.
    fn search(&self, asked: &Resources, from: usize, to: usize) -> Search {
        let mut at = self.leaves + from;
        for _ in 0..MAX_VISITS {
            if self.tree[at].covers(asked) {
                if at >= self.leaves {
                    let slot = at - self.leaves;
                    return if slot < to {
                        Search::Found(slot)
                    } else {
                        Search::Nothing
                    };
                }
                at *= 2;
                continue;
            }
            // Past this subtree: the next one to the right, as high up as possible.
            while at & 1 == 1 {
                at /= 2;
            }
            if at == 0 {
                return Search::Nothing;
            }
            at += 1;
            if self.first_slot_below(at) >= to {
                return Search::Nothing;
            }
        }
        Search::GaveUpAt(self.first_slot_below(at))
    }

    /// The leftmost slot of the subtree at tree node `at`.
    fn first_slot_below(&self, at: usize) -> usize {
        let levels_below = self.leaves.ilog2() - at.ilog2();
        (at << levels_below) - self.leaves
    }

    fn grow(&mut self) {
        let offers: Vec<Resources> = (0..self.len).map(|slot| self.offer(slot)).collect();
        self.leaves = (self.leaves * 2).max(1);
        self.tree.clear();
        self.tree.resize(2 * self.leaves, Resources::NEVER);
        self.tree[self.leaves..self.leaves + self.len].copy_from_slice(&offers);
        self.refresh_inner();
    }

    fn refresh_inner(&mut self) {
        for at in (1..self.leaves).rev() {
            self.tree[at] = self.tree[2 * at].max(self.tree[2 * at + 1]);
        }
    }

    /// Whether every inner node is the maximum of its children.
    pub(super) fn is_consistent(&self) -> bool {
        (1..self.leaves).all(|at| self.tree[at] == self.tree[2 * at].max(self.tree[2 * at + 1]))
    }
}

enum Search {
    Found(usize),
    Nothing,
    GaveUpAt(usize),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{OfferIndex, Resources};

    fn amounts() -> impl Strategy<Value = Resources> {
        let small = -1i64..6;
        prop_oneof![
            8 => (small.clone(), small.clone(), small)
                .prop_map(|(mem_mib, vcpus, disk_mib)| Resources { mem_mib, vcpus, disk_mib }),
            1 => Just(Resources::NEVER),
        ]
    }

    proptest! {
        #[test]
        fn finds_what_a_scan_finds(
            offers in proptest::collection::vec(amounts(), 0..80),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), amounts()), 0..40),
            asked in amounts(),
            range in (0usize..90, 0usize..90),
        ) {
            let mut index = OfferIndex::default();
            for offer in &offers {
                index.push(*offer);
            }
            let mut plain = offers;
            if !plain.is_empty() {
                for (at, offer) in changes {
                    let slot = at.index(plain.len());
                    plain[slot] = offer;
                    index.set(slot, offer);
                }
            }
            prop_assert!(index.is_consistent());
            let (from, to) = range;
            let expected = (from..to.min(plain.len())).find(|&slot| plain[slot].covers(&asked));
            prop_assert_eq!(index.first_covering(&asked, from, to), expected);

            let mut rebuilt = OfferIndex::default();
            rebuilt.rebuild(plain.iter().copied());
            prop_assert_eq!(rebuilt.first_covering(&asked, from, to), expected);
        }
    }

    #[test]
    fn an_adversarial_mix_is_scanned_to_the_end() {
        let mut index = OfferIndex::default();
        for slot in 0..10_000 {
            let (mem_mib, disk_mib) = if slot % 2 == 0 { (9, 0) } else { (0, 9) };
            index.push(Resources {
                mem_mib,
                vcpus: 9,
                disk_mib,
            });
        }
        let asked = Resources {
            mem_mib: 5,
            vcpus: 1,
            disk_mib: 5,
        };
        assert_eq!(index.first_covering(&asked, 0, index.len()), None);
        index.set(
            9_999,
            Resources {
                mem_mib: 5,
                vcpus: 5,
                disk_mib: 5,
            },
        );
        assert_eq!(index.first_covering(&asked, 3, index.len()), Some(9_999));
    }
}
