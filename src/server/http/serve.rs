//! Connections of the HTTP door: TLS with either protocol, the role of each peer, and the way from a request to its
//! handler.
//!
//! Not here: accepting sockets and the TLS handshake (`accept.rs`, which hands over an established stream), what a
//! route does ([`routes`](super::routes) and the handlers that it names), and what a request says
//! ([`call`](super::call)).
//!
//! A request passes these checks, in this order; the first that fails answers it with a [`Problem`]:
//!
//! ```text
//! path and method (axum's router)   404 no_such_path, 405 method_not_allowed
//! certificate, and its role         403 not_permitted
//! Origin, Sec-Fetch-Site            403 cross_origin
//! query string                      400 invalid_parameter
//! body: length, time, presence      413 too_long, 408 timeout, 400 invalid_payload
//! handler                           whatever the route and the core say; a panic is 500 internal_error
//! ```
//!
//! The role is checked before anything of the request is read, so that a peer without it cannot make the scheduler
//! buffer a body.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use axum::{Extension, RequestExt as _};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use proto_frames::Role;
use proto_frames::payload::identifier::usual_form;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::call::{Answer, Call, Parameters};
use super::caller::Caller;
use super::limits::{
    BODY_DEADLINE, BUDGET_DEADLINE, CONNECTION_WINDOW, HEAD_DEADLINE, MAX_BODY, MAX_HEAD,
    MAX_OUTPUTS, MAX_OUTPUTS_PER_CALLER, MAX_STREAMS, MAX_UPLOADS, MAX_UPLOADS_PER_CALLER,
    MAX_WAITING, MAX_WAITING_PER_CALLER, PING_EVERY, STREAM_BUFFER, STREAM_WINDOW,
};
use super::listings::Listings;
use super::mounted::Mounted;
use super::page::ASSETS;
use super::presence::Presence;
use super::problem::Problem;
use super::progress::Progress;
use super::read::find_instance;
use super::revoked::revoked;
use super::ring::Ring;
use super::routes::{self, Access, ROUTES, Route};
use super::shares::Shares;
use super::starts::Posted;
use super::unread::Unread;
use crate::net::ahead::Ahead;
use crate::net::identity::PeerIdentity;
use crate::net::tls::PeerChain;
use crate::server::accept::Held;
use crate::server::credentials::Live;
use crate::server::hub::Hub;
use crate::server::notices::{Class, Weight, Who};
use crate::server::placement;
use crate::server::tasks::caught;
use crate::server::timed::Timed;
use sched_core::SessionId;

/// The ALPN protocol name of HTTP/2 (RFC 9113, section 3.1). A connection on which TLS agreed on anything else, or on
/// nothing, is served HTTP/1.1.
pub(super) const HTTP_2: &[u8] = b"h2";

/// The HTTP door: what all its connections share. There is one per daemon, made by [`HttpDoor::open`] even where
/// several addresses are listened on.
#[derive(Debug)]
pub(in crate::server) struct HttpDoor {
    /// Also captured by each handler of `router`; kept here for [`Acceptor::serve`] and [`HttpDoor::pump`].
    app: Arc<App>,
    /// Made once from [`ROUTES`] and [`ASSETS`]. A connection gets a clone, which shares the routes.
    router: Router,
}

/// What every handler can reach, as `app` of its [`Call`]. It holds no state of a single request.
#[derive(Debug)]
pub(super) struct App {
    /// The scheduler's core behind its lock.
    pub(super) hub: Arc<Hub>,
    /// The latest events, and the counter from which every answer takes its `sequence`.
    pub(super) ring: Arc<Ring>,
    /// Which STARTs came over HTTP. `POST /v1/instances` holds this lock while it takes the core's lock, never the
    /// other way round.
    pub(super) posted: Mutex<Posted>,
    /// What lists have shown whose next page may be asked for.
    pub(super) listings: Listings,
    /// Places for requests with `?wait=`: [`MAX_WAITING`] in all, [`MAX_WAITING_PER_CALLER`] for one certificate. A request
    /// that gets none is answered at once, as if it had no `wait`.
    pub(super) waiting: Arc<Shares>,
    /// Places for readers of workloads' output: [`MAX_OUTPUTS`] in all, [`MAX_OUTPUTS_PER_CALLER`] for one certificate.
    pub(super) outputs: Arc<Shares>,
    /// Places for uploads of images: [`MAX_UPLOADS`] in all, [`MAX_UPLOADS_PER_CALLER`] for one certificate.
    pub(super) uploads: Arc<Shares>,
    /// When the door was opened, which is when the scheduler began; `uptime_s` of `GET /v1/status` counts from here.
    pub(super) started: Instant,
    /// What handshakes are made with: its certificates are shown by the metric
    /// `ciao_certificate_expiry_timestamp_seconds`.
    pub(super) credentials: Arc<Live>,
    /// The session, with the role VIEWER, in which the core sends its events to `ring`. Closed when the `App` is
    /// dropped.
    events: SessionId,
}

