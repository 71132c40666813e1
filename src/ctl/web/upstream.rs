//! The connection to the scheduler: one of HTTP/2 for everything, made when it is needed.
//!
//! One connection, because each costs the scheduler a TLS handshake and a place, and a session of an operator where it
//! gives commands. Browsers' requests become streams of it. It is not watched: a request that finds it closed makes
//! another one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::lookup_host;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::limits::{ANSWER_DEADLINE, CONNECTION_WINDOW, MAX_HEAD, PING_EVERY, STREAM_WINDOW};
use crate::net::address::Endpoint;
use crate::net::dial::Dials;
use crate::net::tls::ClientTls;

/// The handle for requests on a connection. Clones share the connection; it ends with the last of them.
type Sender = http2::SendRequest<Full<Bytes>>;

/// The scheduler's HTTP door, and the connection to it where there is one.
pub(super) struct Upstream {
    /// Where to connect.
    endpoint: Endpoint,
    /// The name that the scheduler's certificate must be valid for; with `--server-name` not the host of `endpoint`.
    name: ServerName<'static>,
    /// With the user's certificate, of each dial.
    tls: ClientTls,
    /// For TCP, TLS and the beginning of HTTP/2 together.
    dial_timeout: Duration,
    /// Locked while a connection is made, so that requests that come meanwhile wait for it instead of making their own.
    sender: Mutex<Option<Sender>>,
}

/// Why there is no answer of the scheduler. Shown to the page as the detail of a 502.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    /// No connection: TCP, TLS or the beginning of HTTP/2 failed.
    #[error("cannot connect to {address}: {source}")]
    Dial {
        /// The scheduler's HTTP address.
        address: Endpoint,
        /// What failed: the name's resolution, TCP, TLS or the beginning of HTTP/2.
        source: io::Error,
    },
    /// No connection, or no answer on one that stands, in time.
    #[error("{0} does not answer")]
    Silent(Endpoint),
    /// The connection ended before an answer began. Whether the scheduler has seen the request is not known.
    #[error("the connection to {address} was lost: {source}")]
    Lost {
        /// The scheduler's HTTP address.
        address: Endpoint,
        /// What hyper says of the connection.
        source: hyper::Error,
    },
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The TLS configuration holds the private key.
        f.debug_struct("Upstream")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Upstream {
    /// The door at this address; nothing is connected yet.
    pub(super) fn new(
        endpoint: Endpoint,
        name: ServerName<'static>,
        tls: ClientTls,
        dial_timeout: Duration,
    ) -> Self {
        Self {
            endpoint,
            name,
            tls,
            dial_timeout,
            sender: Mutex::new(None),
        }
    }

    /// Where it is, as the authority of a request's URI.
    pub(super) fn authority(&self) -> String {
        self.endpoint.to_string()
    }

    /// Sends a request and waits until its answer begins. One that only reads (GET, HEAD) is sent once more where the
    /// connection was lost, which a connection that the scheduler has closed meanwhile shows only then. A command is
    /// not: it may have been taken in.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let again = request.method().is_safe().then(|| request.clone());
        match (self.try_send(request).await, again) {
            (Err(UpstreamError::Lost { .. }), Some(request)) => self.try_send(request).await,
            (answer, _) => answer,
        }
    }

    /// Sends a request once.
    async fn try_send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let mut sender = self.sender().await?;
        let lost = |source| UpstreamError::Lost {
            address: self.endpoint.clone(),
            source,
        };
        sender.ready().await.map_err(lost)?;
        match timeout(ANSWER_DEADLINE, sender.send_request(request)).await {
            Ok(answer) => answer.map_err(lost),
            Err(_) => Err(UpstreamError::Silent(self.endpoint.clone())),
        }
    }

    /// The connection, made where there is none that stands. Waits for another request that is making it.
    ///
    /// # Errors
    /// It cannot be made in time.
    async fn sender(&self) -> Result<Sender, UpstreamError> {
        let mut held = self.sender.lock().await;
        if let Some(sender) = held.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        // Not kept while another is made: if that fails, the next request tries.
        *held = None;
        let sender = match timeout(self.dial_timeout, self.dial()).await {
            Ok(dialled) => dialled?,
            Err(_) => return Err(UpstreamError::Silent(self.endpoint.clone())),
        };
        *held = Some(sender.clone());
        Ok(sender)
    }

    /// Makes a connection: TCP, TLS, HTTP/2. Its task is spawned here.
    async fn dial(&self) -> Result<Sender, UpstreamError> {
        let failed = |source| UpstreamError::Dial {
            address: self.endpoint.clone(),
            source,
        };
        let host = (&*self.endpoint.host, self.endpoint.port);
        let addresses = lookup_host(host).await.map_err(failed)?;
        let mut dials = Dials::new(addresses, self.dial_timeout);
        let mut dialled = Err(io::Error::other("its name has no address"));
        while let Some((_, tried)) = dials.next().await {
            dialled = tried;
            if dialled.is_ok() {
                break;
            }
        }
        let tcp = dialled.map_err(failed)?;
        let mut tls = (*self.tls.at_dial(None).await).clone();
        // The only protocol that is offered: the client below speaks no other.
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = TlsConnector::from(Arc::new(tls)).connect(self.name.clone(), tcp);
        let tls = tls.await.map_err(failed)?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEAD as u32)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY);
        let (sender, connection) = builder
            .handshake(TokioIo::new(tls))
            .await
            .map_err(|error| failed(io::Error::other(error)))?;
        // The task drives the connection. It ends with the connection, or when no sender is left.
        tokio::spawn(connection);
        Ok(sender)
    }
}
