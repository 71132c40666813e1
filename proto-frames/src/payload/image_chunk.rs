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

use bytes::Bytes;
use sched_model::image::{ImagePart, MAX_IMAGE_CHUNK, WriteImage};

use super::document::{Payload, payload};
use super::error::PayloadError;
use super::guard::SMALL;
use super::trailing;

payload!(ImagePart under "image", SMALL);
payload!(WriteImage under "write_image", SMALL);

/// An answer about an image, with its bytes if there are any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageChunk {
    /// What these bytes are.
    pub part: ImagePart,
    /// The bytes.
    pub data: Bytes,
}

/// A chunk of an image that is pushed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageWrite {
    /// What these bytes are.
    pub part: WriteImage,
    /// The bytes.
    pub data: Bytes,
}

impl ImageChunk {
    /// A chunk with as many bytes as its document says.
    #[must_use]
    pub fn new(part: ImagePart, data: Bytes) -> Self {
        let bytes = data.len() as u64;
        let part = ImagePart { bytes, ..part };
        Self { part, data }
    }
}

impl ImageWrite {
    /// A chunk with as many bytes as its document says.
    #[must_use]
    pub fn new(part: WriteImage, data: Bytes) -> Self {
        let bytes = data.len() as u64;
        let part = WriteImage { bytes, ..part };
        Self { part, data }
    }
}

impl Payload for ImageChunk {
    fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let (document, data) = trailing::split(payload);
        let part = ImagePart::decode(document)?;
        trailing::check("image.bytes", part.bytes, data, MAX_IMAGE_CHUNK)?;
        let data = Bytes::copy_from_slice(data);
        Ok(Self { part, data })
    }

    fn encode(&self) -> Bytes {
        trailing::join(&self.part.encode(), &self.data)
    }
}

impl Payload for ImageWrite {
    fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let (document, data) = trailing::split(payload);
        let part = WriteImage::decode(document)?;
        trailing::check("write_image.bytes", part.bytes, data, MAX_IMAGE_CHUNK)?;
        let data = Bytes::copy_from_slice(data);
        Ok(Self { part, data })
    }

    fn encode(&self) -> Bytes {
        trailing::join(&self.part.encode(), &self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, ImageChunk, ImagePart, ImageWrite, MAX_IMAGE_CHUNK, Payload, WriteImage};

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
