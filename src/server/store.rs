//! The store of the state directory: records that the core asked to have kept, on disk before it is told so.
//!
//! [`Store::push`] takes a change in under the scheduler's lock and waits for nothing. A thread ([`writer`]) writes
//! everything that came while it was writing the last time as one transaction, and tells the core of the newest change
//! in it. What waits is merged by key, so it is never more than one record for each key: no more than the core itself
//! has in memory, and as many ends of runs again that it has forgotten, however slow the disk is ([`waiting`]).
//!
//! [`format`](mod@format) says what a record is in bytes, [`file`](mod@file) is the database. [`super::restore`] hands
//! what was found to the core.
//!
//! The way of one change, in tickets, which ascend:
//!
//! ```text
//! core ── Change{ticket, entries} ──▶ push: merged into `pending`, `taken` = ticket
//! thread: takes all of `pending`, writes one transaction, syncs
//!         ├─ written: tells News::Committed(ticket), then `written` = ticket
//!         └─ refused: tells News::Disk(Refuses), waits, adds what came meanwhile, tries again
//! ```
//!
//! The core withholds whatever may be said only once it is on disk until it gets the ticket back. Nothing here knows
//! what a record means.

pub(super) mod ends;
mod file;
pub(super) mod format;
mod medium;
#[cfg(test)]
mod tests;
mod waiting;
mod writer;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use parking_lot::{Condvar, Mutex};
#[cfg(any(test, feature = "test-support"))]
use proto_frames::payload::{EndFilter, EndedRun};
use tokio::sync::watch;
use tracing::{info, warn};

use self::ends::History;
pub use self::ends::{HISTORY_BYTES, HISTORY_TIME, HistoryLimits};
use self::file::{IfAbsent, OpenError, StoreFile, set_aside};
use self::waiting::Waiting;
pub use self::writer::News;
use self::writer::{Patience, Sink};
use super::measured::{Holds, Measured};
use super::shared::{Found, SharedStore};
use super::tasks::{said, told};
use crate::printable::counted;
use sched_core::{Change, Record, RecordKey, Ticket};

/// Name of the database in the state directory; files set aside have it with `.damaged-N` behind it.
pub(super) const STORE_FILE: &str = "store.redb";

/// Unreadable records that are named in the log; the others are only counted, so that a damaged file does not fill the
/// log.
const MAX_NAMED: usize = 8;

/// Records to be put, or deleted, by key: what one transaction writes. Keys keep the order in which they came first.
type Batch = IndexMap<RecordKey, Option<Record>>;

/// A store that is being written to: the handle that the hub holds. Dropping it lets the thread write what is
/// left and end, without waiting for that.
#[derive(Debug)]
pub struct Store {
    /// With the writing thread.
    shared: Arc<StoreShared>,
    /// The ends on record.
    history: Arc<History>,
}

/// A store that was opened and is not written to yet. The caller hands `records` to the core, then calls
/// [`Opened::start`].
#[derive(Debug)]
pub struct Opened {
    /// Where records go.
    place: Place,
    /// Why the disk takes no writes, where it does not. The core is told first of all.
    refused: Option<String>,
    /// Every record that could be read. In the order of their keys.
    pub records: Vec<(RecordKey, Record)>,
}

/// Where a store's records go.
#[derive(Debug)]
enum Place {
    /// The database, or what holds its place while the disk takes no writes.
    File(StoreFile),
    /// A store that several schedulers share.
    Shared(SharedSink),
}

/// A shared store, written by the thread as a file is.
#[derive(Debug)]
struct SharedSink {
    store: Arc<dyn SharedStore>,
    /// What has the ends, which the shared store has only as long as the core: this scheduler's own.
    history: Option<StoreFile>,
}

impl Sink for SharedSink {
    type Error = String;

    fn write(&mut self, batch: &Batch) -> Result<(), String> {
        let entry = |(key, record): (&RecordKey, &Option<Record>)| {
            (format::encode_key(key), record.as_ref().map(format::encode))
        };
        self.store.write(batch.iter().map(entry).collect())?;
        match &mut self.history {
            // Last, so that it has no end that the shared store has not; a transaction that is tried again may.
            Some(file) => {
                let batch = runs(batch);
                let written = batch.is_empty().then_some(Ok(()));
                written
                    .unwrap_or_else(|| file.write(&batch))
                    .map_err(|error| error.to_string())
            }
            None => Ok(()),
        }
    }
}

