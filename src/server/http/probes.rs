//! `/livez` and `/readyz`: whether the process answers, and whether it can do its work. For supervisors, which restart
//! a process that is not live and send nothing to one that is not ready. Every certificate that grants a role may ask.

use axum::http::StatusCode;
use proto_frames::payload::StoreState;
use serde_json::{Value, json};

use super::call::{Answer, Call, json_response, text_response};
use super::limits::READY_WITHIN;
use super::serve::now;
use crate::server::sentences::worded_store;

/// `GET /livez`. Never asks the core: a core that is busy is no reason to restart the process.
pub(super) fn livez(_: Call) -> impl Future<Output = Answer> {
    now(Ok(text_response(StatusCode::OK, "text/plain", "ok\n")))
}

/// One condition: its name, whether it holds, more about it for people.
type Check = (&'static str, bool, String);

/// `GET /readyz`: 200 if every condition holds, else 503, with the conditions that do not; `?verbose` lists all.
///
/// - `core`: its lock can be had within [`READY_WITHIN`]; if not, `recovery` and `store` are left out.
/// - `recovery`: the recovery window after a restart is over.
/// - `store`: the state directory takes writes, or there is none.
/// - `role`: the scheduler is not about to leave.
pub(super) async fn readyz(call: Call) -> Answer {
    let hub = std::sync::Arc::clone(&call.app.hub);
    let look = move || {
        hub.read_within(READY_WITHIN, |scheduler, now| {
            (
                scheduler.glance().is_recovering,
                worded_store(scheduler.store(now)),
            )
        })
    };
    // Waiting for the lock blocks the thread. `None` also if the closure panicked.
    let found = tokio::task::spawn_blocking(look).await.ok().flatten();
    // Not under the lock: a flag of its own, so that it is told even where the core does not answer.
    let is_leaving = call.app.hub.is_shutting_down();
    let mut checks: Vec<Check> = Vec::new();
    let mut check = |name, holds, detail: &str| checks.push((name, holds, detail.to_owned()));
    match found {
        // Nothing else can be said of a core that does not answer.
        None => check("core", false, "it did not answer within a second"),
        Some((is_recovering, store)) => {
            check("core", true, "");
            let detail = match is_recovering {
                true => "nodes that were connected before the restart are coming back",
                false => "",
            };
            check("recovery", !is_recovering, detail);
            // Without a state directory nothing has to be durable, so the condition holds, with a word on it.
            let is_durable = store.state != StoreState::Refused;
            let detail = match store.state {
                StoreState::Memory => "there is no state directory: state is in memory only",
                _ => &store.detail,
            };
            check("store", is_durable, detail);
        }
    }
    check(
        "role",
        !is_leaving,
        if is_leaving { "leaving" } else { "active" },
    );
    let is_ready = checks.iter().all(|(_, holds, _)| *holds);
    let status = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let is_verbose = call.query.flag("verbose");
    // Without `verbose` a body of a ready scheduler has an empty list.
    let shown = checks
        .into_iter()
        .filter(|(_, holds, _)| is_verbose || !holds);
    let shown: Value = shown
        .map(|(name, holds, detail)| json!({"name": name, "ok": holds, "detail": detail}))
        .collect();
    Ok(json_response(
        status,
        &json!({"ready": is_ready, "checks": shown}),
    ))
}
