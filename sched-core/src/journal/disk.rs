//! How the disk is, and what waits for it while it takes no writes, or is too slow.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sched_model::{StartFailure, StoreState, StoreView};

use crate::api::cause::Cause;
use crate::api::disk::DiskState;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, SessionId};
use crate::journal::Journal;
use crate::timers::earlier;

/// Instances of which a record is to be taken off a disk that takes no writes: beyond that each START that leaves a record
/// waits for the disk, also one that a policy alone keeps. About 100 bytes each.
pub const MAX_UNWRITTEN: usize = 1 << 18;

/// How the disk is, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// How long it may take.
    pub(super) patience: Duration,
    trouble: Option<Trouble>,
    /// Since when a change waits to be on disk and no other came to be there.
    waits_since: Option<Instant>,
    /// STARTs that were taken in and are not on disk, with the moment their time is up.
    unwritten: VecDeque<(Instant, Unwritten)>,
    /// STARTs that were on disk and have failed: a crash would have them tried again, until that is on disk.
    failed: VecDeque<Failed>,
}

/// Why nothing is written.
#[derive(Debug)]
struct Trouble {
    since: Instant,
    /// In the system's words; `None` if it says nothing.
    why: Option<Box<str>>,
}

/// A START that is not acknowledged before it is on disk.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// The change with which it will be there.
    pub(crate) ticket: u64,
    pub(crate) instance: InstanceId,
    /// Which START of the instance it is.
    pub(crate) arrived: Instant,
}

/// A START whose failure is told once it is on disk with this change.
#[derive(Debug)]
struct Failed {
    ticket: u64,
    sender: SessionId,
    failure: Explained<StartFailure>,
    /// The run whose record says that it is still to be told; `None` where there is none.
    run: Option<u64>,
}

/// A failure, to whom it is told, and the run whose record says that it is still to be, if there is one.
pub(crate) type HeldFailure = (SessionId, Explained<StartFailure>, Option<u64>);

/// The disk itself.
impl Journal {
    /// Whether nothing can be written at the moment.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.disk.trouble.is_some()
    }

    /// What is said of the trouble to those whom it concerns.
    pub(crate) fn trouble_cause(&self) -> Cause {
        let trouble = self.disk.trouble.as_ref();
        Cause::NotRecorded(trouble.and_then(|it| it.why.clone()))
    }

    /// The disk takes writes no longer, or again.
    pub(crate) fn disk_is(&mut self, now: Instant, state: DiskState) {
        self.disk.trouble = match state {
            DiskState::Writes => None,
            DiskState::Refuses(why) => {
                let since = self.disk.trouble.as_ref().map_or(now, |it| it.since);
                let why = Some(why);
                Some(Trouble { since, why })
            }
        };
    }

    /// How long what needs the disk waits for it.
    pub(crate) fn patience(&self) -> Duration {
        self.disk.patience
    }

    /// Takes the disk for one that takes no writes if it has not answered in time; where that is new, how long that is.
    pub(crate) fn note_silence(&mut self, now: Instant) -> Option<Duration> {
        let since = self.disk.waits_since.filter(|_| !self.is_in_trouble());
        let patience = self.disk.patience;
        let since = since.filter(|since| *since + patience <= now)?;
        self.disk.trouble = Some(Trouble { since, why: None });
        Some(patience)
    }

    /// Whether so many records wait to be taken off the disk that no START may leave a further one.
    pub(crate) fn is_crowded(&self) -> bool {
        self.recorded.removals() >= MAX_UNWRITTEN
    }

    /// How the disk is; in no words where it has not answered. `held` = STARTs that wait for it (`pending`).
    pub(crate) fn view(&self, now: Instant, held: usize) -> StoreView {
        let waiting = held + self.waiting.len();
        let mut view = StoreView {
            state: StoreState::Written,
            waiting: i64::try_from(waiting).unwrap_or(i64::MAX),
            ..StoreView::default()
        };
        if !self.is_on {
            view.state = StoreState::Memory;
        } else if let Some(trouble) = &self.disk.trouble {
            view.state = StoreState::Refused;
            view.since_s = Some(now.saturating_duration_since(trouble.since).as_secs());
            view.detail = trouble.why.as_deref().unwrap_or_default().to_owned();
        }
        view
    }
}

