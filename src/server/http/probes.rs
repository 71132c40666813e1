//! `/livez` and `/readyz`: whether the process answers, and whether it can do its work. For supervisors, which restart
//! a process that is not live and send nothing to one that is not ready. Every certificate that grants a role may ask.

use axum::http::StatusCode;
use proto_frames::payload::StoreState;
use serde_json::{Value, json};

use super::call::{Answer, Call, json_response, text_response};
use super::json::to_json;
use super::limits::READY_WITHIN;
use super::routes::Access;
use super::serve::now;
use crate::server::sentences::{of_schedulers, worded_condition, worded_store};

/// `GET /livez`. Never asks the core: a core that is busy is no reason to restart the process.
pub(super) fn livez(_: Call) -> impl Future<Output = Answer> {
    now(Ok(text_response(StatusCode::OK, "text/plain", "ok\n")))
}

/// One condition: its name, whether it holds, more about it for people.
type Check = (&'static str, bool, String);

/// `GET /readyz`: 200 if every condition holds, else 503, with the conditions that do not; `?verbose` lists all, and
/// under `conditions` what is not well in the cluster, as `ciaoctl status` has it: no reason to send nothing here.
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
                scheduler.conditions(now),
            )
        })
    };
    // Waiting for the lock blocks the thread. `None` also if the closure panicked.
    let found = tokio::task::spawn_blocking(look).await.ok().flatten();
    // Not under the lock: a flag of its own, so that it is told even where the core does not answer.
    let is_leaving = call.app.hub.is_shutting_down();
    let mut checks: Vec<Check> = Vec::new();
    let mut conditions: Vec<Value> = Vec::new();
    let mut check = |name, holds, detail: &str| checks.push((name, holds, detail.to_owned()));
    match found {
        // Nothing else can be said of a core that does not answer.
        None => check("core", false, "it did not answer within a second"),
        Some((is_recovering, store, found)) => {
            let found = found.iter().map(|it| worded_condition(it, &store));
            let schedulers = call.app.hub.schedulers();
            let of_schedulers = schedulers.iter().flat_map(of_schedulers);
            conditions = found
                .chain(of_schedulers)
                .map(|it| to_json(&it).into())
                .collect();
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
    let mut body = json!({"ready": is_ready, "checks": shown});
    // A probe may be any peer's; the names of nodes and sets are for those who may read lists.
    let may_read = call
        .connection
        .identity
        .roles
        .intersects(Access::Read.roles());
    if is_verbose && may_read {
        body["conditions"] = conditions.into();
    }
    Ok(json_response(status, &body))
}
