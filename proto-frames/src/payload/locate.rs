//! Finds where in a document a value stands, for errors that are found after it was read. The YAML library gives the
//! place of an error only, so the place of a value is found by failing there.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::error::{PayloadError, Position};
use super::read::KeyText;

/// Fills in where the value at the error's key stands.
pub(super) fn locate(document: &[u8], mut error: PayloadError) -> PayloadError {
    error.position = position_of(document, &error.key);
    error
}

/// Where the value at this path stands, such as `storage[1].size`; for a missing one, the innermost mapping or list
/// around it. `None` where the document has no value. Parses the document once more.
#[must_use]
pub fn position_of(document: &[u8], path: &str) -> Option<Position> {
    let first = serde_yaml::Deserializer::from_slice(document).next()?;
    let stop = Find { path }.deserialize(first).err()?;
    position(&stop)
}

/// Where the parser stopped.
pub(super) fn position(error: &serde_yaml::Error) -> Option<Position> {
    error.location().map(|at| Position {
        line: at.line(),
        column: at.column(),
    })
}

/// Walks to a value and stops the parser there with an error, whose place is the value's.
struct Find<'a> {
    /// What is left of the path, such as `storage[1].size`; a key in it may have dots of its own.
    path: &'a str,
}

impl Find<'_> {
    /// The rest of the path, if it begins with this key.
    fn inside(&self, key: &str) -> Option<Self> {
        let path = self.path.strip_prefix(key)?;
        match path.strip_prefix('.') {
            Some(path) => Some(Self { path }),
            None if path.is_empty() || path.starts_with('[') => Some(Self { path }),
            None => None,
        }
    }

    /// The rest of the path, if it begins with an index.
    fn at_index(&self) -> Option<(usize, Self)> {
        let (index, path) = self.path.strip_prefix('[')?.split_once(']')?;
        let path = path.strip_prefix('.').unwrap_or(path);
        Some((index.parse().ok()?, Self { path }))
    }
}

/// Stops at a scalar that the path leads to.
macro_rules! visit_scalars {
    ($($visit:ident: $type:ty,)*) => {
        $(fn $visit<E: de::Error>(self, _: $type) -> Result<(), E> {
            self.visit_unit()
        })*
    };
}

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another value: this is the place")
    }

    visit_scalars! {
        visit_bool: bool,
        visit_i64: i64,
        visit_u64: u64,
        visit_f64: f64,
        visit_str: &str,
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        if self.path.is_empty() {
            return Err(de::Error::custom("here"));
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if !self.path.is_empty() {
            while let Some(key) = map.next_key_seed(KeyText)? {
                match self.inside(&key) {
                    // Goes on behind a scalar: the path may mean a longer key, `gpu.a100` beside `gpu`.
                    Some(inside) => map.next_value_seed(inside)?,
                    None => map.next_value::<IgnoredAny>().map(|_| ())?,
                }
            }
        }
        Err(de::Error::custom("here"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if let Some((mut left, entry)) = self.at_index() {
            while left > 0 && seq.next_element::<IgnoredAny>()?.is_some() {
                left -= 1;
            }
            seq.next_element_seed(entry)?;
        }
        Err(de::Error::custom("here"))
    }
}
