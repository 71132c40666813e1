//! Nodes that could not start an instance, and what their launchers said of that.

use sched_model::Uuid;
use sched_model::scheduling::MAX_ATTEMPTS;
use sched_model::{AttemptFailed, StartFailureReason};

use crate::api::text::ShortText;

/// A node that could not start an instance, from its StartFailure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) node: Uuid,
    /// The reason it gave on the wire.
    pub(crate) reason: StartFailureReason,
    /// More about it, in its launcher's words.
    pub(crate) detail: ShortText,
}

/// The nodes that could not start an instance since it last ran, in order. They are not chosen again. Texts of
/// launchers are kept for the latest [`MAX_ATTEMPTS`] alone: an instance that has run may be refused by every node
/// there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AllTried(Vec<Tried>);

impl AllTried {
    /// Notes one more.
    pub(crate) fn note(&mut self, tried: Tried) {
        let last_said = self.0.len().checked_sub(MAX_ATTEMPTS as usize);
        if let Some(earlier) = last_said.and_then(|at| self.0.get_mut(at)) {
            earlier.detail = ShortText::default();
        }
        self.0.push(tried);
    }

    /// Forgets those that were full: they may be chosen again, and the others count as attempts.
    pub(crate) fn clear_full(&mut self) {
        self.0
            .retain(|it| it.reason != StartFailureReason::FullComputeNode);
    }

    /// Whether one of them was full.
    pub(crate) fn has_full(&self) -> bool {
        self.0
            .iter()
            .any(|it| it.reason == StartFailureReason::FullComputeNode)
    }

    /// Forgets all: these nodes may be chosen again.
    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// All of them.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Tried> {
        self.0.iter()
    }

    /// The latest.
    pub(crate) fn last(&self) -> Option<&Tried> {
        self.0.last()
    }

    /// How many nodes have refused it; compared with the attempts that its START allows.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The latest of them as `attempts` of a StartFailure.
    pub(crate) fn said(&self) -> Vec<AttemptFailed> {
        let first = self.0.len().saturating_sub(MAX_ATTEMPTS as usize);
        let said = |tried: &Tried| AttemptFailed {
            node_uuid: tried.node.to_string(),
            reason: tried.reason.clone(),
            detail: tried.detail.to_string(),
        };
        self.0[first..].iter().map(said).collect()
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.0.iter().map(|tried| tried.detail.len());
        self.0.len() * size_of::<Tried>() + texts.sum::<usize>()
    }
}

impl FromIterator<Tried> for AllTried {
    fn from_iter<I: IntoIterator<Item = Tried>>(all: I) -> Self {
        let mut tried = Self::default();
        all.into_iter().for_each(|one| tried.note(one));
        tried
    }
}

#[cfg(test)]
mod tests {
    use sched_model::{StartFailureReason, Uuid};

    use super::{AllTried, MAX_ATTEMPTS, Tried};

    #[test]
    fn what_was_said_is_kept_of_the_latest_alone() {
        let tried = |number: u32| Tried {
            node: Uuid::from_u128(number.into()),
            reason: StartFailureReason::LaunchFailure,
            detail: number.to_string().into(),
        };
        let all: AllTried = (0..10 * MAX_ATTEMPTS).map(tried).collect();
        assert_eq!(all.len(), 10 * MAX_ATTEMPTS as usize);
        let said: Vec<String> = all.said().into_iter().map(|it| it.detail).collect();
        let expected = (9 * MAX_ATTEMPTS..10 * MAX_ATTEMPTS).map(|it| it.to_string());
        assert_eq!(said, expected.collect::<Vec<_>>());
        let kept = all.iter().filter(|it| !it.detail.is_empty()).count();
        assert_eq!(kept, MAX_ATTEMPTS as usize);
    }
}
