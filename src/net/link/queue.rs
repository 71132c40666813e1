//! What a link's users and its pump share: frames to write, frames received, both bounded in bytes, and how it ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use parking_lot::Mutex;
use proto_frames::{Encoder, Frame, Message};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::net::budget::{Budget, Charge, Pace};
use crate::net::link::LinkClosed;
use crate::net::outbox::Outbox;
use crate::net::peer::Handler;

/// Bytes that may wait to be written; senders wait beyond it. A few thousand STARTs, or one frame of the largest
/// payload.
pub const MAX_OUTBOUND_BYTES: usize = 4 * 1024 * 1024;

/// Bytes received and not yet taken by the receiver; the socket is not read from beyond it.
pub const MAX_INBOUND_BYTES: usize = 4 * 1024 * 1024;

/// What a queued frame costs beside its payload.
const FRAME_COST: usize = size_of::<Outgoing>();

/// Both queues of one link, shared by its users ([`super::LinkSender`], [`super::LinkReceiver`]) and its task
/// ([`Pumped`]).
#[derive(Debug)]
pub(super) struct Queues {
    /// Frames to write. `room` bounds it, not a budget: frames carry no charge.
    pub(super) outbox: Arc<Outbox<Outgoing>>,
    /// What received frames are charged to until the receiver takes them; the socket is not read from while it is used
    /// up.
    pub(super) budget: Arc<Budget>,
    /// Bytes of room in the outbox. Closed with the link. Each queued frame holds as many permits as it has bytes. Once
    /// closed, senders that wait fail.
    room: Arc<Semaphore>,
    state: Mutex<QueueState>,
    /// To those who wait for a flush or the end.
    progress: Notify,
    /// To the receiver: a frame, or the end.
    inbound_ready: Notify,
}

/// A frame on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    frame: Frame,
    /// How many frames were queued up to this one.
    number: u64,
    /// Its room in the outbox, given back when it is written or dropped.
    _room: OwnedSemaphorePermit,
}

/// What both sides count and wait for.
#[derive(Debug, Default)]
struct QueueState {
    /// Frames queued since the link began.
    queued: u64,
    /// Number of the last frame handed to the socket: those up to it may have arrived.
    written: u64,
    /// Frames that were received and not taken yet, each with what it holds of the budget.
    inbound: VecDeque<(Frame, Charge)>,
    receiver: Receiver,
    /// When something was last received.
    heard: Option<Instant>,
    /// Why the link is over; set once.
    ended: Option<LinkClosed>,
}

/// Whether anything is to be kept for the receiver.
#[derive(Debug, Default, PartialEq, Eq)]
enum Receiver {
    /// What is received is kept for it.
    #[default]
    Listening,
    /// What is received from now on is dropped.
    Gone,
}

/// The task's end of the queues, which is its connection's handler.
#[derive(Debug)]
pub(super) struct Pumped {
    /// Shared with the link's users, whose `Held` is dropped when they are gone.
    pub(super) queues: Arc<Queues>,
    /// The last frame encoded.
    encoded: u64,
}

/// For senders.
impl Queues {
    /// Empty queues of a link that is open.
    pub(super) fn new() -> Arc<Self> {
        let budget = Budget::new(MAX_INBOUND_BYTES, Pace::Budget);
        Arc::new(Self {
            outbox: Arc::new(Outbox::new(Arc::clone(&budget))),
            budget,
            room: Arc::new(Semaphore::new(MAX_OUTBOUND_BYTES)),
            state: Mutex::default(),
            progress: Notify::new(),
            inbound_ready: Notify::new(),
        })
    }

    /// Queues a frame as soon as there is room for it.
    ///
    /// # Errors
    /// [`LinkClosed`] once the link has ended or is being closed; the frame is dropped then.
    pub(super) async fn push_outbound(&self, frame: Frame) -> Result<(), LinkClosed> {
        let cost = cost(&frame);
        // One that is larger than all the room waits until it is alone. Room is given in the order it is asked for,
        // which keeps each sender's frames in order.
        let share = u32::try_from(cost.min(MAX_OUTBOUND_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(share).await else {
            return Err(self.reason());
        };
        let pushed = {
            // Numbered and queued in one step, so that the numbers are in the queue's order.
            let mut state = self.state.lock();
            let number = state.queued + 1;
            let pushed = self.outbox.push(
                Outgoing {
                    frame,
                    number,
                    _room: room,
                },
                cost,
                None,
            );
            state.queued += u64::from(pushed.is_ok());
            pushed
        };
        match pushed {
            Ok(pushed) => {
                if let Some(writer) = pushed.writer {
                    writer.wake();
                }
                Ok(())
            }
            Err(_) => Err(self.reason()),
        }
    }

    /// Waits until everything queued before the call has been written. Frames queued later do not make it wait longer.
    pub(super) async fn written(&self) -> Result<(), LinkClosed> {
        let goal = self.state.lock().queued;
        self.progress_until(|state| {
            if state.written >= goal {
                return Some(Ok(()));
            }
            state.ended.clone().map(Err)
        })
        .await
    }

    /// Waits until more than so many frames have been written; how many have.
    pub(super) async fn written_beyond(&self, frames: u64) -> Result<u64, LinkClosed> {
        self.progress_until(|state| {
            if state.written > frames {
                return Some(Ok(state.written));
            }
            state.ended.clone().map(Err)
        })
        .await
    }

    /// Takes no more frames; the connection is closed once what is queued is written.
    pub(super) fn begin_close(&self) {
        self.room.close();
        self.outbox.finish();
    }

    /// Waits until the link is over.
    pub(super) async fn ended(&self) -> LinkClosed {
        self.progress_until(|state| state.ended.clone()).await
    }

    /// Waits until `look` finds what it looks for, looking again after each write and at the end.
    async fn progress_until<T>(&self, mut look: impl FnMut(&QueueState) -> Option<T>) -> T {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            // Registered before looking, so that nothing between the two is missed.
            progress.as_mut().enable();
            if let Some(found) = look(&self.state.lock()) {
                return found;
            }
            progress.await;
        }
    }

    /// When something was last received; `None` before the first.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.state.lock().heard
    }

