//! What a tree over blocks keeps of them: the most that any of their slots has.

use crate::api::resources::Resources;
use crate::tree::Summary;

/// Of blocks: the largest of each amount on its own.
impl Summary for Resources {
    const NONE: Self = Self::NEVER;

    fn join(self, other: Self) -> Self {
        self.max(other)
    }
}

/// The same of one custom resource: requests ask for more than nothing, so that what is below nothing need not be told
/// apart.
impl Summary for i64 {
    const NONE: Self = 0;

    fn join(self, other: Self) -> Self {
        self.max(other)
    }
}
