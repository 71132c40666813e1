//! Whether and since when the scheduler may have a START. A record keeps that in milliseconds of Unix time by this
//! machine's clock, for the moments of a program's own clock mean nothing to the next one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a record has that does not say when its START was sent.
const ANY_TIME: u64 = 0;

/// Whether the scheduler may have the START of an instance, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It was not sent, or what was sent is certainly not there.
    No,
    /// It was sent for the first time then.
    Since(Instant),
    /// It may have been sent, and when is not known.
    AtAnyTime,
}

impl Sent {
    /// It is sent now.
    #[must_use]
    pub fn now() -> Self {
        Self::Since(Instant::now())
    }

    /// What a record says of an earlier run of this program; `None` = the scheduler has never seen it.
    ///
    /// A time that is in the future by now, as where the clock was set back, says nothing, and neither does one before
    /// anything that can be said.
    #[must_use]
    pub fn kept(sent_ms: Option<u64>) -> Self {
        let moment = |at_ms: u64| {
            let ago = unix_ms().checked_sub(at_ms)?;
            Instant::now().checked_sub(Duration::from_millis(ago))
        };
        match sent_ms {
            None => Self::No,
            Some(ANY_TIME) => Self::AtAnyTime,
            Some(at_ms) => moment(at_ms).map_or(Self::AtAnyTime, Self::Since),
        }
    }

    /// Whether the scheduler may have it.
    #[must_use]
    pub fn is_sent(self) -> bool {
        self != Self::No
    }

    /// For how long the scheduler may have had it; [`Duration::MAX`] where that is not known.
    #[must_use]
    pub fn how_long(self) -> Duration {
        match self {
            Self::Since(moment) => moment.elapsed(),
            Self::No | Self::AtAnyTime => Duration::MAX,
        }
    }
}

/// The present, in milliseconds of Unix time.
#[must_use]
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// What a record stands for that does not say when its START was sent, as of an earlier version: it may have been sent
/// at any time.
#[must_use]
pub const fn at_any_time() -> Option<u64> {
    Some(ANY_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_does_not_say_when_it_was_sent_may_have_been_sent_at_any_time() {
        assert_eq!(Sent::kept(at_any_time()), Sent::AtAnyTime);
        assert_eq!(Sent::kept(at_any_time()).how_long(), Duration::MAX);
        let in_the_future = unix_ms() + 3_600_000;
        assert_eq!(Sent::kept(Some(in_the_future)), Sent::AtAnyTime);
        assert!(Sent::kept(Some(unix_ms() - 60_000)).how_long() >= Duration::from_secs(60));
        assert!(!Sent::kept(None).is_sent());
    }
}
