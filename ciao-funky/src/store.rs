//! What is kept over a restart: tasks with their numbers, and nodes with theirs. One redb file, written in groups: what
//! was accepted is on disk before its client hears of it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use uuid::Uuid;

use crate::task::Record;

/// Tasks by number, as JSON.
const TASKS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("tasks");

/// UUIDs of nodes by number.
const NODES: TableDefinition<'_, u32, &str> = TableDefinition::new("nodes");

/// Numbers that belong to no task: [`NEXT_TASK`], [`FAMILY`].
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// The number that the next task gets.
const NEXT_TASK: &str = "next_task";

/// What the UUIDs of all instances of this adapter begin with, so that the scheduler can be asked for them alone.
const FAMILY: &str = "family";

/// Mode of the state directory: it holds programs and their arguments.
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
    /// A record is none.
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

/// What was kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Tasks, in the order of their numbers.
    pub(crate) tasks: Vec<Record>,
    /// Nodes: number and UUID.
    pub(crate) nodes: Vec<(u32, String)>,
    /// The number that the next task gets.
    pub(crate) next_task: u32,
    /// What UUIDs of instances begin with.
    pub(crate) family: u32,
}

/// One thing to be written.
#[derive(Debug)]
pub(crate) enum Change {
    /// A task is so.
    Task(Box<Record>),
    /// A task is to be forgotten.
    Forget(u32),
    /// A node has this number.
    Node(u32, String),
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
            path: directory.join("tasks.redb"),
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

type Raw = (Vec<(u32, Vec<u8>)>, Vec<(u32, String)>, u32, u32);

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
