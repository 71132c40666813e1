//! What the core wants people to know, in the log: no more lines a second than anybody could read, because they are
//! written while everybody else waits.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{debug, info, warn};

use crate::sched::Notice;

/// Lines a second; what is beyond is counted, and the count is said with the next line.
const MAX_LINES_PER_SECOND: u32 = 100;

/// The log of notices.
#[derive(Debug, Default)]
pub(super) struct Notices {
    throttle: Mutex<Throttle>,
}

/// Lets a number of lines through in each second.
#[derive(Debug, Default)]
struct Throttle {
    second: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Notices {
    /// Logs a notice, or counts it.
    pub(super) fn log(&self, notice: &Notice, now: Instant) {
        if notice.is_per_start() {
            debug!("{notice}");
            return;
        }
        let Some(left_out) = self.throttle.lock().admit(now) else {
            return;
        };
        if left_out > 0 {
            warn!(
                "{left_out} lines about peers and STARTs left out: more than {MAX_LINES_PER_SECOND} in a second"
            );
        }
        if notice.is_warning() {
            warn!("{notice}");
        } else {
            info!("{notice}");
        }
    }
}

impl Throttle {
    /// Whether a line may be written now, and how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_new = self
            .second
            .is_none_or(|second| now.saturating_duration_since(second) >= Duration::from_secs(1));
        if is_new {
            self.second = Some(now);
            self.lines = 0;
        }
        if self.lines >= MAX_LINES_PER_SECOND {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MAX_LINES_PER_SECOND, Throttle};

    #[test]
    fn lines_beyond_the_limit_are_counted_and_said_later() {
        let now = Instant::now();
        let mut throttle = Throttle::default();
        for _ in 0..MAX_LINES_PER_SECOND {
            assert_eq!(throttle.admit(now), Some(0));
        }
        assert_eq!(throttle.admit(now), None);
        assert_eq!(throttle.admit(now), None);
        assert_eq!(throttle.admit(now + Duration::from_secs(1)), Some(2));
        assert_eq!(throttle.admit(now + Duration::from_secs(1)), Some(0));
    }
}
