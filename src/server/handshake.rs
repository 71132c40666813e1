//! From an accepted socket to a session: TLS, CONNECT, and the checks that need no look at anybody else.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proto_frames::{
    Connect, DecodeError, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Uuid,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::limits::ServerLimits;
use crate::net::identity::{IdentityError, PeerIdentity};
use crate::net::peer::close;
use crate::net::tls::explain;
use crate::sched::Hello;

/// Room for a CONNECT in either encoding, descriptors included.
const CONNECT_ROOM: usize = 512;

/// How long a peer that is refused may take to read why and to close; it has a handshake's place meanwhile.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

/// A peer past its handshake.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) hello: Hello,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    /// What came behind CONNECT already.
    pub(super) incoming: BytesMut,
}

/// Why a connection did not become a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("TLS failed: {0}")]
    Tls(String),
    #[error("TLS took longer than {0:?}")]
    TlsTimeout(Duration),
    #[error("no CONNECT within {0:?}")]
    ConnectTimeout(Duration),
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
    #[error("its certificate is bound to no UUID, which this scheduler requires")]
    Unbound,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Takes a connection through TLS and CONNECT. A peer that fails is told so, as far as the protocol has words for it.
pub(super) async fn establish(
    tcp: TcpStream,
    acceptor: &TlsAcceptor,
    limits: &ServerLimits,
    require_binding: bool,
) -> Result<Established, HandshakeError> {
    let tls = timeout(limits.tls_deadline, acceptor.accept(tcp));
    let mut stream = tls
        .await
        .map_err(|_| HandshakeError::TlsTimeout(limits.tls_deadline))?
        .map_err(|error| HandshakeError::Tls(explain(&error)))?;
    // Whoever TLS let in is told in its own encoding if its certificate will not do, which its CONNECT shows first.
    let identity = identity_of(&stream);
    let mut decoder = Decoder::server(Limits {
        max_payload_len: limits.max_payload,
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
        check(
            &connect,
            &identity?,
            require_binding,
            encoder_kind(&decoder),
        )
    }) {
        Ok(hello) => Ok(Established {
            stream,
            hello,
            decoder,
            encoder,
            incoming,
        }),
        Err(error) => {
            refuse(&mut stream, encoder, &error).await;
            Err(error)
        }
    }
}

fn identity_of(stream: &TlsStream<TcpStream>) -> Result<PeerIdentity, HandshakeError> {
    let (_, tls) = stream.get_ref();
    let leaf = tls.peer_certificates().and_then(<[_]>::first);
    let leaf =
        leaf.ok_or_else(|| HandshakeError::Tls("the peer presented no certificate".into()))?;
    Ok(PeerIdentity::from_der(leaf)?)
}

fn encoder_kind(decoder: &Decoder) -> Encoding {
    decoder.encoding().unwrap_or(Encoding::Gob)
}

async fn read_connect(
    stream: &mut TlsStream<TcpStream>,
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
        None if require_binding => return Err(HandshakeError::Unbound),
        _ => {}
    }
    let bound = identity.bound_uuid.is_some();
    Ok(Hello {
        uuid: connect.source,
        role: connect.role,
        encoding,
        bound,
    })
}

/// Tells the peer whether trying again may help, and closes.
async fn refuse(stream: &mut TlsStream<TcpStream>, mut encoder: Encoder, error: &HandshakeError) {
    let kind = match error {
        HandshakeError::Malformed(_)
        | HandshakeError::NotConnect(_)
        | HandshakeError::ConnectTimeout(_) => Kind::CONNECTION_FAILURE,
        HandshakeError::Identity(_)
        | HandshakeError::RoleNotGranted { .. }
        | HandshakeError::OtherUuid { .. }
        | HandshakeError::Unbound => Kind::CONNECTION_ABORTED,
        _ => return,
    };
    let mut bytes = BytesMut::new();
    encoder.encode_frame(&Frame::new(kind, Uuid::nil(), Vec::new()), &mut bytes);
    let tell = async {
        stream.write_all(&bytes).await?;
        close(stream).await
    };
    // A peer that does not even take this is closed all the same.
    let _ = timeout(REFUSAL_TIME, tell).await;
}

/// The address a log line names.
pub(super) fn describe(error: &HandshakeError, from: SocketAddr) -> String {
    format!("{from}: {error}")
}

/// What handshakes share.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) tls: TlsAcceptor,
    pub(super) limits: Arc<ServerLimits>,
    pub(super) require_binding: bool,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The TLS configuration holds the private key.
        f.debug_struct("Acceptor")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
