//! Counts what a value comes to with all aliases followed, without keeping any of it.
//!
//! YAML's aliases let a document of a few lines stand for gigabytes ("billion laughs"). Walking it costs time in
//! proportion to what is allowed, because the walk stops at the limit.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Takes one unit for each value and each byte of text from what is left; `None` once there was too little. A seed and
/// a visitor at once: it visits keys and values alike, and keeps none.
#[derive(Clone, Copy)]
pub(super) struct Weigh<'a> {
    /// Units left; shared by all copies of the visitor.
    pub(super) left: &'a Cell<Option<usize>>,
}

impl Weigh<'_> {
    /// Ends the walk with an error once too little is left. The text of the error does not matter: the caller looks at
    /// `left`.
    fn take<E: Error>(self, amount: usize) -> Result<(), E> {
        let left = self.left.get().and_then(|left| left.checked_sub(amount));
        self.left.set(left);
        left.map(|_| ()).ok_or_else(|| E::custom("too much"))
    }
}

impl<'de> DeserializeSeed<'de> for Weigh<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }
}

/// One method for each kind of value in YAML. Numbers, booleans and nulls weigh one unit, texts their bytes and one,
/// lists and mappings one and what is in them.
impl<'de> Visitor<'de> for Weigh<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.take(1)?;
        while map.next_key_seed(self)?.is_some() {
            map.next_value_seed(self)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.take(1)?;
        while seq.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    /// A tag, and the value behind it.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let ((), value) = tagged.variant_seed(self)?;
        value.newtype_variant_seed(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.take(text.len() + 1)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.take(1)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.take(1)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.take(1)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<(), E> {
        self.take(1)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<(), E> {
        self.take(1)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.take(1)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.take(1)
    }
}
