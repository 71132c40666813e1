//! Many senders and the one receiver that all of them write to, on a runtime of this file: tasks are polled one at a
//! time in the order they were woken, and what counts is turns and bytes, not time.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use proto_frames::{Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Uuid};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::net::budget::{Pace, REPORT_BATCH};
use crate::net::outbox::LONG_QUEUE;
use crate::net::socket::Readiness;

/// Senders.
const SENDERS: usize = 400;

/// Frames of each of them, of [`FRAME_LEN`] bytes: as many as its budget takes.
const FRAMES: usize = 200;

const FRAME_LEN: usize = 1024;

/// A launcher's budget.
const BUDGET: usize = 256 * 1024;

/// Bytes that the receiver's socket takes until the receiver has read them.
const SOCKET_LEN: usize = 1024 * 1024;

/// Tasks polled between two looks at what the kernel has to say (the runtime's own default).
const LOOK_EVERY: usize = 61;

/// Bytes that one read asks for. A sender's socket yields as many: a batch does not become longer for it.
const READ_LEN: usize = READ_CHUNK;

/// The tasks that were woken, in that order.
type RunQueue = Arc<Mutex<VecDeque<usize>>>;

struct Task {
    number: usize,
    is_queued: AtomicBool,
    queue: RunQueue,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            self.queue.lock().push_back(self.number);
        }
    }
}

/// A sender's connection: its bytes are all there from the beginning.
struct Full(Bytes, Arc<AtomicUsize>);

impl AsyncRead for Full {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = self.0.len().min(buf.remaining());
        if len == 0 {
            return Poll::Pending;
        }
        buf.put_slice(&self.0.split_to(len));
        self.1.fetch_add(len, Ordering::SeqCst);
        Poll::Ready(Ok(()))
    }
}

/// The receiver's connection. What was written to it is read at once; the runtime hears of that only when it looks.
#[derive(Default)]
struct Kernel {
    len: usize,
    written: usize,
    writer: Option<Waker>,
}

struct Receiver(Arc<Mutex<Kernel>>);

