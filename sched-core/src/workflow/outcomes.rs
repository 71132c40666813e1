//! Outcomes of commands: whom they are told to, and what a controller that becomes master has missed of them.
//!
//! The outcome of a command is told to who sent it; once that has left, to all controllers. What the master was told and the
//! others were not is remembered for a while, so that who is master next can be told of it too: the one that was told may
//! have died over it. What had been queued for it and not been written was heard by nobody for certain.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use indexmap::IndexSet;
use proto_frames::Uuid;
use proto_frames::payload::{CommandFailure, CommandRefused, DeleteFailure, StartFailure, Topic};

use crate::Scheduler;
use crate::api::action::{Action, Message};
use crate::api::ids::{InstanceId, SessionId};
use crate::peers::session::Session;

/// How long an outcome is remembered for the next master. A peer that no longer answers is disconnected well within it; what
/// a master did not act upon in that time it never will.
pub const REPLAY_TIME: Duration = Duration::from_secs(60);

/// Most outcomes remembered, the oldest forgotten first.
pub const MAX_REPLAY: usize = 1024;

/// Bytes of outcomes remembered, the oldest forgotten first: twice what [`MAX_REPLAY`] with a full explanation each take.
pub const MAX_REPLAY_BYTES: usize = 4 * 1024 * 1024;

/// How a command ended, as it was told to one peer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// A START failed.
    StartFailed(Box<StartFailure>),
    /// A START waits for room; how it waits now is looked up when it is told again.
    Queued(InstanceId),
    /// A DELETE failed.
    DeleteFailed(DeleteFailure),
    /// Another command on an instance failed.
    CommandFailed(Box<CommandFailure>),
    /// A command was refused.
    Refused(CommandRefused),
}

/// What masters alone were told of late, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    told: VecDeque<Told>,
    bytes: usize,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    /// Who was told; `None` if nobody was for certain.
    to: Option<Uuid>,
    outcome: Outcome,
    bytes: usize,
}

impl Outcome {
    /// What a message says of how a command ended; `None` for any other.
    fn of(message: &Message) -> Option<Self> {
        match message {
            Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
                Some(Self::StartFailed(failure.clone()))
            }
            Message::InstanceQueued(event) => {
                Some(Self::Queued(InstanceId::new(&event.instance_uuid)))
            }
            Message::DeleteFailure(failure) => Some(Self::DeleteFailed(failure.clone())),
            Message::CommandFailure(failure) => Some(Self::CommandFailed(failure.clone())),
            Message::CommandRefused(refused) => Some(Self::Refused(refused.clone())),
            _ => None,
        }
    }

    /// Which kind it is of which instance.
    fn name(&self) -> (u8, String) {
        match self {
            Self::StartFailed(failure) => (0, failure.instance_uuid.clone()),
            Self::Queued(instance) => (1, instance.to_string()),
            Self::DeleteFailed(failure) => (2, failure.instance_uuid.clone()),
            Self::CommandFailed(failure) => (3, failure.instance_uuid.clone()),
            Self::Refused(refused) => (4, refused.instance_uuid.clone().unwrap_or_default()),
        }
    }
}

impl Outcome {
    /// About what it takes: its texts, and as much for each of its parts as those usually have.
    fn bytes(&self) -> usize {
        const PART: usize = 128;
        let texts = match self {
            Self::StartFailed(failure) => {
                let reasons = failure.reasons.iter();
                let reasons = reasons.map(|it| PART + it.what.len() + it.hostname.len());
                let attempts = failure.attempts.iter().map(|it| PART + it.detail.len());
                let detail = failure.detail.as_ref().map_or(0, String::len);
                failure.instance_uuid.len()
                    + detail
                    + reasons.sum::<usize>()
                    + attempts.sum::<usize>()
            }
            Self::Queued(_) => 0,
            Self::DeleteFailed(failure) => failure.instance_uuid.len() + failure.node_uuid.len(),
            Self::CommandFailed(failure) => failure.instance_uuid.len() + failure.detail.len(),
            Self::Refused(refused) => refused.name.len() + refused.detail.len(),
        };
        2 * PART + texts
    }
}

impl Outcomes {
    fn note(&mut self, now: Instant, to: Option<Uuid>, outcome: Outcome) {
        self.forget_old(now);
        let bytes = outcome.bytes();
        self.bytes += bytes;
        self.told.push_back(Told {
            at: now,
            to,
            outcome,
            bytes,
        });
        while self.told.len() > MAX_REPLAY || self.bytes > MAX_REPLAY_BYTES {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let first = self.told.pop_front();
        self.bytes -= first.map_or(0, |told| told.bytes);
    }

    /// Outcomes remembered, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.told.len(), self.bytes)
    }

    /// What this controller was not told.
    pub(crate) fn missed_by(&mut self, uuid: Uuid, now: Instant) -> Vec<Outcome> {
        self.forget_old(now);
        let missed = self.told.iter().filter(|told| told.to != Some(uuid));
        missed.map(|told| told.outcome.clone()).collect()
    }

