//! Programs that the scheduler keeps and launchers fetch, by what is in them (added by this project): what is asked of the
//! store of images, and its answers.

use std::fmt;
use std::str::FromStr;

use crate::{record, words};

/// Bytes of an image in one frame: short enough that what is queued behind it waits for half a millisecond on a Gbit/s.
pub const MAX_IMAGE_CHUNK: usize = 64 * 1024;

/// Rows in one answer to ListImages.
pub const MAX_IMAGE_ROWS: usize = 500;

/// Images that one START names beside its program, at most. A node fetches them one after the other before it starts the
/// instance, and as many names stay in memory for each START that is kept.
pub const MAX_MORE_IMAGES: usize = 16;

/// What stands before the digits of a digest.
const SCHEME: &str = "sha256:";

/// Bytes of a digest.
const LEN: usize = 32;

/// How many of its digits the short name of an image has: 48 bits, by which no two images of a cluster are confused by
/// chance.
const SHORT: usize = 12;

/// The digest of an image: `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; LEN]);

/// A text is not the digest of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected sha256: and 64 hexadecimal digits, as `ciaoctl push` prints them")]
pub struct NotADigest;

impl Digest {
    /// The digest with these bytes; `None` if they are not as many.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Its digits alone: what its file is called.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digest with these digits.
    #[must_use]
    pub fn from_hex(digits: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 2 * LEN || !digits.bytes().all(is_digit) {
            return None;
        }
        let mut bytes = [0; LEN];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The one before it in their order; `None` for the first. A list that begins behind that begins with this one.
    #[must_use]
    pub fn previous(&self) -> Option<Self> {
        let mut bytes = self.0;
        for byte in bytes.iter_mut().rev() {
            let (less, borrows) = byte.overflowing_sub(1);
            *byte = less;
            if !borrows {
                return Some(Self(bytes));
            }
        }
        None
    }

    /// The name that stands in labels of nodes that have it: `sha256_` and its first 12 digits.
    #[must_use]
    pub fn short(&self) -> String {
        format!("sha256_{}", &self.hex()[..SHORT])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.hex())
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digits = text.strip_prefix(SCHEME).ok_or(NotADigest)?;
        Self::from_hex(digits).ok_or(NotADigest)
    }
}

record! {
    /// `read_image: {digest, offset}`: from a launcher that lacks an image; answered by [`ImagePart`] with the bytes from
    /// there on.
    pub struct ReadImage {
        /// The launcher's number for it, given back in the answer.
        id: u64 as "id",
        /// The image.
        digest: String as "digest",
        /// The first byte that is wanted.
        offset: u64 as "offset" unless empty,
    }
}

record! {
    /// `write_image: {id, digest, offset, total, tenant, bytes}`: from who pushes an image; the bytes follow the document.
    /// Without any it asks how many are there. Answered by [`ImagePart`].
    pub struct WriteImage {
        /// The sender's number for it, given back in the answer.
        id: u64 as "id",
        /// The image.
        digest: String as "digest",
        /// Where these bytes begin.
        offset: u64 as "offset" unless empty,
        /// How many it has in all.
        total: u64 as "total",
        /// The tenant against whose quota it counts.
        tenant: String as "tenant" unless empty,
        /// How many bytes follow the document.
        bytes: u64 as "bytes" unless empty,
    }
}

record! {
    /// `delete_image: {id, digest}`; answered by [`ImagePart`].
    pub struct DeleteImage {
        /// The sender's number for it, given back in the answer.
        id: u64 as "id",
        /// The image.
        digest: String as "digest",
    }
}

record! {
    /// `list_images: {id, after}`; answered by [`ImageList`].
    pub struct ListImages {
        /// The sender's number for it, given back in the answer.
        id: u64 as "id",
        /// Only those after this digest (`next` of an earlier answer).
        after: String as "after" unless empty,
    }
}

