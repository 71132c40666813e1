//! Reads ahead: what is asked of a connection in small pieces is taken from the kernel in large ones.
//!
//! The TLS layer reads 4 KiB at a time, which is one system call for every three reports of a launcher. Below it stands
//! this: it reads into its thread's buffer and keeps that only while a part of it has not been asked for. So an idle
//! connection has none.
//!
//! ```text
//! rustls ── poll_read(4 KiB) ──▶ Ahead ── poll_read(16 KiB) ──▶ TcpStream        writes pass through
//! ```

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes taken from the kernel at once: what is read of a launcher in one go. A launcher that is held by long queues
/// may keep as many, as its socket keeps more.
const AHEAD_LEN: usize = 16 * 1024;

thread_local! {
    /// The buffer of a thread's connections, which is with one of them while that has something left in it.
    static BUFFER: Cell<Box<[u8]>> = Cell::default();
}

/// A connection that is read ahead. Stands between the TLS layer and the socket on the server's side.
#[derive(Debug)]
pub(crate) struct Ahead<S> {
    inner: S,
    /// What was read and not asked for yet stands in here, from `begin` to `end`; empty if nothing was.
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl<S> Ahead<S> {
    /// A connection of which nothing was read yet; takes no memory for a buffer.
    pub(crate) fn new(inner: S) -> Self {
        Self {
            inner,
            buffer: Box::default(),
            begin: 0,
            end: 0,
        }
    }

    /// The connection itself. What was read ahead does not come from it any more.
    pub(crate) fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Whether something was read that was not asked for yet. The kernel then says that there is nothing to read
    /// although there is: `readiness` asks for both.
    pub(crate) fn has_rest(&self) -> bool {
        self.begin < self.end
    }

    /// Hands out what was read, as far as there is room for it. Gives the buffer back to the thread once all of it is
    /// handed out.
    fn hand_out(&mut self, buf: &mut ReadBuf<'_>) {
        let len = buf.remaining().min(self.end - self.begin);
        buf.put_slice(&self.buffer[self.begin..self.begin + len]);
        self.begin += len;
        if self.begin == self.end {
            BUFFER.set(std::mem::take(&mut self.buffer));
        }
    }
}

impl<S: AsFd> AsFd for Ahead<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Reads into the caller's buffer directly where that has room for as much. An end or an error is passed on when it is
/// met, which is after all that came before it.
impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.has_rest() {
            // No use in a buffer between: the caller's is as large.
            if buf.remaining() >= AHEAD_LEN {
                return Pin::new(&mut this.inner).poll_read(cx, buf);
            }
            let mut buffer = BUFFER.take();
            if buffer.is_empty() {
                buffer = vec![0; AHEAD_LEN].into();
            }
            let mut room = ReadBuf::new(&mut buffer);
            let read = Pin::new(&mut this.inner).poll_read(cx, &mut room);
            let len = room.filled().len();
            // Nothing to read for now, the end, or a failure: the thread's buffer goes back.
            if len == 0 {
                BUFFER.set(buffer);
                return read;
            }
            (this.buffer, this.begin, this.end) = (buffer, 0, len);
            ready!(read)?;
        }
        this.hand_out(buf);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use tokio::io::{AsyncRead, ReadBuf};

    use super::{AHEAD_LEN, Ahead, BUFFER};

    /// A connection that has these, one for each time that the kernel is asked; then nothing for now.
    #[derive(Default)]
    struct Kernel {
        answers: VecDeque<io::Result<Vec<u8>>>,
        asked: usize,
    }

    impl AsyncRead for Kernel {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.asked += 1;
            match self.answers.pop_front() {
                None => Poll::Pending,
                Some(answer) => Poll::Ready(answer.map(|bytes| buf.put_slice(&bytes))),
            }
        }
    }

    /// What is read into room for so many bytes.
    fn read(ahead: &mut Ahead<Kernel>, room: usize) -> Poll<io::Result<Vec<u8>>> {
        let mut bytes = vec![0; room];
        let mut buf = ReadBuf::new(&mut bytes);
        let read = Pin::new(ahead).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf);
        read.map_ok(|()| buf.filled().to_vec())
    }

    fn ahead(answers: impl IntoIterator<Item = io::Result<Vec<u8>>>) -> Ahead<Kernel> {
        Ahead::new(Kernel {
            answers: answers.into_iter().collect(),
            asked: 0,
        })
    }

    /// Whether the thread's buffer is there for the next connection.
    fn is_free() -> bool {
        let buffer = BUFFER.take();
        let is_free = buffer.len() == AHEAD_LEN;
        BUFFER.set(buffer);
        is_free
    }

    #[test]
    fn small_reads_are_served_from_one_large_one_in_order() {
        let sent: Vec<u8> = (0..AHEAD_LEN).map(|at| (at / 251) as u8).collect();
        let mut ahead = ahead([Ok(sent.clone()), Ok(b"more".to_vec())]);
        let mut got = Vec::new();
        while let Poll::Ready(Ok(bytes)) = read(&mut ahead, 1000) {
            assert!(!bytes.is_empty());
            assert_eq!(
                is_free(),
                ahead.get_mut().asked > 1 || got.len() + bytes.len() == AHEAD_LEN
            );
            got.extend(bytes);
        }
        assert_eq!(got, [&sent[..], b"more"].concat());
        // Once for each answer, and once to see that there is no more.
        assert_eq!(ahead.get_mut().asked, 3);
        assert!(is_free(), "an idle connection keeps none");
        assert!(!ahead.has_rest());
    }

    #[test]
    fn a_reader_that_has_room_for_as_much_reads_without_a_buffer() {
        let mut ahead = ahead([Ok(vec![1; AHEAD_LEN])]);
        let Poll::Ready(Ok(bytes)) = read(&mut ahead, AHEAD_LEN) else {
            panic!("it is there")
        };
        assert_eq!(bytes.len(), AHEAD_LEN);
        assert!(!ahead.has_rest());
    }

    #[test]
    fn ends_and_failures_come_after_what_was_sent_before_them() {
        let broken = Err(io::Error::from(io::ErrorKind::ConnectionReset));
        let mut ahead = ahead([Ok(b"last".to_vec()), Ok(Vec::new()), broken]);
        let mut next = |room| match read(&mut ahead, room) {
            Poll::Ready(read) => read.map_err(|error| error.kind()),
            Poll::Pending => panic!("there is more"),
        };
        assert_eq!(next(2), Ok(b"la".to_vec()));
        assert_eq!(next(100), Ok(b"st".to_vec()));
        assert_eq!(next(100), Ok(Vec::new()), "closed");
        assert_eq!(next(100), Err(io::ErrorKind::ConnectionReset));
        assert!(is_free());
    }
}
