//! How much a peer may make us hold: every length on the wire is compared with one of these before memory is taken.

/// Largest payload a frame may carry, in bytes, unless set otherwise.
///
/// A START with 20 KiB of cloud-init and the STATS of a node with a thousand instances (about 250 KiB) fit with room.
pub const MAX_PAYLOAD_LEN: usize = 4 * 1024 * 1024;

/// Longest payload over the limit whose bytes a server skips, so that the connection goes on, in bytes. A peer that states
/// a longer one does not speak this protocol, or would keep its connection busy for minutes.
pub const MAX_SKIPPED_LEN: usize = 64 * 1024 * 1024;

/// Bytes kept of the beginning of a payload that is skipped: what it is about stands there, if anywhere.
pub const MAX_HEAD_LEN: usize = 16 * 1024;

/// Largest CONNECT message, in bytes: it comes from a peer whose role is not known yet and has no payload.
pub const MAX_CONNECT_LEN: usize = 4 * 1024;

/// Longest trace path: `PathLength` is one byte on the wire.
pub const MAX_TRACE_NODES: usize = 255;

/// Longest trace label in the native encoding, in bytes, where its length is one byte. Longer labels, which only
/// original peers can send, are cut to this when they leave in the native encoding.
pub const MAX_LABEL_LEN: usize = 255;

/// Longest trace label taken from a gob stream, in bytes. The original has no limit; its tools use short names.
pub const MAX_GOB_LABEL_LEN: usize = 4 * 1024;

/// Longest native trace block behind its length field, in bytes: everything at its longest.
pub const MAX_TRACE_BLOCK_LEN: usize =
    1 + 16 + 1 + MAX_LABEL_LEN + 8 + 8 + 1 + MAX_TRACE_NODES * (16 + 4 + 8 + 8);

/// What a gob message may be longer than the largest payload, in bytes: a trace with 255 nodes of 61 bytes and the
/// longest label take 20 KiB; the rest is for fields that this crate does not know.
pub const MAX_GOB_OVERHEAD: usize = 32 * 1024;

/// Type descriptors one gob stream may bring, counting those that are sent again. The five SSNTP structs need nine.
pub const MAX_GOB_TYPES: usize = 64;

/// Fields a struct in a gob stream may have. The largest of the SSNTP structs has nine.
pub const MAX_GOB_FIELDS: usize = 64;

/// How deep an unknown field's types may be nested in a gob value; a descriptor that contains itself is cut here.
pub const MAX_GOB_DEPTH: usize = 16;

/// Largest gob type descriptor message, in bytes. The largest of the SSNTP structs takes 137.
pub const MAX_GOB_DESCRIPTOR_LEN: usize = 4 * 1024;

/// The limits a decoder enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload of a frame, in bytes ([`MAX_PAYLOAD_LEN`] by default).
    pub max_payload_len: usize,
    /// Largest CONNECT message, in bytes ([`MAX_CONNECT_LEN`] by default).
    pub max_connect_len: usize,
    /// Longest payload of a frame that [`crate::Decoder::decode_or_skip`] skips, in bytes; by default none, so that one
    /// over the limit ends the stream.
    pub max_skipped_len: usize,
}

impl Limits {
    /// The most bytes a whole message can take before it is refused: what a reader's buffer must be able to hold.
    #[must_use]
    pub const fn max_message_len(&self) -> usize {
        self.max_payload_len.saturating_add(MAX_GOB_OVERHEAD)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_payload_len: MAX_PAYLOAD_LEN,
            max_connect_len: MAX_CONNECT_LEN,
            max_skipped_len: 0,
        }
    }
}
