//! What is kept over a restart: instances and sets, in one redb file.
//!
//! The coordinator writes groups of changes, each group in one transaction: all of it is on disk when [`Store::write`]
//! returns, or none is. The file is read once, at the start. It is the twin of `ciao-funky`'s store with other tables.
//!
//! ```text
//! instances.redb
//!   instances  "5f0c1e2a-…"  → an InstanceRecord as JSON
//!   sets       "OWNER\nWORKLOAD" → a Set as JSON
//!   numbers    "family" → 1594867242
//! ```

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::coordinator::sets::Set;
use crate::instance::InstanceRecord;

/// Records as JSON, by the instances' UUIDs.
const INSTANCES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("instances");

/// Sets as JSON, by owner and workload with a line end between.
const SETS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sets");

/// One number: [`FAMILY`].
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// What the UUIDs of all instances of this adapter begin with, as a number of 32 bits, drawn when the file is made. The
/// scheduler can be asked for these instances alone.
const FAMILY: &str = "family";

/// Mode of the state directory: definitions may hold secrets, and the tokens' file is in it.
const PRIVATE: u32 = 0o700;

/// Why something cannot be kept or read. At the start it ends the program; later the coordinator refuses requests until
/// a write succeeds.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The state directory cannot be made.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has the database open; redb locks its file.
    #[error("{}: another ciao-rik uses it: give -state-dir a directory of its own", .0.display())]
    InUse(PathBuf),
    /// The file cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    Database {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
    /// A value is not the JSON of an [`InstanceRecord`] or a [`Set`].
    #[error("{}: {key}: {source}", path.display())]
    Record {
        /// Which file.
        path: PathBuf,
        /// UUID, or the set's key.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// What a file holds, read at the start.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In the order of their UUIDs.
    pub(crate) instances: Vec<InstanceRecord>,
    /// Key and set.
    pub(crate) sets: Vec<(String, Set)>,
    /// [`FAMILY`].
    pub(crate) family: u32,
}

/// One change to the file.
#[derive(Debug)]
pub(crate) enum Change {
    /// Insert or replace this record.
    Instance(Box<InstanceRecord>),
    /// Remove the record with this UUID, if there is one.
    Forget(Arc<str>),
    /// Insert or replace this set.
    Set(String, Box<Set>),
    /// Remove the set with this key, if there is one.
    ForgetSet(String),
}

/// The file, opened again after a failure.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    /// `None` after a failure: redb refuses all further work after an I/O error, so that the next write opens it again.
    database: Option<Database>,
}

/// Makes a directory that its owner alone may use; its parents are made with the default mode. One that exists is left
/// as it is, whatever its mode.
///
/// # Errors
/// It cannot be made, or something else than a directory has the name.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(PRIVATE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

impl Store {
    /// Opens the file in this directory, which is made if need be, and reads all that is kept.
    ///
    /// # Errors
    /// [`StoreError`], of any kind.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Kept), StoreError> {
        make_private(directory).map_err(|source| StoreError::Directory {
            path: directory.to_owned(),
            source,
        })?;
        let mut store = Self {
            path: directory.join("instances.redb"),
            database: None,
        };
        let kept = store.read()?;
        Ok((store, kept))
    }

    /// Writes all of these in one transaction, in their order, and returns when the disk has them. An empty list costs
    /// nothing.
    ///
    /// # Errors
    /// [`StoreError::Database`]: nothing of it was written. The file is closed, and the next call opens it again.
    pub(crate) fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let written = self
            .database()
            .and_then(|database| write(database, changes));
        written.map_err(|source| self.failed(source))
    }

    /// Reads everything and parses it.
    fn read(&mut self) -> Result<Kept, StoreError> {
        let path = self.path.clone();
        let raw = match self.database().and_then(read) {
            Ok(raw) => raw,
            Err(redb::Error::DatabaseAlreadyOpen) => return Err(StoreError::InUse(path)),
            Err(source) => return Err(self.failed(source)),
        };
        Ok(Kept {
            instances: records(&path, raw.instances)?
                .into_iter()
                .map(|(_, record)| record)
                .collect(),
            sets: records(&path, raw.sets)?,
            family: raw.family,
        })
    }

    /// The open file, which is opened if it is not.
    fn database(&mut self) -> Result<&Database, redb::Error> {
        match &mut self.database {
            Some(open) => Ok(open),
            none => {
                let database = Database::create(&self.path)?;
                prepare(&database)?;
                Ok(none.insert(database))
            }
        }
    }

    /// Closes the file, and makes the error for the caller.
    fn failed(&mut self, source: redb::Error) -> StoreError {
        self.database = None;
        StoreError::Database {
            path: self.path.clone(),
            source: Box::new(source),
        }
    }
}

/// Parses the rows of a table, all or none.
fn records<T: DeserializeOwned>(
    path: &Path,
    raw: Vec<(String, Vec<u8>)>,
) -> Result<Vec<(String, T)>, StoreError> {
    let record = |(key, bytes): (String, Vec<u8>)| match serde_json::from_slice(&bytes) {
        Ok(record) => Ok((key, record)),
        Err(source) => Err(StoreError::Record {
            path: path.to_owned(),
            key,
            source,
        }),
    };
    raw.into_iter().map(record).collect()
}

/// Makes the tables of an empty file, for reading a table that does not exist is an error, and draws the family once.
fn prepare(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(INSTANCES)?;
        transaction.open_table(SETS)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        if numbers.get(FAMILY)?.is_none() {
            let family = u64::from(Uuid::new_v4().as_fields().0);
            numbers.insert(FAMILY, family)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// The transaction of [`Store::write`].
fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut instances = transaction.open_table(INSTANCES)?;
        let mut sets = transaction.open_table(SETS)?;
        for change in changes {
            match change {
                Change::Instance(record) => {
                    let bytes = serde_json::to_vec(record).map_err(io::Error::other)?;
                    instances.insert(&*record.instance, &*bytes)?;
                }
                Change::Forget(instance) => drop(instances.remove(&**instance)?),
                Change::Set(key, set) => {
                    let bytes = serde_json::to_vec(set).map_err(io::Error::other)?;
                    sets.insert(&**key, &*bytes)?;
                }
                Change::ForgetSet(key) => drop(sets.remove(&**key)?),
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Rows as they are in the file, JSON unparsed.
struct Raw {
    instances: Vec<(String, Vec<u8>)>,
    sets: Vec<(String, Vec<u8>)>,
    family: u32,
}

/// Copies the whole file's contents out of a transaction.
fn read(database: &Database) -> Result<Raw, redb::Error> {
    let transaction = database.begin_read()?;
    let table = |definition: TableDefinition<'_, &str, &[u8]>| -> Result<_, redb::Error> {
        let table = transaction.open_table(definition)?;
        let mut all: Vec<(String, Vec<u8>)> = Vec::new();
        for entry in table.iter()? {
            let (key, bytes) = entry?;
            all.push((key.value().to_owned(), bytes.value().to_vec()));
        }
        Ok(all)
    };
    let family = transaction.open_table(NUMBERS)?.get(FAMILY)?;
    let family = family.map_or(1, |it| it.value());
    Ok(Raw {
        instances: table(INSTANCES)?,
        sets: table(SETS)?,
        family: u32::try_from(family).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
impl Store {
    /// Closes the file, which the next write opens again: a test can put something else in its place.
    pub(crate) fn close(&mut self) {
        self.database = None;
    }
}
