//! A store that several schedulers share, as the daemon sees it: what it does not know is what keeps the store.
//!
//! The one that leads finds in it what the one before had acknowledged ([`TakeOver`]), and writes to it in the place of
//! a state directory ([`SharedStore`]).

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use proto_frames::Uuid;
use tracing::{info, warn};

use super::restore;
use super::state::StateDir;
use super::store::{Opened, format};
use crate::printable::counted;

/// Records as bytes: a key, and its value, or `None` where it is deleted.
pub type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Keys and their values.
pub type Found = Vec<(Vec<u8>, Vec<u8>)>;

/// What the keys of instances' records begin with; their UUIDs follow.
pub const INSTANCE_RECORDS: u8 = format::INSTANCE;

/// A store that several schedulers share, for the one that leads.
pub trait SharedStore: Debug + Send + Sync {
    /// Writes records, all of them or none; on return they are durable. After an error it is called with all of them
    /// again. Blocks the calling thread.
    ///
    /// # Errors
    /// Why they are not written, or may not be: also that this scheduler does not lead any more.
    fn write(&self, entries: Entries) -> Result<(), String>;

    /// Writes a document in the place of the one that was there. Likewise.
    ///
    /// # Errors
    /// Likewise.
    fn write_document(&self, which: SharedDocument, bytes: &[u8]) -> Result<(), String>;
}

/// What stands in the shared store besides records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedDocument {
    /// The list of nodes, as in a state directory.
    Nodes,
    /// The versions of the cluster configuration, as in a state directory.
    Configuration,
    /// The UUID by which peers know the cluster's scheduler, whichever it is.
    Uuid,
}

/// What a scheduler finds in the shared store that leads from now on.
#[derive(Debug)]
pub struct TakeOver {
    /// The UUID by which peers know the cluster's scheduler, whichever it is; `None` before the first one has led.
    pub uuid: Option<Uuid>,
    /// All records.
    pub records: Found,
    /// The list of nodes as it was written; empty where none was.
    pub nodes: Vec<u8>,
    /// The versions of the cluster configuration as they were written; empty where none were.
    pub configuration: Vec<u8>,
    /// Where it writes.
    pub store: Arc<dyn SharedStore>,
}

/// What it begins with.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) uuid: Uuid,
    pub(super) found: TakeOver,
}

impl TakeOver {
    /// Begins to lead. What a scheduler that ran alone has in this directory becomes the cluster's, if none has led yet: it
    /// goes on behind the name, with all that waits and runs, and nothing is left in the directory that it could begin
    /// with a second time but the history. The UUID is written last: until then the next to begin does all of it again.
    ///
    /// # Errors
    /// The directory cannot be used, or the shared store not be written.
    pub(super) fn begin(mut self, directory: Option<&Path>) -> io::Result<Begun> {
        if let Some(uuid) = self.uuid {
            return Ok(Begun { uuid, found: self });
        }
        let mut alone = None;
        let uuid = match directory {
            None => Uuid::new_v4(),
            Some(path) => {
                let directory = StateDir::open(path)?;
                self.nodes = self.adopt(SharedDocument::Nodes, &directory.nodes_file())?;
                let versions = directory.configuration_file();
                self.configuration = self.adopt(SharedDocument::Configuration, &versions)?;
                let opened = Opened::open(path)?;
                let records = opened.encoded();
                let entries = records.iter().cloned();
                let entries = entries.map(|(key, value)| (key, Some(value)));
                self.store
                    .write(entries.collect())
                    .map_err(io::Error::other)?;
                if !records.is_empty() {
                    info!(
                        event = "store_taken_along",
                        "{} of the scheduler that ran alone with {} taken into the cluster's store",
                        counted(records.len(), "record"),
                        path.display()
                    );
                }
                self.records.extend(records);
                alone = Some(opened);
                directory.own_uuid()?
            }
        };
        let text = uuid.to_string();
        let written = self
            .store
            .write_document(SharedDocument::Uuid, text.as_bytes());
        written.map_err(io::Error::other)?;
        if let Some(opened) = alone {
            opened.forget_all_but_runs()?;
        }
        Ok(Begun { uuid, found: self })
    }

    /// A file of the directory becomes a document of the cluster, if it is there.
    fn adopt(&self, which: SharedDocument, file: &Path) -> io::Result<Vec<u8>> {
        let bytes = match std::fs::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let written = self.store.write_document(which, &bytes);
        written.map_err(io::Error::other)?;
        Ok(bytes)
    }
}

impl Begun {
    /// Gives the core's settings what was found, and hands out what to write to. `history`: the directory in which this
    /// scheduler keeps the ends of instances; those that were found are added there.
    ///
    /// # Errors
    /// As of a state directory.
    pub(super) fn restore(
        self,
        scheduler: &mut sched_core::Config,
        history: Option<&Path>,
    ) -> io::Result<Opened> {
        let TakeOver { records, store, .. } = self.found;
        let found = records;
        let mut records = Vec::with_capacity(found.len());
        for (key, value) in &found {
            match format::decode(key, value) {
                Ok(record) => records.push(record),
                Err(why) => warn!(
                    event = "store_records_unreadable",
                    "a record of the cluster cannot be read and is left out: {}: {why}",
                    format::name(key)
                ),
            }
        }
        info!(
            event = "store_opened",
            "the cluster's store: {} records found",
            records.len()
        );
        let opened = match history {
            Some(directory) => {
                StateDir::open(directory)?;
                Opened::open(directory)?.with_shared(store, &records)
            }
            None => Opened::shared(store),
        };
        restore::give(records, scheduler);
        Ok(opened)
    }
}