impl AsyncRead for Receiver {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Receiver {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut kernel = self.0.lock();
        let len = bytes.len().min(SOCKET_LEN - kernel.len);
        if len == 0 {
            kernel.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        kernel.len += len;
        kernel.written += len;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Socket for Receiver {
    fn readiness(&self) -> Readiness {
        Readiness {
            readable: false,
            writable: true,
        }
    }
}

impl AsyncWrite for Full {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Socket for Full {
    fn readiness(&self) -> Readiness {
        Readiness {
            readable: !self.0.is_empty(),
            writable: true,
        }
    }
}

/// What passes on every frame to the receiver, charged to its sender, as the daemon does with reports.
struct Relay {
    to: Arc<Outbox<Frame>>,
    own: Arc<Budget>,
    wakers: Vec<Waker>,
    /// Frames encoded for the receiver, by sender.
    sent: Arc<Mutex<Vec<usize>>>,
    is_stalled: Arc<AtomicBool>,
}

impl Handler for Relay {
    type Outgoing = Frame;

    fn received(&mut self, messages: &mut Vec<Message>) {
        for message in messages.drain(..) {
            if let Message::Frame(frame) = message {
                let cost = frame.payload.len();
                let charge = Some(self.own.charge(cost));
                let pushed = self.to.push(frame, cost, charge).unwrap();
                self.wakers.extend(pushed.writer);
            }
        }
    }

    fn encode(&mut self, frame: &Frame, encoder: &mut Encoder, dst: &mut BytesMut) {
        // The native encoding has no sender in a frame.
        let (sender, _) = frame.payload.split_first_chunk().unwrap();
        self.sent.lock()[usize::from_be_bytes(*sender)] += 1;
        encoder.encode_frame(frame, dst);
    }

    fn turn_over(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn flow(&mut self, _: Flow) {
        self.is_stalled.store(true, Ordering::SeqCst);
    }
}

/// What a sender has to say: the opening and its frames.
fn words(sender: usize) -> Bytes {
    let mut bytes = BytesMut::new();
    let mut encoder = Encoder::new(Encoding::Native);
    let connected = Connected::new(Uuid::nil(), Uuid::nil(), Bytes::new());
    encoder.encode(&Message::Connected(connected), &mut bytes);
    let mut payload = vec![b'x'; FRAME_LEN];
    payload[..size_of::<usize>()].copy_from_slice(&sender.to_be_bytes());
    let frame = Frame::new(Kind::STATS, Uuid::nil(), payload);
    for _ in 0..FRAMES {
        encoder.encode_frame(&frame, &mut bytes);
    }
    bytes.freeze()
}

/// What a task runs.
type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The receiver, the senders, and what they did.
struct World {
    queue: RunQueue,
    tasks: Vec<(Work, Arc<Task>)>,
    outbox: Arc<Outbox<Frame>>,
    kernel: Arc<Mutex<Kernel>>,
    read: Arc<AtomicUsize>,
    sent: Arc<Mutex<Vec<usize>>>,
    is_stalled: Arc<AtomicBool>,
    /// The most bytes that were ever queued.
    longest: usize,
    /// The most bytes that were read from the moment in which the receiver's task was woken until it was polled.
    most_before_write: usize,
    /// The most frames that one sender was ever ahead of another.
    furthest_ahead: usize,
}

/// The receiver's task; the senders' are behind it.
const RECEIVER: usize = 0;

impl World {
    fn new() -> Self {
        let own = Budget::new(BUDGET, Pace::Budget);
        let mut world = Self {
            queue: RunQueue::default(),
            tasks: Vec::new(),
            outbox: Arc::new(Outbox::new(Arc::clone(&own))),
            kernel: Arc::default(),
            read: Arc::default(),
            sent: Arc::new(Mutex::new(vec![0; SENDERS])),
            is_stalled: Arc::default(),
            longest: 0,
            most_before_write: 0,
            furthest_ahead: 0,
        };
        let receiver = Receiver(Arc::clone(&world.kernel));
        world.add(receiver, Arc::clone(&world.outbox), own);
        for sender in 0..SENDERS {
            let own = Budget::new(BUDGET, Pace::Queues);
            let socket = Full(words(sender), Arc::clone(&world.read));
            world.add(socket, Arc::new(Outbox::new(Arc::clone(&own))), own);
        }
        world
    }

    fn add(&mut self, socket: impl Socket + 'static, outbox: Arc<Outbox<Frame>>, own: Arc<Budget>) {
        let relay = Relay {
            to: Arc::clone(&self.outbox),
            own: Arc::clone(&own),
            wakers: Vec::new(),
            sent: Arc::clone(&self.sent),
            is_stalled: Arc::clone(&self.is_stalled),
        };
        let codec = (
            Decoder::client(Encoding::Native, Limits::default()),
            Encoder::new(Encoding::Native),
        );
        let peer = Peer::new(
            socket,
            relay,
            codec,
            BytesMut::new(),
            (outbox, own),
            Deadlines::default(),
        );
        let task = Arc::new(Task {
            number: self.tasks.len(),
            is_queued: AtomicBool::new(false),
            queue: Arc::clone(&self.queue),
        });
        Arc::clone(&task).wake();
        let run = Box::pin(async move { drop(peer.run().await) });
        self.tasks.push((run, task));
    }

    /// Polls tasks until none is woken any more.
    fn run(&mut self) {
        let mut woken_at = None;
        for polls in 0.. {
            let next = self.queue.lock().pop_front();
            if next.is_none() || polls % LOOK_EVERY == 0 {
                let mut kernel = self.kernel.lock();
                if let Some(writer) = kernel.writer.take() {
                    kernel.len = 0;
                    writer.wake();
                }
            }
            if self.tasks[RECEIVER].1.is_queued.load(Ordering::SeqCst) {
                woken_at.get_or_insert_with(|| self.read.load(Ordering::SeqCst));
            }
            let Some(next) = next else {
                if self.queue.lock().is_empty() {
                    return;
                }
                continue;
            };
            if next == RECEIVER
                && let Some(before) = woken_at.take()
            {
                let read = self.read.load(Ordering::SeqCst) - before;
                self.most_before_write = self.most_before_write.max(read);
            }
            let (task, waker) = &mut self.tasks[next];
            waker.is_queued.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(waker));
            let ended = task.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(ended.is_pending(), "no connection ends");
            self.longest = self.longest.max(self.outbox.bytes());
            let sent = self.sent.lock();
            let unfinished = sent.iter().filter(|&&count| count < FRAMES);
            if let Some(least) = unfinished.min() {
                let most = sent.iter().max().unwrap_or(least);
                self.furthest_ahead = self.furthest_ahead.max(most - least);
            }
        }
    }
}

#[tokio::test]
async fn many_that_write_to_one_take_turns_and_its_writer_does_not_wait_for_all_they_have() {
    let mut world = World::new();
    world.run();
    assert_eq!(*world.sent.lock(), [FRAMES; SENDERS]);
    assert_eq!(world.outbox.bytes(), 0);
    assert!(!world.is_stalled.load(Ordering::SeqCst));
    // All of them may read one batch before the first of them is back in the run queue. A batch ends with a read.
    let batches = SENDERS * (REPORT_BATCH + READ_LEN);
    let (longest, before_write) = (world.longest, world.most_before_write);
    assert!(longest <= LONG_QUEUE + batches, "{longest} bytes queued");
    assert!(
        before_write <= LONG_QUEUE + batches,
        "{before_write} bytes read while the writer waited"
    );
    // The first turn of each, and a batch in the next.
    let ahead = 5 * (REPORT_BATCH + READ_LEN) / FRAME_LEN;
    assert!(
        world.furthest_ahead <= ahead,
        "{} frames",
        world.furthest_ahead
    );
}
