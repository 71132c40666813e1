//! How values that hold values are read: optional ones, lists, and mappings with any keys.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use sched_model::value::Value;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::error::Fault;
use super::guard::MAX_ENTRIES;
use super::read::{KeyText, Reader};
use super::value::At;

macro_rules! visitors {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name<'a, T> {
                reader: &'a Reader,
                value: PhantomData<T>,
            }

            impl<'a, T> $name<'a, T> {
                /// Reads one.
                pub(super) fn new(reader: &'a Reader) -> Self {
                    Self { reader, value: PhantomData }
                }
            }
        )*
    };
}

visitors! {
    /// A value that may be lacking.
    Optional;
    /// A list; null is an empty one.
    List;
    /// A mapping with any keys; null is an empty one.
    Entries;
}

impl<'de, T: Value> Visitor<'de> for Optional<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or nothing")
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<Option<T>, D::Error> {
        T::read(At::new(de, self.reader)).map(Some)
    }
}

impl<'de, T: Value> Visitor<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_none<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_unit<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<Vec<T>, D::Error> {
        de.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = self.reader.entry(list.len(), &mut seq)? {
            if list.len() == MAX_ENTRIES {
                let max = MAX_ENTRIES;
                return Err(self.reader.fail(Fault::TooManyEntries { max }));
            }
            list.push(value);
        }
        Ok(list)
    }
}

impl<'de, T: Value> Visitor<'de> for Entries<'_, T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_none<E>(self) -> Result<BTreeMap<String, T>, E> {
        Ok(BTreeMap::new())
    }

    fn visit_unit<E>(self) -> Result<BTreeMap<String, T>, E> {
        Ok(BTreeMap::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<BTreeMap<String, T>, D::Error> {
        de.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BTreeMap<String, T>, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key_seed(KeyText)? {
            self.reader.charge(key.len())?;
            let value = self.reader.field(&key, &mut map)?;
            entries.insert(key, value);
            if entries.len() > MAX_ENTRIES {
                let max = MAX_ENTRIES;
                return Err(self.reader.fail(Fault::TooManyEntries { max }));
            }
        }
        Ok(entries)
    }
}