impl Opened {
    /// A store that several schedulers share, whose records were read already.
    #[must_use]
    pub fn shared(store: Arc<dyn SharedStore>) -> Self {
        Self {
            place: Place::Shared(SharedSink {
                store,
                history: None,
            }),
            refused: None,
            records: Vec::new(),
        }
    }

    /// All records as bytes.
    pub(super) fn encoded(&self) -> Found {
        let encode =
            |(key, record): &(RecordKey, Record)| (format::encode_key(key), format::encode(record));
        self.records.iter().map(encode).collect()
    }

    /// Deletes all records but those of runs, which another store has.
    ///
    /// # Errors
    /// The disk takes no writes.
    pub(super) fn forget_all_but_runs(self) -> io::Result<()> {
        let Place::File(mut file) = self.place else {
            return Ok(());
        };
        let keys = self.records.into_iter().map(|(key, _)| key);
        let others = keys.filter(|key| !matches!(key, RecordKey::Run(_)));
        let batch: Batch = others.map(|key| (key, None)).collect();
        match batch.is_empty() {
            true => Ok(()),
            false => file.write(&batch).map_err(io::Error::other),
        }
    }

    /// The same, with this store for the ends of instances: it gets those among the shared store's records that it
    /// lacks, and keeps no record of one that those have not.
    pub(super) fn with_shared(
        self,
        store: Arc<dyn SharedStore>,
        records: &[(RecordKey, Record)],
    ) -> Self {
        let Place::File(mut file) = self.place else {
            return Self::shared(store);
        };
        let is_run = |key: &RecordKey| matches!(key, RecordKey::Run(_));
        let count = self.records.len();
        let own = self.records.into_iter().map(|(key, _)| (key, None));
        let mut batch: Batch = own.filter(|(key, _)| is_run(key)).collect();
        if count > batch.len() {
            warn!(
                event = "store_not_used",
                "the state directory has {} of a scheduler that ran alone: they are left as they are, and the cluster's \
                 store counts",
                counted(count - batch.len(), "record")
            );
        }
        for (key, record) in records {
            if is_run(key) {
                batch.insert(key.clone(), Some(record.clone()));
            }
        }
        if let Err(error) = file.write(&batch) {
            warn!(
                event = "history_not_caught_up",
                "ends of instances from the time of another leader are not in the history of this scheduler: {error}"
            );
        }
        Self {
            place: Place::Shared(SharedSink {
                store,
                history: Some(file),
            }),
            refused: None,
            records: Vec::new(),
        }
    }

    /// Opens the store in a directory, making one if need be. What is damaged is set aside, which is logged with what
    /// is lost by that, and an empty store takes its place. A disk that takes no writes is no hindrance: the store is
    /// read as it is, and written once the disk takes it.
    ///
    /// # Errors
    /// Another process has it open, or the system does not let it be used. The daemon does not start then.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(STORE_FILE);
        let opened = match file::open(&path, IfAbsent::Make) {
            Err(OpenError::Unusable(why)) => {
                warn!(
                    event = "store_unusable",
                    "{}: {why}: queued and suspended instances, batches and cordons from before the restart are lost; \
                     running ones are learned from their launchers",
                    path.display()
                );
                let aside = set_aside(&path).map_err(|error| {
                    let why = format!("{STORE_FILE}: {why}; it cannot be set aside: {error}");
                    io::Error::new(error.kind(), why)
                })?;
                warn!(
                    event = "store_set_aside",
                    "the unusable store was renamed to {}",
                    aside.display()
                );
                file::open(&path, IfAbsent::Make)
            }
            opened => opened,
        };
        match opened {
            Ok(found) => Ok(found.into_opened(&path)),
            Err(OpenError::InUse) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another process has its store open; stop it, or give another --state-dir",
            )),
            Err(OpenError::System(why) | OpenError::Refused(why) | OpenError::Unusable(why)) => {
                Err(io::Error::other(format!("{STORE_FILE}: {why}")))
            }
        }
    }

    /// Begins to write; `tell` is called from the writing thread. `tell` gets tickets in ascending order. The store
    /// holds no lock of its own meanwhile, so that `tell` may take the core's, under which [`Store::push`] is called.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(self, tell: impl Fn(News) + Send + 'static) -> io::Result<Store> {
        let patience = Patience::default();
        match self.place {
            Place::File(file) => {
                let history = file.history();
                let mut store = Store::start(file, patience, self.refused, tell)?;
                store.history = history;
                Ok(store)
            }
            Place::Shared(sink) => {
                let history = sink.history.as_ref().map(StoreFile::history);
                let mut store = Store::start(sink, patience, self.refused, tell)?;
                store.history = history.unwrap_or_default();
                Ok(store)
            }
        }
    }

    /// For how long, and in how many bytes, ends are kept.
    #[must_use]
    pub fn with_history(self, limits: HistoryLimits) -> Self {
        let file = match &self.place {
            Place::File(file) => Some(file),
            Place::Shared(sink) => sink.history.as_ref(),
        };
        if let Some(file) = file {
            file.history().limit(limits);
        }
        self
    }
}

