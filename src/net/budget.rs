//! What slows a fast sender down to its receivers: how many bytes it may have waiting in other peers' queues, and the
//! long queues that it waits for.
//!
//! ```text
//! sender's task ─ poll_ready ─▶ reads ─▶ frame ─▶ charge(cost) ─▶ queue of the receiver ─▶ written: Charge dropped
//!       ▲                                                                                            │
//!       └──────────────── woken once half of the budget is free and no queue holds it ───────────────┘
//! ```
//!
//! Nothing here refuses or drops a frame: backpressure is that the sender's socket is not read, and TCP does the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Bytes read in one go from a sender that is held by long queues. What a thousand of them may read before a writer
/// that was woken behind them gets its turn: 16 MiB, which is some 50 ms of work.
pub(super) const REPORT_BATCH: usize = 16 * 1024;

/// Batches read in one turn of its task from such a sender, so that a thousand of them get theirs in order.
const REPORT_BATCHES: usize = 4;

/// What keeps a sender from being read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Its budget alone. For a peer that talks to many others, of which none may keep it from the rest.
    Budget,
    /// Also each long queue that it adds to. For one of many peers that all report to the same few: all their budgets
    /// together are more than a receiver can take in for seconds.
    Queues,
}

/// Bytes of one sender's frames, and of the answers to them, that are queued anywhere. One for each connection; shared
/// by all queues that have something of it.
#[derive(Debug)]
pub struct Budget {
    /// Bytes charged now; may exceed `limit` by what was read before it was reached.
    used: AtomicUsize,
    /// Bytes from which on the sender is not read from; it is read from again at half of them, so that it does not stop
    /// and go with each message.
    limit: usize,
    /// Whether long queues hold the sender as well.
    pace: Pace,
    /// Long queues that hold the sender; see [`Hold`].
    holds: AtomicUsize,
    /// Set for good when the scheduler leaves.
    is_closed: AtomicBool,
    /// The sender's task, while it waits to be allowed to read.
    reader: Mutex<Option<Waker>>,
}

/// A part of a [`Budget`] that is in use until this is dropped. It stands in the queue beside its message.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    /// Bytes, given back when it is dropped.
    cost: usize,
}

/// A long queue's hold on a sender, which is not read from until this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    budget: Arc<Budget>,
}

impl Budget {
    /// A budget of `limit` bytes. One frame always fits, however large.
    #[must_use]
    pub fn new(limit: usize, pace: Pace) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit,
            pace,
            holds: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            reader: Mutex::new(None),
        })
    }

    /// Takes `cost` bytes, over the limit if need be: it is reading that stops, not what was read already.
    #[must_use]
    pub fn charge(self: &Arc<Self>, cost: usize) -> Charge {
        self.used.fetch_add(cost, Ordering::Relaxed);
        Charge {
            budget: Arc::clone(self),
            cost,
        }
    }

    /// Keeps the sender from being read from; `None` if it does not wait for queues. Counted: a sender may be held by
    /// several queues.
    pub(super) fn hold(self: &Arc<Self>) -> Option<Hold> {
        if self.pace != Pace::Queues {
            return None;
        }
        self.holds.fetch_add(1, Ordering::SeqCst);
        Some(Hold {
            budget: Arc::clone(self),
        })
    }

    /// From now on the sender is not read from any more, however little it has queued. A task that waits already is not
    /// woken by it.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Ready while the sender may be read from; else the task is woken once half of the budget is free again and no
    /// queue holds the sender. Registers one task only, the last that asked: that of the connection.
    pub fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        if self.is_free() {
            return Poll::Ready(());
        }
        let mut reader = self.reader.lock();
        // Looked at again under the lock: a task that frees the last byte, or drops the last hold, after this sees the
        // waker.
        if self.is_free() {
            return Poll::Ready(());
        }
        *reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Looked at without the lock of `reader`; a task that is about to wait looks again under it.
    fn is_free(&self) -> bool {
        self.used.load(Ordering::SeqCst) < self.limit && self.holds.load(Ordering::SeqCst) == 0
    }

    /// Bytes to read from the sender in one go, `most` if no queue can hold it.
    pub(super) fn batch(&self, most: usize) -> usize {
        match self.pace {
            Pace::Budget => most,
            Pace::Queues => REPORT_BATCH.min(most),
        }
    }

    /// Batches to read from the sender in one turn of its task, `most` if no queue can hold it.
    pub(super) fn batches(&self, most: usize) -> usize {
        match self.pace {
            Pace::Budget => most,
            Pace::Queues => REPORT_BATCHES.min(most),
        }
    }

    /// Bytes that may be in use.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether more is in use than may be.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.used() > self.limit
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes the waker out first: the lock is not held while the task is woken.
    fn wake_reader(&self) {
        let reader = self.reader.lock().take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Charge {
    /// Whether it is a part of this budget.
    #[must_use]
    pub fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// The budget that it is a part of.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }
}

impl Hold {
    /// Whether it holds this sender.
    pub(super) fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }
}

/// Wakes the reader when half of the budget becomes free, not at each message.
impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.budget.used.fetch_sub(self.cost, Ordering::SeqCst);
        let resume_below = self.budget.limit / 2;
        if before > resume_below && before - self.cost <= resume_below {
            self.budget.wake_reader();
        }
    }
}

/// Wakes the reader when the last hold is gone; it then looks at the budget as well.
impl Drop for Hold {
    fn drop(&mut self) {
        if self.budget.holds.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.budget.wake_reader();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::{Budget, Pace};

    #[test]
    fn a_sender_over_its_budget_waits_until_half_of_it_is_free() {
        let cx = Context::from_waker(Waker::noop());
        let budget = Budget::new(100, Pace::Budget);
        let first = budget.charge(60);
        assert_eq!(budget.poll_ready(&cx), Poll::Ready(()));
        let second = budget.charge(60);
        assert_eq!(budget.poll_ready(&cx), Poll::Pending);
        drop(first);
        assert_eq!(budget.used(), 60);
        assert_eq!(budget.poll_ready(&cx), Poll::Ready(()));
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_closed_budget_lets_nothing_more_be_read() {
        let cx = Context::from_waker(Waker::noop());
        let budget = Budget::new(100, Pace::Budget);
        budget.close();
        assert_eq!(budget.poll_ready(&cx), Poll::Pending);
    }

    #[test]
    fn a_sender_waits_until_no_queue_holds_it_unless_its_budget_alone_slows_it() {
        let cx = Context::from_waker(Waker::noop());
        let launcher = Budget::new(100, Pace::Queues);
        let (one, other) = (launcher.hold(), launcher.hold());
        drop(one);
        assert_eq!(launcher.poll_ready(&cx), Poll::Pending);
        drop(other);
        assert_eq!(launcher.poll_ready(&cx), Poll::Ready(()));
        let controller = Budget::new(100, Pace::Budget);
        assert!(controller.hold().is_none());
        assert_eq!(controller.poll_ready(&cx), Poll::Ready(()));
    }

    #[test]
    fn a_charge_knows_its_budget() {
        let (one, other) = (Budget::new(1, Pace::Budget), Budget::new(1, Pace::Budget));
        assert!(one.charge(1).is_of(&one));
        assert!(!one.charge(1).is_of(&other));
    }
}
