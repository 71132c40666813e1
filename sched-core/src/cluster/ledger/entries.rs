//! The entries of a ledger by instance, in the order in which they came; when one is removed, the last takes its
//! position.
//!
//! An entry is large, and most instances end soon. So entries stay where they were put, and only the numbers of their
//! places move when one is removed. They are in blocks, so that a node that is given thousands does not have all of them
//! copied each time their number doubles.

use super::entry::Entry;
use crate::api::ids::InstanceId;
use crate::maps::Map;

/// Entries by instance.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    /// Where the entry of each instance is.
    order: Map<InstanceId, u32>,
    /// Entries and free places; a place does not move while it is taken.
    places: Slots,
    /// The first free place; free places form a linked list.
    vacant: Option<u32>,
}

/// Places by number: all blocks but the last have [`BLOCK`].
#[derive(Debug, Clone, Default)]
struct Slots {
    blocks: Vec<Vec<EntrySlot>>,
}

/// Where an entry is, or may be put.
#[derive(Debug, Clone)]
enum EntrySlot {
    Taken(Entry),
    /// Free, and the next free place.
    Vacant(Option<u32>),
}

impl EntrySlot {
    fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Taken(entry) => Some(entry),
            Self::Vacant(_) => None,
        }
    }

    fn entry_mut(&mut self) -> Option<&mut Entry> {
        match self {
            Self::Taken(entry) => Some(entry),
            Self::Vacant(_) => None,
        }
    }
}

impl Slots {
    /// None, with memory for so many; a block at most.
    fn with_capacity(count: usize) -> Self {
        Self {
            blocks: vec![Vec::with_capacity(count.min(BLOCK))],
        }
    }

    fn len(&self) -> usize {
        let before = self.blocks.len().saturating_sub(1) * BLOCK;
        self.blocks.last().map_or(0, |last| before + last.len())
    }

    fn get(&self, place: u32) -> Option<&EntrySlot> {
        let place = place as usize;
        self.blocks.get(place / BLOCK)?.get(place % BLOCK)
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut EntrySlot> {
        let place = place as usize;
        self.blocks.get_mut(place / BLOCK)?.get_mut(place % BLOCK)
    }

    fn push(&mut self, slot: EntrySlot) {
        match self.blocks.last_mut() {
            Some(last) if last.len() < BLOCK => last.push(slot),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(slot);
                self.blocks.push(block);
            }
        }
    }
}

impl Entries {
    /// No entries, with memory for the first few: it is allocated when a node connects rather than when it is given a
    /// START.
    pub(super) fn with_places() -> Self {
        Self {
            order: Map::with_capacity_and_hasher(FIRST_PLACES, Default::default()),
            places: Slots::with_capacity(FIRST_PLACES),
            vacant: None,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is one of an instance.
    pub(super) fn contains(&self, instance: &InstanceId) -> bool {
        self.order.contains_key(instance)
    }

    /// The entry of an instance.
    pub(super) fn get(&self, instance: &InstanceId) -> Option<&Entry> {
        self.places.get(*self.order.get(instance)?)?.entry()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, instance: &InstanceId) -> Option<&mut Entry> {
        self.places.get_mut(*self.order.get(instance)?)?.entry_mut()
    }

    /// The one at a position.
    pub(super) fn at(&self, position: usize) -> Option<(&InstanceId, &Entry)> {
        let (instance, place) = self.order.get_index(position)?;
        Some((instance, self.places.get(*place)?.entry()?))
    }

    /// All of them from a position on.
    pub(super) fn iter_from(&self, start: usize) -> impl Iterator<Item = (&InstanceId, &Entry)> {
        let rest = self.order.iter().skip(start);
        rest.filter_map(|(instance, &place)| Some((instance, self.places.get(place)?.entry()?)))
    }

    /// All of them in order.
    pub(super) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.iter_from(0).map(|(_, entry)| entry)
    }

    /// Shows each in order, to be changed.
    pub(super) fn for_each_mut(&mut self, mut visit: impl FnMut(&InstanceId, &mut Entry)) {
        for (instance, &place) in &self.order {
            let place = self.places.get_mut(place);
            if let Some(entry) = place.and_then(EntrySlot::entry_mut) {
                visit(instance, entry);
            }
        }
    }

    /// Adds an entry, or replaces that of the same instance in its place; returns the one that was replaced.
    pub(super) fn insert(&mut self, instance: InstanceId, entry: Entry) -> Option<Entry> {
        let behind = || u32::try_from(self.places.len()).expect("entries are bounded by node");
        let place = self.vacant.unwrap_or_else(behind);
        let (at, earlier) = self.order.insert_full(instance, place);
        if let Some(earlier) = earlier {
            self.order[at] = earlier;
            let place = self.places.get_mut(earlier)?;
            return match std::mem::replace(place, EntrySlot::Taken(entry)) {
                EntrySlot::Taken(replaced) => Some(replaced),
                EntrySlot::Vacant(_) => None,
            };
        }
        match self.places.get_mut(place) {
            Some(vacant) => {
                if let EntrySlot::Vacant(next) = *vacant {
                    self.vacant = next;
                }
                *vacant = EntrySlot::Taken(entry);
            }
            None => self.places.push(EntrySlot::Taken(entry)),
        }
        None
    }

    /// Takes one out, and says what `last` finds in it.
    pub(super) fn remove<T>(
        &mut self,
        instance: &InstanceId,
        last: impl FnOnce(&Entry) -> T,
    ) -> Option<T> {
        let place = self.order.swap_remove(instance)?;
        let vacated = self.places.get_mut(place)?;
        let found = vacated.entry().map(last);
        *vacated = EntrySlot::Vacant(self.vacant.replace(place));
        if self.places.len() > SHRINK_ABOVE && self.len() < self.places.len() / 4 {
            self.shrink();
        }
        found
    }

    /// Gives back what a burst of instances took.
    #[cold]
    fn shrink(&mut self) {
        let count = self.len();
        let mut places = Slots::default();
        for place in self.order.values_mut() {
            let new = u32::try_from(places.len()).expect("there are no more than before");
            if let Some(old) = self.places.get_mut(*place) {
                places.push(std::mem::replace(old, EntrySlot::Vacant(None)));
            }
            *place = new;
        }
        (self.places, self.vacant) = (places, None);
        self.order.shrink_to(2 * count);
    }
}

/// Places that a node has from the beginning: 1 KiB or less.
const FIRST_PLACES: usize = 3;

/// Places in a block: 16 KiB or less.
const BLOCK: usize = 64;

/// Fewer places than this are never worth giving back.
const SHRINK_ABOVE: usize = 1024;

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;
    use proptest::prelude::*;

