//! Places in the order of those that wait: by priority, then by arrival.

/// A place in the order of a pool; less = sooner. No two waiters have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// 255 less the priority, so that the higher comes first.
    patience: u8,
    /// Arrival.
    order: u64,
}

impl Rank {
    /// The place of what arrived as `order` with this priority.
    pub(crate) fn new(priority: u8, order: u64) -> Self {
        Self {
            patience: u8::MAX - priority,
            order,
        }
    }

    /// The place of what arrives now with this priority: behind all that wait with it.
    pub(crate) fn newest(priority: u8) -> Self {
        Self::new(priority, u64::MAX)
    }

    /// The place before all that have this priority or a lower one.
    pub(super) fn before(priority: u8) -> Self {
        Self::new(priority, 0)
    }
}

/// A waiter's place in the order: its rank, and its number to break ties between equal ranks, which should not occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    // As in a `Rank`, which as a field of its own would make this half as large again.
    patience: u8,
    order: u64,
    pub(super) number: u32,
}

impl Key {
    /// Before all others.
    pub(super) const FIRST: Self = Self {
        patience: 0,
        order: 0,
        number: 0,
    };

    /// Behind all others.
    pub(super) const LAST: Self = Self {
        patience: u8::MAX,
        order: u64::MAX,
        number: u32::MAX,
    };

    pub(super) fn new(rank: Rank, number: u32) -> Self {
        Self {
            patience: rank.patience,
            order: rank.order,
            number,
        }
    }

    /// The place before all waiters of this rank.
    pub(super) fn before(rank: Rank) -> Self {
        Self::new(rank, 0)
    }

    /// The place behind all waiters of this rank.
    pub(super) fn behind(rank: Rank) -> Self {
        Self::new(rank, u32::MAX)
    }
}
