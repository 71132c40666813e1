//! Nodes and what they offer: ledgers of claims, tables and their indexes, labels, groups, what nodes are.

pub(crate) mod advice;
pub(crate) mod columns;
pub(crate) mod facts;
pub(crate) mod failing;
pub(crate) mod failures;
pub(crate) mod full;
pub(crate) mod groups;
pub(crate) mod index;
pub(crate) mod inventory;
pub(crate) mod labels;
pub(crate) mod ledger;
pub(crate) mod node;
pub(crate) mod slot_set;
pub(crate) mod table;
pub(crate) mod traits;
pub(crate) mod view;
