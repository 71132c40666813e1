//! The scheduler's core in a simulated world: its behaviour as sentences, and its choice against a naive oracle.

mod claims;
mod connections;
mod defects;
mod in_doubt;
mod oracle;
mod placement;
mod rare_orders;
mod rows;
mod settle;
mod standing;
mod world;
