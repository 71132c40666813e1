//! When simulated time begins in this crate's own tests: the one place where they look at a clock.

use std::time::Instant;

/// The moment at which a test begins.
pub(crate) fn start() -> Instant {
    Instant::now()
}
