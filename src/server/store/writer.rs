//! The thread that writes the store: group commit, patience with a disk that fails, and what happens when that ends.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::{Batch, Shared};
use crate::sched::Ticket;

/// Pause before a transaction that failed is tried again; doubles up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// Longest pause between two tries: how soon after there is room again it is used.
const MAX_RETRY: Duration = Duration::from_secs(5);

/// How long a disk may fail before durability is given up: time for somebody to make room on a full one. Meanwhile
/// nothing is acknowledged that waits for the disk.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// Where transactions go.
pub(super) trait Sink {
    /// Why one failed.
    type Error: Display;

    /// Writes a transaction; on return it is on disk, or not there at all.
    fn write(&mut self, batch: &Batch) -> Result<(), Self::Error>;

    /// Takes what was written so far out of use, because what comes will not be written.
    fn abandon(&mut self);
}

/// How long to try.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    /// See [`FIRST_RETRY`].
    pub(super) first: Duration,
    /// See [`MAX_RETRY`].
    pub(super) most: Duration,
    /// See [`GIVE_UP_AFTER`].
    pub(super) limit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: FIRST_RETRY,
            most: MAX_RETRY,
            limit: GIVE_UP_AFTER,
        }
    }
}

/// Writes transactions until the store is closed.
pub(super) fn run(
    shared: &Shared,
    mut sink: impl Sink,
    patience: &Patience,
    committed: impl Fn(Ticket),
) {
    let mut is_durable = true;
    while let Some((batch, ticket)) = shared.take() {
        let ticket = if is_durable {
            match write(shared, &mut sink, patience, batch, ticket) {
                Outcome::Written(ticket) => ticket,
                Outcome::GivenUp(ticket) => {
                    sink.abandon();
                    is_durable = false;
                    ticket
                }
            }
        } else {
            ticket
        };
        // In this order, so that who waits for the disk finds what the core says about it queued already.
        committed(ticket);
        shared.wrote(ticket);
    }
    // The database is closed before anybody is told that all is done.
    drop(sink);
    shared.end();
}

/// What became of a transaction, with the newest change in it.
enum Outcome {
    Written(Ticket),
    GivenUp(Ticket),
}

/// Writes one transaction, again and again if need be; what comes meanwhile joins it.
fn write(
    shared: &Shared,
    sink: &mut impl Sink,
    patience: &Patience,
    mut batch: Batch,
    mut ticket: Ticket,
) -> Outcome {
    let begun = Instant::now();
    let mut pause = patience.first;
    let mut has_failed = false;
    loop {
        match sink.write(&batch) {
            Ok(()) if has_failed => {
                info!("the store is written again");
                return Outcome::Written(ticket);
            }
            Ok(()) => return Outcome::Written(ticket),
            Err(why) if begun.elapsed() >= patience.limit || !shared.pause(pause) => {
                error!(
                    "cannot write the store: {why}: given up; from now on as without --state-dir: \
                     state is in memory only"
                );
                return Outcome::GivenUp(ticket);
            }
            Err(why) => {
                warn!("cannot write the store: {why}: tried again");
                has_failed = true;
                pause = (pause * 2).min(patience.most);
                ticket = shared.take_more(&mut batch);
            }
        }
    }
}
