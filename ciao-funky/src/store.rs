//! What is kept over a restart: tasks with their numbers, and nodes with theirs, in one redb file.
//!
//! The coordinator writes groups of changes, each group in one transaction: all of it is on disk when [`Store::write`]
//! returns, or none is. The file is read once, at the start; the tables in memory are the coordinator's.
//!
//! ```text
//! tasks.redb
//!   tasks    7 → {"id":7,"instance":"…",…}        a TaskRecord as JSON
//!   nodes    2 → "c161398f-…"                     UUID of node 2
//!   numbers  "next_task" → 8, "family" → 1594867242
//! ```

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use uuid::Uuid;

use crate::task::TaskRecord;

/// Records as JSON, by the tasks' numbers.
const TASKS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("tasks");

/// UUIDs of nodes, by their numbers. Entries are never removed: a node that returns has the number that it had.
const NODES: TableDefinition<'_, u32, &str> = TableDefinition::new("nodes");

/// Two single numbers: [`NEXT_TASK`] and [`FAMILY`].
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// The number that the next task gets: one more than the highest that was ever written, also where that task is
/// forgotten.
const NEXT_TASK: &str = "next_task";

/// What the UUIDs of all instances of this adapter begin with, as a number of 32 bits. It is drawn at random when the
/// file is made, so that the scheduler can be asked for this adapter's instances alone.
const FAMILY: &str = "family";

/// Mode of the state directory: programs, and arguments that may hold secrets, are in it.
const PRIVATE: u32 = 0o700;

/// Why something cannot be kept or read. At the start it ends the program; later the coordinator refuses new tasks
/// until a write succeeds.
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
    #[error("{}: another ciao-funky uses it: give -state-dir a directory of its own", .0.display())]
    InUse(PathBuf),
    /// The file cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    Database {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
    /// A task's value is not the JSON of a [`TaskRecord`], as after a change of the file by hand or by a newer version.
    #[error("{}: task {id}: {source}", path.display())]
    Record {
        /// Which file.
        path: PathBuf,
        /// Which task.
        id: u32,
        /// Why.
        source: serde_json::Error,
    },
}

/// What a file holds, read at the start.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In the order of their numbers, also those that have ended and are not forgotten.
    pub(crate) tasks: Vec<TaskRecord>,
    /// Number and UUID of each node that was ever seen.
    pub(crate) nodes: Vec<(u32, String)>,
    /// 1 in an empty file.
    pub(crate) next_task: u32,
    /// [`FAMILY`].
    pub(crate) family: u32,
}

/// One change to the file.
#[derive(Debug)]
pub(crate) enum Change {
    /// Insert or replace this record; [`NEXT_TASK`] is raised past its number in the same transaction.
    Task(Box<TaskRecord>),
    /// Remove the record of this number, if there is one.
    Forget(u32),
    /// The node of this UUID has this number.
    Node(u32, String),
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
            path: directory.join("tasks.redb"),
            database: None,
        };
        let kept = store.read()?;
        Ok((store, kept))
    }

    /// Writes all of these in one transaction, in their order. When it returns without an error they survive a crash.
    /// It blocks for as long as the disk takes to sync; an empty list costs nothing.
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

    /// Reads everything and parses the records.
    fn read(&mut self) -> Result<Kept, StoreError> {
        let path = self.path.clone();
        let raw = self.database().and_then(read);
        let (tasks, nodes, next_task, family) = match raw {
            Ok(raw) => raw,
            Err(redb::Error::DatabaseAlreadyOpen) => return Err(StoreError::InUse(path)),
            Err(source) => return Err(self.failed(source)),
        };
        let record = |(id, bytes): (u32, Vec<u8>)| {
            serde_json::from_slice(&bytes).map_err(|source| StoreError::Record {
                path: path.clone(),
                id,
                source,
            })
        };
        Ok(Kept {
            tasks: tasks.into_iter().map(record).collect::<Result<_, _>>()?,
            nodes,
            next_task,
            family,
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

/// Makes the tables of an empty file, for reading a table that does not exist is an error, and draws the family once.
fn prepare(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(TASKS)?;
        transaction.open_table(NODES)?;
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
        let mut tasks = transaction.open_table(TASKS)?;
        let mut nodes = transaction.open_table(NODES)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        for change in changes {
            match change {
                Change::Task(record) => {
                    let next = numbers.get(NEXT_TASK)?.map_or(1, |it| it.value());
                    numbers.insert(NEXT_TASK, next.max(u64::from(record.id) + 1))?;
                    let bytes = serde_json::to_vec(record).map_err(io::Error::other)?;
                    tasks.insert(record.id, &*bytes)?;
                }
                Change::Forget(id) => drop(tasks.remove(id)?),
                Change::Node(number, uuid) => drop(nodes.insert(number, &**uuid)?),
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Rows as they are in the file: tasks as JSON, nodes, [`NEXT_TASK`], [`FAMILY`].
type Raw = (Vec<(u32, Vec<u8>)>, Vec<(u32, String)>, u32, u32);

/// Copies the whole file's contents out of a transaction. A number that is missing is 1.
fn read(database: &Database) -> Result<Raw, redb::Error> {
    let transaction = database.begin_read()?;
    let tasks = transaction.open_table(TASKS)?;
    let nodes = transaction.open_table(NODES)?;
    let numbers = transaction.open_table(NUMBERS)?;
    let number = |name: &str| -> Result<u32, redb::Error> {
        let number = numbers.get(name)?.map_or(1, |it| it.value());
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    };
    let task = |entry: Result<_, redb::StorageError>| {
        entry.map(
            |(id, bytes): (redb::AccessGuard<'_, u32>, redb::AccessGuard<'_, &[u8]>)| {
                (id.value(), bytes.value().to_vec())
            },
        )
    };
    let node = |entry: Result<_, redb::StorageError>| {
        entry.map(
            |(id, uuid): (redb::AccessGuard<'_, u32>, redb::AccessGuard<'_, &str>)| {
                (id.value(), uuid.value().to_owned())
            },
        )
    };
    Ok((
        tasks.iter()?.map(task).collect::<Result<_, _>>()?,
        nodes.iter()?.map(node).collect::<Result<_, _>>()?,
        number(NEXT_TASK)?,
        number(FAMILY)?,
    ))
}
