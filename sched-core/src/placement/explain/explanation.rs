//! One explanation: for people, for programs, and in a word.

use sched_model::Reason;

use super::blocked::BlockedBy;
use crate::api::cause::Cause;

/// Why a START was not placed: one answer, once for people (`cause`) and once for programs (`reasons`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// For people, as data. [`Cause::NoFit`] counts nodes; other causes are about the START or the cluster as a whole.
    pub(crate) cause: Cause,
    /// For programs, the reason with the most nodes first; empty where the cause is not about nodes.
    pub(crate) reasons: Vec<Reason>,
    /// Whether no node could run it as they are, however long the START waited: no node matches it, or it is larger
    /// than each that does. A START that has not run yet fails at once then, even if it may wait.
    pub(crate) never: bool,
}

impl Explanation {
    /// One that has nothing for programs.
    pub(crate) fn of(cause: Cause) -> Self {
        Self {
            cause,
            ..Self::default()
        }
    }

    /// What it comes down to, in a word for programs: of the reasons that may pass, the one of most nodes; where none may,
    /// the one of most nodes. A node that could never run it is not what anybody waits for, however many of its kind
    /// there are.
    pub(crate) fn blocked_by(&self) -> BlockedBy {
        let may_pass = self.reasons.iter().find(|reason| !reason.never);
        match may_pass.or(self.reasons.first()) {
            Some(reason) => BlockedBy::of(reason),
            None if self.cause == Cause::NotCounted => BlockedBy::NotCounted,
            None => BlockedBy::NoNode,
        }
    }

    /// The answer where no more nodes may be walked over at present.
    pub(super) fn not_counted() -> Self {
        Self::of(Cause::NotCounted)
    }
}
