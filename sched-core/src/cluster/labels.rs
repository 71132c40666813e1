//! Which slots of a table have which labels, and the sets of slots that expressions over labels stand for.
//!
//! Values lead to slots ([`Posting`]). The set for an expression is made from them when it is first asked for, kept,
//! and made again once a label with its key has changed. Using a set costs a word per 64 nodes.
//!
//! ```text
//!  keys:  zone ─▶ eu-1 ─▶ {0, 2, 5}      terms:  "zone = eu-1"         ─▶ {0, 2, 5}
//!              └▶ eu-2 ─▶ {1, 3}                 "zone in (eu-1, eu-2)" ─▶ {0, 1, 2, 3, 5}
//! ```
//!
//! There is one index for each table. When a table renumbers its slots, its index is cleared and filled again.

use std::collections::BTreeMap;
use std::sync::Arc;

use sched_model::{Expression, Test};

use crate::cluster::slot_set::SlotSet;
use crate::cluster::table::Slot;
use crate::maps::Map;

/// Sets kept. Requests come in few shapes; at 100 000 nodes a set takes 12.5 KB, so all of them 3.2 MB.
const MAX_TERMS: usize = 256;

/// What the keys of labels begin with that the cluster itself makes.
const MADE: &str = "node.";

/// The labels of a node: pairs of key and value in order, without repetition. A key may have several values. Shared with
/// copies of the cluster, which are made under the core's lock.
pub(crate) type Labels = Arc<[(Box<str>, Box<str>)]>;

/// The values of a key among a node's labels. The labels must be in order.
pub(crate) fn values_of<'a>(
    labels: &'a [(Box<str>, Box<str>)],
    key: &str,
) -> impl Iterator<Item = &'a str> {
    let from = labels.partition_point(|(other, _)| &**other < key);
    labels[from..]
        .iter()
        .take_while(move |(other, _)| &**other == key)
        .map(|(_, value)| &**value)
}

/// Whether an expression holds for a node with these labels: some value meets the test, or for a negative test, none
/// does.
pub(crate) fn holds(labels: &[(Box<str>, Box<str>)], expression: &Expression) -> bool {
    let test = expression.test();
    let any = values_of(labels, expression.key()).any(|value| test.holds_for(value));
    any != test.is_negative()
}

/// The labels of the nodes in one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelIndex {
    keys: Map<Box<str>, Key>,
    /// How many keys begin with [`MADE`]: mostly none, so that searches need not look for them.
    made: usize,
    /// Sets of expressions by their text, at most [`MAX_TERMS`].
    terms: Map<Box<str>, Term>,
    /// Counted up with every change and every use; a larger number is later.
    clock: u64,
}

#[derive(Debug, Clone, Default)]
struct Key {
    values: Map<Box<str>, Posting>,
    /// When a label with this key changed last.
    changed: u64,
}

/// The slots that have one label: words of 64 slots by the number of the word, without those that are zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Posting(BTreeMap<u32, u64>);

/// The set for one expression.
#[derive(Debug, Clone)]
struct Term {
    set: Arc<SlotSet>,
    /// The value of [`Key::changed`] for which the set was made.
    of: u64,
    used: u64,
}

/// The slots that are allowed as far as one expression, group or other condition goes. Cheap to copy: the set is
/// shared.
#[derive(Debug, Clone)]
pub(crate) struct Mask {
    set: Arc<SlotSet>,
    /// Whether the slots outside of the set are allowed, rather than those in it.
    is_outside: bool,
}

impl Mask {
    /// The slots of a set.
    pub(crate) fn inside(set: Arc<SlotSet>) -> Self {
        Self {
            set,
            is_outside: false,
        }
    }

    /// All slots but those of a set.
    pub(crate) fn outside(set: Arc<SlotSet>) -> Self {
        Self {
            set,
            is_outside: true,
        }
    }

    /// A bit for each of the 64 slots of a block.
    pub(crate) fn word(&self, block: usize) -> u64 {
        let word = self.set.word(block);
        if self.is_outside { !word } else { word }
    }

    /// Whether a slot may be used.
    pub(crate) fn allows(&self, slot: Slot) -> bool {
        self.set.contains(slot) != self.is_outside
    }
}

impl LabelIndex {
    /// Adds the labels of the node in a slot. Sets of expressions over the same keys are made again at their next use.
    pub(crate) fn insert(&mut self, slot: Slot, labels: &[(Box<str>, Box<str>)]) {
        for (key, value) in labels {
            let changed = self.tick();
            if !self.keys.contains_key(key) {
                self.made += usize::from(key.starts_with(MADE));
                self.keys.insert(key.clone(), Key::default());
            }
            let key = &mut self.keys[key];
            key.changed = changed;
            if !key.values.contains_key(value) {
                key.values.insert(value.clone(), Posting::default());
            }
            key.values[value].insert(slot);
        }
    }

    /// Removes the labels of the node in a slot; they must be those that were added.
    pub(crate) fn remove(&mut self, slot: Slot, labels: &[(Box<str>, Box<str>)]) {
        for (key, value) in labels {
            let changed = self.tick();
            let Some(of_key) = self.keys.get_mut(key) else {
                continue;
            };
            of_key.changed = changed;
            if let Some(posting) = of_key.values.get_mut(value) {
                posting.remove(slot);
                if posting.0.is_empty() {
                    of_key.values.swap_remove(value);
                }
            }
            if of_key.values.is_empty() {
                self.made -= usize::from(key.starts_with(MADE));
                self.keys.swap_remove(key);
            }
        }
        if self.keys.is_empty() {
            // None of the sets has a member.
            self.keys = Map::default();
            self.terms = Map::default();
        }
    }

