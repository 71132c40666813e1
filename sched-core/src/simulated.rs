//! When simulated time begins in this crate's own tests: the one place where they look at a clock, because an `Instant` is
//! made in no other way. It is in no program: `lib.rs` has it for tests alone, which tests/tidy.rs sees to.

use std::time::Instant;

/// The moment at which a test begins.
pub(crate) fn start() -> Instant {
    Instant::now()
}
