//! What is asked about nodes by those that choose one themselves: what a node has of each resource, and which nodes fit.

use crate::api::ids::InstanceId;
use crate::api::no_fit::Countable;
use crate::api::rules::TenantId;

/// One resource of a node. Memory and disk in MiB, else a count.
#[derive(Debug, Clone, PartialEq)]
pub struct Stock {
    /// Which resource.
    pub of: Countable,
    /// What there is.
    pub total: i64,
    /// What of that is never offered.
    pub reserved: i64,
    /// How often the rest is offered.
    pub ratio: f64,
    /// What that comes to: what the node could offer if nothing ran on it.
    pub capacity: i64,
    /// What its instances asked for.
    pub claimed: i64,
}

/// What an instance asked for on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The instance.
    pub instance: InstanceId,
    /// How much of which resource, none of them zero.
    pub amounts: Vec<(Countable, i64)>,
}

/// What an instance asked for on a node, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumed {
    /// Its tenant; `None` where it has none, or that is not known.
    pub tenant: Option<TenantId>,
    /// What it asked for.
    pub claimed: Claimed,
}

/// Something that a node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Having {
    /// A label: key and value.
    Label(Box<str>, Box<str>),
    /// A place in an aggregate, by its name.
    Aggregate(Box<str>),
    /// A cordon. No candidate has one.
    Cordon,
    /// The role of a compute node. All candidates have it.
    Compute,
}

/// What nodes must have, or must not, beside what a START says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// One of these is enough; nothing is had of none.
    pub any_of: Vec<Having>,
    /// Whether it is those that have it which do not fit.
    pub is_forbidden: bool,
}
