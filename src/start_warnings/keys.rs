//! Keys of a START that mean nothing where they stand, so that a misspelt one is noticed. Pure.
//!
//! Peers ignore such keys, as those of the original do. Which keys there are is what the records say that a START is
//! read into ([`Record::FIELDS`]); no list of them is kept here. Keys of `scheduling` are not looked for, because an
//! unknown one there refuses the file.

use std::cell::RefCell;
use std::fmt;

use proto_frames::payload::cut::shorten;
use proto_frames::payload::{Position, Start, similar};
use sched_model::value::{Field, Record, Shape};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::printable::Printable;

/// Most unknown keys of one file that are named; the rest is counted. Each takes a line, and one pass over the document.
pub const MAX_NAMED: usize = 10;

/// What a document of a START is.
const DOCUMENT: &[Field] = &[Field {
    key: "start",
    shape: Shape::Record(<Start as Record>::FIELDS),
}];

/// A key that means nothing where it stands.
///
/// Prints as `line 4: start.requirments: no such key; did you mean 'requirements'?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// Its path from the top of the document, such as `start.storage[1].siez`.
    pub path: String,
    /// The key, or the path of the key, that may have been meant.
    pub meant: Option<String>,
    /// Where it stands.
    pub position: Option<Position>,
}

/// The unknown keys of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnknownKeys {
    /// The first of them, at most [`MAX_NAMED`].
    pub named: Vec<UnknownKey>,
    /// How many there are beside those.
    pub more: usize,
}

impl UnknownKeys {
    /// Those of the first document of a START in YAML, which has been decoded before.
    ///
    /// What cannot be read has none: it is refused for another reason.
    #[must_use]
    pub fn of(document: &[u8]) -> Self {
        Self::found_by(|search| search.run(document))
    }

    /// Those of a START in JSON, which has been decoded before.
    ///
    /// JSON is read as such: not all of it is YAML.
    #[must_use]
    pub fn of_json(document: &[u8]) -> Self {
        Self::found_by(|search| search.run_json(document))
    }

    /// Passes over the document until there are enough; once where there is no unknown key.
    fn found_by(run: impl Fn(Search) -> (Option<UnknownKey>, usize)) -> Self {
        let mut named = Vec::new();
        let all = loop {
            match run(Search::new(named.len())) {
                (Some(key), _) if named.len() + 1 < MAX_NAMED => named.push(key),
                (Some(key), _) => {
                    named.push(key);
                    break run(Search::new(usize::MAX)).1;
                }
                (None, all) => break all,
            }
        };
        let more = all.saturating_sub(named.len());
        Self { named, more }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.named.len() + self.more
    }
}

impl UnknownKey {
    /// The same as a warning: `line 4: start.requirments: no such key, ignored; did you mean 'requirements'?`.
    #[must_use]
    pub fn warning(&self) -> String {
        self.text(", ignored")
    }

    fn text(&self, consequence: &str) -> String {
        let at = self.position.map(|it| format!("line {}: ", it.line));
        let meant = self.meant.as_ref();
        let meant = meant.map(|it| format!("; did you mean '{it}'?"));
        format!(
            "{}{}: no such key{consequence}{}",
            at.unwrap_or_default(),
            self.path,
            meant.unwrap_or_default()
        )
    }
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(""))
    }
}

/// Walks over a document until the unknown key with this number.
struct Search {
    /// Counted from 0.
    nth: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// From the top to the mapping or list that is read.
    path: Vec<String>,
    /// Unknown keys so far.
    seen: usize,
    found: Option<UnknownKey>,
}

impl Search {
    fn new(nth: usize) -> Self {
        let state = RefCell::default();
        Self { nth, state }
    }

    /// The key, if there are so many, and how many were seen. The parser is stopped at the key, so that its error has
    /// the key's place.
    fn run(self, document: &[u8]) -> (Option<UnknownKey>, usize) {
        let first = serde_yaml::Deserializer::from_slice(document).next();
        let stop = first.and_then(|first| self.root().deserialize(first).err());
        let place = stop.and_then(|error| error.location());
        self.end(place.map(|at| (at.line(), at.column())))
    }

