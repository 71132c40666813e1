//! Finds where in a document a value stands, for errors that are found after it was read.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::error::{PayloadError, Position};
use super::read::KeyText;

/// Fills in where the value at the error's key stands; for a missing one, the innermost mapping or list around it.
pub(super) fn locate(document: &[u8], mut error: PayloadError) -> PayloadError {
    let steps: Vec<&str> = error
        .key
        .split(['.', '['])
        .map(|step| step.trim_end_matches(']'))
        .collect();
    if let Some(first) = serde_yaml::Deserializer::from_slice(document).next() {
        let stop = Find { steps: &steps }.deserialize(first).err();
        error.position = stop.as_ref().and_then(position);
    }
    error
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
    steps: &'a [&'a str],
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

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if let Some((wanted, rest)) = self.steps.split_first() {
            while let Some(key) = map.next_key_seed(KeyText)? {
                if key == *wanted {
                    return map.next_value_seed(Find { steps: rest });
                }
                map.next_value::<IgnoredAny>()?;
            }
        }
        Err(de::Error::custom("here"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if let Some((wanted, rest)) = self.steps.split_first() {
            let mut left: usize = wanted.parse().map_err(de::Error::custom)?;
            while left > 0 && seq.next_element::<IgnoredAny>()?.is_some() {
                left -= 1;
            }
            seq.next_element_seed(Find { steps: rest })?;
        }
        Err(de::Error::custom("here"))
    }
}
