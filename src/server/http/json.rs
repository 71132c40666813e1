//! The vocabulary's types as JSON: [`to_json`] writes, [`from_json`] reads what a request says, strictly.
//!
//! Both are the JSON side of `sched_model::value`: a record's keys, types and defaults are declared once with the type,
//! and YAML, JSON and the OpenAPI document follow them. So a row over HTTP has the keys that `ciaoctl` and SSNTP give
//! it.

use std::collections::BTreeMap;
use std::fmt;

use proto_frames::payload::cut::shorten;
use sched_model::value::{FieldReader, Record, Text, Value as Typed, ValueReader, ValueWriter};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::problem::Problem;
use crate::printable::Printable;

/// A record as a JSON object. Fields that the record leaves out while they are empty are left out here too.
pub(super) fn to_json<T: Record>(record: &T) -> Map<String, Value> {
    let mut writer = Writer::default();
    record.write_fields(&mut writer);
    writer.fields
}

/// JSON in which no key stands twice in one object: a plain [`Value`] would take the last of two without a word.
pub(super) struct Unambiguous(pub(super) Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        de.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unambiguous(value)) = seq.next_element()? {
            list.push(value);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                let shown = Printable::new(shorten(&key));
                let twice = format_args!("the key `{shown}` stands twice in its object");
                return Err(de::Error::custom(twice));
            }
            let Unambiguous(value) = map.next_value()?;
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

/// A value being written. One of the two fields is used: `value` for a scalar, list or map, `fields` for the keys of a
/// record.
#[derive(Default)]
struct Writer {
    value: Value,
    fields: Map<String, Value>,
}

/// Any value of the vocabulary as JSON.
fn value<T: Typed>(typed: &T) -> Value {
    let mut writer = Writer::default();
    typed.write(&mut writer);
    writer.value
}

impl ValueWriter for Writer {
    fn write_text(&mut self, text: &str) {
        self.value = text.into();
    }

    fn write_int(&mut self, value: i128) {
        // JSON numbers here are 64 bits wide, signed or not. No type of the vocabulary is wider; one that were would
        // become text.
        self.value = match (i64::try_from(value), u64::try_from(value)) {
            (Ok(value), _) => value.into(),
            (_, Ok(value)) => value.into(),
            _ => value.to_string().into(),
        };
    }

    fn write_bool(&mut self, value: bool) {
        self.value = value.into();
    }

    fn write_null(&mut self) {
        self.value = Value::Null;
    }

    fn write_list<T: Typed>(&mut self, items: &[T]) {
        self.value = items.iter().map(value).collect();
    }

    /// A mapping with any keys, such as labels: their values may be lists.
    fn write_entries<T: Typed>(&mut self, entries: &BTreeMap<String, T>) {
        let entries = entries.iter().map(|(key, it)| (key.clone(), value(it)));
        self.value = Value::Object(entries.collect());
    }

    /// A record within a record: an object of its own.
    fn write_record<T: Record>(&mut self, record: &T) {
        self.value = Value::Object(to_json(record));
    }

    /// A key of the record that is being written. Called for keys that are not left out.
    fn write_field<T: Typed>(&mut self, key: &str, field: &T) {
        self.fields.insert(key.to_owned(), value(field));
    }
}

/// A record from JSON. `path` is what the names of fields in errors begin with. An unknown key is an error, because it
/// is most likely misspelt. An absent key, and `null`, is the default.
///
/// # Errors
/// 400 `invalid_payload` for a value of the wrong type, 422 `invalid_data` for an unknown key or a text that its key
/// does not take; each with the path of the field, such as `update.resources.gpu`.
pub(super) fn from_json<T: Record>(path: &str, value: &Value) -> Result<T, Problem> {
    Reader { path, value }.read_record()
}

/// A value being read, and its path from the root, such as `update.groups[2].id`.
struct Reader<'a> {
    path: &'a str,
    value: &'a Value,
}

impl Reader<'_> {
    /// The problem that something else stands here, with what was found: texts and numbers are cut short, lists and
    /// objects are named only by their kind, so that a hostile body is not echoed at length.
    fn expected(&self, what: &str) -> Problem {
        // A scalar as it stands in the JSON, in quotes of code; `shorten` bounds its length.
        let found = match self.value {
            Value::Null => "null".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            plain => format!("`{}`", shorten(&plain.to_string())),
        };
        Problem::invalid_payload(self.path, format!("expected {what}, found {found}"))
    }
}

