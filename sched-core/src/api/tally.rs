//! What was counted by kind or by duration: plain numbers that cost an addition each.

use std::time::Duration;

use sched_model::StartFailureReason;

/// Upper bounds of the buckets of [`Times`], in milliseconds; what took longer is in one more bucket.
pub const TIME_BOUNDS_MS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 10_000, 30_000];

/// How long something took, each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// How often it took at most as long as each bound and longer than the one before; then how often it took longer than all.
    pub counts: [u64; TIME_BOUNDS_MS.len() + 1],
    /// The sum of all, microseconds.
    pub sum_us: u64,
}

impl Times {
    /// Notes one time.
    pub(crate) fn note(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = TIME_BOUNDS_MS.iter().position(|bound| us <= bound * 1000);
        self.counts[at.unwrap_or(TIME_BOUNDS_MS.len())] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// Adds others.
    pub(crate) fn add(&mut self, others: &Self) {
        for (count, other) in self.counts.iter_mut().zip(others.counts) {
            *count += other;
        }
        self.sum_us = self.sum_us.saturating_add(others.sum_us);
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Failures of STARTs by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reasons([u64; StartFailureReason::KNOWN.len() + 1]);

impl Reasons {
    /// Notes one.
    pub(crate) fn note(&mut self, reason: &StartFailureReason) {
        let known = StartFailureReason::KNOWN;
        let at = known.iter().position(|word| *word == reason.as_str());
        self.0[at.unwrap_or(known.len())] += 1;
    }

    /// How many there were of each reason; those with words that are not known here as `other`.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = StartFailureReason::KNOWN.iter().copied();
        words.chain(["other"]).zip(self.0)
    }

    /// How many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_one_bucket() {
        let mut times = Times::default();
        for ms in [0, 5, 6, 40_000] {
            times.note(Duration::from_millis(ms));
        }
        assert_eq!(
            (times.counts[0], times.counts[1], times.counts[11]),
            (2, 1, 1)
        );
        assert_eq!((times.count(), times.sum_us), (4, 40_011_000));
        let before = times;
        times.add(&before);
        assert_eq!(times.count(), 8);
    }

    #[test]
    fn each_failure_has_its_reason() {
        let mut reasons = Reasons::default();
        reasons.note(&StartFailureReason::FullCloud);
        reasons.note(&"unheard of".into());
        let counted: Vec<_> = reasons.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("full_cloud", 1), ("other", 1)]);
    }
}