    use super::{BLOCK, Entries, Entry, FIRST_PLACES, InstanceId, SHRINK_ABOVE};
    use crate::api::resources::Resources;
    use crate::cluster::ledger::Extras;

    fn asking(mem_mib: i64) -> Entry {
        let asked = Resources {
            mem_mib,
            ..Resources::ZERO
        };
        Entry::claimed(asked, Extras::default(), crate::simulated::start())
    }

    fn all(entries: &Entries) -> Vec<(InstanceId, i64)> {
        let entries = entries.iter_from(0);
        let entries = entries.map(|(instance, entry)| (instance.clone(), entry.asked().mem_mib));
        entries.collect()
    }

    proptest! {
        #[test]
        fn entries_are_those_of_a_map_in_its_order(
            names in proptest::sample::select(vec![12, 3 * BLOCK as u32]),
            steps in proptest::collection::vec((0..3_u8, any::<u32>()), 1..400),
        ) {
            let (mut entries, mut oracle) = (Entries::with_places(), IndexMap::new());
            for (mem_mib, (action, name)) in (0..).zip(steps) {
                let instance = InstanceId::DryRun(name % names);
                if action > 0 {
                    let earlier = entries.insert(instance.clone(), asking(mem_mib));
                    let earlier = earlier.map(|entry| entry.asked().mem_mib);
                    prop_assert_eq!(earlier, oracle.insert(instance.clone(), mem_mib));
                } else {
                    let gone = entries.remove(&instance, |entry| entry.asked().mem_mib);
                    prop_assert_eq!(gone, oracle.swap_remove(&instance));
                }
                let found = entries.get(&instance).map(|entry| entry.asked().mem_mib);
                prop_assert_eq!(found, oracle.get(&instance).copied());
                prop_assert_eq!(entries.contains(&instance), found.is_some());
                prop_assert_eq!(all(&entries), oracle.clone().into_iter().collect::<Vec<_>>());
                prop_assert!(entries.places.len() <= names as usize, "places are used again");
            }
        }
    }

    #[test]
    fn a_burst_of_instances_is_not_paid_for_for_ever() {
        let mut entries = Entries::with_places();
        let count = 4 * SHRINK_ABOVE as u32;
        for name in 0..count {
            entries.insert(InstanceId::DryRun(name), asking(i64::from(name)));
        }
        for name in 0..count - 2 {
            entries.remove(&InstanceId::DryRun(name), |_| ());
        }
        assert!(entries.places.blocks.len() * BLOCK <= SHRINK_ABOVE);
        let mut left = all(&entries);
        left.sort();
        let expected = [count - 2, count - 1].map(|it| (InstanceId::DryRun(it), i64::from(it)));
        assert_eq!(left, expected);
        entries.insert(InstanceId::DryRun(0), asking(0));
        assert_eq!(entries.len(), 3);
    }

    #[test]
    fn the_first_places_take_no_more_than_they_are_said_to() {
        assert!(FIRST_PLACES * (size_of::<super::EntrySlot>() + 64) <= 1024);
        assert!(BLOCK * size_of::<super::EntrySlot>() <= 16 * 1024);
    }
}
