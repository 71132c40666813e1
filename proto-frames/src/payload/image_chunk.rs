//! Image and WriteImage: a chunk of an image, on its way to a launcher or to the scheduler's store (added by this project).
//! The document says what the bytes are; they follow it as they are, behind the line that ends it:
//!
//! ```text
//! image:
//!   id: 1
//!   digest: sha256:2c26…
//!   total: 3
//!   bytes: 3
//! ...
//! foo
//! ```

use sched_model::image::{ImagePart, MAX_IMAGE_CHUNK, WriteImage};

use super::document::payload;
use super::guard::SMALL;
use super::trailing::{Chunk, Part};

payload!(ImagePart under "image", SMALL);
payload!(WriteImage under "write_image", SMALL);

/// An answer about an image, with its bytes if there are any.
pub type ImageChunk = Chunk<ImagePart>;

/// A chunk of an image that is pushed.
pub type ImageWrite = Chunk<WriteImage>;

impl Part for ImagePart {
    const BYTES_KEY: &'static str = "image.bytes";
    const MAX_BYTES: usize = MAX_IMAGE_CHUNK;

    fn bytes(&mut self) -> &mut u64 {
        &mut self.bytes
    }
}

impl Part for WriteImage {
    const BYTES_KEY: &'static str = "write_image.bytes";
    const MAX_BYTES: usize = MAX_IMAGE_CHUNK;

    fn bytes(&mut self) -> &mut u64 {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{ImageChunk, ImagePart, ImageWrite, MAX_IMAGE_CHUNK, WriteImage};
    use crate::payload::Payload;

    #[test]
    fn any_bytes_come_back_as_they_went_in() {
        for data in [&b""[..], b"\n...\n", b"a: b\n...\n\x00\xff", b"\n"] {
            let data = Bytes::from_static(data);
            let chunk = ImageChunk::new(ImagePart::default(), data.clone());
            assert_eq!(ImageChunk::decode(&chunk.encode()), Ok(chunk));
            let write = ImageWrite::new(WriteImage::default(), data);
            assert_eq!(ImageWrite::decode(&write.encode()), Ok(write));
        }
    }

    #[test]
    fn more_or_fewer_bytes_than_said_are_refused() {
        let whole = ImageChunk::new(ImagePart::default(), Bytes::from_static(b"abc")).encode();
        let error = ImageChunk::decode(&whole[..whole.len() - 1]).unwrap_err();
        assert!(error.to_string().contains("image.bytes"), "{error}");
        let long = Bytes::from(vec![0; MAX_IMAGE_CHUNK + 1]);
        let long = ImageWrite::new(WriteImage::default(), long);
        let error = ImageWrite::decode(&long.encode()).unwrap_err();
        assert!(error.to_string().contains("at most 65536"), "{error}");
    }
}
