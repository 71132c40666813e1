//! How the values of a payload are read, leniently as Go's yaml.v2 reads them.
//!
//! Null is the zero value of every type. Numbers and truth values take the forms of [`super::scalar`], and none in quotes.
//! A string is the text as written. Of a key that stands twice, the last counts.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use sched_model::cut::shorten;
use sched_model::value::{FieldReader, Record, Text, Value, ValueReader};
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::collection::{Entries, List, Optional};
use super::error::Fault;
use super::read::{KeyText, Reader};
use super::scalar;

/// A place in a document: what stands there is read next.
pub(super) struct At<'a, 'de, D> {
    de: D,
    reader: &'a Reader,
    document: PhantomData<&'de ()>,
}

impl<'a, D> At<'a, '_, D> {
    /// The place at which the parser is.
    pub(super) fn new(de: D, reader: &'a Reader) -> Self {
        Self {
            de,
            reader,
            document: PhantomData,
        }
    }
}

impl<'de, D: Deserializer<'de>> ValueReader for At<'_, 'de, D> {
    type Error = D::Error;

    fn read_text<T: Text>(self) -> Result<T, D::Error> {
        self.read_scalar(T::EXPECTED, Style::Any, T::null, T::parse)
    }

    fn read_int<T: TryFrom<i128> + Default>(self, expected: &'static str) -> Result<T, D::Error> {
        let parse = |text: &str| {
            let value = scalar::int(text).and_then(|value| value.try_into().ok());
            value.ok_or_else(|| Fault::wrong_text(expected, text))
        };
        self.read_scalar(expected, Style::Plain, || Ok(T::default()), parse)
    }

    fn read_bool(self) -> Result<bool, D::Error> {
        let expected = "true or false";
        let parse =
            |text: &str| scalar::boolean(text).ok_or_else(|| Fault::wrong_text(expected, text));
        self.read_scalar(expected, Style::Plain, || Ok(false), parse)
    }

    fn read_optional<T: Value>(self) -> Result<Option<T>, D::Error> {
        self.de.deserialize_option(Optional::new(self.reader))
    }

    fn read_list<T: Value>(self) -> Result<Vec<T>, D::Error> {
        self.de
            .deserialize_option(List::new(self.reader))
            .inspect_err(|_| self.reader.expected("a list"))
    }

    fn read_entries<T: Value>(self) -> Result<BTreeMap<String, T>, D::Error> {
        self.de
            .deserialize_option(Entries::new(self.reader))
            .inspect_err(|_| self.reader.expected("a mapping"))
    }

    fn read_record<T: Record>(self) -> Result<T, D::Error> {
        self.de
            .deserialize_option(RecordVisitor {
                reader: self.reader,
                value: PhantomData,
            })
            .inspect_err(|_| self.reader.expected("a mapping"))
    }
}

impl<'de, D: Deserializer<'de>> At<'_, 'de, D> {
    fn read_scalar<T>(
        self,
        expected: &'static str,
        style: Style,
        null: impl FnOnce() -> Result<T, Fault>,
        parse: impl FnOnce(&str) -> Result<T, Fault>,
    ) -> Result<T, D::Error> {
        self.de
            .deserialize_option(ScalarVisitor {
                reader: self.reader,
                expected,
                style,
                null,
                parse,
                value: PhantomData,
            })
            .inspect_err(|_| self.reader.expected(expected))
    }
}

struct RecordVisitor<'a, T> {
    reader: &'a Reader,
    value: PhantomData<T>,
}

impl<'de, T: Record> Visitor<'de> for RecordVisitor<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_none<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<T, D::Error> {
        de.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let mut record = T::default();
        let mut fields = Fields {
            map,
            reader: self.reader,
            document: PhantomData,
        };
        while let Some(key) = fields.map.next_key_seed(KeyText)? {
            if !record.set(&key, &mut fields)? {
                self.reader.unknown(&key, T::FIELDS);
                fields.map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(record)
    }
}

/// The fields of a mapping, of which a key was read last.
struct Fields<'a, 'de, A> {
    map: A,
    reader: &'a Reader,
    document: PhantomData<&'de ()>,
}

impl<'de, A: MapAccess<'de>> FieldReader for Fields<'_, 'de, A> {
    type Error = A::Error;

    fn read_field<T: Value>(&mut self, key: &str) -> Result<T, A::Error> {
        self.reader.field(key, &mut self.map)
    }
}

/// Which scalars stand for a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Those without quotes: quotes make them text.
    Plain,
    /// All.
    Any,
}

struct ScalarVisitor<'a, T, N, P> {
    reader: &'a Reader,
    expected: &'static str,
    style: Style,
    null: N,
    parse: P,
    value: PhantomData<T>,
}

impl<'de, T, N, P> Visitor<'de> for ScalarVisitor<'_, T, N, P>
where
    N: FnOnce() -> Result<T, Fault>,
    P: FnOnce(&str) -> Result<T, Fault>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_none<E: de::Error>(self) -> Result<T, E> {
        (self.null)().map_err(|fault| self.reader.fail(fault))
    }

    fn visit_unit<E: de::Error>(self) -> Result<T, E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<T, D::Error> {
        match self.style {
            Style::Plain => de.deserialize_any(self),
            Style::Any => de.deserialize_str(self),
        }
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        self.parse(if value { "true" } else { "false" })
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        self.parse(&value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        self.parse(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        self.parse(&format!("{value:e}"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        if self.style == Style::Plain && scalar::was_quoted(text) {
            return Err(self.reader.fail(Fault::WrongType {
                expected: self.expected,
                found: format!("the text \"{}\"", shorten(text)),
            }));
        }
        self.parse(text)
    }
}

impl<T, N, P: FnOnce(&str) -> Result<T, Fault>> ScalarVisitor<'_, T, N, P> {
    fn parse<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.reader.charge(text.len())?;
        (self.parse)(text).map_err(|fault| self.reader.fail(fault))
    }
}
