//! The two listeners: HTTP/2 in the clear or over TLS, with bounds on what one connection, and all together, may take.
//!
//! Neither asks for client certificates: who calls is said by tokens ([`crate::tokens`]), where they are asked for.
//!
//! A connection counts once its client has said hello ([`greet`]): TLS, where there is TLS, and the beginning of HTTP/2.
//! Until then it is one of a bounded number that wait for that, for a bounded time, and keep no client out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ciao_scheduler::net::socket::accept as accepted;
use ciao_scheduler::net::tls::{TlsError, load_chain};
use futures_core::Stream;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::{debug, warn};

/// Most calls of one connection at a time. A worker has one for its jobs and one for what it says; a controller as many
/// as it has requests under way.
const MAX_STREAMS: u32 = 256;

/// Longest list of headers of a call, in bytes. A token is a few dozen.
const MAX_HEADERS: u32 = 16 * 1024;

/// Pause between two pings of HTTP/2, and how long the answer may take: a peer whose machine is gone is noticed within
/// 30 s.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));

/// How long a client may take to say hello: the TLS handshake, if there is one, and the first bytes of HTTP/2. From then
/// on pings tell whether it is there.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// The first bytes of a client: the connection preface (RFC 9113, section 3.4) and the header of its SETTINGS frame.
const HELLO: usize = 24 + 9;

/// Pause after a connection that could not be accepted. Where files have run out, trying again at once would only burn
/// processor time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Connections that have said hello and wait for the server to take them.
const GREETED: usize = 64;

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
    /// The file of `-tls` cannot be used.
    #[error("-tls: {0}")]
    Tls(#[from] TlsError),
}

/// What callers of a service may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Longest message in bytes; a longer one fails its call.
    pub(crate) message: usize,
    /// Connections at a time; further ones are closed as soon as they have said hello.
    pub(crate) connections: usize,
    /// Connections at a time that have not said hello. One more closes the oldest.
    pub(crate) silent: usize,
    /// How long a call may take until its answer begins; `None` where calls last.
    pub(crate) call: Option<Duration>,
}

/// Bounds of the service for workers. Metrics are the longest part of a message. The call with statuses lasts as long
/// as the worker, so that it has no time limit. Two connections for each of the most workers.
pub(crate) const FOR_WORKERS: Bounds = Bounds {
    message: 128 * 1024,
    connections: 20_000,
    // After a restart all workers come at once.
    silent: 2048,
    call: None,
};

/// Bounds of the service for controllers. Definitions are the longest part of a message.
pub(crate) const FOR_CONTROLLERS: Bounds = Bounds {
    message: 512 * 1024,
    connections: 256,
    silent: 256,
    call: Some(Duration::from_secs(30)),
};

/// A bound listener that does not accept yet: with both bound, the start can no longer fail for want of an address.
pub(crate) struct Listener {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    bounds: Bounds,
    server: Server,
}

/// Connections whose clients have said hello, as tonic takes them.
struct Incoming(mpsc::Receiver<Connection>);

/// A connection whose client has said hello, counted until it is dropped.
struct Connection {
    /// What the client said, and how much of it has been read.
    hello: ([u8; HELLO], usize),
    stream: Box<dyn Transport>,
    info: TcpConnectInfo,
    _counted: OwnedSemaphorePermit,
}

/// TCP, or TLS over it.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

