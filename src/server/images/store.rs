//! The images on disk, each in a file that is called as its digest, with a file beside it that says whose it is. What
//! is being pushed is in a file of its own until all of it is there and is what its digest says.
//!
//! ```text
//! DIR/2c26….        an image       DIR/2c26….json   who pushed it, when, for which tenant
//! DIR/fcde….part    a part of one  DIR/lock         held by the scheduler that has the directory
//! ```
//!
//! The directory is read once, when the store is opened; nothing else is kept across restarts. When an image was last
//! used is the modification time of its file; whose it is, is JSON:
//!
//! ```json
//! {"tenant": "t1", "by": "O=ciao", "at_ms": 1763719241000}
//! ```
//!
//! An image comes to be by a rename, behind its owner's file and once its bytes are on disk. So after a crash a file
//! with a digest as its name is whole; an owner's file alone, or one that is not complete (`….new`), is removed.
//!
//! All calls block. One thread makes them ([`worker`](super::worker)), so that the disk is asked for one thing at a
//! time. [`pushing`] has what is on its way in, [`room`] what is evicted for it.

mod pushing;
mod room;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use proto_frames::payload::image::MAX_IMAGE_ROWS;
use proto_frames::payload::{Digest, ImageFailure, ImageList, ImageRow};
use serde::{Deserialize, Serialize};

pub(super) use self::pushing::Pushed;
use self::pushing::Uploads;
use crate::image_file::{Stamp, gone, own_directory, unix_ms};

/// How old what an image's file says of its last use may be: it is written no more often than that. Less recent uses
/// may be forgotten by a crash, which only makes the choice of what is evicted a little worse.
const NOTE_USE_EVERY: Duration = Duration::from_secs(60);

/// How long after it was pushed an image is not evicted for what another tenant pushes, although no START names it yet:
/// time enough for the START that it was pushed for. As long as a push that is cut off keeps its room.
const FRESH: Duration = Duration::from_secs(600);

/// Suffix of the file of an image that is not complete.
const PART: &str = ".part";

/// Suffix of the file that says whose an image is.
const OWNER: &str = ".json";

/// Suffix of that file while it is being written.
const NEW_OWNER: &str = ".new";

/// How much may be stored, in bytes: images that are complete and those being pushed, together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    /// By all tenants.
    pub(super) all: u64,
    /// By each.
    pub(super) tenant: u64,
}

/// Why something was not done: what the peer is answered.
#[derive(Debug)]
pub(super) struct Refused {
    /// For programs.
    pub(super) failure: ImageFailure,
    /// For people.
    pub(super) detail: String,
}

/// Whose an image is, as its `.json` file has it. Where that is missing or cannot be read all is empty, as if it had
/// been pushed for no tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The tenant against whose quota it counts. The empty text is a tenant as well: that of pushes that name none.
    pub(super) tenant: String,
    /// The subject of the certificate with which it was pushed.
    pub(super) by: String,
    /// When it was complete, milliseconds of Unix time.
    pub(super) at_ms: i64,
}

/// The short names ([`Digest::short`]) of images that STARTs name which the scheduler keeps: these are not deleted.
pub(super) type InUse = BTreeSet<String>;

/// The store, open. Its maps say what is in the directory; nothing but this process changes that.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
    /// Not enforced on what was there when the store was opened, only when more comes.
    quota: Quota,
    /// Images that are complete. In the order of digests, by which lists have pages.
    images: BTreeMap<Digest, Image>,
    /// What is not complete.
    uploads: Uploads,
    /// The file that was read last: launchers fetch the same image many times in a row.
    open: Option<(Digest, File)>,
    /// Held as long as the store is open.
    _lock: File,
}

/// An image that is complete.
#[derive(Debug)]
struct Image {
    bytes: u64,
    owner: Owner,
    /// When it was last read or found by a push. By this it is evicted.
    used: SystemTime,
    /// The modification time of its file, so the last use that a restart would find.
    noted: SystemTime,
    /// When it was last pushed, or found by a push; `None` for what was there when the store was opened.
    pushed: Option<Instant>,
    /// Its file when it was found to be what its digest says: as long as its stamp is this, that need not be computed
    /// once more. `None` for what was there when the store was opened.
    verified: Option<Stamp>,
}

