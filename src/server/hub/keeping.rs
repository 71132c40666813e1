//! What the core wants kept on its way to the store, and the news that it is on disk on its way back.
//!
//! The order of changes is that in which the core decided them, because they are pushed under its lock. The store's
//! thread reports back as inputs like any other; it takes the core's lock for that, while it holds none of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, warn};

use super::Hub;
use crate::server::store::{News, Opened, Store};
use sched_core::{Change, Input};

impl Hub {
    /// Keeps records in this store from now on. Called once, before anything is accepted. The store's thread holds the
    /// hub weakly, so that the two do not keep each other alive; what it reports after the hub is gone is dropped.
    ///
    /// # Errors
    /// The system has no thread to write it.
    pub(in crate::server) fn keep_in(self: &Arc<Self>, opened: Opened) -> io::Result<()> {
        let hub = Arc::downgrade(self);
        let store = opened.start(move |news| {
            if let Some(hub) = hub.upgrade() {
                let input = match news {
                    News::Committed(ticket) => Input::Committed(ticket),
                    News::Disk(state) => Input::Disk(state),
                };
                hub.handle([input], None);
            }
        })?;
        if self.store.set(store).is_err() {
            error!(event = "internal_error", "there is a store already");
        }
        Ok(())
    }

    /// Hands a change to the store, under the scheduler's lock: their order is the order of the core's decisions. Never
    /// waits: the store merges what it cannot write yet. Without a store the core makes no such changes; one that comes
    /// nevertheless is logged as an internal error and dropped.
    pub(super) fn persist(&self, change: Change) {
        match self.store.get() {
            Some(store) => store.push(change),
            None => error!(
                event = "internal_error",
                "a change to be kept, and no store: {:?}", change.ticket
            ),
        }
    }

    /// Waits until the store is no longer written, though it was not closed. Pending for ever where there is no store:
    /// then nothing can fail.
    ///
    /// The text says why, for the log and the exit of the process.
    pub(in crate::server) fn store_failure(&self) -> impl Future<Output = String> + Send + use<> {
        let failure = self.store.get().map(Store::failure);
        async move {
            match failure {
                Some(failure) => failure.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until what was handed to the store so far is on disk, and the core knows; no longer than until it is tried
    /// without success, where the disk takes no writes. Blocks a thread for blocking work, not the runtime's. That it
    /// failed is logged, because the shutdown goes on either way.
    pub(super) async fn flush(self: &Arc<Self>, time: Duration) {
        let hub = Arc::clone(self);
        let flush = move || hub.store.get().is_none_or(|store| store.flush(time));
        if !tokio::task::spawn_blocking(flush).await.unwrap_or(false) {
            warn!(
                event = "store_not_written",
                "the store was not written: the disk takes no writes, or not within {time:?}"
            );
        }
    }

    /// Writes what is left to the store and closes it. Likewise; after this the store takes nothing more.
    pub(in crate::server) async fn close_store(self: &Arc<Self>, time: Duration) {
        let hub = Arc::clone(self);
        let close = move || hub.store.get().is_none_or(|store| store.close(time));
        if !tokio::task::spawn_blocking(close).await.unwrap_or(false) {
            warn!(
                event = "store_not_written",
                "the store was not written and closed within {time:?}: what is missing is lost"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_frames::Uuid;
    use sched_core::{NodeRecord, Record, RecordKey, Ticket};

    #[tokio::test]
    async fn what_was_handed_to_the_store_is_on_disk_when_the_scheduler_has_left() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Opened::open(directory.path()).unwrap();
        let hub = Arc::new(super::super::tests::hub());
        hub.keep_in(open()).unwrap();
        let cordoned = NodeRecord {
            cordoned: true,
            ..NodeRecord::default()
        };
        let record = (RecordKey::Node(Uuid::from_u128(1)), Record::Node(cordoned));
        hub.persist(Change {
            ticket: Ticket(1),
            entries: vec![(record.0.clone(), Some(record.1.clone()))],
        });
        hub.begin_shutdown();
        hub.leave().await;
        assert_eq!(open().records, [record]);
    }
}
