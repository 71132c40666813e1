//! The options of connections, and what the kernel says of one at this moment. The runtime says it later: it asks the
//! kernel between tasks, and the task then waits behind others. Code that judges a peer by what it takes and sends asks
//! here first.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::ahead::Ahead;
use super::peer::PROGRESS_DEADLINE;

/// How long what a client has sent may be unacknowledged by the other machine's kernel (`TCP_USER_TIMEOUT`). Without it
/// the kernel sends again for some 15 minutes, and does not ask whether the peer is there meanwhile: keepalive is for
/// connections on which nothing is under way. So a launcher, which reports every 6 s, notices within 36 s that its
/// network is gone.
pub(crate) const CLIENT_UNACKNOWLEDGED: Duration = PROGRESS_DEADLINE;

/// The same on the scheduler's side: a little longer, so that a peer that reads nothing is found by
/// [`PROGRESS_DEADLINE`], which says so.
pub(crate) const SERVER_UNACKNOWLEDGED: Duration =
    PROGRESS_DEADLINE.saturating_add(Duration::from_secs(5));

/// TCP keepalive, for connections on which nothing is under way: the first probe comes after 15 s of silence, then one
/// every 5 s. A machine that answers none is given up when it has been silent for as long as the option above says.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(8);

/// The next connection of a listening socket, with the options that every accepted connection has. Whatever is served,
/// and with TLS or without: all doors of all programs accept here. Dropping the future loses no connection.
///
/// # Errors
/// The system's, e.g. that it has run out of files.
pub async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|cx| poll_accept(listener, cx)).await
}

/// The same for several listeners that one task polls.
pub(crate) fn poll_accept(
    listener: &TcpListener,
    cx: &mut Context<'_>,
) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
    listener.poll_accept(cx).map_ok(|(tcp, from)| {
        // What is wrong with the connection shows when it is read.
        if let Err(error) = tune(&tcp, SERVER_UNACKNOWLEDGED) {
            debug!("{from}: {error}");
        }
        (tcp, from)
    })
}

/// Sets the options that every connection has: no delay, because frames and answers are written in as few calls as may
/// be, and the end of one would wait for the acknowledgement of its beginning, which the other machine delays;
/// keepalive and a limit of what is unacknowledged, because only the kernel can find out that a machine is
/// gone.
///
/// # Errors
/// The system's.
pub(crate) fn tune(socket: &impl AsFd, unacknowledged: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_tcp_user_timeout(Some(unacknowledged))
}

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

    use socket2::SockRef;

    use super::{CLIENT_UNACKNOWLEDGED, Readiness, SERVER_UNACKNOWLEDGED, accept, tune};

    #[tokio::test]
    async fn what_is_accepted_has_the_options_of_every_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, from) = accept(&listener).await.unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        let unacknowledged = socket.tcp_user_timeout().unwrap();
        assert_eq!(unacknowledged, Some(SERVER_UNACKNOWLEDGED));
    }

    #[test]
    fn a_machine_that_is_gone_is_noticed_whether_or_not_something_is_under_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for unacknowledged in [CLIENT_UNACKNOWLEDGED, SERVER_UNACKNOWLEDGED] {
            tune(&near, unacknowledged).unwrap();
            let socket = SockRef::from(&near);
            assert!(near.nodelay().unwrap() && socket.keepalive().unwrap());
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(unacknowledged));
            // The kernel gives up a silent machine when as much time has passed, and a probe was sent by then.
            let silence = socket.tcp_keepalive_time().unwrap();
            let probes =
                socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
            assert!(silence < unacknowledged && silence + probes >= unacknowledged);
        }
    }

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
