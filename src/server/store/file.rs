//! The database of the store: a `redb` file with one table of records and one that says in which format they are.
//!
//! Nothing in the file is trusted. Its checksums are verified whenever it is opened, and a panic of the database, which
//! damage it does not expect may cause, is an error like others.
//!
//! A disk that takes no writes ([`OpenError::Refused`]) is no damage. The database takes no other transaction after one
//! that failed: it is opened again for the next, and has then what was committed last. A file that cannot be written at
//! all is read nevertheless ([`Overlay`]).
//!
//! ```text
//! "records"   key bytes → value bytes, as `format` has them
//! "ends"      see `ends`
//! "about"     "format"  → u64, and what `ends` sums up
//! ```
//!
//! What opening comes to, and what the caller does:
//!
//! - opened: written to as usual;
//! - [`OpenError::Refused`]: read through an [`Overlay`] and held; every later transaction tries to open it for
//!   writing;
//! - [`OpenError::Unusable`]: set aside as `store.redb.damaged-N`, and an empty one is made;
//! - [`OpenError::InUse`], [`OpenError::System`]: the daemon does not start.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::ends::{History, Written};
use super::medium::{
    Access, Failures, FileSystem, Medium, Overlay, Watched, is_unborn, write_again,
};
use super::writer::Sink;
use super::{Batch, format};
use crate::server::tasks::said;
use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageBackend,
    StorageError, TableDefinition, TableError,
};
use sched_core::{Record, RecordKey};

/// Records, by key. Keys and values are bytes of [`format`](mod@format), so that the database knows no types and one
/// record that cannot be read leaves the others readable.
pub(super) const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

/// What is known of the file itself. A file without this table has just been made.
pub(super) const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

/// The key in [`ABOUT`] of the format that the records are in.
const FORMAT_KEY: &str = "format";

/// Memory for pages that were read or written. Records are read once, and written without being read, so that this
/// only has to hold the inner pages of the tree: these, of 200 000 records.
const CACHE_LEN: usize = 16 * 1024 * 1024;

/// Unusable stores that are kept beside the one in use, for somebody to look at. The oldest goes first.
const MAX_ASIDE: usize = 4;

/// A store on disk.
#[derive(Debug)]
pub(super) struct StoreFile {
    /// Where the file is; it is opened by this path again after a failure.
    path: PathBuf,
    /// The file system; in tests one that fails when it is told to.
    medium: Arc<dyn Medium>,
    /// `None` after a transaction failed: the database takes no other then, and is opened again for the next.
    database: Option<Arc<Database>>,
    /// Shared with the [`Watched`] file inside the database, because the database's own errors do not say whether the
    /// disk refused a write.
    failures: Arc<Failures>,
    /// Whether there is a file to open again: a new one would lack what was written before.
    if_absent: IfAbsent,
    /// The file, while there is no database, so that no other process takes it meanwhile.
    held: Option<Box<dyn StorageBackend>>,
    /// The table of ends, and who reads it.
    history: Arc<History>,
}

/// A store that was opened, and what was found in it.
#[derive(Debug)]
pub(super) struct OpenedStore {
    pub(super) file: StoreFile,
    pub(super) records: Vec<(RecordKey, Record)>,
    /// Records that could not be read, and why. They stay in the file.
    pub(super) unreadable: Vec<String>,
    /// Whether the last transaction was damaged, and the one before it is the last now.
    pub(super) rolled_back: bool,
    /// Why the disk takes no writes, where it does not: what was found was read nevertheless.
    pub(super) refused: Option<String>,
}

/// Why there is no store. The texts are for people and name no path: the caller puts it in front.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Another process has it.
    #[error("another process has it open")]
    InUse,
    /// What is in the file is damaged, or of a program newer than this one.
    #[error("{0}")]
    Unusable(String),
    /// The disk takes no writes: it is full, or can only be read, or fails.
    #[error("{0}")]
    Refused(String),
    /// The system does not let it be used, whatever is in it.
    #[error("{0}")]
    System(String),
}

/// What is to be done if there is no file.
///
/// [`IfAbsent::Fail`] once the file has been seen: if it vanishes while the daemon runs, making an empty one would lose
/// every record that was written before without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfAbsent {
    /// Make one.
    Make,
    /// Fail.
    Fail,
}

