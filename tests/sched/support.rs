//! What the tests share: the world around the core, STARTs and reports, model nodes, random values and naive
//! evaluations.

pub(crate) mod any;
pub(crate) mod documents;
pub(crate) mod durability;
pub(crate) mod histories;
pub(crate) mod launchers;
pub(crate) mod migration;
pub(crate) mod plain;
pub(crate) mod preemption;
pub(crate) mod requests;
pub(crate) mod scenes;
pub(crate) mod seeds;
pub(crate) mod sending;
pub(crate) mod store;
pub(crate) mod words;
pub(crate) mod world;
