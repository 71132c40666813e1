//! One image is fetched: requested a few chunks ahead, written as they come, hashed as it is written.
//!
//! The part that has come is a file of its own in the cache's directory, `<digest>.part`. It survives a lost connection
//! and a restart of the launcher: the next fetch hashes what is there and goes on behind it, unless it has gone for others
//! meanwhile. Only a complete file whose hash is the digest is renamed to its place.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use proto_frames::payload::image::MAX_IMAGE_CHUNK;
use proto_frames::payload::{Digest, ImageChunk, ImageFailure, ReadImage};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::info;

use super::disk_thread::DiskThread;
use super::{Fetched, Link, Reach, Shared};
use crate::image_file::{Hash, Stamp, gone};

/// Chunks that are requested ahead: what a connection of a Gbit/s carries in 2 ms.
pub(super) const WINDOW: usize = 4;

/// How long a fetch goes on without a byte, with a connection or without, before its STARTs fail: well above the time
/// in which a scheduler is restarted.
const PROGRESS_DEADLINE: Duration = Duration::from_secs(120);

/// How long it waits for the next byte before it requests it again: an answer may have been dropped on either side. Twice
/// the time in which a scheduler answers all requests, also while STARTs come in.
const REQUEST_AGAIN: Duration = Duration::from_secs(30);

/// Pause after the scheduler has answered that others request as much as may be requested.
const BUSY_PAUSE: Duration = Duration::from_millis(250);

/// Mode of an image: its owner may read and run it.
const RUNNABLE: u32 = 0o500;

/// A partly fetched image. Its methods take and return it by value, for they run on blocking threads.
#[derive(Debug)]
struct Part {
    /// What the whole is to have.
    digest: Digest,
    /// The `.part` file.
    path: PathBuf,
    /// Open at its end.
    file: File,
    /// Over all that is in the file.
    hash: Hash,
    /// What has come behind that, in less than [`MAX_IMAGE_CHUNK`] bytes: written together with what comes next, since
    /// each write wakes another thread and is waited for. Lost if the fetch is given up.
    ahead: Vec<Bytes>,
}

/// Fetches an image into the cache, once a permit is free; at most two attempts.
///
/// The second is for a part from an earlier time that was damaged: the whole then has the wrong digest, is removed, and
/// is fetched from the beginning. If that has the wrong digest too, the scheduler's copy is damaged.
///
/// # Errors
/// A text for the failure of the START.
pub(super) async fn fetch(
    shared: &Shared,
    digest: Digest,
    mut chunks: mpsc::Receiver<ImageChunk>,
) -> Fetched {
    let Ok(_permit) = shared.permits.acquire().await else {
        return Err("the launcher ends".to_owned());
    };
    let path = shared.cache.lock().begin(digest)?;
    let fetched = match DiskThread::start() {
        Ok(thread) => attempt(shared, &thread, (digest, path), &mut chunks).await,
        Err(error) => Err(format!("the node has no thread to fetch {digest}: {error}")),
    };
    shared.cache.lock().end(&digest);
    fetched
}

/// The attempts of [`fetch`], for which the cache keeps the part and the room.
async fn attempt(
    shared: &Shared,
    thread: &DiskThread,
    (digest, path): (Digest, PathBuf),
    chunks: &mut mpsc::Receiver<ImageChunk>,
) -> Fetched {
    let target = shared.cache.lock().path(&digest);
    let unwritable = |error: io::Error| format!("the node cannot keep {digest}: {error}");
    for _ in 0..2 {
        let opened = Part::open(digest, path.clone());
        let mut part = thread.run(opened).await.map_err(unwritable)?;
        let resumed = part.hash.len();
        if resumed > 0 {
            info!(
                event = "image_fetch_resumed",
                "{digest}: {resumed} bytes are there already"
            );
        }
        part = receive(shared, thread, part, chunks).await?;
        let bytes = part.hash.len();
        let stamp = thread.run(part.finish(target.clone())).await;
        match stamp.map_err(unwritable)? {
            Some(stamp) => {
                info!(event = "image_fetched", "{digest}: {bytes} bytes");
                shared.cache.lock().add(digest, bytes, Some(stamp));
                return Ok(target);
            }
            None if resumed > 0 => {} // the part was of something else: once more, from the beginning
            None => break,
        }
    }
    Err(format!(
        "what the scheduler sent is not {digest}: its copy is damaged; push it again: ciaoctl push FILE"
    ))
}

