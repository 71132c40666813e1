//! The scheduler's core in a simulated world: its behaviour as sentences, and its choice against a naive oracle.

mod any;
mod batches;
mod claims;
mod connections;
mod constraints;
mod defects;
mod groups;
mod in_doubt;
mod launchers;
mod oracle;
mod overcommit;
mod placement;
mod plain;
mod rare_orders;
mod seeds;
mod settle;
mod standing;
mod world;
