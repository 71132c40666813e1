//! What the store's file is on: the file system, seen through `redb`'s [`StorageBackend`]. A layer over it notes
//! whether it was a write that failed, because a disk that takes no writes is no damage; another keeps writes in
//! memory, to read a file that cannot be written.
//!
//! ```text
//! redb ── Watched ── FileBackend        as usual: failures of writes are noted in `Failures`
//! redb ── Overlay ── FileBackend        on a disk that takes no writes: nothing reaches the file
//! ```
//!
//! Tests put a file that fails on purpose in the place of `FileBackend`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use crate::private;

/// Bytes looked at or written at a time where all of a file is, and the unit in which [`Overlay`] keeps what was
/// written: the size of `redb`'s pages and of the file system's blocks.
const CHUNK_LEN: usize = 4096;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// To be read and written; made if it is not there.
    Make,
    /// To be read and written.
    Write,
    /// To be read. The lock is taken all the same, so that no other process writes meanwhile.
    Read,
}

/// Where the file of a store is. [`FileSystem`] in the daemon; tests have one that refuses writes.
pub(super) trait Medium: Debug + Send + Sync {
    /// Opens the file, locked.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::ResourceBusy`] if another process has it open.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn StorageBackend>>;
}

/// Files of the operating system, readable by their owner alone where this makes them.
#[derive(Debug)]
pub(super) struct FileSystem;

impl Medium for FileSystem {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn StorageBackend>> {
        let file = match access {
            // Made here, because the database would let others read it.
            Access::Make => private::open(path)?,
            Access::Write => File::options().read(true).write(true).open(path)?,
            Access::Read => File::open(path)?,
        };
        // The lock that the database takes too, taken before anything is looked at. Where there are no locks, there is
        // none.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let backend = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Box::new(backend))
    }
}

/// What has failed of a file. Outlives the database on it, which is closed after a failure; shared by every [`Watched`]
/// that is opened for the same store.
#[derive(Debug, Default)]
pub(super) struct Failures {
    state: Mutex<Failed>,
}

/// The two answers of [`Failures`].
#[derive(Debug, Default)]
struct Failed {
    /// Why the first write since the file was opened failed.
    write: Option<String>,
    /// Whether something that was written may not be on disk though it can be read. After a failed `fsync` Linux marks
    /// the pages clean: a later `fsync` succeeds without writing them.
    is_sync_in_doubt: bool,
}

impl Failures {
    /// Notes that the disk does not take a write. Only the first since the last look is kept: later ones mostly follow
    /// from it.
    fn note(&self, error: &io::Error) {
        self.state
            .lock()
            .write
            .get_or_insert_with(|| error.to_string());
    }

    /// Why the disk took no write, if it did not, since this was asked last.
    pub(super) fn take(&self) -> Option<String> {
        self.state.lock().write.take()
    }

    /// Whether what can be read may not be on disk.
    pub(super) fn is_sync_in_doubt(&self) -> bool {
        self.state.lock().is_sync_in_doubt
    }

    /// All that can be read is on disk, because it was written again and synced.
    pub(super) fn is_synced(&self) {
        self.state.lock().is_sync_in_doubt = false;
    }
}

/// A file whose failures are noted. Passes everything on. Failures of reads are not noted: they say nothing about
/// whether the disk takes writes.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) file: Box<dyn StorageBackend>,
    pub(super) failures: Arc<Failures>,
}

impl Watched {
    /// The result as it is, after its error was noted.
    fn noted(&self, result: io::Result<()>) -> io::Result<()> {
        result.inspect_err(|error| self.failures.note(error))
    }
}

