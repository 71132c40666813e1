//! The thread that writes the store: group commit, and patience with a disk that takes no writes.
//!
//! A transaction that fails is tried again, with what came meanwhile, until it is written or the store is closed.
//! Nothing counts as on disk before.
//!
//! A disk that fails is tried after 0.1 s, 0.2 s, 0.4 s … 5 s, for as long as the daemon runs. Each try writes
//! everything that has come until then, so that memory is bounded by one record a key, and what [`waiting`](super::waiting)
//! adds.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::waiting::Waiting;
use super::{Batch, StoreShared};
use crate::printable::counted;
use sched_core::{DiskState, Ticket};

/// Pause before a transaction that failed is tried again; doubles up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// Longest pause between two tries: how soon after there is room again it is used.
const MAX_RETRY: Duration = Duration::from_secs(5);

/// Where transactions go. The database ([`StoreFile`](super::file::StoreFile)), or a test's list.
pub(super) trait Sink {
    /// Why one failed.
    type Error: Display;

    /// Writes a transaction; on return it is on disk. One that has failed may be there or not; the caller writes all of
    /// it again, which comes to the same because records are put whole.
    ///
    /// # Errors
    /// Why it was not written. The sink must be able to take the next call.
    fn write(&mut self, batch: &Batch) -> Result<(), Self::Error>;
}

/// What the writing thread has to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// This change and all before it are on disk.
    Committed(Ticket),
    /// The disk takes writes no longer, for another reason than before, or again. Not repeated while the reason stays
    /// the same.
    Disk(DiskState),
}

/// How long to pause between tries; tests make it short.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    /// See [`FIRST_RETRY`].
    pub(super) first: Duration,
    /// See [`MAX_RETRY`].
    pub(super) most: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: FIRST_RETRY,
            most: MAX_RETRY,
        }
    }
}

/// Writes transactions until the store is closed. `refused`: why the disk took no writes when the store was opened.
///
/// In that case an empty transaction is tried first, so that the core learns at once that the disk refuses, and that it
/// takes writes again as soon as it does, even if nothing is to be written.
pub(super) fn run(
    shared: &StoreShared,
    sink: impl Sink,
    patience: &Patience,
    refused: Option<String>,
    tell: impl Fn(News),
) {
    let mut writer = Writer {
        shared,
        sink,
        patience,
        refused: None,
        tell,
    };
    let mut next = match refused {
        Some(why) => {
            writer.refuse(&why);
            Some((Waiting::default(), Ticket::default()))
        }
        None => shared.take(),
    };
    while let Some((waiting, ticket)) = next {
        let Some(ticket) = writer.write(waiting, ticket) else {
            break;
        };
        // In this order, so that who waits for the disk finds what the core says about it queued already.
        (writer.tell)(News::Committed(ticket));
        shared.wrote(ticket);
        next = shared.take();
    }
    // The database is closed before waiters are told that all is done.
    drop(writer.sink);
    shared.end();
}

/// What the thread keeps from one transaction to the next.
struct Writer<'a, S, T> {
    shared: &'a StoreShared,
    /// Where transactions go; dropped, which closes the database, before the end is told.
    sink: S,
    patience: &'a Patience,
    /// Why the disk took no write when it was tried last.
    refused: Option<String>,
    /// Tells the hub, without a lock of the store.
    tell: T,
}

impl<S: Sink, T: Fn(News)> Writer<'_, S, T> {
    /// Writes one transaction, again and again if need be; what comes meanwhile joins it. The newest change in it once
    /// it is on disk; `None` if the store is closed and the disk refused the last try.
    fn write(&mut self, mut waiting: Waiting, mut ticket: Ticket) -> Option<Ticket> {
        let mut pause = self.patience.first;
        let mut is_loss_said = false;
        loop {
            if waiting.lost > 0 && !is_loss_said {
                say_that_ends_are_lost(waiting.most);
                is_loss_said = true;
            }
            // Looked at before the last try, so that there is one after all that is to be written is known.
            let is_closing = self.shared.is_closing();
            let begun = Instant::now();
            match self.sink.write(&waiting.batch) {
                Ok(()) => {
                    self.shared.commits.note(begun.elapsed());
                    self.accept();
                    if waiting.lost > 0 {
                        say_how_many_ends_are_lost(waiting.lost);
                    }
                    return Some(ticket);
                }
                Err(why) => self.refuse(&why.to_string()),
            }
            self.shared.failed(ticket);
            if is_closing {
                error!(
                    event = "store_not_written",
                    "the store is closed without its last {} records, which the disk did not take; what was written \
                     before is read at the next start",
                    waiting.batch.len()
                );
                return None;
            }
            self.shared.pause(pause);
            pause = (pause * 2).min(self.patience.most);
            ticket = self.shared.take_more(&mut waiting);
        }
    }

    /// Tells the core and logs it, unless the reason is the same as the last time.
    fn refuse(&mut self, why: &str) {
        if self.refused.as_deref() == Some(why) {
            return;
        }
        self.refused = Some(why.to_owned());
        (self.tell)(News::Disk(DiskState::Refuses(why.into())));
        // After the core knows: who reads it finds things as it says.
        error!(
            event = "store_not_written",
            "cannot write the store: {why}: what is in it stays, and what waits for it is written as soon as the disk \
             takes it; until then nothing is taken in that has to survive a restart"
        );
    }

    /// Tells the core and logs it where the disk had refused before.
    fn accept(&mut self) {
        if self.refused.take().is_some() {
            (self.tell)(News::Disk(DiskState::Writes));
            info!(
                event = "store_written_again",
                "the store is written again: all that waited for it is on disk"
            );
        }
    }
}

/// Said once for each time that the disk takes no writes, and at once: the daemon may not live to see it take them again.
fn say_that_ends_are_lost(most: usize) {
    warn!(
        event = "history_lost",
        "the disk has taken no writes for so long that {most} ends wait for it that are remembered nowhere else: \
         further ones are lost from the history; make room on the disk of --state-dir, or mend it"
    );
}

fn say_how_many_ends_are_lost(lost: u64) {
    warn!(
        event = "history_lost",
        "{} lost from the history, because too many waited for the disk",
        counted(lost, "end")
    );
}
