//! From an accepted socket to a session: its first byte, a place, TLS, CONNECT, and the checks that need no look at
//! anybody else.
//!
//! The deadlines, in order: `tls_deadline` for the first byte, [`MAX_WAIT_FOR_PLACE`] for a place, `tls_deadline` again
//! for TLS, `connect_deadline` for CONNECT; and under pressure, shorter ones ([`super::gate`]). A handshake holds its
//! place from [`Verdict::Place`] until [`admit`] returns.
//!
//! The core is not involved: it learns of a peer only when `accept` hands in its [`Hello`]. Whether a second connection
//! of the same peer is let in is the core's to decide.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proto_frames::limits::MAX_SKIPPED_LEN;
use proto_frames::{
    Connect, DecodeError, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Uuid,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

use super::accept::Speaks;
use super::connection_limit::{CertificateId, LimitReached};
use super::credentials::Live;
use super::gate::{Seat, Verdict};
use super::limits::{
    MAX_WAIT_FOR_PLACE, PRESSED_FIRST_BYTE, PRESSED_HANDSHAKE, PRESSED_SILENCE, ServerLimits,
};
use super::timed::{LastHeard, Timed};
use crate::net::ahead::Ahead;
use crate::net::closing::{CLOSE_QUIET, close};
use crate::net::identity::{IdentityError, PeerIdentity};
use crate::net::tls::{PeerChain, explain};
use sched_core::{Dialect, Hello};

/// Room for a CONNECT in either encoding, descriptors included.
const CONNECT_ROOM: usize = 512;

/// How long a peer that is refused may take to read why and to close; it has a handshake's place meanwhile.
pub(super) const REFUSAL_TIME: Duration = Duration::from_secs(2);

/// The roles whose certificates have to be bound to a UUID with `--require-uuid-binding`: a node's UUID decides what is
/// placed on it and what is believed of it. Controllers and operators draw one for themselves, and may all share a
/// certificate; so do the original's concentrator agents.
const NODE_ROLES: Role = Role(Role::AGENT.0 | Role::NETAGENT.0);

/// A peer past its handshake.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) stream: TlsStream<Ahead<Timed>>,
    /// `address` is still `None`: `accept` knows it.
    pub(super) hello: Hello,
    /// The subject of its certificate.
    pub(super) subject: String,
    /// The SHA-256 of its certificate.
    pub(super) certificate: CertificateId,
    /// Its certificate and the CAs above it.
    pub(super) chain: PeerChain,
    /// In the middle of the peer's stream: the CONNECT is read, and with it the encoding is known.
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    /// What came behind CONNECT already.
    pub(super) incoming: BytesMut,
}

impl Established {
    /// Tells a peer that will not be let in after all, and closes.
    pub(super) async fn refuse(mut self, error: &HandshakeError) {
        refuse(&mut self.stream, self.encoder, error).await;
    }

    /// Waits for so long before anybody hears of the peer; whether it is still there then. For peers whose connections
    /// replace each other ([`super::twins`]). What comes meanwhile is kept, up to [`CONNECT_ROOM`]; beyond that it
    /// stays in the socket. `false` if the peer has closed, and so need not replace anybody.
    pub(super) async fn outlasts(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while self.incoming.len() < CONNECT_ROOM {
            self.incoming.reserve(CONNECT_ROOM);
            let read = timeout_at(until, self.stream.read_buf(&mut self.incoming)).await;
            match read {
                Err(_) => return true,
                Ok(Ok(0) | Err(_)) => return false,
                // It has more to say already, and is heard later.
                Ok(Ok(_)) => {}
            }
        }
        sleep_until(until).await;
        true
    }
}

/// Why a connection did not become a session. The sentences follow the peer's address in a log line. What the peer is
/// told is decided in [`refuse`].
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("nothing came within {0:?}")]
    Silent(Duration),
    #[error("no place for its handshake became free within {0:?} (--max-handshakes)")]
    NoPlace(Duration),
    #[error("its handshake made no progress while others waited for a place")]
    HadToLeave,
    #[error("it is a standby{0}")]
    Standby(String),
    #[error("TLS failed: {0}")]
    Tls(String),
    #[error("TLS took longer than {0:?}")]
    TlsTimeout(Duration),
    #[error("no CONNECT within {0:?}")]
    ConnectTimeout(Duration),
    #[error("{0}")]
    LimitReached(LimitReached),
    #[error("closed before its CONNECT")]
    Closed,
    #[error("its certificate: {0}")]
    Identity(#[from] IdentityError),
    #[error("its first frame is no CONNECT: {0}")]
    Malformed(#[from] DecodeError),
    #[error("its first frame is {0}, not CONNECT")]
    NotConnect(Kind),
    #[error("it claims {claimed}; its certificate grants {granted}")]
    RoleNotGranted { claimed: Role, granted: Role },
    #[error("it claims the UUID {claimed}; its certificate is bound to {bound}")]
    OtherUuid { claimed: Uuid, bound: Uuid },
    #[error(
        "its certificate is bound to no UUID, which this scheduler requires of nodes; make one with ciao-cert -node"
    )]
    Unbound,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Takes a connection from its first byte through its handshake with CONNECT, unless it has to leave for others. For
