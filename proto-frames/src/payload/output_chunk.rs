//! Output: a chunk of what a workload wrote (added by this project). The document says what the bytes are; they follow it
//! as they are, behind the line that ends it:
//!
//! ```text
//! output:
//!   id: 1
//!   bytes: 6
//! ...
//! hello
//! ```

use bytes::Bytes;
use sched_model::output::{MAX_OUTPUT_CHUNK, OutputPart};

use super::document::{Payload, payload};
use super::error::PayloadError;
use super::guard::SMALL;
use super::trailing;

payload!(OutputPart under "output", SMALL);

/// A chunk of output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputChunk {
    /// What these bytes are.
    pub part: OutputPart,
    /// The bytes.
    pub data: Bytes,
}

impl OutputChunk {
    /// A chunk with as many bytes as its document says.
    #[must_use]
    pub fn new(part: OutputPart, data: Bytes) -> Self {
        let bytes = data.len() as u64;
        let part = OutputPart { bytes, ..part };
        Self { part, data }
    }
}

impl Payload for OutputChunk {
    fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let (document, data) = trailing::split(payload);
        let part = OutputPart::decode(document)?;
        trailing::check("output.bytes", part.bytes, data, MAX_OUTPUT_CHUNK)?;
        let data = Bytes::copy_from_slice(data);
        Ok(Self { part, data })
    }

    fn encode(&self) -> Bytes {
        trailing::join(&self.part.encode(), &self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, OutputChunk, OutputPart, Payload};

    fn chunk(data: &'static [u8], detail: &str) -> OutputChunk {
        let part = OutputPart {
            id: 7,
            instance_uuid: "i".to_owned(),
            detail: detail.to_owned(),
            ..OutputPart::default()
        };
        OutputChunk::new(part, Bytes::from_static(data))
    }

    #[test]
    fn bytes_of_any_kind_come_out_as_they_went_in() {
        for data in [
            &b""[..],
            b"\n",
            b"\n...\n",
            b"...\n---\n\xff\0a: [",
            b"text",
        ] {
            for detail in ["", "a\n...\nb", "...", "\n"] {
                let chunk = chunk(data, detail);
                assert_eq!(OutputChunk::decode(&chunk.encode()), Ok(chunk));
            }
        }
    }

    #[test]
    fn a_chunk_of_another_length_than_it_says_is_refused() {
        let whole = chunk(b"some text", "").encode();
        for len in 0..whole.len() {
            // Without any of its document it is an empty one.
            let Ok(read) = OutputChunk::decode(&whole[..len]) else {
                continue;
            };
            assert_eq!(read.part.bytes, read.data.len() as u64, "{len}");
        }
        let longer = [&whole[..], b"x"].concat();
        let error = OutputChunk::decode(&longer).unwrap_err().to_string();
        assert!(error.contains("output.bytes"), "{error}");
    }
}
