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

use sched_model::output::{MAX_OUTPUT_CHUNK, OutputPart};

use super::document::payload;
use super::guard::SMALL;
use super::trailing::{Chunk, Part};

payload!(OutputPart under "output", SMALL);

/// A chunk of output.
pub type OutputChunk = Chunk<OutputPart>;

impl Part for OutputPart {
    const BYTES_KEY: &'static str = "output.bytes";
    const MAX_BYTES: usize = MAX_OUTPUT_CHUNK;

    fn bytes(&mut self) -> &mut u64 {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{OutputChunk, OutputPart};
    use crate::payload::Payload;

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