/// SSNTP. `seat` is only borrowed: the caller drops it once this has returned, which frees the place.
pub(super) async fn admit(
    tcp: TcpStream,
    acceptor: &Acceptor,
    seat: &mut Seat,
) -> Result<Established, HandshakeError> {
    admit_to(tcp, &acceptor.limits, seat, |tcp| establish(tcp, acceptor)).await
}

/// Takes a connection from its first byte through TLS alone, unless it has to leave for others; whom its peer is. For
/// HTTP and the Placement API: there is no CONNECT, and the certificate says who it is. `None` where the peer showed no
/// certificate, which the TLS configuration has to allow.
pub(super) async fn admit_tls(
    tcp: TcpStream,
    (credentials, speaks): (&Live, Speaks),
    limits: &ServerLimits,
    seat: &mut Seat,
) -> Result<(TlsStream<Ahead<Timed>>, Option<(PeerIdentity, PeerChain)>), HandshakeError> {
    let establish = async |tcp: Timed| {
        let (mut stream, chain) = accept_tls(tcp, (credentials, speaks), limits).await?;
        let is_nameless = stream.get_ref().1.peer_certificates().is_none();
        let identity = match is_nameless {
            true => None,
            false => Some((identity_of(&stream)?, chain)),
        };
        stream.get_mut().0.get_mut().end_of_handshake();
        Ok((stream, identity))
    };
    admit_to(tcp, limits, seat, establish).await
}

/// Takes a connection through TLS and CONNECT without a place, for one that is refused in any case.
pub(super) async fn greet(
    tcp: TcpStream,
    acceptor: &Acceptor,
) -> Result<Established, HandshakeError> {
    establish(Timed::new(tcp, LastHeard::now(), None), acceptor).await
}

/// The same through TLS alone.
pub(super) async fn greet_tls(
    tcp: TcpStream,
    shown: (&Live, Speaks),
    limits: &ServerLimits,
) -> Result<TlsStream<Ahead<Timed>>, HandshakeError> {
    let tcp = Timed::new(tcp, LastHeard::now(), None);
    let (stream, _) = accept_tls(tcp, shown, limits).await?;
    Ok(stream)
}

/// Takes a connection from its first byte to a place, and then through a handshake. The stages that all kinds of
/// connection share. What may end one early is raced against it; in each `select!` progress is looked at first, so that
/// a slow scheduler ends no peer that has done its part.
async fn admit_to<T>(
    tcp: TcpStream,
    limits: &ServerLimits,
    seat: &mut Seat,
    establish: impl AsyncFnOnce(Timed) -> Result<T, HandshakeError>,
) -> Result<T, HandshakeError> {
    let pressure = seat.pressure();
    let verdict = tokio::select! {
        // What has come counts, however late this looks.
        biased;
        come = first_byte(&tcp) => {
            come?;
            None
        }
        verdict = seat.verdict() => Some(verdict),
        () = sleep(limits.tls_deadline) => return Err(HandshakeError::Silent(limits.tls_deadline)),
        () = overdue(pressure, PRESSED_FIRST_BYTE) => return Err(HandshakeError::HadToLeave),
    };
    let verdict = match verdict {
        Some(verdict) => verdict,
        // It had to leave; or its first byte was there when it was accepted, and it got its place before this task saw
        // the byte.
        None => {
            seat.first_byte();
            let verdict = timeout(MAX_WAIT_FOR_PLACE, seat.verdict()).await;
            verdict.map_err(|_| HandshakeError::NoPlace(MAX_WAIT_FOR_PLACE))?
        }
    };
    if verdict == Verdict::Leave {
        return Err(HandshakeError::HadToLeave);
    }
    let heard = LastHeard::now();
    tokio::select! {
        // What has come is read before it is looked at how long nothing came.
        biased;
        established = establish(Timed::new(tcp, heard.clone(), limits.fence.clone())) => established,
        () = stuck(seat, &heard) => Err(HandshakeError::HadToLeave),
    }
}