/// Of a batch what the history is made of.
fn runs(batch: &Batch) -> Batch {
    let runs = batch
        .iter()
        .filter(|(key, _)| matches!(key, RecordKey::Run(_)));
    runs.map(|(key, record)| (key.clone(), record.clone()))
        .collect()
}

/// How what was found is said in the log.
impl file::OpenedStore {
    /// Logs what opening the file came to (truncated, unreadable records, how many were found) and passes
    /// the rest on.
    fn into_opened(self, path: &Path) -> Opened {
        let path = path.display();
        if self.rolled_back {
            warn!(
                event = "store_truncated",
                "{path}: the last transaction was not whole, as after a crash while it was written: it is left out"
            );
        }
        if !self.unreadable.is_empty() {
            let count = self.unreadable.len();
            let named = self.unreadable[..count.min(MAX_NAMED)].join("; ");
            warn!(
                event = "store_records_unreadable",
                "{path}: {count} records cannot be read and are left out: {named}"
            );
        }
        info!(
            event = "store_opened",
            "{path}: {} records found",
            self.records.len()
        );
        Opened {
            place: Place::File(self.file),
            refused: self.refused,
            records: self.records,
        }
    }
}

impl Store {
    /// As [`Opened::start`], on any sink and with any patience: tests write to sinks that fail on purpose. A thread
    /// that panics ends the store: [`Store::failure`] says so, and the daemon exits.
    fn start(
        sink: impl Sink + Send + 'static,
        patience: Patience,
        refused: Option<String>,
        tell: impl Fn(News) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(StoreShared::default());
        let thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || {
                let run = || writer::run(&thread, sink, &patience, refused, tell);
                if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                    let why = format!("it panicked: {}", said(&*panic));
                    thread.failure.send_replace(Some(why));
                    thread.end();
                }
            })?;
        let history = Arc::default();
        Ok(Self { shared, history })
    }

    /// A page of the ends on record, whatever their age: the rows, and the number before which to go on.
    ///
    /// # Errors
    /// The filter has a state that there is not, or the database cannot be read.
    #[cfg(any(test, feature = "test-support"))]
    pub fn ends(
        &self,
        filter: &EndFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<EndedRun>, Option<u64>), String> {
        let wanted = ends::Wanted::new(filter, 0)?;
        let page = self.history.page(&wanted, before, limit);
        let page = page.map_err(|error| error.to_string())?;
        let page = page.unwrap_or_default();
        Ok((page.rows, page.next))
    }

    /// How many ends are on record, and their bytes.
    #[cfg(any(test, feature = "test-support"))]
    #[must_use]
    pub fn ends_kept(&self) -> (u64, u64) {
        let totals = &self.history.totals;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&totals.records), of(&totals.bytes))
    }

    /// The ends on record.
    pub(super) fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// How many ends were lost, since the store was opened, because too many waited for the disk that the core had
    /// forgotten.
    pub(super) fn ends_lost(&self) -> u64 {
        self.shared.ends_lost.load(Ordering::Relaxed)
    }

    /// How long transactions took that were written, since the store was opened.
    pub(super) fn commits(&self) -> Measured {
        self.shared.commits.read()
    }

    /// Takes a change in, to be written with the next transaction. Waits for nothing. The cost is one insertion for
    /// each record, under a lock that the thread holds only for moments.
    pub fn push(&self, change: Change) {
        let mut state = self.shared.state.lock();
        state.taken = state.taken.max(change.ticket);
        let lost = state.pending.merge(change.entries);
        drop(state);
        self.shared.lose(lost);
        self.shared.changed.notify_all();
    }

    /// Waits until everything taken in so far is on disk; `false` if it is not within `time`, or the disk was tried
    /// after this call and did not take it. Makes the thread try at once where it pauses after a failure. Blocks the
    /// calling thread.
    pub fn flush(&self, time: Duration) -> bool {
        let mut state = self.shared.state.lock();
        let taken = state.taken;
        let failures = state.failures;
        state.is_urgent = true;
        self.shared.changed.notify_all();
        let is_done = |state: &WriterProgress| state.written >= taken;
        let has_failed =
            |state: &WriterProgress| state.failed >= taken && state.failures > failures;
        self.shared.wait(&mut state, time, |state| {
            is_done(state) || has_failed(state) || state.has_ended
        });
        is_done(&state)
    }

    /// Waits until the writing thread has ended though it was not asked to; says why.
    pub(super) fn failure(&self) -> impl Future<Output = String> + Send + use<> {
        told(self.shared.failure.subscribe())
    }

    /// Writes what is left and closes the database; `false` if that is not done within `time`. The thread tries once
    /// more after this call and gives up if the disk refuses. What is pushed afterwards may not be written. Blocks the
    /// calling thread.
    pub fn close(&self, time: Duration) -> bool {
        let mut state = self.shared.state.lock();
        state.is_closing = true;
        self.shared.changed.notify_all();
        self.shared.wait(&mut state, time, |state| state.has_ended)
    }
}