/// Opens a store; reads all of it. One on a disk that takes no writes is
/// only read. Takes time in proportion to the file: its checksums are verified and every record is decoded.
///
/// # Errors
/// [`OpenError`]. After [`OpenError::Unusable`] the caller may set the file aside and open again.
pub(super) fn open(path: &Path, if_absent: IfAbsent) -> Result<OpenedStore, OpenError> {
    open_on(Arc::new(FileSystem), path, if_absent)
}

/// As [`open`], on any medium.
pub(super) fn open_on(
    medium: Arc<dyn Medium>,
    path: &Path,
    if_absent: IfAbsent,
) -> Result<OpenedStore, OpenError> {
    let mut file = StoreFile {
        path: path.to_owned(),
        medium,
        database: None,
        failures: Arc::default(),
        if_absent,
        held: None,
        history: Arc::default(),
    };
    let (contents, refused) = match file.open_database() {
        Ok((database, contents)) => {
            let database = Arc::new(database);
            file.history.set(Some(Arc::clone(&database)));
            file.database = Some(database);
            file.if_absent = IfAbsent::Fail;
            (contents, None)
        }
        Err(OpenError::Refused(why)) => (file.read_only()?, Some(why)),
        Err(error) => return Err(error),
    };
    Ok(OpenedStore {
        file,
        records: contents.records,
        unreadable: contents.unreadable,
        rolled_back: contents.rolled_back,
        refused,
    })
}

/// What was read from a database when it was opened.
#[derive(Debug, Default)]
struct Contents {
    records: Vec<(RecordKey, Record)>,
    unreadable: Vec<String>,
    /// Whether the last transaction did not verify and was left out.
    rolled_back: bool,
}

impl StoreFile {
    /// Opens the database for writing, and reads it. Whatever the database says, a write that
    /// the disk refused counts as [`OpenError::Refused`]: the database may call the same thing damage.
    ///
    /// Order: open and lock the file, verify checksums, compare formats, read, sync the directory (so that a file just made
    /// survives a crash).
    fn open_database(&mut self) -> Result<(Database, Contents), OpenError> {
        self.held = None;
        self.failures.take();
        let opened = caught(|| {
            let file = self.open_file()?;
            let (database, rolled_back) = database_on(file)?;
            stamp(&database)?;
            self.history.prepare(&database)?;
            let mut contents = read(&database)?;
            sync_directory(&self.path).map_err(|error| OpenError::Refused(error.to_string()))?;
            contents.rolled_back = rolled_back;
            Ok((database, contents))
        })
        .unwrap_or_else(|panic| Err(OpenError::Unusable(format!("damaged: {panic}"))));
        opened.map_err(|error| match (error, self.failures.take()) {
            (OpenError::InUse, _) => OpenError::InUse,
            // Whatever else the database says of it.
            (_, Some(why)) => OpenError::Refused(why),
            (error, None) => error,
        })
    }

    /// The file, to be read and written, with all that can be read in it on disk. A file that was made and never
    /// written to ([`is_unborn`]) is cut to nothing, so that the database makes it from the beginning. After a failed
    /// sync all of it is written again: the system may believe that pages are on disk which are not.
    fn open_file(&self) -> Result<Watched, OpenError> {
        let access = match self.if_absent {
            IfAbsent::Make => Access::Make,
            IfAbsent::Fail => Access::Write,
        };
        let file = Watched {
            file: self
                .medium
                .open(&self.path, access)
                .map_err(|error| not_opened(&error))?,
            failures: Arc::clone(&self.failures),
        };
        let io = |error: io::Error| OpenError::from(redb::Error::Io(error));
        if is_unborn(&file).map_err(io)? {
            if self.if_absent == IfAbsent::Fail {
                return Err(OpenError::Unusable("damaged: it is empty".to_owned()));
            }
            file.set_len(0).map_err(io)?;
        } else if self.failures.is_sync_in_doubt() {
            write_again(&file).map_err(io)?;
        }
        self.failures.is_synced();
        Ok(file)
    }

