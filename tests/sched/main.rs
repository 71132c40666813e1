//! The scheduler's core in a simulated world: its behaviour as sentences, and its choice against a naive oracle.

mod batches;
mod claims;
mod connections;
mod defects;
mod dry_runs;
mod explanations;
mod groups;
mod in_doubt;
mod labels;
mod oracle;
mod placement;
mod policies;
mod rare_orders;
mod rows;
mod settle;
mod shares;
mod standing;
mod wishes;
mod words;
mod world;
