//! What is queued for one peer, in the order it was decided, until its writer takes it.
//!
//! Any task pushes ([`Outbox::push`]), the peer's own task takes (`poll_take`). A message has a cost in bytes, and
//! mostly a [`Charge`] on its sender's budget, which is given back when it is written or dropped: so a sender that
//! fills queues is no longer read from. Two cases need more than that:
//!
//! - many senders and one receiver: each within its budget, together too much. Once a queue is longer than
//!   [`LONG_QUEUE`], who adds to it is held, and read from again in the order of holding as the writer takes bytes;
//! - a receiver that has stalled: charges are given back up to a limit ([`Outbox::release_charges`]), so that no sender
//!   waits for a dead connection.
//!
//! Holds are dropped, and writers woken, after the lock is released.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::budget::{Budget, Charge, Hold, REPORT_BATCH};

/// Queue slots kept after a burst; more are given back once the queue is empty, because thousands of peers may have had
/// one.
const KEEP_SLOTS: usize = 64;

/// A queue of more bytes holds the senders that add to it and that wait for queues ([`super::budget::Pace::Queues`]):
/// as much as a connection on loopback takes in 20 ms, so that its writer has something to write until they are read
/// again.
pub const LONG_QUEUE: usize = 4 * 1024 * 1024;

/// Messages that may wait behind all others ([`Outbox::push_behind`]): the answers to 16 requests of four chunks each.
pub const MAX_BEHIND: usize = 64;

/// Bytes that these messages may have: those of as many requests are 1 MiB, and what is said of them.
pub const MAX_BEHIND_BYTES: usize = 2 * 1024 * 1024;

/// Uncharged bytes of a stalled queue from which on it holds senders as a long one does, at first…
const STALLED_QUEUE: usize = 16 * 1024 * 1024;

/// …and by how much that grows in a second. So a peer that stalls in a burst has 8 s to read again before 64 MiB are
/// queued, rather than the fraction of a second in which a thousand senders say as much; and meanwhile the senders are
/// read from, one after the other.
pub const STALLED_RATE: usize = 6 * 1024 * 1024;

/// The queue of one peer. Bounded by its senders' budgets, and by holding senders once it is long: a sender that fills
/// it is no longer read from. `M` is a message that is encoded only when the writer comes to it. Shared by `Arc`; its
/// lock is held for moments, and no other lock is taken under it but a budget's.
#[derive(Debug)]
pub struct Outbox<M> {
    state: Mutex<OutboxState<M>>,
    /// The receiver's own budget: what it caused itself stays charged, and it is not held by its own queue.
    own: Arc<Budget>,
    /// What all receivers of its kind have waiting, if that is counted.
    counted_in: Option<Arc<Budget>>,
}

/// What stands under the lock.
#[derive(Debug)]
struct OutboxState<M> {
    /// Messages in the order in which they leave.
    queue: VecDeque<Queued<M>>,
    /// What leaves only while nothing else waits.
    behind: VecDeque<Queued<M>>,
    /// The sum of the costs in `behind`.
    behind_bytes: usize,
    /// The sum of the costs in `queue`; `behind` does not count.
    bytes: usize,
    /// Bytes of queued messages that are charged to no sender.
    uncharged: usize,
    /// Set while the peer has stalled and charges are given back.
    released: Option<Released>,
    /// Senders that wait for the queue, each once, in the order in which they are read again.
    held: VecDeque<Hold>,
    /// Whether messages are taken in, and whether the connection is to go on.
    phase: Phase,
    /// The writer's task, if it waits for a message or for its socket. Taken by who wakes it.
    writer: Option<Waker>,
    /// Whether the writer waits for its socket: then nothing that is queued is news to it.
    is_blocked: bool,
}

/// Who else gets what is queued for a peer that has stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Others, who read: senders are not held on its account.
    Read,
    /// A peer that does not read: senders are held where they would fill its queue at once.
    None,
}

