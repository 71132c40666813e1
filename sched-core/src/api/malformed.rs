//! A payload that could not be read: whose fault that is, and what it names all the same.

use crate::api::ids::InstanceId;
use crate::api::text::ShortText;

/// Whose fault a bad payload is, in the protocol's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The payload is longer than any may be; it was not kept.
    TooLong,
    /// It is not YAML of the right shape: `invalid_payload`.
    Payload,
    /// A value is missing or absurd: `invalid_data`.
    Data,
}

/// A payload that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Whose fault.
    pub fault: Fault,
    /// The instance it is about, where that much could be read.
    pub instance: Option<InstanceId>,
    /// The node that it is for and the volume that it is about, as far as a command names them and they could be read;
    /// else empty.
    pub node: Box<str>,
    /// See `node`.
    pub volume: Box<str>,
    /// Key, line and reason, for people.
    pub detail: ShortText,
}

impl Malformed {
    /// One that names neither a node nor a volume.
    #[must_use]
    pub fn new(fault: Fault, instance: Option<InstanceId>, detail: ShortText) -> Self {
        let (node, volume) = Default::default();
        Self {
            fault,
            instance,
            node,
            volume,
            detail,
        }
    }
}
