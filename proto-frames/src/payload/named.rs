//! What a payload names although it cannot be used, so that its sender can be told what the refusal is about.
//!
//! Lenient where all other readers are strict: a value of the wrong type, an unknown key and a document that breaks
//! off hide only themselves. A key that stands twice leaves a choice and names nothing.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::read::KeyText;

/// The texts at these keys of the mapping under `top`, as far as they can be read. Costs one pass over the document; no
/// alias is expanded.
#[must_use]
pub fn texts_under<const N: usize>(
    document: &[u8],
    top: &str,
    keys: [&str; N],
) -> [Option<String>; N] {
    let found = RefCell::new([const { Found::Nothing }; N]);
    if let Some(first) = serde_yaml::Deserializer::from_slice(document).next() {
        let (keys, found) = (&keys, &found);
        // Where the document breaks off, what was read before it stays.
        drop(Walk::Top { top, keys, found }.deserialize(first));
    }
    found.into_inner().map(|found| match found {
        Found::Text(text) => Some(text),
        Found::Nothing | Found::Several => None,
    })
}

enum Found {
    Nothing,
    Text(String),
    /// The key stood twice.
    Several,
}

/// A mapping that is looked into.
enum Walk<'a, const N: usize> {
    /// The document.
    Top {
        top: &'a str,
        keys: &'a [&'a str; N],
        found: &'a RefCell<[Found; N]>,
    },
    /// What stands under its key.
    Below {
        keys: &'a [&'a str; N],
        found: &'a RefCell<[Found; N]>,
    },
}

/// Passes over scalars.
macro_rules! visit_scalars {
    ($($visit:ident: $type:ty,)*) => {
        $(fn $visit<E: de::Error>(self, _: $type) -> Result<(), E> {
            Ok(())
        })*
    };
}

impl<'de, const N: usize> DeserializeSeed<'de> for Walk<'_, N> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Walk<'_, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    visit_scalars! {
        visit_bool: bool,
        visit_i64: i64,
        visit_u64: u64,
        visit_f64: f64,
        visit_str: &str,
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(KeyText)? {
            match self {
                Self::Top { top, keys, found } if key == top => {
                    map.next_value_seed(Walk::Below { keys, found })?;
                }
                Self::Below { keys, found } if keys.contains(&&*key) => {
                    let text = map.next_value_seed(AnyText)?;
                    let at = keys.iter().position(|it| **it == key).unwrap_or_default();
                    let place = &mut found.borrow_mut()[at];
                    *place = match (&place, text) {
                        (Found::Nothing, Some(text)) => Found::Text(text),
                        _ => Found::Several,
                    };
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A text, or anything else, which is passed over.
struct AnyText;

impl<'de> DeserializeSeed<'de> for AnyText {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Option<String>, D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyText {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Option<String>, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Option<String>, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<String>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<String>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::texts_under;

    #[test]
    fn what_can_be_read_is_named_whatever_else_is_wrong() {
        for (document, found) in [
            ("x: {a: one, b: two}\n", [Some("one"), Some("two")]),
            ("x:\n  b: two\n  c: [\n", [None, Some("two")]),
            ("x:\n  a: [1]\n  b: two\n", [None, Some("two")]),
            ("x:\n  a: one\n  a: one\n  b: {c: d}\n", [None, None]),
            ("x: {a: ~, b: 7}\n", [None, Some("7")]),
            ("y: {a: one}\nx: {}\n", [None, None]),
            ("x: one\n", [None, None]),
            ("- x\n", [None, None]),
            ("", [None, None]),
            ("x: {c: {a: one}}\n", [None, None]),
            ("x: {<<: {a: one}, b: two}\n", [None, Some("two")]),
            ("x: {b: two}\n---\nx: {a: one}\n", [None, Some("two")]),
        ] {
            let texts = texts_under(document.as_bytes(), "x", ["a", "b"]);
            assert_eq!(texts.each_ref().map(Option::as_deref), found, "{document}");
        }
    }

    #[test]
    fn aliases_cost_no_more_than_they_are_written() {
        let mut bomb = "x: &l0 [lol]\n".to_owned();
        for level in 1..20 {
            let before = format!("*l{}, ", level - 1).repeat(10);
            bomb += &format!("k{level}: &l{level} [{before}]\n");
        }
        bomb += "start: {a: *l19, b: two}\n";
        let [a, b] = texts_under(bomb.as_bytes(), "start", ["a", "b"]);
        assert_eq!((a, b.as_deref()), (None, Some("two")));
    }
}
