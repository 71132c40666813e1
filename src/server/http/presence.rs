//! A stream that notices, while an answer is made or written, that its client has left, and that lets one have its answer
//! that has only shut its sending half. For HTTP/1.1.
//!
//! hyper can do one of both: end a connection as soon as nothing more can be read of it, or read nothing at all until
//! the answer is out, also of a client that is gone. So it is told to do the second, and this reads meanwhile:
//!
//! ```text
//! hyper ── poll_flush, whenever an answer may go on ──▶ reads a byte ahead ──┬── nothing yet    the client is there
//!                                                                            ├── a byte         kept for the next read
//!                                                                            ├── shut           HALF_CLOSED_DEADLINE begins
//!                                                                            └── broken off     the connection ends
//! ```
//!
//! A client that ends without shutting TLS has left; one that has shut it may have left as well, which only writing
//! would show. So it is given as long as the longest wait for an outcome.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::limits::HALF_CLOSED_DEADLINE;

/// A connection, and what was seen of its client ahead of being asked for.
#[derive(Debug)]
pub(super) struct Presence<S> {
    stream: S,
    client: Client,
}

/// What is known of the client.
#[derive(Debug)]
enum Client {
    /// It has sent all that was read so far, and may send more.
    There,
    /// It has sent this, which was not asked for yet. What is behind it is not looked at.
    HasSent(u8),
    /// It sends nothing more, and gets its answers until then.
    HasShut(Pin<Box<Sleep>>),
}

impl<S> Presence<S> {
    /// Wraps a connection of which nothing was read ahead yet.
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            client: Client::There,
        }
    }
}

impl<S: AsyncRead + Unpin> Presence<S> {
    /// Looks whether the client is there. Wakes the task when that changes.
    ///
    /// # Errors
    /// It is not, or has shut its sending half for too long.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Client::There = self.client {
            let mut byte = [0];
            let mut room = ReadBuf::new(&mut byte);
            if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, &mut room) {
                read?;
                self.client = match room.filled() {
                    [byte, ..] => Client::HasSent(*byte),
                    [] => Client::HasShut(Box::pin(sleep(HALF_CLOSED_DEADLINE))),
                };
            }
        }
        if let Client::HasShut(until) = &mut self.client
            && until.as_mut().poll(cx).is_ready()
        {
            let late = format!("its sending half was shut for {HALF_CLOSED_DEADLINE:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, late));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Presence<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.client {
            Client::HasSent(byte) if buf.remaining() > 0 => {
                buf.put_slice(&[byte]);
                this.client = Client::There;
                // What is behind it, if it is there: else chunks of a body would begin with one of a byte. What this
                // says besides is said again when it is asked next.
                let _ = Pin::new(&mut this.stream).poll_read(cx, buf);
                Poll::Ready(Ok(()))
            }
            Client::HasShut(_) => Poll::Ready(Ok(())),
            _ => Pin::new(&mut this.stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Presence<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    /// A flush, which hyper asks for after each turn of its work, with or without something to write.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.look(cx)?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::Instant;

    use super::*;

    /// Flushes as often as the stream asks for it, until it has failed; with which error.
    async fn flushed_until_it_fails(stream: &mut Presence<tokio::io::DuplexStream>) -> io::Error {
        std::future::poll_fn(|cx| match Pin::new(&mut *stream).poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            _ => Poll::Pending,
        })
        .await
    }

    #[tokio::test]
    async fn what_is_read_ahead_comes_first_and_with_what_is_behind_it() {
        let (mut theirs, ours) = duplex(16);
        let mut ours = Presence::new(ours);
        theirs.write_all(b"abc").await.unwrap();
        ours.flush().await.unwrap();
        ours.flush().await.unwrap();
        let mut room = [0; 8];
        assert_eq!(ours.read(&mut room).await.unwrap(), 3);
        assert_eq!(&room[..3], b"abc");
        theirs.write_all(b"d").await.unwrap();
        drop(theirs);
        ours.flush().await.unwrap();
        assert_eq!(ours.read(&mut room).await.unwrap(), 1);
        assert_eq!(ours.read(&mut room).await.unwrap(), 0);
    }

    /// A client that has left without a word: reading fails, writing does not yet.
    struct Gone;

    impl AsyncRead for Gone {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    impl AsyncWrite for Gone {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_client_that_has_left_without_a_word_is_written_to_no_more() {
        let error = Presence::new(Gone).flush().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_more_is_written_to_for_a_time() {
        let (mut theirs, ours) = duplex(16);
        let mut ours = Presence::new(ours);
        theirs.shutdown().await.unwrap();
        ours.flush().await.unwrap();
        let begun = Instant::now();
        ours.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        theirs.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        assert_eq!(ours.read(&mut [0]).await.unwrap(), 0);
        let error = flushed_until_it_fails(&mut ours).await;
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= HALF_CLOSED_DEADLINE);
    }
}
