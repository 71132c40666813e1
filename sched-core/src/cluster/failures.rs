//! How often a node has failed recently: a count that halves every few minutes.

use std::time::{Duration, Instant};

/// The time in which the weight of a failure halves: ten failures in a row count for nothing after 25 minutes.
pub(crate) const HALF_LIFE: Duration = Duration::from_secs(300);

/// Below this, old failures count for nothing: a single one after [`HALF_LIFE`]. Without it remnants would decide the
/// order of nodes, because weighers compare however small the difference is.
const NEGLIGIBLE: f64 = 0.5;

/// A count of failures in which older ones count less. Only the sum and the time of the latest change are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failures {
    count: f64,
    at: Instant,
}

impl Failures {
    /// None so far.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            count: 0.0,
            at: now,
        }
    }

    /// Counts one more.
    pub(crate) fn add(&mut self, now: Instant) {
        self.count = self.at(now) + 1.0;
        self.at = now;
    }

    /// Takes one off, because it was not the fault of the node.
    pub(crate) fn retract(&mut self, now: Instant) {
        self.count = (self.at(now) - 1.0).max(0.0);
        self.at = now;
    }

    /// How many there are, older ones counting less.
    pub(crate) fn at(&self, now: Instant) -> f64 {
        if self.count == 0.0 {
            return 0.0;
        }
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let left = self.count * (-passed / HALF_LIFE.as_secs_f64()).exp2();
        if left < NEGLIGIBLE { 0.0 } else { left }
    }
}
