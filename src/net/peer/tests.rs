//! Peers that read too little, and peers that cannot be written to any more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use proto_frames::{Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Uuid};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, duplex};

use super::*;

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
    S: AsyncRead + AsyncWrite + Unpin,
{
    let outbox = Arc::new(Outbox::default());
    for _ in 0..queued {
        outbox.push(frame(1024), 1024, None).unwrap();
    }
    let codec = (
        Decoder::client(Encoding::Native, Limits::default()),
        Encoder::new(Encoding::Native),
    );
    let deadlines = Deadlines {
        progress,
        stall: progress / 4,
    };
    let queue = (outbox, Budget::new(1024));
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

/// Says something, and takes nothing.
struct Deaf(BytesMut);

impl AsyncRead for Deaf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = self.0.len().min(buf.remaining());
        buf.put_slice(&self.0.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
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
    let (notes, end) = peer(Deaf(said), 100, PROGRESS_DEADLINE).run().await;
    assert!(matches!(end.reason, EndReason::Io(_)));
    assert_eq!(notes.received, 301);
    // One batch of 64 frames had been tried.
    assert_eq!(end.unsent.len(), 36);
}
