//! One established connection, pumped by one task: reads and decodes what comes, encodes and writes what is queued.
//!
//! An idle connection keeps no buffers: it reads into its thread's. Everything queued is encoded together and written
//! with one call. A peer is given up only when its writes make no progress to speak of for a deadline, or when a frame
//! once begun does not arrive in time; and only for what its kernel says, never because this side had no processor.

mod end;
mod spare;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use proto_frames::{DecodeError, Decoder, Encoder, Message, Received, TooLong};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

pub use self::end::{End, EndReason};
use super::budget::Budget;
use super::closing::{CLOSE_QUIET, close};
use super::outbox::{NextWrite, Outbox, Queued, STALLED_RATE};
use super::socket::Socket;

/// How long a peer's writes may make no progress, and a frame once begun may take (the original's write deadline).
pub const PROGRESS_DEADLINE: Duration = Duration::from_secs(30);

/// What counts as progress, in bytes, unless everything that waited has left: a batch, and what the TLS layer may have
/// taken in without sending it. A peer that reads a byte now and then does not pass for one that reads.
const PROGRESS_LEN: u64 = (WRITE_BATCH + TLS_BUFFER) as u64;

/// Bytes that the TLS layer takes in while its socket takes none (rustls's default limit).
const TLS_BUFFER: usize = 64 * 1024;

/// After this long without progress a peer's queue counts as stalled.
pub const STALL_TIME: Duration = Duration::from_secs(1);

/// How often a stalled queue lets more be queued without holding their senders.
const ALLOW_EVERY: Duration = Duration::from_millis(200);

/// Bytes read in one go before they are decoded: large enough for a batch to share one hold of the scheduler's lock. Of
/// a sender that long queues hold, fewer ([`Budget::batch`]).
const READ_BATCH: usize = 64 * 1024;

/// Room made for each read of a batch: one TLS record.
const READ_CHUNK: usize = 16 * 1024;

/// Bytes encoded together and written with one call; also what may be in doubt when a connection ends.
const WRITE_BATCH: usize = 64 * 1024;

/// Payloads up to this size are copied out of the read buffer, so that one of them waiting in a queue does not keep a
/// whole batch in memory.
const COPY_UP_TO: usize = 16 * 1024;

/// Batches read in one turn of the task before others get theirs. Writers are woken at the end of a turn, so that under
/// load several frames for one peer leave together; this bounds how long the first of them waits, to a few
/// milliseconds.
const BATCHES_PER_TURN: usize = 16;

/// Batches read at most from a peer that can no longer be written to: 4 MiB, the size of a frame at least.
const LAST_BATCHES: usize = 64;

/// How a peer's outbound queue moves. Told to the handler at each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It moves.
    Moving,
    /// Nothing to speak of has left it for [`STALL_TIME`].
    Stalled,
}

/// What a connection's owner does with it. All methods are called on the connection's task and must not block.
pub trait Handler {
    /// What is queued for the peer.
    type Outgoing;

    /// Takes in what was decoded from one read batch, in order; empties `messages`.
    fn received(&mut self, messages: &mut Vec<Message>);

    /// Takes in that a frame was too long, and was skipped. Only if the decoder skips any.
    fn too_long(&mut self, _refused: TooLong) {}

    /// Appends a queued message's bytes to `dst`.
    fn encode(&mut self, message: &Self::Outgoing, encoder: &mut Encoder, dst: &mut BytesMut);

    /// The task is about to return: everything that can be read for now was taken in, or it has had its share.
    fn turn_over(&mut self) {}

    /// Queued messages were handed to the socket; `queued` bytes still wait.
    fn written(&mut self, _queued: usize) {}

    /// The queue stalled, or moves again.
    fn flow(&mut self, _flow: Flow) {}
}

/// Deadlines of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// See [`PROGRESS_DEADLINE`].
    pub progress: Duration,
    /// See [`STALL_TIME`].
    pub stall: Duration,
    /// See [`CLOSE_QUIET`].
    pub close_quiet: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            progress: PROGRESS_DEADLINE,
            stall: STALL_TIME,
            close_quiet: CLOSE_QUIET,
        }
    }
}

/// One connection and everything its task keeps: made past the handshake, consumed by [`Peer::run`].
#[derive(Debug)]
pub struct Peer<S, H: Handler> {
    stream: S,
    handler: H,
    decoder: Decoder,
    encoder: Encoder,
    /// Where others queue messages for the peer.
    outbox: Arc<Outbox<H::Outgoing>>,
    /// While this is used up, nothing is read.
    budget: Arc<Budget>,
    deadlines: Deadlines,
    /// What was read and not decoded: part of a frame, or nothing; while a batch is read, the thread's buffer.
    incoming: BytesMut,
    write: WriteSide<H::Outgoing>,
    /// When the frame that is incomplete in `incoming` was begun.
    frame_begun: Option<Instant>,
    /// Whether reading waits for the budget.
    is_paused: bool,
    /// Due when the earliest of the deadlines in force is; absent while none is.
    timer: Option<Pin<Box<Sleep>>>,
}

