//! How the values of a payload are read, leniently as Go's yaml.v2 reads them.
//!
//! Null is the zero value of every type. Numbers and truth values take the forms of [`super::scalar`], and none in quotes.
//! A string is the text as written. A known key that stands twice is refused, and so are merge keys: a document that
//! does not say what it seems to say is not acted on. The original's peers write neither.

use std::collections::BTreeMap;

use sched_model::value::{FieldReader, Record, Text, Value, ValueReader};

use super::error::Fault;
use super::guard::MAX_ENTRIES;
use super::node::{Entry, Node, Stop, Style};
use super::read::Reader;
use super::scalar;
use super::seen::{MERGE, Seen};

/// A place in a document: what stands there is read next.
pub(super) struct At<'a> {
    node: &'a mut dyn Node,
    reader: &'a Reader,
}

impl<'a> At<'a> {
    /// The place at which the parser is.
    pub(super) fn new(node: &'a mut dyn Node, reader: &'a Reader) -> Self {
        Self { node, reader }
    }

    fn read_scalar<T>(
        self,
        expected: &'static str,
        style: Style,
        parse: impl Fn(Option<&str>) -> Result<T, Fault>,
    ) -> Result<T, Stop> {
        let Self { node, reader } = self;
        let mut value = None;
        node.scalar(reader, expected, style, &mut |text| {
            value = Some(parse(text).map_err(|fault| reader.fail(fault))?);
            Ok(())
        })?;
        value.ok_or(Stop)
    }
}

impl ValueReader for At<'_> {
    type Error = Stop;

    fn read_text<T: Text>(self) -> Result<T, Stop> {
        self.read_scalar(T::EXPECTED, Style::Any, |text| {
            text.map_or_else(T::null, T::parse)
        })
    }

    fn read_int<T: TryFrom<i128> + Default>(self, expected: &'static str) -> Result<T, Stop> {
        self.read_scalar(expected, Style::Plain, |text| {
            let Some(text) = text else {
                return Ok(T::default());
            };
            let value = scalar::int(text).and_then(|value| value.try_into().ok());
            value.ok_or_else(|| Fault::wrong_text(expected, text))
        })
    }

    fn read_bool(self) -> Result<bool, Stop> {
        let expected = "true or false";
        self.read_scalar(expected, Style::Plain, |text| match text {
            None => Ok(false),
            Some(text) => scalar::boolean(text).ok_or_else(|| Fault::wrong_text(expected, text)),
        })
    }

    fn read_optional<T: Value>(self) -> Result<Option<T>, Stop> {
        let Self { node, reader } = self;
        let mut value = None;
        node.optional(&mut |node| {
            value = Some(T::read(At::new(node, reader))?);
            Ok(())
        })?;
        Ok(value)
    }

    fn read_list<T: Value>(self) -> Result<Vec<T>, Stop> {
        let Self { node, reader } = self;
        let mut list = Vec::new();
        node.list(reader, &mut |node| {
            list.push(T::read(At::new(node, reader))?);
            Ok(())
        })?;
        Ok(list)
    }

    fn read_entries<T: Value>(self) -> Result<BTreeMap<String, T>, Stop> {
        let Self { node, reader } = self;
        let mut entries = BTreeMap::new();
        node.mapping(reader, &mut |key, entry| {
            if entries.contains_key(key) {
                return Err(reader.refuse_key(key, entry, Fault::DuplicateKey));
            }
            // As text or number it is a name like others.
            let value = reader.field(key, entry).inspect_err(|Stop| {
                if key == MERGE {
                    reader.is_instead(Fault::MergeKey);
                }
            })?;
            entries.insert(key.to_owned(), value);
            if entries.len() > MAX_ENTRIES {
                let max = MAX_ENTRIES;
                return Err(reader.fail(Fault::TooManyEntries { max }));
            }
            Ok(true)
        })?;
        Ok(entries)
    }

    fn read_record<T: Record>(self) -> Result<T, Stop> {
        let Self { node, reader } = self;
        let mut record = T::default();
        let mut seen = Seen::of(T::FIELDS);
        node.mapping(reader, &mut |key, entry| {
            if key == MERGE {
                return Err(reader.refuse_key(key, entry, Fault::MergeKey));
            }
            if seen.is_again(key) {
                return Err(reader.refuse_key(key, entry, Fault::DuplicateKey));
            }
            let is_known = record.set(key, &mut Fields { entry, reader })?;
            if !is_known {
                reader.unknown(key, T::FIELDS);
            }
            Ok(is_known)
        })?;
        Ok(record)
    }
}

/// The fields of a mapping, of which a key was read last.
struct Fields<'a> {
    entry: &'a mut dyn Entry,
    reader: &'a Reader,
}

impl FieldReader for Fields<'_> {
    type Error = Stop;

    fn read_field<T: Value>(&mut self, key: &str) -> Result<T, Stop> {
        self.reader.field(key, self.entry)
    }
}