    /// Reads the file without writing to it, and holds it against other processes. What the database wants to write
    /// while it opens (a repair, its format) goes to memory and is thrown away. A file that is not there, or has
    /// nothing in it, is an empty store.
    fn read_only(&mut self) -> Result<Contents, OpenError> {
        let open = || self.medium.open(&self.path, Access::Read);
        let io = |error: io::Error| OpenError::from(redb::Error::Io(error));
        let contents = caught(|| {
            let file = match open() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened.map_err(|error| not_opened(&error))?,
            };
            if is_unborn(&*file).map_err(io)? {
                return Ok(None);
            }
            let (database, rolled_back) = database_on(Overlay::over(file).map_err(io)?)?;
            stamp(&database)?;
            let mut contents = read(&database)?;
            contents.rolled_back = rolled_back;
            Ok(Some(contents))
        })
        .unwrap_or_else(|panic| Err(OpenError::Unusable(format!("damaged: {panic}"))))?;
        if contents.is_some() {
            self.if_absent = IfAbsent::Fail;
        }
        self.hold();
        Ok(contents.unwrap_or_default())
    }

    /// Keeps other processes from the file while no database has it open. That it cannot be opened is no worse than
    /// that it is not open: the next transaction tries again.
    fn hold(&mut self) {
        self.held = self.medium.open(&self.path, Access::Read).ok();
    }
}

/// A database on this file, with its checksums verified; and whether its last transaction did not verify and was left
/// out. The database says only how far a repair is, so that is told from the progress it reports.
fn database_on(file: impl StorageBackend) -> Result<(Database, bool), OpenError> {
    let rolled_back = Rc::new(Cell::new(false));
    let seen = Rc::clone(&rolled_back);
    let database = Database::builder()
        .set_cache_size(CACHE_LEN)
        .set_check_integrity_on_open(true)
        .set_repair_callback(move |repair| {
            // Said at 0, when it begins, at 0.3 only if the last transaction did not verify, and at 0.6 and 0.9.
            const DOES_NOT_VERIFY: Range<f64> = 0.1..0.5;
            if DOES_NOT_VERIFY.contains(&repair.progress()) {
                seen.set(true);
            }
        })
        .create_with_backend(file)?;
    Ok((database, rolled_back.get()))
}

/// Why a file cannot be opened. A full or read-only disk is one to wait for; everything else, such as a missing
/// permission, ends the start.
fn not_opened(error: &io::Error) -> OpenError {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, ResourceBusy, StorageFull};
    match error.kind() {
        ResourceBusy => OpenError::InUse,
        StorageFull | QuotaExceeded | ReadOnlyFilesystem => OpenError::Refused(error.to_string()),
        _ => OpenError::System(error.to_string()),
    }
}

/// Puts the format into a file that has just been made, and leaves any other as it is.
///
/// # Errors
/// [`OpenError::Unusable`] for any other format than this program's.
fn stamp(database: &Database) -> Result<(), OpenError> {
    match format_of(database)? {
        Some(format::FORMAT) => return Ok(()),
        Some(version) if version > format::FORMAT => {
            return Err(OpenError::Unusable(format!(
                "it is of format {version}, this program knows formats up to {}",
                format::FORMAT
            )));
        }
        Some(version) => {
            return Err(OpenError::Unusable(format!("there is no format {version}")));
        }
        None => {}
    }
    let transaction = database.begin_write().map_err(redb::Error::from)?;
    {
        transaction.open_table(RECORDS).map_err(redb::Error::from)?;
        let mut about = transaction.open_table(ABOUT).map_err(redb::Error::from)?;
        about.insert(FORMAT_KEY, format::FORMAT)?;
    }
    transaction.commit().map_err(redb::Error::from)?;
    Ok(())
}

/// The format a file says it is in; `None` for one that has just been made.
fn format_of(database: &Database) -> Result<Option<u64>, OpenError> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    match transaction.open_table(ABOUT) {
        Ok(about) => match about.get(FORMAT_KEY)? {
            Some(version) => Ok(Some(version.value())),
            None => Err(OpenError::Unusable("it does not say its format".to_owned())),
        },
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(redb::Error::from(error).into()),
    }
}

/// Every record. One that cannot be decoded is named in `unreadable` and stays in the file, for a program that knows
/// it; only a failure of the database itself is an error.
fn read(database: &Database) -> Result<Contents, OpenError> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let table = transaction.open_table(RECORDS).map_err(redb::Error::from)?;
    let mut contents = Contents::default();
    for entry in table.iter()? {
        let (key, value) = entry?;
        match format::decode(key.value(), value.value()) {
            Ok(record) => contents.records.push(record),
            Err(why) => {
                let unreadable = format!("{}: {why}", format::name(key.value()));
                contents.unreadable.push(unreadable);
            }
        }
    }
    Ok(contents)
}

