//! What the kernel says of a connection at this moment. The runtime says it later: it asks the kernel between tasks,
//! and the task then waits behind others. Code that judges a peer by what it takes and sends asks here first.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::ahead::Ahead;

/// A connection whose state can be asked for: TLS over TCP in the programs, streams in memory in tests.
pub trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// What it would do at once. One system call, without waiting.
    fn readiness(&self) -> Readiness;
}

/// What a connection would do at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Hand out bytes, or an end. Not if the socket has failed.
    pub readable: bool,
    /// Take bytes. Not if the socket has failed: nothing would move.
    pub writable: bool,
}

impl Readiness {
    /// A socket's; nothing if the kernel does not know it, or it has failed. `poll` with a timeout of 0. A connection
    /// that is closed both ways counts as neither.
    fn of(socket: impl AsFd) -> Self {
        let mut asked = [PollFd::new(&socket, PollFlags::IN | PollFlags::OUT)];
        match poll(&mut asked, Some(&Timespec::default())) {
            Ok(_) => {
                let found = asked[0].revents();
                let is_over = found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
                Self {
                    readable: !is_over && found.contains(PollFlags::IN),
                    writable: !is_over && found.contains(PollFlags::OUT),
                }
            }
            Err(_) => Self::default(),
        }
    }
}

impl<S: AsFd + AsyncRead + AsyncWrite + Unpin> Socket
    for tokio_rustls::server::TlsStream<Ahead<S>>
{
    fn readiness(&self) -> Readiness {
        let ahead = self.get_ref().0;
        let kernel = Readiness::of(ahead);
        Readiness {
            readable: kernel.readable || ahead.has_rest(),
            ..kernel
        }
    }
}

/// A client's side, which reads from the socket directly.
impl Socket for tokio_rustls::client::TlsStream<TcpStream> {
    fn readiness(&self) -> Readiness {
        Readiness::of(self.get_ref().0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::Readiness;

    #[test]
    fn a_socket_is_writable_until_nothing_more_fits_and_readable_once_something_came() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let idle = Readiness {
            readable: false,
            writable: true,
        };
        assert_eq!(Readiness::of(&near), idle);
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        // What the far end acknowledges late makes room once more.
        while Readiness::of(&near).writable {
            written += near.write(&[0; 64 * 1024]).unwrap_or(0);
        }
        far.write_all(b"x").unwrap();
        while !Readiness::of(&near).readable {
            std::thread::yield_now();
        }
        let mut read = vec![0; written];
        far.read_exact(&mut read).unwrap();
        while !Readiness::of(&near).writable {
            std::thread::yield_now();
        }
    }
}
