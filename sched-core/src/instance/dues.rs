//! Moments at which something is due about instances, one at most for each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::api::ids::InstanceId;

/// When something is due about which instance.
#[derive(Debug, Default)]
pub(crate) struct Dues {
    of: BTreeMap<InstanceId, Instant>,
    in_order: BTreeSet<(Instant, InstanceId)>,
}

impl Dues {
    /// Has something due about one at this moment, and not at an earlier or later one.
    pub(crate) fn set(&mut self, instance: &InstanceId, at: Instant) {
        self.forget(instance);
        self.of.insert(instance.clone(), at);
        self.in_order.insert((at, instance.clone()));
    }

    /// Nothing is due about one any more.
    pub(crate) fn forget(&mut self, instance: &InstanceId) {
        if let Some(at) = self.of.remove(instance) {
            self.in_order.remove(&(at, instance.clone()));
        }
    }

    /// When something is due next.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// One about which something is due now; no longer, then.
    pub(crate) fn take(&mut self, now: Instant) -> Option<InstanceId> {
        self.in_order.first().filter(|(at, _)| *at <= now)?;
        let (_, instance) = self.in_order.pop_first()?;
        self.of.remove(&instance);
        Some(instance)
    }

    /// Instances about which something is due.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Dues, InstanceId};

    #[test]
    fn an_instance_is_due_once_and_when_it_was_said_last() {
        let (now, id) = (Instant::now(), InstanceId::new);
        let second = Duration::from_secs(1);
        let mut dues = Dues::default();
        dues.set(&id("a"), now);
        dues.set(&id("a"), now + 3 * second);
        dues.set(&id("b"), now + second);
        dues.set(&id("c"), now + second);
        dues.forget(&id("c"));
        assert_eq!((dues.len(), dues.first()), (2, Some(now + second)));
        assert_eq!(dues.take(now), None);
        assert_eq!(dues.take(now + second), Some(id("b")));
        assert_eq!(dues.take(now + second), None);
        assert_eq!(dues.take(now + 3 * second), Some(id("a")));
        assert_eq!((dues.len(), dues.first()), (0, None));
    }
}
