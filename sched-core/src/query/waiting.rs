//! Why what waits does so now: one answer for rows, events, counts and metrics, never older than the explanations of
//! refusals are.
//!
//! A history keeps the cause of each step as it was then. What somebody waits for is another question: nodes have come,
//! left and filled up since, so it is answered again each time it is asked, by the filters and figures of the choice.

use std::time::Instant;

use sched_model::InstanceView;

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::InstanceId;
use crate::instance::{State, SuspendedBy};
use crate::placement::explain::{BlockedBy, Explanation};

/// What is said of a row of an instance that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The sentence and the word: for lists.
    Cause,
    /// All reasons as well: for one instance.
    Reasons,
}

/// The word for an instance that waits for vcpus on the node where it is suspended.
pub(super) const RESUME: &str = "resume";

impl Scheduler {
    /// Calls `with` with why an instance waits to be placed now; with `None` where that may not be counted now. Nothing
    /// is called for an instance that does not wait to be placed.
    pub(crate) fn with_why_waits<T>(
        &mut self,
        now: Instant,
        instance: &InstanceId,
        with: impl FnOnce(Option<&Explanation>) -> T,
    ) -> Option<T> {
        let managed = self.instances.get(instance)?;
        if !matches!(managed.state(), State::Waiting { .. }) {
            return None;
        }
        let query = self.instances.query_of(instance)?;
        let why = self.placement.why_waits(&mut self.cluster, &query, now);
        Some(with(why))
    }

    /// What an instance that waits is counted under; `None` where it does not wait to be placed.
    pub(super) fn blocked_by(&mut self, now: Instant, instance: &InstanceId) -> Option<BlockedBy> {
        let blocked =
            |why: Option<&Explanation>| why.map_or(BlockedBy::NotCounted, Explanation::blocked_by);
        self.with_why_waits(now, instance, blocked)
    }

    /// Writes into rows of instances why those that wait do so now.
    pub(crate) fn explain_rows(
        &mut self,
        now: Instant,
        detail: Detail,
        (rows, causes): (&mut [InstanceView], &mut [Cause]),
    ) {
        for (row, cause) in rows.iter_mut().zip(causes) {
            self.explain_row(now, detail, row, cause);
        }
    }

    /// The same of one row.
    pub(super) fn explain_row(
        &mut self,
        now: Instant,
        detail: Detail,
        row: &mut InstanceView,
        cause: &mut Cause,
    ) {
        // Only of an instance that waits.
        if row.position.is_none() {
            return;
        }
        let instance = InstanceId::new(&row.instance_uuid);
        let by_preemptor = |state: &State| {
            matches!(
                state,
                State::Suspended {
                    by: SuspendedBy::Preemptor(_),
                    ..
                }
            )
        };
        let managed = self.instances.get(&instance);
        if managed.is_some_and(|managed| by_preemptor(managed.state())) {
            RESUME.clone_into(&mut row.blocked_by);
            return;
        }
        self.with_why_waits(now, &instance, |why| match why {
            Some(why) => {
                why.blocked_by().word().clone_into(&mut row.blocked_by);
                *cause = why.cause.clone();
                row.never = why.never;
                if detail == Detail::Reasons {
                    row.reasons.clone_from(&why.reasons);
                }
            }
            None => {
                BlockedBy::NotCounted.word().clone_into(&mut row.blocked_by);
                *cause = Cause::NotCounted;
            }
        });
    }
}