    /// The same of JSON.
    fn run_json(self, document: &[u8]) -> (Option<UnknownKey>, usize) {
        let mut json = serde_json::Deserializer::from_slice(document);
        let stop = self.root().deserialize(&mut json).err();
        self.end(stop.map(|error| (error.line(), error.column())))
    }

    fn root(&self) -> Value<'_> {
        Value {
            search: self,
            shape: &Shape::Record(DOCUMENT),
        }
    }

    /// What was found, where the parser was stopped at this line and column.
    fn end(self, place: Option<(usize, usize)>) -> (Option<UnknownKey>, usize) {
        let state = self.state.into_inner();
        let position = place.map(|(line, column)| Position { line, column });
        let found = state.found.map(|key| UnknownKey { position, ..key });
        (found, state.seen)
    }

    /// Counts an unknown key, and says whether it is the one.
    fn is_it(&self, key: &str, fields: &[Field]) -> bool {
        let mut state = self.state.borrow_mut();
        state.seen += 1;
        if state.seen - 1 != self.nth {
            return false;
        }
        let known: Vec<&str> = fields.iter().map(|field| field.key).collect();
        let meant = similar(key, &known).map(ToOwned::to_owned);
        let mut path = state.path.concat();
        path.push_str(&Printable::new(shorten(key)));
        state.found = Some(UnknownKey {
            meant: meant.or_else(|| elsewhere(key)),
            path: path.clone(),
            position: None,
        });
        true
    }

    /// Reads what stands under a step of the path.
    fn inside<T, E>(&self, step: String, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.state.borrow_mut().path.push(step);
        let value = read()?;
        self.state.borrow_mut().path.pop();
        Ok(value)
    }
}

/// The path of the key that is called so in another mapping, as `mem_mb` that stands right under `start`.
fn elsewhere(key: &str) -> Option<String> {
    fn find(key: &str, fields: &'static [Field], path: &str) -> Option<String> {
        fields.iter().find_map(|field| {
            let path = format!("{path}{}", field.key);
            match &field.shape {
                _ if field.key == key => Some(path),
                Shape::Record(fields) => find(key, fields, &format!("{path}.")),
                _ => None,
            }
        })
    }
    find(key, DOCUMENT, "")
}

/// A value of which only mappings with known keys are looked at.
struct Value<'a> {
    search: &'a Search,
    shape: &'static Shape,
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        match self.shape {
            Shape::Record(_) | Shape::List(_) => de.deserialize_any(self),
            _ => de.deserialize_ignored_any(IgnoredAny).map(|_| ()),
        }
    }
}

