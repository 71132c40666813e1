//! What becomes known of a run after it was noted, and the events it is told by.

use std::borrow::Cow;

use sched_model::{PhaseName, StartFailureReason, Uuid};

use super::{Noted, Run, Story, UnsentFailure};
use crate::api::cause::Cause;
use crate::api::ids::InstanceId;
use crate::api::text::ShortText;
use crate::instance::history::{History, HistoryEvent};

impl Run {
    /// Why its START failed, if it never ran.
    pub(crate) fn failed(&self) -> Option<&StartFailureReason> {
        self.failed.as_ref()
    }

    /// The same run, of which nothing came: its START failed for this reason.
    pub(crate) fn not_started(self, failed: Option<StartFailureReason>) -> Self {
        Self { failed, ..self }
    }

    /// Notes that its START failed.
    pub(crate) fn set_failed(&mut self, reason: StartFailureReason) {
        self.failed = Some(reason);
    }

    /// The failure of its START, where no controller was sent it yet.
    pub(crate) fn unsent(&self) -> Option<UnsentFailure> {
        self.unsent
    }

    /// Notes that no controller was sent the failure of its START yet, or that one was.
    pub(crate) fn set_unsent(&mut self, unsent: Option<UnsentFailure>) {
        self.unsent = unsent;
    }

    /// Notes on which node it was when that was given up: how it ended there is not known.
    pub(crate) fn set_lost_on(&mut self, node: Uuid, hostname: ShortText) {
        (self.node, self.hostname) = (Some(node), hostname);
    }

    /// Notes which node has said how it ended.
    pub(crate) fn set_node(&mut self, node: Uuid, hostname: ShortText) {
        self.numbers.close(node);
        (self.node, self.hostname) = (Some(node), hostname);
    }

    /// What became of the instance, oldest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = Cow<'_, HistoryEvent>> {
        let (told, plain) = match &self.story {
            Story::Told(history) => (Some(history), None),
            Story::Plain { since, cause } => (None, Some((*since, cause))),
        };
        let told = told.into_iter().flat_map(History::iter).map(Cow::Borrowed);
        told.chain(plain.into_iter().flat_map(|(since, cause)| {
            let event = |at, what, cause| HistoryEvent {
                at,
                what,
                node: self.node,
                cause,
            };
            let (what, why) = match self.failed {
                Some(_) => (PhaseName::Placing, Cause::Plain),
                None => (PhaseName::Running, Cause::KnownSince),
            };
            let began = since.map(|at| event(at, what.clone(), why.clone()));
            let gone = event(self.ended(), PhaseName::Gone, cause.clone());
            began.into_iter().chain([gone]).map(Cow::Owned)
        }))
    }

    /// Why it is over.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        match &self.story {
            Story::Told(history) => history.last().map(|event| &event.cause),
            Story::Plain { cause, .. } => Some(cause),
        }
    }

    /// Bytes that it takes: with its place in both tables, and all that it has on the heap.
    pub(super) fn bytes(&self) -> usize {
        /// The number of the latest run by instance, and that entry's place in the table's index.
        const IN_LATEST: usize = size_of::<(InstanceId, u64)>() + 2 * size_of::<usize>();
        let story = match &self.story {
            Story::Told(history) => history.bytes(),
            Story::Plain { cause, .. } => cause.text_len(),
        };
        let id = match &self.instance {
            InstanceId::Text(text) => 2 * text.len(),
            InstanceId::Uuid(_) | InstanceId::DryRun(_) => 0,
        };
        let texts = self.hostname.len() + self.name.len() + self.program.len();
        size_of::<Noted>() + IN_LATEST + story + id + texts
    }
}
