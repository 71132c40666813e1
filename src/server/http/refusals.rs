//! Connections that TLS let in and that get one answer, whatever they ask for: those for which there is no place, and those
//! of a standby.

use std::future::ready;

use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio_rustls::server::TlsStream;

use super::call::text_response;
use super::metrics;
use super::problem::Problem;
use super::serve::{HTTP_2, http_1, http_2, uncached};
use crate::net::ahead::Ahead;
use crate::server::timed::Timed;

/// Answers whatever a connection asks for that it is refused, and closes it. For one that TLS let in and for which there
/// is no place among `--max-connections`; the caller bounds how long that takes.
pub(in crate::server) async fn refuse(
    stream: TlsStream<Ahead<Timed>>,
    why: &(dyn std::error::Error + Sync),
) {
    let problem = Problem::busy(format!("the connection is refused: {why}"));
    answer(stream, |_| problem.clone().into_response()).await;
}

/// Answers what a connection asks for, once, where the scheduler is a standby: `/livez` with 200, because it is to be left
/// running, `/metrics` with the few that it has, all else with 503 and where the leader is. The caller bounds how long that
/// takes.
pub(in crate::server) async fn stand_by(
    stream: TlsStream<Ahead<Timed>>,
    why: &(dyn std::error::Error + Sync),
) {
    let problem = Problem::busy(format!("this scheduler does not answer: {why}"));
    answer(stream, |path| match path {
        "/livez" => text_response(StatusCode::OK, "text/plain", "ok\n"),
        "/metrics" => text_response(StatusCode::OK, metrics::MEDIA_TYPE, metrics::of_standby()),
        _ => problem.clone().into_response(),
    })
    .await;
}

/// Answers by path, and closes.
async fn answer(stream: TlsStream<Ahead<Timed>>, by_path: impl Fn(&str) -> Response) {
    let is_http_2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let io = TokioIo::new(stream);
    let service = service_fn(|request: Request<Incoming>| {
        let response = uncached(by_path(request.uri().path()));
        ready(Ok::<_, std::convert::Infallible>(response))
    });
    // What becomes of it is its peer's.
    let _ = match is_http_2 {
        true => http_2().serve_connection(io, service).await,
        false => {
            let mut builder = http_1();
            builder.keep_alive(false);
            builder.serve_connection(io, service).await
        }
    };
}
