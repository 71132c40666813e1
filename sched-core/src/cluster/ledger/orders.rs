//! What a node was told of an instance and has not answered. Its launcher may come to it any moment, so the vcpus of an
//! instance that is to be resumed stay claimed until it answers, or until its connection has ended and it says again how the
//! instance is; and that one which is to be stopped has ended is not its own end.

use super::{Entry, Ledger};
use crate::api::ids::InstanceId;
use crate::api::input::InstanceState;

/// Whether a launcher may yet come to a RESUME of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Resumption {
    /// None was sent that it has not answered.
    #[default]
    Answered,
    /// One was sent over its connection.
    Sent,
    /// The connection that it was sent over has ended: how the instance is, the next STATS that lists it says.
    Lost,
}

impl Ledger {
    /// Notes that a node is told to resume an instance.
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

    /// Notes that a node is told to stop an instance.
    pub(crate) fn stop_sent(&mut self, instance: &InstanceId) {
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.stops = entry.stops.saturating_add(1);
        }
    }

    /// Notes that a node could not stop an instance, as it was told to first; whether it was told to again since.
    pub(crate) fn stop_failed(&mut self, instance: &InstanceId) -> bool {
        let Some(entry) = self.entries.get_mut(instance) else {
            return false;
        };
        entry.stops = entry.stops.saturating_sub(1);
        entry.may_stop()
    }

    /// Notes that an instance has ended, and is to be started again by a START that is on its way.
    pub(super) fn begin_again(&mut self, instance: &InstanceId) {
        self.set_suspended(instance, false);
        self.change(instance, |entry| {
            (entry.resumption, entry.stops) = (Resumption::Answered, 0);
            entry.reported = None;
        });
    }

    /// Notes that a node says an instance is suspended: its vcpus are free for others, unless it may be resumed any moment.
    pub(crate) fn note_suspended(&mut self, instance: &InstanceId) {
        let may_resume = self.get(instance).is_some_and(Entry::may_resume);
        self.set_suspended(instance, !may_resume);
    }

    /// Notes that a node says, beside its STATS, whether an instance is suspended.
    pub(crate) fn hear(&mut self, instance: &InstanceId, state: InstanceState) {
        // What it lays claim to may hang on how it is.
        self.change(instance, |entry| entry.hear(state));
    }
}

impl Entry {
    /// Takes in how a launcher says that the instance is.
    pub(super) fn hear(&mut self, state: InstanceState) {
        let was_suspended = self.reported == Some(InstanceState::ExitPaused);
        let is_suspended = state == InstanceState::ExitPaused;
        let is_answer = match self.resumption {
            Resumption::Answered => false,
            Resumption::Lost => true,
            // A SUSPEND may be before the RESUME: that it runs is an answer only where it was suspended.
            Resumption::Sent => was_suspended && !is_suspended,
        };
        if is_answer {
            self.resumption = Resumption::Answered;
        }
        self.reported = Some(state);
    }

    /// Whether its launcher may yet come to a RESUME.
    pub(crate) fn may_resume(&self) -> bool {
        self.resumption != Resumption::Answered
    }

    /// Whether a RESUME is on its way over the connection that stands.
    pub(crate) fn is_told_to_resume(&self) -> bool {
        self.resumption == Resumption::Sent
    }

    /// Whether it is suspended, as its launcher has said last.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_suspended || self.reported == Some(InstanceState::ExitPaused)
    }

    /// Whether its launcher may yet come to stopping it.
    pub(crate) fn may_stop(&self) -> bool {
        self.stops > 0
    }

    /// Notes that the connection over which its launcher was told anything has ended.
    pub(super) fn lose_orders(&mut self) {
        self.stops = 0;
        if self.may_resume() {
            self.resumption = Resumption::Lost;
        }
    }
}