impl Drop for Store {
    /// Lets the thread end, once it has written what is left.
    fn drop(&mut self) {
        self.shared.state.lock().is_closing = true;
        self.shared.changed.notify_all();
    }
}

/// What the store's users and its thread share. Its lock is held for moments only, and never while anything is written.
/// One condition variable serves both directions; each waiter looks again at what it waits for.
#[derive(Debug, Default)]
struct StoreShared {
    /// Changes that wait, and how far they are.
    state: Mutex<WriterProgress>,
    /// Signalled whenever `state` has changed in a way that somebody may wait for.
    changed: Condvar,
    /// Why the writing thread has ended, if that was not asked of it.
    failure: watch::Sender<Option<String>>,
    /// How long transactions took.
    commits: Holds,
    /// Ends that were lost because too many waited for the disk.
    ends_lost: AtomicU64,
}

/// How far each change is. Tickets only ascend; `written` and `failed` never exceed `taken`.
#[derive(Debug, Default)]
struct WriterProgress {
    /// What the next transaction is to write. All of it goes into one transaction, so that a change is on disk as a
    /// whole or not at all.
    pending: Waiting,
    /// The newest change taken in.
    taken: Ticket,
    /// The newest change on disk.
    written: Ticket,
    /// The newest change in the latest transaction that the disk did not take.
    failed: Ticket,
    /// How often it took none. Compared before and after by [`Store::flush`], to tell a new failure from one of the
    /// past.
    failures: u64,
    /// Whether [`Store::flush`] waits for the disk, which is tried at once then. Cleared when the pause ends or a
    /// transaction is written.
    is_urgent: bool,
    /// Whether the thread is to end once nothing is left.
    is_closing: bool,
    /// Whether the thread has ended, the database is closed, and nothing more will be written.
    has_ended: bool,
}

impl StoreShared {
    /// The next transaction, and the newest change in it; waits for one. `None`: there is none to come. While the store
    /// is closing, what is left is still given out before `None`.
    fn take(&self) -> Option<(Waiting, Ticket)> {
        let mut state = self.state.lock();
        loop {
            if state.taken > state.written {
                return Some((state.pending.take(), state.taken));
            }
            if state.is_closing {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Adds what has come meanwhile to a transaction that was not written; the newest change in it then. Later values
    /// of a key replace those in the batch.
    fn take_more(&self, waiting: &mut Waiting) -> Ticket {
        let mut state = self.state.lock();
        let (later, taken) = (state.pending.take(), state.taken);
        drop(state);
        self.lose(waiting.merge_later(later));
        taken
    }

    /// Counts ends that are lost.
    fn lose(&self, ends: u64) {
        self.ends_lost.fetch_add(ends, Ordering::Relaxed);
    }

    /// Lets some time pass; less, if the store is to be closed or somebody waits for it.
    fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        self.wait(&mut state, time, |state| {
            state.is_closing || state.is_urgent
        });
        state.is_urgent = false;
    }

    /// Asked by the writer before each try.
    fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }

    /// The disk did not take a transaction. [`Store::flush`] stops waiting.
    fn failed(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        state.failed = ticket;
        state.failures += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// All changes up to this one are on disk.
    fn wrote(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        state.written = state.written.max(ticket);
        state.is_urgent = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Told last, once the database is closed or the thread has panicked.
    fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits for a condition; `false` if it does not come true within `time`.
    fn wait(
        &self,
        state: &mut parking_lot::MutexGuard<'_, WriterProgress>,
        time: Duration,
        condition: impl Fn(&WriterProgress) -> bool,
    ) -> bool {
        let deadline = Instant::now() + time;
        while !condition(state) {
            if self.changed.wait_until(state, deadline).timed_out() {
                return condition(state);
            }
        }
        true
    }
}
