//! The snapshot: what a controller that becomes master is sent first. All nodes, arrays and instances, in pages, and then the
//! outcomes that only masters before it were sent (`peers::outcomes`).
//!
//! # How pages and events go together
//!
//! A row shows its node or instance as it was when its page was queued for the controller. Pages are in one queue with
//! all events for it, in the order in which things happened: what comes after a row is newer than the row, and what
//! came before it is contained in it. So a controller that takes pages and events as they come, the later one
//! overriding, has the right picture with the last page, and keeps it. A row may come twice; the later one counts.
//!
//! - The first page follows the ControllerStatus at once. Where one page is enough, nothing comes between.
//! - A page has at most `MAX_LIMIT` rows, and no more than one is made for one input: that is as long as a query delays
//!   everything else. Further ones follow in ticks that are due at once, whenever the controller's queue is short.
//! - An instance that is placed, moves or ends between two pages may be on none of them or on two. For a managed
//!   instance there is an InstanceState event then; for a plain one the STATS, InstanceDeleted and the like that all
//!   controllers get.
//! - Outcomes follow the last page.
//!
//! A controller that is the first, and so master without having been backup, is sent the same if there is something to
//! send: any instance, or an outcome that no controller got. It needs that after a restart of either side. A master's
//! newer connection takes the place of the older one, with what that was not sent: it gets a snapshot only if the older
//! one was still getting its own. Original controllers know no snapshots.

use crate::Scheduler;
use crate::api::action::{Action, Message};
use crate::api::ids::SessionId;
use crate::peers::outcomes::Outcome;

impl Scheduler {
    /// Begins the snapshot for a controller that was promoted, and queues its first page. Ends any other that is under
    /// way.
    pub(crate) fn sync_from_start(&mut self, to: SessionId) {
        self.sync.finish();
        let session = self.peers.session(to);
        if !session.is_native() {
            return;
        }
        let missed = self.peers.missed_by(session.uuid(), self.now);
        self.sync.begin(to, missed);
        self.sync_on();
    }

    /// Begins the snapshot for a controller that is master from the start, if there is something to send.
    pub(crate) fn sync_first(&mut self, to: SessionId) {
        let uuid = self.peers.session(to).uuid();
        let is_news = self.cluster.placements().0 > 0
            || !self.instances.is_empty()
            || !self.arrays.is_empty()
            || !self.peers.missed_by(uuid, self.now).is_empty();
        if is_news {
            self.sync_from_start(to);
        }
    }

    /// Queues the next page if the controller's queue is short.
    pub(crate) fn sync_if_due(&mut self) {
        if self.sync.is_page_due(&self.peers) {
            self.sync_on();
        }
    }

    /// Queues the next page, and after the last one the outcomes that the controller was not sent.
    fn sync_on(&mut self) {
        let mut sync = std::mem::take(&mut self.sync);
        let Some((to, shown)) = sync.current() else {
            return;
        };
        let snapshot = self.snapshot_page(self.now, shown);
        let is_last = snapshot.last;
        let message = Message::Snapshot(Box::new(snapshot));
        self.act(Action::Send { to, message });
        if is_last {
            return self.replay(to, sync.finish());
        }
        self.sync = sync;
    }

    /// Sends a controller that has become master the outcomes that it was not sent, as far as they still hold: a
    /// failure to start an instance that exists by now is left out, because the snapshot has shown it.
    fn replay(&mut self, to: SessionId, missed: Vec<Outcome>) {
        for outcome in missed {
            if let Outcome::StartFailed(failure) = &outcome {
                self.failure_is_sent(failure);
            }
            let message = match outcome {
                Outcome::StartFailed(failure) => (!self.sight().is_there(&failure.instance_uuid))
                    .then_some(Message::StartFailureCopy(failure)),
                Outcome::DeleteFailed(failure) => (!self.sight().is_there(&failure.instance_uuid))
                    .then_some(Message::DeleteFailure(failure)),
                // What is not on disk yet is sent once it is.
                Outcome::Queued(instance) => self
                    .queued_event(&instance)
                    .filter(|_| self.sight().waits_on_disk(&instance))
                    .map(|(_, event)| Message::InstanceQueued(Box::new(event))),
                Outcome::CommandFailed(failure) => Some(Message::CommandFailure(failure)),
                Outcome::Refused(refused) => Some(Message::CommandRefused(refused)),
            };
            if let Some(message) = message {
                self.act(Action::Send { to, message });
            }
        }
    }
}
