//! The values that strict parts of files are made of. Nothing at all (null) is no value of any of them.
//!
//! ```text
//! Plain<T>        one scalar          Mapping<T>   a section with known keys
//! List<T, MAX>    a bounded list      Pairs<K, V>  a mapping with keys of the author's choice
//! Maybe<T>        may be missing      Named<T>     a section, or in short its name
//! ```
//!
//! All refuse `null` with what was expected, because serde alone takes it for an empty section or a missing value, and
//! a line such as `nodes:` with nothing behind it is more likely a mistake.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{NOTHING, shorten};

/// A value that is one scalar, read from its text as written, quoted or not.
pub(in crate::server) trait Scalar: Sized {
    /// What it may be, in words that follow "expected": `a whole number from 1`.
    const EXPECTED: &'static str;

    /// The value of a scalar's text. YAML's own types play no part: `1`, `"1"` and `0x1` are texts of which this
    /// decides.
    ///
    /// # Errors
    /// What is wrong; [`unexpected`] where there is nothing more precise to say.
    fn parse(text: &str) -> Result<Self, String>;
}

/// What is said of a text that is none of what `T` may be. For the `Err` of [`Scalar::parse`].
pub(in crate::server) fn unexpected<T: Scalar>(text: &str) -> String {
    format!("expected {}, found `{}`", T::EXPECTED, shorten(text))
}

/// Declares scalars: what they hold, what they may be in words, and how they are read. One line each: a newtype with a
/// public field, [`Scalar`] for it, and the text that its errors show.
macro_rules! scalars {
    ($($(#[$doc:meta])* $name:ident($type:ty): $expected:literal, |$text:ident| $parse:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub(in crate::server) struct $name(pub(in crate::server) $type);

        impl $crate::server::strict::Scalar for $name {
            const EXPECTED: &'static str = $expected;

            fn parse($text: &str) -> Result<Self, String> {
                $parse
            }
        }
    )*};
}

pub(in crate::server) use scalars;

/// A scalar as a value of a file: a newtype, because a blanket `Deserialize` for every [`Scalar`] is not possible.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) struct Plain<T>(pub(in crate::server) T);

/// A mapping with known keys as a value of a file: serde alone takes an empty value for an empty mapping.
#[derive(Debug)]
pub(in crate::server) struct Mapping<T>(pub(in crate::server) T);

/// A list of at most `MAX` entries. The limit is checked before an entry is kept.
#[derive(Debug)]
pub(in crate::server) struct List<T, const MAX: usize>(pub(in crate::server) Vec<T>);

/// A mapping with any keys, each at most once, in the order of the file, at most `MAX` of them. Keys are compared one
/// by one, so `MAX` is to be small.
#[derive(Debug)]
pub(in crate::server) struct Pairs<K, V, const MAX: usize>(pub(in crate::server) Vec<(K, V)>);

/// The value of a key that may be left out, but not empty: serde's `Option` takes an empty value for none.
#[derive(Debug)]
pub(in crate::server) struct Maybe<T>(pub(in crate::server) Option<T>);

/// A mapping with known keys, or in short the value of one of them.
#[derive(Debug)]
pub(in crate::server) struct Named<T>(pub(in crate::server) T);

/// What may be given by its name alone, such as a filter: its name for `{name: …}` with everything else as usual.
pub(in crate::server) trait ByName: Sized {
    /// What it may be, in words.
    const EXPECTED: &'static str;

    /// The one with this name and everything else as usual.
    fn by_name(name: &str) -> Self;
}

/// Reads the value of a key that must be there. Named for a field (`deserialize_with`), it makes serde say which key is
/// missing; without it serde takes a missing key for one that has nothing behind it.
pub(in crate::server) fn required<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    de: D,
) -> Result<T, D::Error> {
    T::deserialize(de)
}

/// How the value behind a wrapper is read once something is there. `expected` is what errors say should be there.
trait Read<'de>: Sized {
    fn expected() -> String;
    fn read<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error>;
}

/// Refuses nothing at all, and reads what is there. A visitor for an option whose inner value is read by [`Read`].
struct Something<T>(PhantomData<T>);

