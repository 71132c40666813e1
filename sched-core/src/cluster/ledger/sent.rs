//! What a launcher was sent about an instance and has not answered, as the instance's entry has it.

use super::entry::Entry;
use crate::api::input::InstanceState;

/// Whether a launcher may still carry out a RESUME of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Resumption {
    /// Every RESUME that was sent is answered.
    #[default]
    Answered,
    /// One was sent over the present connection.
    Sent,
    /// The connection over which one was sent has ended: the next STATS that lists the instance says whether it was
    /// resumed.
    Lost,
}

/// What an instance that is ended leaves on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Remains {
    /// Nothing.
    #[default]
    Nothing,
    /// What a restart needs: a DELETE with `stop: true`.
    ForRestart,
}

impl Entry {
    /// Notes the state that a launcher reports, and whether that answers a RESUME.
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

    /// Whether its launcher may still carry out a RESUME.
    pub(crate) fn may_resume(&self) -> bool {
        self.resumption != Resumption::Answered
    }

    /// Whether a RESUME was sent over the present connection and is not answered.
    pub(crate) fn is_resume_sent(&self) -> bool {
        self.resumption == Resumption::Sent
    }

    /// Whether it is suspended, as its launcher has reported last or as the ledger counts it.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_suspended() || self.reported == Some(InstanceState::ExitPaused)
    }

    /// What it leaves where it is ended as was asked for last.
    pub(crate) fn remains(&self) -> Remains {
        self.remains
    }

    /// Whether a DELETE of it was lost with a connection.
    pub(crate) fn is_stop_lost(&self) -> bool {
        self.is_stop_lost
    }

    /// The same entry, of which a DELETE was lost.
    pub(crate) fn with_lost_delete(self, lost: Option<Remains>) -> Self {
        Self {
            is_stop_lost: lost.is_some(),
            remains: lost.unwrap_or_default(),
            ..self
        }
    }

    /// Whether its launcher may still carry out a stop.
    pub(crate) fn may_stop(&self) -> bool {
        self.stops > 0
    }

    /// Whether the next report that it is gone answers a stop of the run before, which had ended by itself. Where a stop
    /// was sent since, that one is answered.
    pub(crate) fn owes_answer(&self) -> bool {
        self.is_stop_late && !self.may_stop()
    }

    /// Notes that the connection has ended over which its launcher was sent commands: stops are void, an open RESUME is
    /// uncertain. Whether a stop was lost.
    pub(super) fn lose_orders(&mut self) -> bool {
        self.is_stop_lost |= self.may_stop();
        (self.stops, self.is_stop_late) = (0, false);
        if self.may_resume() {
            self.resumption = Resumption::Lost;
        }
        self.is_stop_lost
    }
}
