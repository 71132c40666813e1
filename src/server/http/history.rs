//! `GET /v1/history`: the ends of instances on record, the latest first.
//!
//! What is read is the store's table, not the core; a page may have fewer rows than wanted, or none, and not be the last,
//! where few ends meet what is asked.

use axum::http::StatusCode;
use proto_frames::payload::{EndFilter, EndedRun, Query, QueryKind};
use sched_model::value::Record as _;
use serde_json::{Map, Value};

use super::call::{Answer, Call, answer};
use super::json::to_json;
use super::problem::Problem;

/// One page of ends: `{"items": […], "next": …, "in_memory": …, "forgotten": …, "sequence": …}`.
///
/// # Errors
/// 400 for a field that rows do not have, a bad `after`, a state that there is not, or a time that is none; 503 where the
/// store cannot be read.
pub(super) async fn history(call: Call) -> Answer {
    let fields = call.query.fields(EndedRun::FIELDS)?;
    let text = |name: &str| call.query.text(name).unwrap_or_default().to_owned();
    let query = Query {
        what: QueryKind::Ends,
        after: call.query.text("after").map(str::to_owned),
        limit: call.query.number("limit"),
        filter: EndFilter {
            since_ms: call.query.offset("since_ms"),
            until_ms: call.query.offset("until_ms"),
            state: text("state"),
            tenant: text("tenant"),
            node: text("node"),
            name: text("name"),
            program: text("program"),
            instance: text("instance"),
            by: text("by"),
            labels: call
                .query
                .words("labels")
                .into_iter()
                .flatten()
                .map(str::to_owned)
                .collect(),
            array: text("array"),
        },
        ..Query::default()
    };
    // Before the page is read: what happens behind this place may be on it already.
    let at = call.app.ring.end();
    let page = call.app.hub.ends(query).await;
    if let Some(error) = page.error {
        return Err(refused(&error));
    }
    let mut rows: Vec<Map<String, Value>> = page.ends.iter().map(to_json).collect();
    if let Some(fields) = fields {
        for row in &mut rows {
            row.retain(|key, _| fields.contains(&&**key));
        }
    }
    let mut content = Map::new();
    let items = rows.into_iter().map(Value::Object);
    content.insert("items".to_owned(), items.collect());
    content.insert("next".to_owned(), page.next.into());
    content.insert("in_memory".to_owned(), page.in_memory.into());
    content.insert("forgotten".to_owned(), page.forgotten.unwrap_or(0).into());
    Ok(answer(StatusCode::OK, at, content))
}

/// What was asked is wrong if the text names a parameter, else it cannot be answered now.
fn refused(error: &str) -> Problem {
    let is_askers = ["after: ", "state: ", "array: ", "query.limit"];
    if is_askers.iter().any(|name| error.starts_with(name)) {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_parameter", error)
    } else {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "history_unavailable",
            error,
        )
    }
}
