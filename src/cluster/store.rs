//! Records in etcd, as the daemon writes them: calls of a client, which the calling thread waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ciao_etcd::Client;
use ciao_etcd::election::Term;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::driver::Event;
use super::keys::Keys;
use super::records::{Leading, Records, Written};
use super::{EtcdRuntime, Standing};
use crate::server::{Entries, SharedDocument, SharedStore, TakeOver};

/// Records in etcd.
#[derive(Debug)]
pub(super) struct EtcdStore {
    runtime: Arc<EtcdRuntime>,
    records: Records<Client, DriverLink>,
    /// Held while something is written.
    written: Mutex<Written>,
}

/// What the store has of the election.
#[derive(Debug)]
pub(super) struct DriverLink {
    /// Where it tells that etcd knows another leader.
    pub(super) events: mpsc::UnboundedSender<Event>,
    /// Whether this scheduler still leads.
    pub(super) standing: watch::Receiver<Standing>,
    /// When the store was opened.
    pub(super) since: Instant,
}

impl Leading for DriverLink {
    /// Not where the driver is gone, either.
    fn leads(&self) -> bool {
        self.standing.has_changed().is_ok()
            && matches!(*self.standing.borrow(), Standing::Leader(_))
    }

    fn refused(&self) {
        // A driver that has ended knows.
        let _ = self.events.send(Event::Refused);
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    async fn pause(&self, time: Duration) {
        sleep(time).await;
    }
}

impl EtcdStore {
    /// Reads all that is there, after what was staged is carried out. `patience`: how long a write that etcd does not
    /// answer is tried again.
    pub(super) fn take_over(
        (client, runtime): (Client, Arc<EtcdRuntime>),
        keys: Keys,
        term: Term,
        (driver, patience): (DriverLink, Duration),
    ) -> Result<TakeOver, String> {
        let records = Records::new(client, driver, keys, term, patience);
        let mut written = Written::default();
        let found = runtime.block_on(records.take_over(&mut written))?;
        let written = Mutex::new(written);
        Ok(TakeOver {
            uuid: found.uuid,
            records: found.records,
            nodes: found.nodes,
            configuration: found.configuration,
            store: Arc::new(Self {
                runtime,
                records,
                written,
            }),
        })
    }
}

impl SharedStore for EtcdStore {
    fn write(&self, entries: Entries) -> Result<(), String> {
        let mut written = self.written.lock();
        self.runtime
            .block_on(self.records.write(&mut written, entries))
    }

    fn write_document(&self, which: SharedDocument, bytes: &[u8]) -> Result<(), String> {
        let mut written = self.written.lock();
        let write = self.records.write_document(&mut written, which, bytes);
        self.runtime.block_on(write)
    }
}
