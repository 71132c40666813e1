//! TCP connections to the addresses of one name: staggered, so that an address that answers nothing costs a moment and
//! not the whole time there is (as RFC 8305 has it, "happy eyeballs").
//!
//! ```text
//! first address   SYN ······ nothing ·························
//! second address      250 ms ─▶ SYN, SYN/ACK ─▶ connected
//! ```
//!
//! Nothing is known of TLS here. What is left of the other tries goes on until [`Dials`] is dropped, so that the next
//! connection is there soon where the first turns out not to help.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::socket::{CLIENT_UNACKNOWLEDGED, tune};

/// Time between two tries, unless the earlier one fails before: what RFC 8305 recommends. Longer than most round trips,
/// so that the address that the resolver prefers is used where it works.
pub(crate) const STAGGER: Duration = Duration::from_millis(250);

/// One try: the address, and its connection or why there is none.
type Dialled = (SocketAddr, io::Result<TcpStream>);

/// Tries to connect to several addresses.
#[derive(Debug)]
pub(crate) struct Dials {
    /// Addresses that were not tried yet, in the resolver's order.
    waiting: VecDeque<SocketAddr>,
    /// Tries under way; dropping it gives them up.
    going: JoinSet<Dialled>,
    /// When the next may begin.
    next_at: Instant,
    /// How long one try may take.
    limit: Duration,
}

impl Dials {
    /// Nothing is begun yet.
    pub(crate) fn new(addresses: impl IntoIterator<Item = SocketAddr>, limit: Duration) -> Self {
        Self {
            waiting: addresses.into_iter().collect(),
            going: JoinSet::new(),
            next_at: Instant::now(),
            limit,
        }
    }

    /// Whether [`Dials::next`] has more to give.
    pub(crate) fn has_more(&self) -> bool {
        !self.waiting.is_empty() || !self.going.is_empty()
    }

    /// The next try that has ended, well or not; `None` when all have. Begins tries as their time comes. Nothing is
    /// lost where the wait is given up.
    pub(crate) async fn next(&mut self) -> Option<Dialled> {
        while self.has_more() {
            let (is_waiting, next_at) = (!self.waiting.is_empty(), self.next_at);
            tokio::select! {
                biased;
                Some(ended) = self.going.join_next() => {
                    // One that panicked is a try without an address; there is none that does.
                    let Ok((address, dialled)) = ended else { continue };
                    if dialled.is_err() {
                        self.next_at = Instant::now();
                    }
                    return Some((address, dialled));
                }
                () = sleep_until(next_at), if is_waiting => {
                    self.next_at = Instant::now() + STAGGER;
                    if let Some(address) = self.waiting.pop_front() {
                        self.going.spawn(dial(address, self.limit));
                    }
                }
            }
        }
        None
    }
}

/// One try, with the options of a client's connection.
async fn dial(address: SocketAddr, limit: Duration) -> Dialled {
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        tune(&stream, CLIENT_UNACKNOWLEDGED)?;
        Ok(stream)
    };
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    let dialled = timeout(limit, connecting).await.unwrap_or_else(late);
    (address, dialled)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use socket2::{Domain, SockAddr, SockRef, Socket, Type};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::{CLIENT_UNACKNOWLEDGED, Dials};

    /// Far above what a working address takes, far below the limit of a try.
    const SOON: Duration = Duration::from_secs(60);
    /// Longer than the test.
    const NEVER: Duration = Duration::from_secs(3600);

    /// A listening socket whose queue is full: what comes to it is dropped, as by a network that is broken on the way.
    struct Hole {
        listener: Socket,
        _full: Vec<Socket>,
    }

    impl Hole {
        fn new() -> Self {
            let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
            listener.bind(&SockAddr::from(any)).unwrap();
            listener.listen(0).unwrap();
            let address = listener.local_addr().unwrap();
            let fill = |_| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                let _ = socket.connect(&address);
                socket
            };
            let full = (0..4).map(fill).collect();
            Self {
                listener,
                _full: full,
            }
        }

        fn address(&self) -> SocketAddr {
            self.listener.local_addr().unwrap().as_socket().unwrap()
        }
    }

    /// An address of this machine where nothing listens.
    async fn closed() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    }

    #[tokio::test]
    async fn an_address_that_answers_nothing_does_not_keep_the_next_from_being_tried() {
        let hole = Hole::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = listener.local_addr().unwrap();
        let mut dials = Dials::new([hole.address(), good], NEVER);
        let (address, dialled) = timeout(SOON, dials.next()).await.unwrap().unwrap();
        assert_eq!(address, good);
        let stream = dialled.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        let unacknowledged = SockRef::from(&stream).tcp_user_timeout().unwrap();
        assert_eq!(unacknowledged, Some(CLIENT_UNACKNOWLEDGED));
        // The first may still answer.
        assert!(dials.has_more());
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_by_the_next_and_then_there_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (bad, good) = (closed().await, listener.local_addr().unwrap());
        let mut dials = Dials::new([bad, good], NEVER);
        let (address, dialled) = timeout(SOON, dials.next()).await.unwrap().unwrap();
        assert!(address == bad && dialled.is_err());
        let (address, dialled) = timeout(SOON, dials.next()).await.unwrap().unwrap();
        assert!(address == good && dialled.is_ok());
        assert!(!dials.has_more());
        assert!(timeout(SOON, dials.next()).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_try_without_an_answer_ends_with_its_limit() {
        let hole = Hole::new();
        let mut dials = Dials::new([hole.address()], Duration::from_millis(20));
        let (address, dialled) = timeout(SOON, dials.next()).await.unwrap().unwrap();
        assert_eq!(address, hole.address());
        assert_eq!(dialled.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}
