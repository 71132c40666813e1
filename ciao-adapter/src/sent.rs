//! When a START was sent, as a record keeps it: milliseconds of Unix time by this machine's clock, for the moments of a
//! program's own clock mean nothing to the next one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The present, in milliseconds of Unix time.
#[must_use]
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The moment of a time in the past; `None` if it is in the future by now, as where the clock was set back, or before
/// anything that can be said.
#[must_use]
pub fn moment(at_ms: u64) -> Option<Instant> {
    let ago = unix_ms().checked_sub(at_ms)?;
    Instant::now().checked_sub(Duration::from_millis(ago))
}

/// What a record stands for that does not say when its START was sent, as of an earlier version: it may have been sent
/// at any time.
#[must_use]
pub const fn at_any_time() -> Option<u64> {
    Some(0)
}
