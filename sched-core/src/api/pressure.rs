//! Nodes that are short of memory, as their launchers see it: what is done about it, and what is said of it.

use crate::api::ids::InstanceId;
use crate::api::text::ShortText;

/// What is done about a node that is short of memory. In any case nothing more is placed there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PressurePolicy {
    /// Nothing else: what runs there stays.
    #[default]
    Keep,
    /// Instances are moved away one after the other, those of the lowest priority first, until it is not any more.
    Evict,
}

/// What has happened to a node that is short of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PressureNews {
    /// It is, as its launcher says in these words.
    Begun(ShortText),
    /// It is not any more.
    Over,
    /// An instance is moved away.
    Moved(InstanceId),
    /// Nothing on it can be moved.
    Stuck,
}

impl PressureNews {
    /// Whether an operator should look at it.
    pub(crate) fn is_warning(&self) -> bool {
        matches!(self, Self::Begun(_) | Self::Stuck)
    }
}