/// Waits for a connection's first byte, which stays to be read. Nothing is taken out of the socket: TLS reads it from
/// the beginning.
async fn first_byte(tcp: &TcpStream) -> Result<(), HandshakeError> {
    match tcp.peek(&mut [0]).await? {
        0 => Err(HandshakeError::Closed),
        _ => Ok(()),
    }
}

/// Waits so long, and then for pressure. `pressure` is a future so that it is only waited for once the time is over.
async fn overdue(pressure: impl Future<Output = ()>, time: Duration) {
    sleep(time).await;
    pressure.await;
}

/// Waits until a handshake has taken too long under pressure, and that is its peer's doing. A peer that sends something
/// from time to time is not ended by this, but by the deadlines of TLS and CONNECT.
async fn stuck(seat: &Seat, heard: &LastHeard) {
    sleep(PRESSED_HANDSHAKE).await;
    loop {
        seat.pressure().await;
        let silence = heard.elapsed();
        if silence >= PRESSED_SILENCE {
            return;
        }
        sleep(PRESSED_SILENCE - silence).await;
    }
}

/// Takes a connection through TLS and CONNECT. A peer that fails is told so, as far as the protocol has words for it.
async fn establish(tcp: Timed, acceptor: &Acceptor) -> Result<Established, HandshakeError> {
    let Acceptor {
        credentials,
        limits,
        require_binding,
    } = acceptor;
    let (mut stream, chain) = accept_tls(tcp, (credentials, Speaks::Ssntp), limits).await?;
    // A peer that TLS let in is told in its own encoding if its certificate will not do, which its CONNECT shows first.
    let identity = identity_of(&stream);
    let mut decoder = Decoder::server(Limits {
        max_payload_len: limits.max_payload,
        max_skipped_len: MAX_SKIPPED_LEN,
        ..Limits::default()
    });
    let mut incoming = BytesMut::new();
    let deadline = Instant::now() + limits.connect_deadline;
    let connect = timeout_at(
        deadline,
        read_connect(&mut stream, &mut decoder, &mut incoming),
    )
    .await
    .map_err(|_| HandshakeError::ConnectTimeout(limits.connect_deadline))
    .flatten();
    let encoder = Encoder::new(decoder.encoding().unwrap_or(Encoding::Gob));
    match connect.and_then(|connect| {
        let identity = identity?;
        let encoding = encoder_kind(&decoder);
        let hello = check(&connect, &identity, *require_binding, encoding)?;
        Ok((hello, identity))
    }) {
        Ok((hello, identity)) => {
            stream.get_mut().0.get_mut().end_of_handshake();
            Ok(Established {
                stream,
                hello,
                subject: identity.subject,
                certificate: identity.fingerprint,
                chain,
                decoder,
                encoder,
                incoming,
            })
        }
        Err(error) => {
            refuse(&mut stream, encoder, &error).await;
            Err(error)
        }
    }
}

/// With the credentials that are in force as it begins; also what was verified of the peer, which is nothing of one without
/// a certificate. Errors are worded by `tls::explain`, for the log line.
async fn accept_tls(
    tcp: Timed,
    (credentials, speaks): (&Live, Speaks),
    limits: &ServerLimits,
) -> Result<(TlsStream<Ahead<Timed>>, PeerChain), HandshakeError> {
    let credentials = credentials.now();
    let tls = credentials.acceptor(speaks);
    let tls = tls.ok_or_else(|| HandshakeError::Tls("it is not offered here".to_owned()))?;
    let stream = timeout(limits.tls_deadline, tls.accept(Ahead::new(tcp)))
        .await
        .map_err(|_| HandshakeError::TlsTimeout(limits.tls_deadline))?
        .map_err(|error| HandshakeError::Tls(explain(&error)))?;
    let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = credentials.anchors.chain(presented);
    Ok((stream, chain))
}

/// A peer without a certificate does not get through TLS where one is required; the error is for the case that it did.
fn identity_of(stream: &TlsStream<Ahead<Timed>>) -> Result<PeerIdentity, HandshakeError> {
    let (_, tls) = stream.get_ref();
    let leaf = tls.peer_certificates().and_then(<[_]>::first);
    let leaf =
        leaf.ok_or_else(|| HandshakeError::Tls("the peer presented no certificate".into()))?;
    Ok(PeerIdentity::from_der(leaf)?)
}

