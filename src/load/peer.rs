//! A minimal connection for load runs: one socket, one task, no queues, so that the generator takes little of the
//! machine.
//!
//! All other clients use [`crate::net::link`].
//!
//! It does the same handshake, in the order TCP, TLS, CONNECT, CONNECTED, and then hands out frames. There is no
//! reconnect and no limit on what is queued, because each caller writes and waits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proto_frames::{
    Connect, DecodeError, Decoder, Encoder, Encoding, Frame, Limits, Message, Role, Uuid,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::net::tls::{self, TlsError, TrustFiles, explain};

/// Longest time for one connection to be accepted: a server that limits handshakes lets others wait.
const DIAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes read at once, and kept by every connection: room for a START. Simulated launchers get one at a time, and there
/// are many of them.
const READ_LEN: usize = 1024;

/// Why a peer of a load run has no connection (any more).
///
/// Texts end up in the report, counted by launchers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The socket failed, or TLS did.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The kernel has no port left to connect from.
    #[error(
        "no free port left from {source_ip} to {target}: see --sources (connections that ended keep theirs for a minute)"
    )]
    NoPort {
        /// The source address; `any address` where the kernel chose.
        source_ip: String,
        /// The address that was dialled.
        target: SocketAddr,
    },
    /// The server's bytes are no SSNTP.
    #[error("the server sent something that is not SSNTP: {0}")]
    Decode(#[from] DecodeError),
    /// The server refused the connection.
    #[error("the scheduler refused the connection: {0}")]
    Refused(String),
    /// The connection ended.
    #[error("the scheduler closed the connection")]
    Closed,
    /// It took too long.
    #[error("no connection within {DIAL_TIMEOUT:?}")]
    Timeout,
}

/// Makes connections of one role.
///
/// Cheap to clone: it shares the TLS configuration.
#[derive(Clone)]
pub struct Dialer {
    tls: TlsConnector,
    /// Checked against the scheduler's certificate.
    name: ServerName<'static>,
    address: SocketAddr,
    /// Must be among those of the certificate.
    role: Role,
    encoding: Encoding,
}

/// An accepted connection.
///
/// Not split: one task owns both directions. The driver takes it apart.
#[derive(Debug)]
pub struct Peer {
    /// The UUID it connected with.
    pub uuid: Uuid,
    /// The socket.
    pub stream: TlsStream<TcpStream>,
    /// What has been read.
    pub inbound: Inbound,
    /// What is to be written.
    pub outbound: Outbound,
}

/// The reading side of a connection.
///
/// Bytes that were read and are not a whole message yet stay in the buffer.
#[derive(Debug)]
pub struct Inbound {
    decoder: Decoder,
    buffer: BytesMut,
}

/// The writing side of a connection.
///
/// Its buffer keeps its capacity for the next frames.
#[derive(Debug)]
pub struct Outbound {
    encoder: Encoder,
    buffer: BytesMut,
}

/// The TLS configuration of a role from its certificate's file and what it believes.
///
/// # Errors
/// [`TlsError`], naming the file.
pub fn client_tls(cert: &Path, trust: &TrustFiles) -> Result<Arc<ClientConfig>, TlsError> {
    tls::client_config(&tls::load_identity(cert)?, &tls::load_trust(trust)?)
}

impl Dialer {
    /// Connections to `address`, whose certificate is valid for `name`, in this role and encoding.
    #[must_use]
    pub fn new(
        tls: Arc<ClientConfig>,
        name: ServerName<'static>,
        address: SocketAddr,
        role: Role,
        encoding: Encoding,
    ) -> Self {
        Self {
            tls: tls.into(),
            name,
            address,
            role,
            encoding,
        }
    }

