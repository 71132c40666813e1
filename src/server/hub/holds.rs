//! How long the scheduler's lock was held, as a histogram that costs a few additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in microseconds; what takes longer is in a bucket of its own.
pub(in crate::server) const BOUNDS_US: [u64; 10] =
    [1, 5, 20, 50, 100, 250, 500, 1_000, 2_000, 10_000];

/// Times the lock was held.
#[derive(Debug, Default)]
pub(in crate::server) struct Holds {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Holds {
    /// Notes one time.
    pub(super) fn note(&self, held: Duration) {
        let us = held.as_micros();
        let at = BOUNDS_US.iter().position(|bound| us <= u128::from(*bound));
        self.counts[at.unwrap_or(BOUNDS_US.len())].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }
}
