//! What became of instances, as far as it is remembered: of each the latest events, and of those that are gone the latest.
//! Both are bounded in bytes too, because launchers' words are in them.

use std::collections::VecDeque;
use std::time::Instant;

use sched_model::{LifeState, Uuid};

use crate::api::cause::Cause;
use crate::api::ids::InstanceId;

/// Events kept of one instance; the oldest are forgotten first.
pub(crate) const MAX_HISTORY: usize = 32;

/// Bytes of texts in the events kept of one instance; the oldest are forgotten first. Eight of the longest, and all of
/// `MAX_HISTORY` as they usually are.
pub const MAX_HISTORY_BYTES: usize = 8 * 1024;

/// Instances that are gone and whose history is still known; the oldest are forgotten first.
pub(crate) const MAX_PAST: usize = 4096;

/// Bytes of the texts in those; the oldest are forgotten first. 2 KiB for each of `MAX_PAST`.
pub const MAX_PAST_BYTES: usize = 8 * 1024 * 1024;

/// Something that became of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HistoryEvent {
    /// When.
    pub(crate) at: Instant,
    /// The state it came to.
    pub(crate) what: LifeState,
    /// Where.
    pub(crate) node: Option<Uuid>,
    /// Why.
    pub(crate) cause: Cause,
}

/// What became of one instance so far, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct History {
    events: VecDeque<HistoryEvent>,
    bytes: usize,
}

/// What became of those that are gone, oldest first.
#[derive(Debug, Default)]
pub(super) struct Past {
    histories: VecDeque<(InstanceId, History)>,
    bytes: usize,
}

impl History {
    /// Notes what became of it.
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

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.events.len() * size_of::<HistoryEvent>() + self.bytes
    }
}

impl FromIterator<HistoryEvent> for History {
    fn from_iter<I: IntoIterator<Item = HistoryEvent>>(events: I) -> Self {
        let mut history = Self::default();
        events.into_iter().for_each(|event| history.note(event));
        history
    }
}

impl Past {
    /// Notes what became of one that is gone now.
    pub(super) fn note(&mut self, instance: InstanceId, mut history: History) {
        history.events.shrink_to_fit();
        self.bytes += history.bytes;
        self.histories.push_back((instance, history));
        while self.histories.len() > MAX_PAST || self.bytes > MAX_PAST_BYTES {
            let oldest = self.histories.pop_front();
            self.bytes -= oldest.map_or(0, |(_, oldest)| oldest.bytes);
        }
    }

    /// What became of one, as often as it was there.
    pub(super) fn of(&self, instance: &InstanceId) -> impl Iterator<Item = &HistoryEvent> {
        let those = self
            .histories
            .iter()
            .filter(move |(past, _)| past == instance);
        those.flat_map(|(_, history)| history.iter())
    }

    /// Those remembered, and the bytes of their texts.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.histories.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sched_model::LifeState;

    use super::{
        Cause, History, HistoryEvent, InstanceId, MAX_HISTORY, MAX_HISTORY_BYTES, MAX_PAST,
        MAX_PAST_BYTES, Past,
    };

    fn history(events: usize, len: usize) -> History {
        let at = Instant::now();
        let event = |_| HistoryEvent {
            at,
            what: LifeState::Running,
            node: None,
            cause: Cause::Said("x".repeat(len).into()).kept(),
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

    #[test]
    fn histories_of_those_that_are_gone_are_bounded_in_number_and_in_bytes() {
        let mut past = Past::default();
        for number in 0..MAX_PAST + 1 {
            past.note(InstanceId::new(&number.to_string()), history(1, 1));
        }
        assert_eq!(past.size(), (MAX_PAST, MAX_PAST));
        assert_eq!(past.of(&InstanceId::new("0")).count(), 0);
        for _ in 0..MAX_PAST {
            past.note(InstanceId::new("long"), history(100, 1024));
        }
        let (count, bytes) = past.size();
        assert!(count < MAX_PAST && bytes <= MAX_PAST_BYTES && bytes > MAX_PAST_BYTES / 2);
    }
}
