//! Listening: sockets, and how many peers are let in at once.
//!
//! One task accepts for all listeners ([`accept`]); each connection then has a task for its handshake (`welcome…`), and
//! a session another one (`serve`), because the handshake's state is large and a session's is not. Two limits hold: the
//! number of connections, by a semaphore whose permit a connection holds to its end, and the places for handshakes,
//! which [`super::gate`] gives away.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use proto_frames::Role;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, warn};

use super::connection_limit::{ConnectionLimit, PeerClass, Permit};
use super::credentials::Live;
use super::gate::{FirstByte, Gate, Seat};
use super::handshake::{self, Acceptor, Established, HandshakeError, REFUSAL_TIME};
use super::http;
use super::hub::{Came, Hub, LISTENER, PeerOrigin, PeerState};
use super::limits::{ACCEPT_BACKLOG, MAX_ACCEPT_PAUSE, MIN_ACCEPT_PAUSE};
use super::notices::{Class, Weight, Who};
use super::placement;
use super::session::Session;
use super::tasks::caught;
use crate::net::closing::CLOSE_QUIET;
use crate::net::peer::{Deadlines, Peer};
use crate::net::socket;
use sched_core::{Hello, Input};

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

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) speaks: Speaks,
}

/// What peers speak that connect to a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    /// Frames.
    Ssntp,
    /// HTTP.
    Http,
    /// The Placement API, over HTTP without TLS.
    Placement,
    /// The same over HTTPS.
    PlacementTls,
}

/// What connections of either kind are served with.
#[derive(Debug, Clone)]
pub(super) struct Ways {
    pub(super) frames: Acceptor,
    /// `None` where nothing listens for it.
    pub(super) http: Option<http::Acceptor>,
    /// The Placement API, if it is served.
    pub(super) placement: Option<placement::Door>,
}

/// How many peers may be in which stage.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// Those that are no sessions yet.
    pub(super) gate: Arc<Gate>,
    /// Connections in all, and those past their handshakes by whom they are of.
    pub(super) connections: Arc<ConnectionLimit>,
}

/// What a connection holds to its end.
#[derive(Debug)]
pub(super) struct Held {
    _slot: OwnedSemaphorePermit,
    _permit: Permit,
}

#[cfg(test)]
impl Held {
    /// What the only connection that there may be holds.
    pub(super) fn alone() -> Self {
        let limit = ConnectionLimit::new(1);
        Self {
            _slot: Arc::clone(limit.slots()).try_acquire_owned().unwrap(),
            _permit: limit.admit(PeerClass::Reader, None).unwrap(),
        }
    }
}

/// Accepts connections for ever. Where there are as many as may be, one more is accepted only if one that waits at the
/// gate can leave for it. One loop for all listeners. Returns only if the semaphore is closed, which nothing does.
pub(super) async fn accept(listeners: Vec<Listener>, hub: Arc<Hub>, ways: Ways, places: Places) {
    let Places {
        gate,
        connections: limit,
    } = places;
    let connections = limit.slots();
    let mut pause = MIN_ACCEPT_PAUSE;
    let mut first = 0;
    loop {
        // Without a permit one more is still accepted if a connection that waits can be turned away for it.
        let mut connection = Arc::clone(connections).try_acquire_owned().ok();
        if connection.is_none() && !gate.has_waiting() {
            connection = place_for(connections, &gate).await;
        }
        // Each listener is asked first in turn, so that a busy one does not shut the others out.
        first = (first + 1) % listeners.len().max(1);
        let (tcp, from, speaks) = match poll_fn(|cx| poll_accept(&listeners, first, cx)).await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(
                    event = "accept_failed",
                    "cannot accept connections, next try in {pause:?}: {error}"
                );
                // Doubling: where files have run out, trying again at once would only burn processor time.
                sleep(pause).await;
                pause = (pause * 2).min(MAX_ACCEPT_PAUSE);
                continue;
            }
        };
        pause = MIN_ACCEPT_PAUSE;
        if connection.is_none() {
            gate.turn_one_away();
            connection = place_for(connections, &gate).await;
        }
        let Some(connection) = connection else { return };
        // It waits at the gate from here on; its task learns there whether it may begin.
        let seat = gate.enter(from.ip().into(), looked_at(&tcp));
        let hub = Arc::clone(&hub);
        let slot = Slot {
            limit: Arc::clone(&limit),
            slot: connection,
        };
        match (speaks, &ways.http, &ways.placement) {
            (Speaks::Http, Some(http), _) => {
                tokio::spawn(welcome_http((tcp, from), hub, http.clone(), seat, slot));
            }
            (Speaks::Placement, _, Some(door)) => {
                tokio::spawn(welcome_plain((tcp, from), hub, door.clone(), seat, slot));
            }
            (Speaks::PlacementTls, _, Some(door)) => {
                tokio::spawn(welcome_placement(
                    (tcp, from),
                    hub,
                    door.clone(),
                    seat,
                    slot,
                ));
            }
            _ => {
                let acceptor = ways.frames.clone();
                tokio::spawn(welcome((tcp, from), hub, acceptor, seat, slot));
            }
        }
    }
}

