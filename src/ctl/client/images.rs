//! The scheduler's store of images: pushing, listing, deleting.
//!
//! A push sends a file in chunks of `MAX_IMAGE_CHUNK` bytes and survives interruption, because the store keeps what it
//! has and says how much that is:
//!
//! ```text
//! ciaoctl                                    scheduler
//! WRITE_IMAGE digest, offset 0, no data ──▶
//!                                       ◀──  IMAGE offset = bytes that are there
//! WRITE_IMAGE offset, data (up to 8)    ──▶
//!                                       ◀──  IMAGE offset, complete (one for each)
//! ```
//!
//! The store checks the digest of the whole file itself, so that a file that changes while it is pushed is refused,
//! not stored under a wrong digest.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto_frames::Kind;
use proto_frames::payload::image::MAX_IMAGE_CHUNK;
use proto_frames::payload::{
    DeleteImage, Digest, ImageChunk, ImageFailure, ImageList, ImagePart, ImageRow, ImageWrite,
    ListImages, Payload, WriteImage,
};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Client, ClientError, MAX_PAGES};
use crate::ctl::event::{Event, refused_kind};
use crate::image_file::Hash;

/// Chunks of a push that are under way at a time: so that a distant scheduler does not slow it down by a round trip for
/// each.
///
/// Memory of a push is this many chunks.
const WINDOW: u64 = 8;

/// How often a push asks again while the store is busy.
///
/// With [`BUSY_PAUSE`] between them, a minute.
const BUSY_TRIES: u32 = 120;

/// Pause between two of these.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Why the store of images did not do what it was asked.
///
/// Texts name the file or repeat the store's detail; `commands::CommandError` adds the exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// There is no answer, or the scheduler does not know the question.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    File {
        /// Its name.
        file: String,
        /// The underlying error.
        source: io::Error,
    },
    /// The store refuses it.
    ///
    /// For example the quota of the tenant, a digest that does not match, or an image that is in use.
    #[error("{detail} ({failure})")]
    Refused {
        /// The reason code.
        failure: ImageFailure,
        /// More about that.
        detail: String,
    },
}

/// A file that is about to be pushed.
///
/// The file stays open, so that replacing it by name does not mix two contents.
#[derive(Debug, Clone)]
pub struct PushFile {
    /// Its digest.
    pub digest: Digest,
    /// Bytes that it has.
    pub bytes: u64,
    /// For errors.
    name: String,
    file: Arc<File>,
}

impl PushFile {
    /// Opens a file and computes its digest.
    ///
    /// Reads the whole file once, on a thread for blocking work, to know its digest.
    ///
    /// # Errors
    /// [`ImageError::File`]: it cannot be read, or is no regular file, or an empty one.
    pub async fn open(path: &Path) -> Result<Self, ImageError> {
        let name = path.display().to_string();
        let path = path.to_owned();
        let opened = spawn_blocking(move || {
            let file = File::open(path)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("not a regular file"));
            }
            let hash = Hash::of(&file)?;
            match hash.digest() {
                Some(digest) if hash.len() > 0 => Ok((digest, hash.len(), Arc::new(file))),
                _ => Err(io::Error::other("an empty file")),
            }
        });
        let opened = opened.await.map_err(io::Error::other).flatten();
        match opened {
            Ok((digest, bytes, file)) => Ok(Self {
                digest,
                bytes,
                name,
                file,
            }),
            Err(source) => Err(ImageError::File { file: name, source }),
        }
    }

    /// Opens a file whose digest is known already. If the digest is wrong, the store refuses the push.
    ///
    /// For a caller that has computed the digest before: the file is not read here.
    ///
    /// # Errors
    /// [`ImageError::File`].
    pub fn known(path: &Path, digest: Option<Digest>) -> Result<Self, ImageError> {
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        match (opened, digest) {
            (Ok((bytes, file)), Some(digest)) => Ok(Self {
                digest,
                bytes,
                name,
                file: Arc::new(file),
            }),
            (Ok(_), None) => Err(ImageError::File {
                file: name,
                source: io::Error::other("its digest is not known"),
            }),
            (Err(source), _) => Err(ImageError::File { file: name, source }),
        }
    }

    /// From a given offset, at most a chunk and never past the size that was found on opening. A file that has become
    /// shorter is an error.
    async fn chunk(&self, offset: u64) -> Result<Bytes, ImageError> {
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (len, file) = (left.min(MAX_IMAGE_CHUNK), Arc::clone(&self.file));
        let read = spawn_blocking(move || {
            let mut chunk = vec![0; len];
            file.read_exact_at(&mut chunk, offset)?;
            Ok(Bytes::from(chunk))
        });
        let read = read.await.map_err(io::Error::other).flatten();
        read.map_err(|source| ImageError::File {
            file: self.name.clone(),
            source,
        })
    }
}

