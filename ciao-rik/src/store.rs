//! What is kept over a restart: instances and sets, in one redb file, written in groups: what was accepted is on disk
//! before its controller hears of it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::desk::sets::Set;
use crate::instance::Record;

/// Instances by UUID, as JSON.
const INSTANCES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("instances");

/// Sets by owner and workload, as JSON.
const SETS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sets");

/// Numbers: [`FAMILY`].
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// What the UUIDs of all instances of this adapter begin with, so that the scheduler can be asked for them alone.
const FAMILY: &str = "family";

/// Mode of the state directory: definitions may hold secrets.
const PRIVATE: u32 = 0o700;

/// Why something is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The directory cannot be made.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another adapter uses the directory.
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
    /// A record is none.
    #[error("{}: {key}: {source}", path.display())]
    Record {
        /// Which file.
        path: PathBuf,
        /// Which record.
        key: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// What was kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Instances.
    pub(crate) instances: Vec<Record>,
    /// Sets, by key.
    pub(crate) sets: Vec<(String, Set)>,
    /// What UUIDs of instances begin with.
    pub(crate) family: u32,
}

/// One thing to be written.
#[derive(Debug)]
pub(crate) enum Change {
    /// An instance is so.
    Instance(Box<Record>),
    /// An instance is to be forgotten.
    Forget(Arc<str>),
    /// A set is so.
    Set(String, Box<Set>),
    /// A set is to be forgotten.
    ForgetSet(String),
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    /// `None` after a failure, until it can be opened again.
    database: Option<Database>,
}

/// Makes a directory that its owner alone may use, if it is not there.
///
/// # Errors
/// It cannot be made.
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
    /// Opens the file in this directory, and reads what is kept.
    ///
    /// # Errors
    /// [`StoreError`].
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

    /// Writes all of these or none, so that they survive a crash.
    ///
    /// # Errors
    /// [`StoreError::Database`]; it is tried to open the file again the next time.
    pub(crate) fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let written = self
            .database()
            .and_then(|database| write(database, changes));
        written.map_err(|source| self.failed(source))
    }

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

    fn failed(&mut self, source: redb::Error) -> StoreError {
        self.database = None;
        StoreError::Database {
            path: self.path.clone(),
            source: Box::new(source),
        }
    }
}

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

struct Raw {
    instances: Vec<(String, Vec<u8>)>,
    sets: Vec<(String, Vec<u8>)>,
    family: u32,
}

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
