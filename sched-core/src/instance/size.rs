//! What all managed instances take up together, and how much of that is for operators' STARTs.

use super::Instance;

/// Bytes of all managed instances beyond which no further START is taken that would have to be kept: two million with a
/// usual START each.
pub const MAX_MANAGED_BYTES: usize = 3 << 30;

/// The same for those of operators, so that controllers always find room.
pub const MAX_MANAGED_BYTES_OF_OPERATORS: usize = MAX_MANAGED_BYTES / 3 * 2;

/// Bytes that an instance takes beside its payload and its texts: the record itself, its decoded START, and its entries
/// in indexes. An estimate.
const FIXED: usize = 1024;

/// Bytes of managed instances, in all and of operators alone. Each instance notes what was counted for it, so that sums
/// cannot drift.
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
        if managed.terms.is_operators {
            self.of_operators += bytes;
        }
    }

    /// Takes an instance off, because it is removed or counted again.
    pub(super) fn forget(&mut self, managed: &mut Instance) {
        let bytes = std::mem::take(&mut managed.counted);
        self.all -= bytes;
        if managed.terms.is_operators {
            self.of_operators -= bytes;
        }
    }

    /// Whether one more with a payload of this length may be kept. Asked before a START is accepted; its sender gets a
    /// StartFailure where there is no room.
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
