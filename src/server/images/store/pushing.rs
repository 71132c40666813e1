//! Images on their way into the store: what came is in a file, from which a push goes on that was cut off.
//!
//! A push is a row of WRITE_IMAGE requests, each with an offset and some bytes. The store takes bytes only at the end
//! of what it has, and answers each request with how much that is; so a pusher that lost an answer, was cut off or is
//! one of several pushers of the same image simply goes on from there:
//!
//! ```text
//! WRITE offset 0, no bytes      ──▶ 0            (a question: how much is there?)
//! WRITE offset 0, 64 KiB        ──▶ 65536
//! WRITE offset 0, 64 KiB        ──▶ 65536        (sent once more: nothing is written)
//! WRITE offset 65536, the rest  ──▶ complete     (the digest is right: the file gets its name)
//! ```
//!
//! The digest is computed as bytes come. The tenant is the one that the pusher names; its certificate's subject is
//! recorded with the image.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::time::{Duration, Instant, SystemTime};

use proto_frames::payload::{Digest, ImageFailure, WriteImage};

use super::{Image, InUse, Owner, PART, Refused, Store, failed};
use crate::image_file::{Hash, Stamp, gone, unix_ms};

/// Images that may be pushed at a time. Each has a file open.
pub(super) const MAX_UPLOADS: usize = 64;

/// How long after its last chunk a push gives way to others that need its place or its room. Until then its room is
/// reserved.
const ABANDONED: Duration = Duration::from_secs(600);

/// Mode of a part: its owner may write it.
const WRITABLE: u32 = 0o600;

/// Mode of an image in the store: its owner may read it; nothing there is changed or run.
const READABLE: u32 = 0o400;

/// How far a push is. Lengths are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server::images) enum Pushed {
    /// This many bytes are there; the next one is wanted.
    Part(u64),
    /// All of it was there before: nothing was taken in.
    There(u64),
    /// The chunk was the last: the image is in the store from this moment.
    Complete(u64),
}

/// What is being pushed. An image is in one of the two maps, or in neither.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    /// Those of which a chunk has come since the scheduler was started.
    open: BTreeMap<Digest, Upload>,
    /// Parts of which none has, or whose file could not be written, with their lengths. They go first where room is
    /// needed.
    found: BTreeMap<Digest, u64>,
}

/// One image that is being pushed.
#[derive(Debug)]
struct Upload {
    /// The `.part` file, positioned at its end.
    file: File,
    /// Of all bytes that are in the file. Its length is how many they are.
    hash: Hash,
    /// How many there will be, as the first chunk said; for so many room was made.
    total: u64,
    /// The tenant that the first chunk named.
    tenant: String,
    /// When bytes were last taken in.
    touched: Instant,
}

impl Uploads {
    /// Notes a part whose push may go on later.
    pub(super) fn found(&mut self, digest: Digest, len: u64) {
        self.found.insert(digest, len);
    }

    /// Whether there is a part of an image.
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.open.contains_key(digest) || self.found.contains_key(digest)
    }

    /// Bytes by tenant, for quotas: of those being pushed the bytes that they will have; of those found the bytes that
    /// they have, for the empty tenant, since who pushed them is not recorded before an image is complete.
    pub(super) fn bytes(&self) -> impl Iterator<Item = (&str, u64)> {
        let open = self.open.values().map(|it| (it.tenant.as_str(), it.total));
        open.chain(self.found.values().map(|len| ("", *len)))
    }

    /// Those that give way to others that need their room, with tenants and bytes as in [`Uploads::bytes`]: first those
    /// that were found, then those that were abandoned.
    pub(super) fn idle(&self) -> Vec<(Digest, &str, u64)> {
        let found = self.found.iter().map(|(digest, len)| (*digest, "", *len));
        let open = self.abandoned().into_iter();
        let open = open.map(|(digest, upload)| (*digest, upload.tenant.as_str(), upload.total));
        found.chain(open).collect()
    }

    /// The push that gives its place to another. Parts that were found have no place.
    fn abandoned_place(&self) -> Option<Digest> {
        self.abandoned().first().map(|(digest, _)| **digest)
    }

    /// Those for which no bytes have come for [`ABANDONED`]; the one that has waited for longest is the first.
    fn abandoned(&self) -> Vec<(&Digest, &Upload)> {
        let is_old = |upload: &Upload| upload.touched.elapsed() >= ABANDONED;
        let old = self.open.iter().filter(|(_, upload)| is_old(upload));
        let mut old: Vec<_> = old.collect();
        old.sort_by_key(|(_, upload)| upload.touched);
        old
    }

    /// Makes a push one that was abandoned.
    #[cfg(test)]
    pub(super) fn abandon(&mut self, digest: &Digest) {
        let upload = self.open.get_mut(digest).expect("it is being pushed");
        let then = Instant::now().checked_sub(ABANDONED);
        upload.touched = then.expect("the clock goes back as far");
    }
}

