//! What follows from changes of the cluster. The cluster only records what has changed; here nodes that offer more are
//! offered to the queue, reservations are looked at again, claims are noted for the disk, and launchers and people are
//! told what does not count. Keeps `cluster` from calling anything above it.

use crate::Scheduler;
use crate::api::action::{Message, Notice};
use crate::api::ids::NodeKey;
use crate::api::refused::RefusalCause;
use crate::api::sent::ReportName;
use crate::api::text::ShortText;
use crate::cluster::ClusterChange;
use crate::cluster::advice::Advice;
use crate::cluster::node::Pool;

impl Scheduler {
    /// Deals with all changes since the last call, in order. Called before anything that reads the queue's view of
    /// nodes, and at the end of each input.
    pub(crate) fn note_changes(&mut self) {
        while let Some(change) = self.cluster.take_change() {
            self.note_change(change);
        }
    }

    /// Deals with one change.
    fn note_change(&mut self, change: ClusterChange) {
        match change {
            ClusterChange::Capacity(key) => self.capacity_changed(key),
            ClusterChange::Narrowed(key) => {
                if self.queue.take_outranked(key) {
                    self.queue.wake(key);
                }
            }
            ClusterChange::Altered(key, tables) => self.reconsider_reservations(key, tables),
            ClusterChange::Claims(node) => self.journal.note_claims(node, self.now),
            ClusterChange::TwoZones(node, zone) => self.notice(Notice::TwoZones(node, zone)),
            ClusterChange::Offered(session, rules) => {
                self.send(session, Message::OfferRules(Box::new(rules)));
            }
            ClusterChange::Pressure(key) => self.pressure_changed(key),
            ClusterChange::LeftOut(session, node, advice) => {
                let name = match advice {
                    Advice::TooManyInstances(_) => ReportName::Stats,
                    Advice::TooManyNames(_) | Advice::SharesAlone(_) => ReportName::Ready,
                };
                let detail = ShortText::from(advice.to_string());
                let cause = RefusalCause::LeftOut(detail.clone());
                self.refuse(session, name.into(), cause, None);
                self.notice(Notice::LeftOut(node, detail));
            }
        }
    }

    /// Offers a node to those that wait although it has no more room than before: something else has changed that may
    /// let one of them use it.
    pub(crate) fn wake(&mut self, key: NodeKey) {
        self.note_changes();
        self.capacity_changed(key);
    }

    /// Marks a node as awake for the queue, and drains as having room to try. The search for what fits is done later,
    /// in bounded steps.
    fn capacity_changed(&mut self, key: NodeKey) {
        self.queue.wake(key);
        self.cluster.note_room_for_drains(self.now);
    }

    /// A node has joined or left these tables, or is a different one now. A reservation on it ends, since the instance
    /// may not fit any more, and instances without a reservation may get one on this node.
    fn reconsider_reservations(&mut self, key: NodeKey, tables: [bool; 2]) {
        if self.queue.is_empty() {
            return;
        }
        if self.queue.unreserve(key).is_some() {
            self.capacity_changed(key);
        }
        for pool in Pool::ALL {
            if tables[pool as usize] {
                self.queue.reconsider(pool);
            }
        }
    }
}
