//! `POST /v1/instances` and `POST /v1/explain`: STARTs as JSON or YAML.
//!
//! A START is known by its instance. The same one again, after a connection that broke for one, is answered with the
//! instance that is there, and another one of the same instance is a conflict.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Bytes;
use axum::http::StatusCode;
use indexmap::IndexMap;
use proto_frames::payload::{InstanceView, PlacementState, Start};
use serde_json::Value;

use super::call::{Answer, Call, answer_with};
use super::caller::{Subject, Waiter, problem_in};
use super::commands::{CommandOutcome, Until, follow, instance_answer};
use super::json::to_json;
use super::limits::MAX_POSTED;
use super::problem::Problem;
use crate::server::wire::{self, Ordered};
use sched_core::{Command, CommandName, Input, InstanceId, Message};

/// STARTs that came here, by instance: the digest of each. The oldest are forgotten beyond [`MAX_POSTED`].
#[derive(Debug, Default)]
pub(super) struct Posted {
    by_instance: IndexMap<InstanceId, [u8; 32]>,
    /// How many of the oldest were forgotten: numbers of places go on.
    oldest: usize,
}

/// What a START means for an instance that may be there.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// It is new.
    New,
    /// It is the one that made it.
    Same,
    /// The instance was made by another.
    Other,
}

impl Posted {
    fn note(&mut self, instance: &InstanceId, digest: [u8; 32]) {
        if self.by_instance.len() >= MAX_POSTED && !self.by_instance.contains_key(instance) {
            // In the place of one of long ago; which one, goes round.
            self.oldest = (self.oldest + 1) % MAX_POSTED;
            self.by_instance.swap_remove_index(self.oldest);
        }
        self.by_instance.insert(instance.clone(), digest);
    }

    fn known(
        &self,
        (instance, digest): (&InstanceId, &[u8; 32]),
        start: &Start,
        is_known: bool,
        row: Option<&InstanceView>,
    ) -> Known {
        let is_there = is_known || row.is_some_and(|row| row.state != PlacementState::Ended);
        if !is_there && (row.is_none() || start.restart) {
            return Known::New;
        }
        match (self.by_instance.get(instance), row) {
            (Some(known), _) if known == digest => Known::Same,
            (Some(_), _) => Known::Other,
            // It came another way, or long ago: by what is known of it.
            (None, Some(row)) if is_there && asks_alike(start, row) => Known::Same,
            (None, None) => Known::Same,
            (None, Some(_)) => Known::Other,
        }
    }
}

/// Whether a START asks for what an instance has.
fn asks_alike(start: &Start, row: &InstanceView) -> bool {
    let scheduling = start.scheduling.as_ref();
    let group = scheduling.and_then(|it| it.group.as_ref());
    let resources = scheduling.map(|it| &it.resources);
    start.requirements.mem_mb == row.mem_mb
        && start.requirements.vcpus == row.vcpus
        && start.disk_mib() == Some(row.disk_mb)
        && group.map_or("", |group| &group.id) == row.group
        && resources.map_or(row.resources.is_empty(), |it| *it == row.resources)
}

/// POST /v1/instances.
pub(super) async fn start(call: Call) -> Answer {
    let payload = payload(&call, None)?;
    let start = wire::checked_start(&payload)?;
    if start.scheduling.as_ref().is_some_and(|it| it.dry_run) {
        let problem = Problem::invalid_data("start.scheduling.dry_run", "nothing would be started");
        return Err(problem.with_help("POST /v1/explain"));
    }
    let id = start.instance_uuid.clone();
    let instance = InstanceId::new(&id);
    let caller = call.connection.caller(&call.app).await?;
    let input = wire::ordered(
        caller.session,
        caller.uuid,
        &Ordered::Start(payload.clone()),
    )?;
    let mut waiter = caller.wait_for(subject(&instance));
    let (begun, known) = {
        // Held until the core has it, so that of two at once one comes first.
        let mut posted = call.app.posted.lock();
        let (begun, row, is_known) = call.app.hub.read_now(|scheduler, now| {
            let row = scheduler.instance(now, &instance);
            (call.app.ring.end(), row, scheduler.is_known(&instance))
        });
        let digest = digest_of(&payload);
        let known = posted.known((&instance, &digest), &start, is_known, row.as_deref());
        if known == Known::New {
            posted.note(&instance, digest);
            call.app.hub.handle([input], Some(caller.budget()));
        }
        (begun, known)
    };
    match known {
        Known::Other => {
            let detail = format!("instance '{id}' is there, and was made by another START");
            let problem = Problem::new(StatusCode::CONFLICT, "instance_exists", detail);
            return Err(problem
                .at("start.instance_uuid")
                .with_help("give each instance a UUID of its own"));
        }
        Known::Same => drop(waiter),
        Known::New => {
            if let Some(problem) = first_failure(&mut waiter) {
                return Err(problem);
            }
            let call = Call { id, ..call };
            let outcome = follow(&call, &mut waiter, begun.sequence, None, Until::Runs).await?;
            return Ok(instance_answer(&call.app, &call.id, &outcome));
        }
    }
    Ok(instance_answer(&call.app, &id, &CommandOutcome::Done))
}

fn first_failure(waiter: &mut Waiter) -> Option<Problem> {
    waiter.try_next().as_ref().and_then(problem_in)
}

