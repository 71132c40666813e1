//! The table of nodes on its own, for `benches/placement.rs`, and the queue of who waits, for `benches/queue.rs`. No part
//! of the interface: the budget of the choice is a few nanoseconds, and a whole [`crate::Scheduler::handle`] around it
//! would hide them.

mod queue;

use std::ops::ControlFlow;

use crate::api::ids::NodeKey;
use crate::api::resources::Resources;
use crate::cluster::index::{ColumnId, Need};
use crate::cluster::slot_set::SlotSet;
use crate::cluster::table::Table;

pub use self::queue::{BenchFound, BenchQueue};

/// The one custom resource of a [`BenchTable`].
const CUSTOM: ColumnId = ColumnId(0);

/// A table in which node `n` is in slot `n`.
#[derive(Debug)]
pub struct BenchTable {
    table: Table,
    allowed: SlotSet,
}

impl BenchTable {
    /// A table of nodes that offer this much each, in order; none was used yet, and none is allowed.
    #[must_use]
    pub fn new(offers: impl IntoIterator<Item = Resources>) -> Self {
        let mut table = Table::default();
        for (node, offer) in (0..).zip(offers) {
            let slot = table.push(NodeKey(node));
            table.set_offer(slot, offer);
        }
        Self {
            table,
            allowed: SlotSet::default(),
        }
    }

    /// Says what a node offers from now on.
    pub fn set_offer(&mut self, node: u32, offer: Resources) {
        self.table.set_offer(node, offer);
    }

    /// Says how much a node has of the one custom resource.
    pub fn set_custom(&mut self, node: u32, amount: i64) {
        self.table.set_custom(node, CUSTOM, amount);
    }

    /// Allows a node in [`BenchTable::choose_allowed`].
    pub fn allow(&mut self, node: u32) {
        self.allowed.insert(node);
    }

    /// The node for a request, which becomes the most recently used: what the core does for every START, but the claim.
    pub fn choose(&mut self, asked: &Resources) -> Option<u32> {
        let slot = self.table.first_fit(asked)?;
        self.table.touch(slot);
        Some(slot)
    }

    /// As [`BenchTable::choose`], with one custom resource asked for as well.
    pub fn choose_custom(&mut self, asked: &Resources, amount: i64) -> Option<u32> {
        let custom = [(CUSTOM, amount)];
        let need = Need {
            asked,
            custom: &custom,
        };
        let slot = self.table.first_fit_in(&need, |_| u64::MAX, |_| true)?;
        self.table.touch(slot);
        Some(slot)
    }

    /// As [`BenchTable::choose`], of the allowed nodes.
    pub fn choose_allowed(&mut self, asked: &Resources) -> Option<u32> {
        let mask = |block| self.allowed.word(block);
        let slot = self
            .table
            .first_fit_in(&Need::base(asked), mask, |_| true)?;
        self.table.touch(slot);
        Some(slot)
    }

    /// The sum of the slots of the first nodes that fit, at most so many: what weighing them has to reach.
    #[must_use]
    pub fn first_fits(&self, asked: &Resources, most: usize) -> u64 {
        let (mut seen, mut sum) = (0, 0);
        let visit = |slot| {
            sum += u64::from(slot);
            seen += 1;
            if seen == most {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        // Whether it saw all that fit or stopped at the most is the same to the benchmark.
        let _ = self
            .table
            .fits_in_order(&Need::base(asked), |_| u64::MAX, visit);
        sum
    }

    /// Bytes that the table takes on the heap.
    #[must_use]
    pub fn size(&self) -> usize {
        self.table.size()
    }
}
