//! How long things took, as histograms that cost two additions each.
//!
//! Counts and sums are relaxed atomics: a reader may see one without the other, by one duration at most for each
//! writer, which is good enough for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in microseconds, inclusive; what takes longer is in a bucket of its own.
const BOUNDS_US: [u64; 13] = [
    1, 5, 20, 50, 100, 250, 500, 1_000, 2_000, 10_000, 50_000, 250_000, 1_000_000,
];

/// Durations of one kind.
#[derive(Debug, Default)]
pub(super) struct Holds {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// A histogram as it was read.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Measured {
    /// Upper bounds of the buckets, seconds.
    pub(super) bounds_s: Vec<f64>,
    /// How many are in each, and not in one before; then how many are beyond all.
    pub(super) counts: Vec<u64>,
    /// The sum of all, seconds.
    pub(super) sum_s: f64,
}

impl Holds {
    /// Notes one.
    pub(super) fn note(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.iter().position(|bound| ns <= bound * 1000);
        self.counts[at.unwrap_or(BOUNDS_US.len())].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// What was noted so far.
    pub(super) fn read(&self) -> Measured {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        Measured {
            bounds_s: BOUNDS_US.iter().map(|us| *us as f64 / 1e6).collect(),
            counts: counts.collect(),
            sum_s: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_one_bucket_and_in_the_sum() {
        let holds = Holds::default();
        for us in [1, 2, 5_000_000] {
            holds.note(Duration::from_micros(us));
        }
        let read = holds.read();
        assert_eq!((read.counts[0], read.counts[1], read.counts[13]), (1, 1, 1));
        assert!((read.sum_s - 5.000_003).abs() < 1e-9);
        assert_eq!(read.bounds_s.len() + 1, read.counts.len());
    }
}
