//! Listening: sockets, and how many peers are let in at once.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use proto_frames::Role;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::handshake::{self, Acceptor, Established, HandshakeError};
use super::hub::{Hub, PeerState};
use super::limits::{ACCEPT_BACKLOG, MAX_ACCEPT_PAUSE, MIN_ACCEPT_PAUSE};
use super::session::Session;
use crate::net::peer::{Deadlines, Peer};
use crate::sched::Input;

/// A silent peer's host is asked after this long whether it is still there…
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// …and again at this interval, until the kernel gives up.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// Opens a listening socket.
///
/// # Errors
/// The system's, e.g. that the address is in use.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // All interfaces of both families.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(ACCEPT_BACKLOG).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

/// How many peers may be in which stage.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// Handshakes under way.
    pub(super) handshakes: Arc<Semaphore>,
    /// Connections in all.
    pub(super) connections: Arc<Semaphore>,
}

/// Accepts connections for ever, no more at once than there are places. One loop for all listeners: while nobody comes
/// it has a single place in its hand, that of the next peer.
pub(super) async fn accept(
    listeners: Vec<TcpListener>,
    hub: Arc<Hub>,
    acceptor: Acceptor,
    places: Places,
) {
    let mut pause = MIN_ACCEPT_PAUSE;
    let mut first = 0;
    loop {
        let Ok(connection) = Arc::clone(&places.connections).acquire_owned().await else {
            return;
        };
        let Ok(handshake) = Arc::clone(&places.handshakes).acquire_owned().await else {
            return;
        };
        // Each listener is asked first in turn, so that a busy one does not shut the others out.
        first = (first + 1) % listeners.len().max(1);
        match poll_fn(|cx| poll_accept(&listeners, first, cx)).await {
            Ok((tcp, from)) => {
                pause = MIN_ACCEPT_PAUSE;
                let (hub, acceptor) = (Arc::clone(&hub), acceptor.clone());
                tokio::spawn(welcome(tcp, from, hub, acceptor, handshake, connection));
            }
            Err(error) => {
                warn!("cannot accept connections, next try in {pause:?}: {error}");
                sleep(pause).await;
                pause = (pause * 2).min(MAX_ACCEPT_PAUSE);
            }
        }
    }
}

/// The next connection of any listener, beginning with the one at `first`.
fn poll_accept(
    listeners: &[TcpListener],
    first: usize,
    cx: &mut Context<'_>,
) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
    let (before, from) = listeners.split_at(first);
    for listener in from.iter().chain(before) {
        if let Poll::Ready(accepted) = listener.poll_accept(cx) {
            return Poll::Ready(accepted);
        }
    }
    Poll::Pending
}

async fn welcome(
    tcp: TcpStream,
    from: SocketAddr,
    hub: Arc<Hub>,
    acceptor: Acceptor,
    handshake: OwnedSemaphorePermit,
    connection: OwnedSemaphorePermit,
) {
    if let Err(error) = tune(&tcp) {
        debug!("{from}: {error}");
    }
    match handshake::establish(
        tcp,
        &acceptor.tls,
        &acceptor.limits,
        acceptor.require_binding,
    )
    .await
    {
        // A task of its own: the handshake's large one ends here.
        Ok(established) => drop(tokio::spawn(serve(established, hub, connection))),
        Err(error @ HandshakeError::Closed) => debug!("{}", handshake::describe(&error, from)),
        Err(error) => info!("refused {}", handshake::describe(&error, from)),
    }
    drop(handshake);
}

fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY);
    socket2::SockRef::from(tcp).set_tcp_keepalive(&keepalive)
}

fn serve(
    established: Established,
    hub: Arc<Hub>,
    connection: OwnedSemaphorePermit,
) -> impl Future<Output = ()> + Send {
    let Established {
        stream,
        hello,
        decoder,
        encoder,
        incoming,
    } = established;
    let limits = &hub.limits;
    let is_controller = hello.role.intersects(Role::CONTROLLER | Role::OPERATOR);
    let budget = if is_controller {
        limits.controller_budget
    } else {
        limits.launcher_budget
    };
    let deadlines = Deadlines {
        progress: limits.progress_deadline,
        stall: limits.stall_time,
    };
    let state = PeerState::new(hello.uuid, hello.role, budget);
    let id = hub.next_session();
    hub.add_peer(id, Arc::clone(&state));
    let queue = (Arc::clone(&state.outbox), Arc::clone(&state.budget));
    let session = Session::new(Arc::clone(&hub), id, Arc::clone(&state));
    hub.handle([Input::Connect { session: id, hello }], Some(&state.budget));
    let peer = Peer::new(
        stream,
        session,
        (decoder, encoder),
        incoming,
        queue,
        deadlines,
    );
    async move {
        let (session, end) = peer.run().await;
        session.ended(end);
        drop(connection);
    }
}
