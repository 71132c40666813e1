//! Connections of the Placement API, and the way from a request to its answer. HTTP/1.1 alone on its own addresses,
//! plain on loopback, TLS elsewhere; and below [`MOUNT`] of the HTTP door, whose connections are not this file's.
//!
//! A request is checked in this order:
//!
//! ```text
//! GET /             (or the mount) the versions, without a token: clients ask for them before they authenticate
//! version           406, 400
//! X-Auth-Token      401
//! path              404 where Placement has none, in this version
//! method            405 for all but GET
//! permit            waits while MAX_REQUESTS others are worked on or being written
//! names, parameters 404, 400
//! ```
//!
//! Every answer, faults included, has the version that was used and an id of the request.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use proto_frames::Uuid;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;

use super::body::{Body, Writing};
use super::fault::Fault;
use super::limits::{MAX_CONNECTIONS, MAX_REQUESTS};
use super::params::{Known, Params};
use super::places::{Place, Places};
use super::tokens::{Digests, TokensError};
use super::version::{HEADER, SERVICE, Version};
use super::{PlacementConfig, PlacementError};
use super::{allocations, candidates, classes, providers, usages};
use crate::net::tls::KeyFiles;
use crate::server::accept::Held;
use crate::server::credentials::{Live, Moment};
use crate::server::http::{HEAD_DEADLINE, Progress, http_1, until_leaving};
use crate::server::hub::Hub;
use crate::server::notices::{Class, Weight, Who};
use crate::server::tasks::caught;

/// The one method that is answered.
const GET: &str = "GET";

/// No method, as an `Allow` header that is empty says it (RFC 9110, section 10.2.1).
const NOTHING: &str = "";

/// The header with a token, as OpenStack's clients send it. Here it is one of the file's, not Keystone's.
const TOKEN: &str = "x-auth-token";

/// Where the API is at the HTTP door, as OpenStack's services are on addresses that they share.
pub const MOUNT: &str = "/placement";

/// The version from which on answers have `Last-Modified` and `Cache-Control`: 1.15.
const CACHING: Version = Version(15);

/// What all connections share. Cloned for each connection and each request, which copies a few pointers.
#[derive(Debug, Clone)]
pub(in crate::server) struct Door {
    hub: Arc<Hub>,
    /// Who may ask, by tokens.
    credentials: Arc<Live>,
    /// Places for connections to its own addresses.
    connections: Places,
    /// As many for connections without a certificate to the HTTP door, which may be where others reach it.
    guests: Places,
    /// Permits for requests that are worked on or whose answers are being written, `MAX_REQUESTS` of them.
    requests: Arc<Semaphore>,
}

/// One request that has passed all checks but those of its path.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) hub: &'a Hub,
    /// In which form to answer, and which parameters there are.
    pub(super) version: Version,
    /// What the paths of links begin with: [`MOUNT`], or nothing.
    pub(super) base: &'static str,
    /// What stands behind the `?`, not decoded.
    query: &'a str,
}

impl Call<'_> {
    /// Its parameters, of these. A handler that does not call this ignores what was sent.
    ///
    /// # Errors
    /// 400 for any other parameter.
    pub(super) fn params(&self, known: &[Known]) -> Result<Params, Fault> {
        Params::read(self.query, known, self.version)
    }
}

/// An answer before it is written.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    /// The methods of the path, where another was used.
    allow: Option<&'static str>,
    /// `None` for an answer without a body, such as 204.
    body: Option<Value>,
}

impl Reply {
    /// 200 with this body.
    pub(super) fn ok(body: Value) -> Self {
        Self {
            status: StatusCode::OK,
            allow: None,
            body: Some(body),
        }
    }

    /// An answer without a body.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            allow: None,
            body: None,
        }
    }
}

/// Reads what the Placement API is offered with: the tokens.
///
/// # Errors
/// [`PlacementError`] with the file's path. That there is no token is one `at` the start alone: later it withdraws the
/// last one.
pub(in crate::server) fn load(
    config: &PlacementConfig,
    key_files: KeyFiles,
    at: Moment,
) -> Result<Digests, PlacementError> {
    let in_file = |source: TokensError| PlacementError::Tokens {
        path: config.tokens.clone(),
        source,
    };
    let tokens = Digests::load(&config.tokens, key_files).map_err(in_file)?;
    match at {
        Moment::Start if tokens.len() == 0 => Err(in_file(TokensError::Empty)),
        _ => Ok(tokens),
    }
}

impl Door {
    /// Makes the door; nothing is opened.
    pub(in crate::server) fn new(hub: &Arc<Hub>, credentials: &Arc<Live>) -> Self {
        Self {
            hub: Arc::clone(hub),
            credentials: Arc::clone(credentials),
            connections: Places::default(),
            guests: Places::default(),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
        }
    }

    /// What handshakes for addresses of its own are made with.
    pub(in crate::server) fn credentials(&self) -> &Live {
        &self.credentials
    }