impl Image {
    /// Whether it was pushed so lately that its START may be still to come.
    fn is_fresh(&self) -> bool {
        self.pushed.is_some_and(|pushed| pushed.elapsed() < FRESH)
    }
}

impl Refused {
    /// A refusal with a word for programs and a sentence for people.
    pub(super) fn new(failure: ImageFailure, detail: impl Into<String>) -> Self {
        Self {
            failure,
            detail: detail.into(),
        }
    }

    /// The store does not have it.
    pub(super) fn no_image(digest: &Digest) -> Self {
        Self::new(
            ImageFailure::NoImage,
            format!("the scheduler has no image {digest}; push it: ciaoctl push FILE"),
        )
    }
}

impl Store {
    /// Opens the store in this directory, which is made, for its owner alone, if it is not there. Looks at each file's
    /// metadata, not at its bytes.
    ///
    /// # Errors
    /// The system's; also if another process has the directory.
    pub(super) fn open(directory: &Path, quota: Quota) -> io::Result<Self> {
        let lock = own_directory(directory)?;
        let mut store = Self {
            directory: directory.to_owned(),
            quota,
            images: BTreeMap::new(),
            uploads: Uploads::default(),
            open: None,
            _lock: lock,
        };
        for entry in fs::read_dir(directory)? {
            store.find(&entry?)?;
        }
        Ok(store)
    }

