//! What goes wrong, as problem documents (RFC 9457): the reason in the core's word, the field at fault, what helps.
//!
//! ```json
//! {"type": "urn:ciao:problem:invalid_data", "title": "invalid data", "status": 422, "reason": "invalid_data",
//!  "detail": "negative: -1", "field": "start.requirements.mem_mb"}
//! ```
//!
//! Reasons are those of StartFailure, CommandRefused and CommandFailure, so that a client by HTTP and one by SSNTP find
//! the same word; the status is chosen here from the reason, in one `match` for each kind of failure. A failure that
//! SSNTP has a message for has that message's keys in the document as well.

use std::fmt::Display;

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use proto_frames::payload::Reloaded;
use proto_frames::payload::cut::{cut, shorten};
use proto_frames::payload::{
    CommandFailure, CommandFailureReason, DeleteFailure, DeleteFailureReason, PayloadError,
    PayloadErrorKind, RefusalReason, StartFailure, StartFailureReason,
};
use sched_model::value::Record;
use serde_json::{Map, Value};

use super::json::to_json;
use crate::printable::{self, Printable};
use crate::server::wire;
use sched_core::{Fault, Malformed, Refused};

/// What stands before a reason in the `type` of a document. A URN, because there is no page to which a URL would lead.
const TYPE: &str = "urn:ciao:problem:";

/// Bytes of a detail, before what is not shown is escaped: texts of peers have at most [`MAX_TEXT_LEN`], and some
/// sentences list all keys that there are.
///
/// [`MAX_TEXT_LEN`]: sched_core::MAX_TEXT_LEN
const MAX_DETAIL: usize = 4096;

/// The same of the path of a field: longer than that of any key that is known, and its keys may be the sender's.
const MAX_FIELD: usize = 256;

/// Why a request has no better answer. Boxed, so that an [`Answer`](super::call::Answer) is not large for the sake of
/// its rare case.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Problem(Box<What>);

/// What a problem document says.
#[derive(Debug, Clone, PartialEq)]
struct What {
    status: StatusCode,
    /// A word for programs, such as `full_cloud`. Part of the API.
    reason: String,
    /// What is wrong this time, for people. May change between versions.
    detail: String,
    /// The path of the body's field, or the name of the parameter, that is at fault.
    field: Option<String>,
    /// What the sender can do about it.
    help: Option<String>,
    /// The keys of the message that SSNTP has for the failure: `reasons`, `never`, `attempts` and so on. The members
    /// that RFC 9457 and this file give a meaning replace those of the same name.
    more: Map<String, Value>,
}

impl Problem {
    /// A problem with this reason, without field and help.
    pub(super) fn new(status: StatusCode, reason: &str, detail: impl Display) -> Self {
        Self(Box::new(What {
            status,
            reason: reason.to_owned(),
            detail: shown(&detail.to_string(), MAX_DETAIL),
            field: None,
            help: None,
            more: Map::new(),
        }))
    }

    /// 400: a request that could not be read as what it should be, such as text where a number belongs. `field` may be
    /// empty.
    pub(super) fn invalid_payload(field: &str, detail: impl Display) -> Self {
        let problem = Self::new(StatusCode::BAD_REQUEST, "invalid_payload", detail);
        problem.at(field)
    }

    /// 422: the shape is right and a value is missing or absurd. `field` may be empty.
    pub(super) fn invalid_data(field: &str, detail: impl Display) -> Self {
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_data", detail);
        problem.at(field)
    }

    /// 400: a parameter of the query string that cannot be used.
    pub(super) fn parameter(name: &str, detail: impl Display) -> Self {
        let problem = Self::new(StatusCode::BAD_REQUEST, "invalid_parameter", detail);
        problem
            .at(name)
            .with_help("GET /v1/openapi.json has every parameter")
    }

