//! Outcomes of commands that only the master was told of, remembered for the controller that is master next.
//!
//! The one that was told may have died over it, and what had been queued for it and not been written was heard by no one for
//! certain. Who is told of an outcome in the first place is for `workflow::outcomes` to say.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use indexmap::IndexSet;
use sched_model::Uuid;
use sched_model::{CommandFailure, DeleteFailure, StartFailure};

use crate::api::action::Message;
use crate::api::explained::Explained;
use crate::api::ids::InstanceId;
use crate::api::refused::Refused;
use crate::peers::Peers;

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
    StartFailed(Box<Explained<StartFailure>>),
    /// A START waits for room; how it waits now is looked up when it is told again.
    Queued(InstanceId),
    /// A DELETE failed.
    DeleteFailed(DeleteFailure),
    /// Another command on an instance failed.
    CommandFailed(Box<Explained<CommandFailure>>),
    /// A command was refused.
    Refused(Box<Refused>),
}

/// What masters alone were told recently, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    told: VecDeque<Told>,
    bytes: usize,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    /// Who was told; `None` if no one was for certain.
    to: Option<Uuid>,
    outcome: Outcome,
    bytes: usize,
}

impl Outcome {
    /// What a message says of how a command ended; `None` for any other.
    fn of(message: &Message) -> Option<Self> {
        match message {
            Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
                Some(Self::StartFailed(Box::new(failure.unworded())))
            }
            Message::InstanceQueued(event) => {
                Some(Self::Queued(InstanceId::new(&event.instance_uuid)))
            }
            Message::DeleteFailure(failure) => Some(Self::DeleteFailed(failure.clone())),
            Message::CommandFailure(failure) => {
                Some(Self::CommandFailed(Box::new(failure.unworded())))
            }
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
            Self::Refused(refused) => (
                4,
                refused
                    .instance
                    .as_ref()
                    .map_or_else(String::new, ToString::to_string),
            ),
        }
    }

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
                    + failure.cause.words_len()
                    + reasons.sum::<usize>()
                    + attempts.sum::<usize>()
            }
            Self::Queued(_) => 0,
            Self::DeleteFailed(failure) => failure.instance_uuid.len() + failure.node_uuid.len(),
            Self::CommandFailed(failure) => {
                let said = failure.detail.len() + failure.cause.words_len();
                failure.instance_uuid.len() + said
            }
            Self::Refused(refused) => refused.cause.text_len(),
        };
        2 * PART + texts
    }
}

impl Peers {
    /// Notes how a command ended, if a message says that, and who alone is told; `None` if that is not certain.
    pub(crate) fn note_told(&mut self, now: Instant, to: Option<Uuid>, message: &Message) {
        self.outcomes.note_told(now, to, message);
    }

    /// A master has left before these could be written to it, and `has_successors` says whether there are other controllers:
    /// failures of STARTs are for all of them, and so for the next master alone only where there is none yet.
    pub(crate) fn note_unsent(
        &mut self,
        now: Instant,
        master: Uuid,
        unsent: &[Message],
        has_successors: bool,
    ) {
        self.outcomes.unsent(now, master, unsent, has_successors);
    }

    /// What a controller was not told.
    pub(crate) fn missed_by(&mut self, uuid: Uuid, now: Instant) -> Vec<Outcome> {
        self.outcomes.missed_by(uuid, now)
    }

    /// Whether a controller that is to be synced will be told this outcome then.
    pub(crate) fn is_outcome_to_come(&self, uuid: Uuid, message: &Message) -> bool {
        self.outcomes.is_to_come(uuid, message)
    }

    /// Forgets outcomes that no master acts upon any more.
    pub(crate) fn forget_outcomes(&mut self, now: Instant) {
        self.outcomes.forget_old(now);
    }

    /// Outcomes remembered, and their bytes.
    pub(crate) fn outcomes(&self) -> (usize, usize) {
        (self.outcomes.told.len(), self.outcomes.bytes)
    }
}

impl Outcomes {
    fn note_told(&mut self, now: Instant, to: Option<Uuid>, message: &Message) {
        if let Some(outcome) = Outcome::of(message) {
            self.note(now, to, outcome);
        }
    }

    fn unsent(&mut self, now: Instant, master: Uuid, unsent: &[Message], has_successors: bool) {
        let outcomes = unsent.iter().rev().filter_map(Outcome::of);
        let outcomes: Vec<Outcome> = outcomes.take(MAX_REPLAY).collect();
        self.take_back(master, &outcomes);
        for outcome in outcomes.into_iter().rev() {
            let is_passed_on = has_successors && matches!(outcome, Outcome::StartFailed(_));
            let is_known = |told: &Told| told.outcome == outcome;
            if !is_passed_on && !self.told.iter().any(is_known) {
                self.note(now, None, outcome);
            }
        }
    }

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

    fn missed_by(&mut self, uuid: Uuid, now: Instant) -> Vec<Outcome> {
        self.forget_old(now);
        let missed = self.told.iter().filter(|told| told.to != Some(uuid));
        missed.map(|told| told.outcome.clone()).collect()
    }

    fn is_to_come(&self, uuid: Uuid, message: &Message) -> bool {
        Outcome::of(message).is_some_and(|outcome| {
            let mut told = self.told.iter();
            told.any(|told| told.to != Some(uuid) && told.outcome == outcome)
        })
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

    fn forget_old(&mut self, now: Instant) {
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
