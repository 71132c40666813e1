//! `POST /v1/instances` and `POST /v1/explain`: STARTs as JSON or YAML.
//!
//! A client whose connection broke cannot know whether its START arrived, so it may send it again: a START is known by
//! its instance. The same one again is answered with the instance that is there, and another one of the same instance
//! is a conflict.
//!
//! ```text
//! body ── payload ──▶ YAML ── checked_start ──▶ known? ──┬── New    to the core, which answers or places it
//!                     (its digest is kept)               ├── Same   200, the instance as it is
//!                                                        └── Other  409 instance_exists
//! ```
//!
//! A START that came as YAML goes to its launcher byte for byte; one that came as JSON is written as YAML once, here.
//! What in it does not do what it seems to is in every answer as `warnings`, or with `?strict` refuses it.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Bytes;
use axum::http::StatusCode;
use indexmap::IndexMap;
use proto_frames::payload::cut::shorten;
use proto_frames::payload::{InstanceView, Payload, PlacementState, Start};
use serde_json::{Map, Value};

use super::call::{Answer, Call, answer};
use super::caller::{Subject, Waiter, problem_in};
use super::commands::{CommandOutcome, Until, follow, instance_answer_with};
use super::json::to_json;
use super::limits::MAX_POSTED;
use super::problem::Problem;
use super::ring::EventId;
use crate::server::wire::{self, Ordered};
use crate::start_warnings::StartWarnings;
use sched_core::{Command, CommandName, Content, Input, InstanceId, Message};

/// STARTs that came over HTTP, by instance: the digest of each payload, 32 bytes rather than up to 256 KiB. Beyond
/// [`MAX_POSTED`] the one that has been here for longest is forgotten for each that comes. They do not survive a restart; then, as for STARTs
/// that came as frames, what the instance asked for decides ([`asks_alike`]).
#[derive(Debug, Default)]
pub(super) struct Posted {
    /// SHA-256 of the payload as it went to the core, so of the YAML also for a START that came as JSON.
    by_instance: IndexMap<InstanceId, [u8; 32]>,
    /// The position of the entry that is replaced next, which came before all others. Positions are gone through round
    /// and round, so that the order is that of arrival and replacing one costs the same however many there are.
    oldest: usize,
}

/// What a START means for an instance that may be there.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// No instance of this name is there, or one that has ended may be started once more: it goes to the core.
    New,
    /// It is the START that made the instance that is there.
    Same,
    /// The instance was made by another START.
    Other,
}

impl Posted {
    /// Remembers a START that goes to the core.
    fn note(&mut self, instance: &InstanceId, digest: [u8; 32]) {
        self.by_instance.insert(instance.clone(), digest);
        if self.by_instance.len() > MAX_POSTED {
            // The entry that was put in last takes the position that becomes free.
            self.by_instance.swap_remove_index(self.oldest);
            self.oldest = (self.oldest + 1) % MAX_POSTED;
        }
    }

    /// What a START means. `is_known` says that the core would not place it as the first of its instance (it is on a
    /// node, managed or expected back), `row` is what queries show of the instance, which may be of a run that has
    /// ended.
    ///
    /// - Nothing is there: `New`. An ended run counts as nothing only if the START says `restart`; else a START that is
    ///   sent again after its instance ended would run it twice.
    /// - The digest of the instance is remembered: it decides.
    /// - It is not, and the core knows whether it `is_same`, as where it came as a frame: that decides.
    /// - Neither is: `Same` if the instance asked for the same, as far as that is known, or is known to the core without a
    ///   row. Of a run that has ended it is not known: nothing tells then that it was another START.
    fn known(
        &self,
        (instance, digest): (&InstanceId, &[u8; 32]),
        start: &Start,
        (is_known, is_same): (bool, Option<bool>),
        row: Option<&InstanceView>,
    ) -> Known {
        let is_there = is_known || row.is_some_and(|row| row.state != PlacementState::Ended);
        if !is_there && (row.is_none() || start.restart) {
            return Known::New;
        }
        match (self.by_instance.get(instance), row) {
            (Some(known), _) if known == digest => Known::Same,
            (Some(_), _) => Known::Other,
            (None, _) if is_same == Some(true) => Known::Same,
            (None, _) if is_same == Some(false) => Known::Other,
            // It came as a frame, before a restart, or so long ago that its digest is forgotten.
            (None, Some(row)) if !is_there || asks_alike(start, row) => Known::Same,
            (None, None) => Known::Same,
            (None, Some(_)) => Known::Other,
        }
    }
}

