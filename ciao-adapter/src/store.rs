//! What an adapter keeps over a restart, in one redb file in its state directory.
//!
//! The coordinator writes groups of changes, each group in one transaction: all of it is on disk when [`Store::write`]
//! returns, or none is. The file is read once, when it is opened. An adapter's [`Schema`] says which tables there are,
//! what a change does to them, and what is read.
//!
//! One table is in the file of every adapter:
//!
//! ```text
//! numbers  "family" → 1594867242      and other single numbers of the adapter
//! ```

use std::fmt;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ciao_scheduler::private::{self, JsonFault};
use redb::{
    Database, Key, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition,
    Value, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::family::Family;

/// Single numbers by name.
pub const NUMBERS: TableDefinition<'static, &'static str, u64> = TableDefinition::new("numbers");

/// The name in [`NUMBERS`] of the adapter's [`Family`].
const FAMILY: &str = "family";

/// Mode of the state directory and those in it: programs, definitions and arguments that may hold secrets are there.
const PRIVATE: u32 = 0o700;

/// Mode of the file.
const PRIVATE_FILE: u32 = 0o600;

/// What one adapter keeps: its tables, and the changes to them.
pub trait Schema {
    /// Name of the file in the state directory.
    const FILE: &'static str;

    /// Names of what else the adapter has in the state directory, files and directories.
    const BESIDE: &'static [&'static str];

    /// Name of the program, for the message that another process of it uses the file.
    const PROGRAM: &'static str;

    /// One change to the file.
    type Change;

    /// All that the file holds.
    type Kept;

    /// Makes the tables of an empty file, but [`NUMBERS`]: to read a table that does not exist is an error.
    ///
    /// # Errors
    /// As redb says.
    fn create(transaction: &WriteTransaction) -> Result<(), redb::Error>;

    /// Makes these changes, in their order.
    ///
    /// # Errors
    /// As redb says; then the transaction is dropped and nothing is changed.
    fn apply(transaction: &WriteTransaction, changes: &[Self::Change]) -> Result<(), redb::Error>;

    /// Reads everything; [`rows`], [`record`] and [`number`] help.
    ///
    /// # Errors
    /// A table cannot be read, or a value of one.
    fn read(transaction: &ReadTransaction, family: Family) -> Result<Self::Kept, ReadError>;
}

/// Why something cannot be kept or read. At the start it ends the program; later the coordinator refuses requests until
/// a write succeeds.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory cannot be made or looked at.
    #[error(
        "cannot make the state directory {}: {source}; give another with -state-dir",
        path.display()
    )]
    Directory {
        /// The directory, as the flag has it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the database open; redb locks its file.
    #[error("{}: another {program} uses it: give -state-dir a directory of its own", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// Name of the adapter's program.
        program: &'static str,
    },
    /// The file cannot be opened, read or written.
    #[error("cannot use the store {}: {source}", path.display())]
    Database {
        /// The database's file in the state directory.
        path: PathBuf,
        /// What redb failed with; its text has the system's reason.
        source: Box<redb::Error>,
    },
    /// A value is not the JSON of a record, as after a change of the file by hand or by a newer version.
    #[error(
        "{}: the record {key} cannot be read: {source}; it was changed by hand or by a newer version",
        path.display()
    )]
    Record {
        /// The database's file in the state directory.
        path: PathBuf,
        /// Table and key of the record, for people, such as `task 7`.
        key: String,
        /// Where in the value, and what was expected there.
        source: JsonFault,
    },
}

/// Why [`Schema::read`] failed; [`Store::open`] makes a [`StoreError`] of it.
#[derive(Debug)]
pub enum ReadError {
    /// A table cannot be read.
    Table(redb::Error),
    /// A value is not the JSON of a record.
    Record {
        /// Table and key of the record, for people, such as `task 7`.
        key: String,
        /// Where in the value, and what was expected there.
        source: JsonFault,
    },
}

/// The file of an adapter with this [`Schema`], opened again after a failure.
#[derive(Debug)]
pub struct Store<S> {
    path: PathBuf,
    /// `None` after a failure: redb refuses all further work after an I/O error, so that the next write opens it again.
    database: Option<Database>,
    schema: PhantomData<fn() -> S>,
}

