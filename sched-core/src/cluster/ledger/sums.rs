//! Sums over a ledger's entries, kept up to date with every change, so that asking what is free on a node costs the
//! same however many instances it has. `Ledger::is_consistent` recomputes and compares them.

use std::sync::Arc;

use super::entry::{Claims, Entry, Extras, Measured, Members};
use crate::api::resources::Resources;
use crate::cluster::index::ColumnId;

/// What the entries of a ledger amount to.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    /// By which rule an instance that runs is counted; changes with the configuration, and then all sums are
    /// recomputed.
    pub(super) measured: Measured,
    /// Memory, vcpus and disk: asked for, and held.
    pub(super) claims: Claims,
    /// Custom resources asked for, in order of their numbers, none of them zero.
    pub(super) held_custom: Vec<(ColumnId, i64)>,
    /// Members of groups that came or went, or gave up or took their place, since
    /// [`super::Ledger::take_group_changes`].
    pub(super) group_changes: Vec<(Arc<str>, Members)>,
    /// STARTs without an outcome.
    pub(super) unconfirmed: usize,
    /// What was released less what was claimed since the node called itself full; `None` unless FULL is its latest
    /// status.
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
        self.count_extras(entry, 1);
        self.unconfirmed += usize::from(entry.unconfirmed().is_some());
    }

    /// Takes an entry off.
    pub(super) fn count_out(&mut self, entry: &Entry) {
        self.claims -= entry.claims(self.measured);
        if let Some(released) = &mut self.released {
            *released += entry.frees(self.measured);
        }
        self.count_extras(entry, -1);
        self.unconfirmed -= usize::from(entry.unconfirmed().is_some());
    }

    /// Changes an entry in how certain it is or what it uses, which releases nothing.
    #[inline]
    pub(super) fn recount<R>(
        &mut self,
        entry: &mut Entry,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> R {
        self.claims -= entry.claims(self.measured);
        self.unconfirmed -= usize::from(entry.unconfirmed().is_some());
        let result = change(entry);
        self.claims += entry.claims(self.measured);
        self.unconfirmed += usize::from(entry.unconfirmed().is_some());
        result
    }

    /// Changes an entry in what it asks for or may use, which may release something.
    pub(super) fn change(&mut self, entry: &mut Entry, change: impl FnOnce(&mut Entry)) {
        let before = entry.frees(self.measured);
        self.recount(entry, change);
        if let Some(released) = &mut self.released {
            *released += before - entry.frees(self.measured);
        }
    }

    /// Changes an entry's custom resources and group.
    pub(super) fn set_extras(&mut self, entry: &mut Entry, extras: Extras) {
        self.count_extras(entry, -1);
        entry.extras = extras.boxed();
        self.count_extras(entry, 1);
    }

    /// Adds an entry's custom resources and its group to the sums (`sign` 1), or takes them off (-1). Sums saturate.
    fn count_extras(&mut self, entry: &Entry, sign: i32) {
        let Some(extras) = entry.extras.as_deref() else {
            return;
        };
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
            let members = entry.membership();
            let members = if sign < 0 { members.negated() } else { members };
            self.count_members(group, members);
        }
    }

    /// Notes that a group has so many more members on the node.
    pub(super) fn count_members(&mut self, group: &Arc<str>, more: Members) {
        if more != Members::default() {
            self.group_changes.push((Arc::clone(group), more));
        }
    }
}
