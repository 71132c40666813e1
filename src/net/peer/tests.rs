//! Peers that read too little, and peers that cannot be written to any more.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto_frames::{Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Uuid};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};

use super::*;
use crate::net::budget::Pace;
use crate::net::socket::Readiness;

/// Notes what it is told.
#[derive(Debug, Default)]
struct Notes {
    received: usize,
    stalls: usize,
}

impl Handler for Notes {
    type Outgoing = Frame;

    fn received(&mut self, messages: &mut Vec<Message>) {
        self.received += messages.len();
        messages.clear();
    }

    fn encode(&mut self, frame: &Frame, encoder: &mut Encoder, dst: &mut BytesMut) {
        encoder.encode_frame(frame, dst);
    }

    fn flow(&mut self, flow: Flow) {
        self.stalls += usize::from(flow == Flow::Stalled);
    }
}

fn frame(len: usize) -> Frame {
    Frame::new(Kind::STATS, Uuid::nil(), vec![b'x'; len])
}

/// A peer with `queued` frames of 1 KiB to write; nothing that it does takes longer than `progress`.
fn peer<S>(stream: S, queued: usize, progress: Duration) -> Peer<S, Notes>
where
    S: Socket,
{
    let budget = Budget::new(1024, Pace::Budget);
    let outbox = Arc::new(Outbox::new(Arc::clone(&budget)));
    for _ in 0..queued {
        outbox.push(frame(1024), 1024, None).unwrap();
    }
    let codec = (
        Decoder::client(Encoding::Native, Limits::default()),
        Encoder::new(Encoding::Native),
    );
    let deadlines = Deadlines {
        close_quiet: progress,
        progress,
        stall: progress / 4,
    };
    let queue = (outbox, budget);
    Peer::new(
        stream,
        Notes::default(),
        codec,
        BytesMut::new(),
        queue,
        deadlines,
    )
}

#[tokio::test]
async fn a_peer_that_reads_a_byte_now_and_then_is_given_up_and_stalls_once() {
    let (near, mut far) = duplex(16);
    let trickle = tokio::spawn(async move {
        let mut now_and_then = tokio::time::interval(Duration::from_millis(1));
        while far.read_u8().await.is_ok() {
            now_and_then.tick().await;
        }
    });
    let run = peer(near, 1000, Duration::from_millis(200)).run();
    let (notes, end) = timeout(Duration::from_secs(60), run)
        .await
        .expect("it is given up");
    assert!(matches!(end.reason, EndReason::WriteStuck(_)));
    assert_eq!(notes.stalls, 1);
    assert!(end.unsent.len() > 900, "{}", end.unsent.len());
    trickle.abort();
}

impl Socket for DuplexStream {
    /// A poll is answered at once: there is never more to know.
    fn readiness(&self) -> Readiness {
        Readiness::default()
    }
}

#[tokio::test]
async fn after_a_failed_write_the_last_words_are_heard_and_what_was_tried_is_in_doubt() {
    let mut said = BytesMut::new();
    let mut encoder = Encoder::new(Encoding::Native);
    let connected = Connected::new(Uuid::nil(), Uuid::nil(), Bytes::new());
    encoder.encode(&Message::Connected(connected), &mut said);
    for _ in 0..300 {
        encoder.encode_frame(&frame(1000), &mut said);
    }
    // What the other end has said can still be read once it is gone; nothing can be written to it.
    let (mut other, socket) = duplex(said.len());
    other.write_all(&said).await.unwrap();
    drop(other);
    let (notes, end) = peer(socket, 100, PROGRESS_DEADLINE).run().await;
    assert!(matches!(end.reason, EndReason::Io(_)));
    assert_eq!(notes.received, 301);
    // One batch of 64 frames had been tried.
    assert_eq!(end.unsent.len(), 36);
}

/// A connection that takes and has bytes, of which the runtime tells only when the kernel was asked so many times.
struct Unheard {
    until_told: Cell<usize>,
    bytes: BytesMut,
    task: Cell<Option<Waker>>,
}

impl Unheard {
    fn new(bytes: BytesMut) -> Self {
        Self {
            until_told: Cell::new(10),
            bytes,
            task: Cell::default(),
        }
    }

    fn poll_told(&self, cx: &Context<'_>) -> Poll<()> {
        if self.until_told.get() == 0 {
            return Poll::Ready(());
        }
        self.task.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Socket for Unheard {
    fn readiness(&self) -> Readiness {
        self.until_told.set(self.until_told.get() - 1);
        if self.until_told.get() == 0
            && let Some(task) = self.task.take()
        {
            task.wake();
        }
        Readiness {
            readable: true,
            writable: true,
        }
    }
}

impl AsyncRead for Unheard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // At the end of its bytes it is closed.
        self.poll_told(cx).map(|()| {
            let len = self.bytes.len().min(buf.remaining());
            buf.put_slice(&self.bytes.split_to(len));
            Ok(())
        })
    }
}

impl AsyncWrite for Unheard {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_told(cx).map(|()| Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_peer_whose_writer_had_no_turn_does_not_count_as_one_that_does_not_read() {
    let peer = peer(Unheard::new(BytesMut::new()), 100, Duration::from_millis(4));
    let (notes, end) = peer.run().await;
    // Only after all was written is it read from, and closed.
    assert!(matches!(end.reason, EndReason::Closed), "{:?}", end.reason);
    assert_eq!(notes.stalls, 0);
    assert!(end.unsent.is_empty());
}

#[tokio::test]
async fn a_frame_that_came_and_was_not_read_yet_counts_as_come() {
    let mut bytes = BytesMut::new();
    let connected = Connected::new(Uuid::nil(), Uuid::nil(), Bytes::new());
    let mut encoder = Encoder::new(Encoding::Native);
    encoder.encode(&Message::Connected(connected), &mut bytes);
    let rest = bytes.split_off(1);
    let mut peer = peer(Unheard::new(rest), 0, Duration::from_millis(4));
    peer.incoming = bytes;
    let (notes, end) = peer.run().await;
    assert!(matches!(end.reason, EndReason::Closed), "{:?}", end.reason);
    assert_eq!(notes.received, 1);
}
