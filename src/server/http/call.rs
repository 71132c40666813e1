//! One request: what it asks for, read and checked, and how its answer is made.
//!
//! [`serve`](super::serve) makes a [`Call`] of each request; handlers take it by value and return an [`Answer`].
//! Parameters are checked against the route's table before the handler runs, so that handlers read them without an
//! error case.
//!
//! An answer about the cluster is a JSON object with a `sequence`, which the header `ciao-sequence` repeats:
//!
//! ```text
//! GET /v1/nodes?selector=zone%20=%20a&fields=node_uuid,status&limit=2
//!
//! {"items": [{"node_uuid": "…", "status": "READY"}, …], "next": "…", "sequence": "1f2e3d4c-17"}
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use proto_frames::payload::cut::shorten;
use proto_frames::payload::{Expression, PhaseName, PlacementState};
use sched_model::expression::Word;
use sched_model::value::{Field, Record};
use serde_json::{Map, Value};

use super::json::{Unambiguous, from_json};
use super::limits::{MAX_SELECTORS, MAX_WAIT};
use super::problem::Problem;
use super::ring::EventId;
use super::routes::{Kind, Param};
use super::serve::{App, Connection};
use super::unread::Unread;
use crate::printable;

/// One request whose sender may make it, and whose parameters and body length are checked.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) app: Arc<App>,
    pub(super) connection: Arc<Connection>,
    /// What stands for `{id}` in its path, percent-decoded and otherwise unchecked; empty where the path has none. A
    /// handler looks it up and answers 404 where it is nothing.
    pub(super) id: String,
    /// The query string.
    pub(super) query: Parameters,
    /// For `Content-Type` and `Last-Event-ID`; roles and origin are checked already.
    pub(super) headers: HeaderMap,
    /// The whole body, empty where the request has none. Its format is not checked yet.
    pub(super) body: Bytes,
    /// The body of an image that is uploaded, of which nothing is read yet; empty for all other routes.
    pub(super) unread: Unread,
}

/// The query string's parameters by name. Each value passed [`check`]; only `selector` may have several.
#[derive(Debug, Default)]
pub(super) struct Parameters(BTreeMap<&'static str, Vec<String>>);

/// A request's answer, or the problem document it gets instead.
pub(super) type Answer = Result<Response, Problem>;

impl Parameters {
    /// Reads a query string by the parameters that the route declares. Unknown parameters are refused rather than
    /// ignored, so that a misspelt `selector` does not list everything.
    ///
    /// # Errors
    /// 400 `invalid_parameter` with the parameter's name: not declared, given twice, more than [`MAX_SELECTORS`]
    /// selectors, or a value that its kind does not take.
    pub(super) fn read(text: &str, known: &'static [Param]) -> Result<Self, Problem> {
        let mut all: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        let pairs: Vec<(String, String)> =
            serde_urlencoded(text).map_err(|error| Problem::parameter("", error))?;
        for (name, value) in pairs {
            let Some(param) = known.iter().find(|param| param.name == name) else {
                let names: Vec<&str> = known.iter().map(|param| param.name).collect();
                let detail = match names[..] {
                    [] => "this takes no parameters".to_owned(),
                    _ => format!("no such parameter; expected one of {}", names.join(", ")),
                };
                return Err(Problem::parameter(&name, detail));
            };
            check(param, &value)?;
            let values = all.entry(param.name).or_default();
            if param.kind != Kind::Selector && !values.is_empty() {
                return Err(Problem::parameter(param.name, "given twice"));
            }
            if values.len() >= MAX_SELECTORS {
                let detail = format!("at most {MAX_SELECTORS} are taken");
                return Err(Problem::parameter(param.name, detail));
            }
            values.push(value);
        }
        Ok(Self(all))
    }

    /// The value of a parameter, percent-decoded; of several the first. `None` where it was not given.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.first().map(String::as_str)
    }

    /// Whether a parameter is `true`, or is there without a value (`?follow`).
    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), Some("true" | ""))
    }

    /// The value of a [`Kind::Number`]. It was checked against the bounds that the route declares.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    /// The value of a [`Kind::Offset`], in bytes.
    pub(super) fn offset(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The words of a list that is separated by commas, without empty ones; `None` where the parameter was not given,
    /// which for `fields` is not the same as an empty list.
    pub(super) fn words(&self, name: &str) -> Option<impl Iterator<Item = &str>> {
        let words = self.text(name)?.split(',').map(str::trim);
        Some(words.filter(|word| !word.is_empty()))
    }

    /// How long to wait for an outcome, at most [`MAX_WAIT`]; zero where that was not asked for.
    pub(super) fn wait(&self) -> Duration {
        let wait = self.text("wait").map(humantime::parse_duration);
        wait.and_then(Result::ok).unwrap_or_default()
    }

    /// The expressions that every row has to meet; none where none was given. See [`meets`]. `known` are the fields of
    /// the row's type, which the route's table does not check.
    ///
    /// # Errors
    /// 400 `invalid_parameter`: one is about what no such row has, or compares a state with a word that is none. It
    /// would select nothing, or all, and that is not what was meant. Rows with labels may have any key.
    pub(super) fn selectors(&self, known: &[Field]) -> Result<Vec<Expression>, Problem> {
        let texts = self.0.get("selector").into_iter().flatten();
        let selectors: Vec<Expression> = texts.filter_map(|text| text.parse().ok()).collect();
        let has = |key: &str| known.iter().any(|field| field.key == key);
        for selector in &selectors {
            let key = selector.key();
            if has("labels") {
                continue;
            }
            if !has(key) {
                let key = shorten(key);
                let known: Vec<&str> = known.iter().map(|field| field.key).collect();
                let detail = format!("no field '{key}'; there are {}", known.join(", "));
                return Err(Problem::parameter("selector", detail));
            }
            let states = match key {
                "state" => PlacementState::KNOWN,
                "life" => PhaseName::KNOWN,
                _ => continue,
            };
            let mut words = selector.test().words().iter().map(Word::text);
            if let Some(word) = words.find(|word| !states.contains(word)) {
                let word = shorten(word);
                let detail = format!("'{word}' is no {key}; there are {}", states.join(", "));
                return Err(Problem::parameter("selector", detail));
            }
        }
        Ok(selectors)
    }

    /// The fields of a row that are wanted; `None` is all of them. `known` are the fields of the row's type, which the
    /// route's table does not check, because `fields` is the same parameter for all rows.
    ///
    /// # Errors
    /// 400 `invalid_parameter`: the list is empty, or has a field that rows do not have.
    pub(super) fn fields(&self, known: &[Field]) -> Result<Option<Vec<&str>>, Problem> {
        let Some(words) = self.words("fields") else {
            return Ok(None);
        };
        let words: Vec<&str> = words.collect();
        if words.is_empty() {
            let detail = "names no field; leave it out for all fields".to_owned();
            return Err(Problem::parameter("fields", detail));
        }
        for word in &words {
            if !known.iter().any(|field| field.key == *word) {
                let word = shorten(word);
                let known: Vec<&str> = known.iter().map(|field| field.key).collect();
                let detail = format!("no field '{word}'; there are {}", known.join(", "));
                return Err(Problem::parameter("fields", detail));
            }
        }
        Ok(Some(words))
    }
}