    /// Serves a connection to its end; one too many ends at once, without an answer, and so does one that has shown no
    /// token where another needs its place. Runs as a task of its own, spawned
    /// by `accept.rs`, for TLS after the handshake. `place` is what the connection holds of `--max-connections`. A
    /// connection that does not take an answer in time ends before all of it is written.
    pub(in crate::server) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        stream: S,
        from: SocketAddr,
        place: Held,
    ) {
        let Some(own) = self.connections.take(from.ip()) else {
            debug!("{from}: Placement: {MAX_CONNECTIONS} connections are open already");
            return;
        };
        let io = TokioIo::new(Progress::new(stream, self.hub.limits.progress_deadline));
        let writing = Writing::new(from, Some(own));
        let service = service_fn(|request| {
            let (door, writing) = (self.clone(), writing.clone());
            async move { Ok::<_, Infallible>(door.respond(&request, "", &writing).await) }
        });
        let serving = http_1().serve_connection(io, service);
        tokio::select! {
            ended = until_leaving(&self.hub, serving, |it| it.graceful_shutdown()) => {
                if let Err(error) = ended {
                    debug!("{from}: Placement: {error}");
                }
            }
            () = writing.has_to_end(HEAD_DEADLINE) => {
                debug!("{from}: Placement: it has not taken an answer in time, or shown no token");
            }
        }
        drop((writing, place));
    }

    /// A place for a connection to the HTTP door without a certificate; `None` where there are as many as may be.
    pub(in crate::server) fn guest(&self, from: IpAddr) -> Option<Place> {
        self.guests.take(from)
    }

    /// Answers a request to the HTTP door at [`MOUNT`] or below it; `None` for any other.
    pub(in crate::server) async fn respond_mounted<B>(
        &self,
        request: &Request<B>,
        writing: &Writing,
    ) -> Option<Response<Body>> {
        let below = request.uri().path().strip_prefix(MOUNT)?;
        match below.is_empty() || below.starts_with('/') {
            true => Some(self.respond(request, MOUNT, writing).await),
            false => None,
        }
    }

    /// Answers a request, whose path begins with `base`. Its body is not read: nothing here takes one. A panic of a handler is logged and answered
    /// with 500; the connection goes on. Where the version cannot be read, the fault is written in the oldest form.
    async fn respond<B>(
        &self,
        request: &Request<B>,
        base: &'static str,
        writing: &Writing,
    ) -> Response<Body> {
        let version = Version::of(request.headers());
        // The version that the answer is written in and names.
        let used = *version.as_ref().unwrap_or(&Version::MIN);
        let request_id = format!("req-{}", Uuid::new_v4());
        let answered = match caught(self.answer(request, base, version, writing)).await {
            Ok(answered) => answered,
            Err(why) => {
                let path = request.uri().path();
                tracing::error!(event = "internal_error", "internal error: {path}: {why}");
                let detail = "the request has ended; the log says more";
                Err(Fault::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
            }
        };
        let (reply, turn) = answered.unwrap_or_else(|fault| {
            let reply = Reply {
                status: fault.status(),
                allow: fault.allow(),
                body: Some(fault.document(used, &request_id)),
            };
            (reply, None)
        });
        response(&reply, used, &request_id).map(|body| Body::new(body, turn, writing))
    }

    /// Checks a request, in the order that the head of this file has, and has it answered. The permit is to be held
    /// until the answer is taken.
    ///
    /// # Errors
    /// The first check that fails, or what the handler says.
    async fn answer<B>(
        &self,
        request: &Request<B>,
        base: &'static str,
        version: Result<Version, Fault>,
        writing: &Writing,
    ) -> Result<(Reply, Option<OwnedSemaphorePermit>), Fault> {
        let path = request.uri().path();
        let path = path.strip_prefix(base).unwrap_or(path);
        // Empty segments are left out, so `//traits/` is `/traits`.
        let segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
        let version = version?;
        if !takes_json(request.headers()) {
            let detail = "Only application/json is provided";
            return Err(Fault::new(StatusCode::NOT_ACCEPTABLE, detail));
        }
        if segments.is_empty() && request.method() == Method::GET {
            return Ok((Reply::ok(versions()), None));
        }
        let token = request.headers().get(TOKEN);
        if !token.is_some_and(|token| self.credentials.admits(token.as_bytes())) {
            if token.is_some() {
                self.note_wrong_token(writing);
            }
            let detail = "Authentication required: X-Auth-Token is none of the scheduler's tokens";
            return Err(Fault::new(StatusCode::UNAUTHORIZED, detail));
        }
        writing.admit();
        let allowed = allowed(&segments, version).ok_or_else(Fault::no_path)?;
        if request.method() != allowed {
            return Err(Fault::method(request.method(), allowed));
        }
        // Waiting here costs no lock; the semaphore is never closed, so this cannot fail.
        let turn = Arc::clone(&self.requests).acquire_owned().await.ok();
        let call = Call {
            hub: &self.hub,
            version,
            base,
            query: request.uri().query().unwrap_or_default(),
        };
        Ok((route(&call, &segments).await?, turn))
    }

    /// Says in the log that somebody has shown a token that is not let in, as of a certificate that is not.
    fn note_wrong_token(&self, writing: &Writing) {
        if let Some(from) = writing.turn_down() {
            let line = format_args!("refused {from}: its token is none of the Placement API's");
            let who = Who::Address(from.ip());
            self.hub.note(Class::Refused, who, Weight::News, line);
        }
    }
}