/// A connection that was accepted and is not admitted yet.
struct Slot {
    limit: Arc<ConnectionLimit>,
    slot: OwnedSemaphorePermit,
}

impl Slot {
    /// Admits the connection, whose handshake is over. What it holds from now on, or the slot once more with why it has
    /// to go.
    fn admit(
        self,
        class: PeerClass,
        certificate: Option<[u8; 32]>,
    ) -> Result<Held, (Self, HandshakeError)> {
        match self.limit.admit(class, certificate) {
            Ok(permit) => Ok(Held {
                _slot: self.slot,
                _permit: permit,
            }),
            Err(reached) => Err((self, HandshakeError::LimitReached(reached))),
        }
    }

    /// Tells the connection that it is refused, unless as many are being told as may be.
    async fn refuse(self, tell: impl Future<Output = ()>) {
        if let Some(_permit) = self.limit.refusal() {
            // A peer that does not even take this is closed all the same.
            let _ = timeout(REFUSAL_TIME, tell).await;
        }
    }
}

/// Waits until there are fewer connections than may be. While it waits, the gate is under pressure: handshakes that do
/// not get on are ended sooner.
async fn place_for(connections: &Arc<Semaphore>, gate: &Gate) -> Option<OwnedSemaphorePermit> {
    gate.set_crowded(true);
    let place = Arc::clone(connections).acquire_owned().await;
    gate.set_crowded(false);
    place.ok()
}

/// Whether a peer's first byte has come already, as it mostly has where connections waited in the kernel. Asked once
/// without waiting, so that a connection that is ready does not wait for its task to be scheduled first.
fn looked_at(tcp: &TcpStream) -> FirstByte {
    let mut byte = [MaybeUninit::uninit()];
    match socket2::SockRef::from(tcp).peek(&mut byte) {
        Ok(1) => FirstByte::There,
        // What is wrong with it shows when it is read.
        _ => FirstByte::ToCome,
    }
}

/// The next connection of any listener, with the options that all have, beginning with the one at `first`. Polls them in turn; that all of them wake
/// this task is what registering with each poll does.
pub(super) fn poll_accept(
    listeners: &[Listener],
    first: usize,
    cx: &mut Context<'_>,
) -> Poll<io::Result<(TcpStream, SocketAddr, Speaks)>> {
    let (before, from) = listeners.split_at(first);
    for listener in from.iter().chain(before) {
        if let Poll::Ready(accepted) = socket::poll_accept(&listener.socket, cx) {
            return Poll::Ready(accepted.map(|(tcp, from)| (tcp, from, listener.speaks)));
        }
    }
    Poll::Pending
}

/// The handshake of a peer that speaks frames. The seat is dropped before the session begins, and also on an error or a
/// panic.
async fn welcome(
    (tcp, from): (TcpStream, SocketAddr),
    hub: Arc<Hub>,
    acceptor: Acceptor,
    mut seat: Seat,
    slot: Slot,
) {
    let work = async {
        let mut established = handshake::admit(tcp, &acceptor, &mut seat).await?;
        let class = PeerClass::of(established.hello.role);
        let held = match slot.admit(class, Some(established.certificate)) {
            Ok(held) => held,
            // It keeps its place for a handshake until it is told.
            Err((slot, error)) => {
                slot.refuse(established.refuse(&error)).await;
                return Err(error);
            }
        };
        drop(seat);
        let Hello { uuid, role, .. } = established.hello;
        if let Some(time) = hub.hold_time(uuid, role)
            && !established.outlasts(time).await
        {
            return Err(HandshakeError::Closed);
        }
        // A task of its own: the handshake's large one ends here.
        let credentials = Arc::clone(&acceptor.credentials);
        tokio::spawn(serve(established, from, (&hub, &credentials), held));
        Ok(())
    };
    note_refusal(&hub, from, caught(work).await);
}