/// What `accept.rs` needs for connections to an HTTP address: what the handshake is made with, and the door that serves
/// what comes out of it.
#[derive(Clone)]
pub(in crate::server) struct Acceptor {
    pub(in crate::server) credentials: Arc<Live>,
    pub(in crate::server) door: Arc<HttpDoor>,
    /// What is below `/placement`, if it is offered.
    placement: Option<placement::Door>,
}

/// One connection, shared by the requests on it. Its identity does not change: a client that wants another role opens
/// another connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Whom the client certificate names, and which roles it grants.
    pub(super) identity: PeerIdentity,
    /// The peer's address, for the log.
    pub(super) from: SocketAddr,
    /// The session of the core in which it gives commands; empty until [`Connection::caller`] is called first. It ends
    /// with the connection.
    caller: OnceLock<Caller>,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The TLS configuration holds the private key.
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

impl HttpDoor {
    /// Makes the door: opens the session that receives events, subscribes it to all topics, and builds the router.
    /// Called once by `Server`, before anything is accepted. From here on the core sends events to the ring, whether or
    /// not anyone reads.
    pub(in crate::server) fn open(hub: &Arc<Hub>, credentials: &Arc<Live>) -> Arc<Self> {
        let ring = Ring::new();
        let events = hub.open_door(
            (hub.uuid, Role::VIEWER),
            None,
            Arc::clone(&ring) as Arc<dyn crate::server::hub::Door>,
        );
        hub.handle([super::events::subscription(events)], None);
        let app = Arc::new(App {
            hub: Arc::clone(hub),
            ring,
            posted: Mutex::default(),
            listings: Listings::default(),
            waiting: Shares::new(MAX_WAITING, MAX_WAITING_PER_CALLER),
            outputs: Shares::new(MAX_OUTPUTS, MAX_OUTPUTS_PER_CALLER),
            uploads: Shares::new(MAX_UPLOADS, MAX_UPLOADS_PER_CALLER),
            started: Instant::now(),
            credentials: Arc::clone(credentials),
            events,
        });
        let router = router(&app);
        Arc::new(Self { app, router })
    }

    /// Wakes the readers of events. Run as a task of the daemon ([`Ring::pump`]); without it streams would only send
    /// heartbeats. Never returns.
    pub(in crate::server) async fn pump(self: Arc<Self>) {
        self.app.ring.pump().await;
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.hub.close_door(self.events);
    }
}

impl Connection {
    /// The session of the core in which this connection gives commands, opened with its first command. Waits until the
    /// connection's earlier commands take up less of other peers' queues than `--controller-budget`, for at most
    /// [`BUDGET_DEADLINE`]: that is how a client that commands faster than launchers read is held back.
    ///
    /// Its role is OPERATOR where the certificate grants that, else VIEWER, with which only `POST /v1/explain` gets
    /// here.
    ///
    /// # Errors
    /// 503 `leaving` once the scheduler shuts down; 503 `too_many` if the deadline passes.
    pub(super) async fn caller(&self, app: &App) -> Result<&Caller, Problem> {
        if app.hub.is_shutting_down() {
            return Err(Problem::leaving());
        }
        let role = match self.identity.roles.contains(Role::OPERATOR) {
            true => Role::OPERATOR,
            false => Role::VIEWER,
        };
        let caller = self
            .caller
            .get_or_init(|| Caller::new(&app.hub, role, &self.identity));
        let ready = poll_fn(|cx| caller.budget().poll_ready(cx));
        match timeout(BUDGET_DEADLINE, ready).await {
            Ok(()) => Ok(caller),
            Err(_) => Err(Problem::busy(
                "what this connection has sent before has not left for the launchers yet",
            )),
        }
    }
}