impl Store {
    /// Takes in a chunk, or says how much is there. `by` is the subject of the pusher's certificate; `in_use` is called
    /// only if room has to be made.
    ///
    /// The first chunk after a restart reads and hashes what is there, the whole image or the part; the thread does
    /// nothing else meanwhile.
    ///
    /// # Errors
    /// `invalid_data` where it is empty or its length is another one than before, `busy` where [`MAX_UPLOADS`] are
    /// being pushed, `quota` without room, `wrong_digest` where all bytes are there and are not what they should be,
    /// `failed` where the disk does not take them.
    pub(in crate::server::images) fn write(
        &mut self,
        digest: &Digest,
        (part, data): (&WriteImage, &[u8]),
        by: &str,
        in_use: impl FnOnce() -> InUse,
    ) -> Result<Pushed, Refused> {
        if let Some(len) = self.verified(digest) {
            return Ok(Pushed::There(len));
        }
        if !self.uploads.open.contains_key(digest) {
            self.begin(digest, part, in_use)?;
        }
        // Cannot be: `begin` has put it there.
        let Some(upload) = self.uploads.open.get_mut(digest) else {
            return Err(Refused::no_image(digest));
        };
        if part.total != upload.total {
            let detail = format!("{} bytes in all, and not {}", upload.total, part.total);
            return Err(Refused::new(ImageFailure::InvalidData, detail));
        }
        let have = upload.hash.len();
        // Any other offset is of a pusher that does not know how far the image is; the answer tells it.
        if part.offset == have && data.len() as u64 <= upload.total - have {
            upload.touched = Instant::now();
            let written = upload.file.write_all(data);
            if let Err(error) = written {
                // What of it is in the file is hashed once more by the push that goes on.
                self.uploads.open.remove(digest);
                self.note_part(digest);
                return Err(failed("the scheduler cannot write it", &error));
            }
            upload.hash.add(data);
        }
        match upload.hash.len() {
            have if have == upload.total => self.complete(digest, by),
            have => Ok(Pushed::Part(have)),
        }
    }

    /// Makes an image one that was pushed long ago.
    #[cfg(test)]
    pub(super) fn age(&mut self, digest: &Digest) {
        let image = self.images.get_mut(digest).expect("it is there");
        image.pushed = None;
    }

    /// Gives up what there is of an image, file and all.
    ///
    /// # Errors
    /// `failed`: the file cannot be removed. It is not counted any more then.
    pub(super) fn drop_upload(&mut self, digest: &Digest) -> Result<(), Refused> {
        self.uploads.open.remove(digest);
        self.uploads.found.remove(digest);
        gone(fs::remove_file(self.path(digest, PART)))
            .map_err(|error| failed("cannot delete it", &error))
    }

    /// How long an image is that is there and is what its digest says; `None` where it is not there. One whose file was
    /// changed is deleted, so that the push that found it stores it once more.
    fn verified(&mut self, digest: &Digest) -> Option<u64> {
        let path = self.path(digest, "");
        let image = self.images.get_mut(digest)?;
        let found = File::open(path).and_then(|file| Ok((Stamp::from(&file.metadata()?), file)));
        if let Ok((stamp, file)) = found {
            // A stamp that has not changed saves reading the whole file.
            let is_good = image.verified == Some(stamp)
                || Hash::of(file).is_ok_and(|hash| hash.digest() == Some(*digest));
            if is_good {
                image.verified = Some(stamp);
                image.used = SystemTime::now();
                image.pushed = Some(Instant::now());
                return Some(image.bytes);
            }
        }
        tracing::warn!(
            event = "image_corrupt",
            "the copy of {digest} in {} is not what it was: it is deleted, and stored again",
            self.directory.display()
        );
        if let Err(error) = self.remove(digest) {
            tracing::warn!(event = "image_not_deleted", "{digest}: {error}");
        }
        None
    }