/// Takes a file out of the way, as `store.redb.damaged-N` with a number above all others; the path it has then. Of more
/// than [`MAX_ASIDE`] the oldest are removed, so that a disk that keeps damaging files does not fill up.
///
/// # Errors
/// The system's: the file is where it was, or was moved and the removal of others failed.
pub(super) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut kept = aside(path)?;
    let number = kept.last().map_or(1, |(number, _)| number + 1);
    let to = numbered(path, number);
    std::fs::rename(path, &to)?;
    kept.push((number, to.clone()));
    for (_, oldest) in &kept[..kept.len().saturating_sub(MAX_ASIDE)] {
        std::fs::remove_file(oldest)?;
    }
    sync_directory(path)?;
    Ok(to)
}

/// The files set aside earlier, by number. Found by the exact name that [`numbered`] would give them: other files in
/// the directory are left alone.
fn aside(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent(path))? {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.rsplit_once('-'))
            .and_then(|(_, number)| number.parse().ok());
        if let Some(number) = number.filter(|&number| numbered(path, number).ends_with(&name)) {
            found.push((number, numbered(path, number)));
        }
    }
    found.sort();
    Ok(found)
}

/// `store.redb.damaged-3` for 3.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".damaged-{number}"));
    name.into()
}

/// Sees that a file that was made or renamed is there after a crash.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// The directory that a file is in; the current one for a bare name.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("."))
}

/// Why a transaction was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The database, which had failed, could not be opened again.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The disk took no write: in the system's words.
    #[error("{0}")]
    Refused(String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] redb::Error),
    /// The database panicked.
    #[error("{0}")]
    Panic(String),
}

impl StoreFile {
    /// The table of ends, for its readers.
    pub(super) fn history(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }
}

impl Drop for StoreFile {
    /// Closes the database for readers as well.
    fn drop(&mut self) {
        self.history.set(None);
    }
}

#[cfg(test)]
impl StoreFile {
    /// As after a transaction that failed.
    pub(super) fn fail(&mut self) {
        self.history.set(None);
        self.database = None;
    }

    /// Whether what can be read may not be on disk.
    pub(super) fn is_sync_in_doubt(&self) -> bool {
        self.failures.is_sync_in_doubt()
    }
}

/// What the writing thread calls for each transaction.
impl Sink for StoreFile {
    type Error = WriteError;

    /// Writes a batch in one transaction; on return it is synced to disk. After a failure the database is closed and
    /// only the lock on the file is kept; the next call opens it again, which verifies all of it.
    fn write(&mut self, batch: &Batch) -> Result<(), WriteError> {
        let written = self.try_write(batch);
        if written.is_err() {
            self.hold();
        }
        written
    }
}

impl StoreFile {
    /// One try. `database` is taken out first and put back only after a success: a database whose commit failed, or
    /// that panicked, is dropped here.
    fn try_write(&mut self, batch: &Batch) -> Result<(), WriteError> {
        self.failures.take();
        let database = match self.database.take() {
            Some(database) => database,
            None => {
                let database = Arc::new(self.open_database()?.0);
                self.history.set(Some(Arc::clone(&database)));
                database
            }
        };
        self.if_absent = IfAbsent::Fail;
        let written = caught(|| {
            let ends = write(&database, batch, &self.history)?;
            self.database = Some(Arc::clone(&database));
            self.history.written(&ends);
            Ok(())
        })
        .unwrap_or_else(|panic| Err(WriteError::Panic(panic)));
        if written.is_err() {
            // It is closed with the last of them.
            self.history.set(None);
        }
        drop(database);
        written.map_err(|error| self.failures.take().map_or(error, WriteError::Refused))
    }
}

/// Puts and removes the batch's records and commits with the database's full durability.
fn write(database: &Database, batch: &Batch, history: &History) -> Result<Written, redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut records = transaction.open_table(RECORDS)?;
        for (key, record) in batch {
            let key = format::encode_key(key);
            match record {
                Some(record) => records.insert(&key[..], &format::encode(record)[..])?,
                None => records.remove(&key[..])?,
            };
        }
    }
    let written = history.write(&transaction, batch)?;
    transaction.commit()?;
    Ok(written)
}

/// Does something that may panic on damaged files; what it said if it did. `AssertUnwindSafe` holds because everything
/// that the closure may have left half done is dropped afterwards.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| said(&*panic).to_owned())
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse,
            error => redb::Error::from(error).into(),
        }
    }
}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::Error> for OpenError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) if !is_damage(&error) => Self::System(error.to_string()),
            error => Self::Unusable(format!("damaged: {error}")),
        }
    }
}

/// Whether an error is about what the file holds, or the disk beneath it (`EIO`), rather than a lack of room or
/// permission. Damage is set aside; the rest ends the start.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
