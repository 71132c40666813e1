//! Opening a link on a TCP connection: TLS, CONNECT, and the scheduler's answer; and every way in which that can fail,
//! the dial included. Which addresses are tried is `rounds`' part.
//!
//! Every step has a deadline, and every failure is a [`ConnectError`] that says what the user can do about it.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto_frames::{
    Connect, Connected, DecodeError, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message,
    Role, Term, Uuid,
};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::net::address::DEFAULT_PORT;
use crate::net::link::queue::{Pumped, Queues};
use crate::net::link::{Closing, Hello, Link, LinkClosed, halves};
use crate::net::peer::{Deadlines, EndReason, PROGRESS_DEADLINE, Peer};
use crate::net::tls::{NATIVE_PROTOCOL, explain};
use crate::printable::Printable;

/// What every answer of an HTTP server begins with.
const HTTP: &[u8] = b"HTTP/";

/// How long a client waits for what. The defaults are in [`Timeouts::default`]; tests make them short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a TCP connection to one address (5 s).
    pub dial: Duration,
    /// For the TLS handshake and the answer to CONNECT together (60 s: a scheduler to which thousands come back at once
    /// takes a few handshakes at a time and lets the others wait). While there is another address, first a shorter time
    /// ([`FIRST_PATIENCE`](super::FIRST_PATIENCE)).
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
    /// The scheduler refuses for now: `ConnectionFailure`, as where there are as many connections as may be, or anything
    /// else but CONNECTED.
    #[error("{address}: the scheduler refuses the connection for now ({kind}): {said}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// What it answered.
        kind: Kind,
        /// Why, as the scheduler says; what to look at where it says nothing.
        said: String,
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
    /// A scheduler that leads under an earlier term than one that this client has known.
    #[error(
        "{address}: this scheduler leads under term {term}, and one has led under term {known} since: its time is over; if \
         etcd was wiped or set back, `ciao-scheduler ha new-generation` makes its terms later ones"
    )]
    EarlierTerm {
        /// The address.
        address: String,
        /// The scheduler's.
        term: Term,
        /// The latest that is known.
        known: Term,
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
    /// There is no TCP connection to this address, for which so long was waited at most.
    pub(super) fn dial(address: SocketAddr, source: io::Error, limit: Duration) -> Self {
        match source.kind() {
            ErrorKind::TimedOut => Self::TimedOut {
                address,
                waiting_for: "the TCP connection",
                after: limit,
            },
            _ => Self::Dial { address, source },
        }
    }

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

/// One try at one address, with what is needed for it.
pub(super) struct Opening<'a> {
    pub(super) address: SocketAddr,
    /// What the certificate must be valid for, which is not the address.
    pub(super) name: ServerName<'static>,
    pub(super) tls: &'a Arc<ClientConfig>,
    pub(super) hello: &'a Hello,
    pub(super) timeouts: &'a Timeouts,
}

impl Opening<'_> {
    /// Shakes hands, for so long at most.
    pub(super) async fn run(
        self,
        stream: TcpStream,
        limit: Duration,
    ) -> Result<Link, ConnectError> {
        let late = ConnectError::TimedOut {
            address: self.address,
            waiting_for: "the answer to TLS and CONNECT",
            after: limit,
        };
        let shaken = timeout(limit, self.shake_hands(stream)).await;
        shaken.unwrap_or(Err(late))
    }

    /// TLS, CONNECT, CONNECTED. Nothing is sent between the last two: an original server drops it. The bytes behind the
    /// answer, which may be frames already, go on with the decoder to the link's task.
    async fn shake_hands(self, stream: TcpStream) -> Result<Link, ConnectError> {
        let broken = |error: io::Error| self.broken(&error);
        let connector = TlsConnector::from(Arc::clone(self.tls));
        let mut stream = connector
            .with_alpn(vec![NATIVE_PROTOCOL.to_vec()])
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
            Message::Frame(Frame { kind, payload, .. }) => {
                let said = said(&payload);
                Err(ConnectError::Refused {
                    address,
                    kind,
                    said,
                })
            }
            Message::Connect(Connect { kind, .. }) => Err(ConnectError::Refused {
                address,
                kind,
                said: said(&[]),
            }),
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

/// How an established connection ended.
fn explain_end(reason: EndReason) -> LinkClosed {
    let how = match reason {
        EndReason::Closed => Closing::InOrder,
        _ => Closing::Unclear,
    };
    let why = match reason {
        EndReason::Closed | EndReason::Broken => "the scheduler closed it".to_owned(),
        EndReason::Finished | EndReason::Shut => "closed on this side".to_owned(),
        EndReason::Io(error) => explain(&error),
        other => other.to_string(),
    };
    LinkClosed { why, how }
}

/// Most bytes of a refusal's payload that are shown.
const MAX_SAID: usize = 200;

/// What a refusal says, for people: the text of its payload, as a standby sends it.
fn said(payload: &[u8]) -> String {
    let text = std::str::from_utf8(&payload[..payload.len().min(MAX_SAID)]).unwrap_or_default();
    match text.is_empty() {
        true => "its log says why, such as too many connections with this certificate".to_owned(),
        false => Printable::new(text).to_string(),
    }
}