record! {
    /// `image: {id, digest, offset, total, complete, bytes, failure, detail}`: the answer to ReadImage, whose bytes follow
    /// the document, to WriteImage and to DeleteImage.
    pub struct ImagePart {
        /// The number of what this answers.
        id: u64 as "id",
        /// The image.
        digest: String as "digest",
        /// Where these bytes begin; of an image that is being pushed, how many are there.
        offset: u64 as "offset" unless empty,
        /// How many it has in all.
        total: u64 as "total" unless empty,
        /// Whether all of it is in the store.
        complete: bool as "complete" unless empty,
        /// How many bytes follow the document.
        bytes: u64 as "bytes" unless empty,
        /// Why it was not done; empty where it was.
        failure: ImageFailure as "failure" unless empty,
        /// More about that, for people.
        detail: String as "detail" unless empty,
    }
}

record! {
    /// `image_list: {id, images, quota, next, failure, detail}`.
    pub struct ImageList {
        /// The number of what this answers.
        id: u64 as "id",
        /// The images, in the order of their digests.
        images: Vec<ImageRow> as "images" unless empty,
        /// How many bytes all of them may have.
        quota: u64 as "quota" unless empty,
        /// Where the next answer begins; empty if there are no more.
        next: String as "next" unless empty,
        /// Why there is no list; empty where there is.
        failure: ImageFailure as "failure" unless empty,
        /// More about that, for people.
        detail: String as "detail" unless empty,
    }
}

record! {
    /// An image in the store.
    pub struct ImageRow {
        /// Its digest.
        digest: String as "digest",
        /// How many bytes it has.
        bytes: u64 as "bytes",
        /// The tenant that it was pushed for; empty where that is not known any more.
        tenant: String as "tenant" unless empty,
        /// Who pushed it: the subject of the certificate.
        pushed_by: String as "pushed_by" unless empty,
        /// When it was complete, milliseconds of Unix time.
        pushed_at_ms: i64 as "pushed_at_ms" unless empty,
        /// When it was last pushed or fetched, milliseconds of Unix time.
        used_at_ms: i64 as "used_at_ms" unless empty,
        /// Whether a START that the scheduler keeps names it.
        in_use: bool as "in_use" unless empty,
    }
}

words! {
    /// Why the store of images did not do what it was asked.
    pub enum ImageFailure {
        /// This scheduler has no store of images.
        NotOffered = "not_offered",
        /// It has no such image.
        NoImage = "no_image",
        /// There is no room for it.
        Quota = "quota",
        /// What came is not what the digest says.
        WrongDigest = "wrong_digest",
        /// A START that the scheduler keeps names it.
        InUse = "in_use",
        /// As much is asked for as may be at a time.
        Busy = "busy",
        /// What was asked for makes no sense.
        InvalidData = "invalid_data",
        /// It could not be read or written.
        Failed = "failed",
    }
}

impl ImagePart {
    /// That it was not done, and why.
    #[must_use]
    pub fn fail(id: u64, digest: &str, failure: ImageFailure, detail: impl Into<String>) -> Self {
        Self {
            id,
            digest: digest.to_owned(),
            failure,
            detail: detail.into(),
            ..Self::default()
        }
    }

    /// Whether it says why something was not done.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !self.failure.as_str().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn there_is_nothing_between_a_digest_and_the_one_before_it() {
        let digest = |end: &str| Digest::from_hex(&format!("{end:0>64}")).unwrap();
        assert_eq!(digest("1").previous(), Some(digest("0")));
        assert_eq!(digest("10000").previous(), Some(digest("ffff")));
        assert_eq!(digest("0").previous(), None);
    }

    #[test]
    fn a_digest_is_read_as_it_is_written_and_nothing_else_is_one() {
        let text = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest.to_string(), text);
        assert_eq!(digest.short(), "sha256_0123456789ab");
        assert_eq!(Digest::from_hex(&digest.hex()), Some(digest));
        for bad in [
            "",
            "sha256:",
            &text[..70],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace("sha256", "sha512"),
            &text.replace('a', "é"),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
