//! `/v1/arrays`: arrays listed, started, run once more and deleted.
//!
//! ```text
//! {"array": {"indexes": "0-499", "running_max": 50}, "start": {…}, "values": ["a", …]}
//! ```
//!
//! The START is that of each element, with the array's UUID and name. It is answered once the array is on record; the same
//! again is answered with the array that is there.

use axum::http::StatusCode;
use proto_frames::payload::array::StartArray;
use proto_frames::payload::{ArrayOrder, ArrayView, Delete, Payload, Query, QueryKind, Start};
use sched_model::value::Record;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::call::{Answer, Call, answer, answer_with};
use super::caller::{Subject, problem_in};
use super::commands::order;
use super::json::{from_json, to_json};
use super::limits::NODE_ANSWERS_WITHIN;
use super::problem::Problem;
use super::read::list;
use super::ring::EventId;
use super::serve::App;
use crate::server::wire::{self, Ordered};
use crate::start_warnings::StartWarnings;
use sched_core::{CommandName, InstanceId, Message};

/// `GET /v1/arrays`, the latest first.
pub(super) async fn arrays(call: Call) -> Answer {
    list(call, QueryKind::Arrays, ArrayView::FIELDS).await
}

/// `GET /v1/arrays/{id}`, by UUID or name.
///
/// # Errors
/// 404 `no_such_array`; 400 for a field that arrays do not have.
pub(super) async fn array(call: Call) -> Answer {
    let fields = call.query.fields(ArrayView::FIELDS)?;
    let (at, view) = find(&call.app, &call.id)?;
    let mut row = to_json(&view);
    if let Some(fields) = fields {
        row.retain(|key, _| fields.contains(&&**key));
    }
    Ok(answer_with(StatusCode::OK, at, "array", row.into()))
}

/// `POST /v1/arrays`.
///
/// # Errors
/// 400 or 422 where it cannot be read, 409 where another array or instance has its UUID, 503 where there are too many.
pub(super) async fn start(call: Call) -> Answer {
    let (order, warnings) = read(&call)?;
    let view = ordered(&call, Ordered::StartArray(order.1.encode()), &order.0).await;
    let (at, view) = view.map_err(|problem| problem.with_warnings(&warnings))?;
    let mut content = Map::new();
    content.insert("warnings".to_owned(), warnings.into());
    content.insert("array".to_owned(), to_json(&view).into());
    Ok(answer(StatusCode::OK, at, content))
}

/// `POST /v1/arrays/{id}/rerun`.
///
/// # Errors
/// 404 `no_such_array`.
pub(super) async fn rerun(call: Call) -> Answer {
    let (_, found) = find(&call.app, &call.id)?;
    let head = StartArray {
        array_uuid: found.array_uuid.clone(),
        rerun: true,
        ..StartArray::default()
    };
    let order = ArrayOrder::new(head, axum::body::Bytes::new());
    let id = &found.array_uuid;
    let (at, view) = ordered(&call, Ordered::StartArray(order.encode()), id).await?;
    Ok(answer_with(
        StatusCode::OK,
        at,
        "array",
        to_json(&view).into(),
    ))
}

/// `DELETE /v1/arrays/{id}`: answered with the array as it is then; null where it had ended and is forgotten.
///
/// # Errors
/// 404 `no_such_array`.
pub(super) async fn delete(call: Call) -> Answer {
    let (_, found) = find(&call.app, &call.id)?;
    let delete = Delete {
        instance_uuid: found.array_uuid.clone(),
        // An array is on no node, and a DELETE names one.
        workload_agent_uuid: found.array_uuid.clone(),
        ..Delete::default()
    };
    let subject = subject(CommandName::Delete, &found.array_uuid);
    order(&call, &Ordered::Delete(delete), subject).await?;
    let (at, row) = match find(&call.app, &found.array_uuid) {
        Ok((at, view)) => (at, to_json(&view).into()),
        Err(_) => (call.app.ring.end(), Value::Null),
    };
    Ok(answer_with(StatusCode::OK, at, "array", row))
}