/// Makes a directory that its owner alone may use; its parents are made with the default mode. One that exists is left
/// as it is, whatever its mode.
///
/// # Errors
/// It cannot be made, or something else than a directory has the name.
pub fn make_private(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(PRIVATE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

impl<S: Schema> Store<S> {
    /// Opens the file in this directory, which is made if need be, and reads all that is kept. A directory that is open
    /// to others is closed, with the adapter's files in it, and warned of; it stays as it is if there is anything else
    /// in it.
    ///
    /// # Errors
    /// [`StoreError`], of any kind.
    pub fn open(directory: &Path) -> Result<(Self, S::Kept), StoreError> {
        let is_own = |name: &str| name == S::FILE || S::BESIDE.contains(&name);
        let opened = private::open_directory(directory, is_own);
        let remarks = opened.map_err(|source| StoreError::Directory {
            path: directory.to_owned(),
            source,
        })?;
        for remark in remarks {
            warn!(event = "state_file_open_to_others", "{remark}");
        }
        let mut store = Self {
            path: directory.join(S::FILE),
            database: None,
            schema: PhantomData,
        };
        let kept = store.read()?;
        Ok((store, kept))
    }

    /// Writes all of these in one transaction, in their order. When it returns without an error they survive a crash.
    /// It blocks for as long as the disk takes to sync; an empty list costs nothing.
    ///
    /// # Errors
    /// [`StoreError::Database`]: nothing of it was written. The file is closed, and the next call opens it again.
    pub fn write(&mut self, changes: &[S::Change]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let written = self.database().and_then(|database| {
            let transaction = database.begin_write()?;
            S::apply(&transaction, changes)?;
            transaction.commit()?;
            Ok(())
        });
        written.map_err(|source| self.failed(source))
    }

    /// Closes the file, which the next write opens again: a test can put something else in its place.
    #[cfg(feature = "test-support")]
    pub fn close(&mut self) {
        self.database = None;
    }

    /// Reads everything and parses it.
    fn read(&mut self) -> Result<S::Kept, StoreError> {
        let path = self.path.clone();
        let database = self.database().map_err(ReadError::from);
        database.and_then(read::<S>).map_err(|error| match error {
            ReadError::Table(redb::Error::DatabaseAlreadyOpen) => StoreError::InUse {
                path,
                program: S::PROGRAM,
            },
            ReadError::Table(source) => self.failed(source),
            ReadError::Record { key, source } => StoreError::Record { path, key, source },
        })
    }

    /// The open file, which is opened if it is not.
    fn database(&mut self) -> Result<&Database, redb::Error> {
        match &mut self.database {
            Some(open) => Ok(open),
            none => {
                // Its owner's alone from the beginning, also in a directory that stays open to others.
                let made = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .mode(PRIVATE_FILE)
                    .open(&self.path);
                made.map_err(redb::StorageError::Io)?;
                let database = Database::create(&self.path)?;
                prepare::<S>(&database)?;
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

/// Makes the tables of an empty file, and draws the family once.
fn prepare<S: Schema>(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    S::create(&transaction)?;
    {
        let mut numbers = transaction.open_table(NUMBERS)?;
        if numbers.get(FAMILY)?.is_none() {
            numbers.insert(FAMILY, u64::from(Family::random().number()))?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Reads what the file holds in one transaction.
fn read<S: Schema>(database: &Database) -> Result<S::Kept, ReadError> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let family = number(&transaction, FAMILY)?;
    S::read(&transaction, Family::new(family))
}

/// All rows of a table, each as `row` makes it of key and value, in the order of the keys.
///
/// # Errors
/// The table cannot be read, or that of `row`.
pub fn rows<K: Key + 'static, V: Value + 'static, R>(
    transaction: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
    row: impl Fn(K::SelfType<'_>, V::SelfType<'_>) -> Result<R, ReadError>,
) -> Result<Vec<R>, ReadError> {
    let table = transaction.open_table(table).map_err(redb::Error::from)?;
    let mut rows = Vec::new();
    for entry in table.iter().map_err(redb::Error::from)? {
        let (key, value) = entry.map_err(redb::Error::from)?;
        rows.push(row(key.value(), value.value())?);
    }
    Ok(rows)
}

/// The record of which these bytes are the JSON; `key` says which it is, for people.
///
/// # Errors
/// [`ReadError::Record`].
pub fn record<T: DeserializeOwned>(key: impl fmt::Display, bytes: &[u8]) -> Result<T, ReadError> {
    serde_json::from_slice(bytes).map_err(|source| ReadError::Record {
        key: key.to_string(),
        source: source.into(),
    })
}

/// The number of this name in [`NUMBERS`]; one that is missing is 1.
///
/// # Errors
/// The table cannot be read.
pub fn number(transaction: &ReadTransaction, name: &str) -> Result<u32, redb::Error> {
    let number = transaction.open_table(NUMBERS)?.get(name)?;
    let number = number.map_or(1, |it| it.value());
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// A record as it is kept: its JSON.
///
/// # Errors
/// It cannot be written as JSON, as a map with keys that are no texts.
pub fn json(record: &impl Serialize) -> Result<Vec<u8>, redb::Error> {
    Ok(serde_json::to_vec(record).map_err(io::Error::other)?)
}

impl From<redb::Error> for ReadError {
    fn from(error: redb::Error) -> Self {
        Self::Table(error)
    }
}

#[cfg(test)]
mod tests;
