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
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::limits::HEAD_DEADLINE;
use super::problem::Problem;
use super::serve::uncached;
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
            if let Some((door, writing)) = placement
                && let Some(answer) = door.respond_mounted(&request, &writing).await
            {
                return Ok(answer.map(Body::new));
            }
            match routes {
                Some(routes) => routes.call(request).await,
                None => Ok(without_certificate(request.uri().path())),
            }
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

/// What a client without a certificate gets of all other paths, whether there is something or not.
fn without_certificate(path: &str) -> Response<Body> {
    let detail = format!("{path} is not for clients without a certificate");
    let problem = Problem::new(StatusCode::FORBIDDEN, "not_permitted", detail)
        .with_help("give the certificate of a viewer or controller; ciao-cert makes one");
    uncached(problem.into_response())
}