    /// Takes up one file that is in the directory already. Files with other names are left alone.
    ///
    /// # Errors
    /// The system's.
    fn find(&mut self, entry: &fs::DirEntry) -> io::Result<()> {
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            return Ok(());
        };
        if let Some(digest) = Digest::from_hex(name) {
            let file = entry.metadata()?;
            let used = file.modified()?;
            let owner = fs::read(self.path(&digest, OWNER)).unwrap_or_default();
            let image = Image {
                bytes: file.len(),
                owner: serde_json::from_slice(&owner).unwrap_or_default(),
                used,
                noted: used,
                pushed: None,
                verified: None,
            };
            self.images.insert(digest, image);
        } else if let Some(digest) = name.strip_suffix(PART).and_then(Digest::from_hex) {
            let file = entry.metadata()?;
            self.uploads.found(digest, file.len());
        // The owner of an image that is not there: its push ended between two steps, or its removal did.
        } else if let Some(digest) = name.strip_suffix(OWNER).and_then(Digest::from_hex)
            && !self.path(&digest, "").exists()
        {
            fs::remove_file(entry.path())?;
        // One that was being written.
        } else if name
            .strip_suffix(NEW_OWNER)
            .and_then(Digest::from_hex)
            .is_some()
        {
            fs::remove_file(entry.path())?;
        }
        Ok(())
    }

    /// A chunk of an image from this offset on, at most so many bytes, and how long all of it is. Not checked
    /// against the digest: the launcher that fetches it does that.
    ///
    /// # Errors
    /// `no_image`; `failed` where the file cannot be read or is shorter than it was.
    pub(super) fn read(
        &mut self,
        digest: &Digest,
        offset: u64,
        most: usize,
    ) -> Result<(Bytes, u64), Refused> {
        let path = self.path(digest, "");
        let Some(image) = self.images.get_mut(digest) else {
            return Err(Refused::no_image(digest));
        };
        let total = image.bytes;
        // Not an error: no bytes, and the length, tell a launcher that it has all, or asked for more than there is.
        if offset >= total {
            return Ok((Bytes::new(), total));
        }
        let file = match self.open.take().filter(|(open, _)| open == digest) {
            Some((_, file)) => file,
            None => File::open(&path).map_err(|error| unreadable(digest, &error))?,
        };
        let left = usize::try_from(total - offset).unwrap_or(usize::MAX);
        let mut chunk = vec![0; left.min(most)];
        file.read_exact_at(&mut chunk, offset)
            .map_err(|error| unreadable(digest, &error))?;
        image.used = SystemTime::now();
        // A clock that was set back counts as no time.
        let age = image.used.duration_since(image.noted).unwrap_or_default();
        if age >= NOTE_USE_EVERY && file.set_modified(image.used).is_ok() {
            image.noted = image.used;
        }
        self.open = Some((*digest, file));
        Ok((chunk.into(), total))
    }

    /// Deletes an image that no START names, or gives up one that is being pushed. Returns whose it was.
    ///
    /// # Errors
    /// `no_image`, `in_use`, or `failed` where the file cannot be removed.
    pub(super) fn delete(&mut self, digest: &Digest, in_use: &InUse) -> Result<Owner, Refused> {
        let Some(image) = self.images.get(digest) else {
            return match self.uploads.contains(digest) {
                true => self.drop_upload(digest).map(|()| Owner::default()),
                false => Err(Refused::no_image(digest)),
            };
        };
        if in_use.contains(&digest.short()) {
            let detail = format!(
                "instances that the scheduler has run {digest}; delete them first (ciaoctl instances)"
            );
            return Err(Refused::new(ImageFailure::InUse, detail));
        }
        let owner = image.owner.clone();
        self.remove(digest)
            .map_err(|error| failed("cannot delete it", &error))?;
        Ok(owner)
    }

    /// A page of the images after a digest, at most `MAX_IMAGE_ROWS`. `next` is empty on the last page.
    pub(super) fn list(&self, after: Option<Digest>, in_use: &InUse) -> ImageList {
        let mut rest = self
            .images
            .iter()
            .filter(|(digest, _)| after.is_none_or(|after| **digest > after));
        let rows = rest.by_ref().take(MAX_IMAGE_ROWS);
        let images: Vec<ImageRow> = rows
            .map(|(digest, image)| ImageRow {
                digest: digest.to_string(),
                bytes: image.bytes,
                tenant: image.owner.tenant.clone(),
                pushed_by: image.owner.by.clone(),
                pushed_at_ms: image.owner.at_ms,
                used_at_ms: unix_ms(image.used),
                in_use: in_use.contains(&digest.short()),
            })
            .collect();
        let has_more = rest.next().is_some();
        let last = images.last().filter(|_| has_more);
        ImageList {
            next: last.map(|row| row.digest.clone()).unwrap_or_default(),
            quota: self.quota.all,
            images,
            ..ImageList::default()
        }
    }

    /// Takes an image out, file and all. What is gone already is no error. The owner's file goes first: an image
    /// without one still counts against the quota of all, while an owner without an image is removed at the next start.
    ///
    /// # Errors
    /// The system's. The store does not know the image any more then, whatever is left on disk.
    fn remove(&mut self, digest: &Digest) -> io::Result<()> {
        self.images.remove(digest);
        if self.open.as_ref().is_some_and(|(open, _)| open == digest) {
            self.open = None;
        }
        gone(fs::remove_file(self.path(digest, OWNER)))?;
        gone(fs::remove_file(self.path(digest, "")))
    }

    /// The path of a file: the digest's digits and what stands behind them.
    fn path(&self, digest: &Digest, behind: &str) -> PathBuf {
        self.directory.join(digest.hex() + behind)
    }

    /// Writes whose an image is, by way of a file `….new` and a rename, so that it is there whole or not at all.
    ///
    /// # Errors
    /// The system's.
    fn write_owner(&self, digest: &Digest, owner: &Owner) -> io::Result<()> {
        let path = self.path(digest, OWNER);
        let new = self.path(digest, NEW_OWNER);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&serde_json::to_vec(owner)?)?;
        file.sync_all()?;
        fs::rename(new, path)
    }
}

/// The store has the image, and cannot read its file.
fn unreadable(digest: &Digest, error: &io::Error) -> Refused {
    let detail = format!(
        "the scheduler cannot read its copy of {digest}: {error}; push it again: ciaoctl push FILE"
    );
    Refused::new(ImageFailure::Failed, detail)
}

/// The system did not do something.
fn failed(what: &str, error: &io::Error) -> Refused {
    Refused::new(ImageFailure::Failed, format!("{what}: {error}"))
}
