//! Private, executable copies of tasks' files, by the SHA-256 of what is in them: what is run is what was there when
//! the task was accepted, whatever becomes of the file or its mode.
//!
//! A copy is there once however many tasks run it, and goes with the last of them. The uses are counted in memory only:
//! at a start they are the files of the tasks that have not ended.
//!
//! ```text
//! <state>/binaries/<sha256>           a copy, mode 0500
//! <state>/binaries/partial-<random>   one that is being written, mode 0600
//! ```

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};
use ciao_adapter::store::make_private;
use rustix::fs::{OFlags, statvfs};
use uuid::Uuid;

use crate::task::Binary;

/// Name of the store's directory in the state directory.
pub(crate) const DIRECTORY: &str = "binaries";

/// Bytes read, hashed and written at a time.
const CHUNK: usize = 128 * 1024;

/// Bytes written, in all files together, between two looks at the space that is free.
const LOOK_EVERY: u64 = 16 * 1024 * 1024;

/// Bytes of the file system that are left free for others: the task database is on the same one.
pub(crate) const LEFT_FREE: u64 = 64 * 1024 * 1024;

/// Mode of a copy: its owner may read and run it.
const RUNNABLE: u32 = 0o500;

/// Beginning of the names of files that are being written.
const PARTIAL: &str = "partial-";

/// How much may be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of one file (`-max-binary`).
    pub(crate) file: u64,
    /// Bytes of all copies (`-max-binaries`). Files that are being written may have as much again: whether one equals a
    /// copy that is there shows at its end.
    pub(crate) all: u64,
    /// Bytes of the file system that are left free.
    pub(crate) left_free: u64,
}

/// Why a file is not stored. The text names what the client called the file, or the copy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BinaryError {
    /// A path at the socket that cannot be opened or read, by this program's user.
    #[error("cannot read {name}: {source}")]
    Unreadable {
        /// The path, as the client wrote it.
        name: String,
        /// What the system said when it was opened or read.
        source: io::Error,
    },
    /// It is a directory, a device, a pipe or the like.
    #[error("{0}: not a regular file")]
    NotAFile(String),
    /// Nothing is in it; it could not be run.
    #[error("{0}: the file is empty and cannot be run")]
    Empty(String),
    /// It is longer than `-max-binary`.
    #[error("{name}: longer than {limit} bytes (-max-binary)")]
    TooLong {
        /// What the client called the file.
        name: String,
        /// How long it may be.
        limit: u64,
    },
    /// With it, all copies together would be longer than `-max-binaries`, or all files that are being written.
    #[error(
        "{name}: no room beside the files of other tasks, {limit} bytes in all (-max-binaries)"
    )]
    NoRoom {
        /// What the client called the file.
        name: String,
        /// How long all may be.
        limit: u64,
    },
    /// The file system would have less than [`Limits::left_free`] left.
    #[error("{name}: {} has no space left for it", directory.display())]
    NoSpace {
        /// What the client called the file.
        name: String,
        /// The store's directory.
        directory: PathBuf,
    },
    /// The store's directory cannot be written.
    #[error("cannot store the file in {}: {source}", path.display())]
    Unwritable {
        /// The copy that was to be written, in the store's directory.
        path: PathBuf,
        /// What the system said, as of a full or read-only file system.
        source: io::Error,
    },
}

/// The store of copies; clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    directory: Arc<Path>,
    limits: Limits,
    /// Copies in use, by digest. The lock is held while a copy is renamed into place or removed, never while one is
    /// written.
    held: Arc<Mutex<BTreeMap<String, Held>>>,
    written: Arc<Mutex<Written>>,
}

/// Of the files that are being written.
#[derive(Debug, Default)]
struct Written {
    /// Bytes that they have together.
    bytes: u64,
    /// Bytes that may still be written before the free space is looked at.
    before_look: u64,
}