    /// Notes what is on disk of an image that is not being pushed any more: it counts, and a push may go on from it.
    /// An empty part is of no use and is removed.
    fn note_part(&mut self, digest: &Digest) {
        let path = self.path(digest, PART);
        let len = fs::symlink_metadata(&path).map(|file| file.len());
        let is_gone = match &len {
            Ok(0) => gone(fs::remove_file(path)).is_ok(),
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if !is_gone {
            self.uploads.found(*digest, len.unwrap_or_default());
        }
    }

    /// Begins to take an image in, or goes on where it was left. Where that is refused, what is on disk of it stays.
    ///
    /// # Errors
    /// As [`Store::write`].
    fn begin(
        &mut self,
        digest: &Digest,
        part: &WriteImage,
        in_use: impl FnOnce() -> InUse,
    ) -> Result<(), Refused> {
        if part.total == 0 {
            return Err(Refused::new(ImageFailure::InvalidData, "an empty file"));
        }
        // Not counted beside the room that is made for all of the image.
        self.uploads.found.remove(digest);
        match self.take_place(digest, part, in_use) {
            Ok(upload) => {
                self.uploads.open.insert(*digest, upload);
                Ok(())
            }
            Err(refused) => {
                self.note_part(digest);
                Err(refused)
            }
        }
    }

    /// Finds a place among [`MAX_UPLOADS`] and room for all of an image, then opens its part.
    ///
    /// # Errors
    /// `busy`, `quota` and `failed` as [`Store::write`].
    fn take_place(
        &mut self,
        digest: &Digest,
        part: &WriteImage,
        in_use: impl FnOnce() -> InUse,
    ) -> Result<Upload, Refused> {
        let is_full = |uploads: &Uploads| uploads.open.len() >= MAX_UPLOADS;
        if is_full(&self.uploads) && self.uploads.abandoned_place().is_none() {
            let detail = format!("{MAX_UPLOADS} images are being pushed; try again");
            return Err(Refused::new(ImageFailure::Busy, detail));
        }
        self.make_room(part.total, &part.tenant, in_use)?;
        // Once there is room, so that a push without room ends no other.
        if is_full(&self.uploads)
            && let Some(abandoned) = self.uploads.abandoned_place()
        {
            self.drop_upload(&abandoned)?;
        }
        self.open_part(digest, part)
            .map_err(|error| failed("the scheduler cannot write it", &error))
    }

    /// Opens the part of an image, hashing what is in it. A part that is longer than the image is to be is of no use
    /// and is cut to nothing.
    fn open_part(&self, digest: &Digest, part: &WriteImage) -> std::io::Result<Upload> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(WRITABLE)
            .open(self.path(digest, PART))?;
        let mut hash = Hash::of(&mut file)?;
        if hash.len() > part.total {
            file.set_len(0)?;
            std::io::Seek::rewind(&mut file)?;
            hash = Hash::new();
        }
        Ok(Upload {
            file,
            hash,
            total: part.total,
            tenant: part.tenant.clone(),
            touched: Instant::now(),
        })
    }

    /// All bytes are there: the image is one of the store's if they are what its digest says, else they are thrown
    /// away.
    ///
    /// # Errors
    /// `wrong_digest`; `failed` where the files cannot be put in place. The part stays then, for a push that goes on.
    fn complete(&mut self, digest: &Digest, by: &str) -> Result<Pushed, Refused> {
        let Some(upload) = self.uploads.open.remove(digest) else {
            return Err(Refused::no_image(digest));
        };
        if upload.hash.digest() != Some(*digest) {
            self.drop_upload(digest)?;
            let detail = "what came is not what its digest says: it was changed while it was pushed, or on its way; push it \
                          again";
            return Err(Refused::new(ImageFailure::WrongDigest, detail));
        }
        let owner = Owner {
            tenant: upload.tenant,
            by: by.to_owned(),
            at_ms: unix_ms(SystemTime::now()),
        };
        if let Err(error) = self.keep(digest, &upload.file, &owner) {
            self.note_part(digest);
            return Err(failed("the scheduler cannot keep it", &error));
        }
        let now = SystemTime::now();
        let image = Image {
            bytes: upload.total,
            owner,
            used: now,
            noted: now,
            pushed: Some(Instant::now()),
            verified: upload.file.metadata().ok().as_ref().map(Stamp::from),
        };
        self.images.insert(*digest, image);
        Ok(Pushed::Complete(upload.total))
    }

    /// Puts an image in place: bytes to disk, owner, name, mode, and the directory to disk, in this order, so that a
    /// crash leaves no image that is not whole. Where a step fails the file is a part, as before.
    fn keep(&self, digest: &Digest, file: &File, owner: &Owner) -> std::io::Result<()> {
        file.sync_all()?;
        self.write_owner(digest, owner)?;
        let (part, whole) = (self.path(digest, PART), self.path(digest, ""));
        fs::rename(&part, &whole)?;
        let may = |mode| file.set_permissions(Permissions::from_mode(mode));
        let on_disk = || File::open(&self.directory)?.sync_all();
        may(READABLE).and_then(|()| on_disk()).inspect_err(|_| {
            // What fails here as well is put right by the next start, which finds the image.
            let _ = may(WRITABLE).and_then(|()| fs::rename(&whole, &part));
        })
    }
}