/// A queue whose senders are not to wait for it.
#[derive(Debug)]
struct Released {
    /// Bytes that may be queued uncharged; what is beyond stays charged.
    limit: usize,
    /// Uncharged bytes beyond which senders are held; more from second to second.
    allowed: usize,
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
    /// The same of what all receivers of a kind have waiting.
    _counted: Option<Charge>,
}

/// How far the connection is; it never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Messages are taken in and written.
    Open,
    /// Nothing more is taken in; what is queued is written, then the connection closed.
    Finishing,
    /// The connection is to end at once.
    Shut,
}

/// What the writer is to do, after it has asked for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextWrite {
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
    /// Those of them that are charged to no sender.
    pub uncharged: usize,
    /// The writer, if it sleeps: to be woken once no lock is held.
    pub writer: Option<Waker>,
}

impl<M> Outbox<M> {
    /// The queue of the peer whose own frames are charged to `own`; empty and open.
    #[must_use]
    pub fn new(own: Arc<Budget>) -> Self {
        Self::counted_in(own, None)
    }

    /// The same, of which each message counts in `counted_in` as well until it is written or dropped.
    #[must_use]
    pub fn counted_in(own: Arc<Budget>, counted_in: Option<Arc<Budget>>) -> Self {
        Self {
            counted_in,
            state: Mutex::new(OutboxState {
                queue: VecDeque::new(),
                behind: VecDeque::new(),
                behind_bytes: 0,
                bytes: 0,
                uncharged: 0,
                released: None,
                held: VecDeque::new(),
                phase: Phase::Open,
                writer: None,
                is_blocked: false,
            }),
            own,
        }
    }