/// Whether a START asks for what an instance has: memory, vcpus, disk, group and custom resources. Weaker than the
/// digest; for instances whose START came as a frame, or so long ago that its digest is forgotten.
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

/// A START as a request has it.
struct Sent {
    /// As it goes to the core.
    payload: Bytes,
    start: Start,
    /// What in it does not do what it seems to.
    warnings: Vec<String>,
}

/// `POST /v1/instances`. With `?wait=` the answer comes once the instance runs, with `&until=ended` once it has ended.
///
/// # Errors
/// 400, 415 or 422 where the START cannot be read, or with `?strict` has something to warn of, 409 `instance_exists`,
/// 503 where the scheduler leaves, and what the core or, while the request waits, the node says of a START that failed.
pub(super) async fn start(call: Call) -> Answer {
    let sent = read(&call, None)?;
    if sent.start.scheduling.as_ref().is_some_and(|it| it.dry_run) {
        let problem = Problem::invalid_data("start.scheduling.dry_run", "nothing would be started");
        return Err(problem.with_help("POST /v1/explain"));
    }
    // As events and paths have it; `follow` looks for the instance by the path's `id`, which this route does not have.
    let id = InstanceId::new(&sent.start.instance_uuid).to_string();
    let call = Call { id, ..call };
    match submit(&call, &sent).await {
        Ok(outcome) => {
            let more = warnings_member(&sent.warnings);
            Ok(instance_answer_with(&call.app, &call.id, &outcome, more))
        }
        Err(problem) => Err(problem.with_warnings(&sent.warnings)),
    }
}

/// Hands in a START, unless it is known, and waits as long as the request does.
///
/// The order matters: the answer's [`Waiter`] is registered, then `posted` is locked, then the core is asked what it
/// knows and is given the START, and only then `posted` is unlocked. So of two equal requests at once one is `New` and
/// the other finds it. The core's lock is taken twice in that time; a START of the same instance that comes by SSNTP in
/// between is for the core to answer.
async fn submit(call: &Call, sent: &Sent) -> Result<CommandOutcome, Problem> {
    let Sent { payload, start, .. } = sent;
    let instance = InstanceId::new(&start.instance_uuid);
    // The session is opened, and its budget waited for, before the lock below is taken: nothing may wait under that.
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
            let content = scheduler.content(&instance);
            let is_same = content.map(|it| it == Content::of(payload));
            let known = (scheduler.is_known(&instance), is_same);
            (call.app.ring.end(), row, known)
        });
        let digest = digest_of(payload);
        let known = posted.known((&instance, &digest), start, is_known, row.as_deref());
        if known == Known::New {
            posted.note(&instance, digest);
            caller.hand_in(input, &waiter);
        }
        (begun, known)
    };
    match known {
        Known::Other => {
            let detail = format!(
                "instance '{}' is there, and was made by another START",
                shorten(&call.id)
            );
            let problem = Problem::new(StatusCode::CONFLICT, "instance_exists", detail);
            Err(problem
                .at("start.instance_uuid")
                .with_help("give each instance a UUID of its own"))
        }
        // Nothing was handed in, so nothing will be answered.
        Known::Same => Ok(CommandOutcome::Done),
        Known::New => {
            if let Some(problem) = first_failure(&mut waiter) {
                return Err(problem);
            }
            let until = match call.query.text("until") {
                Some("ended") => Until::Ended,
                _ => Until::Runs,
            };
            follow(call, &mut waiter, begun.sequence, None, until).await
        }
    }
}

/// Warnings as a member of an answer.
fn warnings_member(warnings: &[String]) -> Map<String, Value> {
    let member = ("warnings".to_owned(), warnings.into());
    Map::from_iter([member])
}

/// Why the core refused a START or could not place it, if it has said so: it does before `handle` returns.
fn first_failure(waiter: &mut Waiter) -> Option<Problem> {
    waiter.try_next().as_ref().and_then(problem_in)
}

