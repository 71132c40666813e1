//! Names of custom resources as small numbers, so that tables can keep a column of amounts for each.
//!
//! Only what a node has gets a number: by its reports, or by the node file. What a START or a STATS asks for is looked
//! up, and counts for nothing where no node has it; so no client can use up the numbers. A number that is not used any
//! more is given to another name, but only when numbers run short ([`Columns::reclaim`]): amounts are kept by number in
//! many places.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::cluster::index::ColumnId;

/// Names of custom resources in one cluster. Names beyond them are left out, and the launcher that reports them is sent
/// a message. There are far fewer kinds of accelerators and devices; each costs a column of 10 bytes per node in the
/// blocks that have it.
pub const MAX_RESOURCE_NAMES: usize = 256;

/// Names of custom resources that one node may report: an eighth of all, and twice what one START may ask for.
pub const MAX_RESOURCES_PER_NODE: usize = MAX_RESOURCE_NAMES / 8;

/// Least time between two searches for numbers that are not used: each walks over all nodes.
const RECLAIM_EVERY: Duration = Duration::from_secs(1);

/// Amounts of custom resources in the order of their numbers, each once, none of them zero.
pub(crate) type Amounts = Box<[(ColumnId, i64)]>;

/// The custom resources known by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    by_name: BTreeMap<Box<str>, ColumnId>,
    /// The name of each number that was ever given out; `None` where it is free.
    names: Vec<Option<Box<str>>>,
    /// Names that keep their numbers whether or not a node has them: those of the node file.
    fixed: BTreeSet<ColumnId>,
    /// When numbers were last searched for.
    reclaimed_at: Option<Instant>,
}

impl Columns {
    /// Gives a name a number that is never reclaimed, if there is one left.
    pub(crate) fn fix(&mut self, name: &str) {
        if let Some(column) = self.number(name) {
            self.fixed.insert(column);
        }
    }

    /// The number of a name, given out now if it has none; `None` if there are too many names.
    fn number(&mut self, name: &str) -> Option<ColumnId> {
        if let Some(column) = self.find(name) {
            return Some(column);
        }
        if self.by_name.len() >= MAX_RESOURCE_NAMES {
            return None;
        }
        let free = self.names.iter().position(Option::is_none);
        let at = free.unwrap_or(self.names.len());
        let column = ColumnId(u16::try_from(at).ok()?);
        if free.is_none() {
            self.names.push(None);
        }
        self.names[at] = Some(name.into());
        self.by_name.insert(name.into(), column);
        Some(column)
    }

    /// The number of a name that has one.
    pub(crate) fn find(&self, name: &str) -> Option<ColumnId> {
        self.by_name.get(name).copied()
    }

    /// The name of a number; empty for one that is not given out.
    pub(crate) fn name(&self, column: ColumnId) -> &str {
        let name = self.names.get(usize::from(column.0));
        name.and_then(Option::as_deref).unwrap_or_default()
    }

    /// Something about each of these amounts, by the names of their columns.
    pub(crate) fn named(
        &self,
        amounts: &[(ColumnId, i64)],
        of: impl Fn(ColumnId, i64) -> i64,
    ) -> BTreeMap<String, i64> {
        let amounts = amounts.iter();
        amounts
            .map(|&(column, amount)| (self.name(column).to_owned(), of(column, amount)))
            .collect()
    }

    /// The names that have a number, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }

    /// Whether a name keeps its number whatever nodes have: one of the node file.
    pub(crate) fn is_fixed(&self, column: ColumnId) -> bool {
        self.fixed.contains(&column)
    }

    /// Names that have a number.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether the names of one more node might find no numbers, and the last search for unused ones was long enough
    /// ago.
    pub(crate) fn wants_room(&self, now: Instant) -> bool {
        let is_due = |at: Instant| now.saturating_duration_since(at) >= RECLAIM_EVERY;
        self.by_name.len() + MAX_RESOURCES_PER_NODE > MAX_RESOURCE_NAMES
            && self.reclaimed_at.is_none_or(is_due)
    }

