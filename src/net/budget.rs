//! How many bytes one peer may have waiting in other peers' queues: what slows a fast sender down to its receivers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Bytes of one sender's frames, and of the answers to them, that are queued anywhere.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: usize,
    is_closed: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

/// A part of a [`Budget`] that is in use until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    cost: usize,
}

impl Budget {
    /// A budget of `limit` bytes. One frame always fits, however large.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit,
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

    /// From now on the sender is not read from any more, however little it has queued.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Ready while the sender may be read from; else the task is woken once half of the budget is free again.
    pub fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        if self.used.load(Ordering::Relaxed) < self.limit {
            return Poll::Ready(());
        }
        let mut reader = self.reader.lock();
        // Looked at again under the lock: whoever frees the last byte after this sees the waker.
        if self.used.load(Ordering::SeqCst) < self.limit {
            return Poll::Ready(());
        }
        *reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// Whether it is a part of this budget.
    #[must_use]
    pub fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.budget.used.fetch_sub(self.cost, Ordering::SeqCst);
        let resume_below = self.budget.limit / 2;
        if before > resume_below && before - self.cost <= resume_below {
            let reader = self.budget.reader.lock().take();
            if let Some(reader) = reader {
                reader.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::Budget;

    #[test]
    fn a_sender_over_its_budget_waits_until_half_of_it_is_free() {
        let cx = Context::from_waker(Waker::noop());
        let budget = Budget::new(100);
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
        let budget = Budget::new(100);
        budget.close();
        assert_eq!(budget.poll_ready(&cx), Poll::Pending);
    }

    #[test]
    fn a_charge_knows_its_budget() {
        let (one, other) = (Budget::new(1), Budget::new(1));
        assert!(one.charge(1).is_of(&one));
        assert!(!one.charge(1).is_of(&other));
    }
}
