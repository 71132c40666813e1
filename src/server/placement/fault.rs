//! What is wrong with a request, in the form that OpenStack's clients read.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::version::Version;

/// Why a request is not answered as asked.
#[derive(Debug)]
pub(super) struct Fault {
    status: StatusCode,
    detail: String,
    code: &'static str,
}

/// The code of what has none of its own.
const UNDEFINED: &str = "placement.undefined_code";

/// The version from which on faults have codes.
const CODES: Version = Version(23);

impl Fault {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            code: UNDEFINED,
        }
    }

    /// What is asked for is not understood.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self {
            code: "placement.query.bad_value",
            ..Self::new(StatusCode::BAD_REQUEST, detail)
        }
    }

    /// There is no such thing.
    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// There is nothing at this path, in this version at least.
    pub(super) fn no_path() -> Self {
        Self::not_found("The resource could not be found.")
    }

    /// A version that is not offered.
    pub(super) fn version(text: &str) -> Self {
        let detail = format!("Unacceptable version header: {text}");
        Self::new(StatusCode::NOT_ACCEPTABLE, detail)
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The answer's body.
    pub(super) fn document(&self, version: Version, request_id: &str) -> Value {
        let mut error = json!({
            "status": self.status.as_u16(),
            "title": self.status.canonical_reason().unwrap_or_default(),
            "detail": self.detail,
            "request_id": request_id,
        });
        if version >= CODES {
            error["code"] = self.code.into();
        }
        if self.status == StatusCode::NOT_ACCEPTABLE {
            error["max_version"] = Version::MAX.to_string().into();
            error["min_version"] = Version::MIN.to_string().into();
        }
        json!({ "errors": [error] })
    }
}