/// Splits a query string into decoded pairs. `form_urlencoded` replaces bytes that are not UTF-8 by U+FFFD; a text with
/// that character is refused, because it may be read as an id that the client did not write.
fn serde_urlencoded(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    let pairs = form_urlencoded::parse(text.as_bytes());
    let pairs: Vec<(String, String)> = pairs.into_owned().collect();
    let is_broken = |text: &String| text.contains('\u{fffd}');
    match pairs
        .iter()
        .any(|(name, value)| is_broken(name) || is_broken(value))
    {
        true => Err("the query string is not UTF-8"),
        false => Ok(pairs),
    }
}

/// Refuses a value that a parameter does not take, with what it takes. The accessors of [`Parameters`] parse the same
/// text with the same functions, and rely on it having passed here.
fn check(param: &Param, value: &str) -> Result<(), Problem> {
    let bad = |detail: String| Err(Problem::parameter(param.name, detail));
    let shown = || shorten(value);
    match param.kind {
        Kind::Text => Ok(()),
        Kind::Flag => match value {
            "true" | "false" | "" => Ok(()),
            _ => bad(format!("expected true or false, found '{}'", shown())),
        },
        Kind::Number { min, max } => match value.parse::<u32>() {
            Ok(number) if (min..=max).contains(&number) => Ok(()),
            _ => bad(format!(
                "expected a whole number from {min} to {max}, found '{}'",
                shown()
            )),
        },
        Kind::Offset => match value.parse::<u64>() {
            Ok(_) => Ok(()),
            Err(_) => bad(format!("expected a number of bytes, found '{}'", shown())),
        },
        Kind::Wait => match humantime::parse_duration(value) {
            Ok(wait) if wait <= MAX_WAIT => Ok(()),
            Ok(_) => bad(format!("longer than {MAX_WAIT:?}")),
            Err(error) => bad(format!("expected a time such as 30s: {error}")),
        },
        Kind::OneOf(words) if words.contains(&value) => Ok(()),
        Kind::OneOf(words) => bad(format!(
            "expected one of {}, found '{}'",
            words.join(", "),
            shown()
        )),
        Kind::Selector => match value.parse::<Expression>() {
            Ok(_) => Ok(()),
            Err(error) => bad(error.to_string()),
        },
        Kind::Words(known) => {
            let mut words = value
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty());
            match words.find(|word| !known.is_empty() && !known.contains(word)) {
                Some(word) => bad(format!(
                    "'{}' is none of {}",
                    shorten(word),
                    known.join(", ")
                )),
                None => Ok(()),
            }
        }
    }
}