/// `POST /v1/explain`: where a START would go, or why nowhere, with the search that a real one would use. The START is
/// read and checked like a real one; then `dry_run` is set in the request that the core gets, whatever the body says,
/// so that nothing is claimed. A START needs no `instance_uuid` here. Viewers may ask as well.
///
/// `count` and `alternates` of the query string come before those of the body.
///
/// # Errors
/// 400, 415 or 422 where the START cannot be read, or with `?strict` has something to warn of; what the core says of a
/// START that it refuses; 503 if it gives no decision. A START that fits nowhere is no error: the decision has `fits: 0`
/// and the reasons.
pub(super) async fn explain(call: Call) -> Answer {
    let nameless = proto_frames::Uuid::new_v4().to_string();
    let sent = read(&call, Some(&nameless))?;
    let decided = decide(&call, &sent).await;
    let (at, decision) = decided.map_err(|problem| problem.with_warnings(&sent.warnings))?;
    let mut content = warnings_member(&sent.warnings);
    content.insert("decision".to_owned(), decision);
    Ok(answer(StatusCode::OK, at, content))
}

/// What the core decides of a START that is not to be started, and when.
async fn decide(call: &Call, sent: &Sent) -> Result<(EventId, Value), Problem> {
    let instance = InstanceId::new(&sent.start.instance_uuid);
    let caller = call.connection.caller(&call.app).await?;
    let start = Ordered::Start(sent.payload.clone());
    let mut input = wire::ordered(caller.session, caller.uuid, &start)?;
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
    // Registered first: the decision is sent before `handle` returns.
    let mut waiter = caller.wait_for(subject(&instance));
    caller.hand_in(input, &waiter);
    let at = call.app.ring.end();
    // The core decides a dry run before `handle` returns, so the answer is in the channel.
    match waiter.try_next() {
        Some(Message::PlacementDecision(decision)) => Ok((at, to_json(&decision.payload).into())),
        Some(message) => Err(problem_in(&message).unwrap_or_else(undecided)),
        None => Err(undecided()),
    }
}

/// The core has answered a dry run with nothing, or with something else than a decision or a failure.
fn undecided() -> Problem {
    Problem::busy("the scheduler cannot decide this now")
}

/// What answers to the START of an instance are known by.
fn subject(instance: &InstanceId) -> Subject {
    Subject {
        command: CommandName::Start,
        instance: Some(instance.clone()),
        node: None,
    }
}

/// SHA-256 of a payload.
fn digest_of(payload: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, payload).as_ref());
    bytes
}

/// The START of a request, as YAML, and what is to be warned of in it. `nameless` is the instance to give to one that
/// names none, where that is no mistake.
///
/// Warnings are about the body as it came: their lines are the sender's.
///
/// # Errors
/// 400, 415 or 422 where it cannot be read; 422 where `?strict` makes a mistake of what is warned of.
fn read(call: &Call, nameless: Option<&str>) -> Result<Sent, Problem> {
    let is_json = is_json(call)?;
    let payload = match is_json {
        true => yaml_of_json(call, nameless)?,
        false => named(&call.body, nameless),
    };
    let start = wire::checked_start(&payload)?;
    let warnings = match is_json {
        true => StartWarnings::of_json(&call.body, &start),
        false => StartWarnings::of(&call.body, &start),
    };
    if call.query.flag("strict") && !warnings.is_empty() {
        return Err(doubtful(&warnings));
    }
    let warnings = warnings.texts().into_iter().map(|text| text.to_string());
    Ok(Sent {
        payload,
        start,
        warnings: warnings.collect(),
    })
}

/// 422: what would be warned of is to be a mistake.
fn doubtful(warnings: &StartWarnings) -> Problem {
    let mistakes = warnings.mistakes();
    let mistakes: Vec<&str> = mistakes.iter().map(|text| &**text).collect();
    let problem = Problem::invalid_data(warnings.first().unwrap_or_default(), mistakes.join("; "));
    problem.with_help("mend it, or leave out `strict` to have it ignored")
}

/// Whether a body is JSON rather than YAML.
///
/// The media type decides; where it says nothing of use (curl's default for `--data`, `text/plain`, none) a body that
/// begins with `{` is JSON.
///
/// # Errors
/// 415 `unsupported_media_type`.
fn is_json(call: &Call) -> Result<bool, Problem> {
    match call.media_type().as_str() {
        "application/json" => Ok(true),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Ok(false),
        // What curl says of --data, and nothing at all: by how it begins.
        "" | "application/x-www-form-urlencoded" | "text/plain" => {
            Ok(call.body.trim_ascii_start().first() == Some(&b'{'))
        }
        other => {
            let other = shorten(other);
            let detail = format!("'{other}' is neither application/json nor application/yaml");
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            Err(Problem::new(status, "unsupported_media_type", detail).at("content-type"))
        }
    }
}

