//! When a node's launcher last reported, and after which silence it may hang: launchers choose how often they report.

use std::time::{Duration, Instant};

/// No silence below this counts: some reports of a launcher with the default interval, on a machine that is busy.
const SILENT_AFTER: Duration = Duration::from_secs(20);

/// The same while only one STATS has come on the connection, so that the interval is not known: longer than launchers
/// with a reason to report seldom wait.
const SILENT_AFTER_FIRST: Duration = Duration::from_secs(60);

/// So many intervals without a report are a silence.
const MISSED: u32 = 3;

/// The latest report, and the time between it and the one before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported {
    at: Instant,
    /// `None` before the second report of a connection. One pause does not double it more than once, so that a launcher
    /// which hung is noticed again.
    interval: Option<Duration>,
    has_any: bool,
}

impl Reported {
    /// Nothing yet on a connection that begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            at: now,
            interval: None,
            has_any: false,
        }
    }

    /// A STATS came.
    pub(super) fn note(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.at);
        if self.has_any {
            let most = self.interval.map(|interval| 2 * interval);
            self.interval = Some(
                since
                    .min(most.unwrap_or(since))
                    .max(Duration::from_millis(1)),
            );
        }
        (self.at, self.has_any) = (now, true);
    }

    /// When it last did; the beginning of the connection before.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// After how long a silence its launcher may hang.
    pub(crate) fn silent_after(&self) -> Duration {
        match self.interval {
            Some(interval) => SILENT_AFTER.max(MISSED * interval),
            None => SILENT_AFTER_FIRST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_measured_by_the_launchers_own_interval() {
        let begun = crate::simulated::start();
        let mut reported = Reported::new(begun);
        reported.note(begun);
        assert_eq!(reported.silent_after(), SILENT_AFTER_FIRST);
        reported.note(begun + Duration::from_secs(6));
        assert_eq!(reported.silent_after(), SILENT_AFTER);
        // It hung, which is not its interval.
        reported.note(begun + Duration::from_secs(606));
        assert!(reported.silent_after() <= Duration::from_secs(36));
        let mut seldom = Reported::new(begun);
        for minute in 0..3 {
            seldom.note(begun + Duration::from_secs(60 * minute));
        }
        assert_eq!(seldom.silent_after(), Duration::from_secs(180));
    }
}