/// The same for HTTP.
async fn welcome_http(
    (tcp, from): (TcpStream, SocketAddr),
    hub: Arc<Hub>,
    http: http::Acceptor,
    mut seat: Seat,
    slot: Slot,
) {
    let work = async {
        let shown = (&*http.credentials, Speaks::Http);
        let (stream, identity) = handshake::admit_tls(tcp, shown, &hub.limits, &mut seat).await?;
        let (roles, certificate) = match &identity {
            Some((identity, _)) => (identity.roles, Some(identity.fingerprint)),
            None => (Role::default(), None),
        };
        let held = match slot.admit(PeerClass::of_http(roles), certificate) {
            Ok(held) => held,
            Err((slot, error)) => {
                slot.refuse(http::refuse(stream, &error)).await;
                return Err(error);
            }
        };
        drop(seat);
        // A task of its own: the handshake's large one ends here.
        tokio::spawn(http.serve(stream, identity, from, held));
        Ok(())
    };
    note_refusal(&hub, from, caught(work).await);
}

/// The same for the Placement API over HTTPS.
async fn welcome_placement(
    (tcp, from): (TcpStream, SocketAddr),
    hub: Arc<Hub>,
    door: placement::Door,
    mut seat: Seat,
    slot: Slot,
) {
    let work = async {
        // Its configuration asks for no certificate.
        let shown = (door.credentials(), Speaks::PlacementTls);
        let (stream, _) = handshake::admit_tls(tcp, shown, &hub.limits, &mut seat).await?;
        let held = slot.admit(PeerClass::Reader, None);
        let held = held.map_err(|(_, error)| error)?;
        drop(seat);
        tokio::spawn(door.serve(stream, from, held));
        Ok(())
    };
    note_refusal(&hub, from, caught(work).await);
}

/// The same for the Placement API over plain HTTP, where there is no handshake to wait for.
async fn welcome_plain(
    (tcp, from): (TcpStream, SocketAddr),
    hub: Arc<Hub>,
    door: placement::Door,
    seat: Seat,
    slot: Slot,
) {
    drop(seat);
    match slot.admit(PeerClass::Reader, None) {
        Ok(held) => door.serve(tcp, from, held).await,
        Err((_, error)) => note_refusal(&hub, from, Ok(Err(error))),
    }
}

/// Says why a connection was not let in, if it was not. A connection that closes by itself before CONNECT is only
/// counted. A panic is logged, and ends nothing but the handshake.
fn note_refusal(hub: &Hub, from: SocketAddr, welcomed: Result<Result<(), HandshakeError>, String>) {
    hub.note_handshake(match &welcomed {
        Ok(Ok(())) => Came::In,
        Ok(Err(HandshakeError::Closed)) => Came::Closed,
        Ok(Err(
            HandshakeError::HadToLeave
            | HandshakeError::NoPlace(_)
            | HandshakeError::LimitReached(_),
        )) => Came::TurnedAway,
        Ok(Err(_)) | Err(_) => Came::Refused,
    });
    match welcomed {
        Ok(Ok(())) => {}
        Ok(Err(error @ HandshakeError::Closed)) => {
            debug!("{}", handshake::describe(&error, from));
        }
        Ok(Err(error)) => {
            let (class, weight) = match error {
                HandshakeError::HadToLeave => (Class::TurnedAway, Weight::Warning),
                HandshakeError::LimitReached(_) => (Class::Full, Weight::Warning),
                _ => (Class::Refused, Weight::News),
            };
            let line = format_args!("refused {}", handshake::describe(&error, from));
            hub.note(class, Who::Address(from.ip()), weight, line);
        }
        Err(why) => error!(
            event = "internal_error",
            "internal error: the handshake with {from} has ended: {why}"
        ),
    }
}

