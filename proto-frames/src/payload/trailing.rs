//! Payloads with bytes behind their document: the line `...` ends it, and what follows are the bytes as they are.

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem;

use super::error::{Fault, PayloadError};

/// The line that ends the document, with the end of the line before it.
const END: &[u8] = b"\n...\n";

/// The document of a payload, and the bytes that follow it.
pub(super) fn split(payload: &[u8]) -> (&[u8], &[u8]) {
    match memmem::find(payload, END) {
        Some(at) => (&payload[..=at], &payload[at + END.len()..]),
        None => (payload, &[]),
    }
}

/// Whether as many bytes follow as the document says at `key`, and no more than `most`.
pub(super) fn check(
    key: &'static str,
    said: u64,
    data: &[u8],
    most: usize,
) -> Result<(), PayloadError> {
    if said == data.len() as u64 && data.len() <= most {
        return Ok(());
    }
    let found = format!("{} bytes behind the document", data.len());
    let expected = "as many as follow the document, at most 65536";
    Err(PayloadError::new(key, Fault::wrong_text(expected, &found)))
}

/// A document and the bytes that follow it as one payload.
pub(super) fn join(document: &[u8], data: &[u8]) -> Bytes {
    let mut payload = BytesMut::with_capacity(document.len() + END.len() + data.len());
    payload.put_slice(document);
    // The document ends with its line's end.
    payload.put_slice(&END[1..]);
    payload.put_slice(data);
    payload.freeze()
}
