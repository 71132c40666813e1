//! Who asks for ends on record, and the answers on their way.
//!
//! The core permits the query; what it is answered with is read beside it, from the store's table on a thread for blocking
//! work. Without a store, or while its disk takes no writes, the runs that the core remembers are the answer.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use proto_frames::payload::{Payload as _, Query, QueryResult};
use proto_frames::{Frame, Kind};
use tokio::sync::Semaphore;

use super::{Hub, InputBatch};
use crate::server::restore::unix_ms;
use crate::server::sentences::worded_run;
use crate::server::store::HistoryLimits;
use crate::server::store::ends::{EndsPage, Wanted, row_of};
use sched_core::SessionId;

/// Pages that are read at the same time: some processors are left for everything else.
const READERS: usize = 2;

/// Pages that may wait for that; each is some tens of milliseconds. Who asks beyond it is told to try again.
const MAX_WAITING: usize = 256;

/// One of those that wait. It is given back however the wait ends: a client of HTTP may leave meanwhile.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    /// A place; `None` if as many wait as may.
    fn new(count: &'a AtomicUsize) -> Option<Self> {
        let place = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < MAX_WAITING).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs that are read from the core under one hold of its lock.
const RUNS_PER_STEP: usize = 256;

/// Who reads ends now.
#[derive(Debug)]
pub(super) struct EndReaders {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// For tasks that answer peers; empty before the hub is served.
    hub: OnceLock<Weak<Hub>>,
}

impl Default for EndReaders {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(READERS)),
            waiting: AtomicUsize::default(),
            hub: OnceLock::new(),
        }
    }
}

impl EndReaders {
    /// Reads on a thread for blocking work, as one of [`READERS`].
    ///
    /// # Errors
    /// Too many wait for a place, or reading panicked.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let Some(_waiting) = Waiting::new(&self.waiting) else {
            return Err(format!("{MAX_WAITING} others read ends already; try again"));
        };
        let internal = |error: &dyn Display| format!("internal error: {error}");
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|error| internal(&error))?;
        // Who asked may leave meanwhile, which does not end the read: the place is free once the read is over.
        let read = tokio::task::spawn_blocking(move || {
            let _place = place;
            read()
        });
        read.await.map_err(|error| internal(&error))
    }
}

impl Hub {
    /// Looks up ends for a peer that may ask for them. Under the scheduler's lock: nothing waits.
    pub(super) fn ask_ends(
        &self,
        batch: &mut InputBatch<'_>,
        session: SessionId,
        query: Box<Query>,
    ) {
        // Queries come on tasks of connections to a hub that is served.
        let hub = self.end_readers.hub.get().and_then(Weak::upgrade);
        let (Some(hub), Ok(runtime)) = (hub, tokio::runtime::Handle::try_current()) else {
            let answer = failed(
                &query,
                "internal error: ends cannot be read before the server runs".to_owned(),
            );
            let frame = self.ends_frame(&answer);
            batch.wakers.extend(self.queue_behind(session, frame));
            return;
        };
        runtime.spawn(async move {
            let answer = hub.ends(*query).await;
            hub.send_behind(session, hub.ends_frame(&answer));
        });
    }

    /// Has peers answered that ask for ends. Called once, before anything is accepted.
    pub(in crate::server) fn answer_about_ends(self: &Arc<Self>) {
        let _ = self.end_readers.hub.set(Arc::downgrade(self));
    }

    /// How many ends are on record, their bytes, how many were deleted as too old and as too many, and how many were
    /// lost while they waited for the disk; `None` where there is no store.
    pub(in crate::server) fn history_totals(&self) -> Option<[u64; 5]> {
        let store = self.store.get()?;
        let totals = &store.history().totals;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Some([
            of(&totals.records),
            of(&totals.bytes),
            of(&totals.too_old),
            of(&totals.too_many),
            store.ends_lost(),
        ])
    }

    fn ends_frame(&self, answer: &QueryResult) -> Frame {
        Frame::new(Kind::QUERY_RESULT, self.uuid, answer.encode())
    }

    /// The answer to a query about ends on record: one page, or why there is none.
    pub(in crate::server) async fn ends(self: &Arc<Self>, query: Query) -> QueryResult {
        let (hub, asked) = (Arc::clone(self), query.clone());
        let read = self.end_readers.read(move || hub.ends_now(&asked));
        read.await.unwrap_or_else(|why| failed(&query, why))
    }

