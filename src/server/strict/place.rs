//! Finds where in a document the value of a key stands, for mistakes that are found after it was read.
//!
//! The YAML library gives the place of an error only, so the place of a value is found by failing there.

use std::fmt;

use proto_frames::payload::Position;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Where the value at this path stands, or the innermost one around it that is there. `None` where the document has no
/// value or the library gives no place. `path` is as in a [`Mistake`](super::Mistake): `aggregates[2].labels.zone`.
/// Parses the document once more; for messages alone.
pub(super) fn find(document: &[u8], path: &str) -> Option<Position> {
    let first = serde_yaml::Deserializer::from_slice(document).next()?;
    let stopped = Find { path }.deserialize(first).err()?;
    stopped.location().map(|at| Position {
        line: at.line(),
        column: at.column(),
    })
}

/// Walks to a value and stops the parser there with an error, whose place is the value's. `path` is what is left of the
/// way.
#[derive(Clone, Copy)]
struct Find<'a> {
    path: &'a str,
}

impl<'a> Find<'a> {
    /// The way on from a mapping through this key, if it leads through it. Keys may have dots in them, so that `a.b`
    /// may be one key or two: the first key of the mapping that fits is taken.
    fn through_key(self, key: &str) -> Option<Self> {
        let path = self.path.strip_prefix(key)?;
        let path = match path.strip_prefix('.') {
            Some(below) => below,
            None if path.is_empty() || path.starts_with('[') => path,
            None => return None,
        };
        Some(Self { path })
    }

    /// The way on from a list, and the index through which it leads. `[2].labels` leads to entry 2, and from there to
    /// `labels`.
    fn through_index(self) -> Option<(usize, Self)> {
        let (index, path) = self.path.strip_prefix('[')?.split_once(']')?;
        let path = path.strip_prefix('.').unwrap_or(path);
        Some((index.parse().ok()?, Self { path }))
    }
}

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

/// Kinds of values that have no method here end the search with serde's own error, which has the same place.
impl<'de> Visitor<'de> for Find<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another value: this is the place")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // An empty path means that this value is the one.
        while !self.path.is_empty() {
            let Some(key) = map.next_key::<String>()? else {
                break;
            };
            match self.through_key(&key) {
                Some(on) => return map.next_value_seed(on),
                None => map.next_value::<IgnoredAny>()?,
            };
        }
        Err(de::Error::custom("here"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if let Some((index, on)) = self.through_index() {
            for _ in 0..index {
                seq.next_element::<IgnoredAny>()?;
            }
            seq.next_element_seed(on)?;
        }
        Err(de::Error::custom("here"))
    }
}
