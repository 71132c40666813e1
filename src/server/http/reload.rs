//! `POST /v1/reload`: has all files read again.

use axum::http::StatusCode;
use proto_frames::payload::ReloadState;
use serde_json::json;
use tracing::info;

use super::call::{Answer, Call, json_response};
use super::problem::Problem;
use crate::server::configuration::again::Force;

/// 200 once what is in the files is in force.
///
/// # Errors
/// 422 at a mistake in a file, and then all stays as it was; 503 where too many ask.
pub(super) async fn reload(call: Call) -> Answer {
    let (from, subject) = (call.connection.from, &call.connection.identity.subject);
    info!(
        event = "reload_requested",
        "{from}: {subject} asks for a reload"
    );
    let force = match call.query.flag("force") {
        true => Force::Yes,
        false => Force::No,
    };
    let Some(news) = call.app.hub.reloads.request(force).await else {
        return Err(Problem::busy("too many wait for the next reload"));
    };
    match news.state {
        ReloadState::Taken => {
            let content = json!({ "state": news.state.as_str() });
            Ok(json_response(StatusCode::OK, &content))
        }
        _ => Err(Problem::from(&news)),
    }
}