/// Hands in an order about an array, and waits until the core has it on record.
async fn ordered(call: &Call, ordered: Ordered, id: &str) -> Result<(EventId, ArrayView), Problem> {
    let caller = call.connection.caller(&call.app).await?;
    let input = wire::ordered(caller.session, caller.uuid, &ordered)?;
    let mut waiter = caller.wait_for(subject(CommandName::StartArray, id));
    caller.hand_in(input, &waiter);
    let told = timeout(NODE_ANSWERS_WITHIN, waiter.next()).await;
    match told.ok().flatten() {
        Some(Message::ArrayState(view)) => Ok((call.app.ring.end(), *view)),
        Some(message) => Err(problem_in(&message).unwrap_or_else(late)),
        None => Err(late()),
    }
}

fn late() -> Problem {
    Problem::busy(
        "the array is taken in and not on record yet, because the disk is slow; ask again",
    )
}

fn subject(command: CommandName, id: &str) -> Subject {
    Subject {
        command,
        instance: Some(InstanceId::new(id)),
        node: None,
    }
}

/// The array with this UUID or name, of several the latest, and the place in the stream of events at which it is so.
fn find(app: &App, id: &str) -> Result<(EventId, ArrayView), Problem> {
    let (at, result) = app.look_up(&Query {
        what: QueryKind::Arrays,
        matching: Some(id.to_owned()),
        ..Query::default()
    });
    let is_it = |view: &ArrayView| view.array_uuid.eq_ignore_ascii_case(id) || view.name == id;
    let found = result.arrays.into_iter().find(is_it);
    let view = found.ok_or_else(|| {
        let detail = format!(
            "there is no array '{}'",
            proto_frames::payload::cut::shorten(id)
        );
        Problem::not_found("no_such_array", detail)
    })?;
    Ok((at, view))
}

/// The UUID of an array that is to be started, what is sent for it, and what in its START does not do what it seems to.
fn read(call: &Call) -> Result<((String, ArrayOrder), Vec<String>), Problem> {
    let mut body = call.json()?;
    let Some(keys) = body.as_object_mut() else {
        return Err(Problem::invalid_data("", "no object"));
    };
    let head = keys
        .remove("array")
        .unwrap_or_else(|| Value::Object(Map::new()));
    let values = keys.remove("values");
    if let Some(other) = keys.keys().find(|key| *key != "start") {
        let problem = Problem::invalid_data(other, "no key of an array");
        return Err(problem.with_help("there are array, start and values"));
    }
    let head: StartArray = from_json("array", &head)?;
    let only = StartArray {
        indexes: head.indexes.clone(),
        running_max: head.running_max,
        ..StartArray::default()
    };
    if head != only {
        let problem = Problem::invalid_data("array", "indexes and running_max are its keys");
        return Err(problem);
    }
    let payload =
        wire::start_of_json(&body).map_err(|error| Problem::invalid_payload("", error))?;
    let start = Start::decode(&payload)?;
    // Of the START alone: the others are keys of the array.
    let text = serde_json::to_vec(&body).unwrap_or_default();
    let warnings = StartWarnings::of_json(&text, &start).texts();
    let warnings = warnings.into_iter().map(|text| text.to_string());
    let order = ArrayOrder::of(only, &payload, values_of(values)?.as_bytes());
    Ok(((start.instance_uuid, order), warnings.collect()))
}

/// The values of a list, one a line.
fn values_of(values: Option<Value>) -> Result<String, Problem> {
    let values = match values {
        None | Some(Value::Null) => return Ok(String::new()),
        Some(Value::Array(values)) => values,
        Some(_) => return Err(Problem::invalid_data("values", "no list")),
    };
    let mut lines = String::new();
    for (at, value) in values.iter().enumerate() {
        let key = format!("values[{at}]");
        let Some(text) = value.as_str() else {
            return Err(Problem::invalid_data(&key, "no text"));
        };
        if text.contains('\n') {
            return Err(Problem::invalid_data(&key, "more than one line"));
        }
        lines.push_str(text);
        lines.push('\n');
    }
    Ok(lines)
}
