//! Whose STARTs they are, for what counts by sender.
//!
//! Controllers are one: who is master takes over what the master before it began, and may send it again. Each operator is
//! on its own. How many STARTs a sender may have waiting is so little for an operator that controllers always find room.

use sched_model::Uuid;

/// A sender of STARTs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// The controllers, of which one after the other is master.
    Controllers,
    /// This operator.
    Operator(Uuid),
}

impl Owner {
    /// The operator; `None` where it is the controllers.
    pub(crate) fn operator(self) -> Option<Uuid> {
        match self {
            Self::Controllers => None,
            Self::Operator(uuid) => Some(uuid),
        }
    }
}

impl From<Option<Uuid>> for Owner {
    fn from(operator: Option<Uuid>) -> Self {
        operator.map_or(Self::Controllers, Self::Operator)
    }
}
