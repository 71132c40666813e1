//! Runs of instances that are over: what became of each, how it ended and where. The latest are remembered, also across
//! restarts; the oldest are forgotten first, by number and by bytes, because launchers' words are in them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Instant;

use sched_model::Uuid;

use super::history::{History, HistoryEvent};
use crate::api::ids::InstanceId;
use crate::api::text::ShortText;

/// Instances that are gone and still known; the oldest are forgotten first.
pub(crate) const MAX_PAST: usize = 4096;

/// Bytes of the texts in those; the oldest are forgotten first. 2 KiB for each of `MAX_PAST`.
pub const MAX_PAST_BYTES: usize = 8 * 1024 * 1024;

/// One run of an instance, from its beginning until it was gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// The instance.
    pub(crate) instance: InstanceId,
    /// When it was gone.
    pub(crate) at: Instant,
    /// The node that said how it ended; `None` = it was on none, or its node has not said.
    pub(crate) node: Option<Uuid>,
    /// The host name of that node.
    pub(crate) hostname: ShortText,
    /// Its exit status, or minus the signal that ended it; `None` = not known.
    pub(crate) exit_code: Option<i64>,
    /// What became of it, oldest first.
    pub(crate) history: History,
}

/// Runs that are over, by number.
#[derive(Debug, Default)]
pub(super) struct Past {
    runs: BTreeMap<u64, Run>,
    /// The latest number given.
    last: u64,
    bytes: usize,
    /// Those that changed and are not noted in the journal.
    changed: Vec<u64>,
}

impl Run {
    fn bytes(&self) -> usize {
        self.history.text_bytes() + self.hostname.len()
    }
}

impl Past {
    /// Notes a run that is over now.
    pub(super) fn note(&mut self, mut run: Run) {
        run.history.shrink();
        self.last += 1;
        self.insert(self.last, run);
        self.changed.push(self.last);
    }

    /// Takes up what was remembered before a restart.
    pub(super) fn restore(&mut self, number: u64, run: Run) {
        self.last = self.last.max(number);
        self.insert(number, run);
    }

    fn insert(&mut self, number: u64, run: Run) {
        self.bytes += run.bytes();
        self.runs.insert(number, run);
        while self.runs.len() > MAX_PAST || self.bytes > MAX_PAST_BYTES {
            let Some((number, oldest)) = self.runs.pop_first() else {
                return;
            };
            self.bytes -= oldest.bytes();
            self.changed.push(number);
        }
    }

    /// The latest number given.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Changes the run of an instance that was noted after this number; whether there is one.
    pub(super) fn amend(
        &mut self,
        number: u64,
        instance: &InstanceId,
        change: impl FnOnce(&mut Run),
    ) -> bool {
        let after = (Bound::Excluded(number), Bound::Unbounded);
        let mut noted = self.runs.range_mut(after).rev();
        let Some((&number, run)) = noted.find(|(_, run)| run.instance == *instance) else {
            return false;
        };
        self.bytes -= run.bytes();
        change(run);
        self.bytes += run.bytes();
        self.changed.push(number);
        true
    }

    /// One that changed and was not handed out since, in no particular order; the same may come more than once.
    pub(super) fn next_changed(&mut self) -> Option<u64> {
        self.changed.pop()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Run> {
        self.runs.get(&number)
    }

    /// Those after a number, oldest first.
    pub(super) fn iter_after(&self, number: u64) -> impl Iterator<Item = (u64, &Run)> {
        let after = (Bound::Excluded(number), Bound::Unbounded);
        self.runs.range(after).map(|(&number, run)| (number, run))
    }

    /// What became of one, as often as it was there; at the end of each run, that.
    pub(super) fn of(
        &self,
        instance: &InstanceId,
    ) -> impl Iterator<Item = (&HistoryEvent, Option<&Run>)> {
        let runs = self
            .runs
            .values()
            .filter(move |run| run.instance == *instance);
        runs.flat_map(|run| {
            let last = run.history.iter().count().saturating_sub(1);
            let events = run.history.iter().enumerate();
            events.map(move |(at, event)| (event, (at == last).then_some(run)))
        })
    }

    /// Those remembered, and the bytes of their texts.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.runs.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sched_model::LifeState;

    use crate::api::cause::Cause;

    use super::{HistoryEvent, InstanceId, MAX_PAST, MAX_PAST_BYTES, Past, Run};

    fn run(name: &str, events: usize, len: usize) -> Run {
        let at = Instant::now();
        let event = |_| HistoryEvent {
            at,
            what: LifeState::Running,
            node: None,
            cause: Cause::Said("x".repeat(len).into()),
        };
        Run {
            instance: InstanceId::new(name),
            at,
            node: None,
            hostname: "".into(),
            exit_code: None,
            history: (0..events).map(event).collect(),
        }
    }

    #[test]
    fn those_that_are_gone_are_bounded_in_number_and_in_bytes() {
        let mut past = Past::default();
        for number in 0..MAX_PAST + 1 {
            past.note(run(&number.to_string(), 1, 1));
        }
        assert_eq!(past.size(), (MAX_PAST, MAX_PAST));
        assert_eq!(past.of(&InstanceId::new("0")).count(), 0);
        let mut changed = std::iter::from_fn(|| past.next_changed());
        assert!(changed.any(|number| number == 1), "it is to be deleted");
        for _ in 0..MAX_PAST {
            past.note(run("long", 100, 1024));
        }
        let (count, bytes) = past.size();
        assert!(count < MAX_PAST && bytes <= MAX_PAST_BYTES && bytes > MAX_PAST_BYTES / 2);
    }

    #[test]
    fn only_what_was_noted_since_is_changed() {
        let mut past = Past::default();
        past.note(run("a", 2, 1));
        let before = past.last();
        let instance = InstanceId::new("a");
        assert!(!past.amend(before, &instance, |_| unreachable!()));
        past.note(run("a", 1, 1));
        assert!(past.amend(before, &instance, |run| {
            run.exit_code = Some(3);
            run.hostname = "node".into();
        }));
        assert_eq!(past.size(), (2, 3 + "node".len()));
        let ends = past
            .of(&instance)
            .map(|(_, run)| run.map(|run| run.exit_code));
        assert_eq!(ends.collect::<Vec<_>>(), [None, Some(None), Some(Some(3))]);
        assert_eq!(past.iter_after(before).count(), 1);
    }
}
