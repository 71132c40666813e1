//! What of a connection's requests goes to the routes, and what to the Placement API, which stands below a path of this
//! door.
//!
//! ```text
//! request ──┬── /placement, /placement/…   placement::Door, which asks for its own token     with any certificate, or none
//!           └── all else                   the routes, by the role of the certificate        403 without one
//! ```
//!
//! Clients of OpenStack have a token and no certificate. So where the Placement API is offered, a client may connect
//! without one; it gets nothing else.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, Uri, header};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::limits::HEAD_DEADLINE;
use super::problem::Problem;
use super::serve::uncached;
use super::unread::Unread;
use crate::server::placement::{self, Place, Writing};

/// What answers the requests of one connection.
pub(super) struct Mounted {
    /// `None` for a client without a certificate.
    routes: Option<TowerToHyperService<Router>>,
    /// The Placement API, if it is offered, and its answers that this connection writes.
    placement: Option<(placement::Door, Writing)>,
}

impl Mounted {
    /// For one connection from this address, with its place if it has shown no certificate.
    pub(super) fn new(
        routes: Option<Router>,
        placement: Option<placement::Door>,
        (from, place): (SocketAddr, Option<Place>),
    ) -> Self {
        Self {
            routes: routes.map(TowerToHyperService::new),
            placement: placement.map(|door| (door, Writing::new(from, place))),
        }
    }

    /// Answers a request.
    pub(super) fn respond(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + Send + use<> {
        let (routes, placement) = (self.routes.clone(), self.placement.clone());
        async move {
            let is_told_to_wait = request.headers().contains_key(header::EXPECT);
            let (head, body) = request.into_parts();
            // Kept here, so that the rest of it is read whatever answers.
            let unread = Unread::new(Body::new(body));
            let mut request = Request::from_parts(head, ());
            let placed = match placement {
                Some((door, writing)) => door.respond_mounted(&request, &writing).await,
                None => None,
            };
            let answer = match (placed, routes) {
                (Some(answer), _) => answer.map(Body::new),
                (None, Some(routes)) => {
                    without_slash(request.uri_mut());
                    let body = unread.read();
                    routes.call(request.map(|()| Body::new(body))).await?
                }
                (None, None) => without_certificate(request.uri().path()),
            };
            Ok(unread.behind(is_told_to_wait, answer).await)
        }
    }

    /// Waits until the client has not taken an answer of the Placement API in time, or has shown neither a certificate
    /// nor a token within [`HEAD_DEADLINE`], since over HTTP/2 it could stay without a request, or before another one
    /// needed its place. For ever where that API is not offered.
    pub(super) async fn has_to_end(&self) {
        match &self.placement {
            Some((_, writing)) => writing.has_to_end(HEAD_DEADLINE).await,
            None => std::future::pending().await,
        }
    }
}

/// Takes the slash from the end of a path, which many clients put there: `/v1/nodes/` is `/v1/nodes`. The page, which is
/// `/`, stays; so does what is no path of a URI without it.
fn without_slash(uri: &mut Uri) {
    let Some(shorter) = uri.path().strip_suffix('/').filter(|path| !path.is_empty()) else {
        return;
    };
    let path_and_query = match uri.query() {
        Some(query) => format!("{shorter}?{query}"),
        None => shorter.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = path_and_query.parse().ok();
    if let Ok(shorter) = Uri::from_parts(parts) {
        *uri = shorter;
    }
}

/// What a client without a certificate gets of all other paths, whether there is something or not.
fn without_certificate(path: &str) -> Response<Body> {
    let detail = format!("{path} is not for clients without a certificate");
    let problem = Problem::new(StatusCode::FORBIDDEN, "not_permitted", detail)
        .with_help("give the certificate of a viewer or controller; ciao-cert makes one");
    uncached(problem.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_is_taken_off_and_nothing_else() {
        for (given, expected) in [
            ("/v1/nodes/", "/v1/nodes"),
            ("/v1/nodes/?limit=2", "/v1/nodes?limit=2"),
            ("https://host:1/v1/nodes/", "https://host:1/v1/nodes"),
            ("/", "/"),
            ("/?a=/", "/?a=/"),
            ("/v1/instances/a%2F/", "/v1/instances/a%2F"),
            ("/v1/nodes?match=a/", "/v1/nodes?match=a/"),
            ("//", "/"),
        ] {
            let mut uri: Uri = given.parse().unwrap();
            without_slash(&mut uri);
            assert_eq!(uri.to_string(), expected, "{given}");
        }
    }
}
