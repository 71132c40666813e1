//! What is queued for one peer, in the order it was decided, until its writer takes it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::budget::{Budget, Charge};

/// Queue slots kept after a burst; more are given back once the queue is empty.
const KEEP_SLOTS: usize = 64;

/// The queue of one peer. Bounded by its senders' budgets: whoever fills it is no longer read from.
#[derive(Debug)]
pub struct Outbox<M> {
    state: Mutex<State<M>>,
}

#[derive(Debug)]
struct State<M> {
    queue: VecDeque<Queued<M>>,
    bytes: usize,
    /// Bytes of queued messages that are charged to nobody.
    uncharged: usize,
    released: Option<Released>,
    phase: Phase,
    writer: Option<Waker>,
}

/// A queue whose senders are not to wait for it.
#[derive(Debug)]
struct Released {
    /// Bytes that may be queued uncharged; what is beyond stays charged.
    limit: usize,
    /// The receiver's own budget: what it caused itself stays charged.
    own: Arc<Budget>,
}

/// A message in the queue.
#[derive(Debug)]
pub(super) struct Queued<M> {
    pub(super) message: M,
    /// Its size in the queue, in bytes, as its sender stated it.
    pub(super) cost: usize,
    /// Where in the stream its bytes begin, once they are encoded.
    pub(super) begin: u64,
    /// What it holds of its sender's budget; given back when it is written or dropped.
    pub(super) charge: Option<Charge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing more is taken in; what is queued is written, then the connection closed.
    Finishing,
    /// The connection is to end at once.
    Shut,
}

/// What the writer is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Messages were taken.
    Taken,
    /// Everything was written and nothing will come: close.
    Finished,
    /// End at once.
    Shut,
}

/// How a push went.
#[derive(Debug)]
pub struct Pushed {
    /// Bytes queued now.
    pub bytes: usize,
    /// Those of them that are charged to nobody.
    pub uncharged: usize,
    /// The writer, if it sleeps: to be woken once no lock is held.
    pub writer: Option<Waker>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                bytes: 0,
                uncharged: 0,
                released: None,
                phase: Phase::Open,
                writer: None,
            }),
        }
    }
}