    /// Queues a message of `cost` bytes. If the queue is long, the sender that `charge` is of is held. The caller wakes
    /// [`Pushed::writer`] once it holds no lock; `None` there means that the writer runs or will look by itself.
    ///
    /// # Errors
    /// The message, if nothing more is taken in: the connection is over.
    pub fn push(&self, message: M, cost: usize, charge: Option<Charge>) -> Result<Pushed, M> {
        let counted = self.counted_in.as_ref().map(|all| all.charge(cost));
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Err(message);
        }
        state.queue.push_back(Queued {
            message,
            cost,
            begin: 0,
            charge,
            _counted: counted,
        });
        state.bytes += cost;
        state.count_last(&self.own);
        let writer = if state.is_blocked {
            None
        } else {
            state.writer.take()
        };
        Ok(Pushed {
            bytes: state.bytes,
            uncharged: state.uncharged,
            writer,
        })
    }

    /// Queues a message that leaves only while nothing else waits, one at a time: it does not count as queued, and is
    /// dropped with the connection. The writer, if it sleeps: to be woken once no lock is held. For what is large and
    /// not urgent, such as chunks of images.
    ///
    /// # Errors
    /// The message, if [`MAX_BEHIND`] or [`MAX_BEHIND_BYTES`] wait already or nothing more is taken in.
    pub fn push_behind(&self, message: M, cost: usize) -> Result<Option<Waker>, M> {
        let mut state = self.state.lock();
        let is_full = state.behind.len() >= MAX_BEHIND || state.behind_bytes >= MAX_BEHIND_BYTES;
        if state.phase != Phase::Open || is_full {
            return Err(message);
        }
        state.behind_bytes += cost;
        state.behind.push_back(Queued {
            message,
            cost,
            begin: 0,
            charge: None,
            _counted: self.counted_in.as_ref().map(|all| all.charge(cost)),
        });
        Ok(if state.is_blocked {
            None
        } else {
            state.writer.take()
        })
    }

    /// Bytes queued. Without those that wait behind, and without what the writer has taken and not yet written.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Bytes queued, with those that wait behind.
    #[must_use]
    pub fn all_bytes(&self) -> usize {
        let state = self.state.lock();
        state.bytes + state.behind_bytes
    }

    /// Takes nothing more in; what is queued is still written, then the connection is closed. What waits behind all
    /// others is dropped.
    pub fn finish(&self) {
        self.set_phase(Phase::Finishing);
    }

    /// Ends the connection and hands out what has not begun to be written; but a first message for which `is_to_keep`
    /// says so is still written before. So a CONNECTED that was queued just before leaves, and its peer knows that it
    /// was let in.
    pub fn shut_behind(&self, is_to_keep: impl FnOnce(&M) -> bool) -> Vec<M> {
        let mut state = self.state.lock();
        let first = state.queue.front().filter(|it| is_to_keep(&it.message));
        let Some((cost, is_charged)) = first.map(|first| (first.cost, first.charge.is_some()))
        else {
            drop(state);
            return self.shut();
        };
        let unsent = state.queue.split_off(1);
        state.bytes = cost;
        state.uncharged = if is_charged { 0 } else { cost };
        state.phase = Phase::Finishing;
        let (held, writer) = (std::mem::take(&mut state.held), state.writer.take());
        drop(state);
        // Wakes the senders and the writer, which is not to happen under the lock.
        drop(held);
        writer.into_iter().for_each(Waker::wake);
        unsent.into_iter().map(|queued| queued.message).collect()
    }

    /// Ends the connection at once and hands out what has not begun to be written. The second call hands out nothing.
    pub fn shut(&self) -> Vec<M> {
        self.set_phase(Phase::Shut);
        self.take_all()
    }

    /// Gives back what the queued messages hold of their senders' budgets, and what later ones would, until
    /// [`Self::keep_charges`]: the peer has stopped reading, and no sender is to wait for it. The oldest `limit`
    /// bytes at most; what the peer caused itself stays charged. Senders are held only if no others read, and beyond
    /// `STALLED_QUEUE` and what [`Self::allow_more`] adds. Returns how many bytes are charged to no sender now.
    pub fn release_charges(&self, limit: usize, others: Others) -> usize {
        let mut state = self.state.lock();
        let mut uncharged = state.uncharged;
        let mut given_back = Vec::new();
        for queued in &mut state.queue {
            if queued.is_charged_to_others(&self.own) {
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
            allowed: match others {
                Others::Read => usize::MAX,
                Others::None => STALLED_QUEUE,
            },
        });
        let held = state.release_allowed();
        drop(state);
        // Wakes the senders, which is not to happen under the lock.
        drop((given_back, held));
        uncharged
    }

    /// While charges are given back, lets so many more bytes be queued without holding their senders.
    pub fn allow_more(&self, bytes: usize) {
        let mut state = self.state.lock();
        let Some(released) = &mut state.released else {
            return;
        };
        released.allowed = released.allowed.saturating_add(bytes);
        let held = state.release_allowed();
        drop(state);
        // Wakes the senders, which is not to happen under the lock.
        drop(held);
    }

    /// What is queued from now on stays charged to its senders again. Those that were given back are not taken again.
    pub fn keep_charges(&self) {
        self.state.lock().released = None;
    }

    /// Whether charges are given back at the moment.
    pub(super) fn releases_charges(&self) -> bool {
        self.state.lock().released.is_some()
    }

    /// Moves messages of up to about `max_bytes` to `taken`, at least one if there is any; else registers the writer.
    /// Senders that were held are read from again as the queue gets shorter.
    pub(super) fn poll_take(
        &self,
        cx: &Context<'_>,
        max_bytes: usize,
        taken: &mut VecDeque<Queued<M>>,
    ) -> Poll<NextWrite> {
        let mut state = self.state.lock();
        if state.phase == Phase::Shut {
            return Poll::Ready(NextWrite::Shut);
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
        state.is_blocked = false;
        if taken.is_empty()
            && state.phase == Phase::Open
            && let Some(queued) = state.behind.pop_front()
        {
            state.behind_bytes -= queued.cost;
            state.writer = None;
            taken.push_back(queued);
            return Poll::Ready(NextWrite::Taken);
        }
        if bytes > 0 || !taken.is_empty() {
            // It runs: it looks here again before it sleeps.
            state.writer = None;
            let held = state.release_held(bytes);
            drop(state);
            // Wakes the senders, which is not to happen under the lock.
            drop(held);
            return Poll::Ready(NextWrite::Taken);
        }
        if state.queue.capacity() > KEEP_SLOTS {
            state.queue.shrink_to(KEEP_SLOTS);
        }
        if state.phase == Phase::Finishing {
            return Poll::Ready(NextWrite::Finished);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Registers the writer and says whether the connection is to end at once; for a writer that waits for its socket.
    /// Pushes do not wake it meanwhile, because it could write nothing.
    pub(super) fn is_shut(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state.lock();
        state.writer = Some(cx.waker().clone());
        state.is_blocked = true;
        state.phase == Phase::Shut
    }

    /// Takes nothing more in and hands out everything queued. What waits behind is dropped.
    pub(super) fn take_all(&self) -> Vec<M> {
        let mut state = self.state.lock();
        state.phase = Phase::Shut;
        state.behind.clear();
        state.behind_bytes = 0;
        state.bytes = 0;
        state.uncharged = 0;
        let (queue, held) = (
            std::mem::take(&mut state.queue),
            std::mem::take(&mut state.held),
        );
        drop(state);
        drop(held);
        queue.into_iter().map(|queued| queued.message).collect()
    }

    /// A connection that was shut stays shut. Wakes the writer, which acts on the phase.
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
    #[cfg(test)]
    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().phase == Phase::Shut
    }
}

impl<M> OutboxState<M> {
    /// Counts the message queued last, without its charge if that is to be given back; holds its sender if the queue is
    /// long. A charge that is given back is dropped here, under the lock of the queue: that may wake the sender's
    /// reader.
    fn count_last(&mut self, own: &Arc<Budget>) {
        let Some(last) = self.queue.back_mut() else {
            return;
        };
        let is_long = match &self.released {
            None => self.bytes > LONG_QUEUE,
            Some(released) => self.uncharged > released.allowed,
        };
        let is_others = last.is_charged_to_others(own);
        // While some are held, others are not to overtake them: all are read from again in the order of holding.
        if let Some(charge) = &last.charge
            && is_others
            && (is_long || !self.held.is_empty())
            // Who is held is not read from: its frames come in a row, and it stands here once.
            && !self.held.back().is_some_and(|last| last.is_of(charge.budget()))
        {
            self.held.extend(charge.budget().hold());
        }
        if let Some(released) = &self.released
            && is_others
            && self.uncharged + last.cost <= released.limit
        {
            last.charge = None;
        }
        if last.charge.is_none() {
            self.uncharged += last.cost;
        }
    }

    /// Takes out the senders that may be read again although the queue has stalled: as many as will add what is
    /// allowed.
    fn release_allowed(&mut self) -> VecDeque<Hold> {
        let Some(released) = &self.released else {
            return VecDeque::new();
        };
        let room = released.allowed.saturating_sub(self.uncharged);
        let count = (room / REPORT_BATCH).min(self.held.len());
        self.held.drain(..count).collect()
    }

    /// Takes out the senders that may be read again after the writer has taken `bytes`: as many as will add as much, so
    /// that they take turns and the queue does not grow; all of them when it is empty.
    fn release_held(&mut self, bytes: usize) -> VecDeque<Hold> {
        if self.held.is_empty() || self.bytes > LONG_QUEUE {
            return VecDeque::new();
        }
        if self.bytes == 0 {
            return std::mem::take(&mut self.held);
        }
        let count = bytes.div_ceil(REPORT_BATCH).min(self.held.len());
        self.held.drain(..count).collect()
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
