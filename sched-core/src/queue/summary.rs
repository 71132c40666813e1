//! What the trees of the queue keep of their leaves: of chunks of waiters, and of classes.

use super::rank::Key;
use crate::api::resources::Resources;
use crate::tree::Summary;

/// The least amounts of an empty chunk: more than any node has, so that it is covered by nothing.
pub(super) const NO_WAITER: Resources = Resources {
    mem_mib: i64::MAX,
    vcpus: i64::MAX,
    disk_mib: i64::MAX,
};

/// What the tree keeps of a chunk or of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sum {
    /// The least of each amount that any of them asks for, each amount on its own.
    pub(super) least: Resources,
    /// How many there are.
    pub(super) count: u32,
}

impl Summary for Sum {
    const NONE: Self = Self {
        least: NO_WAITER,
        count: 0,
    };

    fn join(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            count: self.count + other.count,
        }
    }
}

/// What a class, or several together, may have. Necessary and not sufficient: the least amounts may be of different
/// waiters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Promise {
    /// The least of each amount that any waiter asks for.
    pub(super) least: Resources,
    /// The place of the first waiter.
    pub(super) head: Key,
}

impl Summary for Promise {
    const NONE: Self = Self {
        least: NO_WAITER,
        head: Key::LAST,
    };

    fn join(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            head: self.head.min(other.head),
        }
    }
}

impl Promise {
    /// Whether there may be a waiter that fits and is before this place.
    #[inline]
    pub(super) fn holds(&self, free: &Resources, before: Key) -> bool {
        self.head < before && free.covers(&self.least)
    }
}
