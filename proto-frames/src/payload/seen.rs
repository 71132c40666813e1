//! Which keys of a mapping were there, so that one that stands twice is noticed.

use sched_model::value::Field;

/// The merge key: what it stands for would take in the keys of another mapping.
pub(super) const MERGE: &str = "<<";

/// The keys of a record that were read so far.
pub(super) struct Seen {
    fields: &'static [Field],
    /// A bit for each field that was there.
    bits: u128,
    /// The field that is expected next: keys are written in order.
    next: usize,
}

impl Seen {
    pub(super) const fn of(fields: &'static [Field]) -> Self {
        Self {
            fields,
            bits: 0,
            next: 0,
        }
    }

    /// Takes note of a key; says whether it was there before. Keys that mean nothing are not counted.
    pub(super) fn is_again(&mut self, key: &str) -> bool {
        let is_it = |field: &Field| field.key == key;
        let index = match self.fields.get(self.next) {
            Some(field) if is_it(field) => Some(self.next),
            _ => self.fields.iter().position(is_it),
        };
        let Some(index) = index else {
            return false;
        };
        self.next = index + 1;
        let bit = u32::try_from(index)
            .ok()
            .and_then(|by| 1_u128.checked_shl(by));
        let bit = bit.unwrap_or_default();
        let was_there = self.bits & bit != 0;
        self.bits |= bit;
        was_there
    }
}
