//! To whom STARTs belong, for limits by sender.
//!
//! Controllers count as one: a new master takes over what the one before it began, and may send it again. Each operator
//! counts for itself. The limit of an operator is far below that of all, so that controllers always find room.

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
