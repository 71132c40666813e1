//! The two macros that declare types of the vocabulary, so that a type's file is its shape and nothing else:
//! [`record!`](crate::record) for mappings with known keys, [`words!`](crate::words) for values that are one of some
//! words.

/// Declares a struct that is a mapping with known keys, in the order in which they are written.
///
/// `field: Type as "key"` is always written, `as "key" unless empty` only when it is not the empty value; `= value` is
/// what an absent key means (else the type's default). Reading ignores unknown keys.
#[macro_export]
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
                Self { $($field: $crate::record!(@default $($default)?),)* }
            }
        }

        impl $crate::value::Record for $name {
            const FIELDS: &'static [$crate::value::Field] = &[$($crate::value::Field {
                key: $key,
                shape: <$type as $crate::value::Value>::SHAPE,
            }),*];

            fn set<R: $crate::value::FieldReader>(
                &mut self,
                key: &str,
                fields: &mut R,
            ) -> Result<bool, R::Error> {
                match key {
                    $($key => self.$field = fields.read_field($key)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn write_fields<W: $crate::value::ValueWriter>(&self, out: &mut W) {
                $($crate::record!(@write self.$field, $key, out $(, $empty)?);)*
            }
        }

        impl $crate::value::Value for $name {
            const SHAPE: $crate::value::Shape =
                $crate::value::Shape::Record(<Self as $crate::value::Record>::FIELDS);

            fn read<R: $crate::value::ValueReader>(reader: R) -> Result<Self, R::Error> {
                reader.read_record()
            }

            fn write<W: $crate::value::ValueWriter>(&self, out: &mut W) {
                out.write_record(self);
            }

            fn is_empty(&self) -> bool {
                *self == Self::default()
            }
        }
    };
    (@default $default:expr) => { $default };
    (@default) => { Default::default() };
    (@write $value:expr, $key:literal, $out:ident, empty) => {
        if !$crate::value::Value::is_empty(&$value) {
            $out.write_field($key, &$value);
        }
    };
    (@write $value:expr, $key:literal, $out:ident) => {
        $out.write_field($key, &$value);
    };
}

/// Declares an enum of the words that a key may have; any other word survives in `Other`, up to
/// [`MAX_WORD_LEN`](crate::cut::MAX_WORD_LEN) bytes of it.
#[macro_export]
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
            /// A word that this version does not know, as it came up to `MAX_WORD_LEN`; empty where there was none.
            Other(String),
        }

        impl $name {
            /// The words this version knows, in order.
            pub const KNOWN: &'static [&'static str] = &[$($word),*];

            /// The word as it is written.
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
                        let max_len = $crate::cut::MAX_WORD_LEN;
                        Self::Other($crate::cut::cut(other, max_len).into_owned())
                    }
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::value::Text for $name {
            const EXPECTED: &'static str = "a word";

            fn parse(text: &str) -> Result<Self, $crate::Fault> {
                Ok(text.into())
            }

            fn text(&self) -> std::borrow::Cow<'_, str> {
                self.as_str().into()
            }

            fn is_null(&self) -> bool {
                self.as_str().is_empty()
            }
        }
    };
}
