//! The places for connections of the upload server. While all are taken and another client waits, the connection from
//! which least comes is ended, if that is very little: those who are slow or say nothing shut nobody out. While there
//! are places, nobody is hurried.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

/// Connections at a time; others wait to be accepted.
pub(super) const MAX_CONNECTIONS: usize = 64;

/// How long a client is waited for in any case before its connection may be ended for another.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes a second from which on a connection is not ended for another, on average while its client was waited for.
const FAST_ENOUGH: u64 = 64 * 1024;

/// Pause between two looks at the connections, while all places are taken and somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

/// The connections that there are.
#[derive(Debug, Default)]
struct Taken {
    /// In the order in which they were accepted.
    paces: BTreeMap<u64, Arc<Pace>>,
    next: u64,
}

/// A connection's place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    /// How its client gets on.
    pub(super) pace: Arc<Pace>,
    places: Arc<Places>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

/// How the client of a connection gets on.
#[derive(Debug)]
pub(super) struct Pace {
    progress: Mutex<Progress>,
    /// Whether it has to leave.
    leaves: watch::Sender<bool>,
}

/// What has come from a client, and for how long it was waited for. The time that this side takes does not count
/// against it.
#[derive(Debug)]
struct Progress {
    bytes: u64,
    waited: Duration,
    /// Since when it is waited for now; `None` while it is not.
    waits_since: Option<Instant>,
    /// Whether a request has come that can be answered.
    has_request: bool,
}

impl Places {
    /// All of them free.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            taken: Mutex::default(),
        })
    }

    /// A place, once one is free; while none is, the slowest connection is ended.
    pub(super) async fn take(self: &Arc<Self>) -> Place {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            self.end_the_slowest(Instant::now());
            // The semaphore is never closed: only the pause ends without a permit.
            let free = Arc::clone(&self.free).acquire_owned();
            if let Ok(Ok(permit)) = timeout(LOOK_EVERY, free).await {
                break permit;
            }
        };
        let pace = Arc::new(Pace::new());
        let mut taken = self.lock();
        let number = taken.next;
        taken.next += 1;
        taken.paces.insert(number, Arc::clone(&pace));
        Place {
            pace,
            places: Arc::clone(self),
            number,
            _permit: permit,
        }
    }

    /// Ends the connection from which least comes, unless one is about to end already, or none has been waited for long
    /// enough.
    fn end_the_slowest(&self, now: Instant) {
        let taken = self.lock();
        if taken.paces.values().any(|it| it.is_to_leave()) {
            return;
        }
        let rated = taken
            .paces
            .values()
            .filter_map(|pace| Some((pace.rate_if_slow(now)?, pace)));
        if let Some((_, slowest)) = rated.min_by_key(|(rate, _)| *rate) {
            slowest.leaves.send_replace(true);
        }
    }

    /// A poisoned lock is used all the same: no code that holds it panics with half a change made.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().paces.remove(&self.number);
    }
}

impl Pace {
    /// Of a connection that was just accepted: its client is waited for.
    fn new() -> Self {
        Self {
            progress: Mutex::new(Progress {
                bytes: 0,
                waited: Duration::ZERO,
                waits_since: Some(Instant::now()),
                has_request: false,
            }),
            leaves: watch::channel(false).0,
        }
    }

    /// A request has come whose head is whole.
    pub(super) fn note_request(&self) {
        self.end_wait();
        self.lock().has_request = true;
    }

    /// Whether [`Pace::note_request`] was called.
    pub(super) fn has_request(&self) -> bool {
        self.lock().has_request
    }

    /// So much has come of a form.
    pub(super) fn came(&self, bytes: usize) {
        self.lock().bytes += bytes as u64;
    }

    /// Waits for something that the client has to send. What waits may be dropped, and then waiting ends as well.
    pub(super) async fn wait_for<T>(&self, sent: impl Future<Output = T>) -> T {
        /// Ends the wait.
        struct Wait<'a>(&'a Pace);
        impl Drop for Wait<'_> {
            fn drop(&mut self) {
                self.0.end_wait();
            }
        }
        self.lock().waits_since = Some(Instant::now());
        let _wait = Wait(self);
        sent.await
    }

    /// Returns once the connection has to end.
    pub(super) async fn to_leave(&self) {
        // The sender lives as long as this.
        let _ = self.leaves.subscribe().wait_for(|leaves| *leaves).await;
    }

    fn is_to_leave(&self) -> bool {
        *self.leaves.borrow()
    }

    fn end_wait(&self) {
        let mut progress = self.lock();
        if let Some(since) = progress.waits_since.take() {
            progress.waited += since.elapsed();
        }
    }

    /// Bytes a second, if its client is waited for, has been for [`PATIENCE`] in all, and was not [`FAST_ENOUGH`].
    fn rate_if_slow(&self, now: Instant) -> Option<u64> {
        let progress = self.lock();
        let since = progress.waits_since?;
        let waited = progress.waited + now.saturating_duration_since(since);
        if waited < PATIENCE {
            return None;
        }
        let rate = u128::from(progress.bytes) * 1000 / waited.as_millis().max(1);
        u64::try_from(rate).ok().filter(|rate| *rate < FAST_ENOUGH)
    }

    /// As [`Places::lock`].
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_slowest_is_ended_and_one_at_a_time() {
        let places = Places::new();
        let mut taken = Vec::new();
        for _ in 0..4 {
            taken.push(places.take().await);
        }
        // This one is waited for no more, and this one is fast.
        taken[0].pace.note_request();
        taken[1].pace.came(usize::MAX / 2);
        taken[3].pace.came(1000);
        let now = Instant::now();
        places.end_the_slowest(now + PATIENCE / 2);
        assert!(taken.iter().all(|it| !it.pace.is_to_leave()), "too early");
        for _ in 0..2 {
            places.end_the_slowest(now + PATIENCE);
            let leaving = taken.iter().map(|it| it.pace.is_to_leave());
            assert_eq!(Vec::from_iter(leaving), [false, false, true, false]);
        }
        taken[2].pace.to_leave().await;
        drop(taken.remove(2));
        places.end_the_slowest(now + PATIENCE);
        assert!(taken[2].pace.is_to_leave());
        drop(taken.remove(2));
        places.end_the_slowest(now + PATIENCE);
        assert!(taken.iter().all(|it| !it.pace.is_to_leave()));
    }

    #[tokio::test]
    async fn only_the_time_for_which_a_client_is_waited_for_counts() {
        let places = Places::new();
        let place = places.take().await;
        let later = Instant::now() + PATIENCE;
        place.pace.note_request();
        place.pace.wait_for(async {}).await;
        places.end_the_slowest(later);
        assert!(!place.pace.is_to_leave());
        place
            .pace
            .wait_for(async { places.end_the_slowest(later + PATIENCE) })
            .await;
        assert!(place.pace.is_to_leave());
    }
}
