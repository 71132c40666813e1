//! Frames whose payload is too long: refused alone, their bytes thrown away as they come.
//!
//! A server uses this so that one payload that is too long costs its sender that frame and not the connection with
//! everything that is under way on it. It takes no memory but for the beginning ([`MAX_HEAD_LEN`]), in which what the
//! frame is about is mostly named.
//!
//! ```text
//! gob     … fields before │ payload: head kept, rest dropped │ behind: fields and the end of the struct
//! native  header, trace   │ payload                          │ nothing
//! ```

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

/// A frame whose payload is over the limit, and was not kept. Its trace and origin are not kept either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLong {
    /// What it was.
    pub kind: Kind,
    /// Length of its payload, in bytes.
    pub len: u64,
    /// The limit that is over, in bytes.
    pub limit: u64,
    /// The first bytes of the payload, at most [`MAX_HEAD_LEN`] of them.
    pub head: Bytes,
}

/// A payload on its way out.
#[derive(Debug)]
pub(super) struct Skip {
    kind: Kind,
    /// The payload's length as the peer stated it.
    len: u64,
    /// What a payload may have.
    limit: u64,
    /// What is kept of it so far.
    head: BytesMut,
    /// Bytes of the payload that have not come yet. Counted down from what the peer stated.
    left: usize,
    /// Bytes of its message behind the payload, which are thrown away as well: in gob the end of its struct.
    behind: usize,
}

impl Skip {
    /// Begins to skip a payload of `len` bytes with `behind` others behind it; the caller has taken off what stands
    /// before it.
    ///
    /// # Errors
    /// It is too long to be skipped, too.
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

    /// Throws away what there is of it in `src`; the frame once all of it is gone. Called with each read until then.
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

/// Names the limit of payloads, not that of what is skipped.
const fn too_long(len: u64, limit: usize) -> DecodeError {
    DecodeError::TooLong {
        what: "payload, in bytes,",
        len,
        limit: limit as u64,
    }
}
