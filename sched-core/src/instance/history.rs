//! The history of one instance: its latest events, bounded in number and in bytes, because texts of launchers are in
//! them. With the end of the instance it becomes part of a run (`past`).

use std::collections::VecDeque;
use std::time::Instant;

use sched_model::{PhaseName, Uuid};

use crate::api::cause::Cause;

/// Events kept of one instance; the oldest are forgotten first.
pub(crate) const MAX_HISTORY: usize = 32;

/// Bytes of texts in the events kept of one instance; the oldest are forgotten first. Eight of the longest, and all of
/// `MAX_HISTORY` as they usually are.
pub const MAX_HISTORY_BYTES: usize = 8 * 1024;

/// One event of an instance: a transition, or an UPDATE that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HistoryEvent {
    /// When the scheduler made the transition.
    pub(crate) at: Instant,
    /// The state it came to, as clients see states.
    pub(crate) what: PhaseName,
    /// The node it is on in that state, or is to be.
    pub(crate) node: Option<Uuid>,
    /// Why, as data; shortened to what is kept (`Cause::kept`).
    pub(crate) cause: Cause,
    /// The number of the run that it is of; 0 where it is of none, or that is not known.
    pub(crate) run: u32,
}

/// The latest events of one instance, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct History {
    events: VecDeque<HistoryEvent>,
    bytes: usize,
}

impl History {
    /// Adds an event, and drops the oldest until both limits hold.
    pub(crate) fn note(&mut self, event: HistoryEvent) {
        self.bytes += event.cause.text_len();
        self.events.push_back(event);
        while self.events.len() > MAX_HISTORY || self.bytes > MAX_HISTORY_BYTES {
            let oldest = self.events.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.cause.text_len());
        }
    }

    /// What became of it last.
    pub(crate) fn last(&self) -> Option<&HistoryEvent> {
        self.events.back()
    }

    /// All of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HistoryEvent> {
        self.events.iter()
    }

    /// Gives back memory that is not used: the history will not grow any more.
    pub(super) fn shrink(&mut self) {
        self.events.shrink_to_fit();
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.events.len() * size_of::<HistoryEvent>() + self.bytes
    }
}

impl FromIterator<HistoryEvent> for History {
    fn from_iter<I: IntoIterator<Item = HistoryEvent>>(events: I) -> Self {
        let events = events.into_iter();
        let mut history = Self {
            events: VecDeque::with_capacity(events.size_hint().0.min(MAX_HISTORY)),
            bytes: 0,
        };
        events.for_each(|event| history.note(event));
        history
    }
}

#[cfg(test)]
mod tests {

    use sched_model::PhaseName;

    use super::{Cause, History, HistoryEvent, MAX_HISTORY, MAX_HISTORY_BYTES};

    fn history(events: usize, len: usize) -> History {
        let at = crate::simulated::start();
        let event = |_| HistoryEvent {
            at,
            what: PhaseName::Running,
            node: None,
            cause: Cause::Said("x".repeat(len).into()).kept(),
            run: 0,
        };
        (0..events).map(event).collect()
    }

    #[test]
    fn one_history_is_bounded_in_events_and_in_bytes() {
        assert_eq!(history(100, 10).iter().count(), MAX_HISTORY);
        let long = history(100, 100_000);
        assert_eq!(long.iter().count(), MAX_HISTORY_BYTES / 1024);
        assert!(long.bytes <= MAX_HISTORY_BYTES && long.last().is_some());
    }
}
