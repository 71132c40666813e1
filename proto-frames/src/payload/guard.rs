//! What is looked at before a YAML parser sees a byte: which part of a payload is its first document, how long it is,
//! and whether it holds more than a few of the bytes that make parsers slow.

use super::error::{Fault, PayloadError};

/// Entries of one list or mapping that are taken: instances of a STATS above all. A node with more instances than this
/// is beyond what a launcher can run.
pub const MAX_ENTRIES: usize = 16_384;

/// Most `[` and `{` bytes in a document, not counting those closed at once (`[]`, `{}`).
///
/// Parsers descended from libyaml are quadratic in them: 256 cost a quarter of a millisecond at most, 8 000 cost 37.
/// All are counted, wherever they stand: finding out which are inside strings is what the parser is for.
pub const MAX_BRACKETS: usize = 256;

/// How much of a payload is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the first document.
    pub max_len: usize,
}

/// Limits for all but the payloads that are lists: a START with a long command line and environment fits.
pub const SMALL: Limits = Limits {
    max_len: 256 * 1024,
};

/// Limits for payloads with a list that grows with the cluster (STATS, QueryResult, TraceReport): a frame's own limit.
pub const LARGE: Limits = Limits {
    max_len: crate::limits::MAX_PAYLOAD_LEN,
};

/// The first document of a payload, if it may be parsed.
///
/// # Errors
/// [`Fault::TooLong`], [`Fault::TooMuch`].
pub fn first_document(payload: &[u8], limits: Limits) -> Result<&[u8], PayloadError> {
    let document = payload;
    if document.len() > limits.max_len {
        return Err(PayloadError::new(
            "",
            Fault::TooLong {
                len: document.len(),
                max: limits.max_len,
            },
        ));
    }
    Ok(document)
}
