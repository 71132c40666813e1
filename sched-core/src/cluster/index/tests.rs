//! The index against a plain scan of the same slots.

use std::ops::ControlFlow;

use proptest::prelude::*;
use proptest::sample::Index;

use super::{BLOCK, ColumnId, Need, OfferIndex, Resources};

/// Custom resources in play.
const COLUMNS: u16 = 3;

/// Sizes at the borders of blocks and where the tree grows.
const SIZES: [usize; 14] = [0, 1, 2, 63, 64, 65, 127, 128, 129, 200, 256, 257, 320, 513];

/// Slots as plainly as can be.
#[derive(Debug, Clone, Default)]
struct Plain {
    slots: Vec<(Resources, [i64; COLUMNS as usize])>,
}

/// What is asked for, with its custom resources in the index's form.
#[derive(Debug, Clone)]
struct Asked {
    base: Resources,
    custom: Vec<(ColumnId, i64)>,
}

#[derive(Debug, Clone)]
enum Change {
    Offer(Resources),
    Custom(u16, i64),
    ClearCustom,
}

impl Asked {
    fn need(&self) -> Need<'_> {
        Need {
            asked: &self.base,
            custom: &self.custom,
        }
    }
}

impl Plain {
    fn covers(&self, slot: usize, asked: &Asked) -> bool {
        let (base, custom) = &self.slots[slot];
        let is_never = [base.mem_mib, base.vcpus, base.disk_mib].contains(&i64::MIN);
        let has = |&(column, amount): &(ColumnId, i64)| custom[usize::from(column.0)] >= amount;
        !is_never && base.covers(&asked.base) && asked.custom.iter().all(has)
    }

    /// The slots in a range that cover and are in the masks.
    fn covering(&self, asked: &Asked, range: (usize, usize), masks: &[u64]) -> Vec<usize> {
        (range.0..range.1.min(self.slots.len()))
            .filter(|&slot| masks[slot / BLOCK] >> (slot % BLOCK) & 1 == 1)
            .filter(|&slot| self.covers(slot, asked))
            .collect()
    }
}

/// Few different amounts, so that many slots just cover; now and then one at the ends of what there is, and one that
/// packing cannot tell from its neighbour.
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        12 => -1i64..5,
        2 => (1i64 << 20)..(1 << 20) + 3,
        1 => prop_oneof![Just(i64::MIN), Just(i64::MIN + 1), Just(i64::MAX - 1), Just(i64::MAX)],
    ]
}

fn resources() -> impl Strategy<Value = Resources> {
    let each = (amount(), amount(), amount()).prop_map(|(mem_mib, vcpus, disk_mib)| Resources {
        mem_mib,
        vcpus,
        disk_mib,
    });
    prop_oneof![8 => each, 1 => Just(Resources::NEVER)]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => resources().prop_map(Change::Offer),
        3 => (0..COLUMNS, amount()).prop_map(|(column, amount)| Change::Custom(column, amount)),
        1 => Just(Change::ClearCustom),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    let custom = proptest::collection::btree_map(0..COLUMNS, amount(), 0..3);
    (resources(), custom).prop_map(|(base, custom)| Asked {
        base,
        custom: custom
            .into_iter()
            .filter(|&(_, amount)| amount > 0)
            .map(|(column, amount)| (ColumnId(column), amount))
            .collect(),
    })
}

/// An index after some changes, and what it must be equal to.
fn world() -> impl Strategy<Value = (OfferIndex, Plain)> {
    let offers = prop::sample::select(&SIZES)
        .prop_flat_map(|size| proptest::collection::vec(resources(), size));
    let changes = proptest::collection::vec((any::<Index>(), change()), 0..120);
    (offers, changes).prop_map(|(offers, changes)| {
        let (mut index, mut plain) = (OfferIndex::default(), Plain::default());
        for offer in offers {
            index.push(offer);
            plain.slots.push((offer, [0; COLUMNS as usize]));
        }
        for (at, change) in changes {
            if !plain.slots.is_empty() {
                let slot = at.index(index.len());
                apply(&mut index, &mut plain, slot, &change);
            }
        }
        (index, plain)
    })
}

fn apply(index: &mut OfferIndex, plain: &mut Plain, slot: usize, change: &Change) {
    let (base, custom) = &mut plain.slots[slot];
    match *change {
        Change::Offer(offer) => {
            *base = offer;
            index.set(slot, offer);
        }
        Change::Custom(column, amount) => {
            custom[usize::from(column)] = amount;
            index.set_custom(slot, ColumnId(column), amount);
        }
        Change::ClearCustom => {
            *custom = [0; COLUMNS as usize];
            index.clear_custom(slot);
        }
    }
}

fn masks() -> impl Strategy<Value = Vec<u64>> {
    let mask = prop_oneof![
        Just(u64::MAX),
        Just(0),
        any::<u64>(),
        (0u32..64).prop_map(|bit| 1 << bit)
    ];
    proptest::collection::vec(mask, 10)
}