/// Requests what is missing until all of it is there.
///
/// It keeps a window of requests open. After a change of the connection, after `Busy` and [`REQUEST_AGAIN`] after the
/// latest byte, answers under way are worth nothing: it drops them and requests again from where the part ends. A chunk
/// at another offset than that is ignored. The size comes with each chunk; when it is known first, the cache reserves
/// room for the whole.
///
/// # Errors
/// No byte for [`PROGRESS_DEADLINE`], a scheduler that cannot be asked or refuses, no room, or a disk that takes no
/// writes.
async fn receive(
    shared: &Shared,
    thread: &DiskThread,
    mut part: Part,
    chunks: &mut mpsc::Receiver<ImageChunk>,
) -> Result<Part, String> {
    let digest = part.digest;
    let mut link = shared.link.subscribe();
    let mut deadline = Instant::now() + PROGRESS_DEADLINE;
    let mut total = None;
    loop {
        let connection = connection(&mut link, &digest, deadline).await?;
        while chunks.try_recv().is_ok() {} // of an earlier connection
        let mut asked = part.have();
        let mut again = Instant::now() + REQUEST_AGAIN;
        loop {
            let have = part.have();
            while asked < total.unwrap_or(have + 1) && asked < have + window() {
                let request = ReadImage {
                    id: 0,
                    digest: digest.to_string(),
                    offset: asked,
                };
                let _ = shared.requests.send(request).await;
                asked += MAX_IMAGE_CHUNK as u64;
            }
            let chunk = tokio::select! {
                chunk = chunks.recv() => chunk,
                _ = link.wait_for(|now| *now != connection) => break,
                () = sleep_until(again.min(deadline)) => {
                    if Instant::now() < deadline {
                        break;
                    }
                    None
                }
            };
            let Some(chunk) = chunk else {
                return Err(no_answer(&digest, "the scheduler does not answer"));
            };
            if chunk.part.failure == ImageFailure::Busy {
                sleep(BUSY_PAUSE).await;
                break;
            }
            if chunk.part.is_failure() {
                return Err(refused(&digest, &chunk));
            }
            if total.replace(chunk.part.total) != Some(chunk.part.total) {
                shared.cache.lock().reserve(digest, chunk.part.total)?;
            }
            if chunk.part.offset == part.have() && !chunk.data.is_empty() {
                part.ahead.push(chunk.data);
                deadline = Instant::now() + PROGRESS_DEADLINE;
                again = Instant::now() + REQUEST_AGAIN;
            }
            let is_whole = part.have() >= chunk.part.total;
            if is_whole || part.have() - part.hash.len() >= MAX_IMAGE_CHUNK as u64 {
                part = thread
                    .run(part.write())
                    .await
                    .map_err(|error| format!("the node cannot keep {digest}: {error}"))?;
            }
            if is_whole {
                return Ok(part);
            }
        }
    }
}

/// The connection by which images can be requested, once there is one.
///
/// # Errors
/// None until the deadline, or one by which they cannot.
async fn connection(
    link: &mut watch::Receiver<Link>,
    digest: &Digest,
    deadline: Instant,
) -> Result<Link, String> {
    let connection = async {
        let link = link.wait_for(|it| it.reach != Reach::None).await;
        link.map(|it| *it)
    };
    match timeout_at(deadline, connection).await {
        Ok(Ok(Link {
            reach: Reach::Mute, ..
        })) => Err(format!(
            "{digest} cannot be fetched: the scheduler of this launcher ships no programs, or the launcher speaks \
             another encoding than native (--encoding)"
        )),
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(_)) | Err(_) => Err(no_answer(digest, "there is no connection to the scheduler")),
    }
}

/// Bytes that are requested ahead.
fn window() -> u64 {
    (WINDOW * MAX_IMAGE_CHUNK) as u64
}

/// The failure after [`PROGRESS_DEADLINE`].
fn no_answer(digest: &Digest, why: &str) -> String {
    format!("{digest} was not fetched: {why} for {PROGRESS_DEADLINE:?}")
}

/// The failure that the scheduler gave: its explanation, or its word without one.
fn refused(digest: &Digest, chunk: &ImageChunk) -> String {
    let part = &chunk.part;
    match part.detail.as_str() {
        "" => format!(
            "{digest} cannot be fetched: {}",
            crate::printable::Printable::new(part.failure.as_str())
        ),
        detail => detail.to_owned(),
    }
}

impl Part {
    /// Opens the part and hashes what is in it; an empty file is made where there is none.
    fn open(digest: Digest, path: PathBuf) -> impl FnOnce() -> io::Result<Self> + Send {
        move || {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            let hash = Hash::of(&mut file)?;
            Ok(Self {
                digest,
                path,
                file,
                hash,
                ahead: Vec::new(),
            })
        }
    }

    /// Bytes that have come, from the beginning: the offset of the next chunk.
    fn have(&self) -> u64 {
        let ahead: usize = self.ahead.iter().map(Bytes::len).sum();
        self.hash.len() + ahead as u64
    }

    /// Appends what has come. After a failed write the file is cut back to what is hashed.
    fn write(mut self) -> impl FnOnce() -> io::Result<Self> + Send {
        move || {
            for data in std::mem::take(&mut self.ahead) {
                let at = self.hash.len();
                if let Err(error) = self.file.write_all(&data) {
                    // So that the next fetch goes on with whole chunks.
                    let _ = self.file.set_len(at).and_then(|()| self.file.rewind());
                    return Err(error);
                }
                self.hash.add(&data);
            }
            Ok(self)
        }
    }

    /// Makes the part an image of the cache if its hash is the digest, and removes it otherwise (`None`). The file is
    /// on disk before it has its name.
    fn finish(self, target: PathBuf) -> impl FnOnce() -> io::Result<Option<Stamp>> + Send {
        move || {
            if self.hash.digest() != Some(self.digest) {
                gone(fs::remove_file(&self.path))?;
                return Ok(None);
            }
            self.file.sync_all()?;
            fs::rename(&self.path, &target)?;
            self.file
                .set_permissions(Permissions::from_mode(RUNNABLE))?;
            // The kernel refuses to run a file that is open for writing (ETXTBSY).
            drop(self.file);
            Ok(Some(Stamp::from(&fs::metadata(&target)?)))
        }
    }
}
