//! The two listeners: HTTP/2 in the clear or over TLS, with bounds on what one connection, and all together, may take.
//!
//! Neither asks for client certificates: who calls is said by tokens ([`crate::tokens`]), where they are asked for.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tracing::warn;

/// Most calls of one connection at a time. A worker has one for its jobs and one for what it says; a controller as many
/// as it has requests under way.
const MAX_STREAMS: u32 = 256;

/// Longest list of headers of a call, in bytes. A token is a few dozen.
const MAX_HEADERS: u32 = 16 * 1024;

/// Pause between two pings of HTTP/2, and how long the answer may take: a peer whose machine is gone is noticed within
/// 30 s.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));

/// Longest time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why there is no listener; it ends the start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// The address cannot be read or is taken.
    #[error("cannot listen at {address} ({flag}): {source}")]
    Bind {
        /// Which.
        address: String,
        /// The flag that has it.
        flag: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The file of `-tls` cannot be read.
    #[error("{} (-tls): {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has no certificate or key that can be used.
    #[error("{} (-tls): {reason}", path.display())]
    Tls {
        /// Which.
        path: PathBuf,
        /// The error and its causes, in one line.
        reason: String,
    },
}

/// What callers of a service may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Longest message in bytes; a longer one fails its call.
    pub(crate) message: usize,
    /// Connections at a time; further ones are closed at once.
    pub(crate) connections: usize,
    /// How long a call may take until its answer begins; `None` where calls last.
    pub(crate) call: Option<Duration>,
}

/// Bounds of the service for workers. Metrics are the longest part of a message. The call with statuses lasts as long
/// as the worker, so that it has no time limit. Two connections for each of the most workers.
pub(crate) const FOR_WORKERS: Bounds = Bounds {
    message: 128 * 1024,
    connections: 20_000,
    call: None,
};

/// Bounds of the service for controllers. Definitions are the longest part of a message.
pub(crate) const FOR_CONTROLLERS: Bounds = Bounds {
    message: 512 * 1024,
    connections: 256,
    call: Some(Duration::from_secs(30)),
};

/// A bound listener that does not accept yet: with both bound, the start can no longer fail for want of an address.
pub(crate) struct Listener {
    listener: TcpListener,
    /// One permit for each connection that there may be.
    connections: Arc<Semaphore>,
    server: Server,
}

/// Accepted connections, as tonic takes them.
struct Incoming {
    listener: TcpListener,
    connections: Arc<Semaphore>,
}

/// An accepted connection, counted until it is dropped.
struct Connection {
    stream: TcpStream,
    _counted: OwnedSemaphorePermit,
}

impl Listener {
    /// Binds an address, and reads `-tls`. Warns where a service in the clear is reachable from other machines.
    ///
    /// # Errors
    /// [`ListenError`].
    pub(crate) async fn bind(
        address: &str,
        flag: &'static str,
        tls: Option<&Path>,
        bounds: Bounds,
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Bind {
            address: address.to_owned(),
            flag,
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        if !local.ip().is_loopback() && tls.is_none() {
            warn!(
                event = "listening_in_the_clear",
                "{local} can be reached from other machines, and everything is in the clear there, tokens too (-tls)"
            );
        }
        let (every, within) = KEEPALIVE;
        let mut server = Server::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .http2_max_header_list_size(MAX_HEADERS)
            .http2_keepalive_interval(Some(every))
            .http2_keepalive_timeout(Some(within));
        if let Some(call) = bounds.call {
            server = server.timeout(call);
        }
        if let Some(path) = tls {
            server = with_tls(server, path)?;
        }
        Ok(Self {
            listener,
            connections: Arc::new(Semaphore::new(bounds.connections)),
            server,
        })
    }

    /// The address, with the real port where port 0 was asked for.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the program ends.
    ///
    /// # Errors
    /// The server has ended, which it does not by itself.
    pub(crate) async fn serve<S>(self, service: S) -> anyhow::Result<()>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let incoming = Incoming {
            listener: self.listener,
            connections: self.connections,
        };
        // One service for each address, which answers calls of others itself: there is nothing to route.
        Ok(self.server.serve_with_incoming(service, incoming).await?)
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let accepted = match self.listener.poll_accept(context) {
                Poll::Ready(accepted) => accepted,
                Poll::Pending => return Poll::Pending,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            let Ok(counted) = Arc::clone(&self.connections).try_acquire_owned() else {
                warn!(event = "connection_refused", %address, "a connection is closed at once: there are as many as there may be");
                continue;
            };
            // What is said is short, and waited for.
            let connection = stream.set_nodelay(true).map(|()| Connection {
                stream,
                _counted: counted,
            });
            return Poll::Ready(Some(connection));
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Adds the certificate chain and the key, which stand in one PEM file.
///
/// # Errors
/// [`ListenError::File`] or [`ListenError::Tls`].
fn with_tls(server: Server, path: &Path) -> Result<Server, ListenError> {
    let pem = std::fs::read(path).map_err(|source| ListenError::File {
        path: path.to_owned(),
        source,
    })?;
    let identity = Identity::from_pem(&pem, &pem);
    let config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
    server.tls_config(config).map_err(|error| {
        let mut reason = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            reason = format!("{reason}: {error}");
            source = error.source();
        }
        ListenError::Tls {
            path: path.to_owned(),
            reason,
        }
    })
}
