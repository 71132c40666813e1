//! A stream whose writes end with an error when the peer takes nothing for too long.
//!
//! Without it a client that stops reading an answer keeps its connection, its buffers and its place for ever: hyper has
//! deadlines for reading requests, not for writing answers. Sessions of frames have the same deadline
//! (`--progress-deadline`) in their own writer. Also used by the Placement API.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Passes reads and writes on to `stream`. Reads have no deadline here; a peer may be silent while it waits for events.
#[derive(Debug)]
pub(in crate::server) struct Progress<S> {
    stream: S,
    /// How long one write may make no progress.
    deadline: Duration,
    /// Runs while a write waits; `None` while none does, so that a connection that is written well costs no timer.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Progress<S> {
    /// Wraps a stream. Nothing is timed until a write has to wait.
    pub(in crate::server) fn new(stream: S, deadline: Duration) -> Self {
        Self {
            stream,
            deadline,
            stalled: None,
        }
    }

    /// Watches one write, flush or shutdown: any that completes stops the clock, one that is pending starts it, and
    /// once it has run out the pending one fails with `TimedOut`. hyper then ends the connection.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        // Only used if no clock runs yet.
        let until = Instant::now() + self.deadline;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        ready!(stalled.as_mut().poll(cx));
        let late = format!("nothing was taken for {:?}", self.deadline);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, late)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Progress<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Progress<S> {
    /// A write. One byte that is taken is progress.
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.watch(cx, written)
    }

    /// A flush, which writes what TLS still holds.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.watch(cx, flushed)
    }

    /// The end of the writing side, which waits for what is still to be written.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.watch(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_write_that_nobody_takes_fails_and_one_that_is_taken_does_not() {
        let (ours, mut theirs) = duplex(8);
        let mut stream = Progress::new(ours, Duration::from_millis(50));
        stream.write_all(&[0; 8]).await.unwrap();
        let error = stream.write_all(&[0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        theirs.read_exact(&mut [0; 8]).await.unwrap();
        stream.write_all(&[0; 8]).await.unwrap();
    }
}