/// What waits for the disk.
impl Journal {
    /// Notes a START that is kept from this input on.
    pub(crate) fn note_kept(&mut self, now: Instant, instance: &InstanceId) {
        if self.is_on {
            let unwritten = Unwritten {
                ticket: self.last + 1,
                instance: instance.clone(),
                arrived: now,
            };
            self.look_later(now, unwritten);
        }
    }

    /// Has a START looked at again if it is not on disk in time.
    pub(crate) fn look_later(&mut self, now: Instant, start: Unwritten) {
        let due = now + self.disk.patience;
        self.disk.unwritten.push_back((due, start));
    }

    /// Takes out a START that was taken in and has not come to be on disk in time.
    pub(crate) fn take_late_unwritten(&mut self, now: Instant) -> Option<Unwritten> {
        let (due, _) = self.disk.unwritten.front()?;
        let first = (*due <= now).then(|| self.disk.unwritten.pop_front())?;
        first.map(|(_, start)| start)
    }

    /// Takes out all STARTs that were taken in and are not on disk.
    pub(crate) fn take_unwritten(&mut self) -> Vec<Unwritten> {
        let unwritten = std::mem::take(&mut self.disk.unwritten);
        unwritten.into_iter().map(|(_, start)| start).collect()
    }

    /// Whether the failure of a START has to wait until the START is off the disk.
    pub(crate) fn is_failure_to_wait(&self, instance: &InstanceId) -> bool {
        let is_new = |(_, it): &(Instant, Unwritten)| it.instance == *instance;
        self.is_recorded(instance) && !self.disk.unwritten.iter().any(is_new)
    }

    /// Has the failure of a START that is still on disk wait until it is not, and this run is there.
    pub(crate) fn hold_failure(
        &mut self,
        sender: SessionId,
        failure: Explained<StartFailure>,
        run: Option<u64>,
    ) {
        let ticket = self.ticket();
        self.disk.failed.push_back(Failed {
            ticket,
            sender,
            failure,
            run,
        });
    }

    /// A failure that is on disk by now, to whom it is told, and its run.
    pub(crate) fn take_failure(&mut self) -> Option<HeldFailure> {
        let first = self.has_failure().then(|| self.disk.failed.pop_front())?;
        first.map(|first| (first.sender, first.failure, first.run))
    }

    /// Whether a failure can be told that waited to be on disk.
    pub(super) fn has_failure(&self) -> bool {
        let first = self.disk.failed.front();
        first.is_some_and(|first| first.ticket <= self.committed)
    }
}

impl Disk {
    /// A change was handed out.
    pub(super) fn waits(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// Something came to be on disk; whether that ends a trouble. `more` = there are changes that are not yet.
    pub(super) fn progressed(&mut self, now: Instant, committed: u64, more: bool) -> bool {
        self.waits_since = more.then_some(now);
        while self
            .unwritten
            .front()
            .is_some_and(|(_, first)| first.ticket <= committed)
        {
            self.unwritten.pop_front();
        }
        // One that the system has named is over when the system says so.
        let is_over = self.trouble.as_ref().is_some_and(|it| it.why.is_none());
        if is_over {
            self.trouble = None;
        }
        is_over
    }

    /// When something is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_silent = self.waits_since.filter(|_| self.trouble.is_none());
        let unwritten = self.unwritten.front().map(|(due, _)| *due);
        let is_silent = is_silent.map(|since| since + self.patience);
        earlier(is_silent, unwritten)
    }

    /// STARTs that were taken in and are not on disk, and those that have failed and still are.
    #[cfg(any(test, feature = "test-support"))]
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten.len() + self.failed.len()
    }
}
