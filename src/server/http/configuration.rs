//! `/v1/configuration`: the cluster configuration with its versions is read, checked and replaced, as by `ciaoctl
//! configure`. Who changes it names the version that it was made from, by `If-Match` or `if_version`, so that two at a time
//! do not undo each other's work:
//!
//! ```text
//! GET /v1/configuration                      200, ETag: "7"   {"configuration": {"version": 7, "document": "…", …}}
//! PUT /v1/configuration, If-Match: "7"       200, ETag: "8"   {"configuration": {"version": 8, "kept": true, …}}
//! PUT /v1/configuration, If-Match: "7"       412              {"reason": "conflict", …}
//! PUT /v1/configuration?check                200              {"check": {"checked": 40, "affected": […], …}}
//! ```
//!
//! The keeper of the versions answers, as it does by SSNTP ([`Asking`]).

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use proto_frames::payload::configuration::MAX_CONFIGURATION_NOTE_LEN;
use proto_frames::payload::{
    ConfigurationAnswer, ConfigurationFailure, ConfigurationPart, ConfigurationWrite, Payload,
    ReadConfiguration, WriteConfiguration,
};
use proto_frames::{Frame, Kind, Role, Uuid};
use serde_json::{Map, Value, json};

use super::asking::{Asking, unreadable};
use super::call::{Answer, Call, answer_with, text_response};
use super::json::to_json;
use super::problem::Problem;
use sched_core::{Command, ConfigurationCommand};

/// What the document itself is.
const MEDIA_TYPE: &str = "application/yaml";

/// `GET /v1/configuration?version=N`: the version in force, or that of this number, with all that are kept; with `file`
/// the scheduler's own file as it is now; with `document` the document alone, byte for byte.
///
/// # Errors
/// 404 `not_found`: there is no such version, or no file; 400 for both at once; else those of [`Asking::ask`].
pub(super) async fn get(call: Call) -> Answer {
    let (version, file) = (call.query.number("version"), call.query.flag("file"));
    if version.is_some() && file {
        return Err(Problem::parameter("file", "it has no versions"));
    }
    let read = ReadConfiguration {
        version: version.map(u64::from),
        file,
        ..ReadConfiguration::default()
    };
    let at = call.app.ring.end();
    let mut asking = Asking::open(&call, Role::VIEWER)?;
    let (command, kind) = (ConfigurationCommand::Read, Kind::READ_CONFIGURATION);
    let (part, document) = ask(&mut asking, command, kind, read.encode()).await?;
    let mut response = if call.query.flag("document") {
        text_response(StatusCode::OK, MEDIA_TYPE, document)
    } else {
        let versions = part.versions.iter().map(to_json);
        let content = json!({
            "version": part.version,
            "current": part.current,
            "kept": part.kept,
            "file": part.file,
            "document": String::from_utf8_lossy(&document),
            "versions": versions.map(Value::from).collect::<Vec<_>>(),
        });
        answer_with(StatusCode::OK, at, "configuration", content)
    };
    tag(&mut response, part.version);
    Ok(response)
}

/// `PUT /v1/configuration?note=…`: puts the body into force as a new version; with `check` only says what would come of
/// it.
///
/// # Errors
/// 422 `invalid_data` at a mistake, with its key and line, and for an empty body; 412 `conflict` where another version is in
/// force than `If-Match` names, 409 for `if_version`; else those of [`Asking::ask`].
pub(super) async fn put(call: Call) -> Answer {
    if call.body.is_empty() {
        let detail = "there is no body; what belongs there is the whole configuration, as YAML";
        return Err(Problem::invalid_data("", detail));
    }
    let note = call.query.text("note").unwrap_or_default();
    if note.len() > MAX_CONFIGURATION_NOTE_LEN {
        let detail = format!("at most {MAX_CONFIGURATION_NOTE_LEN} bytes are taken");
        return Err(Problem::parameter("note", detail));
    }
    let expected = Expected::of(&call)?;
    let is_check = call.query.flag("check");
    let asked = WriteConfiguration {
        check: is_check,
        if_version: expected.version,
        note: note.to_owned(),
        ..WriteConfiguration::default()
    };
    let write = ConfigurationWrite::new(asked, call.body.clone());
    let at = call.app.ring.end();
    let mut asking = Asking::open(&call, Role::OPERATOR)?;
    let (command, kind) = (ConfigurationCommand::Write, Kind::WRITE_CONFIGURATION);
    let asked = ask(&mut asking, command, kind, write.encode()).await;
    let (part, _) = asked.map_err(|problem| expected.refused(problem))?;
    if is_check {
        expected.check(part.current)?;
        return Ok(answer_with(StatusCode::OK, at, "check", checked(&part)));
    }
    let content = json!({
        "version": part.version,
        "kept": part.kept,
        "warnings": part.warnings,
    });
    let mut response = answer_with(StatusCode::OK, at, "configuration", content);
    tag(&mut response, part.version);
    Ok(response)
}