/// Builds the router: every entry of [`ROUTES`] with its handler, every file of the page, and answers for unknown paths
/// and methods. axum lets a GET route answer HEAD as well, and drops the body once its length is in the head. Files of the page need the
/// role of a reader, like the routes they use.
fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let app = Arc::clone(app);
        let handle = move |Extension(connection): Extension<Arc<Connection>>, request: Request| {
            let app = Arc::clone(&app);
            async move { respond(route, app, connection, request).await }
        };
        let filter = match route.method {
            "POST" => MethodFilter::POST,
            "PUT" => MethodFilter::PUT,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        router = router.route(route.path, MethodRouter::new().on(filter, handle));
    }
    for asset in &*ASSETS {
        let handle = move |Extension(connection): Extension<Arc<Connection>>,
                           headers: HeaderMap| async move {
            match permitted(&connection, Access::Read, ("GET", asset.path)) {
                Ok(()) => asset.answer(&headers),
                Err(problem) => uncached(problem.into_response()),
            }
        };
        router = router.route(
            asset.path,
            MethodRouter::new().on(MethodFilter::GET, handle),
        );
    }
    router
        .fallback(|request: Request| async move {
            let problem = Problem::no_such_path(request.uri().path());
            uncached(problem.into_response())
        })
        .method_not_allowed_fallback(|request: Request| async move {
            let problem = Problem::not_taken(request.method(), request.uri().path());
            uncached(problem.into_response())
        })
}

/// Answers a request of a route.
async fn respond(
    route: &'static Route,
    app: Arc<App>,
    connection: Arc<Connection>,
    request: Request,
) -> Response {
    uncached(match call(route, app, connection, request).await {
        Ok(call) => answer(route, call).await,
        Err(problem) => problem.into_response(),
    })
}

/// Runs a handler. Errors become problem documents here, and so does a panic of it: it is logged and ends this request
/// alone, not the connection with its other requests.
async fn answer(route: &'static Route, call: Call) -> Response {
    match caught((route.handler)(call)).await {
        Ok(answer) => answer.unwrap_or_else(Problem::into_response),
        Err(why) => {
            tracing::error!(event = "internal_error", "internal error: {route:?}: {why}");
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            let detail = "the request has ended; the log says more";
            Problem::new(status, "internal_error", detail).into_response()
        }
    }
}

