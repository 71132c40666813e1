//! Waiting for a condition that does not tell when it changes: a look at a time, with a deadline.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::time::Duration;

use tokio::time::{Instant, Interval, interval};

use crate::site::DEADLINE;

/// Pause between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Waiting for a condition.
pub(crate) struct Look {
    deadline: Instant,
    every: Interval,
}

impl Look {
    pub(crate) fn new() -> Self {
        Self {
            deadline: Instant::now() + DEADLINE,
            every: interval(LOOK_EVERY),
        }
    }

    /// Waits for the next look; fails once it has taken too long.
    pub(crate) async fn again(&mut self, what: impl FnOnce() -> String) {
        self.every.tick().await;
        assert!(
            Instant::now() < self.deadline,
            "waited too long: {}",
            what()
        );
    }
}

/// Waits for a condition that needs no query.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut look = Look::new();
    while !condition() {
        look.again(|| what.to_owned()).await;
    }
}
