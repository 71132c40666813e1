//! Payloads with bytes behind their document: the line `...` ends it, and what follows are the bytes as they are.

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem;

use super::document::Payload;
use super::error::{Fault, PayloadError};

/// The line that ends the document, with the end of the line before it.
const END: &[u8] = b"\n...\n";

/// What stands before the bytes of a chunk, and says how many they are.
pub trait Part: Payload {
    /// Where it says that, for errors.
    const BYTES_KEY: &'static str;

    /// Most bytes that one chunk has.
    const MAX_BYTES: usize;

    /// What is expected there, for errors: as many as follow, and at most so many.
    const EXPECTED_BYTES: &'static str = "as many as follow the document, at most 65536";

    /// How many bytes follow.
    fn bytes(&mut self) -> &mut u64;
}

/// A document, and the bytes that follow it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk<P> {
    /// What these bytes are.
    pub part: P,
    /// The bytes.
    pub data: Bytes,
}

impl<P: Part> Chunk<P> {
    /// A chunk with as many bytes as its document says.
    #[must_use]
    pub fn new(mut part: P, data: Bytes) -> Self {
        *part.bytes() = data.len() as u64;
        Self { part, data }
    }
}

impl<P: Part> Payload for Chunk<P> {
    fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let (document, data) = split(payload);
        let mut part = P::decode(document)?;
        check::<P>(*part.bytes(), data)?;
        let data = Bytes::copy_from_slice(data);
        Ok(Self { part, data })
    }

    fn encode(&self) -> Bytes {
        join(&self.part.encode(), &self.data)
    }
}

/// The document of a payload, and the bytes that follow it.
pub(super) fn split(payload: &[u8]) -> (&[u8], &[u8]) {
    match memmem::find(payload, END) {
        Some(at) => (&payload[..=at], &payload[at + END.len()..]),
        None => (payload, &[]),
    }
}

/// Whether as many bytes follow as the document says, and no more than one has at most.
fn check<P: Part>(said: u64, data: &[u8]) -> Result<(), PayloadError> {
    if said == data.len() as u64 && data.len() <= P::MAX_BYTES {
        return Ok(());
    }
    let found = format!("{} bytes behind the document", data.len());
    Err(PayloadError::new(
        P::BYTES_KEY,
        Fault::wrong_text(P::EXPECTED_BYTES, &found),
    ))
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