/// How a push ended.
///
/// The caller computes from it how much was really sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushDone {
    /// Bytes that were there before.
    pub there: u64,
}

impl Client {
    /// Pushes a file into the store, from where an earlier push was cut off; `progress` is called with the number of
    /// bytes that are there.
    ///
    /// Also called for an image that is there completely: the first answer says so, and nothing is sent.
    ///
    /// Chunks of one window are read and sent before their answers are awaited. If the store is busy with one of them,
    /// the next window begins again at the last offset that the store confirmed.
    ///
    /// # Errors
    /// [`ImageError`].
    pub async fn push_image(
        &mut self,
        file: &PushFile,
        tenant: &str,
        mut progress: impl FnMut(u64),
    ) -> Result<PushDone, ImageError> {
        let image = (file.digest, file.bytes);
        let first = self.ask_to_write(image, tenant).await?;
        let mut there = first.offset;
        let done = PushDone { there };
        let mut is_complete = first.complete;
        let mut in_vain = 0;
        while !is_complete {
            progress(there);
            let before = there;
            let mut waited = Vec::new();
            for ahead in 0..WINDOW {
                let offset = there + ahead * MAX_IMAGE_CHUNK as u64;
                if offset >= file.bytes {
                    break;
                }
                let data = file.chunk(offset).await?;
                waited.push(self.write_image(image, tenant, offset, data).await?);
            }
            for id in waited {
                let part = self.image_answer(id, Kind::WRITE_IMAGE).await?;
                if part.failure == ImageFailure::Busy {
                    sleep(BUSY_PAUSE).await;
                    continue;
                }
                let part = checked(part)?;
                there = part.offset;
                is_complete |= part.complete;
            }
            in_vain = if there == before { in_vain + 1 } else { 0 };
            if in_vain > BUSY_TRIES {
                let detail = "the store of images has too much to do; try again".to_owned();
                let failure = ImageFailure::Busy;
                return Err(ImageError::Refused { failure, detail });
            }
        }
        progress(file.bytes);
        Ok(done)
    }

    /// Whether an image of so many bytes is in the store: one question, for which nothing is read and no file has to be
    /// there. A store that is busy counts as one that lacks it: [`Client::push_image`] waits until it has time.
    ///
    /// # Errors
    /// [`ImageError`].
    pub async fn has_image(
        &mut self,
        image: (Digest, u64),
        tenant: &str,
    ) -> Result<bool, ImageError> {
        let id = self.write_image(image, tenant, 0, Bytes::new()).await?;
        let part = self.image_answer(id, Kind::WRITE_IMAGE).await?;
        if part.failure == ImageFailure::Busy {
            return Ok(false);
        }
        Ok(checked(part)?.complete)
    }

    /// Deletes an image.
    ///
    /// The store refuses it while a START names the image.
    ///
    /// # Errors
    /// [`ImageError`].
    pub async fn delete_image(&mut self, digest: &str) -> Result<(), ImageError> {
        let id = self.next_id();
        let digest = digest.to_owned();
        let delete = DeleteImage { id, digest };
        self.send(Kind::DELETE_IMAGE, delete.encode())
            .await
            .map_err(ClientError::from)?;
        let part = self.image_answer(id, Kind::DELETE_IMAGE).await?;
        checked(part).map(drop)
    }