/// A copy that is in use.
#[derive(Debug)]
struct Held {
    /// How many tasks and uploads use it; never 0 in the map.
    uses: u64,
    bytes: u64,
}

/// A file on its way into the store. Dropping it before [`Partial::finish`] removes it.
pub(crate) struct Partial {
    binaries: Binaries,
    /// What the client called it, for errors and lists.
    name: String,
    path: PathBuf,
    file: File,
    hash: Context,
    bytes: u64,
}

impl Binaries {
    /// Opens the store in this directory. `used` has each file of each task that has not ended; all other entries of
    /// the directory are removed.
    ///
    /// # Errors
    /// The directory cannot be made or read, or an entry not be removed.
    pub(crate) fn open<'a>(
        directory: &Path,
        limits: Limits,
        used: impl Iterator<Item = &'a Binary>,
    ) -> io::Result<Self> {
        make_private(directory)?;
        let mut held = BTreeMap::<String, Held>::new();
        for binary in used {
            let bytes = binary.bytes;
            let held = held.entry(binary.sha256.clone());
            held.or_insert(Held { uses: 0, bytes }).uses += 1;
        }
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let is_used = entry
                .file_name()
                .to_str()
                .is_some_and(|it| held.contains_key(it));
            if !is_used {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Self {
            directory: directory.into(),
            limits,
            held: Arc::new(Mutex::new(held)),
            written: Arc::default(),
        })
    }

    /// Where the copy of this file is, if it is in use.
    pub(crate) fn path(&self, binary: &Binary) -> PathBuf {
        self.directory.join(&binary.sha256)
    }

    /// Copies a file into the store and counts one use, which the caller releases. Blocks for as long as reading and
    /// writing take.
    ///
    /// # Errors
    /// [`BinaryError`], naming the file.
    pub(crate) fn copy(&self, source: &Path) -> Result<Binary, BinaryError> {
        let name = source.display().to_string();
        let unreadable = |source| BinaryError::Unreadable {
            name: name.clone(),
            source,
        };
        // Not to wait for the writer of a pipe.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(source);
        let mut file = opened.map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(BinaryError::NotAFile(name));
        }
        let mut partial = self.begin(name.clone())?;
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk).map_err(unreadable)? {
                0 => return partial.finish(),
                length => partial.write(&chunk[..length])?,
            }
        }
    }

    /// Begins to store a file; `name` is for people alone.
    ///
    /// # Errors
    /// [`BinaryError::Unwritable`].
    pub(crate) fn begin(&self, name: String) -> Result<Partial, BinaryError> {
        let path = self
            .directory
            .join(format!("{PARTIAL}{}", Uuid::new_v4().simple()));
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let file = created.map_err(|source| BinaryError::Unwritable {
            path: path.clone(),
            source,
        })?;
        Ok(Partial {
            binaries: self.clone(),
            name,
            path,
            file,
            hash: Context::new(&SHA256),
            bytes: 0,
        })
    }

    /// Takes one use of a copy back, and removes the copy with the last one. A file without a copy, of a task that
    /// failed at once, is ignored.
    pub(crate) fn release(&self, binary: &Binary) {
        let mut held = self.lock();
        let Some(entry) = held.get_mut(&binary.sha256) else {
            return;
        };
        entry.uses -= 1;
        if entry.uses == 0 {
            held.remove(&binary.sha256);
            if let Err(error) = std::fs::remove_file(self.path(binary)) {
                tracing::warn!(
                    event = "binary_not_removed",
                    "{}: cannot remove it: {error}",
                    self.path(binary).display()
                );
            }
        }
    }

    /// Counts one use more of a copy, if it is there.
    fn use_again(binary: &Binary, held: &mut BTreeMap<String, Held>) -> bool {
        let entry = held.get_mut(&binary.sha256);
        entry.map(|entry| entry.uses += 1).is_some()
    }

    /// The counts. A poisoned lock is used all the same: no code that holds it panics with half a change made.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Binaries::lock`].
    fn lock_written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Partial {
    /// Appends to it. Blocks.
    ///
    /// # Errors
    /// `TooLong`, `NoRoom`, `NoSpace` or `Unwritable`; the caller drops the file.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), BinaryError> {
        let more = bytes.len() as u64;
        let limit = self.binaries.limits.file;
        if self.bytes.saturating_add(more) > limit {
            let name = self.name.clone();
            return Err(BinaryError::TooLong { name, limit });
        }
        if self.claim(more)? {
            self.check_space()?;
        }
        self.hash.update(bytes);
        self.file
            .write_all(bytes)
            .map_err(|source| self.unwritable(source))
    }

    /// Counts bytes that are about to be written; whether the free space has to be looked at first.
    ///
    /// # Errors
    /// `NoRoom`.
    fn claim(&mut self, more: u64) -> Result<bool, BinaryError> {
        let limit = self.binaries.limits.all;
        let mut written = self.binaries.lock_written();
        if written.bytes.saturating_add(more) > limit {
            let name = self.name.clone();
            return Err(BinaryError::NoRoom { name, limit });
        }
        written.bytes += more;
        let is_first = self.bytes == 0;
        self.bytes += more;
        let is_look_due = is_first || written.before_look < more;
        written.before_look = match is_look_due {
            true => LOOK_EVERY,
            false => written.before_look - more,
        };
        Ok(is_look_due)
    }

    /// Makes it one of the store's copies, or counts one use more of an equal one that is there. Blocks until it is on
    /// disk.
    ///
    /// Whether an equal copy exists is asked twice: before the sync, to save it, and after it under the lock, for
    /// another may have come in between.
    ///
    /// # Errors
    /// `Empty`, `NoRoom` or `Unwritable`; the file is removed.
    pub(crate) fn finish(self) -> Result<Binary, BinaryError> {
        if self.bytes == 0 {
            return Err(BinaryError::Empty(self.name.clone()));
        }
        let digest = self.hash.clone().finish();
        let sha256 = digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let binary = Binary {
            name: self.name.clone(),
            sha256,
            bytes: self.bytes,
        };
        if Binaries::use_again(&binary, &mut self.binaries.lock()) {
            return Ok(binary); // the one that is there stays, this one goes
        }
        // Not under the lock: a disk takes its time.
        let made_runnable = self.file.set_permissions(Permissions::from_mode(RUNNABLE));
        made_runnable
            .and_then(|()| self.file.sync_all())
            .map_err(|source| self.unwritable(source))?;
        let mut held = self.binaries.lock();
        if Binaries::use_again(&binary, &mut held) {
            return Ok(binary);
        }
        let limit = self.binaries.limits.all;
        let stored: u64 = held.values().map(|it| it.bytes).sum();
        if stored.saturating_add(self.bytes) > limit {
            let name = self.name.clone();
            return Err(BinaryError::NoRoom { name, limit });
        }
        std::fs::rename(&self.path, self.binaries.path(&binary))
            .and_then(|()| File::open(&self.binaries.directory)?.sync_all())
            .map_err(|source| self.unwritable(source))?;
        let bytes = self.bytes;
        held.insert(binary.sha256.clone(), Held { uses: 1, bytes });
        Ok(binary)
    }

    /// Fails if the next [`LOOK_EVERY`] bytes would leave less than [`Limits::left_free`].
    fn check_space(&self) -> Result<(), BinaryError> {
        let space = statvfs(&*self.binaries.directory);
        let space = space.map_err(|source| self.unwritable(source.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free >= self.binaries.limits.left_free.saturating_add(LOOK_EVERY) {
            return Ok(());
        }
        Err(BinaryError::NoSpace {
            name: self.name.clone(),
            directory: self.binaries.directory.to_path_buf(),
        })
    }

    fn unwritable(&self, source: io::Error) -> BinaryError {
        BinaryError::Unwritable {
            path: self.path.clone(),
            source,
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Not there any more once it is one of the store's.
        let _ = std::fs::remove_file(&self.path);
        self.binaries.lock_written().bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

    use super::*;

    const LIMITS: Limits = Limits {
        file: 10,
        all: 15,
        left_free: 0,
    };

    fn store(directory: &Path) -> Binaries {
        Binaries::open(&directory.join("binaries"), LIMITS, std::iter::empty()).unwrap()
    }

    fn files(directory: &Path) -> usize {
        std::fs::read_dir(directory.join("binaries"))
            .unwrap()
            .count()
    }

    #[test]
    fn a_copy_is_runnable_shared_and_gone_with_its_last_use() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let source = directory.path().join("source");
        std::fs::write(&source, "abc").unwrap();
        std::fs::set_permissions(&source, Permissions::from_mode(0o600)).unwrap();
        let one = store.copy(&source).unwrap();
        let two = store.copy(&source).unwrap();
        assert_eq!(one, two);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(one.sha256, abc);
        std::fs::remove_file(&source).unwrap();
        let mode = std::fs::metadata(store.path(&one)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o500);
        assert_eq!(files(directory.path()), 1);
        store.release(&one);
        assert_eq!(std::fs::read(store.path(&one)).unwrap(), b"abc");
        store.release(&two);
        assert_eq!(files(directory.path()), 0);
    }

    #[test]
    fn what_is_too_long_empty_or_no_file_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let error = |path: &Path| store.copy(path).unwrap_err().to_string();
        assert!(error(&write("long", "0123456789a")).contains("longer than 10 bytes"));
        assert!(error(&write("empty", "")).ends_with("the file is empty and cannot be run"));
        assert!(error(directory.path()).ends_with("not a regular file"));
        assert!(error(&directory.path().join("none")).contains("No such file"));
        store.copy(&write("first", "0123456789")).unwrap();
        assert!(error(&write("second", "012345")).contains("no room beside"));
        assert_eq!(files(directory.path()), 1);
    }

    #[test]
    fn files_that_are_being_written_are_bounded_together_and_give_their_room_back() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let begin = || store.begin("a file".to_owned()).unwrap();
        let (mut one, mut two) = (begin(), begin());
        one.write(b"0123456789").unwrap();
        two.write(b"01234").unwrap();
        let error = two.write(b"5").unwrap_err();
        assert!(matches!(error, BinaryError::NoRoom { .. }), "{error}");
        // What is complete counts as a copy and no more as being written.
        one.finish().unwrap();
        two.write(b"56789").unwrap();
        drop(two);
        let (mut one, mut two) = (begin(), begin());
        one.write(b"0123456789").unwrap();
        assert!(two.write(b"x").is_ok());
        assert!(one.finish().is_ok(), "an equal one is there");
    }

    #[test]
    fn where_the_file_system_has_no_space_left_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits {
            left_free: u64::MAX,
            ..LIMITS
        };
        let to = directory.path().join("binaries");
        let store = Binaries::open(&to, limits, std::iter::empty()).unwrap();
        let mut file = store.begin("a file".to_owned()).unwrap();
        let error = file.write(b"x").unwrap_err();
        assert!(matches!(error, BinaryError::NoSpace { .. }), "{error}");
        drop(file);
        assert_eq!(files(directory.path()), 0);
    }

    #[test]
    fn what_no_task_uses_goes_when_the_store_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        let mut kept = Vec::new();
        for text in ["one", "two"] {
            std::fs::write(&source, text).unwrap();
            kept.push(store(directory.path()).copy(&source).unwrap());
            if text == "one" {
                // Opening the store again would remove it.
                let used = Binaries::open(&directory.path().join("binaries"), LIMITS, kept.iter());
                assert_eq!(files(directory.path()), 1, "{used:?}");
            }
        }
        assert_eq!(files(directory.path()), 1, "opened with none in use");
    }
}