/// What is between the outbox and the socket. Positions count bytes of the encoded stream since the connection began,
/// by which a message that the socket has not begun to take is told from one that may have arrived.
#[derive(Debug)]
struct WriteSide<M> {
    /// Encoded messages that the socket has not taken yet.
    bytes: BytesMut,
    /// What `bytes` holds and the socket has not begun to take. Charges are given back as messages leave it.
    in_flight: VecDeque<Queued<M>>,
    /// Bytes of this stream encoded so far.
    encoded: u64,
    /// Bytes of this stream that the socket has taken.
    written: u64,
    /// Whether bytes may wait inside the TLS layer.
    needs_flush: bool,
    /// When the last progress was made, while something waits to be written.
    waiting_since: Option<Instant>,
    /// Bytes that the socket had taken then.
    progress_mark: u64,
    /// What the handler was told last.
    flow: Flow,
    /// While stalled: up to when more was let be queued.
    allowed_until: Option<Instant>,
}

impl<S, H> Peer<S, H>
where
    S: Socket,
    H: Handler,
{
    /// A connection past its handshake; `incoming` is what was read beyond it.
    pub fn new(
        stream: S,
        handler: H,
        (mut decoder, encoder): (Decoder, Encoder),
        incoming: BytesMut,
        (outbox, budget): (Arc<Outbox<H::Outgoing>>, Arc<Budget>),
        deadlines: Deadlines,
    ) -> Self {
        decoder.copy_payloads_up_to(COPY_UP_TO);
        let write = WriteSide {
            bytes: BytesMut::new(),
            in_flight: VecDeque::new(),
            encoded: 0,
            written: 0,
            needs_flush: false,
            waiting_since: None,
            progress_mark: 0,
            flow: Flow::Moving,
            allowed_until: None,
        };
        Self {
            stream,
            handler,
            decoder,
            encoder,
            outbox,
            budget,
            deadlines,
            incoming,
            write,
            frame_begun: None,
            is_paused: false,
            timer: None,
        }
    }

    /// Pumps until the connection ends; hands the handler back with the reason. It ends by itself, or once the outbox
    /// is finished or shut. Cancelling it loses what is unsent.
    pub async fn run(mut self) -> (H, End<H::Outgoing>) {
        let reason = match self.decode_received() {
            Ok(()) => poll_fn(|cx| self.poll_turn(cx)).await,
            Err(error) => error.into(),
        };
        // Only an end in order waits for the peer to read the rest.
        if matches!(reason, EndReason::Finished) {
            // The peer may be gone already; either way it is over.
            let _ = timeout(
                self.deadlines.stall,
                close(&mut self.stream, self.deadlines.close_quiet),
            )
            .await;
        }
        let written = self.write.written;
        let begun = |queued: &Queued<_>| queued.begin < written;
        // A message of which the socket has taken the first byte may have arrived: it is not among the unsent.
        let never_begun = self.write.in_flight.drain(..).skip_while(begun);
        let unsent = never_begun
            .map(|queued| queued.message)
            .chain(self.outbox.take_all())
            .collect();
        (self.handler, End { reason, unsent })
    }

    /// Everything that can be done now; ready when the connection has ended.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<EndReason> {
        let turn = self.poll_batches(cx);
        self.handler.turn_over();
        turn
    }

    /// Writes and reads by turns, until neither moves or the task has had its share; then looks at the deadlines.
    fn poll_batches(&mut self, cx: &mut Context<'_>) -> Poll<EndReason> {
        for _ in 0..self.budget.batches(BATCHES_PER_TURN) {
            let written = match self.poll_write(cx) {
                Poll::Ready(Err(reason)) => return Poll::Ready(self.end_of_writing(cx, reason)),
                Poll::Ready(Ok(())) => true,
                Poll::Pending => false,
            };
            let read = match self.poll_read(cx) {
                Poll::Ready(Err(reason)) => return Poll::Ready(reason),
                Poll::Ready(Ok(())) => true,
                Poll::Pending => false,
            };
            if !written && !read {
                return self.poll_deadlines(cx);
            }
        }
        cx.waker().wake_by_ref();
        self.poll_deadlines(cx)
    }

    /// Nothing can be written any more. What the peer sent before it left is still read.
    fn end_of_writing(&mut self, cx: &mut Context<'_>, reason: EndReason) -> EndReason {
        if matches!(reason, EndReason::Io(_)) {
            // A write that fails may have sent a part of what it was given: none of that is certainly unsent.
            self.write.in_flight.clear();
            for _ in 0..LAST_BATCHES {
                if !matches!(self.poll_read(cx), Poll::Ready(Ok(()))) {
                    break;
                }
            }
        }
        reason
    }

    /// Reads and handles one batch; pending when there is nothing to read, or the peer's budget is used up.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), EndReason>> {
        if self.budget.poll_ready(cx).is_pending() {
            self.is_paused = true;
            return Poll::Pending;
        }
        if std::mem::take(&mut self.is_paused) && self.frame_begun.is_some() {
            // It could not have completed the frame meanwhile.
            self.frame_begun = Some(Instant::now());
        }
        // With part of a frame left over the connection reads on in its own buffer.
        let is_fresh = self.incoming.is_empty();
        if is_fresh {
            self.incoming = spare::take_buffer();
        }
        let before = self.incoming.len();
        let batch = self.budget.batch(READ_BATCH);
        let mut result = Poll::Pending;
        while self.incoming.len() - before < batch {
            self.incoming.reserve(READ_CHUNK);
            // However much room there is: a read may fill all of it, and a batch is to end soon.
            let mut room = (&mut self.incoming).limit(READ_CHUNK);
            match pin!(self.stream.read_buf(&mut room)).poll(cx) {
                Poll::Ready(Ok(0)) => {
                    result = Poll::Ready(Err(EndReason::Closed));
                    break;
                }
                Poll::Ready(Ok(_)) => result = Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => {
                    result = Poll::Ready(Err(EndReason::of_read(error)));
                    break;
                }
                Poll::Pending => break,
            }
        }
        if self.incoming.len() > before
            && let Err(error) = self.decode_received()
        {
            return Poll::Ready(Err(error.into()));
        }
        if is_fresh || self.incoming.is_empty() {
            // Of a frame that is not all there it keeps what came.
            let rest = BytesMut::from(&self.incoming[..]);
            spare::give_back_buffer(std::mem::replace(&mut self.incoming, rest));
        }
        result
    }

    /// Decodes all whole messages in `incoming` and hands them on, those before an error included; notes since when a
    /// frame is incomplete.
    fn decode_received(&mut self) -> Result<(), DecodeError> {
        let mut messages = spare::take_messages();
        let result = loop {
            match self.decoder.decode_or_skip(&mut self.incoming) {
                Ok(Some(Received::TooLong(refused))) => {
                    // In the order in which they came.
                    if !messages.is_empty() {
                        self.handler.received(&mut messages);
                    }
                    self.frame_begun = None;
                    self.handler.too_long(refused);
                }
                Ok(Some(Received::Message(message))) => messages.push(message),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if !messages.is_empty() {
            self.frame_begun = None;
            self.handler.received(&mut messages);
        }
        spare::give_back_messages(messages);
        if !self.decoder.is_mid_message(&self.incoming) {
            self.frame_begun = None;
        } else if self.decoder.is_skipping() {
            // However long it takes: it takes no memory.
            self.frame_begun = Some(Instant::now());
        } else {
            self.frame_begun.get_or_insert_with(Instant::now);
        }
        result
    }

    /// Writes all that is queued; pending when the socket takes no more, or everything was written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), EndReason>> {
        let mut progress = false;
        loop {
            if self.write.bytes.is_empty() && !self.fill(cx)? {
                break;
            }
            match Pin::new(&mut self.stream).poll_write(cx, &self.write.bytes) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into()));
                }
                Poll::Ready(Ok(count)) => {
                    progress = true;
                    self.advance(count);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    if self.outbox.is_shut(cx) {
                        return Poll::Ready(Err(EndReason::Shut));
                    }
                    break;
                }
            }
        }
        progress |= self.poll_flush(cx)?;
        self.note_progress();
        if progress {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Encodes the next batch; `false` if nothing is queued.
    fn fill(&mut self, cx: &Context<'_>) -> Result<bool, EndReason> {
        let write = &mut self.write;
        match self.outbox.poll_take(cx, WRITE_BATCH, &mut write.in_flight) {
            Poll::Ready(NextWrite::Taken) => {}
            Poll::Ready(NextWrite::Shut) => return Err(EndReason::Shut),
            Poll::Ready(NextWrite::Finished) if write.needs_flush => return Ok(false),
            Poll::Ready(NextWrite::Finished) => return Err(EndReason::Finished),
            Poll::Pending => {
                write.bytes = BytesMut::new();
                write.in_flight = VecDeque::new();
                return Ok(false);
            }
        }
        write
            .bytes
            .reserve(write.in_flight.iter().map(|queued| queued.cost).sum());
        for queued in &mut write.in_flight {
            queued.begin = write.encoded;
            let before = write.bytes.len();
            self.handler
                .encode(&queued.message, &mut self.encoder, &mut write.bytes);
            write.encoded += (write.bytes.len() - before) as u64;
        }
        Ok(true)
    }

    /// The socket took `count` bytes: whatever they begin is written, as far as this side can tell.
    fn advance(&mut self, count: usize) {
        let write = &mut self.write;
        write.bytes.advance(count);
        write.written += count as u64;
        write.needs_flush = true;
        while write
            .in_flight
            .front()
            .is_some_and(|queued| queued.begin < write.written)
        {
            write.in_flight.pop_front();
        }
        if write.bytes.is_empty() {
            self.handler.written(self.outbox.bytes());
        }
    }

    /// Flushes the TLS layer once all bytes are handed to it; whether that was done.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<bool, EndReason> {
        if !self.write.needs_flush || !self.write.bytes.is_empty() {
            return Ok(false);
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.write.needs_flush = false;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error.into()),
            Poll::Pending => Ok(false),
        }
    }

    /// Notes when bytes last left, and tells the handler when a stalled queue moves again.
    fn note_progress(&mut self) {
        let write = &mut self.write;
        let is_waiting = !write.bytes.is_empty() || write.needs_flush;
        let has_moved = !is_waiting || write.written - write.progress_mark >= PROGRESS_LEN;
        if !is_waiting {
            write.waiting_since = None;
        } else if has_moved || write.waiting_since.is_none() {
            write.waiting_since = Some(Instant::now());
            write.progress_mark = write.written;
        }
        if has_moved && write.flow == Flow::Stalled {
            write.flow = Flow::Moving;
            self.handler.flow(Flow::Moving);
        }
    }

    /// Tells the handler, which may have the outbox give charges back; those of messages in flight follow.
    fn stall(&mut self) {
        self.write.flow = Flow::Stalled;
        self.handler.flow(Flow::Stalled);
        if self.outbox.releases_charges() {
            for queued in &mut self.write.in_flight {
                if queued.is_charged_to_others(&self.budget) {
                    queued.charge = None;
                }
            }
        }
    }

    /// When the frame that was begun must be complete; an error if it should be by now.
    fn reading_deadline(
        &mut self,
        cx: &Context<'_>,
        now: Instant,
    ) -> Result<Option<Instant>, EndReason> {
        let progress = self.deadlines.progress;
        // While the peer is not read from, an incomplete frame is not its fault.
        let (Some(begun), Poll::Ready(())) = (self.frame_begun, self.budget.poll_ready(cx)) else {
            return Ok(None);
        };
        if begun + progress > now {
            return Ok(Some(begun + progress));
        }
        if !self.stream.readiness().readable {
            return Err(EndReason::ReadStuck(progress));
        }
        // Nor if more of it is here, and this side has not come to reading it.
        self.frame_begun = Some(now);
        Ok(Some(now + progress))
    }

    /// When what waits must have moved; an error if it should have by now. Notes a stall.
    fn writing_deadline(&mut self, now: Instant) -> Result<Option<Instant>, EndReason> {
        let Deadlines {
            progress, stall, ..
        } = self.deadlines;
        let Some(mut since) = self.write.waiting_since else {
            return Ok(None);
        };
        let due = |flow| match flow {
            Flow::Moving => stall.min(progress),
            Flow::Stalled => progress,
        };
        if since + due(self.write.flow) <= now {
            if self.stream.readiness().writable {
                // It does take bytes, and this side has not come to writing them: the time begins again.
                since = now;
                self.write.waiting_since = Some(now);
                self.write.progress_mark = self.write.written;
            } else if since + progress <= now {
                return Err(EndReason::WriteStuck(progress));
            } else {
                self.stall();
            }
        }
        let due = since + due(self.write.flow);
        Ok(Some(self.allow_more(now).map_or(due, |next| next.min(due))))
    }

    /// While stalled, lets more be queued as time passes; when next.
    fn allow_more(&mut self, now: Instant) -> Option<Instant> {
        if self.write.flow == Flow::Moving {
            self.write.allowed_until = None;
            return None;
        }
        let until = self.write.allowed_until.get_or_insert(now);
        let passed = now.saturating_duration_since(*until);
        if passed >= ALLOW_EVERY {
            *until = now;
            let millis = usize::try_from(passed.as_millis()).unwrap_or(usize::MAX);
            self.outbox
                .allow_more((STALLED_RATE / 1000).saturating_mul(millis));
        }
        Some(*until + ALLOW_EVERY)
    }

    /// Looks at the deadlines in force, and arms the timer for the next.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<EndReason> {
        loop {
            let now = Instant::now();
            let reading = match self.reading_deadline(cx, now) {
                Ok(due) => due,
                Err(reason) => return Poll::Ready(reason),
            };
            let writing = match self.writing_deadline(now) {
                Ok(due) => due,
                Err(reason) => return Poll::Ready(reason),
            };
            let Some(due) = reading.into_iter().chain(writing).min() else {
                self.timer = None;
                return Poll::Pending;
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