    /// Why nothing can be sent: how the link ended, or that it is being closed.
    fn reason(&self) -> LinkClosed {
        let ended = self.state.lock().ended.clone();
        ended.unwrap_or_else(|| LinkClosed::unclear("it is being closed on this side".to_owned()))
    }
}

/// For the receiver.
impl Queues {
    /// Waits until `take` finds something, or the link has ended and there is nothing left.
    pub(super) async fn inbound<T>(
        &self,
        mut take: impl FnMut(&Self) -> Result<Option<T>, LinkClosed>,
    ) -> Result<T, LinkClosed> {
        loop {
            if let Some(taken) = take(self)? {
                return Ok(taken);
            }
            self.inbound_ready.notified().await;
        }
    }

    /// The next frame; `None` if nothing is there yet. Its charge is given back after the lock is released, which may
    /// wake the link's task to read on.
    pub(super) fn pop_inbound(&self) -> Result<Option<Frame>, LinkClosed> {
        let mut state = self.state.lock();
        match (state.inbound.pop_front(), &state.ended) {
            (Some((frame, charge)), _) => {
                drop(state);
                drop(charge);
                Ok(Some(frame))
            }
            (None, Some(reason)) => Err(reason.clone()),
            (None, None) => Ok(None),
        }
    }

    /// Throws away everything that is there, and whatever comes from now on: the receiver is gone.
    pub(super) fn discard_inbound(&self) {
        let discarded = {
            let mut state = self.state.lock();
            state.receiver = Receiver::Gone;
            std::mem::take(&mut state.inbound)
        };
        drop(discarded);
    }
}

/// For the pump.
impl Pumped {
    pub(super) fn new(queues: Arc<Queues>) -> Self {
        Self { queues, encoded: 0 }
    }

    /// The link is over, for this reason unless there is one already. What was received can still be taken; all who
    /// wait for room, a flush or a frame are woken.
    pub(super) fn end(&self, closed: LinkClosed) {
        self.queues.state.lock().ended.get_or_insert(closed);
        self.queues.room.close();
        self.queues.progress.notify_waiters();
        self.queues.inbound_ready.notify_one();
    }
}

impl Drop for Pumped {
    /// A link whose task was cut short, by a panic for one, has ended as well: no task waits for it for ever.
    fn drop(&mut self) {
        let why = "internal error: its task has ended".to_owned();
        self.end(LinkClosed::unclear(why));
    }
}

impl Handler for Pumped {
    type Outgoing = Outgoing;

    fn received(&mut self, messages: &mut Vec<Message>) {
        let mut state = self.queues.state.lock();
        state.heard = Some(Instant::now());
        for message in messages.drain(..) {
            // Behind its first message the decoder yields nothing but frames.
            let Message::Frame(frame) = message else {
                continue;
            };
            if state.receiver == Receiver::Listening {
                // Given back when the receiver takes the frame.
                let charge = self.queues.budget.charge(cost(&frame));
                state.inbound.push_back((frame, charge));
            }
        }
        drop(state);
        self.queues.inbound_ready.notify_one();
    }

    fn encode(&mut self, message: &Outgoing, encoder: &mut Encoder, dst: &mut BytesMut) {
        encoder.encode_frame(&message.frame, dst);
        self.encoded = message.number;
    }

    fn written(&mut self, _queued: usize) {
        self.queues.state.lock().written = self.encoded;
        self.queues.progress.notify_waiters();
    }
}

/// What a frame counts in bytes, in either direction.
fn cost(frame: &Frame) -> usize {
    FRAME_COST + frame.payload.len()
}

#[cfg(test)]
mod tests {
    use super::{LinkClosed, Pumped, Queues};

    #[tokio::test]
    async fn a_link_whose_task_was_cut_short_has_ended() {
        let queues = Queues::new();
        let pumped = Pumped::new(queues.clone());
        let task = tokio::spawn(async move {
            let _pumped = pumped;
            panic!("injected");
        });
        let ended = queues.ended().await.to_string();
        assert!(ended.contains("its task has ended"), "{ended}");
        assert!(task.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn a_link_that_has_ended_keeps_its_reason() {
        let queues = Queues::new();
        let pumped = Pumped::new(queues.clone());
        pumped.end(LinkClosed::unclear("closed".to_owned()));
        drop(pumped);
        assert!(queues.ended().await.to_string().contains("closed"));
    }
}
