//! Until when a leader among several schedulers may send: every connection asks before each write, and waits once that
//! time has passed.
//!
//! The clock is CLOCK_BOOTTIME, which goes on while the machine sleeps. What was handed to the kernel before the time had
//! passed may arrive later; the last third of a lease's time is for that.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// The time since the machine was started, with the time that it slept.
#[must_use]
pub fn boottime() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A fence, which all connections of a process share. Shut until it is given a time.
#[derive(Debug, Default)]
pub struct Fence {
    /// Nanoseconds of [`boottime`].
    until: AtomicU64,
    moved: Arc<Notify>,
}

impl Fence {
    /// Lets everything through until this time; a time that has passed shuts it.
    pub fn set(&self, until: Duration) {
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// Whether something may be sent now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open_at(boottime())
    }

    /// Whether something may be sent when the clock shows this.
    #[must_use]
    pub fn is_open_at(&self, now: Duration) -> bool {
        now.as_nanos() < u128::from(self.until.load(Ordering::SeqCst))
    }
}

/// What one connection keeps of the fence.
#[derive(Debug)]
pub(crate) struct Fenced {
    fence: Arc<Fence>,
    /// While it waits.
    waiting: Option<Pin<Box<OwnedNotified>>>,
}

impl Fenced {
    pub(crate) fn new(fence: Arc<Fence>) -> Self {
        let waiting = None;
        Self { fence, waiting }
    }

    /// Ready once something may be sent.
    pub(crate) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.fence.is_open() {
                self.waiting = None;
                return Poll::Ready(());
            }
            let Some(waiting) = &mut self.waiting else {
                // Before the fence is looked at again: what moves it from here on is noticed.
                let moved = Arc::clone(&self.fence.moved);
                self.waiting = Some(Box::pin(moved.notified_owned()));
                continue;
            };
            if waiting.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.waiting = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::{Arc, Fence, Fenced, boottime};

    #[tokio::test]
    async fn what_waits_at_the_fence_goes_on_once_it_is_moved() {
        let fence = Arc::new(Fence::default());
        assert!(!fence.is_open());
        let mut fenced = Fenced::new(Arc::clone(&fence));
        let waits = tokio::spawn(async move { poll_fn(|cx| fenced.poll_open(cx)).await });
        tokio::task::yield_now().await;
        // To a time that has passed: it still waits.
        fence.set(boottime());
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        fence.set(boottime() + Duration::from_secs(60));
        waits.await.unwrap();
        assert!(fence.is_open());
        fence.set(Duration::ZERO);
        assert!(!fence.is_open());
    }
}
