//! What makes a record a payload: a document of its own.

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
                sched_model::value::Record::write_fields(self, &mut out);
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
                sched_model::value::ValueWriter::write_field(&mut out, $key, self);
                out.finish()
            }
        }
    };
}

pub(super) use payload;