    /// 404, with a reason that says what there is none of.
    pub(super) fn not_found(reason: &str, detail: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason, detail)
    }

    /// 404: there is nothing at this path.
    pub(super) fn no_such_path(path: &str) -> Self {
        let detail = format!("there is nothing at {}", shorten(path));
        Self::not_found("no_such_path", detail).with_help("GET /v1/openapi.json has every path")
    }

    /// 405: what is at this path does not take this method.
    pub(super) fn not_taken(method: &Method, path: &str) -> Self {
        let (method, path) = (shorten(method.as_str()), shorten(path));
        let detail = format!("{path} does not take {method}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
            .with_help("GET /v1/openapi.json has every path and its methods")
    }

    /// 503: the scheduler is about to leave, and takes no more commands.
    pub(super) fn leaving() -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "leaving", "the scheduler is shutting down")
            .with_help("send it again to the scheduler that takes its place")
    }

    /// 503: as much is under way as may be. Trying again helps.
    pub(super) fn busy(detail: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_many", detail)
            .with_help("send it again in a moment")
    }

    /// Names the field at fault; an empty text names none.
    #[must_use]
    pub(super) fn at(mut self, field: &str) -> Self {
        self.0.field = (!field.is_empty()).then(|| shown(field, MAX_FIELD));
        self
    }

    /// Says what helps.
    #[must_use]
    pub(super) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// With this text for people, if it has this reason.
    #[must_use]
    pub(super) fn worded(mut self, reason: &str, detail: impl Display) -> Self {
        if self.0.reason == reason {
            self.0.detail = shown(&detail.to_string(), MAX_DETAIL);
        }
        self
    }

    /// As 412, if it has this reason: what a header of the request says has to hold does not.
    #[must_use]
    pub(super) fn of_precondition(mut self, reason: &str) -> Self {
        if self.0.reason == reason {
            self.0.status = StatusCode::PRECONDITION_FAILED;
        }
        self
    }

    /// Adds what there was to warn of in what the request sent, which may be why this came of it.
    #[must_use]
    pub(super) fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.0.more.insert("warnings".to_owned(), warnings.into());
        self
    }

    /// Adds the keys of a message.
    fn with(mut self, record: &impl Record) -> Self {
        self.0.more = to_json(record);
        self
    }

    /// What it is, for people, where no document can be written: in the middle of an answer.
    pub(super) fn text(&self) -> String {
        format!("{} ({})", self.0.detail, self.0.reason)
    }

    /// The field at fault, where there is one.
    #[cfg(test)]
    pub(super) fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// The document. Members of RFC 9457 and of this file are put in last, so that no key of a message replaces them.
    pub(super) fn document(&self) -> Value {
        let mut document = self.0.more.clone();
        let mut put = |key: &str, value: Value| document.insert(key.to_owned(), value);
        put("type", format!("{TYPE}{}", self.0.reason).into());
        put("title", title(&self.0.reason, self.0.status).into());
        put("status", self.0.status.as_u16().into());
        put("detail", self.0.detail.clone().into());
        put("reason", self.0.reason.clone().into());
        if let Some(field) = &self.0.field {
            put("field", field.clone().into());
        }
        if let Some(help) = &self.0.help {
            put("help", help.clone().into());
        }
        Value::Object(document)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(printable::json(self.document().to_string())));
        *response.status_mut() = self.0.status;
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// A text that may have parts of others', fit to be printed by any program: on one line, with what is not shown
/// escaped, and not longer than a limit.
fn shown(text: &str, max_len: usize) -> String {
    Printable::new(cut(text, max_len)).to_string()
}

/// A reason in a few words, the same for every problem of its kind, as RFC 9457 asks for. Without a reason that of the
/// status.
fn title(reason: &str, status: StatusCode) -> String {
    match reason {
        "" => status.canonical_reason().unwrap_or("problem").to_owned(),
        reason => reason.replace('_', " "),
    }
}

/// A START that cannot be read: field and sentence come from the reader of payloads.
impl From<PayloadError> for Problem {
    fn from(error: PayloadError) -> Self {
        let detail = error.fault.to_string();
        match error.kind() {
            PayloadErrorKind::InvalidPayload => Self::invalid_payload(&error.key, detail),
            PayloadErrorKind::InvalidData => Self::invalid_data(&error.key, detail),
        }
    }
}

/// A command that could not be made an input of the core. The field is found in the sentence, because `Malformed` has
/// it there alone.
impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Self {
        let text = malformed.detail.to_string();
        // The reader of payloads writes `key: what is wrong` or `key, line 1 column 2: what is wrong`.
        let (place, detail) = text.split_once(": ").unwrap_or(("", &text));
        let key = place.split(", ").next().unwrap_or_default();
        // No key of a payload has a space in it; what has one is the beginning of a sentence.
        let is_key = !key.is_empty() && !key.contains(' ');
        let (field, detail) = if is_key { (key, detail) } else { ("", &*text) };
        match malformed.fault {
            Fault::TooLong => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_long", detail),
            Fault::Payload => Self::invalid_payload(field, detail),
            Fault::Data => Self::invalid_data(field, detail),
        }
    }
}

/// A command that the core refused at once.
impl From<&Refused> for Problem {
    fn from(refused: &Refused) -> Self {
        let told = wire::refused(refused);
        // 429 where the sender has as much under way as it may, 503 where the disk takes no writes, 409 for what is not
        // done here.
        let status = match told.reason {
            RefusalReason::NotPermitted => StatusCode::FORBIDDEN,
            RefusalReason::NoSuchNode => StatusCode::NOT_FOUND,
            RefusalReason::TooMany => StatusCode::TOO_MANY_REQUESTS,
            RefusalReason::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            RefusalReason::NotRecorded => StatusCode::SERVICE_UNAVAILABLE,
            RefusalReason::NotMaster | RefusalReason::Unsupported => StatusCode::CONFLICT,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, told.reason.as_str(), told.detail)
    }
}