    /// Connects, from this address of the machine if one is given.
    ///
    /// `uuid` is what the peer claims to be; for a launcher it is the node.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn dial(&self, uuid: Uuid, source: Option<IpAddr>) -> Result<Peer, PeerError> {
        let dialled = tokio::time::timeout(DIAL_TIMEOUT, self.dial_patiently(uuid, source)).await;
        dialled.unwrap_or(Err(PeerError::Timeout))
    }

    /// The answer must be CONNECTED. A frame instead of it is the scheduler's refusal.
    async fn dial_patiently(&self, uuid: Uuid, source: Option<IpAddr>) -> Result<Peer, PeerError> {
        let tcp = self
            .connect(source)
            .await
            .map_err(|e| self.explain(e, source))?;
        let connecting = self.tls.connect(self.name.clone(), tcp).await;
        let mut stream = connecting.map_err(|e| io::Error::new(e.kind(), explain(&e)))?;
        let mut inbound = Inbound {
            decoder: Decoder::client(self.encoding, Limits::default()),
            buffer: BytesMut::new(),
        };
        let mut outbound = Outbound {
            encoder: Encoder::new(self.encoding),
            buffer: BytesMut::new(),
        };
        outbound.encoder.encode(
            &Message::Connect(Connect::new(self.role, uuid)),
            &mut outbound.buffer,
        );
        outbound.flush(&mut stream).await?;
        match inbound.next_message(&mut stream).await? {
            Message::Connected(_) => Ok(Peer {
                uuid,
                stream,
                inbound,
                outbound,
            }),
            Message::Frame(frame) => Err(PeerError::Refused(frame.kind.to_string())),
            Message::Connect(_) => Err(PeerError::Refused("CONNECT instead of an answer".into())),
        }
    }

    /// `TCP_NODELAY`, since latencies are measured.
    async fn connect(&self, source: Option<IpAddr>) -> io::Result<TcpStream> {
        let socket = if self.address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        if let Some(source) = source {
            socket.bind((source, 0).into())?;
        }
        let tcp = socket.connect(self.address).await?;
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }

    /// The kernel says in two ways that ports are used up: binding, of the address; connecting, of the pair.
    fn explain(&self, error: io::Error, source: Option<IpAddr>) -> PeerError {
        match error.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => PeerError::NoPort {
                source_ip: source.map_or("any address".into(), |source| source.to_string()),
                target: self.address,
            },
            _ => error.into(),
        }
    }
}

impl Peer {
    /// Writes frames in one go.
    ///
    /// # Errors
    /// [`PeerError::Io`].
    pub async fn send(&mut self, frames: &[Frame]) -> Result<(), PeerError> {
        frames.iter().for_each(|frame| self.outbound.push(frame));
        self.outbound.flush(&mut self.stream).await
    }

    /// The next frame.
    ///
    /// # Errors
    /// [`PeerError`] once the connection is over.
    pub async fn recv(&mut self) -> Result<Frame, PeerError> {
        self.inbound.next(&mut self.stream).await
    }
}

impl Inbound {
    /// The next frame of a connection that stands.
    ///
    /// A call that is cancelled loses nothing: what was read of an incomplete message stays in the buffer.
    ///
    /// # Errors
    /// [`PeerError`] once the connection is over.
    pub async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Frame, PeerError> {
        match self.next_message(stream).await? {
            Message::Frame(frame) => Ok(frame),
            other => Err(PeerError::Refused(format!("a second {other:?}"))),
        }
    }

    /// Reads until the decoder has a whole message. The limits of the decoder apply to its length.
    async fn next_message(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Message, PeerError> {
        loop {
            if let Some(message) = self.decoder.decode(&mut self.buffer)? {
                return Ok(message);
            }
            if self.buffer.capacity() == self.buffer.len() {
                self.buffer.reserve(READ_LEN);
            }
            match stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(PeerError::Closed),
                // The other side ended without TLS's close_notify.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(PeerError::Closed);
                }
                read => read?,
            };
        }
    }
}

impl Outbound {
    /// Adds a frame to what [`Outbound::flush`] writes.
    pub fn push(&mut self, frame: &Frame) {
        self.encoder.encode_frame(frame, &mut self.buffer);
    }

    /// Writes everything pushed.
    ///
    /// If it fails, the connection is of no further use.
    ///
    /// # Errors
    /// [`PeerError::Io`].
    pub async fn flush(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> Result<(), PeerError> {
        stream.write_all(&self.buffer).await?;
        stream.flush().await?;
        self.buffer.clear();
        Ok(())
    }
}