    /// All images.
    ///
    /// In pages; the loop ends after [`MAX_PAGES`] even if the store's cursor never does.
    ///
    /// # Errors
    /// [`ImageError`].
    pub async fn images(&mut self) -> Result<Vec<ImageRow>, ImageError> {
        let mut images = Vec::new();
        let mut after = String::new();
        for _ in 0..MAX_PAGES {
            let list = self.image_page(after).await?;
            if !list.failure.as_str().is_empty() {
                return Err(ImageError::Refused {
                    failure: list.failure,
                    detail: list.detail,
                });
            }
            images.extend(list.images);
            if list.next.is_empty() {
                break;
            }
            after = list.next;
        }
        Ok(images)
    }

    /// `after` is the cursor of the page before; empty for the first.
    async fn image_page(&mut self, after: String) -> Result<ImageList, ClientError> {
        let id = self.next_id();
        self.send(Kind::LIST_IMAGES, ListImages { id, after }.encode())
            .await?;
        let answer = self.wait_for("list of images", self.answer_timeout, |event| match event {
            Event::ImageList(list) if list.id == id => Ok(Ok(*list)),
            Event::Refused(refusal) if refused_kind(&refusal) == Kind::LIST_IMAGES => {
                Ok(Err(refusal))
            }
            other => Err(other),
        });
        let refused = |refusal| ClientError::Refused(Box::new(refusal));
        answer.await?.map_err(refused)
    }

    /// Asks how much of an image is there; asks again while the store is busy.
    ///
    /// The only request of a push that can be repeated alone: it is the first and no other is under way.
    async fn ask_to_write(
        &mut self,
        image: (Digest, u64),
        tenant: &str,
    ) -> Result<ImagePart, ImageError> {
        let mut tries = 0;
        loop {
            let id = self.write_image(image, tenant, 0, Bytes::new()).await?;
            let part = self.image_answer(id, Kind::WRITE_IMAGE).await?;
            if part.failure != ImageFailure::Busy || tries == BUSY_TRIES {
                return checked(part);
            }
            tries += 1;
            sleep(BUSY_PAUSE).await;
        }
    }

    /// Returns the number of the request, which its answer carries.
    async fn write_image(
        &mut self,
        (digest, total): (Digest, u64),
        tenant: &str,
        offset: u64,
        data: Bytes,
    ) -> Result<u64, ImageError> {
        let id = self.next_id();
        let part = WriteImage {
            id,
            digest: digest.to_string(),
            offset,
            total,
            tenant: tenant.to_owned(),
            bytes: 0,
        };
        let write = ImageWrite::new(part, data);
        self.send(Kind::WRITE_IMAGE, write.encode())
            .await
            .map_err(ClientError::from)?;
        Ok(id)
    }

    /// The answer with this number, or the refusal of this kind of command, which carries no number.
    async fn image_answer(&mut self, id: u64, asked: Kind) -> Result<ImagePart, ClientError> {
        let answer = self.wait_for(
            "answer about an image",
            self.answer_timeout,
            |event| match event {
                Event::Image(chunk) if chunk.part.id == id => Ok(Ok(*chunk)),
                Event::Refused(refusal) if refused_kind(&refusal) == asked => Ok(Err(refusal)),
                other => Err(other),
            },
        );
        let refused = |refusal| ClientError::Refused(Box::new(refusal));
        let chunk: ImageChunk = answer.await?.map_err(refused)?;
        Ok(chunk.part)
    }

    /// Shares the counter of queries; numbers only have to differ within a session.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_query = self.last_query.wrapping_add(1);
        u64::from(self.last_query)
    }
}

/// An answer that says why not becomes an error.
fn checked(part: ImagePart) -> Result<ImagePart, ImageError> {
    if !part.is_failure() {
        return Ok(part);
    }
    Err(ImageError::Refused {
        failure: part.failure,
        detail: part.detail,
    })
}