/// A START in JSON as YAML. Only the shape is checked here that is needed to find `instance_uuid`: the rest is for
/// [`wire::checked_start`].
///
/// # Errors
/// 400 where it is not JSON; 422 where `start` is missing or no object.
fn yaml_of_json(call: &Call, nameless: Option<&str>) -> Result<Bytes, Problem> {
    let mut value = call.json()?;
    let Some(start) = value.get_mut("start").and_then(Value::as_object_mut) else {
        let problem = Problem::invalid_data("start", "missing or no object");
        return Err(problem.with_help(r#"{"start": {"instance_uuid": …, "requirements": {…}}}"#));
    };
    if let Some(nameless) = nameless {
        let instance = start.entry("instance_uuid").or_insert(Value::Null);
        if instance.is_null() || *instance == "" {
            *instance = nameless.into();
        }
    }
    wire::start_of_json(&value).map_err(|error| Problem::invalid_payload("", error))
}

/// A START in YAML that names this instance if it named none, written again for that. For one that nobody is to run: of
/// what is written again, keys that are not known are gone.
fn named(payload: &Bytes, nameless: Option<&str>) -> Bytes {
    let instance_uuid = nameless.unwrap_or_default();
    match Start::decode_template(payload) {
        Ok(start) if start.instance_uuid.is_empty() && !instance_uuid.is_empty() => Start {
            instance_uuid: instance_uuid.to_owned(),
            ..start
        }
        .encode(),
        // What is wrong with it is said where it is checked.
        _ => payload.clone(),
    }
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
        assert_eq!(
            posted.known((&a, &one), &start(7), (false, None), None),
            Known::New
        );
        posted.note(&a, one);
        for row in [None, Some(&running)] {
            assert_eq!(
                posted.known((&a, &one), &start(7), (true, None), row),
                Known::Same
            );
            assert_eq!(
                posted.known((&a, &other), &start(7), (true, None), row),
                Known::Other
            );
        }
        let ended = row(PlacementState::Ended);
        let ended = Some(&ended);
        assert_eq!(
            posted.known((&a, &one), &start(7), (false, None), ended),
            Known::Same
        );
        assert_eq!(
            posted.known((&a, &other), &start(7), (false, None), ended),
            Known::Other
        );
        let again = Start {
            restart: true,
            ..start(7)
        };
        assert_eq!(
            posted.known((&a, &other), &again, (false, None), ended),
            Known::New
        );
    }

    #[test]
    fn what_came_another_way_is_known_by_what_it_asked_for() {
        let posted = Posted::default();
        let a = InstanceId::new("a");
        let running = row(PlacementState::Running);
        let known = |mem| posted.known((&a, &[1; 32]), &start(mem), (true, None), Some(&running));
        assert_eq!(known(7), Known::Same);
        assert_eq!(known(8), Known::Other);
        let known = |is_same| {
            let known = (true, Some(is_same));
            posted.known((&a, &[1; 32]), &start(7), known, Some(&running))
        };
        assert_eq!(known(true), Known::Same);
        assert_eq!(
            known(false),
            Known::Other,
            "another program, of the same amounts"
        );
    }

    #[test]
    fn a_start_whose_digest_is_forgotten_is_the_same_after_its_instance_ended() {
        let posted = Posted::default();
        let a = InstanceId::new("a");
        let ended = InstanceView {
            instance_uuid: "a".to_owned(),
            state: PlacementState::Ended,
            ..InstanceView::default()
        };
        let known =
            |start: &Start| posted.known((&a, &[1; 32]), start, (false, None), Some(&ended));
        assert_eq!(known(&start(7)), Known::Same);
        let again = Start {
            restart: true,
            ..start(7)
        };
        assert_eq!(known(&again), Known::New);
    }

    #[test]
    fn only_so_many_starts_are_remembered_and_the_oldest_is_forgotten() {
        let mut posted = Posted::default();
        let instance = |number: usize| InstanceId::new(&number.to_string());
        for number in 0..3 * MAX_POSTED {
            posted.note(&instance(number), [0; 32]);
            assert!(posted.by_instance.len() <= MAX_POSTED);
            let kept = (number + 1).saturating_sub(MAX_POSTED);
            assert!(posted.by_instance.contains_key(&instance(kept)));
            if kept > 0 {
                let forgotten = instance(kept - 1);
                assert!(!posted.by_instance.contains_key(&forgotten), "{number}");
            }
        }
    }
}
