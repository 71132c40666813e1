//! What is kept over a restart: tasks with their numbers, and nodes with theirs, in one redb file
//! ([`ciao_adapter::store`]). It is read at the start; the tables in memory are the coordinator's.
//!
//! ```text
//! tasks.redb
//!   tasks    7 → {"id":7,"instance":"…",…}        a TaskRecord as JSON
//!   nodes    2 → "c161398f-…"                     UUID of node 2
//!   numbers  "next_task" → 8, "family" → 1594867242
//! ```

use std::sync::Arc;

use ciao_adapter::family::Family;
use ciao_adapter::store::{self, NUMBERS, ReadError, Schema, json, number, record, rows};
use redb::{ReadTransaction, ReadableTable as _, TableDefinition, WriteTransaction};

use crate::binaries;
use crate::task::TaskRecord;

/// Records as JSON, by the tasks' numbers.
const TASKS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("tasks");

/// UUIDs of nodes, by their numbers. Entries are never removed: a node that returns has the number that it had.
const NODES: TableDefinition<'_, u32, &str> = TableDefinition::new("nodes");

/// The number that the next task gets: one more than the highest that was ever written, also where that task is
/// forgotten.
const NEXT_TASK: &str = "next_task";

/// The tables of `tasks.redb`.
#[derive(Debug)]
pub(crate) struct Tables;

/// The file of tasks and nodes.
pub(crate) type Store = store::Store<Tables>;

/// What a file holds, read at the start.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In the order of their numbers, also those that have ended and are not forgotten.
    pub(crate) tasks: Vec<TaskRecord>,
    /// Number and UUID of each node that was ever seen.
    pub(crate) nodes: Vec<(u32, String)>,
    /// 1 in an empty file.
    pub(crate) next_task: u32,
    /// What the UUIDs of all instances of this adapter begin with.
    pub(crate) family: Family,
}

/// One change to the file.
#[derive(Debug)]
pub(crate) enum Change {
    /// Insert or replace this record; [`NEXT_TASK`] is raised past its number in the same transaction.
    Task(Arc<TaskRecord>),
    /// Remove the record of this number, if there is one.
    Forget(u32),
    /// The node of this UUID has this number.
    Node(u32, String),
}

impl Schema for Tables {
    const FILE: &'static str = "tasks.redb";
    const BESIDE: &'static [&'static str] = &[binaries::DIRECTORY];
    const PROGRAM: &'static str = "ciao-funky";
    type Change = Change;
    type Kept = Kept;

    fn create(transaction: &WriteTransaction) -> Result<(), redb::Error> {
        transaction.open_table(TASKS)?;
        transaction.open_table(NODES)?;
        Ok(())
    }

    fn apply(transaction: &WriteTransaction, changes: &[Change]) -> Result<(), redb::Error> {
        let mut tasks = transaction.open_table(TASKS)?;
        let mut nodes = transaction.open_table(NODES)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        for change in changes {
            match change {
                Change::Task(record) => {
                    let next = numbers.get(NEXT_TASK)?.map_or(1, |it| it.value());
                    numbers.insert(NEXT_TASK, next.max(u64::from(record.id) + 1))?;
                    tasks.insert(record.id, &*json(&**record)?)?;
                }
                Change::Forget(id) => drop(tasks.remove(id)?),
                Change::Node(number, uuid) => drop(nodes.insert(number, &**uuid)?),
            }
        }
        Ok(())
    }

    fn read(transaction: &ReadTransaction, family: Family) -> Result<Kept, ReadError> {
        Ok(Kept {
            tasks: rows(transaction, TASKS, |id, task| {
                record(format_args!("task {id}"), task)
            })?,
            nodes: rows(transaction, NODES, |number, uuid| {
                Ok((number, uuid.to_owned()))
            })?,
            next_task: number(transaction, NEXT_TASK)?,
            family,
        })
    }
}

#[cfg(test)]
mod tests;
