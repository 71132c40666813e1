//! Commands on instances and nodes: each goes to the core as the command that it is, in the session of its connection, and
//! is answered with where to follow it, or with what came of it.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use proto_frames::payload::{
    Delete, DrainProgress, Evacuate, EvacuateMode, InstanceView, LifeState, Migrate,
    PlacementState, Restore, RestoreMode, Resume, Suspend, Update,
};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::call::{Answer, Call, answer};
use super::caller::{Subject, Waiter, problem_in};
use super::json::{from_json, to_json};
use super::limits::{EVENTS_PER_LOOK, LOOK_EVERY};
use super::problem::Problem;
use super::read::find_node;
use super::ring::{Behind, Told};
use super::serve::App;
use crate::server::audit;
use crate::server::notices::{Class, Weight, Who};
use crate::server::wire::{self, Ordered};
use proto_frames::Role;
use sched_core::{CommandName, Input, InstanceId, Message};

/// What became of a command by now.
pub(super) enum CommandOutcome {
    /// It is taken in, and goes on.
    Open,
    /// It is done.
    Done,
}

/// When a command on an instance is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Its node runs it.
    Runs,
    /// It is on no node any more.
    Gone,
    /// It is suspended.
    Suspended,
    /// It runs, on another node than this long ago.
    Moved,
    /// It was changed.
    Updated,
}

/// DELETE /v1/instances/{id}.
pub(super) async fn delete(call: Call) -> Answer {
    let forget = call.query.flag("forget");
    let delete = Delete {
        forget,
        ..target(&call)
    };
    on_instance(&call, Ordered::Delete(delete), Until::Gone).await
}

/// POST /v1/instances/{id}/stop.
pub(super) async fn stop(call: Call) -> Answer {
    let delete = Delete {
        stop: true,
        ..target(&call)
    };
    on_instance(&call, Ordered::Delete(delete), Until::Gone).await
}

/// A DELETE of an instance where it is.
fn target(call: &Call) -> Delete {
    let (_, row) = call.app.instance(&call.id);
    let row = row.filter(|row| row.state != PlacementState::Ended);
    let node = row.map(|row| row.node_uuid).filter(|node| !node.is_empty());
    Delete {
        instance_uuid: call.id.clone(),
        // On no node: the core looks where it waits. What is nowhere at all is answered by it as well.
        workload_agent_uuid: node.unwrap_or_else(|| "-".to_owned()),
        ..Delete::default()
    }
}

/// POST /v1/instances/{id}/suspend.
pub(super) async fn suspend(call: Call) -> Answer {
    let mut suspend: Suspend = call.record("suspend")?;
    suspend.instance_uuid.clone_from(&call.id);
    on_instance(&call, Ordered::Suspend(suspend), Until::Suspended).await
}

/// POST /v1/instances/{id}/resume.
pub(super) async fn resume(call: Call) -> Answer {
    let mut resume: Resume = call.record("resume")?;
    resume.instance_uuid.clone_from(&call.id);
    on_instance(&call, Ordered::Resume(resume), Until::Runs).await
}

/// POST /v1/instances/{id}/migrate.
pub(super) async fn migrate(call: Call) -> Answer {
    let mut migrate: Migrate = call.record("migrate")?;
    migrate.instance_uuid.clone_from(&call.id);
    on_instance(&call, Ordered::Migrate(migrate), Until::Moved).await
}

/// POST /v1/instances/{id}/update.
pub(super) async fn update(call: Call) -> Answer {
    let mut update: Update = call.record("update")?;
    update.instance_uuid.clone_from(&call.id);
    on_instance(&call, Ordered::Update(update), Until::Updated).await
}

async fn on_instance(call: &Call, ordered: Ordered, until: Until) -> Answer {
    let subject = Subject {
        command: ordered.name(),
        instance: Some(InstanceId::new(&call.id)),
        node: None,
    };
    let (begun, before) = call.app.instance(&call.id);
    let mut waiter = order(call, &ordered, subject).await?;
    let outcome = follow(call, &mut waiter, begun.sequence, before.as_ref(), until).await?;
    Ok(instance_answer(&call.app, &call.id, &outcome))
}

/// The answer about an instance: done, or where to follow it.
pub(super) fn instance_answer(
    app: &App,
    id: &str,
    outcome: &CommandOutcome,
) -> axum::response::Response {
    let (at, row) = app.instance(id);
    let mut content = Map::new();
    let row = row.as_ref().map(to_json);
    content.insert(
        "instance".to_owned(),
        row.map_or(Value::Null, Value::Object),
    );
    let place = format!("/v1/instances/{}", path_segment(id));
    outcome_answer(at, content, outcome, &place)
}