    /// Blocks the calling thread.
    fn ends_now(&self, query: &Query) -> QueryResult {
        self.ends_page(query)
            .unwrap_or_else(|why| failed(query, why))
    }

    fn ends_page(&self, query: &Query) -> Result<QueryResult, String> {
        let limit = query.checked_limit().map_err(|error| error.to_string())?;
        let cursor = |text: &String| {
            text.parse::<u64>()
                .map_err(|_| format!("after: '{text}' is not where a page of ends goes on"))
        };
        let before = query.after.as_ref().map(cursor).transpose()?;
        let store = self.store.get();
        let limits = store.map_or_else(HistoryLimits::default, |store| store.history().limits());
        let wanted = Wanted::new(&query.filter, limits.oldest_ms(unix_ms()))?;
        let on_disk = match store {
            Some(store) => store
                .history()
                .page(&wanted, before, limit)
                .map_err(|error| format!("the store cannot be read: {error}"))?,
            None => None,
        };
        let in_memory = on_disk.is_none();
        let page = match on_disk {
            Some(page) => page,
            // What is remembered is bounded by its amount, and timed by the core's clock alone.
            None => self.remembered(&Wanted::new(&query.filter, 0)?, before, limit),
        };
        Ok(QueryResult {
            id: query.id,
            what: query.what.clone(),
            ends: page.rows,
            next: page.next.map(|number| number.to_string()),
            in_memory,
            forgotten: in_memory
                .then(|| self.read(sched_core::runs_forgotten))
                .filter(|count| *count > 0),
            ..QueryResult::default()
        })
    }

    /// The same of the runs that the core remembers. Its lock is free between two steps.
    fn remembered(&self, wanted: &Wanted<'_>, before: Option<u64>, limit: usize) -> EndsPage {
        let mut page = EndsPage::default();
        let mut before = before.unwrap_or(u64::MAX);
        loop {
            let runs =
                self.read(|scheduler| sched_core::runs_before(scheduler, before, RUNS_PER_STEP));
            let Some((last, _)) = runs.last() else {
                return page;
            };
            before = *last;
            for (number, run) in runs {
                let run = worded_run(run);
                if !page.offer(&row_of(&run), (number, wanted, limit)) {
                    return page;
                }
            }
        }
    }
}

fn failed(query: &Query, why: String) -> QueryResult {
    QueryResult {
        id: query.id,
        what: query.what.clone(),
        error: Some(why),
        ..QueryResult::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn as_many_may_wait_as_may_and_a_place_is_free_again_however_a_wait_ends() {
        let count = AtomicUsize::default();
        let mut waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| Waiting::new(&count).expect("there is a place"))
            .collect();
        assert!(Waiting::new(&count).is_none());
        assert!(Waiting::new(&count).is_none());
        waiting.pop();
        let again = Waiting::new(&count);
        assert!(again.is_some());
        drop((again, waiting));
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_read_keeps_its_place_until_it_is_over_though_who_asked_has_left() {
        let readers = Arc::new(EndReaders::default());
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let gates: Vec<_> = (0..READERS)
            .map(|_| {
                let (open, gate) = std::sync::mpsc::channel::<()>();
                let (readers, began) = (Arc::clone(&readers), began.clone());
                let task = tokio::spawn(async move {
                    let read = move || {
                        began.send(()).unwrap();
                        let _ = gate.recv();
                    };
                    readers.read(read).await
                });
                (open, task)
            })
            .collect();
        let deadline = Duration::from_secs(60);
        for _ in 0..READERS {
            let one = tokio::time::timeout(deadline, begun.recv()).await;
            one.expect("it begins").expect("a sender is there");
        }
        let mut opens = Vec::new();
        for (open, task) in gates {
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
            opens.push(open);
        }
        assert_eq!(readers.places.available_permits(), 0);
        // Those that have left wait no more, and the next reads once one read is over.
        assert_eq!(readers.waiting.load(Ordering::Relaxed), 0);
        opens.pop();
        let read = tokio::time::timeout(deadline, readers.read(|| 7)).await;
        assert_eq!(read.expect("there is a place"), Ok(7));
    }
}
