//! Reads the parts of YAML files that are the scheduler's own, strictly: what is not as documented is a [`Mistake`]
//! that names the key, the place, and what would be right. What the values may be is in `values`; payloads, which are
//! read as leniently as the original reads them, are `proto_frames`' business.
//!
//! Used for the node file, the scheduler's part of a configuration ([`super::rules_file`]) and its like: files that an
//! operator writes and that must not be half understood. Sections are structs that serde derives with
//! `deny_unknown_fields`, made of the values in `values`.
//!
//! ```text
//! document ─ read(keys) ─▶ serde_yaml under serde_path_to_error ─▶ T
//!                              └─ error ─▶ explain: path, place and plain words ─▶ Mistake
//! ```
//!
//! serde's own words are rewritten by [`explain`], because they speak of Rust's types; the rewriting is by the texts of
//! serde's errors, which its tests hold still.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use proto_frames::payload::{Position, position_of, similar};
use sched_model::error::write_place;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor,
};
use serde_path_to_error::Track;

pub(super) mod names;
mod values;
mod weigh;

pub(super) use values::{
    ByName, List, Mapping, Maybe, Named, Pairs, Plain, Scalar, required, scalars, unexpected,
};

/// What is said to be there where nothing is (`key:` with no value behind it).
const NOTHING: &str = "nothing";

/// What is wrong in a part of a file that is read strictly.
///
/// Prints as `configure.scheduler.policy.subset_size, line 4 column 20: expected a whole number from 1, found `0``. It
/// is an error of the start where a file has it, and the detail of a refusal where a CONFIGURE has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Path of the key from the top of the document; empty where the whole document is meant.
    pub key: String,
    /// Where the value stands; `None` where nothing of it was read.
    pub position: Option<Position>,
    /// What is wrong there, and what is expected.
    pub problem: String,
}

impl std::error::Error for Mistake {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, &self.key, self.position)?;
        f.write_str(&self.problem)
    }
}

impl Mistake {
    /// One about the document as a whole: no key, no place.
    pub(super) fn whole(problem: impl fmt::Display) -> Self {
        Self {
            key: String::new(),
            position: None,
            problem: problem.to_string(),
        }
    }

    /// One about the value of this key, which was read: for checks that need more than one value. `key` is a path as in
    /// [`Mistake::key`], with indexes as `[0]`. The document is parsed again to find the place.
    pub(super) fn at(document: &[u8], key: String, problem: impl fmt::Display) -> Self {
        Self {
            position: position_of(document, &key),
            problem: problem.to_string(),
            key,
        }
    }
}