/// What would come of a configuration.
fn checked(part: &ConfigurationPart) -> Value {
    let affected = part.affected.iter().map(to_json).map(Value::from);
    json!({
        "current": part.current,
        "checked": part.checked,
        "affected": affected.collect::<Vec<_>>(),
        "affected_count": part.affected.len() as u64 + part.more_affected,
        "warnings": part.warnings,
    })
}

/// The version that has to be in force, and which of the two ways said so.
#[derive(Debug, Clone, Copy)]
struct Expected {
    version: Option<u64>,
    is_by_header: bool,
}

impl Expected {
    /// # Errors
    /// 400: a header that is no tag of a version, or that and a parameter which differ.
    fn of(call: &Call) -> Result<Self, Problem> {
        let by_parameter = call.query.number("if_version").map(u64::from);
        let by_header = if_match(&call.headers)?;
        if let (Some(header), Some(parameter)) = (by_header, by_parameter)
            && header != parameter
        {
            let detail = format!("If-Match names version {header}");
            return Err(Problem::parameter("if_version", detail));
        }
        Ok(Self {
            version: by_header.or(by_parameter),
            is_by_header: by_header.is_some(),
        })
    }

    /// A check changes nothing, so the keeper does not look at the version.
    ///
    /// # Errors
    /// As [`put`].
    fn check(self, current: u64) -> Result<(), Problem> {
        match self.version.filter(|expected| *expected != current) {
            Some(expected) => {
                let detail = format!("version {current} is in force, not version {expected}");
                let problem = refusal(&ConfigurationFailure::Conflict, &detail);
                Err(self.refused(problem))
            }
            None => Ok(()),
        }
    }

    /// A conflict with a header has a status of its own (RFC 9110).
    fn refused(self, problem: Problem) -> Problem {
        match self.is_by_header {
            true => problem.of_precondition("conflict"),
            false => problem,
        }
    }
}

/// The version that `If-Match` names; `None` without that header.
///
/// # Errors
/// 400 `invalid_header`: it is no tag that this has given. A weak one does not do for a change.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    let number = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .and_then(|number| number.parse().ok());
    number.map(Some).ok_or_else(|| {
        let detail = "If-Match: expected the ETag of a version, such as \"7\"";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_header", detail)
    })
}

/// Names the version of an answer, which is none for a file.
fn tag(response: &mut Response, version: u64) {
    if version > 0
        && let Ok(value) = HeaderValue::from_str(&format!("\"{version}\""))
    {
        response.headers_mut().insert(header::ETAG, value);
    }
}

/// What the keeper says to a question, with the document that follows it.
async fn ask(
    asking: &mut Asking,
    command: ConfigurationCommand,
    kind: Kind,
    payload: Bytes,
) -> Result<(ConfigurationPart, Bytes), Problem> {
    let frame = Frame::new(kind, Uuid::nil(), payload);
    let answer = asking.ask(Command::Configuration(command), frame).await?;
    let answer = ConfigurationAnswer::decode(&answer.payload).map_err(unreadable)?;
    match answer.part.is_failure() {
        true => Err(refusal(&answer.part.failure, &answer.part.detail)),
        false => Ok((answer.part, answer.data)),
    }
}

/// What the keeper refuses. A mistake names its key as payloads do.
fn refusal(failure: &ConfigurationFailure, detail: &str) -> Problem {
    let (status, help) = match failure {
        ConfigurationFailure::InvalidData => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "nothing is changed; docs/reference/configuration.md has every key",
        ),
        ConfigurationFailure::Conflict => (
            StatusCode::CONFLICT,
            "nothing is changed; GET /v1/configuration has the version in force",
        ),
        ConfigurationFailure::NotFound => (
            StatusCode::NOT_FOUND,
            "GET /v1/configuration lists the versions that are kept",
        ),
        ConfigurationFailure::Busy => {
            (StatusCode::SERVICE_UNAVAILABLE, "send it again in a moment")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "nothing is changed"),
    };
    Problem::new(status, failure.as_str(), detail).with_help(help)
}

/// A version as `GET /v1/status` shows it; null where none is in force.
pub(super) fn version_json(version: Option<&proto_frames::payload::ConfigurationVersion>) -> Value {
    version.map_or(Value::Null, |it| Value::from(to_json(it) as Map<_, _>))
}
