//! What all managed instances take up together, and how much of that is for operators' STARTs.

use super::Instance;

/// Bytes of all managed instances beyond which no further START is taken that would have to be kept: two million with a
/// usual START each.
pub const MAX_MANAGED_BYTES: usize = 3 << 30;

/// The same for those of operators, so that controllers always find room.
pub const MAX_MANAGED_BYTES_OF_OPERATORS: usize = MAX_MANAGED_BYTES / 3 * 2;

/// What one takes beside its payload and its texts: itself, its START as it was read, and its places in indexes.
const FIXED: usize = 1024;

/// Bytes of managed instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    all: usize,
    of_operators: usize,
}

impl Size {
    /// Counts one as it is now, in place of what was counted of it before.
    pub(super) fn count(&mut self, managed: &mut Instance) {
        let bytes = FIXED + managed.texts();
        self.forget(managed);
        managed.counted = bytes;
        self.all += bytes;
        if managed.is_operators {
            self.of_operators += bytes;
        }
    }

    /// One is gone.
    pub(super) fn forget(&mut self, managed: &mut Instance) {
        let bytes = std::mem::take(&mut managed.counted);
        self.all -= bytes;
        if managed.is_operators {
            self.of_operators -= bytes;
        }
    }

    /// Whether one more with such a payload may be kept.
    pub(crate) fn has_room(&self, payload_len: usize, is_operators: bool) -> bool {
        let bytes = FIXED + payload_len;
        let operators_may = || self.of_operators + bytes <= MAX_MANAGED_BYTES_OF_OPERATORS;
        self.all + bytes <= MAX_MANAGED_BYTES && (!is_operators || operators_may())
    }

    /// Bytes in all.
    pub(crate) fn all(&self) -> usize {
        self.all
    }
}