/// Most bytes that the task of a session may have in itself: each connection has one, for as long as it stands. What is
/// larger stands in a place of its own, once.
const MAX_TASK: usize = 1024;

/// Not `async` itself, so that the peer is known to the hub, and the core has decided about it, before its task first
/// runs.
fn serve(
    established: Established,
    from: SocketAddr,
    (hub, credentials): (&Arc<Hub>, &Live),
    held: Held,
) -> impl Future<Output = ()> + Send + use<> {
    let hub = Arc::clone(hub);
    let Established {
        stream,
        hello,
        subject,
        certificate,
        chain,
        decoder,
        encoder,
        incoming,
    } = established;
    let limits = &hub.limits;
    let hello = Hello {
        address: Some(from),
        ..hello
    };
    // Controllers send to everybody and have the larger budget.
    let is_controller = hello.role.intersects(Role::CONTROLLER | LISTENER);
    let budget = if is_controller {
        limits.controller_budget
    } else {
        limits.launcher_budget
    };
    let deadlines = Deadlines {
        progress: limits.progress_deadline,
        stall: limits.stall_time,
        close_quiet: CLOSE_QUIET,
    };
    let origin = PeerOrigin {
        from,
        subject: subject.into(),
        certificate,
        chain,
    };
    let unread = hub.unread_of(hello.role);
    let state = PeerState::new((hello.uuid, hello.role), origin, budget, unread);
    let id = hub.next_session();
    // The queue first, then the input: the core's first message is `Connected`, or a refusal.
    hub.add_peer(id, Arc::clone(&state));
    let queue = (Arc::clone(&state.outbox), Arc::clone(&state.budget));
    let session = Session::new(Arc::clone(&hub), id, Arc::clone(&state));
    hub.handle([Input::Connect { session: id, hello }], Some(&state.budget));
    // Its handshake may have begun before there was the list that revokes its certificate.
    hub.end_if_revoked(id, &state, &credentials.now().anchors);
    let peer = Peer::new(
        stream,
        session,
        (decoder, encoder),
        incoming,
        queue,
        deadlines,
    );
    // In a place of its own: by value, each future around it would have its size again, up to twelve times in all.
    let run = Box::pin(peer.run());
    let task = async move {
        let work = caught(async {
            let (session, end) = run.await;
            session.ended(end);
        });
        // A panic ends this session alone: the core is told when it is dropped. Were that to fail too, the core would
        // take it for connected for ever.
        match caught(work).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                let (role, uuid) = (state.role, state.uuid);
                error!(
                    event = "internal_error",
                    "internal error: {role} {uuid}: its session has ended: {why}"
                );
            }
            Err(why) => hub.fail(format!("{} {}: {why}", state.role, state.uuid)),
        }
        drop(held);
    };
    debug_assert!(size_of_val(&task) <= MAX_TASK, "{}", size_of_val(&task));
    task
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::TcpStream;

    use socket2::SockRef;

    use super::{Listener, Speaks, listen, poll_accept};
    use crate::net::socket::SERVER_UNACKNOWLEDGED;

    /// An answer of several pieces took 44 ms at the door without the first option.
    #[tokio::test]
    async fn connections_have_the_same_options_at_every_door() {
        let doors = [
            Speaks::Ssntp,
            Speaks::Http,
            Speaks::Placement,
            Speaks::PlacementTls,
        ];
        let address = "127.0.0.1:0".parse().unwrap();
        let listeners = doors.map(|speaks| Listener {
            socket: listen(address).unwrap(),
            speaks,
        });
        for listener in &listeners {
            let client = TcpStream::connect(listener.socket.local_addr().unwrap()).unwrap();
            let (tcp, from, speaks) = poll_fn(|cx| poll_accept(&listeners, 0, cx)).await.unwrap();
            assert_eq!(
                (from, speaks),
                (client.local_addr().unwrap(), listener.speaks)
            );
            let socket = SockRef::from(&tcp);
            let is_set = socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap();
            assert!(is_set, "{speaks:?}");
            let unacknowledged = socket.tcp_user_timeout().unwrap();
            assert_eq!(unacknowledged, Some(SERVER_UNACKNOWLEDGED), "{speaks:?}");
        }
    }
}
