//! The log of the core's notices and of connections. Lines are limited, because many are written while the core's lock
//! is held; what is above the limit is counted and summed up. See [`limiter`].
//!
//! ```text
//! core's Notice ──▶ class_of ──▶ Limiter::admit ─┬─ few in this second: written at once
//! connections  ── Hub::note ────────────────────▶┘  └─ else counted; the sum is written at the end of the second
//! ```
//!
//! Nothing else in the server writes lines that a peer can cause any number of. Every line has a field `event`, by
//! which programs find it ([`Class::as_str`]).

use std::fmt::Display;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;
use tracing::{debug, info, warn};

pub(super) use self::limiter::{Class, Weight, Who};
use self::limiter::{Limiter, Summed};
use crate::printable::Printable;
use sched_core::Notice;

pub(super) use self::text::NoticeText;

mod limiter;
mod text;

/// Bytes of one line, about: identifiers and texts that peers choose are in it. A longer one is cut and ends in `…`.
const MAX_LINE_LEN: usize = 1024;

/// The log of notices. One for the daemon; its lock is held while a line is formatted, not while it is written.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Decides what is written, and counts the rest.
    limiter: Mutex<Limiter>,
    /// Told when a line was counted, so that [`Notices::sum_up`] knows that the window has an end to wait for.
    counted: Notify,
}

impl Notices {
    /// Logs a notice, or counts it. Those that come with every START (placed, waits for nodes to come back) are written
    /// at level `debug` and not limited.
    pub(super) fn log(&self, notice: &Notice, now: Instant) {
        let Some((class, who)) = class_of(notice) else {
            debug!("{}", Printable::new(NoticeText(notice)));
            return;
        };
        let weight = if notice.is_warning() {
            Weight::Warning
        } else {
            Weight::News
        };
        self.say(class, who, weight, NoticeText(notice), now);
    }

    /// Logs a line, or counts it. `weight` is the level that it has, `now` the time by which the window is told. Called
    /// under the core's lock too: it formats at most what is written.
    pub(super) fn say(
        &self,
        class: Class,
        who: Who,
        weight: Weight,
        line: impl Display,
        now: Instant,
    ) {
        // The limiter's lock is released before anything is written.
        let admission = self.limiter.lock().admit(class, who, weight, &line, now);
        write_sums(&admission.sums);
        match admission.line {
            Some(line) => write(class, weight, &line),
            None => self.counted.notify_one(),
        }
    }

    /// Writes at the end of each window what was counted in it. Never ends; one task of the daemon runs it.
    pub(super) async fn sum_up(&self) {
        loop {
            let counted = self.counted.notified();
            let due = self.limiter.lock().due();
            let Some(due) = due else {
                counted.await;
                continue;
            };
            sleep_until(due.into()).await;
            let mut limiter = self.limiter.lock();
            // A line that came at the end of the window may have closed it, and more have come since.
            let is_due = limiter.due().is_some_and(|due| due <= Instant::now());
            let sums = if is_due { limiter.close() } else { Vec::new() };
            drop(limiter);
            write_sums(&sums);
        }
    }

    /// Writes what was counted and not written yet, when the daemon stops.
    pub(super) fn finish(&self) {
        let sums = self.limiter.lock().close();
        write_sums(&sums);
    }
}

/// One line for each sum.
fn write_sums(sums: &[Summed]) {
    for sum in sums {
        write(sum.class, sum.weight, &sum.text);
    }
}

/// The level is the line's weight: `warn` or `info`.
fn write(class: Class, weight: Weight, line: &str) {
    match weight {
        Weight::Warning => warn!(event = class.as_str(), "{line}"),
        Weight::News => info!(event = class.as_str(), "{line}"),
    }
}

/// What a notice is about, and whom; `None` for those that every START causes, too many for an ordinary log. The pair
/// decides which limit a line falls under and by whose name it is counted.
fn class_of(notice: &Notice) -> Option<(Class, Who)> {
    Some(match notice {
        Notice::Placed(..) | Notice::HeldForRecovery(_) => return None,
        Notice::Connected(uuid, _) => (Class::Connected, Who::Peer(*uuid)),
        Notice::Left(uuid, _) => (Class::Left, Who::Peer(*uuid)),
        Notice::NodeLost(node) | Notice::NodeGivenUp(node) | Notice::NodeNotBack(node) => {
            (Class::Lost, Who::Peer(node.uuid))
        }
        Notice::NodeForgotten(node) => (Class::Left, Who::Peer(node.uuid)),
        Notice::Master(uuid) => (Class::Master, Who::Peer(*uuid)),
        Notice::NotBound(uuid) => (Class::NotBound, Who::Peer(*uuid)),
        Notice::InDoubt(uuid, _) => (Class::Lost, Who::Peer(*uuid)),
        Notice::NotPermitted(uuid, ..)
        | Notice::NotMaster(uuid, _)
        | Notice::Forged(uuid, ..)
        | Notice::Foreign(uuid, ..) => (Class::NotPermitted, Who::Peer(*uuid)),
        Notice::UnknownKind(uuid, _) => (Class::UnknownKind, Who::Peer(*uuid)),
        Notice::Malformed(uuid, ..) | Notice::TooLong(uuid, ..) | Notice::LeftOut(uuid, _) => {
            (Class::Malformed, Who::Peer(*uuid))
        }
        Notice::NoSuchPeer(..) => (Class::NoSuchPeer, Who::NoPeer),
        Notice::Failed(..) => (Class::Failed, Who::NoPeer),
        Notice::Restored(_) => (Class::Restored, Who::NoPeer),
        Notice::Disk(_) => (Class::Disk, Who::NoPeer),
        Notice::Twins { node, .. } => (Class::Twins, Who::Peer(*node)),
        Notice::Pressure(node, _) => (Class::Pressure, Who::Peer(*node)),
        Notice::Dropped(_, node) => (Class::Dropped, Who::Peer(*node)),
        Notice::ClaimsForgotten(node, _) => (Class::Dropped, Who::Peer(*node)),
        Notice::ClaimsUnknown(node, _) => (Class::ClaimsUnknown, Who::Peer(*node)),
        Notice::UnmatchedFailure(node) => (Class::Unmatched, Who::Peer(*node)),
        Notice::LateBatch(..) => (Class::Batch, Who::NoPeer),
        Notice::IllegalTransition(_) => (Class::Defect, Who::NoPeer),
        Notice::TwoZones(..) | Notice::BadRules(_) => (Class::Configuration, Who::NoPeer),
    })
}
