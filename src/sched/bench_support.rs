//! The table of nodes on its own, for `benches/placement.rs` alone and no part of the interface: the budget of the
//! choice is a few nanoseconds, and a whole [`super::Scheduler::handle`] around it would hide them.

use super::ids::NodeKey;
use super::resources::Resources;
use super::table::Table;

/// A table in which node `n` is in slot `n`.
#[derive(Debug)]
pub struct BenchTable(Table);

impl BenchTable {
    /// A table of nodes that offer this much each, in order; none was used yet.
    #[must_use]
    pub fn new(offers: impl IntoIterator<Item = Resources>) -> Self {
        let mut table = Table::default();
        for (node, offer) in (0..).zip(offers) {
            let slot = table.push(NodeKey(node));
            table.set_offer(slot, offer);
        }
        Self(table)
    }

    /// Says what a node offers from now on.
    pub fn set_offer(&mut self, node: u32, offer: Resources) {
        self.0.set_offer(node, offer);
    }

    /// The node for a request, which becomes the most recently used: what the core does for every START, but the claim.
    pub fn choose(&mut self, asked: &Resources) -> Option<u32> {
        let slot = self.0.first_fit(asked)?;
        self.0.touch(slot);
        Some(slot)
    }
}
