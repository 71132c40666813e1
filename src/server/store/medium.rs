//! What the store's file is on: the file system, seen through `redb`'s [`StorageBackend`]. A layer over it notes whether it
//! was a write that failed, because a disk that takes no writes is no damage; another keeps writes in memory, to read a
//! file that cannot be written.

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

/// Bytes looked at or written at a time where all of a file is.
const CHUNK_LEN: usize = 4096;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// To be read and written; made if it is not there.
    Make,
    /// To be read and written.
    Write,
    /// To be read, by no other process meanwhile.
    Read,
}

/// Where the file of a store is.
pub(super) trait Medium: Debug + Send + Sync {
    /// Opens the file, locked.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::ResourceBusy`] if another process has it open.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn StorageBackend>>;
}

/// The file system.
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

/// What has failed of a file.
#[derive(Debug, Default)]
pub(super) struct Failures {
    state: Mutex<Failed>,
}

#[derive(Debug, Default)]
struct Failed {
    /// Why the first write since the file was opened failed.
    write: Option<String>,
    /// Whether something that was written may not be on disk though it can be read: the system forgets after the error
    /// that it was not.
    is_sync_in_doubt: bool,
}

impl Failures {
    /// Notes that the disk does not take a write.
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

    /// All that can be read is on disk.
    pub(super) fn is_synced(&self) {
        self.state.lock().is_sync_in_doubt = false;
    }
}

/// A file whose failures are noted.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) file: Box<dyn StorageBackend>,
    pub(super) failures: Arc<Failures>,
}

impl Watched {
    fn noted(&self, result: io::Result<()>) -> io::Result<()> {
        result.inspect_err(|error| self.failures.note(error))
    }
}

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

/// A file that is read, with writes kept in memory: as much as a database writes while it is opened.
#[derive(Debug)]
pub(super) struct Overlay {
    file: Box<dyn StorageBackend>,
    state: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    len: u64,
    /// As much of the file as is still there.
    file_len: u64,
    /// Chunks that are not as in the file, by number.
    chunks: BTreeMap<u64, Box<[u8; CHUNK_LEN]>>,
}

impl Overlay {
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

    /// A chunk as it is in the file, with zeros behind its end.
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

/// Where an offset is: the number of its chunk, and the place in it.
fn place(offset: u64) -> (u64, usize) {
    let len = CHUNK_LEN as u64;
    let within = usize::try_from(offset % len).unwrap_or_default();
    (offset / len, within)
}

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

/// Whether a file is one that was made, and whose first transaction never was: the database writes its mark last.
pub(super) fn is_unborn(file: &dyn StorageBackend) -> io::Result<bool> {
    const MARK_LEN: usize = 9;
    const HEADER_LEN: u64 = 4096;
    // The database makes its file no shorter.
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
