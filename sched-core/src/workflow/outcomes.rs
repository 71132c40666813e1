//! How commands ended: who is sent the outcome, and what a controller that becomes master is sent of it.
//!
//! The outcome of a command is sent to its sender; if that has left, to all controllers. What was sent to the master
//! alone is remembered for its successor (`peers::outcomes`).

use sched_model::Topic;

use crate::Scheduler;
use crate::api::action::{Action, Message};
use crate::api::ids::{InstanceId, SessionId};
use crate::peers::outcomes::Outcome;
use crate::peers::session::Session;
use crate::sight::Sight;

impl Scheduler {
    /// Sends a peer how its command ended; if it has left, all controllers whose protocol has the frame.
    pub(crate) fn send_outcome(&mut self, to: SessionId, message: Message) {
        let Some(session) = self.peers.get(to) else {
            return self.notify_successors(&message);
        };
        if self.peers.is_master(to) {
            let master = Some(session.uuid());
            self.peers.note_sent(self.now, master, &message);
        }
        self.act(Action::Send { to, message });
    }

    /// Sends all controllers an outcome whose asker has left; if there are none, it is remembered for the next one to
    /// connect.
    fn notify_successors(&mut self, message: &Message) {
        if !self.peers.has_controllers() {
            self.peers.note_sent(self.now, None, message);
        }
        self.notify_controllers(Topic::Failures, |session| copy_for(session, message));
    }

    /// Sends a controller that has become master the outcomes that it was not sent, as far as they still hold: a
    /// failure to start an instance that exists by now is left out, because the snapshot has shown it.
    pub(crate) fn replay(&mut self, to: SessionId, missed: Vec<Outcome>) {
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

impl Sight<'_> {
    /// Whether an instance is placed or managed.
    fn is_there(&self, instance: &str) -> bool {
        let instance = InstanceId::new(instance);
        self.cluster.placement(&instance).is_some() || self.instances.contains(&instance)
    }
}

/// An outcome in a frame that a controller knows; `None` where its protocol has none.
fn copy_for(session: &Session, message: &Message) -> Option<Message> {
    match message {
        Message::DeleteFailure(failure) => Some(Message::DeleteFailure(failure.clone())),
        Message::AttachVolumeFailure(failure) => {
            Some(Message::AttachVolumeFailure(failure.clone()))
        }
        Message::CommandFailure(failure) if session.is_native() => {
            Some(Message::CommandFailure(failure.clone()))
        }
        Message::InstanceQueued(event) if session.is_native() => {
            Some(Message::InstanceQueued(event.clone()))
        }
        _ => None,
    }
}