/// A START that failed, at once or later. 503 where the cluster has no room now, 502 where the node could not, 409
/// where the instance is there already. `help` is chosen by the reason, and first of all by `never`: waiting does not
/// help then.
impl From<&StartFailure> for Problem {
    fn from(failure: &StartFailure) -> Self {
        use StartFailureReason as Reason;
        let status = match failure.reason {
            Reason::InvalidPayload => StatusCode::BAD_REQUEST,
            Reason::InvalidData => StatusCode::UNPROCESSABLE_ENTITY,
            Reason::AlreadyRunning | Reason::InstanceExists | Reason::DependencyFailed => {
                StatusCode::CONFLICT
            }
            Reason::ImageFailure | Reason::LaunchFailure | Reason::NetworkFailure => {
                StatusCode::BAD_GATEWAY
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let detail = failure.detail.clone().unwrap_or_default();
        // The message's keys go into the document as well, for both ways out of the match below.
        let problem = Self::new(status, failure.reason.as_str(), detail);
        let help = match failure.reason {
            _ if failure.never => "no node is large enough: ask for less, or add such a node",
            Reason::FullCloud | Reason::FullComputeNode => {
                "let it wait for room with scheduling.queue; POST /v1/explain says what is missing"
            }
            Reason::NoComputeNodes | Reason::NoNetworkNodes => "connect a launcher",
            Reason::QueueTimeout => "let it wait longer, or make room",
            Reason::DependencyFailed => {
                "start what it comes after again, or say in scheduling.after how that may end"
            }
            _ => return problem.with(failure),
        };
        problem.with_help(help).with(failure)
    }
}

/// A DELETE that failed. The message has no sentence, so one is made here.
impl From<&Reloaded> for Problem {
    /// Files cannot be used: 422, with the file and the line of the mistake.
    fn from(news: &Reloaded) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let problem = Self::new(status, "reload_refused", &news.reason);
        let help = "mend that and ask again; until then all is as it was before";
        problem.with_help(help).with(news)
    }
}

impl From<&DeleteFailure> for Problem {
    fn from(failure: &DeleteFailure) -> Self {
        let status = match failure.reason {
            DeleteFailureReason::NoInstance => StatusCode::NOT_FOUND,
            DeleteFailureReason::InvalidPayload => StatusCode::BAD_REQUEST,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let detail = format!(
            "no instance '{}' is there to be deleted",
            shorten(&failure.instance_uuid)
        );
        Self::new(status, failure.reason.as_str(), detail).with(failure)
    }
}

/// A command that was taken in and failed later. 504 where the node did not answer in time, 502 where it could not, 409
/// where the state of the instance or the cluster does not allow it.
impl From<&CommandFailure> for Problem {
    fn from(failure: &CommandFailure) -> Self {
        let status = match failure.reason {
            CommandFailureReason::NoInstance => StatusCode::NOT_FOUND,
            CommandFailureReason::InvalidData => StatusCode::UNPROCESSABLE_ENTITY,
            CommandFailureReason::Timeout => StatusCode::GATEWAY_TIMEOUT,
            CommandFailureReason::Failed => StatusCode::BAD_GATEWAY,
            _ => StatusCode::CONFLICT,
        };
        let problem = Self::new(status, failure.reason.as_str(), &failure.detail);
        problem.with(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Malformed, Problem};

    #[test]
    fn a_problem_names_the_field_that_the_edge_names() {
        for (text, field, detail) in [
            (
                "start.requirements.mem_mb, line 3 column 9: negative: -1",
                Some("start.requirements.mem_mb"),
                "negative: -1",
            ),
            (
                "query.limit: 0 is outside 1 to 1000",
                Some("query.limit"),
                "0 is outside 1 to 1000",
            ),
            ("two words: and more", None, "two words: and more"),
        ] {
            let problem = Problem::from(Malformed::new(Fault::Data, None, text.into()));
            assert_eq!((problem.field(), &*problem.0.detail), (field, detail));
        }
    }

    #[test]
    fn a_document_has_what_the_rfc_asks_for() {
        let problem = Problem::invalid_data("start.requirements.vcpus", "negative: -1");
        let document = problem.document();
        assert_eq!(document["type"], "urn:ciao:problem:invalid_data");
        assert_eq!(document["status"], 422);
        assert_eq!(document["field"], "start.requirements.vcpus");
        assert_eq!(document["title"], "invalid data");
    }
}