impl ValueReader for Reader<'_> {
    type Error = Problem;

    /// A text, or `null`, of which the type says what it means. 400 for another kind of value, 422 for a text that is
    /// none of the type's, such as a time that is none.
    fn read_text<T: Text>(self) -> Result<T, Problem> {
        let parsed = match self.value {
            Value::Null => T::null(),
            Value::String(text) => T::parse(text),
            _ => return Err(self.expected(T::EXPECTED)),
        };
        parsed.map_err(|fault| Problem::invalid_data(self.path, fault))
    }

    /// A whole number within the type's bounds; `null` is 0. Numbers in quotes are refused: `expected` says what is
    /// taken.
    fn read_int<T: TryFrom<i128> + Default>(self, expected: &'static str) -> Result<T, Problem> {
        let number = match self.value {
            Value::Null => return Ok(T::default()),
            Value::Number(number) => number,
            _ => return Err(self.expected(expected)),
        };
        // `1.5` and `1e3` are neither; what does not fit the field's type is refused like a wrong type.
        let whole = number.as_i64().map(i128::from);
        let whole = whole.or_else(|| number.as_u64().map(i128::from));
        let value = whole.and_then(|whole| T::try_from(whole).ok());
        value.ok_or_else(|| self.expected(expected))
    }

    /// `true` or `false`; `null` is false.
    fn read_bool(self) -> Result<bool, Problem> {
        match self.value {
            Value::Null => Ok(false),
            Value::Bool(value) => Ok(*value),
            _ => Err(self.expected("true or false")),
        }
    }

    /// `null` is "not given" here, unlike 0 or an empty text.
    fn read_optional<T: Typed>(self) -> Result<Option<T>, Problem> {
        match self.value {
            Value::Null => Ok(None),
            _ => T::read(self).map(Some),
        }
    }

    /// A list; `null` is empty. The first bad entry ends it.
    fn read_list<T: Typed>(self) -> Result<Vec<T>, Problem> {
        let items = match self.value {
            Value::Null => return Ok(Vec::new()),
            Value::Array(items) => items,
            _ => return Err(self.expected("a list")),
        };
        // An entry's path has its position: `batch.members[2]`.
        let read = |(at, value): (usize, &Value)| {
            let path = format!("{}[{at}]", self.path);
            T::read(Reader { path: &path, value })
        };
        items.iter().enumerate().map(read).collect()
    }

    /// An object with any keys; `null` is empty.
    fn read_entries<T: Typed>(self) -> Result<BTreeMap<String, T>, Problem> {
        let entries = match self.value {
            Value::Null => return Ok(BTreeMap::new()),
            Value::Object(entries) => entries,
            _ => return Err(self.expected("an object")),
        };
        // An entry's path has its key.
        let read = |(key, value): (&String, &Value)| {
            let path = joined(self.path, &shorten(key));
            Ok((key.clone(), T::read(Reader { path: &path, value })?))
        };
        entries.iter().map(read).collect()
    }

    /// An object with known keys; `null` has the default of each. serde_json keeps the last of two equal keys, so a
    /// duplicate is not seen here.
    fn read_record<T: Record>(self) -> Result<T, Problem> {
        let mut record = T::default();
        let fields = match self.value {
            Value::Null => return Ok(record),
            Value::Object(fields) => fields,
            _ => return Err(self.expected("an object")),
        };
        for (key, value) in fields {
            let mut field = Field {
                path: self.path,
                value,
            };
            // `false` says that the record has no such key.
            if !record.set(key, &mut field)? {
                let known: Vec<&str> = T::FIELDS.iter().map(|field| field.key).collect();
                // Chosen by who sent the body, and as long as that may be.
                let path = joined(self.path, &shorten(key));
                let detail = format!("no such key; expected one of {}", known.join(", "));
                return Err(Problem::invalid_data(&path, detail));
            }
        }
        Ok(record)
    }
}

/// One field of a mapping being read. The record asks for the type that its key has.
struct Field<'a> {
    /// The path of the mapping, without the key.
    path: &'a str,
    value: &'a Value,
}

