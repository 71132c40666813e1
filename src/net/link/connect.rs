//! Opening a link: TCP, TLS, CONNECT, and the scheduler's answer.
//!
//! ```text
//! connect_first ─ each endpoint ─▶ connect ─ each address ─▶ Opening: dial, shake_hands ─▶ Link
//!                                                              judge: CONNECTED, or a refusal
//! ```
//!
//! Every step has a deadline, and every failure is a [`ConnectError`] that says what the user can do about it.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto_frames::{
    Connect, Connected, DecodeError, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message,
    Role, Uuid,
};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::net::address::{DEFAULT_PORT, Endpoint};
use crate::net::link::queue::{Pumped, Queues};
use crate::net::link::{Hello, Link, halves};
use crate::net::peer::{Deadlines, EndReason, PROGRESS_DEADLINE, Peer};
use crate::net::tls::explain;

/// TCP keepalive: a scheduler whose machine is gone is noticed about a minute after the last byte. (30 s of silence,
/// then three probes 10 s apart.)
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// What every answer of an HTTP server begins with.
const HTTP: &[u8] = b"HTTP/";

/// How long a client waits for what. The defaults are in [`Timeouts::default`]; tests make them short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a TCP connection to one address (5 s).
    pub dial: Duration,
    /// For the TLS handshake and the answer to CONNECT together (60 s: a scheduler to which thousands come back at once
    /// takes a few handshakes at a time and lets the others wait).
    pub handshake: Duration,
    /// For the scheduler to take some of what is written, and for a frame that has begun to arrive to be complete
    /// ([`PROGRESS_DEADLINE`]).
    pub progress: Duration,
    /// For the scheduler to close its side after this one has closed (5 s; never longer than `progress`).
    pub close: Duration,
}

/// Why there is no link. [`ConnectError::may_retry`] says whether another try can help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no endpoint to try.
    #[error("no address to connect to")]
    NoEndpoint,
    /// The name to expect in the certificate is neither a DNS name nor an IP address.
    #[error("{0:?} is no name a certificate can be valid for")]
    BadServerName(String),
    /// The host name has no address.
    #[error("cannot find the address of {host}: {source}")]
    Resolve {
        /// The host.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// No TCP connection.
    #[error("cannot connect to {address}: {source}")]
    Dial {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Something took too long.
    #[error("{address}: {waiting_for} did not come within {}", humantime::format_duration(*after))]
    TimedOut {
        /// The address.
        address: SocketAddr,
        /// What was waited for.
        waiting_for: &'static str,
        /// The timeout that was reached.
        after: Duration,
    },
    /// TLS failed or the connection broke before the answer. Either side's certificate may be at fault; the text says.
    #[error("{address}: {reason}")]
    Handshake {
        /// The address.
        address: SocketAddr,
        /// What went wrong.
        reason: String,
    },
    /// The server's certificate is not signed by the CA that is trusted.
    #[error(
        "{address}: the scheduler's certificate is from another CA than the file given with --cacert"
    )]
    OtherCa {
        /// The address.
        address: SocketAddr,
    },
    /// The connection ended in the TLS handshake, or the server does not speak TLS.
    #[error("{address}: {reason}")]
    NoTls {
        /// The address.
        address: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// The answer is one of HTTP.
    #[error(
        "{address}: this looks like an HTTP server; the SSNTP port is {DEFAULT_PORT} by default"
    )]
    Http {
        /// The address.
        address: SocketAddr,
    },
    /// The connection was closed without an answer.
    #[error("{address}: the scheduler closed the connection without an answer to CONNECT{}", hint(*encoding))]
    NoAnswer {
        /// The address.
        address: SocketAddr,
        /// The encoding that was spoken.
        encoding: Encoding,
    },
    /// The answer to a native CONNECT is in gob.
    #[error(
        "{address}: the answer to CONNECT is not in the native encoding{}",
        hint(Encoding::Native)
    )]
    OtherEncoding {
        /// The address.
        address: SocketAddr,
    },
    /// The answer is no message.
    #[error("{address}: the answer to CONNECT cannot be read: {source}")]
    BadAnswer {
        /// The address.
        address: SocketAddr,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// The scheduler refuses for now: `ConnectionFailure`, or anything else but CONNECTED.
    #[error("{address}: the scheduler refuses the connection for now ({kind})")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// What it answered.
        kind: Kind,
    },
    /// The scheduler refuses for good: the certificate does not grant the role, or not this UUID.
    #[error(
        "{address}: the scheduler refuses this certificate (ConnectionAborted): it does not grant the role, or is bound to \
         another UUID; its log says which"
    )]
    Aborted {
        /// The address.
        address: SocketAddr,
    },
    /// The server answers in another role than the scheduler's.
    #[error("{address}: the server is no scheduler but {role}")]
    WrongRole {
        /// The address.
        address: SocketAddr,
        /// The role it has.
        role: Role,
    },
    /// The answer is for another client.
    #[error("{address}: the answer to CONNECT is for {uuid}, not for this client")]
    WrongDestination {
        /// The address.
        address: SocketAddr,
        /// The client it is for.
        uuid: Uuid,
    },
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(5),
            handshake: Duration::from_secs(60),
            progress: PROGRESS_DEADLINE,
            close: Duration::from_secs(5),
        }
    }
}