/// Marks an answer `no-store`, because it says how things are at one moment, and `nosniff`, because output of workloads
/// is bytes that a browser must not take for a page. All answers but files of the page, which are marked otherwise.
pub(super) fn uncached(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// Checks a request and reads it whole, body included, but for images that are uploaded: their handler reads the body. The order is that in the head of this file. `id` is the one
/// parameter that a path may have (`{id}`), percent-decoded, of an instance its identifier; it is empty for routes without.
///
/// # Errors
/// The first check that fails.
async fn call(
    route: &'static Route,
    app: Arc<App>,
    connection: Arc<Connection>,
    mut request: Request,
) -> Result<Call, Problem> {
    permitted(&connection, route.access, (route.method, route.path))?;
    from_same_origin(request.headers(), request.uri())?;
    let query = Parameters::read(request.uri().query().unwrap_or_default(), route.params)?;
    // Fails only if the decoded text is not UTF-8.
    let id = match request.extract_parts::<RawPathParams>().await {
        Ok(params) => (params.iter().next()).map(|(_, id)| usual_form(id).into_owned()),
        Err(error) => return Err(Problem::invalid_payload("id", error)),
    };
    let headers = request.headers().clone();
    let id = match id {
        Some(id) if route.is_of_instance() => find_instance(&app, id).await?,
        id => id.unwrap_or_default(),
    };
    let (body, unread) = match route.body {
        Some(routes::Body::Image) => (Default::default(), Unread::new(request.into_body())),
        _ => (body_of(route, request).await?, Unread::default()),
    };
    Ok(Call {
        app,
        connection,
        id,
        query,
        headers,
        body,
        unread,
    })
}

/// Refuses a peer whose certificate does not grant a role that is needed. One of the roles in `access` is enough.
///
/// # Errors
/// 403 `not_permitted`, with the certificate that would be enough.
fn permitted(
    connection: &Connection,
    access: Access,
    (method, path): (&str, &str),
) -> Result<(), Problem> {
    let granted = connection.identity.roles;
    if granted.intersects(access.roles()) {
        return Ok(());
    }
    let detail = format!("{method} {path} is not for {granted}");
    let needed = match access {
        Access::Command => "a certificate of a controller",
        _ => "a certificate of a viewer or controller",
    };
    let help = format!("{needed} may; ciao-cert makes one");
    Err(Problem::new(StatusCode::FORBIDDEN, "not_permitted", detail).with_help(help))
}

/// Refuses what a page of another origin has a browser send. TLS client certificates are sent by a browser whatever
/// page makes the request, so a certificate alone does not say that its owner wants this (cross-site request forgery).
///
/// Two headers that browsers set and that pages cannot change decide: `Sec-Fetch-Site` must be `same-origin` or `none`
/// (the user typed the address), and `Origin` must be `https://` and the host that the request is for. Programs leave
/// both out and are let through. A value that is not ASCII is refused.
///
/// # Errors
/// 403 `cross_origin`.
fn from_same_origin(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str());
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let is_same_site = matches!(site, None | Some(Ok("same-origin" | "none")));
    // HTTP/2 has the host in `:authority`, which hyper puts into the URI; HTTP/1.1 has it in a header.
    let host = match uri.authority() {
        Some(authority) => Some(Ok(authority.as_str())),
        None => text(header::HOST),
    };
    let is_same_host = match (text(header::ORIGIN), host) {
        (None, _) => true,
        (Some(Ok(origin)), Some(Ok(host))) => origin.strip_prefix("https://") == Some(host),
        _ => false,
    };
    if is_same_site && is_same_host {
        return Ok(());
    }
    let detail = "this request comes from a page of another origin";
    Err(
        Problem::new(StatusCode::FORBIDDEN, "cross_origin", detail).with_help(
            "programs leave out the headers Origin and Sec-Fetch-Site; pages are served by the scheduler alone",
        ),
    )
}

/// Reads a request's body: at most [`MAX_BODY`] bytes within [`BODY_DEADLINE`]. A declared length that is too large is
/// refused before a byte is read; a body without a length, or with a wrong one, is refused when it passes the limit.
///
/// # Errors
/// 413 `too_long`, 408 `timeout`, 400 `invalid_payload` where the body breaks off or the route takes none.
async fn body_of(route: &Route, request: Request) -> Result<axum::body::Bytes, Problem> {
    let too_long = || {
        let detail = format!("the body has more than {MAX_BODY} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_long", detail)
    };
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY) {
        return Err(too_long());
    }
    let read = to_bytes(request.into_body(), MAX_BODY);
    let body = match timeout(BODY_DEADLINE, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) if is_limit(&error) => return Err(too_long()),
        Ok(Err(error)) => return Err(Problem::invalid_payload("", format!("the body: {error}"))),
        Err(_) => {
            let detail = format!("the body did not come within {BODY_DEADLINE:?}");
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail));
        }
    };
    if route.body.is_none() && !body.is_empty() {
        return Err(Problem::invalid_payload("", "this takes no body"));
    }
    Ok(body)
}

/// Whether reading a body failed because it was too long. axum wraps the error of `http_body_util`, so the chain of
/// sources is searched.
fn is_limit(error: &axum::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        source = error.source();
    }
    false
}

impl Acceptor {
    /// For a door that is open. `credentials` let clients in without a certificate if the Placement API is offered.
    pub(in crate::server) fn new(
        credentials: Arc<Live>,
        door: Arc<HttpDoor>,
        placement: Option<placement::Door>,
    ) -> Self {
        Self {
            credentials,
            door,
            placement,
        }
    }