impl FieldReader for Field<'_> {
    type Error = Problem;

    fn read_field<T: Typed>(&mut self, key: &str) -> Result<T, Problem> {
        let path = joined(self.path, key);
        T::read(Reader {
            path: &path,
            value: self.value,
        })
    }
}

/// The path of a key; at the root the key itself.
fn joined(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use sched_model::{InstanceView, Migrate, NodeView, PlacementState, Update};
    use serde_json::{Value, json};

    use super::{Unambiguous, from_json, to_json};

    #[test]
    fn a_key_that_stands_twice_is_refused_and_all_else_is_as_it_was() {
        let parse = |text: &str| {
            let read = serde_json::from_str(text).map(|Unambiguous(value)| value);
            read.map_err(|error| error.to_string())
        };
        let text =
            r#"{"a": [null, true, -1, 18446744073709551615, 0.5, "x", {"b": {}}], "b": {"a": 1}}"#;
        assert_eq!(parse(text), Ok(serde_json::from_str(text).unwrap()));
        for (text, key) in [
            (r#"{"a": 1, "b": 2, "a": 1}"#, "a"),
            (r#"[{"x": {"\u0061": 1, "a": 2}}]"#, "a"),
            (r#"{"\u001b[2J": 1, "\u001b[2J": 1}"#, "\\u{1b}[2J"),
        ] {
            let error = parse(text).unwrap_err();
            let begin = format!("the key `{key}` stands twice in its object at line 1 column ");
            assert!(error.starts_with(&begin), "{error}");
        }
    }

    #[test]
    fn a_row_has_the_keys_that_every_other_format_gives_it() {
        let row = NodeView {
            node_uuid: "n".to_owned(),
            labels: [("zone".to_owned(), vec!["a".to_owned()])].into(),
            ..NodeView::default()
        };
        let json = Value::Object(to_json(&row));
        assert_eq!(json["node_uuid"], "n");
        assert_eq!(json["labels"], json!({"zone": ["a"]}));
        assert_eq!(json["mem_total_mb"], -1);
        assert_eq!(json.get("fault"), None, "left out while it is empty");
        let row = InstanceView {
            state: PlacementState::Running,
            position: Some(u64::MAX),
            ..InstanceView::default()
        };
        let json = to_json(&row);
        assert_eq!(json["state"], "running");
        assert_eq!(json["position"], u64::MAX);
    }

    #[test]
    fn a_key_of_a_body_is_named_shortened() {
        let long = "\u{1b}[2J".to_owned() + &"k".repeat(1 << 16);
        for bad in [
            json!({ &*long: 1 }),
            json!({"resources": {&*long: "two"}}),
            json!({"resources": {&*long: {&*long: 1}}}),
        ] {
            let problem = from_json::<Update>("update", &bad).unwrap_err();
            let field = problem.field().unwrap();
            assert!(field.starts_with("update."), "{field}");
            assert!(field.ends_with('…') && field.len() < 200, "{field}");
            let document = format!("{problem:?}");
            assert!(document.len() < 2_000, "{} bytes", document.len());
        }
    }

    #[test]
    fn what_is_wrong_with_a_request_is_named_by_its_field() {
        let read: Migrate = from_json("migrate", &json!({"target_node_uuid": "n"})).unwrap();
        assert_eq!(read.target_node_uuid, "n");
        for (bad, field) in [
            (json!({"target_node": "n"}), "migrate.target_node"),
            (json!({"target_node_uuid": 7}), "migrate.target_node_uuid"),
            (json!({"deadline": "soon"}), "migrate.deadline"),
            (json!([]), "migrate"),
        ] {
            let problem = from_json::<Migrate>("migrate", &bad).unwrap_err();
            assert_eq!(problem.field(), Some(field), "{bad}");
        }
        let bad = json!({"resources": {"gpu": "two"}});
        let problem = from_json::<Update>("update", &bad).unwrap_err();
        assert_eq!(problem.field(), Some("update.resources.gpu"));
        let bad = json!({"mem_mb": 1.5});
        let problem = from_json::<Update>("update", &bad).unwrap_err();
        assert_eq!(problem.field(), Some("update.mem_mb"));
    }
}
