//! Names of custom resources as small numbers, so that tables can keep a column of amounts for each.

use indexmap::IndexSet;

use super::index::ColumnId;

/// Names of custom resources in one cluster; what nodes report beyond them is left out. Far more than kinds of
/// accelerators and devices that anybody counts; each costs a column of 10 bytes per node where it is used.
pub const MAX_RESOURCE_NAMES: usize = 256;

/// Amounts of custom resources in order of their numbers, none of them zero.
pub(super) type Amounts = Box<[(ColumnId, i64)]>;

/// The custom resources known by name. A name is never forgotten: columns are numbered by it.
#[derive(Debug, Default)]
pub(super) struct Columns(IndexSet<Box<str>>);

impl Columns {
    /// The number of a name, given to it now if it is new; `None` if there are too many names.
    pub(super) fn number(&mut self, name: &str) -> Option<ColumnId> {
        if let Some(column) = self.find(name) {
            return Some(column);
        }
        if self.0.len() >= MAX_RESOURCE_NAMES {
            return None;
        }
        self.0.insert(name.into());
        self.find(name)
    }

    /// The number of a name that has one.
    pub(super) fn find(&self, name: &str) -> Option<ColumnId> {
        let at = self.0.get_index_of(name)?;
        u16::try_from(at).ok().map(ColumnId)
    }

    /// The name behind a number.
    pub(super) fn name(&self, column: ColumnId) -> &str {
        self.0
            .get_index(usize::from(column.0))
            .map_or("", |name| name)
    }

    /// These amounts by number: negative ones, zeros, and names for which there is no room, left out.
    pub(super) fn amounts<'a>(&mut self, named: impl Iterator<Item = (&'a str, i64)>) -> Amounts {
        let mut amounts: Vec<(ColumnId, i64)> = named
            .filter(|&(_, amount)| amount > 0)
            .filter_map(|(name, amount)| Some((self.number(name)?, amount)))
            .collect();
        amounts.sort_unstable();
        amounts.dedup_by_key(|(column, _)| *column);
        amounts.into()
    }
}
