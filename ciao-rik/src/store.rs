//! What is kept over a restart: instances and sets, in one redb file ([`ciao_adapter::store`]).
//!
//! ```text
//! instances.redb
//!   instances  "5f0c1e2a-…"  → an InstanceRecord as JSON
//!   sets       "OWNER\nWORKLOAD" → a Set as JSON
//!   numbers    "family" → 1594867242
//! ```

use std::sync::Arc;

use ciao_adapter::family::Family;
use ciao_adapter::store::{self, ReadError, Schema, json, record, rows};
use redb::{ReadTransaction, TableDefinition, WriteTransaction};

use crate::coordinator::sets::Set;
use crate::instance::InstanceRecord;
use crate::tokens;

/// Records as JSON, by the instances' UUIDs.
const INSTANCES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("instances");

/// Sets as JSON, by owner and workload with a line end between.
const SETS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sets");

/// The tables of `instances.redb`.
#[derive(Debug)]
pub(crate) struct Tables;

/// The file of instances and sets.
pub(crate) type Store = store::Store<Tables>;

/// What a file holds, read at the start.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In the order of their UUIDs.
    pub(crate) instances: Vec<InstanceRecord>,
    /// Key and set.
    pub(crate) sets: Vec<(String, Set)>,
    /// What the UUIDs of all instances of this adapter begin with.
    pub(crate) family: Family,
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

impl Schema for Tables {
    const FILE: &'static str = "instances.redb";
    const BESIDE: &'static [&'static str] = tokens::FILES;
    const PROGRAM: &'static str = "ciao-rik";
    type Change = Change;
    type Kept = Kept;

    fn create(transaction: &WriteTransaction) -> Result<(), redb::Error> {
        transaction.open_table(INSTANCES)?;
        transaction.open_table(SETS)?;
        Ok(())
    }

    fn apply(transaction: &WriteTransaction, changes: &[Change]) -> Result<(), redb::Error> {
        let mut instances = transaction.open_table(INSTANCES)?;
        let mut sets = transaction.open_table(SETS)?;
        for change in changes {
            match change {
                Change::Instance(record) => {
                    drop(instances.insert(&*record.instance, &*json(record)?)?);
                }
                Change::Forget(instance) => drop(instances.remove(&**instance)?),
                Change::Set(key, set) => drop(sets.insert(&**key, &*json(set)?)?),
                Change::ForgetSet(key) => drop(sets.remove(&**key)?),
            }
        }
        Ok(())
    }

    fn read(transaction: &ReadTransaction, family: Family) -> Result<Kept, ReadError> {
        Ok(Kept {
            instances: rows(transaction, INSTANCES, |uuid, it| record(uuid, it))?,
            sets: rows(transaction, SETS, |key, set| {
                Ok((key.to_owned(), record(key, set)?))
            })?,
            family,
        })
    }
}

#[cfg(test)]
mod tests;
