//! Reads a payload: guard, first document, full YAML parser, and an error that knows key and line. Documents of the
//! plain style take the shorter way of [`plain`].
//!
//! How each value is read is in [`super::value`]; this file drives it. Whatever is read is charged to a budget that only
//! aliases can exceed: a few of them could otherwise make a small payload gigabytes of values.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;

use sched_model::cut::shorten;
use sched_model::value::{Field, Value};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::error::{Fault, PayloadError};
use super::guard::{self, Limits};
use super::locate::{locate, position};
use super::plain;
use super::similar::similar;
use super::value::At;

/// Decodes the first document of a payload as one value.
pub(super) fn decode<T: Value>(payload: &[u8], limits: Limits) -> Result<T, PayloadError> {
    let document = guard::first_document(payload, limits)?;
    if let Some(value) = plain::read(document) {
        return Ok(value);
    }
    let reader = Reader::new(document);
    run(
        document,
        &reader,
        Top {
            reader: &reader,
            inner: Seed::new(&reader),
        },
    )
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
    let inner = Under {
        key,
        reader: &reader,
        value: PhantomData,
    };
    let read = run(
        document,
        &reader,
        Top {
            reader: &reader,
            inner,
        },
    )?;
    let value = read.ok_or_else(|| locate(document, PayloadError::missing(key)))?;
    let unknown = reader.state.into_inner().unknown;
    Ok((value, unknown.map(|error| locate(document, error))))
}

fn run<'de, S: DeserializeSeed<'de>>(
    document: &'de [u8],
    reader: &Reader,
    seed: S,
) -> Result<S::Value, PayloadError> {
    match serde_yaml::Deserializer::from_slice(document).next() {
        None => Err(PayloadError::new("", Fault::Empty)),
        Some(first) => seed
            .deserialize(first)
            .map_err(|error| reader.explain(document, &error)),
    }
}

/// How much may be read from a document, in multiples of its length: one unit for each value and each byte of text.
/// What stands there once takes less than two (an escape of two bytes may stand for three), aliases take more.
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

enum Step {
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
    pub(super) fn charge<E: de::Error>(&self, amount: usize) -> Result<(), E> {
        let mut state = self.state.borrow_mut();
        let left = state.budget.checked_sub(amount);
        state.budget = left.unwrap_or(0);
        drop(state);
        left.map(|_| ())
            .ok_or_else(|| self.fail(Fault::AliasExpansion))
    }

    /// Notes a fault of the value being read and returns the error that stops the parser.
    pub(super) fn fail<E: de::Error>(&self, fault: Fault) -> E {
        let error = E::custom(&fault);
        self.state.borrow_mut().fault.get_or_insert(fault);
        error
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
    pub(super) fn field<'de, T: Value, A: MapAccess<'de>>(
        &self,
        key: &str,
        map: &mut A,
    ) -> Result<T, A::Error> {
        self.inside(Step::Key(key.to_owned()), || {
            map.next_value_seed(Seed::new(self))
        })
    }

    /// Reads the next entry of a list.
    pub(super) fn entry<'de, T: Value, A: SeqAccess<'de>>(
        &self,
        index: usize,
        seq: &mut A,
    ) -> Result<Option<T>, A::Error> {
        self.inside(Step::Index(index), || {
            seq.next_element_seed(Seed::new(self))
        })
    }

    /// The path stays as it is where an error ends the reading: that is the path of the error.
    fn inside<T, E>(&self, step: Step, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
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

/// Reads one value of type `T`.
pub(super) struct Seed<'a, T> {
    reader: &'a Reader,
    value: PhantomData<T>,
}

impl<'a, T> Seed<'a, T> {
    fn new(reader: &'a Reader) -> Self {
        Self {
            reader,
            value: PhantomData,
        }
    }
}

impl<'de, T: Value> DeserializeSeed<'de> for Seed<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<T, D::Error> {
        T::read(At::new(de, self.reader))
    }
}

/// A whole document: there must be one.
struct Top<'a, S> {
    reader: &'a Reader,
    inner: S,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Top<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<S::Value, D::Error> {
        de.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Top<'_, S> {
    type Value = S::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_none<E: de::Error>(self) -> Result<S::Value, E> {
        Err(self.reader.fail(Fault::Empty))
    }

    fn visit_unit<E: de::Error>(self) -> Result<S::Value, E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(de)
    }
}

/// Reads the value of one key of the outermost mapping.
struct Under<'a, T> {
    key: &'static str,
    reader: &'a Reader,
    value: PhantomData<T>,
}

impl<'de, T: Value> DeserializeSeed<'de> for Under<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Option<T>, D::Error> {
        let reader = self.reader;
        de.deserialize_map(self)
            .inspect_err(|_| reader.expected("a mapping"))
    }
}

impl<'de, T: Value> Visitor<'de> for Under<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<T>, A::Error> {
        let mut value = None;
        while let Some(key) = map.next_key_seed(KeyText)? {
            if key == self.key {
                value = Some(self.reader.field(self.key, &mut map)?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(value)
    }
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
