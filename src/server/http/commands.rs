//! Commands on instances and nodes. Each goes to the core as the same command that a peer would send as a frame, in the
//! session of its connection ([`caller`](super::caller)).
//!
//! The answer is one of
//!
//! - a problem, where the core refuses at once or, with `?wait=`, where the command fails while the request waits;
//! - 202 with `follow`, the path at which to see what comes of it;
//! - 200 with the instance or node, where `?wait=` was given and the command was done in time.
//!
//! The core sends no message for "done". A request that waits looks at three things whenever something happens, and
//! every [`LOOK_EVERY`] besides: messages to its session (failures), events about its instance, and the instance's row
//! ([`Until`] says what the row must show).
//!
//! STARTs are in [`starts`](super::starts), which uses [`follow`] and [`instance_answer_with`] of this file.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use proto_frames::payload::cut::shorten;
use proto_frames::payload::{
    Delete, DrainProgress, Evacuate, EvacuateMode, InstanceView, Migrate, PhaseName,
    PlacementState, Restore, RestoreMode, Resume, Suspend, Update,
};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::call::{Answer, Call, answer};
use super::caller::{Subject, Waiter, problem_in};
use super::json::{from_json, to_json};
use super::limits::{EVENTS_PER_LOOK, LOOK_EVERY, NODE_ANSWERS_WITHIN};
use super::problem::Problem;
use super::read::find_node;
use super::ring::{Behind, Told};
use super::serve::App;
use super::shares::Place;
use crate::server::audit;
use crate::server::notices::{Class, Weight, Who};
use crate::server::wire::{self, Ordered};
use proto_frames::Role;
use sched_core::{CommandName, Input, InstanceId, Message};

/// How far a command is when its request is answered. A failure is a [`Problem`] instead.
pub(super) enum CommandOutcome {
    /// The core took it in and it goes on, or the request does not know more: 202.
    Open,
    /// It has come to its end within the request's `wait`: 200.
    Done,
}

/// What must be true of an instance for a command on it to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// It is running, or has run and ended.
    Runs,
    /// It has run and ended.
    Ended,
    /// It is on no node: no row is left, or one that has ended.
    Gone,
    /// What it left on its node when it ended was deleted. Only an event tells: the row looks the same before and after.
    LeftNothing,
    /// Its row says that it is suspended.
    Suspended,
    /// It runs on another node than before the command.
    Moved,
    /// Its node reported the state `updated`. Only an event tells: the row looks the same before and after.
    Updated,
}

impl Until {
    /// Whether the command is to end an instance, or to delete what is left of it.
    fn is_without_it(self) -> bool {
        matches!(self, Self::Gone | Self::LeftNothing)
    }
}

/// `DELETE /v1/instances/{id}`. With `?forget=true` the scheduler gives up an instance on a lost node although it may
/// still run there. Of one that has ended, what it left on its node is deleted.
pub(super) async fn delete(call: Call) -> Answer {
    let forget = call.query.flag("forget");
    let (_, row) = call.app.instance(&call.id);
    let is_ended = |row: &InstanceView| row.state == PlacementState::Ended;
    if let Some(row) = row.filter(is_ended)
        && !forget
        && !row.node_uuid.is_empty()
    {
        return delete_what_is_left(&call, row).await;
    }
    let delete = Delete {
        forget,
        ..target(&call)
    };
    on_instance(&call, Ordered::Delete(delete), Until::Gone).await
}

/// Has the node on which an instance ended delete what it left there. Its node alone knows whether there is anything, so
/// the request waits for its answer also without `?wait=`, for [`NODE_ANSWERS_WITHIN`].
async fn delete_what_is_left(call: &Call, row: InstanceView) -> Answer {
    let node = find_node(&call.app, &row.node_uuid).await;
    let is_there = node.is_ok_and(|(_, node)| !matches!(&*node.status, "LOST" | "EXPECTED"));
    if !is_there {
        let (id, node) = (shorten(&row.instance_uuid), &row.node_uuid);
        let detail = format!(
            "instance '{id}' has ended on node {node}, which is not connected: what it left there can be deleted once that \
             node is back"
        );
        return Err(Problem::not_found("no_instance", detail));
    }
    let delete = Delete {
        instance_uuid: call.id.clone(),
        workload_agent_uuid: row.node_uuid,
        ..Delete::default()
    };
    on_instance(call, Ordered::Delete(delete), Until::LeftNothing).await
}

