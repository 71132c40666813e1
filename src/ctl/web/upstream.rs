//! The connection to the scheduler: one of HTTP/2 for everything, made when it is needed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::limits::{ANSWER_DEADLINE, CONNECTION_WINDOW, MAX_HEAD, PING_EVERY, STREAM_WINDOW};
use crate::net::address::Endpoint;

type Sender = http2::SendRequest<Full<Bytes>>;

/// The scheduler's HTTP door.
pub(super) struct Upstream {
    endpoint: Endpoint,
    name: ServerName<'static>,
    tls: TlsConnector,
    dial_timeout: Duration,
    sender: Mutex<Option<Sender>>,
}

/// Why there is no answer of the scheduler.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Dial {
        /// Where to.
        address: Endpoint,
        /// Why.
        source: io::Error,
    },
    /// No connection in time.
    #[error("{0} does not answer")]
    Silent(Endpoint),
    /// The connection was lost.
    #[error("the connection to {address} was lost: {source}")]
    Lost {
        /// Where to.
        address: Endpoint,
        /// Why.
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
        tls: &ClientConfig,
        dial_timeout: Duration,
    ) -> Self {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Self {
            endpoint,
            name,
            tls: TlsConnector::from(Arc::new(tls)),
            dial_timeout,
            sender: Mutex::new(None),
        }
    }

    /// Where it is, as an authority.
    pub(super) fn authority(&self) -> String {
        self.endpoint.to_string()
    }

    /// Sends a request. One that only reads is sent once more where the connection was lost.
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

    /// The connection, made where there is none that stands.
    async fn sender(&self) -> Result<Sender, UpstreamError> {
        let mut held = self.sender.lock().await;
        if let Some(sender) = held.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        *held = None;
        let sender = match timeout(self.dial_timeout, self.dial()).await {
            Ok(dialled) => dialled?,
            Err(_) => return Err(UpstreamError::Silent(self.endpoint.clone())),
        };
        *held = Some(sender.clone());
        Ok(sender)
    }

    async fn dial(&self) -> Result<Sender, UpstreamError> {
        let failed = |source| UpstreamError::Dial {
            address: self.endpoint.clone(),
            source,
        };
        let host = (&*self.endpoint.host, self.endpoint.port);
        let tcp = TcpStream::connect(host).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        let tls = self.tls.connect(self.name.clone(), tcp);
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
        // It ends with the connection, or when no sender is left.
        tokio::spawn(connection);
        Ok(sender)
    }
}
