//! What is wrong with a request, in the form that OpenStack's clients read:
//!
//! ```json
//! {"errors": [{"status": 404, "title": "Not Found", "detail": "The resource could not be found.",
//!              "request_id": "req-…", "code": "placement.undefined_code"}]}
//! ```
//!
//! Not a problem document as the HTTP API has (`http/problem.rs`).

use std::borrow::Cow;

use axum::http::{Method, StatusCode};
use proto_frames::payload::cut::cut;
use serde_json::{Value, json};

use super::limits::{MAX_DETAIL, MAX_NAME_LEN};
use super::version::Version;
use crate::printable::Printable;

/// Why a request is not answered as asked. [`Fault::document`] makes the body of it once the version and the request's
/// id are known.
#[derive(Debug)]
pub(super) struct Fault {
    status: StatusCode,
    detail: Printable,
    /// A word for programs; shown from [`CODES`] on.
    code: &'static str,
    /// Whether the document says which versions are offered.
    offers_versions: bool,
    /// The methods that the path has, where another was used.
    allow: Option<&'static str>,
}

/// The code of what has none of its own.
const UNDEFINED: &str = "placement.undefined_code";

/// The version from which on faults have codes: 1.23.
const CODES: Version = Version(23);

/// What a client has sent, as a detail repeats it: no longer than a name may be, so that the sentence around it stays.
pub(super) fn repeated(text: &str) -> Cow<'_, str> {
    cut(text, MAX_NAME_LEN)
}

impl Fault {
    /// A fault without a code of its own. What is not shown of the detail is escaped.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: Printable::new(cut(&detail.into(), MAX_DETAIL)),
            code: UNDEFINED,
            offers_versions: false,
            allow: None,
        }
    }

    /// 400: what is asked for is not understood.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self {
            code: "placement.query.bad_value",
            ..Self::new(StatusCode::BAD_REQUEST, detail)
        }
    }

    /// 400: a parameter that must be there is not.
    pub(super) fn missing(detail: impl Into<String>) -> Self {
        Self {
            code: "placement.query.missing_value",
            ..Self::new(StatusCode::BAD_REQUEST, detail)
        }
    }

    /// 400: a parameter is there twice that may be there once.
    pub(super) fn duplicate(name: &str) -> Self {
        let name = repeated(name);
        let detail = format!("Query parameter '{name}' may be specified only once.");
        Self {
            code: "placement.query.duplicate_key",
            ..Self::new(StatusCode::BAD_REQUEST, detail)
        }
    }

    /// 404: there is no such thing.
    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// 404: there is nothing at this path, in this version at least.
    pub(super) fn no_path() -> Self {
        Self::not_found("The resource could not be found.")
    }

    /// 405: the path is Placement's, and does not have this method here.
    pub(super) fn method(used: &Method, allowed: &'static str) -> Self {
        let used = repeated(used.as_str());
        let detail = format!(
            "The method {used} is not allowed for this resource. This is the scheduler's own picture, which can only be \
             read; instances are started and stopped by ciaoctl or the HTTP API"
        );
        Self {
            allow: Some(allowed),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        }
    }

    /// 406: a version that is not offered. The document says which are.
    pub(super) fn version(text: &str) -> Self {
        let detail = format!("Unacceptable version header: {}", repeated(text));
        Self {
            offers_versions: true,
            ..Self::new(StatusCode::NOT_ACCEPTABLE, detail)
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The answer's `Allow`, of a method that the path does not have.
    pub(super) fn allow(&self) -> Option<&'static str> {
        self.allow
    }

    /// The answer's body, in the form of a version.
    pub(super) fn document(&self, version: Version, request_id: &str) -> Value {
        let mut error = json!({
            "status": self.status.as_u16(),
            "title": self.status.canonical_reason().unwrap_or_default(),
            "detail": *self.detail,
            "request_id": request_id,
        });
        if version >= CODES {
            error["code"] = self.code.into();
        }
        if self.offers_versions {
            error["max_version"] = Version::MAX.to_string().into();
            error["min_version"] = Version::MIN.to_string().into();
        }
        json!({ "errors": [error] })
    }
}