proptest! {
    #[test]
    fn finds_what_a_scan_finds(
        (index, plain) in world(),
        asked in asked(),
        range in (0usize..600, 0usize..600),
        masks in masks(),
    ) {
        let need = asked.need();
        let (from, to) = range;
        let all = [u64::MAX; 10];
        let expected = plain.covering(&asked, range, &all).first().copied();
        prop_assert_eq!(index.first_covering(&need, from, to), expected);

        let expected = plain.covering(&asked, range, &masks);
        let mut visited = Vec::new();
        let flow = index.visit_covering(&need, from, to, |block| masks[block], |slot| {
            visited.push(slot);
            ControlFlow::<()>::Continue(())
        });
        prop_assert_eq!(flow, ControlFlow::Continue(()));
        prop_assert_eq!(&visited, &expected);

        let admit = |slot: usize| slot % 3 == 1;
        prop_assert_eq!(
            index.first_covering_in(&need, from, to, |block| masks[block], admit),
            expected.into_iter().find(|&slot| admit(slot))
        );
    }

    #[test]
    fn covers_what_a_look_at_the_slot_says((index, plain) in world(), asked in asked()) {
        for slot in 0..index.len() {
            let covers = plain.covers(slot, &asked);
            prop_assert_eq!(index.covers(slot, &asked.need()), covers);
        }
    }

    #[test]
    fn parts_agree_after_every_change(
        (mut index, mut plain) in world(),
        changes in proptest::collection::vec((any::<Index>(), change()), 0..20),
        more in proptest::collection::vec(resources(), 0..130),
        kept in any::<u64>(),
    ) {
        prop_assert!(index.is_consistent());
        for (at, change) in changes {
            if index.len() > 0 {
                let slot = at.index(index.len());
                apply(&mut index, &mut plain, slot, &change);
                prop_assert!(index.is_consistent());
            }
        }
        for offer in more {
            index.push(offer);
            plain.slots.push((offer, [0; COLUMNS as usize]));
        }
        prop_assert!(index.is_consistent());

        let kept: Vec<usize> = (0..index.len())
            .filter(|slot| kept >> (slot % BLOCK) & 1 == 1)
            .collect();
        index.keep(&kept);
        prop_assert!(index.is_consistent());
        prop_assert_eq!(index.len(), kept.len());
        for (slot, old) in kept.into_iter().enumerate() {
            let (base, custom) = plain.slots[old];
            prop_assert_eq!(index.offer(slot), base);
            for (column, amount) in (0..).map(ColumnId).zip(custom) {
                prop_assert_eq!(index.custom(slot, column), amount);
            }
        }
    }
}

#[test]
fn the_last_slot_of_every_size_is_found() {
    let asked = Resources {
        mem_mib: 5,
        vcpus: 1,
        disk_mib: 5,
    };
    for size in SIZES.into_iter().chain([10_000]) {
        let mut index = OfferIndex::default();
        for slot in 0..size {
            let (mem_mib, disk_mib) = if slot % 2 == 0 { (9, 0) } else { (0, 9) };
            index.push(Resources {
                mem_mib,
                vcpus: 9,
                disk_mib,
            });
        }
        assert_eq!(index.first_covering(&Need::base(&asked), 0, size), None);
        let Some(last) = size.checked_sub(1) else {
            continue;
        };
        index.set(last, asked);
        assert_eq!(
            index.first_covering(&Need::base(&asked), 0, size),
            Some(last)
        );
        assert_eq!(index.first_covering(&Need::base(&asked), 0, last), None);
    }
}

#[test]
fn a_mask_is_asked_for_only_where_the_tree_promises() {
    let room = Resources {
        mem_mib: 1,
        vcpus: 1,
        disk_mib: 1,
    };
    let mut index = OfferIndex::default();
    for slot in 0..10 * BLOCK {
        let has_room = [3, 4, 8].contains(&(slot / BLOCK));
        index.push(if has_room { room } else { Resources::ZERO });
    }
    let mut asked_for = Vec::new();
    let mask = |block| {
        asked_for.push(block);
        if block == 8 { 1 << 9 } else { 0 }
    };
    let found = index.first_covering_in(&Need::base(&room), 0, index.len(), mask, |_| true);
    assert_eq!(found, Some(8 * BLOCK + 9));
    assert_eq!(asked_for, [3, 4, 8]);
}

#[test]
fn a_slot_that_offers_never_covers_nothing_whatever_else_it_has() {
    let mut index = OfferIndex::default();
    index.push(Resources::NEVER);
    index.set_custom(0, ColumnId(0), i64::MAX);
    for asked in [Resources::NEVER, Resources::ZERO] {
        let need = Need {
            asked: &asked,
            custom: &[(ColumnId(0), 1)],
        };
        assert_eq!(index.first_covering(&need, 0, 1), None);
        assert!(!index.covers(0, &Need::base(&asked)));
    }
}
