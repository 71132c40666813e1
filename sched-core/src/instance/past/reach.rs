//! Since when the history of ends is known to have no gap. Who finds an instance neither running nor among the ends can
//! tell with it whether the instance never began, or may have ended and been forgotten.

use std::time::Instant;

use super::run::Run;

/// Since when every end is remembered. It only moves forward. What is not known counts as forgotten, so that the moment
/// may be later than the true one and is never earlier.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// `None` until the history has begun.
    pub(super) since: Option<Instant>,
    /// When a run was last noted whose end came from a node's memory: its time is by that node's clock, and proves
    /// nothing about the order of ends.
    learnt: Option<Instant>,
}

impl Reach {
    /// The history begins: no end since `since` is missing but those that numbers tell to be forgotten. Runs are
    /// numbered from 1 without a gap, the oldest run is forgotten first, and the time at which a run was noted grows
    /// with its number: a missing run ended no later than the next one that is remembered and has a time of the
    /// scheduler's own.
    pub(super) fn begin<'a>(
        &mut self,
        since: Instant,
        now: Instant,
        runs: impl Iterator<Item = (u64, &'a Run)>,
    ) {
        let (mut reached, mut is_after_gap, mut expected) = (since, false, 1);
        for (number, run) in runs {
            is_after_gap |= number != expected;
            expected = number + 1;
            if is_after_gap && has_own_time(run) {
                reached = reached.max(run.at());
                is_after_gap = false;
            }
        }
        if is_after_gap {
            reached = now;
        }
        self.since = Some(reached);
        // Which of them a node remembered is not on disk.
        self.learnt = Some(now);
    }

    /// Ends before this moment are missing.
    pub(super) fn note_gap(&mut self, until: Instant) {
        self.since = self.since.map(|since| since.max(until));
    }

    /// A run is noted that a node remembered.
    pub(super) fn note_learnt(&mut self, now: Instant) {
        self.learnt = Some(now);
    }

    /// A run is forgotten.
    pub(super) fn forget(&mut self, run: &Run) {
        let ended = match has_own_time(run) {
            true => run.at(),
            false => self.learnt.map_or(run.at(), |learnt| learnt.max(run.at())),
        };
        self.since = self.since.map(|since| since.max(ended));
    }
}

/// Whether the time of this run's end is certainly the scheduler's own. A run that a node remembered has its end as the
/// only event.
fn has_own_time(run: &Run) -> bool {
    run.events().nth(1).is_some()
}