/// `POST /v1/instances/{id}/stop`: DELETE with the flag `stop`, which removes the instance from its node alone.
pub(super) async fn stop(call: Call) -> Answer {
    let delete = Delete {
        stop: true,
        ..target(&call)
    };
    on_instance(&call, Ordered::Delete(delete), Until::Gone).await
}

/// A DELETE that names the node on which the instance is at this moment. SSNTP wants the node in the payload; HTTP
/// clients do not know it. The instance may move between this read and the command; the core answers that case.
fn target(call: &Call) -> Delete {
    let (_, row) = call.app.instance(&call.id);
    let row = row.filter(|row| row.state != PlacementState::Ended);
    let node = row.map(|row| row.node_uuid).filter(|node| !node.is_empty());
    Delete {
        instance_uuid: call.id.clone(),
        // `-` is no UUID: the core then looks for the instance where it waits, and answers `no_instance` if it is
        // nowhere.
        workload_agent_uuid: node.unwrap_or_else(|| "-".to_owned()),
        ..Delete::default()
    }
}

/// `POST /v1/instances/{id}/suspend`. An instance that the body names is replaced by the one of the path, here and in
/// the handlers below.
pub(super) async fn suspend(call: Call) -> Answer {
    let mut suspend: Suspend = call.record("suspend")?;
    suspend.instance_uuid.clone_from(&call.id);
    on_instance(&call, Ordered::Suspend(suspend), Until::Suspended).await
}

/// `POST /v1/instances/{id}/resume`. Done when the instance runs; where there is no room for it, it waits first.
pub(super) async fn resume(call: Call) -> Answer {
    let mut resume: Resume = call.record("resume")?;
    resume.instance_uuid.clone_from(&call.id);
    on_instance(&call, Ordered::Resume(resume), Until::Runs).await
}

/// `POST /v1/instances/{id}/migrate`, to `target_node_uuid` of the body, or to a node that the scheduler chooses.
pub(super) async fn migrate(call: Call) -> Answer {
    let mut migrate: Migrate = call.record("migrate")?;
    migrate.instance_uuid.clone_from(&call.id);
    on_instance(&call, Ordered::Migrate(migrate), Until::Moved).await
}

/// `POST /v1/instances/{id}/update`: the body has what is to change; what it leaves out stays as it is.
pub(super) async fn update(call: Call) -> Answer {
    let mut update: Update = call.record("update")?;
    update.instance_uuid.clone_from(&call.id);
    on_instance(&call, Ordered::Update(update), Until::Updated).await
}

/// Hands in a command on an instance and answers with the instance's row. The row and the events' position are read
/// before the command is handed in, so that an outcome that comes at once is not missed.
///
/// # Errors
/// What refused the command, or why it failed while the request waited.
async fn on_instance(call: &Call, ordered: Ordered, until: Until) -> Answer {
    let subject = Subject {
        command: ordered.name(),
        instance: Some(InstanceId::new(&call.id)),
        node: None,
    };
    let (begun, before) = call.app.instance(&call.id);
    let ordered = order(call, &ordered, subject).await;
    let mut waiter = ordered.map_err(|problem| match &before {
        Some(row) if until.is_without_it() => nothing_left(problem, row),
        _ => problem,
    })?;
    let outcome = follow(call, &mut waiter, begun.sequence, before.as_ref(), until).await;
    let outcome = outcome.map_err(|problem| match &before {
        Some(row) if until == Until::LeftNothing => nothing_left(problem, row),
        _ => problem,
    })?;
    Ok(instance_answer(&call.app, &call.id, &outcome))
}

/// The problem that there is no instance to be deleted, where there was one: since when there is none.
fn nothing_left(problem: Problem, before: &InstanceView) -> Problem {
    if before.state != PlacementState::Ended {
        return problem;
    }
    let ago = match before.age_s {
        s @ ..120 => format!("{s}s"),
        s @ ..7200 => format!("{}min", s / 60),
        s => format!("{}h", s / 3600),
    };
    let id = shorten(&before.instance_uuid);
    let detail = format!("instance '{id}' ended {ago} ago; nothing to delete");
    problem.worded("no_instance", detail)
}

