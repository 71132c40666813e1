//! Nodes whose latest word is FULL although room was released there since. FULL is a word about the moment it was sent:
//! such a node is tried once nothing that is READY fits, with as much as was released: by STARTs that wait when it is
//! released, then by new ones. What it refuses as full goes to the next node, and its sender hears of no refusal but that of
//! all.
//!
//! An addition to the rule of first fit, in which only READY nodes fit. Not for moves: what runs is not sent to a node
//! that may refuse it.

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::ledger::{Ended, EntryEnd};
use crate::instance::{Awaits, Instance, Placing, State};

impl Scheduler {
    /// A node refuses a START because it is full. If it was a try on a node that had called itself full, the START is
    /// placed again; whether it was.
    pub(crate) fn refused_as_full(&mut self, key: NodeKey, instance: &InstanceId) -> bool {
        let Some(has_start) = self.cluster.is_tried_on(key, instance) else {
            return false;
        };
        let is_managed = match self.instances.get(instance).map(Instance::state) {
            Some(State::Placing(Placing {
                node,
                pending_on: Awaits::Node { .. },
                ..
            })) if *node == key => true,
            None if has_start => false,
            _ => return false,
        };
        if self.cluster.end(key, instance, Ended::Failed) != EntryEnd::Over {
            // It answers an earlier START of the same instance; the outcome of the latest is still to come.
            return true;
        }
        let Some(start) = self.cluster.begin_refusal(instance) else {
            return true;
        };
        self.cluster.release(key, instance);
        self.cluster.note_full_again(key);
        if is_managed {
            let uuid = self.cluster.uuid(key);
            self.reschedule(instance, &Cause::StillFull(uuid));
        } else {
            if let Some(start) = start {
                self.place(self.now, start);
            }
            self.cluster.end_refusal(instance);
        }
        true
    }
}
