//! The server on loopback: accepts browsers and passes on what they ask for.
//!
//! A request is either `GET /open`, which is answered here, or is checked by the [`Gate`] and passed on:
//!
//! ```text
//! browser's request   method, path and query, body (whole, at most 256 KiB), headers in TO_SCHEDULER
//! scheduler's answer  status, body (as it comes, so that streams work), headers in TO_BROWSER
//! ```
//!
//! Lists of headers rather than all but some: cookies and `Origin` are of this server and are not for the scheduler,
//! and headers about connections are not for either.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::gate::{Gate, OPEN, RefusedRequest};
use super::limits::{
    BODY_DEADLINE, CLOSING_DEADLINE, HEAD_DEADLINE, MAX_BODY, MAX_CONNECTIONS, MAX_HEAD,
};
use super::upstream::Upstream;
use crate::net::address::Endpoint;
use crate::net::socket::accept;
use crate::net::tls::ClientTls;

/// What goes to the scheduler of a request's headers. `Origin` and `Sec-Fetch-Site` are left out, by which the
/// scheduler would refuse the request: the gate has checked them.
const TO_SCHEDULER: &[&str] = &["accept", "content-type", "if-none-match", "last-event-id"];

/// What goes to the browser of an answer's headers, those that keep the page to its own files among them.
const TO_BROWSER: &[&str] = &[
    "allow",
    "cache-control",
    "ciao-sequence",
    "content-security-policy",
    "content-type",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "etag",
    "referrer-policy",
    "x-accel-buffering",
    "x-content-type-options",
    "x-frame-options",
];

/// How long to wait until connections are accepted again, where the system has no descriptors left. Without a pause the
/// loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An answer's body: the scheduler's as it comes, or a text of this server.
type Body = BoxBody<Bytes, hyper::Error>;

/// What it serves, and with which certificate.
pub struct WebConfig {
    /// Where to listen: an address of this machine alone. With port 0 the system chooses one.
    pub listen: SocketAddr,
    /// The scheduler's HTTP door, with the name that its certificate must have.
    pub scheduler: Endpoint,
    /// The user's certificate and key, and whom to trust. Each request of a browser that was let in acts with it.
    pub tls: ClientTls,
    /// How long connecting to the scheduler may take, TLS included.
    pub connect_timeout: Duration,
}

/// Why there is no server. No socket stays open then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The address can be reached from other machines.
    #[error(
        "{0} can be reached from other machines, and each of them would act with your certificate: listen on 127.0.0.1 or [::1]"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The underlying error.
        source: io::Error,
    },
    /// The scheduler's name is neither a DNS name nor an IP address.
    #[error("{0:?} is no name a certificate can be valid for")]
    BadName(String),
    /// There are no random numbers for its secrets.
    #[error("the system has no random numbers for a token")]
    NoRandom,
}

/// A server that listens. Connections wait in the kernel until [`Web::run`] accepts them.
#[derive(Debug)]
pub struct Web {
    listener: TcpListener,
    shared: Arc<Gateway>,
}

/// What all requests share.
#[derive(Debug)]
struct Gateway {
    /// Who may ask.
    gate: Gate,
    /// Where requests go.
    upstream: Upstream,
    /// The address that is good next; another one whenever one has been used.
    urls: watch::Sender<String>,
}

impl std::fmt::Debug for WebConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The TLS configuration holds the private key.
        f.debug_struct("WebConfig")
            .field("listen", &self.listen)
            .field("scheduler", &self.scheduler)
            .finish_non_exhaustive()
    }
}

impl Web {
    /// Listens. The scheduler is not connected to before a request needs it.
    ///
    /// # Errors
    /// [`WebError`].
    pub async fn bind(config: WebConfig) -> Result<Self, WebError> {
        if !config.listen.ip().is_loopback() {
            return Err(WebError::NotLoopback(config.listen));
        }
        let failed = |source| WebError::Listen {
            address: config.listen,
            source,
        };
        let name = config.scheduler.expected_name().to_owned();
        let name = ServerName::try_from(name.clone()).map_err(|_| WebError::BadName(name))?;
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let gate = Gate::new(listener.local_addr().map_err(failed)?);
        let gate = gate.map_err(|_| WebError::NoRandom)?;
        let urls = watch::Sender::new(gate.url());
        let upstream = Upstream::new(config.scheduler, name, config.tls, config.connect_timeout);
        Ok(Self {
            listener,
            shared: Arc::new(Gateway {
                gate,
                upstream,
                urls,
            }),
        })
    }

    /// The address to open in a browser, with a token that is good once. The receiver is told another one whenever it
    /// has been used.
    #[must_use]
    pub fn urls(&self) -> watch::Receiver<String> {
        self.shared.urls.subscribe()
    }

    /// Serves until `stop` ends; connections may then go on for 300 ms. Errors of accepting and of connections are not
    /// reported: the browser shows them.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                // Takes the results of connections that have ended, so that the set does not grow.
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener) => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let shared = Arc::clone(&self.shared);
            // Without a place the connection is closed at once: a browser would show nothing while it waits.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                continue;
            };
            connections.spawn(async move {
                connection(stream, shared).await;
                drop(place);
            });
        }
        // Streams of events have no end of their own.
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = timeout(CLOSING_DEADLINE, all).await;
    }
}

