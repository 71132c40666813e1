//! Reads a payload: guard, first document, full YAML parser, and an error that knows key and line. Documents of the
//! plain style take the shorter way of [`plain`].
//!
//! How each value is read is in [`super::value`]; this file drives it. Whatever is read is charged to a budget that only
//! aliases can exceed: a few of them could otherwise make a small payload gigabytes of values.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use sched_model::cut::shorten;
use sched_model::value::{Field, Value};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, Visitor};

use super::error::{Fault, PayloadError};
use super::guard::{self, Limits};
use super::locate::{locate, position};
use super::node::{Entry, Node, Read, Seed, Stop, Style};
use super::plain;
use super::seen::MERGE;
use super::similar::similar;
use super::value::At;

/// Decodes the first document of a payload as one value.
pub(super) fn decode<T: Value>(payload: &[u8], limits: Limits) -> Result<T, PayloadError> {
    let document = guard::first_document(payload, limits)?;
    if let Some(value) = plain::read(document) {
        return Ok(value);
    }
    let reader = Reader::new(document);
    let mut value = None;
    run(document, &reader, &mut |node| {
        value = Some(T::read(At::new(node, &reader))?);
        Ok(())
    })?;
    value.ok_or_else(|| PayloadError::new("", Fault::Empty))
}

/// Decodes the value under the one key that wraps it (`start:` and the like).
pub(super) fn decode_under<T: Value>(
    key: &'static str,
    payload: &[u8],
    limits: Limits,
) -> Result<T, PayloadError> {
    decode_noting(key, payload, limits).map(|(value, _)| value)
}

/// The same, with the first key in [`STRICT`] that is unknown, as an error.
pub(super) fn decode_noting<T: Value>(
    key: &'static str,
    payload: &[u8],
    limits: Limits,
) -> Result<(T, Option<PayloadError>), PayloadError> {
    let document = guard::first_document(payload, limits)?;
    if let Some(value) = plain::read_under(key, document) {
        return Ok((value, None));
    }
    let reader = Reader::new(document);
    let mut value = None;
    run(document, &reader, &mut |node| {
        node.mapping(&reader, &mut |name, entry| {
            let is_it = name == key;
            if name == MERGE {
                return Err(reader.refuse_key(name, entry, Fault::MergeKey));
            }
            if is_it && value.is_some() {
                return Err(reader.refuse_key(name, entry, Fault::DuplicateKey));
            }
            if is_it {
                value = Some(reader.field(key, entry)?);
            }
            Ok(is_it)
        })
    })?;
    let value = value.ok_or_else(|| locate(document, PayloadError::missing(key)))?;
    let unknown = reader.state.into_inner().unknown;
    Ok((value, unknown.map(|error| locate(document, error))))
}

/// Has the document's value read; there must be one.
fn run(document: &[u8], reader: &Reader, read: &mut Read<'_>) -> Result<(), PayloadError> {
    let Some(first) = serde_yaml::Deserializer::from_slice(document).next() else {
        return Err(PayloadError::new("", Fault::Empty));
    };
    let mut is_null = true;
    let read = Seed(&mut |node: &mut dyn Node| {
        node.optional(&mut |node| {
            is_null = false;
            read(node)
        })
    })
    .deserialize(first);
    let read = read.map_err(|error| reader.explain(document, &error));
    match read {
        Ok(()) if is_null => Err(PayloadError::new("", Fault::Empty)),
        read => read,
    }
}

/// How much may be read from a document, in multiples of its length: one unit for each scalar, key and entry of a list, and
/// one for each byte of their texts. What stands there once takes at most 1.5 for each of its bytes (`[a,a]`; an escape of
/// two bytes may stand for three), aliases take more.
const BUDGET_PER_BYTE: usize = 2;

/// Where in the document the parser is, what a value found wrong there, and how much more may be read.
pub(super) struct Reader {
    state: RefCell<Position>,
}

/// The mapping of START in which every key is this project's: an unknown one, there or deeper, is a mistake.
const STRICT: [&str; 2] = ["start", "scheduling"];

struct Position {
    path: Vec<Step>,
    unknown: Option<PayloadError>,
    fault: Option<Fault>,
    budget: usize,
}

pub(super) enum Step {
    Key(String),
    Index(usize),
}

impl Reader {
    fn new(document: &[u8]) -> Self {
        let budget = BUDGET_PER_BYTE.saturating_mul(document.len());
        Self {
            state: RefCell::new(Position {
                path: Vec::new(),
                unknown: None,
                fault: None,
                budget,
            }),
        }
    }

    /// Takes so much from the budget.
    pub(super) fn charge(&self, amount: usize) -> Result<(), Stop> {
        let mut state = self.state.borrow_mut();
        let left = state.budget.checked_sub(amount);
        state.budget = left.unwrap_or(0);
        drop(state);
        left.map(|_| ())
            .ok_or_else(|| self.fail(Fault::AliasExpansion))
    }

    /// Notes a fault of the value being read and returns what stops the parser.
    pub(super) fn fail(&self, fault: Fault) -> Stop {
        self.state.borrow_mut().fault.get_or_insert(fault);
        Stop
    }

