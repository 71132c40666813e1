//! What follows from changes of the cluster: nodes that offer more are called for the queue, reservations are looked at
//! again, claims are remembered, and people are told what does not count.

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
    /// Deals with what has changed in the cluster since this was called last.
    pub(crate) fn note_changes(&mut self) {
        while let Some(change) = self.cluster.take_change() {
            self.note_change(change);
        }
    }

    fn note_change(&mut self, change: ClusterChange) {
        match change {
            ClusterChange::Capacity(key) => self.capacity_changed(key),
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

    /// A node may be of use to those that wait although it offers no more than before.
    pub(crate) fn wake(&mut self, key: NodeKey) {
        self.note_changes();
        self.capacity_changed(key);
    }

    fn capacity_changed(&mut self, key: NodeKey) {
        self.queue.wake(key);
        self.cluster.cordons_mut().note_room(self.now);
    }

    /// A node has joined or left these tables, or is not what it was: what is reserved on it may be for an instance that
    /// it cannot run any more, and an instance for which there was no node may find this one.
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
