//! What makes a record a payload: a document of its own, with a key it stands under and a limit.

use bytes::Bytes;

use super::error::PayloadError;

/// A payload: a document of its own.
pub trait Payload: Sized {
    /// Reads a payload of this kind; of several documents, the first.
    ///
    /// # Errors
    /// Names the key, the place and what is wrong.
    fn decode(payload: &[u8]) -> Result<Self, PayloadError>;

    /// Writes the payload as original peers write it.
    #[must_use]
    fn encode(&self) -> Bytes;
}

/// Makes a record a [`Payload`]: `payload!(Stats, LIMITS)` for one that is the whole document,
/// `payload!(Delete under "delete", LIMITS)` for one that stands under one key.
macro_rules! payload {
    ($name:ident, $limits:expr) => {
        impl $crate::payload::Payload for $name {
            fn decode(payload: &[u8]) -> Result<Self, $crate::payload::PayloadError> {
                $crate::payload::read::decode(payload, $limits)
            }

            fn encode(&self) -> bytes::Bytes {
                let mut out = $crate::payload::emit::Emitter::new();
                sched_model::value::Record::write_fields(self, &mut out);
                out.finish()
            }
        }
    };
    ($name:ident under $key:literal, $limits:expr) => {
        impl $crate::payload::Payload for $name {
            fn decode(payload: &[u8]) -> Result<Self, $crate::payload::PayloadError> {
                $crate::payload::read::decode_under($key, payload, $limits)
            }

            fn encode(&self) -> bytes::Bytes {
                let mut out = $crate::payload::emit::Emitter::new();
                sched_model::value::ValueWriter::write_field(&mut out, $key, self);
                out.finish()
            }
        }
    };
}

pub(super) use payload;
