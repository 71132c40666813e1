//! What other rules would change: which instances would not be placed where they are.

use sched_model::Uuid;

use crate::api::ids::InstanceId;
use crate::api::no_fit::Lack;

/// What rules would change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Affected {
    /// How many instances were looked at.
    pub checked: usize,
    /// How many of them would not be placed where they are.
    pub count: usize,
    /// The first of those.
    pub first: Vec<AffectedPlacement>,
}

/// An instance that would not be placed where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffectedPlacement {
    /// The instance.
    pub instance: InstanceId,
    /// Its name; empty for none.
    pub name: Box<str>,
    /// Its node.
    pub node: Uuid,
    /// The host name of its node.
    pub hostname: Box<str>,
    /// What the node would lack.
    pub lack: Lack,
}
