//! Sums over a ledger's entries, kept up to date with every change, so that none is worked out again where it is asked for.

use std::sync::Arc;

use super::entry::{Claims, Entry, Extras, Measured};
use crate::api::resources::Resources;
use crate::cluster::index::ColumnId;

/// What the entries of a ledger come to.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    pub(super) measured: Measured,
    pub(super) claims: Claims,
    /// Custom resources asked for, in order of their numbers, none of them zero.
    pub(super) held_custom: Vec<(ColumnId, i64)>,
    /// Members of groups that came or went since [`super::Ledger::take_group_changes`].
    pub(super) group_changes: Vec<(Arc<str>, i32)>,
    /// STARTs without an outcome.
    pub(super) unconfirmed: usize,
    /// What was released less what was claimed since its node called itself full, while that is its latest word.
    pub(super) released: Option<Resources>,
}

impl Sums {
    /// Those of no entries.
    pub(super) fn new(measured: Measured) -> Self {
        Self {
            measured,
            claims: Claims::default(),
            held_custom: Vec::new(),
            group_changes: Vec::new(),
            unconfirmed: 0,
            released: None,
        }
    }

    /// Adds an entry.
    pub(super) fn count_in(&mut self, entry: &Entry) {
        self.claims += entry.claims(self.measured);
        if let Some(released) = &mut self.released {
            *released -= entry.frees(self.measured);
        }
        self.count_extras(entry.extras.as_deref(), 1);
        self.unconfirmed += usize::from(entry.unconfirmed().is_some());
    }

    /// Takes an entry off.
    pub(super) fn count_out(&mut self, entry: &Entry) {
        self.claims -= entry.claims(self.measured);
        if let Some(released) = &mut self.released {
            *released += entry.frees(self.measured);
        }
        self.count_extras(entry.extras.as_deref(), -1);
        self.unconfirmed -= usize::from(entry.unconfirmed().is_some());
    }

    /// Adds what an entry has beside the usual to the sums, or takes it off.
    pub(super) fn count_extras(&mut self, extras: Option<&Extras>, sign: i32) {
        let Some(extras) = extras else { return };
        for &(column, amount) in &extras.custom {
            let change = amount.saturating_mul(i64::from(sign));
            match self
                .held_custom
                .binary_search_by_key(&column, |(column, _)| *column)
            {
                Ok(at) => {
                    self.held_custom[at].1 = self.held_custom[at].1.saturating_add(change);
                    if self.held_custom[at].1 == 0 {
                        self.held_custom.remove(at);
                    }
                }
                Err(at) => self.held_custom.insert(at, (column, change)),
            }
        }
        if let Some(group) = &extras.group {
            self.group_changes.push((Arc::clone(group), sign));
        }
    }
}