impl<'de, T: Read<'de>> Visitor<'de> for Something<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::expected())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<T, D::Error> {
        T::read(de)
    }

    fn visit_none<E: Error>(self) -> Result<T, E> {
        let expected = T::expected();
        Err(E::custom(format_args!(
            "expected {expected}, found {NOTHING}"
        )))
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        self.visit_none()
    }
}

/// As an option first, so that null is seen as such, then as text.
impl<'de, T: Scalar> Deserialize<'de> for Plain<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        de.deserialize_option(Something(PhantomData))
    }
}

impl<'de, T: Scalar> Read<'de> for Plain<T> {
    fn expected() -> String {
        T::EXPECTED.to_owned()
    }

    fn read<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);

        impl<T: Scalar> Visitor<'_> for Text<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
                T::parse(text).map_err(E::custom)
            }
        }

        de.deserialize_str(Text(PhantomData)).map(Self)
    }
}

/// An empty value is a mistake, and `{}` is a mapping without keys.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for Mapping<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        de.deserialize_option(Something(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Read<'de> for Mapping<T> {
    fn expected() -> String {
        "a mapping".to_owned()
    }

    fn read<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        T::deserialize(de).map(Self)
    }
}

/// `[]` is a list; an empty value is a mistake.
impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        de.deserialize_option(Something(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Read<'de> for List<T, MAX> {
    fn expected() -> String {
        format!("a list of at most {MAX} entries")
    }

    fn read<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct Entries<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Entries<T, MAX> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    if list.len() == MAX {
                        let problem = format_args!("expected a list of at most {MAX} entries");
                        return Err(A::Error::custom(problem));
                    }
                    list.push(entry);
                }
                Ok(list)
            }
        }

        de.deserialize_seq(Entries::<T, MAX>(PhantomData)).map(Self)
    }
}

impl<'de, K, V, const MAX: usize> Deserialize<'de> for Pairs<K, V, MAX>
where
    K: Scalar + PartialEq,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        de.deserialize_option(Something(PhantomData))
    }
}

impl<'de, K, V, const MAX: usize> Read<'de> for Pairs<K, V, MAX>
where
    K: Scalar + PartialEq,
    V: Deserialize<'de>,
{
    fn expected() -> String {
        "a mapping".to_owned()
    }

    fn read<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct Keys<K, V, const MAX: usize>(PhantomData<(K, V)>);

        impl<'de, K, V, const MAX: usize> Visitor<'de> for Keys<K, V, MAX>
        where
            K: Scalar + PartialEq,
            V: Deserialize<'de>,
        {
            type Value = Vec<(K, V)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<(K, V)>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(key) = map.next_key_seed(Unseen::<_, _, MAX>(&pairs))? {
                    let value = map.next_value()?;
                    pairs.push((key, value));
                }
                Ok(pairs)
            }
        }

        de.deserialize_map(Keys::<K, V, MAX>(PhantomData)).map(Self)
    }
}

/// Reads a key of [`Pairs`] and refuses one that is among these already, or one more than `MAX`.
struct Unseen<'a, K, V, const MAX: usize>(&'a [(K, V)]);

impl<'de, K: Scalar + PartialEq, V, const MAX: usize> DeserializeSeed<'de>
    for Unseen<'_, K, V, MAX>
{
    type Value = K;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<K, D::Error> {
        de.deserialize_str(self)
    }
}

impl<K: Scalar + PartialEq, V, const MAX: usize> Visitor<'_> for Unseen<'_, K, V, MAX> {
    type Value = K;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(K::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<K, E> {
        let key = K::parse(text).map_err(E::custom)?;
        if self.0.len() == MAX {
            // Before the key is kept: a document cannot make the list longer than the limit.
            let problem = format_args!("expected at most {MAX} keys here");
            return Err(E::custom(problem));
        }
        if self.0.iter().any(|(seen, _)| *seen == key) {
            return Err(E::custom("stands twice"));
        }
        Ok(key)
    }
}

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self(None)
    }
}

/// Called only where the key is there; a missing one is [`Default`], by serde's `default` on the field.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        T::deserialize(de).map(|value| Self(Some(value)))
    }
}

/// A text is taken for the name, a mapping for all of it; anything else is refused with what is expected.
impl<'de, T: ByName + Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: ByName + Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
                Ok(T::by_name(name))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        de.deserialize_any(Either(PhantomData)).map(Self)
    }
}