    /// Empties the index: the slots of its table have been renumbered.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.made = 0;
        self.terms.clear();
    }

    /// The slots for which an expression over labels holds.
    pub(crate) fn mask(&mut self, expression: &Expression) -> Mask {
        let set = self.term(expression);
        if expression.test().is_negative() {
            Mask::outside(set)
        } else {
            Mask::inside(set)
        }
    }

    /// The slots that have a label with this key and one of these values.
    pub(crate) fn with_values<'a>(
        &self,
        key: &str,
        values: impl Iterator<Item = &'a str>,
    ) -> SlotSet {
        let key = self.keys.get(key);
        union(values.filter_map(|value| key?.values.get(value)))
    }

    /// The slots that have any of these labels.
    pub(crate) fn with_any<'a>(
        &self,
        labels: impl Iterator<Item = (Box<str>, &'a str)>,
    ) -> SlotSet {
        union(labels.filter_map(|(key, value)| self.keys.get(&key)?.values.get(value)))
    }

    /// All labels whose key is wanted, in no particular order.
    pub(crate) fn pairs(
        &self,
        wanted: &dyn Fn(&str) -> bool,
    ) -> impl Iterator<Item = (&str, &str)> {
        let keys = self.keys.iter().filter(move |(key, _)| wanted(key));
        keys.flat_map(|(key, of_key)| of_key.values.keys().map(move |value| (&**key, &**value)))
    }

    /// Whether any slot has a label that the cluster itself gives, such as the tenants that a node is reserved for.
    /// Asked first on the way of every START: mostly there is none.
    #[inline]
    pub(crate) fn has_made(&self) -> bool {
        self.made > 0
    }

    /// Whether any slot has a label with this key.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether any slot has this label.
    pub(crate) fn has(&self, key: &str, value: &str) -> bool {
        let key = self.keys.get(key);
        key.is_some_and(|key| key.values.contains_key(value))
    }

    /// The slots that have a label with this key.
    pub(crate) fn with_key(&self, key: &str) -> SlotSet {
        let keys = self.keys.get(key).into_iter();
        union(keys.flat_map(|key| key.values.values()))
    }

    /// Whether the labels are exactly those of these nodes.
    pub(crate) fn is_consistent<'a>(
        &self,
        nodes: impl Iterator<Item = (Slot, &'a [(Box<str>, Box<str>)])>,
    ) -> bool {
        let mut fresh = Self::default();
        for (slot, labels) in nodes {
            fresh.insert(slot, labels);
        }
        let same_values = |key: &Key, other: &Key| {
            key.values.len() == other.values.len()
                && key
                    .values
                    .iter()
                    .all(|(value, posting)| other.values.get(value) == Some(posting))
        };
        self.keys.len() == fresh.keys.len()
            && self.keys.iter().all(|(name, key)| {
                fresh
                    .keys
                    .get(name)
                    .is_some_and(|other| same_values(key, other))
            })
    }

    /// The slots with a value for which the expression's positive form holds. Made from the postings if it is not kept
    /// or a label with the key has changed; the set used longest ago makes room for it.
    fn term(&mut self, expression: &Expression) -> Arc<SlotSet> {
        let now = self.tick();
        let of = self.keys.get(expression.key()).map_or(0, |key| key.changed);
        if let Some(term) = self.terms.get_mut(expression.as_str()) {
            term.used = now;
            if term.of != of {
                term.of = of;
                term.set = Arc::new(matching(&self.keys, expression));
            }
            return Arc::clone(&term.set);
        }
        if self.terms.len() >= MAX_TERMS {
            self.drop_oldest_term();
        }
        let set = Arc::new(matching(&self.keys, expression));
        let term = Term {
            set: Arc::clone(&set),
            of,
            used: now,
        };
        self.terms.insert(expression.as_str().into(), term);
        set
    }

    /// Drops the set that was used longest ago. A walk over [`MAX_TERMS`] entries.
    fn drop_oldest_term(&mut self) {
        let oldest = (0..self.terms.len()).min_by_key(|&at| self.terms[at].used);
        if let Some(at) = oldest {
            self.terms.swap_remove_index(at);
        }
    }

    /// The next number of the clock.
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

/// The slots for which an expression's positive form holds, from the postings: by its texts where it is an equality of
/// texts, else by asking each value of the key.
fn matching(keys: &Map<Box<str>, Key>, expression: &Expression) -> SlotSet {
    let Some(key) = keys.get(expression.key()) else {
        return SlotSet::default();
    };
    let test: &Test = expression.test();
    if let Some(words) = test.exact_texts() {
        // No number among them: only these very texts hold.
        return union(words.into_iter().filter_map(|word| key.values.get(word)));
    }
    let values = key.values.iter().filter(|(value, _)| test.holds_for(value));
    union(values.map(|(_, posting)| posting))
}

/// The slots of all of these together.
fn union<'a>(postings: impl Iterator<Item = &'a Posting>) -> SlotSet {
    let mut set = SlotSet::default();
    for posting in postings {
        for (&block, &word) in &posting.0 {
            set.add_word(block as usize, word);
        }
    }
    set
}

impl Posting {
    fn insert(&mut self, slot: Slot) {
        *self.0.entry(slot / 64).or_default() |= 1 << (slot % 64);
    }

    fn remove(&mut self, slot: Slot) {
        let block = slot / 64;
        if let Some(word) = self.0.get_mut(&block) {
            *word &= !(1 << (slot % 64));
            if *word == 0 {
                self.0.remove(&block);
            }
        }
    }
}