    /// Forgets that this controller was told these.
    fn take_back(&mut self, from: Uuid, unsent: &[Outcome]) {
        let names: IndexSet<_> = unsent.iter().map(Outcome::name).collect();
        if !names.is_empty() {
            let is_back =
                |told: &Told| told.to == Some(from) && names.contains(&told.outcome.name());
            self.told.retain(|told| !is_back(told));
            self.bytes = self.told.iter().map(|told| told.bytes).sum();
        }
    }

    pub(crate) fn forget_old(&mut self, now: Instant) {
        let is_old = |told: &Told| now.saturating_duration_since(told.at) > REPLAY_TIME;
        while self.told.front().is_some_and(is_old) {
            self.forget_first();
        }
        if self.told.is_empty() {
            self.told = VecDeque::new();
        }
    }
}

/// Whether a message says how a command ended.
pub(crate) fn is_outcome(message: &Message) -> bool {
    matches!(
        message,
        Message::StartFailure(_)
            | Message::InstanceQueued(_)
            | Message::DeleteFailure(_)
            | Message::AttachVolumeFailure(_)
            | Message::CommandFailure(_)
            | Message::CommandRefused(_)
    )
}

impl Scheduler {
    /// Tells a peer how its command ended; if it has left, all controllers that know the word.
    pub(crate) fn tell_outcome(&mut self, to: SessionId, message: Message) {
        let Some(session) = self.peers.get(to) else {
            return self.tell_heirs(&message);
        };
        if self.peers.is_master(to)
            && let Some(outcome) = Outcome::of(&message)
        {
            self.outcomes.note(self.now, Some(session.uuid()), outcome);
        }
        self.act(Action::Send { to, message });
    }

    /// Tells all controllers of an outcome whose asker has left; where there is none, the next one to come.
    fn tell_heirs(&mut self, message: &Message) {
        if !self.peers.has_controllers() {
            self.note_unheard(message);
        }
        self.tell_controllers(Topic::Failures, |session| copy_for(session, message));
    }

    /// Notes an outcome that there was no controller to be told of.
    pub(crate) fn note_unheard(&mut self, message: &Message) {
        if let Some(outcome) = Outcome::of(message) {
            self.outcomes.note(self.now, None, outcome);
        }
    }

    /// A master has left before these could be written to it. Failures of STARTs are for all controllers that are left
    /// ([`Scheduler::take_back`]), and so for the next master alone only where there is none yet.
    pub(crate) fn outcomes_unsent(&mut self, master: Uuid, unsent: &[Message]) {
        let has_heirs = self.peers.has_controllers();
        let outcomes = unsent.iter().rev().filter_map(Outcome::of);
        let outcomes: Vec<Outcome> = outcomes.take(MAX_REPLAY).collect();
        self.outcomes.take_back(master, &outcomes);
        for outcome in outcomes.into_iter().rev() {
            let is_passed_on = has_heirs && matches!(outcome, Outcome::StartFailed(_));
            let is_known = |told: &Told| told.outcome == outcome;
            if !is_passed_on && !self.outcomes.told.iter().any(is_known) {
                self.outcomes.note(self.now, None, outcome);
            }
        }
    }

    /// Whether a controller that is to be briefed will be told this outcome then.
    pub(crate) fn is_to_come(&self, uuid: Uuid, message: &Message) -> bool {
        Outcome::of(message).is_some_and(|outcome| {
            let mut told = self.outcomes.told.iter();
            told.any(|told| told.to != Some(uuid) && told.outcome == outcome)
        })
    }

    /// Tells a controller that has become master of outcomes it missed: those that still say how things are. Of an instance
    /// that is there (again) the snapshot has said more.
    pub(crate) fn replay(&mut self, to: SessionId, missed: Vec<Outcome>) {
        for outcome in missed {
            let message = match outcome {
                Outcome::StartFailed(failure) => (!self.is_there(&failure.instance_uuid))
                    .then_some(Message::StartFailureCopy(failure)),
                Outcome::DeleteFailed(failure) => (!self.is_there(&failure.instance_uuid))
                    .then_some(Message::DeleteFailure(failure)),
                // What is not on disk is told once it is.
                Outcome::Queued(instance) => self
                    .queued_event(&instance)
                    .filter(|_| self.waits_on_disk(&instance))
                    .map(|(_, event)| Message::InstanceQueued(Box::new(event))),
                Outcome::CommandFailed(failure) => Some(Message::CommandFailure(failure)),
                Outcome::Refused(refused) => Some(Message::CommandRefused(refused)),
            };
            if let Some(message) = message {
                self.act(Action::Send { to, message });
            }
        }
    }

    fn is_there(&self, instance: &str) -> bool {
        let instance = InstanceId::new(instance);
        self.cluster.placement(&instance).is_some() || self.instances.contains(&instance)
    }
}

/// An outcome in words that a controller knows; `None` where it has none.
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