impl Listener {
    /// Binds an address, and reads `-tls`. Warns where a service in the clear is reachable from other machines.
    ///
    /// # Errors
    /// [`ListenError`].
    pub(crate) async fn bind(
        address: SocketAddr,
        flag: &'static str,
        tls: Option<&Path>,
        bounds: Bounds,
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Bind {
            address: address.to_string(),
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
        Ok(Self {
            listener,
            tls: tls.map(tls_of).transpose()?,
            bounds,
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
        let (greeted, incoming) = mpsc::channel(GREETED);
        // One service for each address, which answers calls of others itself: there is nothing to route.
        let served = self.server.serve_with_incoming(service, Incoming(incoming));
        tokio::select! {
            served = served => Ok(served?),
            never = accept(&self.listener, self.tls.as_ref(), self.bounds, greeted) => match never {},
        }
    }
}

/// Accepts connections for ever, and has each greeted by a task of its own.
async fn accept(
    listener: &TcpListener,
    tls: Option<&TlsAcceptor>,
    bounds: Bounds,
    greeted: mpsc::Sender<Connection>,
) -> Infallible {
    let connections = Arc::new(Semaphore::new(bounds.connections));
    let mut silent: VecDeque<AbortHandle> = VecDeque::new();
    let mut is_failing = false;
    loop {
        let (stream, address) = match accepted(listener).await {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_failing {
                    warn!(
                        event = "accept_failed",
                        "cannot accept connections, which is tried again until it can: {error}"
                    );
                }
                is_failing = true;
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        is_failing = false;
        silent.retain(|it| !it.is_finished());
        if silent.len() >= bounds.silent
            && let Some(oldest) = silent.pop_front()
        {
            oldest.abort();
        }
        let (tls, connections) = (tls.cloned(), Arc::clone(&connections));
        let greeted = greeted.clone();
        let greeting = tokio::spawn(async move {
            match timeout(HELLO_WITHIN, greet(stream, tls)).await {
                Ok(Ok(it)) => hand_over(it, address, &connections, greeted),
                Ok(Err(error)) => debug!(%address, "no hello: {error}"),
                Err(_) => debug!(%address, "no hello in time"),
            }
        });
        silent.push_back(greeting.abort_handle());
    }
}

/// Waits for a client's hello.
///
/// # Errors
/// TLS failed, or the client ended the connection.
async fn greet(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
) -> io::Result<([u8; HELLO], Box<dyn Transport>, TcpConnectInfo)> {
    let info = stream.connect_info();
    let mut stream: Box<dyn Transport> = match tls {
        Some(tls) => Box::new(tls.accept(stream).await?),
        None => Box::new(stream),
    };
    let mut hello = [0; HELLO];
    stream.read_exact(&mut hello).await?;
    Ok((hello, stream, info))
}

/// Hands a connection to the server, if there is room for one more. It is silent no more, and so not in the way of
/// others while it waits for that.
fn hand_over(
    (hello, stream, info): ([u8; HELLO], Box<dyn Transport>, TcpConnectInfo),
    address: SocketAddr,
    connections: &Arc<Semaphore>,
    greeted: mpsc::Sender<Connection>,
) {
    let Ok(counted) = Arc::clone(connections).try_acquire_owned() else {
        warn!(event = "connection_refused", %address, "a connection is closed at once: there are as many as there may be");
        return;
    };
    let connection = Connection {
        hello: (hello, 0),
        stream,
        info,
        _counted: counted,
    };
    // Without a server the program is about to end.
    tokio::spawn(async move { greeted.send(connection).await });
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|it| it.map(Ok))
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (hello, read) = &mut self.hello;
        let rest = &hello[*read..];
        if rest.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let some = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..some]);
        *read += some;
        Poll::Ready(Ok(()))
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

/// TLS with the certificate chain and the key of one PEM file, for HTTP/2.
///
/// # Errors
/// [`ListenError::Tls`].
fn tls_of(path: &Path) -> Result<TlsAcceptor, ListenError> {
    let (chain, key) = load_chain(path)?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::from)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_or_a_key_says_what_it_lacks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tls.pem");
        let said = |pem: &str| {
            std::fs::write(&path, pem).unwrap();
            let refused = tls_of(&path).map(drop);
            refused.unwrap_err().to_string()
        };
        let key = "-----BEGIN PRIVATE KEY-----\nMAo=\n-----END PRIVATE KEY-----\n";
        let cert = "-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n";
        for (pem, lacks) in [
            ("", "it is empty"),
            (key, "no certificate"),
            (cert, "no private key"),
        ] {
            assert!(said(pem).contains(lacks), "{}", said(pem));
        }
    }
}