impl<M> Outbox<M> {
    /// Queues a message of `cost` bytes; gives it back if the connection is over.
    ///
    /// # Errors
    /// The message, if nothing more is taken in.
    pub fn push(&self, message: M, cost: usize, charge: Option<Charge>) -> Result<Pushed, M> {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Err(message);
        }
        state.queue.push_back(Queued {
            message,
            cost,
            begin: 0,
            charge,
        });
        state.bytes += cost;
        state.release_last();
        Ok(Pushed {
            bytes: state.bytes,
            uncharged: state.uncharged,
            writer: state.writer.take(),
        })
    }

    /// Bytes queued.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Takes nothing more in; what is queued is still written, then the connection is closed.
    pub fn finish(&self) {
        self.set_phase(Phase::Finishing);
    }

    /// Ends the connection at once and hands out what nobody has begun to write.
    pub fn shut(&self) -> Vec<M> {
        self.set_phase(Phase::Shut);
        self.take_all()
    }

    /// Gives back what the queued messages hold of their senders' budgets, and what later ones would, until
    /// [`Self::keep_charges`]: the peer has stopped reading, and nobody else is to wait for it. The oldest `limit`
    /// bytes at most; what the peer caused itself, charged to its `own` budget, stays charged. Returns how many bytes
    /// are charged to nobody now.
    pub fn release_charges(&self, limit: usize, own: &Arc<Budget>) -> usize {
        let mut state = self.state.lock();
        let mut uncharged = state.uncharged;
        let mut given_back = Vec::new();
        for queued in &mut state.queue {
            if queued.is_charged_to_others(own) {
                if uncharged + queued.cost > limit {
                    break;
                }
                uncharged += queued.cost;
                given_back.push(queued.charge.take());
            }
        }
        state.uncharged = uncharged;
        state.released = Some(Released {
            limit,
            own: Arc::clone(own),
        });
        drop(state);
        // Wakes the senders, which is not to happen under the lock.
        drop(given_back);
        uncharged
    }

    /// What is queued from now on stays charged to its senders again.
    pub fn keep_charges(&self) {
        self.state.lock().released = None;
    }

    /// Whether charges are given back at the moment.
    pub(super) fn releases_charges(&self) -> bool {
        self.state.lock().released.is_some()
    }

    /// Moves messages of up to about `max_bytes` to `taken`, at least one if there is any; else registers the writer.
    pub(super) fn poll_take(
        &self,
        cx: &Context<'_>,
        max_bytes: usize,
        taken: &mut VecDeque<Queued<M>>,
    ) -> Poll<Turn> {
        let mut state = self.state.lock();
        if state.phase == Phase::Shut {
            return Poll::Ready(Turn::Shut);
        }
        let mut bytes = 0;
        while bytes < max_bytes
            && let Some(queued) = state.queue.pop_front()
        {
            bytes += queued.cost;
            if queued.charge.is_none() {
                state.uncharged -= queued.cost;
            }
            taken.push_back(queued);
        }
        state.bytes -= bytes;
        if bytes > 0 || !taken.is_empty() {
            return Poll::Ready(Turn::Taken);
        }
        if state.queue.capacity() > KEEP_SLOTS {
            state.queue.shrink_to(KEEP_SLOTS);
        }
        if state.phase == Phase::Finishing {
            return Poll::Ready(Turn::Finished);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Registers the writer and says whether the connection is to end at once; for a writer that waits for its socket.
    pub(super) fn is_shut(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state.lock();
        state.writer = Some(cx.waker().clone());
        state.phase == Phase::Shut
    }

    /// Takes nothing more in and hands out everything queued.
    pub(super) fn take_all(&self) -> Vec<M> {
        let mut state = self.state.lock();
        state.phase = Phase::Shut;
        state.bytes = 0;
        state.uncharged = 0;
        std::mem::take(&mut state.queue)
            .into_iter()
            .map(|queued| queued.message)
            .collect()
    }

    fn set_phase(&self, phase: Phase) {
        let writer = {
            let mut state = self.state.lock();
            if state.phase != Phase::Shut {
                state.phase = phase;
            }
            state.writer.take()
        };
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

#[cfg(test)]
impl<M> Outbox<M> {
    /// Takes everything queued, as a writer does.
    pub(crate) fn drain(&self) -> Vec<M> {
        let mut taken = VecDeque::new();
        let cx = Context::from_waker(Waker::noop());
        let _ = self.poll_take(&cx, usize::MAX, &mut taken);
        taken.into_iter().map(|queued| queued.message).collect()
    }

    /// Whether the connection was ended at once.
    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().phase == Phase::Shut
    }
}

impl<M> State<M> {
    /// Counts the message queued last, without its charge if that is to be given back.
    fn release_last(&mut self) {
        let Some(last) = self.queue.back_mut() else {
            return;
        };
        if let Some(released) = &self.released
            && last.is_charged_to_others(&released.own)
            && self.uncharged + last.cost <= released.limit
        {
            last.charge = None;
        }
        if last.charge.is_none() {
            self.uncharged += last.cost;
        }
    }
}

impl<M> Queued<M> {
    /// Whether somebody other than the receiver, whose budget is `own`, waits for it.
    pub(super) fn is_charged_to_others(&self, own: &Arc<Budget>) -> bool {
        self.charge
            .as_ref()
            .is_some_and(|charge| !charge.is_of(own))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::{Context, Waker};

    use super::Outbox;
    use crate::net::budget::Budget;

    #[test]
    fn charges_are_given_back_up_to_the_limit_and_those_of_the_receiver_itself_never() {
        let outbox = Outbox::default();
        let (sender, own) = (Budget::new(1000), Budget::new(1000));
        for _ in 0..10 {
            outbox.push((), 10, Some(sender.charge(10))).unwrap();
            outbox.push((), 10, Some(own.charge(10))).unwrap();
        }
        assert_eq!(outbox.release_charges(40, &own), 40);
        assert_eq!((sender.used(), own.used()), (60, 100));
        // The limit counts over all releases, until something leaves.
        outbox.keep_charges();
        assert_eq!(outbox.release_charges(40, &own), 40);
        assert_eq!(sender.used(), 60);
        let mut taken = VecDeque::new();
        let cx = Context::from_waker(Waker::noop());
        assert!(outbox.poll_take(&cx, 80, &mut taken).is_ready());
        assert_eq!(outbox.release_charges(40, &own), 40);
        assert_eq!(sender.used(), 20);
    }

    #[test]
    fn what_is_queued_behind_a_release_is_not_charged_either() {
        let outbox = Outbox::default();
        let (sender, own) = (Budget::new(1000), Budget::new(1000));
        outbox.release_charges(20, &own);
        for uncharged in [10, 20, 20] {
            let pushed = outbox.push((), 10, Some(sender.charge(10))).unwrap();
            assert_eq!(pushed.uncharged, uncharged);
        }
        assert_eq!(sender.used(), 10);
        outbox.keep_charges();
        outbox.push((), 10, Some(sender.charge(10))).unwrap();
        assert_eq!(sender.used(), 20);
    }

    #[test]
    fn a_charge_is_given_back_with_a_message_that_is_not_taken_in() {
        let outbox = Outbox::default();
        let sender = Budget::new(1000);
        assert_eq!(outbox.shut(), Vec::<()>::new());
        assert!(outbox.push((), 10, Some(sender.charge(10))).is_err());
        assert_eq!(sender.used(), 0);
    }
}
