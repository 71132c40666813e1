//! The instances that their controllers have destroyed, as the workers' nodes see them: a DELETE may reach the scheduler
//! only after that has started the instance elsewhere, because its worker went at the same time. No worker is told of
//! one then.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::coordinator::MAX_INSTANCES;

/// UUIDs of the instances that were destroyed last, [`MAX_INSTANCES`] of them: a START that is later than as many
/// others is not under way any more. A UUID is not used a second time. Clones are of the same ones; the lock is held
/// for moments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unwanted(Arc<Mutex<Destroyed>>);

/// What stands under the lock.
#[derive(Debug, Default)]
struct Destroyed {
    all: HashSet<Arc<str>>,
    /// The same in the order in which they were destroyed.
    order: VecDeque<Arc<str>>,
}

impl Unwanted {
    /// Its controller has destroyed it.
    pub(crate) fn add(&self, instance: &Arc<str>) {
        let mut destroyed = self.0.lock();
        if !destroyed.all.insert(Arc::clone(instance)) {
            return;
        }
        destroyed.order.push_back(Arc::clone(instance));
        if destroyed.order.len() > MAX_INSTANCES
            && let Some(oldest) = destroyed.order.pop_front()
        {
            destroyed.all.remove(&oldest);
        }
    }

    /// Whether it was destroyed.
    pub(crate) fn contains(&self, instance: &str) -> bool {
        self.0.lock().all.contains(instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instances_that_were_destroyed_last_are_known() {
        let unwanted = Unwanted::default();
        let uuid = |number: usize| Arc::<str>::from(number.to_string());
        for number in (0..=MAX_INSTANCES).chain([5]) {
            unwanted.add(&uuid(number));
        }
        let known = [0, 1, MAX_INSTANCES].map(|it| unwanted.contains(&uuid(it)));
        assert_eq!(known, [false, true, true]);
    }
}
