//! A frame: what travels in both directions once a connection stands.

use bytes::Bytes;
use uuid::Uuid;

use crate::kind::Kind;
use crate::trace::Trace;

/// Protocol version of a frame. Bit 7 of the major byte on the wire is not part of it: it says that the frame carries
/// a path trace ([`Trace::path`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Major version, 7 bits; 0 today.
    pub major: u8,
    /// Minor version; 1 today.
    pub minor: u8,
}

impl Version {
    /// The version this crate speaks: 0.1.
    pub const CURRENT: Self = Self { major: 0, minor: 1 };
}

/// Any message but CONNECT and CONNECTED. The payload is opaque here; see [`crate::payload`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Protocol version.
    pub version: Version,
    /// Type and operand.
    pub kind: Kind,
    /// The peer that first sent the frame; it survives forwarding. In the native encoding only a trace block carries
    /// it: a frame without one decodes to nil here, which means the peer at the other end of the connection.
    pub origin: Uuid,
    /// Label and path trace, where the first sender asked for one.
    pub trace: Option<Box<Trace>>,
    /// The payload, byte for byte as it came.
    pub payload: Bytes,
}

impl Frame {
    /// A frame of the current version without a trace.
    #[must_use]
    pub fn new(kind: Kind, origin: Uuid, payload: impl Into<Bytes>) -> Self {
        Self {
            version: Version::CURRENT,
            kind,
            origin,
            trace: None,
            payload: payload.into(),
        }
    }
}
