//! A connection that knows when its peer was last heard, as long as its handshake lasts: so that a peer that is slow
//! can be told from a scheduler that is.
//!
//! It stands below TLS, so that every byte counts, whole records or not.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::net::fence::{Fence, Fenced};

/// When a peer was last heard. Shared by the connection, which notes, and the task that watches the handshake, which
/// asks. The lock is held for a copy.
#[derive(Debug, Clone)]
pub(super) struct LastHeard(Arc<Mutex<Instant>>);

impl LastHeard {
    /// With the present time.
    pub(super) fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// How long ago that was.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.lock().elapsed()
    }
}

/// A TCP connection that notes when something came.
#[derive(Debug)]
pub(super) struct Timed {
    tcp: TcpStream,
    /// `None` once the handshake is over.
    heard: Option<LastHeard>,
    /// Where nothing may be sent at times.
    fenced: Option<Fenced>,
}

impl Timed {
    /// A connection that was just accepted. With a fence, nothing is written while that is shut: neither frames nor
    /// what TLS has to say.
    pub(super) fn new(tcp: TcpStream, heard: LastHeard, fence: Option<Arc<Fence>>) -> Self {
        Self {
            tcp,
            heard: Some(heard),
            fenced: fence.map(Fenced::new),
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.fenced {
            Some(fenced) => fenced.poll_open(cx),
            None => Poll::Ready(()),
        }
    }

    /// Notes nothing any more: a session costs no clock.
    pub(super) fn end_of_handshake(&mut self) {
        self.heard = None;
    }
}

impl AsFd for Timed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(cx, buf);
        if let Some(LastHeard(heard)) = &self.heard
            && buf.filled().len() > before
        {
            *heard.lock() = Instant::now();
        }
        read
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx));
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx));
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