impl Call {
    /// The body as a record, for commands whose keys are all optional; the default where there is no body. `name` is
    /// what paths in errors begin with, such as `migrate` of `migrate.deadline`.
    ///
    /// # Errors
    /// 400 `invalid_payload`: no JSON, or a value of the wrong type. 422 `invalid_data`: an unknown key, or a value
    /// that its key does not take.
    pub(super) fn record<T: Record>(&self, name: &str) -> Result<T, Problem> {
        if self.body.is_empty() {
            return Ok(T::default());
        }
        from_json(name, &self.json()?)
    }

    /// The body as JSON, whatever its media type says.
    ///
    /// # Errors
    /// 400 `invalid_payload` with line and column; also where a key stands twice.
    pub(super) fn json(&self) -> Result<Value, Problem> {
        serde_json::from_slice(&self.body)
            .map(|Unambiguous(value)| value)
            .map_err(|error| Problem::invalid_payload("", format!("not valid JSON: {error}")))
    }

    /// The media type of the body in lower case, without parameters such as `charset`; empty where it is not said or is
    /// not ASCII.
    pub(super) fn media_type(&self) -> String {
        let value = self.headers.get(header::CONTENT_TYPE);
        let text = value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let plain = text.split(';').next().unwrap_or_default().trim();
        plain.to_ascii_lowercase()
    }
}

/// An answer with this content. `at` goes into it as `sequence` and into the header `ciao-sequence`: a client that
/// follows `/v1/events?from=` that id misses nothing that the content does not show. For that, `at` must have been read
/// under the core's lock together with the content, or before it.
pub(super) fn answer(status: StatusCode, at: EventId, mut content: Map<String, Value>) -> Response {
    content.insert("sequence".to_owned(), at.to_string().into());
    let mut response = json_response(status, &Value::Object(content));
    if let Ok(value) = HeaderValue::from_str(&at.to_string()) {
        response.headers_mut().insert("ciao-sequence", value);
    }
    response
}

/// As [`answer`], with one value under `key`.
pub(super) fn answer_with(status: StatusCode, at: EventId, key: &str, value: Value) -> Response {
    let mut content = Map::new();
    content.insert(key.to_owned(), value);
    answer(status, at, content)
}

/// A JSON answer without a `sequence`: for what is not about the events' order, such as probes.
pub(super) fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(printable::json(value.to_string())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// An answer that goes on while it is read. Proxies are told not to keep parts of it back: nginx does by default, and
/// nothing of a stream comes through it then.
pub(super) fn stream_response(kind: &'static str, body: Body) -> Response {
    let mut response = text_response(StatusCode::OK, kind, body);
    let no = HeaderValue::from_static("no");
    response.headers_mut().insert("x-accel-buffering", no);
    response
}

/// An answer with this body and media type. The body may be a stream.
pub(super) fn text_response(
    status: StatusCode,
    kind: &'static str,
    text: impl Into<Body>,
) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Whether a row meets all expressions. A key names a label of the row if it has such a label, else a field. A label or
/// field with several values meets a positive test if one value does; a negative test (`!=`, `not exists`, …) is met
/// unless the positive one is, so that a row without the key meets it. Numbers and truth values are compared as JSON
/// writes them.
///
/// Runs on rows that are JSON already, outside the core's lock.
pub(super) fn meets(row: &Map<String, Value>, selectors: &[Expression]) -> bool {
    selectors.iter().all(|selector| {
        let test = selector.test();
        let labels = row
            .get("labels")
            .and_then(|labels| labels.get(selector.key()));
        let found = labels.or_else(|| row.get(selector.key()));
        let holds = |value: &Value| match value {
            Value::String(text) => test.holds_for(text),
            Value::Null => false,
            plain => test.holds_for(&plain.to_string()),
        };
        let any = match found {
            Some(Value::Array(values)) => values.iter().any(holds),
            Some(value) => holds(value),
            None => false,
        };
        any != test.is_negative()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row() -> Map<String, Value> {
        let row = json!({"status": "READY", "vcpus_free": 4, "labels": {"zone": ["a", "b"]}});
        row.as_object().unwrap().clone()
    }

    #[test]
    fn a_selector_is_about_labels_and_then_about_fields() {
        for (text, expected) in [
            ("zone = a", true),
            ("zone != a", false),
            ("zone = c", false),
            ("status = READY", true),
            ("vcpus_free >= 4", true),
            ("vcpus_free > 4", false),
            ("rack not exists", true),
            ("rack exists", false),
            ("rack != r7", true),
        ] {
            let selector: Expression = text.parse().unwrap();
            assert_eq!(meets(&row(), &[selector]), expected, "{text}");
        }
        assert!(meets(&row(), &[]));
    }
}
