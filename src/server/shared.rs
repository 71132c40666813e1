//! A store that several schedulers share, as the daemon sees it: what it does not know is what keeps the store.
//!
//! The one that leads finds in it what the one before had acknowledged ([`TakeOver`]), and writes to it in the place of
//! a state directory ([`SharedStore`]).

use std::fmt::Debug;
use std::sync::Arc;

use proto_frames::Uuid;
use tracing::{info, warn};

use super::restore;
use super::store::{Opened, format};

/// Records as bytes: a key, and its value, or `None` where it is deleted.
pub type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Keys and their values.
pub type Found = Vec<(Vec<u8>, Vec<u8>)>;

/// A store that several schedulers share, for the one that leads.
pub trait SharedStore: Debug + Send + Sync {
    /// Writes records, all of them or none; on return they are durable. After an error it is called with all of them
    /// again. Blocks the calling thread.
    ///
    /// # Errors
    /// Why they are not written, or may not be: also that this scheduler does not lead any more.
    fn write(&self, entries: Entries) -> Result<(), String>;

    /// Writes the list of nodes. Likewise, but a part of it may be written.
    ///
    /// # Errors
    /// Likewise.
    fn write_nodes(&self, nodes: &str) -> Result<(), String>;
}

/// What a scheduler begins with that leads from now on.
#[derive(Debug)]
pub struct TakeOver {
    /// The UUID by which peers know the cluster's scheduler, whichever it is.
    pub uuid: Uuid,
    /// All records.
    pub records: Found,
    /// The list of nodes as it was written.
    pub nodes: String,
    /// Where it writes.
    pub store: Arc<dyn SharedStore>,
}

impl TakeOver {
    /// Gives the core's settings what was found, and hands out what to write to.
    pub(super) fn restore(self, scheduler: &mut sched_core::Config) -> Opened {
        let mut records = Vec::with_capacity(self.records.len());
        for (key, value) in &self.records {
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
        restore::give(records, scheduler);
        Opened::shared(self.store)
    }
}