/// POST /v1/explain.
pub(super) async fn explain(call: Call) -> Answer {
    let nameless = proto_frames::Uuid::new_v4().to_string();
    let payload = payload(&call, Some(&nameless))?;
    let start = wire::checked_start(&payload)?;
    let instance = InstanceId::new(&start.instance_uuid);
    let caller = call.connection.caller(&call.app).await?;
    let mut input = wire::ordered(caller.session, caller.uuid, &Ordered::Start(payload))?;
    if let Input::Command {
        command: Command::Start(request),
        ..
    } = &mut input
    {
        let request = Arc::make_mut(request);
        let scheduling = request.scheduling.get_or_insert_default();
        scheduling.dry_run = true;
        scheduling.count = call.query.number("count").or(scheduling.count);
        let alternates = call.query.number("alternates");
        scheduling.alternates = alternates.or(scheduling.alternates);
    }
    let mut waiter = caller.wait_for(subject(&instance));
    call.app.hub.handle([input], Some(caller.budget()));
    let at = call.app.ring.end();
    // The core decides before it returns.
    match waiter.try_next() {
        Some(Message::PlacementDecision(decision)) => {
            let decision = to_json(&decision.payload).into();
            Ok(answer_with(StatusCode::OK, at, "decision", decision))
        }
        Some(message) => Err(problem_in(&message).unwrap_or_else(undecided)),
        None => Err(undecided()),
    }
}

fn undecided() -> Problem {
    Problem::busy("the scheduler cannot decide this now")
}

fn subject(instance: &InstanceId) -> Subject {
    Subject {
        command: CommandName::Start,
        instance: Some(instance.clone()),
        node: None,
    }
}

fn digest_of(payload: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, payload).as_ref());
    bytes
}

/// The START in a body as YAML: as it came, or written once from JSON. `nameless` is the instance of one that names none,
/// where it need not.
fn payload(call: &Call, nameless: Option<&str>) -> Result<Bytes, Problem> {
    let media_type = call.media_type();
    let is_json = match media_type.as_str() {
        "application/json" => true,
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => false,
        // What curl says of --data, and nothing at all: by its looks.
        "" | "application/x-www-form-urlencoded" | "text/plain" => {
            call.body.trim_ascii_start().first() == Some(&b'{')
        }
        other => {
            let detail = format!("'{other}' is neither application/json nor application/yaml");
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "unsupported_media_type", detail).at("content-type"));
        }
    };
    if !is_json {
        return Ok(call.body.clone());
    }
    let mut value = call.json()?;
    let Some(start) = value.get_mut("start").and_then(Value::as_object_mut) else {
        let problem = Problem::invalid_data("start", "missing or no object");
        return Err(problem.with_help(r#"{"start": {"instance_uuid": …, "requirements": {…}}}"#));
    };
    if let Some(nameless) = nameless {
        let entry = start.entry("instance_uuid");
        entry.or_insert_with(|| nameless.into());
    }
    wire::start_of_json(&value).map_err(|error| Problem::invalid_payload("", error))
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::Requirements;

    use super::*;

    fn start(mem_mb: i64) -> Start {
        Start {
            instance_uuid: "a".to_owned(),
            requirements: Requirements {
                mem_mb,
                ..Requirements::default()
            },
            ..Start::default()
        }
    }

    fn row(state: PlacementState) -> InstanceView {
        InstanceView {
            instance_uuid: "a".to_owned(),
            mem_mb: 7,
            vcpus: 0,
            disk_mb: 0,
            state,
            ..InstanceView::default()
        }
    }

    #[test]
    fn the_same_start_is_known_and_another_is_a_conflict() {
        let mut posted = Posted::default();
        let a = InstanceId::new("a");
        let (one, other) = ([1; 32], [2; 32]);
        let running = row(PlacementState::Running);
        assert_eq!(posted.known((&a, &one), &start(7), false, None), Known::New);
        posted.note(&a, one);
        for row in [None, Some(&running)] {
            assert_eq!(posted.known((&a, &one), &start(7), true, row), Known::Same);
            assert_eq!(
                posted.known((&a, &other), &start(7), true, row),
                Known::Other
            );
        }
        let ended = row(PlacementState::Ended);
        let ended = Some(&ended);
        assert_eq!(
            posted.known((&a, &one), &start(7), false, ended),
            Known::Same
        );
        assert_eq!(
            posted.known((&a, &other), &start(7), false, ended),
            Known::Other
        );
        let again = Start {
            restart: true,
            ..start(7)
        };
        assert_eq!(posted.known((&a, &other), &again, false, ended), Known::New);
    }

    #[test]
    fn what_came_another_way_is_known_by_what_it_asked_for() {
        let posted = Posted::default();
        let a = InstanceId::new("a");
        let running = row(PlacementState::Running);
        let known = |mem| posted.known((&a, &[1; 32]), &start(mem), true, Some(&running));
        assert_eq!(known(7), Known::Same);
        assert_eq!(known(8), Known::Other);
    }

    #[test]
    fn only_so_many_starts_are_remembered() {
        let mut posted = Posted::default();
        for number in 0..MAX_POSTED + 100 {
            posted.note(&InstanceId::new(&number.to_string()), [0; 32]);
        }
        assert_eq!(posted.by_instance.len(), MAX_POSTED);
    }
}
