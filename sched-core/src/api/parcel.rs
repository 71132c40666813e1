//! What the core carries from one peer to another and never looks into.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sched_model::Uuid;

/// What the server calls something that a peer sent. The core compares such tags and hands them back; what they say is the
/// server's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u32);

/// Something that a peer sent, as it is carried on: moved and handed back, never looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// What the server calls it.
    pub tag: Tag,
    /// Bytes of payload that native peers take of its like at most; original peers take any number.
    pub native_limit: u32,
    /// The peer that first sent it.
    pub origin: Uuid,
    /// The path that it takes, where its first sender asked for one.
    pub trace: Option<Sealed>,
    /// The payload, byte for byte as it came.
    pub payload: Bytes,
}

impl Parcel {
    /// Whether native peers do not take it, because its payload is too long.
    pub(crate) fn is_too_long_for_natives(&self) -> bool {
        self.payload.len() > self.native_limit as usize
    }
}

/// A value of the server's that the core keeps and hands back. Two are equal if they are the same one.
#[derive(Clone)]
pub struct Sealed(Arc<dyn Any + Send + Sync>);

impl Sealed {
    /// Seals a value.
    #[must_use]
    pub fn new(value: impl Any + Send + Sync) -> Self {
        Self(Arc::new(value))
    }

    /// The value, if it is of this type.
    #[must_use]
    pub fn open<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for Sealed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Sealed {}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed")
    }
}