impl ConnectError {
    /// Whether a later try can end otherwise. Where not, the original's clients give up as well.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        use ConnectError as E;
        !matches!(
            self,
            E::NoEndpoint | E::BadServerName(_) | E::Aborted { .. } | E::WrongRole { .. }
        )
    }

    /// Whether it looks as if no scheduler were there, so that a message may add what to check about the address.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        use ConnectError as E;
        matches!(
            self,
            E::Resolve { .. }
                | E::Dial { .. }
                | E::TimedOut { .. }
                | E::NoTls { .. }
                | E::Http { .. }
                | E::BadAnswer { .. }
                | E::WrongRole { .. }
        )
    }
}

/// Connects to one endpoint, trying each address its name has in the resolver's order, and waits for CONNECTED. Then a
/// task serves the link until it ends.
///
/// # Errors
/// [`ConnectError`]. One that no other try can help ends the round at once; else the last one where there are several
/// addresses.
pub async fn connect(
    endpoint: &Endpoint,
    tls: &Arc<ClientConfig>,
    hello: &Hello,
    timeouts: &Timeouts,
) -> Result<Link, ConnectError> {
    let name = ServerName::try_from(endpoint.expected_name().to_owned())
        .map_err(|_| ConnectError::BadServerName(endpoint.expected_name().to_owned()))?;
    let unknown = |source| ConnectError::Resolve {
        host: endpoint.host.clone(),
        source,
    };
    let addresses = lookup_host((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(unknown)?;
    let mut last = unknown(io::Error::other("it has none"));
    for address in addresses {
        let opening = Opening {
            address,
            name: name.clone(),
            tls,
            hello,
            timeouts,
        };
        match opening.run().await {
            Err(error) if error.may_retry() => last = error,
            settled => return settled,
        }
    }
    Err(last)
}

/// Connects to the first of these endpoints that lets us: one round, in order, without waiting between them. `failed`
/// is called for each that does not, also for the last.
///
/// # Errors
/// The first error that no later try can help ([`ConnectError::may_retry`]), else the last one.
pub async fn connect_first(
    endpoints: &[Endpoint],
    tls: &Arc<ClientConfig>,
    hello: &Hello,
    timeouts: &Timeouts,
    mut failed: impl FnMut(&Endpoint, &ConnectError),
) -> Result<Link, ConnectError> {
    let mut last = ConnectError::NoEndpoint;
    for endpoint in endpoints {
        match connect(endpoint, tls, hello, timeouts).await {
            Ok(link) => return Ok(link),
            Err(error) => {
                failed(endpoint, &error);
                let hopeless = !error.may_retry();
                last = error;
                if hopeless {
                    break;
                }
            }
        }
    }
    Err(last)
}

/// One try at one address, with what is needed for it.
struct Opening<'a> {
    address: SocketAddr,
    /// What the certificate must be valid for, which is not the address.
    name: ServerName<'static>,
    tls: &'a Arc<ClientConfig>,
    hello: &'a Hello,
    timeouts: &'a Timeouts,
}

impl Opening<'_> {
    /// Dials and shakes hands, each within its deadline.
    async fn run(self) -> Result<Link, ConnectError> {
        let (address, timeouts) = (self.address, self.timeouts);
        let late = |waiting_for, after| ConnectError::TimedOut {
            address,
            waiting_for,
            after,
        };
        let dialled = timeout(timeouts.dial, self.dial()).await;
        let stream = dialled.map_err(|_| late("the TCP connection", timeouts.dial))??;
        let shaken = timeout(timeouts.handshake, self.shake_hands(stream)).await;
        shaken.map_err(|_| late("the answer to TLS and CONNECT", timeouts.handshake))?
    }

    /// A TCP connection without Nagle's delay, because frames are written in one call, and with keepalive.
    async fn dial(&self) -> Result<TcpStream, ConnectError> {
        let error = |source| ConnectError::Dial {
            address: self.address,
            source,
        };
        let stream = TcpStream::connect(self.address).await.map_err(error)?;
        stream.set_nodelay(true).map_err(error)?;
        SockRef::from(&stream)
            .set_tcp_keepalive(&KEEPALIVE)
            .map_err(error)?;
        Ok(stream)
    }

    /// TLS, CONNECT, CONNECTED. Nothing is sent between the last two: an original server drops it. The bytes behind the
    /// answer, which may be frames already, go on with the decoder to the link's task.
    async fn shake_hands(self, stream: TcpStream) -> Result<Link, ConnectError> {
        let broken = |error: io::Error| self.broken(&error);
        let connector = TlsConnector::from(Arc::clone(self.tls));
        let mut stream = connector
            .connect(self.name.clone(), stream)
            .await
            .map_err(|error| self.unshaken(&error))?;
        let mut encoder = Encoder::new(self.hello.encoding);
        let mut bytes = BytesMut::new();
        encoder.encode(
            &Message::Connect(Connect::new(self.hello.role, self.hello.uuid)),
            &mut bytes,
        );
        stream.write_all(&bytes).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;

        let mut decoder = Decoder::client(self.hello.encoding, Limits::default());
        let mut received = BytesMut::new();
        let answer = self
            .answer(&mut stream, &mut decoder, &mut received)
            .await?;
        let connected = match self.judge(answer) {
            Err(error @ ConnectError::WrongRole { .. }) => {
                self.decline(&mut stream, &mut encoder).await;
                return Err(error);
            }
            judged => judged?,
        };
        let queues = Queues::new();
        let (sender, receiver) = halves(&queues);
        let peer = Peer::new(
            stream,
            Pumped::new(Arc::clone(&queues)),
            (decoder, encoder),
            received,
            (Arc::clone(&queues.outbox), Arc::clone(&queues.budget)),
            Deadlines {
                progress: self.timeouts.progress,
                stall: self.timeouts.close.min(self.timeouts.progress),
                // That the scheduler closes says that it has read all.
                close_quiet: self.timeouts.close,
            },
        );
        // A task of its own: the connection does not live on inside this larger future.
        tokio::spawn(async move {
            let (pumped, end) = peer.run().await;
            pumped.end(explain_end(end.reason));
        });
        Ok(Link {
            connected,
            sender,
            receiver,
        })
    }

    /// The first message, read until it is whole. Says in particular that the server speaks the other encoding, or that
    /// it closed without an answer, as an original scheduler does with a native CONNECT.
    async fn answer(
        &self,
        stream: &mut TlsStream<TcpStream>,
        decoder: &mut Decoder,
        received: &mut BytesMut,
    ) -> Result<Message, ConnectError> {
        let address = self.address;
        loop {
            if received.starts_with(HTTP) {
                return Err(ConnectError::Http { address });
            }
            let decoded = decoder.decode(received);
            // A native message begins with its major version, which is 0; a gob stream with a length, which is not.
            if decoded.is_err()
                && self.hello.encoding == Encoding::Native
                && received.first().is_some_and(|&first| first != 0)
            {
                return Err(ConnectError::OtherEncoding { address });
            }
            if let Some(message) =
                decoded.map_err(|source| ConnectError::BadAnswer { address, source })?
            {
                return Ok(message);
            }
            // With TLS 1.3 a refused certificate is learned of here.
            if stream
                .read_buf(received)
                .await
                .map_err(|error| self.broken(&error))?
                == 0
            {
                let encoding = self.hello.encoding;
                return Err(ConnectError::NoAnswer { address, encoding });
            }
        }
    }

    /// What the first message means for us: CONNECTED by a scheduler and for this UUID is a link; a frame is a refusal,
    /// for good where it is ConnectionAborted.
    fn judge(&self, answer: Message) -> Result<Connected, ConnectError> {
        let address = self.address;
        match answer {
            Message::Connected(Connected { role, .. }) if !role.contains(Role::SCHEDULER) => {
                Err(ConnectError::WrongRole { address, role })
            }
            Message::Connected(Connected { destination, .. }) if destination != self.hello.uuid => {
                Err(ConnectError::WrongDestination {
                    address,
                    uuid: destination,
                })
            }
            Message::Connected(connected) => Ok(connected),
            Message::Frame(frame) if frame.kind == Kind::CONNECTION_ABORTED => {
                Err(ConnectError::Aborted { address })
            }
            Message::Frame(Frame { kind, .. }) | Message::Connect(Connect { kind, .. }) => {
                Err(ConnectError::Refused { address, kind })
            }
        }
    }

    /// Tells a server that its role is not a scheduler's (ConnectionFailure), as the original's clients do. Whether
    /// that arrives does not matter.
    async fn decline(&self, stream: &mut TlsStream<TcpStream>, encoder: &mut Encoder) {
        let mut bytes = BytesMut::new();
        encoder.encode_frame(
            &Frame::new(Kind::CONNECTION_FAILURE, self.hello.uuid, Bytes::new()),
            &mut bytes,
        );
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
    }

    /// TLS failed: told apart are another CA's server, a server without TLS, and all else in rustls's words.
    fn unshaken(&self, error: &io::Error) -> ConnectError {
        let address = self.address;
        let tls = error.get_ref().and_then(|it| it.downcast_ref());
        match (error.kind(), tls) {
            (
                _,
                Some(rustls::Error::InvalidCertificate(
                    CertificateError::UnknownIssuer | CertificateError::BadSignature,
                )),
            ) => ConnectError::OtherCa { address },
            (_, Some(rustls::Error::InvalidMessage(_))) => ConnectError::NoTls {
                address,
                reason: format!(
                    "what answers there does not speak TLS, as an HTTP server may; the SSNTP port is {DEFAULT_PORT} by \
                     default"
                ),
            },
            (ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset, None) => ConnectError::NoTls {
                address,
                reason: "the connection was closed in the TLS handshake".to_owned(),
            },
            _ => self.broken(error),
        }
    }

    /// The connection failed or was refused with a TLS alert, before the answer.
    fn broken(&self, error: &io::Error) -> ConnectError {
        ConnectError::Handshake {
            address: self.address,
            reason: explain(error),
        }
    }
}

/// What is added to an error where the other encoding may help.
fn hint(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Native => {
            "; a scheduler of the original speaks gob alone: launchers can be told to with -encoding gob"
        }
        Encoding::Gob => "",
    }
}

/// How an established connection ended, for people.
fn explain_end(reason: EndReason) -> String {
    match reason {
        EndReason::Closed | EndReason::Broken => "the scheduler closed it".to_owned(),
        EndReason::Finished | EndReason::Shut => "closed on this side".to_owned(),
        EndReason::Io(error) => explain(&error),
        other => other.to_string(),
    }
}