    /// Serves a connection to its end. Runs as a task of its own, spawned by `accept.rs` after the handshake. `place`
    /// is what the connection holds of `--max-connections`; it is given back when this returns.
    ///
    /// The connection ends when the peer closes it, when it is silent or takes nothing for too long (the deadlines in
    /// [`limits`](super::limits) and `--progress-deadline`), or once the daemon leaves and its requests are answered.
    /// Errors of a connection are the peer's and are logged as debug messages only.
    pub(in crate::server) async fn serve(
        self,
        stream: TlsStream<Ahead<Timed>>,
        peer: Option<(PeerIdentity, PeerChain)>,
        from: SocketAddr,
        place: Held,
    ) {
        let hub = Arc::clone(&self.door.app.hub);
        let (identity, chain) = peer.unzip();
        // Of those with a certificate there may be as many as there may be connections.
        let place_of_guest = match (&identity, &self.placement) {
            (Some(_), _) => None,
            (None, Some(placement)) => match placement.guest(from.ip()) {
                Some(place) => Some(place),
                None => return debug!("{from}: HTTP: too many connections without a certificate"),
            },
            // TLS does not let them in.
            (None, None) => return,
        };
        let is_http_2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
        let deadline = hub.limits.progress_deadline;
        let routes = identity.map(|identity| {
            let connection = Arc::new(Connection {
                identity,
                from,
                caller: OnceLock::new(),
            });
            // Handlers find their connection by this extension. Only this clone of the router has it.
            self.door.router.clone().layer(Extension(connection))
        });
        let mounted = Mounted::new(routes, self.placement, (from, place_of_guest));
        let service = service_fn(|request| mounted.respond(request));
        let serving = async {
            if is_http_2 {
                let io = TokioIo::new(Progress::new(stream, deadline));
                let serving = http_2().serve_connection(io, service);
                until_leaving(&hub, serving, |it| it.graceful_shutdown()).await
            } else {
                let io = TokioIo::new(Progress::new(Presence::new(stream), deadline));
                let serving = http_1().serve_connection(io, service);
                until_leaving(&hub, serving, |it| it.graceful_shutdown()).await
            }
        };
        let credentials = Arc::clone(&self.credentials);
        tokio::select! {
            ended = serving => {
                if let Err(error) = ended {
                    debug!("{from}: HTTP: {error}");
                }
            }
            why = revoked(&credentials, chain.unwrap_or_default()) => {
                let line = format_args!("{from}: HTTP: disconnected: its certificate, or a CA's above it, is {why}");
                hub.note(Class::Cut, Who::Address(from.ip()), Weight::Warning, line);
            }
            () = mounted.has_to_end() => {
                debug!("{from}: HTTP: it has not taken an answer of the Placement API in time, or shown no token");
            }
        }
        drop((mounted, place));
    }
}

/// Drives a connection to its end. Once the daemon leaves, `shut_down` is called, which makes hyper take no further
/// request and end after those under way; streams end by themselves then, because they wait for [`Hub::leaving`] too.
/// Also used by the Placement API.
pub(in crate::server) async fn until_leaving<C: Future>(
    hub: &Hub,
    serving: C,
    shut_down: impl FnOnce(Pin<&mut C>),
) -> C::Output {
    tokio::pin!(serving);
    tokio::select! {
        ended = serving.as_mut() => return ended,
        () = hub.leaving() => shut_down(serving.as_mut()),
    }
    serving.await
}

/// How connections of HTTP/1.1 are served. hyper starts the head's deadline when it begins to wait for a request, so
/// that it bounds idle connections as well. A client that has shut its sending half gets its answer; whether it is still
/// there is not looked at ([`Presence`] does). Also used by the Placement API, whose answers are short work.
pub(in crate::server) fn http_1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .half_close(true)
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD);
    builder
}

/// How connections of HTTP/2 are served. The windows and the send buffer bound what one peer can make the scheduler
/// hold, by stream and by connection; the ping finds peers that have gone, which an event stream without events would
/// not notice.
pub(super) fn http_2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buf_size(STREAM_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY);
    builder
}

/// Wraps the answer of a handler that never waits, since the table of routes takes futures.
pub(super) fn now(answer: Answer) -> impl Future<Output = Answer> {
    std::future::ready(answer)
}
