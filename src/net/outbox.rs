//! What is queued for one peer, in the order it was decided, until its writer takes it.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::budget::Charge;

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
    phase: Phase,
    writer: Option<Waker>,
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
    /// The writer, if it sleeps: to be woken once no lock is held.
    pub writer: Option<Waker>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                bytes: 0,
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
        Ok(Pushed {
            bytes: state.bytes,
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

    /// Gives back what the queued messages hold of their senders' budgets: their peer has stopped reading, and nobody
    /// else is to wait for it. The queue stays bounded because nothing more is placed on such a peer.
    pub fn release_charges(&self) {
        let charges: Vec<Option<Charge>> = self
            .state
            .lock()
            .queue
            .iter_mut()
            .map(|queued| queued.charge.take())
            .collect();
        drop(charges);
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
