//! The values that the vocabulary is made of, and what a format must offer so that they can be read and written.
//!
//! A type says which keys it has and what each takes ([`Value`], [`Record`]); [`record!`](crate::record) and
//! [`words!`](crate::words) write that down. A format says how a number, a list or a mapping looks ([`ValueReader`],
//! [`ValueWriter`]). Each type is read and written in every format, and named in none.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::Fault;

/// What a key takes, as data: a document can be checked against it without building its values.
#[derive(Debug)]
pub enum Shape {
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
    /// Any YAML value.
    Any,
}

/// A known key of a mapping.
#[derive(Debug)]
pub struct Field {
    /// The key.
    pub key: &'static str,
    /// What it takes.
    pub shape: Shape,
}

/// A value that can be read and written.
pub trait Value: Sized {
    /// What [`Value::read`] accepts, as data.
    const SHAPE: Shape;

    /// Reads it.
    ///
    /// # Errors
    /// The format's, where something else stands there.
    fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error>;

    /// Writes it behind a key or as an entry of a list.
    fn write<W: ValueWriter>(&self, out: &mut W);

    /// Whether it is what is left out where a key is optional.
    fn is_empty(&self) -> bool;
}

/// A mapping with known keys; implemented by the [`record!`](crate::record) macro.
pub trait Record: Default {
    /// The known keys, in the order in which they are written.
    const FIELDS: &'static [Field];

    /// Reads the value of `key` into its field; leaves the mapping alone and says `false` where it has none.
    ///
    /// # Errors
    /// The format's, where the value is not what the key takes.
    fn set<R: FieldReader>(&mut self, key: &str, fields: &mut R) -> Result<bool, R::Error>;

    /// Writes all keys, in order.
    fn write_fields<W: ValueWriter>(&self, out: &mut W);
}

/// A value that is written as one text; each is a [`Value`].
pub trait Text: Sized {
    /// What it takes, for error messages.
    const EXPECTED: &'static str;

    /// The value of a text.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn parse(text: &str) -> Result<Self, Fault>;

    /// The value where there is no text.
    ///
    /// # Errors
    /// What is wrong with an empty text, where there must be one.
    fn null() -> Result<Self, Fault> {
        Self::parse("")
    }

    /// What is written.
    fn text(&self) -> Cow<'_, str>;

    /// Whether it is [`Text::null`]'s.
    fn is_null(&self) -> bool;
}

impl<T: Text> Value for T {
    const SHAPE: Shape = Shape::Text;

    fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error> {
        reader.read_text()
    }

    fn write<W: ValueWriter>(&self, out: &mut W) {
        out.write_text(&self.text());
    }

    fn is_empty(&self) -> bool {
        self.is_null()
    }
}

/// Reads one value of a document; which one, it knows. Null is the zero value of every type but [`Text`], which says it.
pub trait ValueReader: Sized {
    /// What ends the reading of the document.
    type Error;

    /// Reads a text.
    ///
    /// # Errors
    /// Something else stands there, or the text is not the type's.
    fn read_text<T: Text>(self) -> Result<T, Self::Error>;

    /// Reads a whole number; `expected` says for error messages which ones.
    ///
    /// # Errors
    /// Something else stands there, or a number that the type does not hold.
    fn read_int<T: TryFrom<i128> + Default>(self, expected: &'static str)
    -> Result<T, Self::Error>;

    /// Reads a truth value.
    ///
    /// # Errors
    /// Something else stands there.
    fn read_bool(self) -> Result<bool, Self::Error>;

    /// Reads a value that may be lacking.
    ///
    /// # Errors
    /// Something else stands there.
    fn read_optional<T: Value>(self) -> Result<Option<T>, Self::Error>;

    /// Reads a list.
    ///
    /// # Errors
    /// Something else stands there, or it is too long for the format.
    fn read_list<T: Value>(self) -> Result<Vec<T>, Self::Error>;

    /// Reads a mapping with any keys.
    ///
    /// # Errors
    /// Something else stands there, or it is too long for the format.
    fn read_entries<T: Value>(self) -> Result<BTreeMap<String, T>, Self::Error>;

    /// Reads a mapping with known keys.
    ///
    /// # Errors
    /// Something else stands there.
    fn read_record<T: Record>(self) -> Result<T, Self::Error>;
}

/// Reads the value of the key at which a mapping stands.
pub trait FieldReader {
    /// What ends the reading of the document.
    type Error;

    /// Reads the value of `key`.
    ///
    /// # Errors
    /// The value is not what the key takes.
    fn read_field<T: Value>(&mut self, key: &str) -> Result<T, Self::Error>;
}

/// Writes values into a document, each behind the key or list entry begun last.
pub trait ValueWriter {
    /// Writes a text.
    fn write_text(&mut self, text: &str);

    /// Writes a whole number.
    fn write_int(&mut self, value: i128);

    /// Writes a truth value.
    fn write_bool(&mut self, value: bool);

    /// Writes that there is no value.
    fn write_null(&mut self);

    /// Writes a list.
    fn write_list<T: Value>(&mut self, items: &[T]);

    /// Writes a mapping with any keys.
    fn write_entries<T: Value>(&mut self, entries: &BTreeMap<String, T>);

    /// Writes a mapping with known keys.
    fn write_record<T: Record>(&mut self, record: &T);

    /// Writes a key of the mapping being written, and its value. The key is one of a [`Record`], so never odd text.
    fn write_field<T: Value>(&mut self, key: &str, value: &T);
}

macro_rules! int_value {
    ($($type:ty, $expected:literal;)*) => {
        $(impl Value for $type {
            const SHAPE: Shape = Shape::Int { min: <$type>::MIN as i128, max: <$type>::MAX as i128 };

            fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error> {
                reader.read_int($expected)
            }

            fn write<W: ValueWriter>(&self, out: &mut W) {
                out.write_int(i128::from(*self));
            }

            fn is_empty(&self) -> bool {
                *self == 0
            }
        })*
    };
}

int_value! {
    i64, "a whole number";
    u64, "a whole number from 0";
    u32, "a whole number from 0 to 4294967295";
    u8, "a whole number from 0 to 255";
}

impl Value for bool {
    const SHAPE: Shape = Shape::Bool;

    fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error> {
        reader.read_bool()
    }

    fn write<W: ValueWriter>(&self, out: &mut W) {
        out.write_bool(*self);
    }

    fn is_empty(&self) -> bool {
        !*self
    }
}

impl Text for String {
    const EXPECTED: &'static str = "text";

    fn parse(text: &str) -> Result<Self, Fault> {
        Ok(text.to_owned())
    }

    fn text(&self) -> Cow<'_, str> {
        self.into()
    }

    fn is_null(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Value> Value for Option<T> {
    const SHAPE: Shape = T::SHAPE;

    fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error> {
        reader.read_optional()
    }

    fn write<W: ValueWriter>(&self, out: &mut W) {
        match self {
            Some(value) => value.write(out),
            None => out.write_null(),
        }
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }
}

impl<T: Value> Value for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);

    fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error> {
        reader.read_list()
    }

    fn write<W: ValueWriter>(&self, out: &mut W) {
        out.write_list(self);
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Value> Value for BTreeMap<String, T> {
    const SHAPE: Shape = Shape::Entries(&T::SHAPE);

    fn read<R: ValueReader>(reader: R) -> Result<Self, R::Error> {
        reader.read_entries()
    }

    fn write<W: ValueWriter>(&self, out: &mut W) {
        out.write_entries(self);
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}