/// Serves one connection of a browser to its end. HTTP/1.1 alone: browsers speak HTTP/2 only over TLS.
async fn connection(stream: TcpStream, shared: Arc<Gateway>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    // A browser that goes away in the middle is no error.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl Gateway {
    /// Answers a request, or passes it on.
    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() == OPEN && request.method() == Method::GET {
            return self.open(request.headers(), request.uri().query());
        }
        if let Err(refused) = self.gate.check(request.method(), request.headers()) {
            return refusal(refused, request.headers());
        }
        match self.pass_on(request).await {
            Ok(answer) => answer,
            Err(answer) => answer,
        }
    }

    /// Exchanges the token of `/open?token=…` for a cookie. What lets a browser in is an answer of its own, not a
    /// redirection: a browser sends a cookie that is `SameSite=Strict` with what its own pages ask for, and not where
    /// another page has led it here. So the answer is a small page of this origin that goes on to `/` by itself.
    ///
    /// A browser that has the cookie already is let through with an old token, such as one that goes back in its
    /// history.
    fn open(&self, headers: &HeaderMap, query: Option<&str>) -> Response<Body> {
        if let Err(refused) = self.gate.check_host(headers) {
            return refusal(refused, headers);
        }
        let cookie = match self.gate.exchange(query.unwrap_or_default()) {
            Ok(cookie) => Some(cookie),
            // A browser that was let in before, for example by going back in its history.
            Err(_) if self.gate.has_cookie(headers) => None,
            Err(refused) => return refusal(refused, headers),
        };
        let page = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url=/\">\
                    <title>ciao</title><p><a href=\"/\">Go on to the page</a></p></html>";
        let mut response = own(StatusCode::OK, "text/html; charset=utf-8", page.to_owned());
        if let Some(cookie) = cookie {
            if let Ok(value) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, value);
            }
            // The token is used up; `run.rs` prints the next address.
            self.urls.send_replace(self.gate.url());
        }
        response
    }

    /// Passes a request on and its answer back. Both sides are an answer to the browser; the error is one that this
    /// server made itself, as a problem document.
    ///
    /// # Errors
    /// 413 or 408 for the body, 400 for what cannot be a request of HTTP/2, 502 `scheduler_away` where there is no
    /// answer.
    async fn pass_on(&self, request: Request<Incoming>) -> Result<Response<Body>, Response<Body>> {
        let target = request.uri().path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        let mut onward = Request::builder()
            .method(request.method())
            .uri(format!("https://{}{target}", self.upstream.authority()));
        for name in TO_SCHEDULER {
            for value in request.headers().get_all(*name) {
                onward = onward.header(*name, value);
            }
        }
        let too_long = || {
            let detail = format!("the body has more than {MAX_BODY} bytes");
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            problem(status, "too_long", &detail, "send less")
        };
        // A declared length that is too large is refused before a byte is read.
        if request.body().size_hint().lower() > MAX_BODY as u64 {
            return Err(too_long());
        }
        let body = Limited::new(request.into_body(), MAX_BODY).collect();
        let body = match timeout(BODY_DEADLINE, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_long()),
            _ => {
                let (status, detail) = (StatusCode::REQUEST_TIMEOUT, "the body did not come");
                return Err(problem(status, "timeout", detail, "send it again"));
            }
        };
        let onward = onward.body(Full::new(body)).map_err(|error| {
            let status = StatusCode::BAD_REQUEST;
            problem(
                status,
                "invalid_payload",
                &error.to_string(),
                "mend the request",
            )
        })?;
        let answer = self.upstream.send(onward).await.map_err(|error| {
            let help = "the page tries again by itself; see that the scheduler runs and serves HTTP (--http)";
            let status = StatusCode::BAD_GATEWAY;
            problem(status, "scheduler_away", &error.to_string(), help)
        })?;
        // The body is passed on as it comes: it may be a stream without an end.
        let (parts, body) = answer.into_parts();
        let mut response = Response::new(body.boxed());
        *response.status_mut() = parts.status;
        for name in TO_BROWSER {
            for value in parts.headers.get_all(*name) {
                response.headers_mut().append(*name, value.clone());
            }
        }
        Ok(response)
    }
}

/// A refusal: text for people where a browser goes to an address (it accepts HTML then), else a problem document, which
/// the page shows.
fn refusal(refused: RefusedRequest, headers: &HeaderMap) -> Response<Body> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/html")) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {}.", refused.detail, refused.help);
        return own(refused.status, "text/plain; charset=utf-8", text);
    }
    problem(refused.status, refused.reason, refused.detail, refused.help)
}

/// A problem document (RFC 9457), in the form that the scheduler has.
fn problem(status: StatusCode, reason: &str, detail: &str, help: &str) -> Response<Body> {
    let document = json!({
        "type": format!("urn:ciao:problem:{reason}"),
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "reason": reason,
        "detail": detail,
        "help": help,
    });
    own(status, "application/problem+json", document.to_string())
}

/// An answer of this server's own. It may load nothing, is not kept and is not shown in a frame.
fn own(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
        ),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}
