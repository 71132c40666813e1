//! Outcomes of commands that only the master was sent, remembered for the controller that is master next.
//!
//! The master that was sent an outcome may have died before it acted on it, and what was queued for it and not written
//! has certainly not arrived. So a new master is sent, with its snapshot, what another controller was sent in the last
//! [`REPLAY_TIME`]. It may see an outcome twice, and must be able to ignore that. Who is sent an outcome in the first
//! place is decided in `effects::send`.

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

/// How long an outcome is remembered for the next master. A peer that no longer answers is disconnected well within it.
pub const REPLAY_TIME: Duration = Duration::from_secs(60);

/// Most outcomes remembered, the oldest forgotten first.
pub const MAX_REPLAY: usize = 1024;

/// Bytes of outcomes remembered, the oldest forgotten first: twice what [`MAX_REPLAY`] of them take with a full
/// explanation each.
pub const MAX_REPLAY_BYTES: usize = 4 * 1024 * 1024;

/// How a command ended, as it was sent to one peer. As data without sentences, which are made again when it is sent
/// again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// A START failed.
    StartFailed(Box<Explained<StartFailure>>),
    /// A START waits for room; how it waits is looked up when this is sent again.
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
    delivered: VecDeque<DeliveredOutcome>,
    bytes: usize,
}

/// One outcome and who has it.
#[derive(Debug)]
struct DeliveredOutcome {
    at: Instant,
    /// The controller it was sent to; `None` if it is not certain that any controller got it.
    to: Option<Uuid>,
    outcome: Outcome,
    /// What `Outcome::bytes` said when it was added.
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

    /// Kind and instance, by which an outcome that was not written is found among those remembered.
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

    /// About what it takes in memory: its texts, and a fixed amount for each of its parts.
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
                    + failure.cause.text_size()
                    + reasons.sum::<usize>()
                    + attempts.sum::<usize>()
            }
            Self::Queued(_) => 0,
            Self::DeleteFailed(failure) => failure.instance_uuid.len() + failure.node_uuid.len(),
            Self::CommandFailed(failure) => {
                let said = failure.detail.len() + failure.cause.text_size();
                failure.instance_uuid.len() + said
            }
            Self::Refused(refused) => refused.cause.text_len(),
        };
        2 * PART + texts
    }
}

impl Peers {
    /// Remembers how a command ended, if a message says that, and who alone is sent it; `None` if it is not certain who
    /// got it.
    pub(crate) fn note_sent(&mut self, now: Instant, to: Option<Uuid>, message: &Message) {
        if let Some(outcome) = Outcome::of(message) {
            self.outcomes.note(now, to, outcome);
        }
    }

    /// The connection of a master has ended before these messages could be written to it: it did not get them. Failures
    /// of STARTs go to all other controllers at once, so where there are any (`has_successors`) the next master need
    /// not be sent them again.
    pub(crate) fn note_unsent(
        &mut self,
        now: Instant,
        master: Uuid,
        unsent: &[Message],
        has_successors: bool,
    ) {
        let outcomes = unsent.iter().rev().filter_map(Outcome::of);
        let outcomes: Vec<Outcome> = outcomes.take(MAX_REPLAY).collect();
        self.outcomes.take_back(master, &outcomes);
        for outcome in outcomes.into_iter().rev() {
            let is_passed_on = has_successors && matches!(outcome, Outcome::StartFailed(_));
            let is_known = |delivered: &DeliveredOutcome| delivered.outcome == outcome;
            if !is_passed_on && !self.outcomes.delivered.iter().any(is_known) {
                self.outcomes.note(now, None, outcome);
            }
        }
    }

    /// The outcomes that a controller was not sent, oldest first; for its snapshot.
    pub(crate) fn missed_by(&mut self, uuid: Uuid, now: Instant) -> Vec<Outcome> {
        self.outcomes.forget_old(now);
        let missed = self
            .outcomes
            .delivered
            .iter()
            .filter(|delivered| delivered.to != Some(uuid));
        missed.map(|delivered| delivered.outcome.clone()).collect()
    }

    /// Whether a controller that is being sent its snapshot will be sent this outcome with it, so that it must not be
    /// sent now.
    pub(crate) fn is_outcome_to_come(&self, uuid: Uuid, message: &Message) -> bool {
        Outcome::of(message).is_some_and(|outcome| {
            let mut delivered = self.outcomes.delivered.iter();
            delivered.any(|delivered| delivered.to != Some(uuid) && delivered.outcome == outcome)
        })
    }

    /// Drops outcomes older than [`REPLAY_TIME`].
    pub(crate) fn forget_outcomes(&mut self, now: Instant) {
        self.outcomes.forget_old(now);
    }

    /// Outcomes remembered, and their bytes.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn outcomes(&self) -> (usize, usize) {
        (self.outcomes.delivered.len(), self.outcomes.bytes)
    }
}

impl Outcomes {
    fn note(&mut self, now: Instant, to: Option<Uuid>, outcome: Outcome) {
        self.forget_old(now);
        let bytes = outcome.bytes();
        self.bytes += bytes;
        self.delivered.push_back(DeliveredOutcome {
            at: now,
            to,
            outcome,
            bytes,
        });
        while self.delivered.len() > MAX_REPLAY || self.bytes > MAX_REPLAY_BYTES {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let first = self.delivered.pop_front();
        self.bytes -= first.map_or(0, |delivered| delivered.bytes);
    }

    /// Forgets that this controller was told these.
    fn take_back(&mut self, from: Uuid, unsent: &[Outcome]) {
        let names: IndexSet<_> = unsent.iter().map(Outcome::name).collect();
        if !names.is_empty() {
            let is_back = |delivered: &DeliveredOutcome| {
                delivered.to == Some(from) && names.contains(&delivered.outcome.name())
            };
            self.delivered.retain(|delivered| !is_back(delivered));
            self.bytes = self.delivered.iter().map(|delivered| delivered.bytes).sum();
        }
    }

    fn forget_old(&mut self, now: Instant) {
        let is_old = |delivered: &DeliveredOutcome| {
            now.saturating_duration_since(delivered.at) > REPLAY_TIME
        };
        while self.delivered.front().is_some_and(is_old) {
            self.forget_first();
        }
        if self.delivered.is_empty() {
            self.delivered = VecDeque::new();
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
