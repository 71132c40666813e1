//! What is due at the queue because time has passed.

use std::time::Instant;

use super::rule::ReservationRule;
use super::{Queue, Waiter};

impl Queue {
    /// When the first has waited for as long as it may: [`Queue::due`].
    pub(crate) fn deadline_due(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// When the first deadline, the first reservation's end and the next look at those that wait are due. Nothing is where
    /// no one waits.
    #[inline]
    pub(crate) fn dues(&self, now: Instant) -> [Option<Instant>; 3] {
        if self.is_empty() {
            return [None; 3];
        }
        let sweep = self.sweep_due(now);
        [self.deadline_due(), self.reservation_due(), sweep]
    }

    /// When the first reservation ends: [`Queue::take_ended_reservation`].
    pub(crate) fn reservation_due(&self) -> Option<Instant> {
        self.rules.iter().filter_map(ReservationRule::due).min()
    }

    /// One whose time to wait is over, the earliest first.
    pub(crate) fn due(&self, now: Instant) -> Option<&Waiter> {
        let &(deadline, key) = self.deadlines.first()?;
        (deadline <= now).then(|| self.by_key(key))?
    }
}