    /// Frees all numbers that are neither in `used` nor fixed. `used` must have every number for which any node or
    /// ledger has an amount.
    pub(crate) fn reclaim(&mut self, used: &BTreeSet<ColumnId>, now: Instant) {
        self.reclaimed_at = Some(now);
        let is_used = |column: &ColumnId| used.contains(column) || self.fixed.contains(column);
        self.by_name.retain(|_, column| is_used(column));
        for (column, name) in (0..).map(ColumnId).zip(&mut self.names) {
            if !used.contains(&column) && !self.fixed.contains(&column) {
                *name = None;
            }
        }
    }

    /// What a node has, by number; names without a number get one. Amounts of 0 and below are dropped. Also returns the
    /// names for which there was no number left.
    pub(crate) fn offered<'a>(
        &mut self,
        named: impl Iterator<Item = (&'a str, i64)>,
    ) -> (Amounts, Vec<Box<str>>) {
        let mut left_out = Vec::new();
        let mut amounts = Vec::new();
        for (name, amount) in named.filter(|&(_, amount)| amount > 0) {
            match self.number(name) {
                Some(column) => amounts.push((column, amount)),
                None => left_out.push(name.into()),
            }
        }
        (in_order(amounts), left_out)
    }

    /// What is asked for, by number. Amounts of 0 and below, and names without a number, are dropped: the caller that
    /// has to refuse unknown names looks for them itself.
    pub(crate) fn asked<'a>(&self, named: impl Iterator<Item = (&'a str, i64)>) -> Amounts {
        let amounts = named.filter(|&(_, amount)| amount > 0);
        let amounts = amounts.filter_map(|(name, amount)| Some((self.find(name)?, amount)));
        in_order(amounts.collect())
    }
}

/// Sorts amounts by number; of several with one number the least counts.
fn in_order(mut amounts: Vec<(ColumnId, i64)>) -> Amounts {
    amounts.sort_unstable();
    amounts.dedup_by_key(|(column, _)| *column);
    amounts.into()
}

#[cfg(test)]
mod tests {

    use super::{Columns, MAX_RESOURCE_NAMES, RECLAIM_EVERY};

    #[test]
    fn a_number_that_no_one_uses_is_given_to_another_name() {
        let mut columns = Columns::default();
        columns.fix("fixed");
        let names: Vec<String> = (1..MAX_RESOURCE_NAMES).map(|at| format!("r{at}")).collect();
        let all = || names.iter().map(|name| (name.as_str(), 1));
        let (amounts, left_out) = columns.offered(all());
        assert_eq!((amounts.len(), left_out.len()), (names.len(), 0));
        let (amounts, left_out) = columns.offered([("r1", 2), ("new", 1), ("none", 0)].into_iter());
        assert_eq!((amounts.len(), &*left_out), (1, &["new".into()][..]));

        let now = crate::simulated::start();
        assert!(columns.wants_room(now));
        let kept = columns.find("r7").expect("it has a number");
        columns.reclaim(&[kept].into(), now);
        assert!(!columns.wants_room(now + RECLAIM_EVERY));
        assert_eq!((columns.len(), columns.name(kept)), (2, "r7"));
        assert!(columns.find("fixed").is_some() && columns.find("r1").is_none());
        let (amounts, left_out) = columns.offered([("new", 1)].into_iter());
        assert_eq!((amounts.len(), left_out.len()), (1, 0));
        assert_eq!(columns.name(amounts[0].0), "new");
        assert!(columns.asked([("r1", 1)].into_iter()).is_empty());
    }

    #[test]
    fn numbers_are_not_looked_for_with_every_report() {
        let mut columns = Columns::default();
        let names: Vec<String> = (0..MAX_RESOURCE_NAMES).map(|at| format!("r{at}")).collect();
        let (amounts, _) = columns.offered(names.iter().map(|name| (name.as_str(), 1)));
        let now = crate::simulated::start();
        columns.reclaim(&amounts.iter().map(|(column, _)| *column).collect(), now);
        assert!(!columns.wants_room(now));
        assert!(columns.wants_room(now + RECLAIM_EVERY));
    }
}
