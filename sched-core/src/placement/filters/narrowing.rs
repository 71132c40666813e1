//! Where a search looks, as filters narrow it.

use crate::cluster::labels::{LabelIndex, Mask};
use crate::cluster::table::Slot;
use crate::cluster::view::View;

/// Where a search looks. Filters add to it; it then becomes part of the search.
pub(crate) struct Narrowing<'a> {
    /// Which slots have which labels, in the pool that is searched. Mutable because it keeps the sets of expressions.
    pub(in crate::placement) labels: &'a mut LabelIndex,
    /// The cluster, for names of nodes.
    pub(in crate::placement) view: View<'a>,
    /// Slots must be allowed by all of these.
    pub(in crate::placement) masks: Vec<Mask>,
    /// If there is a list, only these slots are looked at.
    pub(in crate::placement) list: Option<Vec<Slot>>,
}

impl Narrowing<'_> {
    /// Limits the search to these slots, and to those of earlier calls too.
    pub(crate) fn only(&mut self, slots: Vec<Slot>) {
        match &mut self.list {
            Some(list) => list.retain(|slot| slots.contains(slot)),
            None => self.list = Some(slots),
        }
    }
}
