//! How often an instance was placed again after it had ended: `retry` of a START. What its launcher does alone, restarts on
//! the same node, comes before.

use sched_model::RetryPolicy;

use crate::api::cause::Cause;
use crate::cluster::ledger::Ended;

/// The retries of one instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Retries {
    /// How many there were.
    pub(super) count: u32,
    /// The exit status, or minus the signal, of an end by itself that is being dealt with and that is followed by another.
    after: Option<i64>,
}

impl Retries {
    /// Whether an instance whose node is lost may go on elsewhere: without limit, or as one of its retries.
    pub(super) fn allow_loss(self, policy: Option<&RetryPolicy>) -> bool {
        let limit = policy.filter(|it| it.covers_node_failure());
        limit.is_none_or(|it| self.count < it.most())
    }

    /// Why the instance is placed again after the end by itself that is being dealt with; `None` if it is not.
    pub(super) fn cause(self, policy: Option<&RetryPolicy>) -> Option<Cause> {
        let (code, policy) = (self.after?, policy?);
        Some(Cause::Retried(code, self.count + 1, policy.most()))
    }

    /// A report of its end is about to be dealt with: by itself with this exit status, or minus this signal, where it is one
    /// after which there may be a retry.
    pub(super) fn expect(&mut self, policy: Option<&RetryPolicy>, code: Option<i64>) {
        let policy = policy.filter(|it| self.count < it.most());
        let is_covered = |code: &i64| policy.is_some_and(|it| it.covers_exit(*code));
        self.after = code.filter(is_covered);
    }

    /// An end was dealt with, and the instance goes on after it or not. Whether that is one of its retries: its START sets a
    /// limit to how often it goes on after such ends.
    pub(super) fn settle(
        &mut self,
        policy: Option<&RetryPolicy>,
        (how, goes_on): (Ended, bool),
    ) -> bool {
        let after = self.after.take();
        let is_retry = goes_on
            && match how {
                Ended::ByItself => after.is_some(),
                Ended::CutOff => policy.is_some_and(RetryPolicy::covers_node_failure),
                Ended::Failed | Ended::Gone | Ended::NotThere => false,
            };
        self.count = self.count.saturating_add(is_retry.into());
        is_retry
    }
}