/// The answer about an instance, with its row as it is by now (null once it is forgotten), 200 or 202 by `outcome`, and
/// `Location`.
pub(super) fn instance_answer(
    app: &App,
    id: &str,
    outcome: &CommandOutcome,
) -> axum::response::Response {
    instance_answer_with(app, id, outcome, Map::new())
}

/// The same, with these members beside.
pub(super) fn instance_answer_with(
    app: &App,
    id: &str,
    outcome: &CommandOutcome,
    mut content: Map<String, Value>,
) -> axum::response::Response {
    let (at, row) = app.instance(id);
    let row = row.as_ref().map(to_json);
    content.insert(
        "instance".to_owned(),
        row.map_or(Value::Null, Value::Object),
    );
    let place = format!("/v1/instances/{}", path_segment(id));
    outcome_answer(at, content, outcome, &place)
}

/// Adds `follow` and the `Location` header to an answer. `place` is a path of this API; where it cannot be a header
/// value the header is left out.
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

/// An identifier percent-encoded as one segment of a path. The encoder is that of forms, which writes a space as `+`;
/// in a path that would be a plus sign.
fn path_segment(id: &str) -> String {
    form_urlencoded::byte_serialize(id.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

/// Hands a command to the core and begins to collect its answers. When this returns the core has decided: it took the
/// command in, or refused it.
///
/// # Errors
/// The refusal; 503 where the scheduler leaves or the connection's budget is used up; 400 or 422 where the command
/// cannot be read as the frame that it would be.
pub(super) async fn order(
    call: &Call,
    ordered: &Ordered,
    subject: Subject,
) -> Result<Waiter, Problem> {
    let caller = call.connection.caller(&call.app).await?;
    let input = wire::ordered(caller.session, caller.uuid, ordered)?;
    note(call, caller.uuid, &input);
    let mut waiter = caller.wait_for(subject);
    caller.hand_in(input, &waiter);
    // The core refuses before `handle` returns, so a refusal is in the channel by now.
    match waiter.try_next().as_ref().and_then(problem_in) {
        Some(problem) => Err(problem),
        None => Ok(waiter),
    }
}

/// Logs who gave which command on what, in the form that commands of peers have in the log, with the subject of the
/// certificate and the address. START is left out, as it is for peers; see [`audit::object`].
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

/// Waits for the outcome of a command on an instance, as long as `?wait=` says; without it returns at once. `since` is
/// the events' position and `before` the row, both read before the command was handed in.
///
/// The three sources are looked at in the order messages, events, row: a failure is told as such although the row may
/// look done. [`LOOK_EVERY`] bounds how late a change of the row is seen that makes no event.
///
/// # Errors
/// It has failed: the message or event as a problem.
pub(super) async fn follow(
    call: &Call,
    waiter: &mut Waiter,
    since: u64,
    before: Option<&InstanceView>,
    until: Until,
) -> Result<CommandOutcome, Problem> {
    let at_least = match until {
        Until::LeftNothing => NODE_ANSWERS_WITHIN,
        _ => Duration::ZERO,
    };
    let Some((deadline, _room)) = patience_of(call, at_least) else {
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

/// Until when a request waits, and its place among those that do. `None` if it did not ask to wait, or if as many wait
/// as may, in all or of one certificate (`MAX_WAITING`): it is then answered with 202 at once, which is no error, because `follow` leads to the
/// outcome as well.
pub(super) fn patience(call: &Call) -> Option<(Instant, Place)> {
    patience_of(call, Duration::ZERO)
}

/// The same, of a request that waits for so long at least, also without being asked to.
fn patience_of(call: &Call, at_least: Duration) -> Option<(Instant, Place)> {
    let wait = call.query.wait().max(at_least);
    if wait == Duration::ZERO {
        return None;
    }
    let caller = call.connection.identity.fingerprint;
    let place = call.app.waiting.take(caller).ok()?;
    Some((Instant::now() + wait, place))
}

/// Looks through the events behind `seen`, which it moves on, for one that ends the command. Where events were dropped
/// from the ring unread it goes on behind the latest: the row and the messages still tell.
///
/// Cost: all events since the last look, of all instances, [`EVENTS_PER_LOOK`] under the ring's lock at a time.
///
/// # Errors
/// A `start_failure` of the instance, for a request that waits until it runs.
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
            if matches!(until, Until::Runs | Until::Ended) && told.name == "start_failure" {
                return Err(failure(told));
            }
            if until == Until::LeftNothing && told.name == "instance_deleted" {
                return Ok(true);
            }
            let state = told.state.as_deref();
            if until == Until::Updated && state == Some(PhaseName::Updated.as_str()) {
                return Ok(true);
            }
        }
    }
}

/// The problem that an event `start_failure` stands for. Its JSON is read back into the type; that it was written from
/// it makes an error here a defect of this program.
fn failure(told: &Told) -> Problem {
    let value = serde_json::from_str(&told.data).unwrap_or_default();
    match from_json("", &value) {
        Ok(failure) => Problem::from(&proto_frames::payload::StartFailure::clone(&failure)),
        Err(problem) => problem,
    }
}

/// Whether the instance's row shows that the command is done, at this moment.
fn is_done(call: &Call, before: Option<&InstanceView>, until: Until) -> bool {
    let (_, row) = call.app.instance(&call.id);
    let is_ended = |row: &InstanceView| row.state == PlacementState::Ended;
    let row = row.as_ref();
    let runs = |row: &InstanceView| {
        row.state == PlacementState::Running
            && (row.life.is_empty() || row.life == PhaseName::Running.as_str())
    };
    match until {
        Until::Gone => row.is_none_or(is_ended),
        // One that has ended did run.
        Until::Runs => row.is_some_and(|row| runs(row) || is_ended(row)),
        Until::Ended => row.is_some_and(is_ended),
        Until::Suspended => row.is_some_and(|row| row.life == PhaseName::Suspended.as_str()),
        Until::Moved => row.is_some_and(|row| {
            runs(row) && before.is_some_and(|before| before.node_uuid != row.node_uuid)
        }),
        Until::Updated | Until::LeftNothing => false,
    }
}

/// `POST /v1/nodes/{id}/cordon`: EVACUATE with the mode `cordon`. `{id}` is a UUID or host name, here and below.
pub(super) async fn cordon(call: Call) -> Answer {
    evacuating(call, EvacuateMode::Cordon).await
}

/// `POST /v1/nodes/{id}/abort-drain`: EVACUATE with the mode `abort`.
pub(super) async fn abort_drain(call: Call) -> Answer {
    evacuating(call, EvacuateMode::Abort).await
}

/// `POST /v1/nodes/{id}/evacuate`: EVACUATE without a mode, which is ciao's own: the launcher stops all its instances.
pub(super) async fn evacuate(call: Call) -> Answer {
    evacuating(call, EvacuateMode::default()).await
}

/// `POST /v1/nodes/{id}/uncordon`: Restore with the mode `uncordon`.
pub(super) async fn uncordon(call: Call) -> Answer {
    restoring(call, RestoreMode::Uncordon).await
}

/// `POST /v1/nodes/{id}/restore`: Restore without a mode, which takes back an evacuation.
pub(super) async fn restore(call: Call) -> Answer {
    restoring(call, RestoreMode::default()).await
}

/// `POST /v1/nodes/{id}/drain`: EVACUATE with the mode `relocate`, and `deadline` and `parallel` of the body. A body
/// with another mode is refused, since it would silently do something else than the path says. With `?wait=` the answer
/// has `drain`, the latest progress.
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

/// Waits for the end of a drain as long as the request says; the latest progress that came in that time. `None` if none
/// did or the request does not wait.
///
/// # Errors
/// The drain failed or was refused.
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

/// Sends EVACUATE in this mode and answers 202. There is no `?wait=` here: the node's row shows what came of it.
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

/// As [`evacuating`], with Restore in this mode.
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

/// What answers to a command on a node are known by. `node` is a UUID, not a host name.
fn node_subject(command: CommandName, node: &str) -> Subject {
    Subject {
        command,
        instance: None,
        node: Some(node.to_owned()),
    }
}

/// The answer about a node: its row read after the command, and the drain's progress where there is some.
///
/// # Errors
/// 404 if the node was forgotten meanwhile; the command is given all the same.
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