/// Before the first byte of CONNECT there is no encoding; ciao's is assumed then.
fn encoder_kind(decoder: &Decoder) -> Encoding {
    decoder.encoding().unwrap_or(Encoding::Gob)
}

/// Reads as little as may be: what follows CONNECT in the same read stays in `incoming` for the session.
async fn read_connect(
    stream: &mut TlsStream<Ahead<Timed>>,
    decoder: &mut Decoder,
    incoming: &mut BytesMut,
) -> Result<Connect, HandshakeError> {
    loop {
        incoming.reserve(CONNECT_ROOM);
        if stream.read_buf(incoming).await? == 0 {
            return Err(HandshakeError::Closed);
        }
        match decoder.decode(incoming)? {
            Some(Message::Connect(connect)) => return Ok(connect),
            Some(Message::Frame(frame)) => return Err(HandshakeError::NotConnect(frame.kind)),
            Some(Message::Connected(_)) => return Err(HandshakeError::NotConnect(Kind::CONNECTED)),
            None => {}
        }
    }
}

/// What needs no look at other peers: the roles it claims against those that its certificate grants, and its UUID
/// against the one it is bound to.
fn check(
    connect: &Connect,
    identity: &PeerIdentity,
    require_binding: bool,
    encoding: Encoding,
) -> Result<Hello, HandshakeError> {
    if connect.kind != Kind::CONNECT {
        return Err(HandshakeError::NotConnect(connect.kind));
    }
    if !identity.may_claim(connect.role) {
        return Err(HandshakeError::RoleNotGranted {
            claimed: connect.role,
            granted: identity.roles,
        });
    }
    match identity.bound_uuid {
        Some(bound) if bound != connect.source => {
            return Err(HandshakeError::OtherUuid {
                claimed: connect.source,
                bound,
            });
        }
        None if require_binding && connect.role.intersects(NODE_ROLES) => {
            return Err(HandshakeError::Unbound);
        }
        _ => {}
    }
    let bound = identity.bound_uuid.is_some();
    Ok(Hello {
        uuid: connect.source,
        role: connect.role,
        dialect: match encoding {
            Encoding::Native => Dialect::Native,
            Encoding::Gob => Dialect::Original,
        },
        bound,
        certificate_ends_s: Some(identity.ends_at_s),
        address: None,
        certificate: Some(identity.fingerprint),
        subject: Some(identity.subject.as_str().into()),
    })
}

/// Tells the peer whether trying again may help, and closes. `ConnectionFailure` for what another try may mend,
/// `ConnectionAborted` for what it cannot; nothing where TLS itself failed or the connection is gone, because there is
/// no way to say it.
async fn refuse(
    stream: &mut TlsStream<Ahead<Timed>>,
    mut encoder: Encoder,
    error: &HandshakeError,
) {
    let kind = match error {
        HandshakeError::Malformed(_)
        | HandshakeError::NotConnect(_)
        | HandshakeError::ConnectTimeout(_)
        | HandshakeError::LimitReached(_)
        | HandshakeError::Standby(_) => Kind::CONNECTION_FAILURE,
        HandshakeError::Identity(_)
        | HandshakeError::RoleNotGranted { .. }
        | HandshakeError::OtherUuid { .. }
        | HandshakeError::Unbound => Kind::CONNECTION_ABORTED,
        _ => return,
    };
    let mut bytes = BytesMut::new();
    let payload = match error {
        // For people: clients show it, and go on to the next address.
        HandshakeError::Standby(_) => error.to_string().into_bytes(),
        _ => Vec::new(),
    };
    encoder.encode_frame(&Frame::new(kind, Uuid::nil(), payload), &mut bytes);
    let tell = async {
        stream.write_all(&bytes).await?;
        close(stream, CLOSE_QUIET).await
    };
    // A peer that does not even take this is closed all the same.
    let _ = timeout(REFUSAL_TIME, tell).await;
}

/// The line for the log: where the connection came from, and why it was refused.
pub(super) fn describe(error: &HandshakeError, from: SocketAddr) -> String {
    format!("{from}: {error}")
}

/// What handshakes share. Cloned for every connection; its parts are shared.
#[derive(Debug, Clone)]
pub(super) struct Acceptor {
    pub(super) credentials: Arc<Live>,
    pub(super) limits: Arc<ServerLimits>,
    pub(super) require_binding: bool,
}