/// Methods that change the file note their failure; the rest are passed on.
impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.noted(self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.noted(self.file.sync_data());
        if synced.is_err() {
            self.failures.state.lock().is_sync_in_doubt = true;
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.noted(self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

/// A file that is read, with writes kept in memory: as much as a database writes while it is opened, which is a few
/// pages. Dropped with the database; the file was never written to.
#[derive(Debug)]
pub(super) struct Overlay {
    /// Only read.
    file: Box<dyn StorageBackend>,
    state: Mutex<Written>,
}

/// What was written to an [`Overlay`].
#[derive(Debug)]
struct Written {
    /// Length of the file as the database sees it, which may be more or less than on disk.
    len: u64,
    /// Bytes of the file below this one are read from it; cutting the file lowers it, and growing again yields zeros.
    file_len: u64,
    /// Chunks that are not as in the file, by number.
    chunks: BTreeMap<u64, Box<[u8; CHUNK_LEN]>>,
}

impl Overlay {
    /// An overlay over this file as it is now.
    ///
    /// # Errors
    /// The system does not tell the file's length.
    pub(super) fn over(file: Box<dyn StorageBackend>) -> io::Result<Self> {
        let len = file.len()?;
        let (file_len, chunks) = (len, BTreeMap::new());
        let state = Mutex::new(Written {
            len,
            file_len,
            chunks,
        });
        Ok(Self { file, state })
    }

    /// A chunk as it is in the file, with zeros behind its end. Not put in the map: only what is written is kept.
    fn chunk(&self, number: u64, file_len: u64) -> io::Result<Box<[u8; CHUNK_LEN]>> {
        let mut chunk = Box::new([0; CHUNK_LEN]);
        let offset = number * CHUNK_LEN as u64;
        let len = file_len.saturating_sub(offset).min(CHUNK_LEN as u64);
        let len = usize::try_from(len).unwrap_or(CHUNK_LEN);
        if len > 0 {
            self.file.read(offset, &mut chunk[..len])?;
        }
        Ok(chunk)
    }
}

/// Where an offset is: the number of its chunk, and the place in it. So `place(4097)` is `(1, 1)`.
fn place(offset: u64) -> (u64, usize) {
    let len = CHUNK_LEN as u64;
    let within = usize::try_from(offset % len).unwrap_or_default();
    (offset / len, within)
}

/// Reads beyond the end are [`io::ErrorKind::UnexpectedEof`], as of a file. Locks keep their defaults: the file beneath
/// is locked already.
impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read(&self, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        if offset.saturating_add(out.len() as u64) > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !out.is_empty() {
            let (number, at) = place(offset);
            let len = out.len().min(CHUNK_LEN - at);
            let (part, rest) = out.split_at_mut(len);
            match state.chunks.get(&number) {
                Some(chunk) => part.copy_from_slice(&chunk[at..at + len]),
                None => {
                    let chunk = self.chunk(number, state.file_len)?;
                    part.copy_from_slice(&chunk[at..at + len]);
                }
            }
            out = rest;
            offset += len as u64;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let (first_behind, at) = place(len);
        state.chunks.split_off(&(first_behind + u64::from(at > 0)));
        if let Some(chunk) = state.chunks.get_mut(&first_behind) {
            chunk[at..].fill(0);
        }
        state.file_len = state.file_len.min(len);
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.len = state.len.max(offset.saturating_add(data.len() as u64));
        while !data.is_empty() {
            let (number, at) = place(offset);
            let len = data.len().min(CHUNK_LEN - at);
            let (part, rest) = data.split_at(len);
            let chunk = match state.chunks.entry(number) {
                std::collections::btree_map::Entry::Occupied(chunk) => chunk.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(self.chunk(number, state.file_len)?)
                }
            };
            chunk[at..at + len].copy_from_slice(part);
            data = rest;
            offset += len as u64;
        }
        Ok(())
    }
}

/// Whether a file is one that was made, and whose first transaction never was. The database writes its mark (the first
/// nine bytes) last, so a crash before that leaves zeros there, and behind its header nothing but zeros.
///
/// Such a file is no damage: nothing was acknowledged that it should hold. An empty file, or one of at least the length
/// that the database gives a new one, counts; a shorter one of zeros was cut by something else.
pub(super) fn is_unborn(file: &dyn StorageBackend) -> io::Result<bool> {
    /// `redb`'s magic number.
    const MARK_LEN: usize = 9;
    /// The first page, which has the mark and may have more before the mark is written.
    const HEADER_LEN: u64 = 4096;
    /// The database makes its file no shorter.
    const SHORTEST: u64 = 1024 * 1024;
    let len = file.len()?;
    let mut chunk = [0; CHUNK_LEN];
    let mark = &mut chunk[..MARK_LEN.min(usize::try_from(len).unwrap_or(MARK_LEN))];
    file.read(0, mark)?;
    if mark.iter().any(|&byte| byte != 0) {
        return Ok(false);
    }
    let mut offset = HEADER_LEN;
    while offset < len {
        let part = read_chunk(file, offset, len, &mut chunk)?;
        if part.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        offset += CHUNK_LEN as u64;
    }
    Ok(len == 0 || len >= SHORTEST)
}

/// Writes all of a file again as it is read: whatever the disk did not take though the system believes that it did.
/// Reads the whole file once and writes what is not zero.
///
/// # Errors
/// The system's. The doubt remains then.
pub(super) fn write_again(file: &dyn StorageBackend) -> io::Result<()> {
    let len = file.len()?;
    let mut chunk = [0; CHUNK_LEN];
    let mut offset = 0;
    while offset < len {
        let part = read_chunk(file, offset, len, &mut chunk)?;
        // Of zeros there may be none in the file, and no room for them.
        if part.iter().any(|&byte| byte != 0) {
            file.write(offset, part)?;
        }
        offset += CHUNK_LEN as u64;
    }
    file.sync_data()
}

/// Up to a chunk of the file from `offset`, which is below `len`, the file's length.
fn read_chunk<'a>(
    file: &dyn StorageBackend,
    offset: u64,
    len: u64,
    chunk: &'a mut [u8; CHUNK_LEN],
) -> io::Result<&'a [u8]> {
    let left = usize::try_from(len - offset).unwrap_or(CHUNK_LEN);
    let part = &mut chunk[..left.min(CHUNK_LEN)];
    file.read(offset, part)?;
    Ok(part)
}
