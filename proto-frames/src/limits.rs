//! How much a peer may make us hold: every length on the wire is compared with one of these before memory is taken.

/// Largest payload a frame may carry, in bytes, unless set otherwise.
///
/// A START with 20 KiB of cloud-init and the STATS of a node with a thousand instances (about 250 KiB) fit with room.
pub const MAX_PAYLOAD_LEN: usize = 4 * 1024 * 1024;

/// Largest CONNECT message, in bytes: it comes from a peer whose role is not known yet and has no payload.
pub const MAX_CONNECT_LEN: usize = 4 * 1024;

/// Longest trace path: `PathLength` is one byte on the wire.
pub const MAX_TRACE_NODES: usize = 255;

/// Longest trace label, in bytes: its length is one byte in the native encoding.
pub const MAX_LABEL_LEN: usize = 255;

/// Type descriptors one gob stream may define. The five SSNTP structs need nine.
pub const MAX_GOB_TYPES: usize = 64;

/// Largest gob type descriptor message, in bytes. The largest of the SSNTP structs takes about 120.
pub const MAX_GOB_DESCRIPTOR_LEN: usize = 4 * 1024;

/// The limits a decoder enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload of a frame, in bytes ([`MAX_PAYLOAD_LEN`] by default).
    pub max_payload_len: usize,
    /// Largest CONNECT message, in bytes ([`MAX_CONNECT_LEN`] by default).
    pub max_connect_len: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_payload_len: MAX_PAYLOAD_LEN,
            max_connect_len: MAX_CONNECT_LEN,
        }
    }
}