/// Whether a client takes JSON: it does not say what it takes, or names it or a range of types that it is in. What it
/// prefers (`q`) does not matter, because there is no other form.
fn takes_json(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all(header::ACCEPT).iter().peekable();
    if said.peek().is_none() {
        return true;
    }
    let mut types = said
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|item| item.split(';').next().unwrap_or_default().trim());
    types.any(|it| matches!(it, "application/json" | "application/*" | "*/*"))
}

/// The method that is allowed at a path, or none: what Placement has to write with is there, and refused. `None` where
/// Placement has no such path; one that a later version brought is none in an earlier one, unless it is only written to,
/// as `/allocations` is: whichever the version, reading it is the wrong method.
///
/// Segments are compared as they are sent: Placement's names need no percent-encoding.
fn allowed(segments: &[&str], version: Version) -> Option<&'static str> {
    let (since, method) = match *segments {
        []
        | ["resource_providers" | "allocations", _]
        | ["resource_providers"]
        | [
            "resource_providers",
            _,
            "inventories" | "usages" | "allocations",
        ]
        | ["resource_providers", _, "inventories", _] => (0, GET),
        ["resource_providers", _, "aggregates"] => (1, GET),
        ["resource_classes"] | ["resource_classes", _] => (2, GET),
        ["resource_providers", _, "traits"] | ["traits"] | ["traits", _] => (6, GET),
        ["usages"] => (9, GET),
        ["allocation_candidates"] => (10, GET),
        ["allocations" | "reshaper"] => (0, NOTHING),
        _ => return None,
    };
    (version >= Version(since)).then_some(method)
}

/// What answers at each path that is [`allowed`].
async fn route(call: &Call<'_>, segments: &[&str]) -> Result<Reply, Fault> {
    match *segments {
        ["resource_providers"] => providers::list(call).await,
        ["resource_providers", uuid] => providers::one(call, uuid),
        ["resource_providers", uuid, "inventories"] => providers::inventories(call, uuid),
        ["resource_providers", uuid, "inventories", class] => {
            providers::inventory_of(call, uuid, class)
        }
        ["resource_providers", uuid, "usages"] => providers::usages(call, uuid),
        ["resource_providers", uuid, "aggregates"] => providers::aggregates(call, uuid),
        ["resource_providers", uuid, "traits"] => providers::traits(call, uuid),
        ["resource_providers", uuid, "allocations"] => allocations::of_provider(call, uuid).await,
        ["allocations", consumer] => allocations::of_consumer(call, consumer),
        ["usages"] => usages::of_project(call).await,
        ["resource_classes"] => classes::list(call),
        ["resource_classes", name] => classes::one(call, name),
        ["traits"] => classes::traits(call).await,
        ["traits", name] => classes::has_trait(call, name),
        ["allocation_candidates"] => candidates::list(call).await,
        _ => Err(Fault::no_path()),
    }
}

/// The body of `GET /`: the versions that are offered.
fn versions() -> Value {
    json!({
        "versions": [{
            "id": "v1.0",
            "status": "CURRENT",
            "min_version": Version::MIN.to_string(),
            "max_version": Version::MAX.to_string(),
            "links": [{"rel": "self", "href": ""}],
        }],
    })
}

/// Writes an answer: headers of the version, the request's id, and caching. `Vary` says that the version decides about
/// the form.
fn response(reply: &Reply, version: Version, request_id: &str) -> Response<Bytes> {
    let body = reply.body.as_ref().map(Value::to_string);
    let mut response = Response::new(Bytes::from(body.unwrap_or_default()));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    let text = |text: String| HeaderValue::from_str(&text);
    if reply.body.is_some() {
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
    }
    headers.insert(header::VARY, HeaderValue::from_static(HEADER));
    if let (Ok(version), Ok(id)) = (
        text(format!("{SERVICE} {version}")),
        text(request_id.into()),
    ) {
        headers.insert(HEADER, version);
        headers.insert("x-openstack-request-id", id);
    }
    if let Some(methods) = reply.allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(methods));
    }
    if version >= CACHING && reply.status.is_success() {
        let now = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT");
        if let Ok(now) = text(now.to_string()) {
            headers.insert(header::LAST_MODIFIED, now);
        }
        let no_cache = HeaderValue::from_static("no-cache");
        headers.insert(header::CACHE_CONTROL, no_cache);
    }
    response
}
