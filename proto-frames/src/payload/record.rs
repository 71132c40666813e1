//! The two macros that declare payload types, so that a message's file is its shape and nothing else: `record!` for
//! mappings with known keys, `words!` for values that are one of some words.

/// Declares a struct that is a YAML mapping with known keys, in the order in which they are written.
///
/// `field: Type as "key"` is always written, `as "key" unless empty` only when it is not the empty value; `= value` is
/// what an absent key means (else the type's default). Reading ignores unknown keys.
macro_rules! record {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $(
                $(#[$field_doc:meta])*
                $field:ident: $type:ty as $key:literal $(unless $empty:ident)? $(= $default:expr)?,
            )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::payload::record::record!(@default $($default)?),)* }
            }
        }

        impl $crate::payload::value::Record for $name {
            const FIELDS: &'static [$crate::payload::value::Field] = &[$($crate::payload::value::Field {
                key: $key,
                shape: <$type as $crate::payload::value::Value>::SHAPE,
            }),*];

            fn set<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                key: &str,
                map: &mut A,
                reader: &$crate::payload::read::Reader,
            ) -> Result<bool, A::Error> {
                match key {
                    $($key => self.$field = reader.field($key, map)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn emit_fields(&self, out: &mut $crate::payload::emit::Emitter) {
                $($crate::payload::record::record!(@emit self.$field, $key, out $(, $empty)?);)*
            }
        }

        impl $crate::payload::value::Value for $name {
            const SHAPE: $crate::payload::value::Shape =
                $crate::payload::value::Shape::Record(<Self as $crate::payload::value::Record>::FIELDS);

            fn read<'de, D: serde::Deserializer<'de>>(
                de: D,
                reader: &$crate::payload::read::Reader,
            ) -> Result<Self, D::Error> {
                $crate::payload::value::read_record(de, reader)
            }

            fn emit(&self, out: &mut $crate::payload::emit::Emitter) {
                out.mapping(|out| $crate::payload::value::Record::emit_fields(self, out));
            }

            fn is_empty(&self) -> bool {
                *self == Self::default()
            }
        }
    };
    (@default $default:expr) => { $default };
    (@default) => { Default::default() };
    (@emit $value:expr, $key:literal, $out:ident, empty) => {
        if !$crate::payload::value::Value::is_empty(&$value) {
            $crate::payload::record::record!(@emit $value, $key, $out);
        }
    };
    (@emit $value:expr, $key:literal, $out:ident) => {
        $out.key($key);
        $crate::payload::value::Value::emit(&$value, $out);
    };
}

/// Gives a record `decode` and `encode`: `payload!(Stats, LIMITS)` for one that is the whole document,
/// `payload!(Start under "start", LIMITS)` for one that stands under one key.
macro_rules! payload {
    ($name:ident, $limits:expr) => {
        impl $name {
            /// Reads a payload of this kind; of several documents, the first.
            ///
            /// # Errors
            /// Names the key, the place and what is wrong.
            pub fn decode(payload: &[u8]) -> Result<Self, $crate::payload::PayloadError> {
                $crate::payload::read::decode(payload, $limits)
            }

            /// Writes the payload as original peers write it.
            #[must_use]
            pub fn encode(&self) -> bytes::Bytes {
                let mut out = $crate::payload::emit::Emitter::new();
                $crate::payload::value::Record::emit_fields(self, &mut out);
                out.finish()
            }
        }
    };
    ($name:ident under $key:literal, $limits:expr) => {
        impl $name {
            /// Reads a payload of this kind; of several documents, the first.
            ///
            /// # Errors
            /// Names the key, the place and what is wrong.
            pub fn decode(payload: &[u8]) -> Result<Self, $crate::payload::PayloadError> {
                $crate::payload::read::decode_under($key, payload, $limits)
            }

            /// Writes the payload as original peers write it.
            #[must_use]
            pub fn encode(&self) -> bytes::Bytes {
                let mut out = $crate::payload::emit::Emitter::new();
                out.key($key);
                $crate::payload::value::Value::emit(self, &mut out);
                out.finish()
            }
        }
    };
}

/// Declares an enum of the words that a key may have; any other word survives in `Other`.
macro_rules! words {
    (
        $(#[$doc:meta])*
        pub enum $name:ident {
            $($(#[$word_doc:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$word_doc])* $variant,)*
            /// A word that this version does not know, as it came up to [`MAX_WORD_LEN`]; empty where there was none.
            ///
            /// [`MAX_WORD_LEN`]: crate::payload::cut::MAX_WORD_LEN
            Other(String),
        }

        impl $name {
            /// The words this version knows, in order.
            pub const KNOWN: &'static [&'static str] = &[$($word),*];

            /// The word on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => {
                        let max_len = $crate::payload::cut::MAX_WORD_LEN;
                        Self::Other($crate::payload::cut::cut(other, max_len).into_owned())
                    }
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::payload::value::Scalar for $name {
            const EXPECTED: &'static str = "a word";

            fn parse(text: &str) -> Option<Self> {
                Some(text.into())
            }
        }

        impl $crate::payload::value::Value for $name {
            const SHAPE: $crate::payload::value::Shape = $crate::payload::value::Shape::Text;

            fn read<'de, D: serde::Deserializer<'de>>(
                de: D,
                reader: &$crate::payload::read::Reader,
            ) -> Result<Self, D::Error> {
                $crate::payload::value::read_scalar(de, reader)
            }

            fn emit(&self, out: &mut $crate::payload::emit::Emitter) {
                out.string(self.as_str());
            }

            fn is_empty(&self) -> bool {
                self.as_str().is_empty()
            }
        }
    };
}

pub(super) use {payload, record, words};
