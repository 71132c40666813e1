//! The values that payloads are made of: how each is read, leniently as Go's yaml.v2 reads it, and how it is written.
//!
//! Null is the zero value of every type. Numbers and truth values take the forms of [`super::scalar`], and none in quotes.
//! A string is the text as written. Of a key that stands twice, the last counts.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::emit::Emitter;
use super::error::Fault;
use super::read::{KeyText, Reader, shorten};
use super::scalar;

/// What a key takes, as data: the peeks check a document against it without building its values.
pub(super) enum Shape {
    /// Any scalar.
    Text,
    /// A truth value.
    Bool,
    /// A whole number within these bounds.
    Int {
        /// Smallest.
        min: i128,
        /// Largest.
        max: i128,
    },
    /// A mapping with known keys.
    Record(&'static [Field]),
    /// A mapping with any keys, whose values all take this.
    Entries(&'static Shape),
    /// A list whose entries all take this.
    List(&'static Shape),
    /// Anything.
    Any,
}

/// A known key of a mapping.
pub(super) struct Field {
    /// The key.
    pub(super) key: &'static str,
    /// What it takes.
    pub(super) shape: Shape,
}

/// A value of a payload.
pub(super) trait Value: Sized {
    /// What [`Value::read`] accepts, as data.
    const SHAPE: Shape;

    /// Reads it.
    fn read<'de, D: Deserializer<'de>>(de: D, reader: &Reader) -> Result<Self, D::Error>;

    /// Writes it behind a key or a dash.
    fn emit(&self, out: &mut Emitter);

    /// Whether it is what is left out where a key is optional.
    fn is_empty(&self) -> bool;
}

/// A mapping with known keys; written by the `record!` macro.
pub(super) trait Record: Default {
    /// The known keys, in the order in which they are written.
    const FIELDS: &'static [Field];

    /// Reads the value of `key` into its field; leaves the map alone and says `false` where it has none.
    fn set<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
        reader: &Reader,
    ) -> Result<bool, A::Error>;

    /// Writes all keys, in order.
    fn emit_fields(&self, out: &mut Emitter);
}

/// A value that is one scalar.
pub(super) trait Scalar: Default {
    /// What it takes, for error messages.
    const EXPECTED: &'static str;

    /// Whether quotes make it something else: text.
    const IS_PLAIN: bool = false;

    /// The value of a scalar's text.
    fn parse(text: &str) -> Option<Self>;
}

/// Reads a record; null is one with its default values.
pub(super) fn read_record<'de, T: Record, D: Deserializer<'de>>(
    de: D,
    reader: &Reader,
) -> Result<T, D::Error> {
    de.deserialize_option(RecordVisitor {
        reader,
        value: PhantomData,
    })
    .inspect_err(|_| reader.expected("a mapping"))
}

/// Reads a scalar; null is its zero value.
pub(super) fn read_scalar<'de, T: Scalar, D: Deserializer<'de>>(
    de: D,
    reader: &Reader,
) -> Result<T, D::Error> {
    de.deserialize_option(ScalarVisitor {
        reader,
        value: PhantomData,
    })
    .inspect_err(|_| reader.expected(T::EXPECTED))
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

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut record = T::default();
        while let Some(key) = map.next_key_seed(KeyText)? {
            if !record.set(&key, &mut map, self.reader)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(record)
    }
}

struct ScalarVisitor<'a, T> {
    reader: &'a Reader,
    value: PhantomData<T>,
}

impl<'de, T: Scalar> Visitor<'de> for ScalarVisitor<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_none<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<T, D::Error> {
        if T::IS_PLAIN {
            de.deserialize_any(self)
        } else {
            de.deserialize_str(self)
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
        if T::IS_PLAIN && scalar::was_quoted(text) {
            return Err(self.reader.fail(Fault::WrongType {
                expected: T::EXPECTED,
                found: format!("the text \"{}\"", shorten(text)),
            }));
        }
        self.parse(text)
    }
}

impl<T: Scalar> ScalarVisitor<'_, T> {
    fn parse<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.reader.charge(text.len())?;
        T::parse(text).ok_or_else(|| {
            self.reader.fail(Fault::WrongType {
                expected: T::EXPECTED,
                found: format!("`{}`", shorten(text)),
            })
        })
    }
}

macro_rules! scalar_value {
    ($type:ty, $shape:expr, $expected:literal, plain: $plain:literal, |$text:ident| $parse:expr, |$value:ident, $out:ident| $emit:expr, $empty:expr) => {
        impl Scalar for $type {
            const EXPECTED: &'static str = $expected;
            const IS_PLAIN: bool = $plain;

            fn parse($text: &str) -> Option<Self> {
                $parse
            }
        }

        impl Value for $type {
            const SHAPE: Shape = $shape;

            fn read<'de, D: Deserializer<'de>>(de: D, reader: &Reader) -> Result<Self, D::Error> {
                read_scalar(de, reader)
            }

            fn emit(&self, $out: &mut Emitter) {
                let $value = self;
                $emit
            }

            fn is_empty(&self) -> bool {
                *self == $empty
            }
        }
    };
}

macro_rules! int_value {
    ($($type:ty, $expected:literal;)*) => {
        $(scalar_value!(
            $type,
            Shape::Int { min: <$type>::MIN as i128, max: <$type>::MAX as i128 },
            $expected,
            plain: true,
            |text| scalar::int(text).and_then(|value| value.try_into().ok()),
            |value, out| out.int(i128::from(*value)),
            0
        );)*
    };
}

int_value! {
    i64, "a whole number";
    u64, "a whole number from 0";
    u32, "a whole number from 0 to 4294967295";
    u8, "a whole number from 0 to 255";
}
scalar_value!(
    bool,
    Shape::Bool,
    "true or false",
    plain: true,
    |text| scalar::boolean(text),
    |value, out| out.plain(if *value { "true" } else { "false" }),
    false
);
scalar_value!(
    String,
    Shape::Text,
    "text",
    plain: false,
    |text| Some(text.to_owned()),
    |value, out| out.string(value),
    *""
);