/// Passes over a scalar: nothing, or what a lenient reader takes for it.
macro_rules! visit_scalars {
    ($($visit:ident: $type:ty,)*) => {
        $(fn $visit<E: de::Error>(self, _: $type) -> Result<(), E> {
            Ok(())
        })*
    };
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    visit_scalars! {
        visit_bool: bool,
        visit_i64: i64,
        visit_u64: u64,
        visit_f64: f64,
        visit_str: &str,
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = match self.shape {
            Shape::Record(fields) => fields,
            _ => &[][..],
        };
        let search = self.search;
        while let Some(key) = map.next_key_seed(Key { search, fields })? {
            match fields.iter().find(|field| field.key == key) {
                // Keys there that are unknown refuse the file.
                Some(field) if field.key != "scheduling" => {
                    let shape = &field.shape;
                    let end = if matches!(shape, Shape::Record(_)) {
                        "."
                    } else {
                        ""
                    };
                    search.inside(format!("{key}{end}"), || {
                        map.next_value_seed(Value { search, shape })
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Shape::List(shape) = self.shape else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let search = self.search;
        let entry = |seq: &mut A, index: usize| {
            let end = if matches!(shape, Shape::Record(_)) {
                "."
            } else {
                ""
            };
            search.inside(format!("[{index}]{end}"), || {
                seq.next_element_seed(Value { search, shape })
            })
        };
        let mut index = 0;
        while entry(&mut seq, index)?.is_some() {
            index += 1;
        }
        Ok(())
    }
}

/// A key of a mapping with known keys.
struct Key<'a> {
    search: &'a Search,
    fields: &'static [Field],
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<String, D::Error> {
        de.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        let is_known = self.fields.iter().any(|field| field.key == text);
        if !is_known && self.search.is_it(text, self.fields) {
            return Err(E::custom("here"));
        }
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(document: &str) -> Vec<String> {
        let keys = UnknownKeys::of(document.as_bytes());
        let named = keys.named.iter().map(ToString::to_string);
        named
            .map(|text| text.replace(": no such key", ""))
            .collect()
    }

    #[test]
    fn a_misspelt_key_is_found_with_its_line_and_what_was_meant() {
        let document = "\
start:
  instance_uuid: x
  vm_type: process
  comand: [true]
  requirments:
    mem_mb: 1
  requirements: {mem_mb: 1, vcpu: 2}
  mem_mb: 5
  storage:
  - {id: a, siez: 1}
  - size: 2
    locale: true
  env: {ANY: thing}
  weather: {sunny: true}
priority: 5
";
        assert_eq!(
            said(document),
            [
                "line 4: start.comand; did you mean 'command'?",
                "line 5: start.requirments; did you mean 'requirements'?",
                "line 7: start.requirements.vcpu; did you mean 'vcpus'?",
                "line 8: start.mem_mb; did you mean 'start.requirements.mem_mb'?",
                "line 10: start.storage[0].siez; did you mean 'size'?",
                "line 12: start.storage[1].locale; did you mean 'local'?",
                "line 14: start.weather",
                "line 15: priority; did you mean 'start.scheduling.priority'?",
            ]
        );
    }

    #[test]
    fn every_key_of_a_start_is_known_also_in_json_and_where_it_has_no_value() {
        for document in [
            r#"{"start": {"tenant_uuid": "t", "networking": {"vnic_mac": "m", "public_ip": false}, "persistence": "all"}}"#,
            "start:\n  requirements:\n  storage:\n  scheduling: {priority: 5}\n  networking: ~\n",
            "start: {command: [a, b], env: {requirments: x}, storage: [~, {boot_index: 1}]}\n",
            "",
        ] {
            assert_eq!(said(document), Vec::<String>::new(), "{document}");
        }
    }

    #[test]
    fn odd_documents_are_walked_as_far_as_they_can_be_read() {
        for (document, keys) in [
            ("start: {1: x, ~: y, '': z}\n", 3),
            ("start: {x: &a [1, 2], y: *a}\n", 2),
            ("start: {<<: {vm_type: x}, vm_type: process}\n", 1),
            ("start: {x: 1, x: 2}\n", 2),
            ("start: {x: 1, [a]: b, y: 2}\n", 1),
            ("start: {x: !odd {y: 1}, storage: !odd [1]}\n", 1),
            ("start: {x: 1, y: [\n", 2),
            ("- start\n", 0),
            ("start: [requirments]\n", 0),
            ("%YAML 1.1\n---\nstart: {x: 1}\n", 1),
            ("\u{feff}start: {x: 1}\n", 1),
        ] {
            let found = UnknownKeys::of(document.as_bytes());
            assert_eq!(found.count(), keys, "{document}: {found:?}");
        }
    }

    #[test]
    fn many_are_counted() {
        let keys: String = (0..50).map(|number| format!("  zz{number}: 1\n")).collect();
        let keys = UnknownKeys::of(format!("start:\n{keys}").as_bytes());
        assert_eq!((keys.named.len(), keys.more), (MAX_NAMED, 40));
        assert_eq!(keys.count(), 50);
    }
}