/// Reads what stands under these keys of a document (`["configure", "scheduler"]`); `None` if nothing does. Everything
/// beside them is passed over, so that ciao's own keys may stand in the same file. Only the first document is read.
///
/// Where the YAML is no valid document, that is the mistake that is given, wherever reading stopped.
///
/// # Errors
/// The first mistake, which may be above those keys, or in the YAML as a whole.
pub(super) fn read<T: DeserializeOwned>(
    document: &[u8],
    keys: &[&'static str],
) -> Result<Option<T>, Mistake> {
    run(document, keys, PhantomData::<T>)
}

/// Refuses a document in which aliases (`*name`) make what stands under these keys larger than twice the document: a
/// few of them could otherwise make a small payload gigabytes of values. Called before [`read`] on documents from
/// peers; needs memory for none of it.
///
/// # Errors
/// That, or as [`read`].
pub(super) fn weigh(document: &[u8], keys: &[&'static str]) -> Result<(), Mistake> {
    let left = Cell::new(Some(document.len().saturating_mul(2)));
    let weighed = run(document, keys, weigh::Weigh { left: &left });
    if left.get().is_none() {
        let problem = "aliases expand to more than twice the document";
        return Err(Mistake::at(document, keys.join("."), problem));
    }
    weighed.map(|_| ())
}

/// Parses the first document with a seed, keeping the path to where the parser is; makes a [`Mistake`] of an error.
fn run<'de, S: DeserializeSeed<'de> + Copy>(
    document: &'de [u8],
    keys: &[&'static str],
    inner: S,
) -> Result<Option<S::Value>, Mistake> {
    let Some(first) = serde_yaml::Deserializer::from_slice(document).next() else {
        return Ok(None);
    };
    let mut track = Track::new();
    let tracked = serde_path_to_error::Deserializer::new(first, &mut track);
    let read = Under { keys, inner }.deserialize(tracked);
    read.map_err(|error| match syntax_error(document) {
        Some(broken) => Mistake::whole(format_args!("not valid YAML: {broken}")),
        None => explain(document, &track.path().to_string(), &error),
    })
}

/// Text of a file, cut to a length that suits a message; a cut text ends in `…`.
pub(super) fn shorten(text: &str) -> String {
    /// Long enough for a UUID and the name around it.
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The first error in the YAML itself, whatever the keys and types are.
fn syntax_error(document: &[u8]) -> Option<serde_yaml::Error> {
    let first = serde_yaml::Deserializer::from_slice(document).next()?;
    first.deserialize_ignored_any(IgnoredAny).err()
}

/// Turns the parser's error about the value at `path` into ours: key, place and problem.
fn explain(document: &[u8], path: &str, error: &serde_yaml::Error) -> Mistake {
    let position = error.location().map(|at| Position {
        line: at.line(),
        column: at.column(),
    });
    let path = if path == "." { "" } else { path };
    let text = error.to_string();
    let (below, problem) = problem(bare(&text, path, position));
    let dot = if path.is_empty() || below.is_empty() {
        ""
    } else {
        "."
    };
    let key = format!("{path}{dot}{below}");
    if problem.ends_with(NOTHING) {
        // The parser takes nothing at all for a part of what is around it.
        return Mistake::at(document, key, problem);
    }
    Mistake {
        key,
        position,
        problem,
    }
}

/// The parser's words without the place behind them, and without the path before them, which is that of the value or of
/// one around it. So `configure.scheduler.x: invalid type: …, expected a list at line 4 column 20` becomes `invalid
/// type: …, expected a list`.
fn bare<'a>(text: &'a str, path: &str, position: Option<Position>) -> &'a str {
    let place = position.map(|at| format!(" at {at}")).unwrap_or_default();
    let text = text.strip_suffix(&place).unwrap_or(text);
    let ends = path.rmatch_indices(['.', '[']).map(|(at, _)| at);
    std::iter::once(path.len())
        .chain(ends)
        .find_map(|end| text.strip_prefix(&path[..end])?.strip_prefix(": "))
        .unwrap_or(text)
}

/// What serde's words for a mapping or a type mean: the key below the path that they are about, if any, and the
/// problem.
///
/// ```text
/// missing field `name`                           ("name", "missing")
/// unknown field `zon`, expected `zone` or `id`   ("", "unknown key, expected `zone` or `id`; did you mean `zone`?")
/// invalid type: map, expected a string           ("", "expected a string, found a mapping")
/// ```
///
/// What is none of these passes as it is: it comes from this module's own types.
fn problem(text: &str) -> (&str, String) {
    let quoted = |rest: &'static str| text.strip_prefix(rest)?.strip_suffix('`');
    if let Some(key) = quoted("missing field `") {
        return (key, "missing".to_owned());
    }
    if let Some(key) = quoted("duplicate field `") {
        return (key, "stands twice".to_owned());
    }
    if let Some((_, known)) = text.rsplit_once("`, expected ")
        && text.starts_with("unknown field `")
    {
        let names: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let word = text.split('`').nth(1).unwrap_or_default();
        let meant = match similar(word, &names) {
            Some(meant) if names.len() > 1 => format!("; did you mean `{meant}`?"),
            _ => String::new(),
        };
        return ("", format!("unknown key, expected {known}{meant}"));
    }
    let mismatch = text
        .strip_prefix("invalid type: ")
        .and_then(|rest| rest.split_once(", expected "));
    match mismatch {
        Some((found, expected)) => ("", format!("expected {expected}, found {}", plain(found))),
        None => ("", text.to_owned()),
    }
}

/// What serde calls a value that is there, in YAML's terms.
fn plain(found: &str) -> String {
    match found {
        "map" => "a mapping".to_owned(),
        "sequence" => "a list".to_owned(),
        "unit value" => NOTHING.to_owned(),
        other => shorten(other),
    }
}

/// Reads the value under keys, one below the other; of a key that stands twice, the last counts. The innermost value is
/// read by `inner`; what stands beside the path is not kept.
struct Under<'a, S> {
    /// What is left of the way: none once the value is reached.
    keys: &'a [&'static str],
    /// What reads the value there.
    inner: S,
}

impl<'de, S: DeserializeSeed<'de> + Copy> DeserializeSeed<'de> for Under<'_, S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
        if self.keys.is_empty() {
            self.inner.deserialize(de).map(Some)
        } else {
            de.deserialize_map(self)
        }
    }
}

impl<'de, S: DeserializeSeed<'de> + Copy> Visitor<'de> for Under<'_, S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (wanted, rest) = self
            .keys
            .split_first()
            .ok_or_else(|| A::Error::custom("no key"))?;
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == *wanted {
                found = map.next_value_seed(Under {
                    keys: rest,
                    inner: self.inner,
                })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}
