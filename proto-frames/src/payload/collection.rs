//! Values that hold values: optional ones, lists, and mappings with any keys.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::emit::Emitter;
use super::error::Fault;
use super::guard::MAX_ENTRIES;
use super::read::{KeyText, Reader};
use super::value::{Shape, Value};

impl<T: Value> Value for Option<T> {
    const SHAPE: Shape = T::SHAPE;

    fn read<'de, D: Deserializer<'de>>(de: D, reader: &Reader) -> Result<Self, D::Error> {
        struct Optional<'a, T>(&'a Reader, PhantomData<T>);

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
                T::read(de, self.0).map(Some)
            }
        }

        de.deserialize_option(Optional(reader, PhantomData))
    }

    fn emit(&self, out: &mut Emitter) {
        match self {
            Some(value) => value.emit(out),
            None => out.plain("null"),
        }
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }
}

impl<T: Value> Value for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);

    fn read<'de, D: Deserializer<'de>>(de: D, reader: &Reader) -> Result<Self, D::Error> {
        struct List<'a, T>(&'a Reader, PhantomData<T>);

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
                while let Some(value) = self.0.entry(list.len(), &mut seq)? {
                    if list.len() == MAX_ENTRIES {
                        return Err(self.0.fail(Fault::TooManyEntries { max: MAX_ENTRIES }));
                    }
                    list.push(value);
                }
                Ok(list)
            }
        }

        de.deserialize_option(List(reader, PhantomData))
            .inspect_err(|_| reader.expected("a list"))
    }

    fn emit(&self, out: &mut Emitter) {
        out.list(self, |out, value| value.emit(out));
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Value> Value for BTreeMap<String, T> {
    const SHAPE: Shape = Shape::Entries(&T::SHAPE);

    fn read<'de, D: Deserializer<'de>>(de: D, reader: &Reader) -> Result<Self, D::Error> {
        struct Entries<'a, T>(&'a Reader, PhantomData<T>);

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

            fn visit_some<D: Deserializer<'de>>(
                self,
                de: D,
            ) -> Result<BTreeMap<String, T>, D::Error> {
                de.deserialize_map(self)
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<BTreeMap<String, T>, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(key) = map.next_key_seed(KeyText)? {
                    self.0.charge(key.len())?;
                    let value = self.0.field(&key, &mut map)?;
                    entries.insert(key, value);
                    if entries.len() > MAX_ENTRIES {
                        return Err(self.0.fail(Fault::TooManyEntries { max: MAX_ENTRIES }));
                    }
                }
                Ok(entries)
            }
        }

        de.deserialize_option(Entries(reader, PhantomData))
            .inspect_err(|_| reader.expected("a mapping"))
    }

    fn emit(&self, out: &mut Emitter) {
        out.mapping(|out| {
            for (key, value) in self {
                out.any_key(key);
                value.emit(out);
            }
        });
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}