    /// Notes what the value being read should have been, unless something more precise is known already.
    pub(super) fn expected(&self, expected: &'static str) {
        let fault = Fault::WrongType {
            expected,
            found: String::new(),
        };
        self.state.borrow_mut().fault.get_or_insert(fault);
    }

    /// Takes note of a key that the mapping being read does not have, if it had to be one of these.
    pub(super) fn unknown(&self, key: &str, fields: &'static [Field]) {
        let mut state = self.state.borrow_mut();
        let is = |step: Option<&Step>, name| matches!(step, Some(Step::Key(key)) if key == name);
        let is_strict = (0..)
            .zip(STRICT)
            .all(|(at, name)| is(state.path.get(at), name));
        if !is_strict || state.unknown.is_some() {
            return;
        }
        let known: Vec<&str> = fields.iter().map(|field| field.key).collect();
        let fault = Fault::NoSuchKey {
            meant: similar(key, &known),
            known,
        };
        let key = format!("{}.{}", path_text(&state.path), shorten(key));
        state.unknown = Some(PayloadError::new(key, fault));
    }

    /// Reads the value of `key` in a mapping.
    pub(super) fn field<T: Value>(&self, key: &str, entry: &mut dyn Entry) -> Result<T, Stop> {
        let mut value = None;
        self.inside(Step::Key(key.to_owned()), || {
            entry.value(&mut |node| {
                value = Some(T::read(At::new(node, self))?);
                Ok(())
            })
        })?;
        value.ok_or(Stop)
    }

    /// Refuses the key that was read last, where its value stands.
    pub(super) fn refuse_key(&self, key: &str, entry: &mut dyn Entry, fault: Fault) -> Stop {
        let stop = self.fail(fault);
        self.state.borrow_mut().path.push(Step::Key(key.to_owned()));
        // The parser knows the place of an error within a value, whichever value it is.
        let refused =
            entry.value(&mut |node| node.scalar(self, "", Style::Any, &mut |_| Err(Stop)));
        refused.err().unwrap_or(stop)
    }

    /// The value being read is at fault for this reason, whatever was noted before.
    pub(super) fn is_instead(&self, fault: Fault) {
        self.state.borrow_mut().fault = Some(fault);
    }

    /// The path stays as it is where an error ends the reading: that is the path of the error.
    pub(super) fn inside<T, E>(
        &self,
        step: Step,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.state.borrow_mut().path.push(step);
        let value = read()?;
        self.state.borrow_mut().path.pop();
        Ok(value)
    }

    /// Turns the parser's error into ours.
    fn explain(&self, document: &[u8], error: &serde_yaml::Error) -> PayloadError {
        if let Some(broken) = syntax_error(document) {
            let fault = Fault::Syntax(without_position(&broken));
            return PayloadError {
                key: String::new(),
                position: position(&broken),
                fault,
            };
        }
        let state = self.state.borrow();
        let text = without_position(error);
        let fault = match state.fault.clone() {
            Some(Fault::WrongType { expected, found }) if found.is_empty() => match found_in(&text)
            {
                Some(found) => Fault::WrongType { expected, found },
                None => Fault::Syntax(text),
            },
            Some(fault) => fault,
            None => Fault::Syntax(text),
        };
        PayloadError {
            key: path_text(&state.path),
            position: position(error),
            fault,
        }
    }
}

/// The syntax error of a document, if it has one: reading values may stop for another reason before it gets there.
fn syntax_error(document: &[u8]) -> Option<serde_yaml::Error> {
    let first = serde_yaml::Deserializer::from_slice(document).next()?;
    first.deserialize_ignored_any(IgnoredAny).err()
}

/// The parser's words without its ` at line 1 column 2`, which stands in the error's own fields. What it says of where
/// the broken construct began stays.
fn without_position(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        None => text,
        Some((what, place)) => {
            let rest = place.find(',').map_or("", |comma| &place[comma..]);
            format!("{what}{rest}")
        }
    }
}

/// What serde's message for a value of the wrong type says is there.
fn found_in(message: &str) -> Option<String> {
    let rest = message.split_once("invalid type: ")?.1;
    let found = rest
        .split_once(", expected ")
        .map_or(rest, |(found, _)| found);
    Some(match found {
        "map" => "a mapping".to_owned(),
        "sequence" => "a list".to_owned(),
        other => match other
            .strip_prefix("string \"")
            .and_then(|text| text.strip_suffix('"'))
        {
            Some(text) => format!("`{}`", shorten(text)),
            None => shorten(other),
        },
    })
}

fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) => {
                let dot = if text.is_empty() { "" } else { "." };
                let _ = write!(text, "{dot}{}", shorten(key));
            }
            Step::Index(index) => {
                let _ = write!(text, "[{index}]");
            }
        }
    }
    text
}

/// A mapping key, as written.
pub(super) struct KeyText;

impl<'de> DeserializeSeed<'de> for KeyText {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<String, D::Error> {
        de.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}
