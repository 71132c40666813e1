//! Commands that a node was sent about an instance and has not answered. Its launcher may carry them out at any moment.
//! So the vcpus of an instance that is to be resumed stay claimed until the launcher answers, or until its connection
//! has ended and it reports again how the instance is; and the end of an instance that is to be stopped is not taken
//! for its own.

use super::{Entry, Ledger, Remains, Resumption, Suspension};
use crate::api::ids::InstanceId;
use crate::api::input::InstanceState;

impl Ledger {
    /// Notes that a node is sent a RESUME of an instance.
    pub(crate) fn resume_sent(&mut self, instance: &InstanceId) {
        self.set_resumption(instance, Resumption::Sent);
    }

    /// Notes that a node could not carry out a RESUME.
    pub(crate) fn resume_failed(&mut self, instance: &InstanceId) {
        self.set_resumption(instance, Resumption::Answered);
    }

    fn set_resumption(&mut self, instance: &InstanceId, resumption: Resumption) {
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.resumption = resumption;
        }
    }

    /// Notes that a node is sent a stop or DELETE of an instance.
    pub(crate) fn stop_sent(&mut self, instance: &InstanceId) {
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.stops = entry.stops.saturating_add(1);
        }
    }

    /// Notes what an instance is to leave that somebody wants ended.
    pub(crate) fn set_remains(&mut self, instance: &InstanceId, remains: Remains) {
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.remains = remains;
        }
    }

    /// Plain instances that the latest STATS lists, although a DELETE of them was lost and no other was sent since; each
    /// once. Those that it does not list may be on a later one.
    pub(crate) fn take_lost_deletes(&mut self) -> Vec<(InstanceId, Remains)> {
        let (stats_count, mut found) = (self.stats_count, Vec::new());
        let has_lost_stops = &mut self.has_lost_stops;
        self.entries.for_each_mut(|instance, entry| {
            if !entry.is_stop_lost || entry.is_managed {
                return;
            }
            if entry.listed_in != stats_count {
                *has_lost_stops = true;
                return;
            }
            entry.is_stop_lost = false;
            if entry.stops == 0 {
                found.push((instance.clone(), entry.remains));
            }
        });
        found
    }

    /// Notes that a node is to be sent a stop of an instance once it is connected again.
    pub(crate) fn stop_is_lost(&mut self, instance: &InstanceId) {
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.is_stop_lost = true;
            self.has_lost_stops = true;
        }
    }

    /// Whether stops are lost that were sent over earlier connections, or could not be sent; once for each time that the
    /// node was cut off.
    pub(crate) fn take_lost_stops(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_stops)
    }

    /// Whether a stop of an instance is lost, and no other was sent since; once for each.
    pub(crate) fn take_lost_stop(&mut self, instance: &InstanceId) -> bool {
        let entry = self.entries.get_mut(instance);
        entry.is_some_and(|entry| std::mem::take(&mut entry.is_stop_lost) && entry.stops == 0)
    }

    /// Notes that a node could not stop an instance, which answers the first stop it was sent; whether another one is
    /// still open.
    pub(crate) fn stop_failed(&mut self, instance: &InstanceId) -> bool {
        let Some(entry) = self.entries.get_mut(instance) else {
            return false;
        };
        entry.stops = entry.stops.saturating_sub(1);
        entry.may_stop()
    }

    /// Notes that an instance has ended and begins again by a START that is on its way: commands for the run that ended
    /// are void.
    pub(super) fn begin_again(&mut self, instance: &InstanceId) {
        self.set_suspended(instance, Suspension::None);
        self.change(instance, |entry| {
            (entry.resumption, entry.stops) = (Resumption::Answered, 0);
            entry.is_stop_lost = false;
            entry.reported = None;
        });
    }

    /// Notes that a node reports an instance as suspended: its vcpus are free for others, and for a preemptor its place
    /// in its group, unless a RESUME may still be carried out. A place that is given up is taken back by running alone:
    /// others may have it.
    pub(crate) fn note_suspended(&mut self, instance: &InstanceId, suspension: Suspension) {
        let entry = self.get(instance);
        let suspension = match suspension {
            _ if entry.is_some_and(Entry::may_resume) => Suspension::None,
            Suspension::ByCommand if entry.is_some_and(Entry::gives_way) => {
                Suspension::ForPreemptor
            }
            suspension => suspension,
        };
        self.set_suspended(instance, suspension);
    }

    /// Notes the state of an instance that a node reports in an event, beside its STATS.
    pub(crate) fn hear(&mut self, instance: &InstanceId, state: InstanceState) {
        // What it lays claim to may hang on how it is.
        self.change(instance, |entry| entry.hear(state));
    }
}
