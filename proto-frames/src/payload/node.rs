//! A value of a document, behind an interface that names no type of the parser and none of the vocabulary: the parser's
//! code is there once, and not once for each type that is read with it.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::error::Fault;
use super::guard::MAX_ENTRIES;
use super::read::{KeyText, Reader, Step};
use super::scalar;
use sched_model::cut::shorten;

/// The reading has ended: the fault is noted in the [`Reader`], or the node at which the parser failed holds its error.
#[derive(Debug)]
pub(super) struct Stop;

/// Takes one value.
pub(super) type Read<'a> = dyn FnMut(&mut dyn Node) -> Result<(), Stop> + 'a;

/// Takes a scalar as it was written, or `None` for null.
pub(super) type ReadScalar<'a> = dyn FnMut(Option<&str>) -> Result<(), Stop> + 'a;

/// Takes the value of a key, or says `false` to have it passed over.
pub(super) type ReadEntry<'a> = dyn FnMut(&str, &mut dyn Entry) -> Result<bool, Stop> + 'a;

/// Which scalars stand for a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Those without quotes: quotes make them text.
    Plain,
    /// All.
    Any,
}

/// A value of the document. It can be read once, in one of these ways.
pub(super) trait Node {
    /// As a scalar; `expected` says for error messages which.
    fn scalar(
        &mut self,
        reader: &Reader,
        expected: &'static str,
        style: Style,
        read: &mut ReadScalar<'_>,
    ) -> Result<(), Stop>;

    /// As a value that may be lacking: `read` is called unless it is null.
    fn optional(&mut self, read: &mut Read<'_>) -> Result<(), Stop>;

    /// As a list, of which `read` takes each entry; null is an empty one.
    fn list(&mut self, reader: &Reader, read: &mut Read<'_>) -> Result<(), Stop>;

    /// As a mapping, of which `read` takes each key's value; null is an empty one.
    fn mapping(&mut self, reader: &Reader, read: &mut ReadEntry<'_>) -> Result<(), Stop>;
}

/// The value of a key of a mapping. It can be read once.
pub(super) trait Entry {
    /// Has `read` take it.
    fn value(&mut self, read: &mut Read<'_>) -> Result<(), Stop>;
}

/// The error for the parser where the reading has ended; explained from what the reader has noted.
fn stopped<E: de::Error>() -> E {
    E::custom("stopped")
}

/// A value at which the parser stands.
struct AtParser<D, E> {
    /// `None` once it has been read.
    de: Option<D>,
    error: Option<E>,
}

impl<'de, D: Deserializer<'de>> AtParser<D, D::Error> {
    /// Lets the parser visit the value, and holds its error.
    fn visit<V: Visitor<'de, Value = ()>>(&mut self, visitor: V) -> Result<(), Stop> {
        let de = self.de.take().ok_or(Stop)?;
        de.deserialize_option(visitor).map_err(|error| {
            self.error = Some(error);
            Stop
        })
    }
}

impl<'de, D: Deserializer<'de>> Node for AtParser<D, D::Error> {
    fn scalar(
        &mut self,
        reader: &Reader,
        expected: &'static str,
        style: Style,
        read: &mut ReadScalar<'_>,
    ) -> Result<(), Stop> {
        let visitor = Scalar {
            reader,
            expected,
            style,
            read,
        };
        self.visit(visitor)
            .inspect_err(|_| reader.expected(expected))
    }

    fn optional(&mut self, read: &mut Read<'_>) -> Result<(), Stop> {
        self.visit(Optional(read))
    }

    fn list(&mut self, reader: &Reader, read: &mut Read<'_>) -> Result<(), Stop> {
        self.visit(List { reader, read })
            .inspect_err(|_| reader.expected("a list"))
    }

    fn mapping(&mut self, reader: &Reader, read: &mut ReadEntry<'_>) -> Result<(), Stop> {
        self.visit(Mapping { reader, read })
            .inspect_err(|_| reader.expected("a mapping"))
    }
}

/// Has a value read that the parser reaches.
pub(super) struct Seed<'r, 'a>(pub(super) &'r mut Read<'a>);

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        let mut node = AtParser {
            de: Some(de),
            error: None,
        };
        (self.0)(&mut node).map_err(|Stop| node.error.take().unwrap_or_else(stopped))
    }
}

struct Scalar<'r, 'a> {
    reader: &'r Reader,
    expected: &'static str,
    style: Style,
    read: &'r mut ReadScalar<'a>,
}

impl Scalar<'_, '_> {
    fn text<E: de::Error>(self, text: &str) -> Result<(), E> {
        let charged = self.reader.charge(1 + text.len());
        charged
            .and_then(|()| (self.read)(Some(text)))
            .map_err(|Stop| stopped())
    }
}

impl<'de> Visitor<'de> for Scalar<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        let charged = self.reader.charge(1);
        charged
            .and_then(|()| (self.read)(None))
            .map_err(|Stop| stopped())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        match self.style {
            Style::Plain => de.deserialize_any(self),
            Style::Any => de.deserialize_str(self),
        }
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.text(if value { "true" } else { "false" })
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.text(&value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.text(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.text(&format!("{value:e}"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        if self.style == Style::Plain && scalar::was_quoted(text) {
            let Stop = self.reader.fail(Fault::WrongType {
                expected: self.expected,
                found: format!("the text \"{}\"", shorten(text)),
            });
            return Err(stopped());
        }
        self.text(text)
    }
}

struct Optional<'r, 'a>(&'r mut Read<'a>);

impl<'de> Visitor<'de> for Optional<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or nothing")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        Seed(self.0).deserialize(de)
    }
}

struct List<'r, 'a> {
    reader: &'r Reader,
    read: &'r mut Read<'a>,
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut len = 0;
        loop {
            let next = self
                .reader
                .inside(Step::Index(len), || seq.next_element_seed(Seed(self.read)));
            if next?.is_none() {
                return Ok(());
            }
            self.reader.charge(1).map_err(|Stop| stopped())?;
            if len == MAX_ENTRIES {
                let max = MAX_ENTRIES;
                let Stop = self.reader.fail(Fault::TooManyEntries { max });
                return Err(stopped());
            }
            len += 1;
        }
    }
}

struct Mapping<'r, 'a> {
    reader: &'r Reader,
    read: &'r mut ReadEntry<'a>,
}

impl<'de> Visitor<'de> for Mapping<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(KeyText)? {
            self.reader
                .charge(1 + key.len())
                .map_err(|Stop| stopped())?;
            let mut entry = AtValue {
                map: &mut map,
                error: None,
            };
            match (self.read)(&key, &mut entry) {
                Ok(true) => {}
                Ok(false) => drop(map.next_value::<de::IgnoredAny>()?),
                Err(Stop) => return Err(entry.error.take().unwrap_or_else(stopped)),
            }
        }
        Ok(())
    }
}

/// A mapping of which the parser has read a key.
struct AtValue<'m, A, E> {
    map: &'m mut A,
    error: Option<E>,
}

impl<'de, A: MapAccess<'de>> Entry for AtValue<'_, A, A::Error> {
    fn value(&mut self, read: &mut Read<'_>) -> Result<(), Stop> {
        self.map.next_value_seed(Seed(read)).map_err(|error| {
            self.error = Some(error);
            Stop
        })
    }
}
