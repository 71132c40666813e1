//! The fixed point by which moments and unix time are converted.

use std::time::{Duration, Instant};

/// When the scheduler was started, by both clocks. Times are counted from there by the monotonic one, so that they do not
/// jump with the system's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    started_unix_ms: u64,
}

impl Clock {
    /// A clock by which `started` was at this unix time.
    pub(crate) fn new(started: Instant, started_unix_ms: u64) -> Self {
        Self {
            started,
            started_unix_ms,
        }
    }

    /// When the scheduler was made.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// A moment as unix time in milliseconds.
    pub(crate) fn unix_ms(&self, at: Instant) -> u64 {
        let after = whole_ms(at.saturating_duration_since(self.started));
        let before = whole_ms(self.started.saturating_duration_since(at));
        (self.started_unix_ms + after).saturating_sub(before)
    }

    /// The moment of a unix time in milliseconds; one that the monotonic clock cannot show becomes that of the start.
    pub(crate) fn instant_of(&self, unix_ms: u64) -> Instant {
        let start = self.started_unix_ms;
        let after = Duration::from_millis(unix_ms.saturating_sub(start));
        let before = Duration::from_millis(start.saturating_sub(unix_ms));
        let moment = self.started.checked_add(after);
        moment
            .and_then(|moment| moment.checked_sub(before))
            .unwrap_or(self.started)
    }
}

/// Whole milliseconds.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