fn outcome_answer(
    at: super::ring::EventId,
    mut content: Map<String, Value>,
    outcome: &CommandOutcome,
    place: &str,
) -> axum::response::Response {
    let status = match outcome {
        CommandOutcome::Done => StatusCode::OK,
        CommandOutcome::Open => StatusCode::ACCEPTED,
    };
    content.insert("follow".to_owned(), place.into());
    let mut response = answer(status, at, content);
    if let Ok(value) = HeaderValue::from_str(place) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

/// An identifier as a part of a path.
fn path_segment(id: &str) -> String {
    form_urlencoded::byte_serialize(id.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

/// Hands a command to the core; who waits for its answers. It was not refused at once.
pub(super) async fn order(
    call: &Call,
    ordered: &Ordered,
    subject: Subject,
) -> Result<Waiter, Problem> {
    let caller = call.connection.caller(&call.app).await?;
    let input = wire::ordered(caller.session, caller.uuid, ordered)?;
    note(call, caller.uuid, &input);
    let mut waiter = caller.wait_for(subject);
    call.app.hub.handle([input], Some(caller.budget()));
    // What the core refuses it refuses before it returns.
    match waiter.try_next().as_ref().and_then(problem_in) {
        Some(problem) => Err(problem),
        None => Ok(waiter),
    }
}

/// Logs who asks for what, as of commands that come as frames.
fn note(call: &Call, uuid: proto_frames::Uuid, input: &Input) {
    let Input::Command { command, .. } = input else {
        return;
    };
    let Some(object) = audit::object(command) else {
        return;
    };
    let kind = wire::kind_of(command.name().into());
    let (subject, from) = (&call.connection.identity.subject, call.connection.from);
    let role = Role::OPERATOR;
    let line = format_args!("{kind} of {object} by {subject} ({role} {uuid}, {from}, HTTP)");
    let who = Who::Peer(uuid);
    call.app.hub.note(Class::Command, who, Weight::News, line);
}

/// Waits for the outcome of a command on an instance as long as the request says.
///
/// # Errors
/// It has failed.
pub(super) async fn follow(
    call: &Call,
    waiter: &mut Waiter,
    since: u64,
    before: Option<&InstanceView>,
    until: Until,
) -> Result<CommandOutcome, Problem> {
    let Some((deadline, _room)) = patience(call) else {
        return Ok(CommandOutcome::Open);
    };
    let mut seen = since;
    let mut events = call.app.ring.listen();
    loop {
        while let Some(message) = waiter.try_next() {
            if let Some(problem) = problem_in(&message) {
                return Err(problem);
            }
        }
        if look_at_events(&call.app, &call.id, &mut seen, until)? || is_done(call, before, until) {
            return Ok(CommandOutcome::Done);
        }
        if Instant::now() >= deadline {
            return Ok(CommandOutcome::Open);
        }
        let look = (Instant::now() + LOOK_EVERY).min(deadline);
        tokio::select! {
            message = waiter.next() => {
                if let Some(problem) = message.as_ref().and_then(problem_in) {
                    return Err(problem);
                }
            }
            _ = events.changed() => {}
            () = sleep_until(look) => {}
        }
    }
}

/// Until when a request waits, and its place among those that do; `None` if it does not.
fn patience(call: &Call) -> Option<(Instant, tokio::sync::OwnedSemaphorePermit)> {
    let wait = call.query.wait();
    if wait == Duration::ZERO {
        return None;
    }
    let room = std::sync::Arc::clone(&call.app.waiting).try_acquire_owned();
    Some((Instant::now() + wait, room.ok()?))
}

/// Whether an event says that the command is done.
///
/// # Errors
/// An event says that it has failed.
fn look_at_events(app: &App, id: &str, seen: &mut u64, until: Until) -> Result<bool, Problem> {
    loop {
        let events = match app.ring.behind(*seen, EVENTS_PER_LOOK) {
            Behind::Events(events) if events.is_empty() => return Ok(false),
            Behind::Events(events) => events,
            Behind::Gone => {
                *seen = app.ring.end().sequence;
                return Ok(false);
            }
        };
        for event in events {
            *seen = event.sequence;
            let Some(told) = event
                .told()
                .filter(|told| told.instance.as_deref() == Some(id))
            else {
                continue;
            };
            if until == Until::Runs && told.name == "start_failure" {
                return Err(failure(told));
            }
            let state = told.state.as_deref();
            if until == Until::Updated && state == Some(LifeState::Updated.as_str()) {
                return Ok(true);
            }
        }
    }
}

fn failure(told: &Told) -> Problem {
    let value = serde_json::from_str(&told.data).unwrap_or_default();
    match from_json("", &value) {
        Ok(failure) => Problem::from(&proto_frames::payload::StartFailure::clone(&failure)),
        Err(problem) => problem,
    }
}

fn is_done(call: &Call, before: Option<&InstanceView>, until: Until) -> bool {
    let (_, row) = call.app.instance(&call.id);
    let is_ended = |row: &InstanceView| row.state == PlacementState::Ended;
    let row = row.as_ref();
    let runs = |row: &InstanceView| {
        row.state == PlacementState::Running
            && (row.life.is_empty() || row.life == LifeState::Running.as_str())
    };
    match until {
        Until::Gone => row.is_none_or(is_ended),
        // One that has ended ran.
        Until::Runs => row.is_some_and(|row| runs(row) || is_ended(row)),
        Until::Suspended => row.is_some_and(|row| row.life == LifeState::Suspended.as_str()),
        Until::Moved => row.is_some_and(|row| {
            runs(row) && before.is_some_and(|before| before.node_uuid != row.node_uuid)
        }),
        Until::Updated => false,
    }
}

/// POST /v1/nodes/{id}/cordon.
pub(super) async fn cordon(call: Call) -> Answer {
    evacuating(call, EvacuateMode::Cordon).await
}

/// POST /v1/nodes/{id}/abort-drain.
pub(super) async fn abort_drain(call: Call) -> Answer {
    evacuating(call, EvacuateMode::Abort).await
}

/// POST /v1/nodes/{id}/evacuate.
pub(super) async fn evacuate(call: Call) -> Answer {
    evacuating(call, EvacuateMode::default()).await
}

/// POST /v1/nodes/{id}/uncordon.
pub(super) async fn uncordon(call: Call) -> Answer {
    restoring(call, RestoreMode::Uncordon).await
}

/// POST /v1/nodes/{id}/restore.
pub(super) async fn restore(call: Call) -> Answer {
    restoring(call, RestoreMode::default()).await
}

/// POST /v1/nodes/{id}/drain.
pub(super) async fn drain(call: Call) -> Answer {
    let mut evacuate: Evacuate = call.record("drain")?;
    let modes = [EvacuateMode::default(), EvacuateMode::Relocate];
    if !modes.contains(&evacuate.mode) {
        let detail = "a drain has no other mode; other commands have paths of their own";
        return Err(Problem::invalid_data("drain.mode", detail));
    }
    evacuate.mode = EvacuateMode::Relocate;
    let (_, node) = find_node(&call.app, &call.id).await?;
    evacuate.workload_agent_uuid.clone_from(&node.node_uuid);
    let subject = node_subject(CommandName::Evacuate, &node.node_uuid);
    let mut waiter = order(&call, &Ordered::Evacuate(evacuate), subject).await?;
    let progress = drained(&call, &mut waiter).await?;
    let outcome = match progress.as_ref().is_some_and(|it| it.state.is_over()) {
        true => CommandOutcome::Done,
        false => CommandOutcome::Open,
    };
    node_answer(&call, &node.node_uuid, progress.as_ref(), &outcome).await
}

/// Waits for the end of a drain as long as the request says; how far it was at last.
async fn drained(call: &Call, waiter: &mut Waiter) -> Result<Option<DrainProgress>, Problem> {
    let Some((deadline, _room)) = patience(call) else {
        return Ok(None);
    };
    let mut latest = None;
    while let Ok(Some(message)) = timeout_at(deadline, waiter.next()).await {
        if let Some(problem) = problem_in(&message) {
            return Err(problem);
        }
        if let Message::DrainProgress(progress) = message {
            let is_over = progress.state.is_over();
            latest = Some(progress.payload);
            if is_over {
                break;
            }
        }
    }
    Ok(latest)
}

async fn evacuating(call: Call, mode: EvacuateMode) -> Answer {
    let (_, node) = find_node(&call.app, &call.id).await?;
    let evacuate = Evacuate {
        workload_agent_uuid: node.node_uuid.clone(),
        mode,
        ..Evacuate::default()
    };
    let subject = node_subject(CommandName::Evacuate, &node.node_uuid);
    order(&call, &Ordered::Evacuate(evacuate), subject).await?;
    node_answer(&call, &node.node_uuid, None, &CommandOutcome::Open).await
}

async fn restoring(call: Call, mode: RestoreMode) -> Answer {
    let (_, node) = find_node(&call.app, &call.id).await?;
    let restore = Restore {
        workload_agent_uuid: node.node_uuid.clone(),
        mode,
    };
    let subject = node_subject(CommandName::Restore, &node.node_uuid);
    order(&call, &Ordered::Restore(restore), subject).await?;
    node_answer(&call, &node.node_uuid, None, &CommandOutcome::Open).await
}

fn node_subject(command: CommandName, node: &str) -> Subject {
    Subject {
        command,
        instance: None,
        node: Some(node.to_owned()),
    }
}

async fn node_answer(
    call: &Call,
    node: &str,
    progress: Option<&DrainProgress>,
    outcome: &CommandOutcome,
) -> Answer {
    let (at, row) = find_node(&call.app, node).await?;
    let mut content = Map::new();
    content.insert("node".to_owned(), to_json(&row).into());
    if let Some(progress) = progress {
        content.insert("drain".to_owned(), to_json(progress).into());
    }
    Ok(outcome_answer(
        at,
        content,
        outcome,
        &format!("/v1/nodes/{node}"),
    ))
}
