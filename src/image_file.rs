//! Images as files: what is in one, and whether it was changed since that was looked at. Who keeps them, where and for how
//! long is for others: `server` has a store of them, launchers a cache.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA256};
use proto_frames::payload::Digest;

/// Bytes read and hashed at a time.
const STEP: usize = 128 * 1024;

/// The digest of bytes that come one after the other.
#[derive(Clone)]
pub(crate) struct Hash {
    context: Context,
    len: u64,
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hash").field("len", &self.len).finish()
    }
}

impl Hash {
    /// That of nothing.
    pub(crate) fn new() -> Self {
        Self {
            context: Context::new(&SHA256),
            len: 0,
        }
    }

    /// That of what a reader has. Blocks.
    pub(crate) fn of(mut reader: impl Read) -> io::Result<Self> {
        let mut hash = Self::new();
        let mut step = vec![0; STEP];
        loop {
            match reader.read(&mut step) {
                Ok(0) => return Ok(hash),
                Ok(len) => hash.add(&step[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The digest of all bytes so far.
    pub(crate) fn digest(&self) -> Option<Digest> {
        Digest::from_bytes(self.context.clone().finish().as_ref())
    }
}

/// What a file is as long as nobody changes it: a change of what is in it is a change of its inode, which nobody but root
/// can set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl From<&Metadata> for Stamp {
    fn from(file: &Metadata) -> Self {
        Self {
            inode: file.ino(),
            len: file.len(),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// Makes a directory for images that is its owner's alone, and keeps other processes from using it as long as the result
/// is open.
pub(crate) fn own_directory(directory: &Path) -> io::Result<File> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "another process uses it; give each its own",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// What is not there is gone.
pub(crate) fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A time as milliseconds of Unix time; 0 before that.
pub(crate) fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
