//! Frames whose payload is too long: refused alone, their bytes thrown away as they come.

use bytes::{Buf, Bytes, BytesMut};

use super::{DecodeError, Message, within};
use crate::kind::Kind;
use crate::limits::{Limits, MAX_HEAD_LEN};

/// What [`crate::Decoder::decode_or_skip`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Message(Message),
    /// A frame that was skipped.
    TooLong(TooLong),
}

/// A frame whose payload is over the limit, and was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLong {
    /// What it was.
    pub kind: Kind,
    /// Length of its payload, in bytes.
    pub len: u64,
    /// The limit that is over, in bytes.
    pub limit: u64,
    /// The first bytes of the payload, [`MAX_HEAD_LEN`] of them.
    pub head: Bytes,
}

/// A payload on its way out.
#[derive(Debug)]
pub(super) struct Skip {
    kind: Kind,
    len: u64,
    limit: u64,
    head: BytesMut,
    /// Bytes of the payload that have not come yet.
    left: usize,
    /// Bytes of its message behind it.
    behind: usize,
}

impl Skip {
    /// What becomes of a payload of `len` bytes with so many others behind it.
    ///
    /// # Errors
    /// It is too long to be skipped.
    pub(super) fn new(
        kind: Kind,
        len: u64,
        behind: usize,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let limit = limits.max_payload_len;
        let left = within("payload, in bytes,", len, limit.max(limits.max_skipped_len))
            .map_err(|_| too_long(len, limit))?;
        Ok(Self {
            kind,
            len,
            limit: limit as u64,
            head: BytesMut::new(),
            left,
            behind,
        })
    }

    /// Throws away what there is of it; the frame once all is gone.
    pub(super) fn advance(&mut self, src: &mut BytesMut) -> Option<TooLong> {
        let here = self.left.min(src.len());
        let kept = here.min(MAX_HEAD_LEN - self.head.len());
        self.head.extend_from_slice(&src[..kept]);
        src.advance(here);
        self.left -= here;
        if self.left > 0 {
            return None;
        }
        let behind = self.behind.min(src.len());
        src.advance(behind);
        self.behind -= behind;
        (self.behind == 0).then(|| TooLong {
            kind: self.kind,
            len: self.len,
            limit: self.limit,
            head: self.head.split().freeze(),
        })
    }
}

const fn too_long(len: u64, limit: usize) -> DecodeError {
    DecodeError::TooLong {
        what: "payload, in bytes,",
        len,
        limit: limit as u64,
    }
}
