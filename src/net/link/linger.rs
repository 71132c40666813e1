//! A stream that closes without losing what it wrote last.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes thrown away at once while waiting for the peer to close.
const DISCARD_LEN: usize = 4 * 1024;

/// Passes everything through, but a shutdown is complete only when the peer has closed too.
///
/// A socket that is dropped with unread bytes resets the connection, and the system then throws away what it had not
/// sent yet: frames that were "written" would be lost. So what still comes is read and thrown away first.
#[derive(Debug)]
pub(super) struct Linger<S>(pub(super) S);

impl<S: AsyncRead + Unpin> AsyncRead for Linger<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.0).poll_shutdown(cx))?;
        let mut space = [0; DISCARD_LEN];
        loop {
            let mut discarded = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut self.0).poll_read(cx, &mut discarded))?;
            if discarded.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
