//! Those that wait for other instances to end before they are placed. They stand in no order, because no node can be
//! offered to them yet: once all that they come after has ended, they are placed or wait for room as any other.
//!
//! Whether an instance has ended, and how, is for the user of this to say. It says that something has become of an instance
//! ([`Queue::wake_dependents_of`]), and is given those that wait for it one after the other
//! ([`Queue::take_due_dependent`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use indexmap::IndexSet;
use sched_model::array::element_index;
use sched_model::{AfterEnd, Uuid};

use super::{Full, Queue};
use crate::api::array::ElementId;
use crate::api::ids::InstanceId;
use crate::maps::{Map, change_or_drop};

/// Most that wait for others at the same time: half of what waits for room at most, which they may do afterwards.
pub(crate) const MAX_DEPENDENTS: usize = super::MAX_QUEUED / 2;

/// Most of those that operators sent, so that controllers always find a place.
pub(crate) const MAX_DEPENDENTS_OF_OPERATORS: usize = MAX_DEPENDENTS / 4 * 3;

/// Most instances that all of them wait for together: four each, with some 100 bytes for one.
pub(crate) const MAX_DEPENDENCIES: usize = 4 * MAX_DEPENDENTS;

/// How often all of them are looked at, whatever was said: an instance may be forgotten without a word, as one on a lost
/// node.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// An instance, or an array, that must have ended, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// Which, as far as is known; an array by its UUID.
    pub(crate) other: InstanceId,
    /// Whether that is an array.
    pub(crate) is_array: bool,
    /// The element of an array that it is, as far as is known: it may not have begun. Not recorded, but looked up again.
    pub(crate) element: Option<ElementId>,
    /// As its START names it.
    pub(crate) named: Box<str>,
    /// How.
    pub(crate) end: AfterEnd,
}

/// One that waits for others.
#[derive(Debug)]
struct Dependent {
    order: u64,
    left: Vec<Dependency>,
    is_operators: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    waiting: Map<InstanceId, Dependent>,
    by_order: BTreeMap<u64, InstanceId>,
    /// Who waits for an instance.
    by_other: Map<InstanceId, IndexSet<InstanceId>>,
    /// Those that are to be looked at, by their order of arrival, in which they are.
    due: BTreeSet<u64>,
    /// When all are.
    look_at: Option<Instant>,
    /// How many instances all of them wait for.
    named: usize,
    of_operators: usize,
}

impl Queue {
    /// Has one wait for others, which is in the order of arrivals under this number.
    ///
    /// # Errors
    /// [`Full`], if as many wait so as may.
    pub(crate) fn depend(
        &mut self,
        now: Instant,
        instance: &InstanceId,
        (order, is_operators): (u64, bool),
        left: Vec<Dependency>,
    ) -> Result<(), Full> {
        let all = &self.dependents;
        let is_full = all.waiting.len() >= MAX_DEPENDENTS
            || all.named + left.len() > MAX_DEPENDENCIES
            || is_operators && all.of_operators >= MAX_DEPENDENTS_OF_OPERATORS;
        if is_full {
            return Err(Full);
        }
        self.depend_unlimited(now, instance, (order, is_operators), left);
        Ok(())
    }

    /// The same of one that waited so before a restart of the scheduler.
    pub(crate) fn depend_unlimited(
        &mut self,
        now: Instant,
        instance: &InstanceId,
        (order, is_operators): (u64, bool),
        left: Vec<Dependency>,
    ) {
        self.depend_no_more(instance);
        let all = &mut self.dependents;
        all.of_operators += usize::from(is_operators);
        all.by_order.insert(order, instance.clone());
        all.look_at.get_or_insert(now + LOOK_EVERY);
        let dependent = Dependent {
            order,
            left: Vec::new(),
            is_operators,
        };
        all.waiting.insert(instance.clone(), dependent);
        all.set_left(instance, left);
        self.orders = self.orders.max(order);
    }

    /// One waits for others no longer, if it did.
    pub(crate) fn depend_no_more(&mut self, instance: &InstanceId) {
        let all = &mut self.dependents;
        if !all.waiting.contains_key(instance) {
            return;
        }
        all.set_left(instance, Vec::new());
        let Some(dependent) = all.waiting.swap_remove(instance) else {
            return;
        };
        all.by_order.remove(&dependent.order);
        all.due.remove(&dependent.order);
        all.of_operators -= usize::from(dependent.is_operators);
        if all.waiting.is_empty() {
            // A burst of them does not hold its memory for good.
            *all = Dependents::default();
        }
    }

    /// Whether anything waits for others.
    pub(crate) fn has_dependents(&self) -> bool {
        !self.dependents.waiting.is_empty()
    }

    /// How many do.
    pub(crate) fn dependents(&self) -> usize {
        self.dependents.waiting.len()
    }

    /// What one waits for to end; `None` if it does not wait for others.
    pub(crate) fn dependencies(&self, instance: &InstanceId) -> Option<&[Dependency]> {
        if self.dependents.waiting.is_empty() {
            return None;
        }
        let dependent = self.dependents.waiting.get(instance)?;
        Some(&dependent.left)
    }

    /// From now on, one that waits for others waits for these. Whether it did not before.
    pub(crate) fn set_dependencies(
        &mut self,
        instance: &InstanceId,
        left: Vec<Dependency>,
    ) -> bool {
        let is_other = self.dependencies(instance) != Some(&left);
        if is_other {
            self.dependents.set_left(instance, left);
        }
        is_other
    }

    /// Something has become of an instance or an array: those that wait for it are to be looked at.
    pub(crate) fn wake_dependents_of(&mut self, other: &InstanceId) {
        let all = &mut self.dependents;
        if let Some(waiting) = all.by_other.get(other) {
            let orders = waiting
                .iter()
                .filter_map(|it| Some(all.waiting.get(it)?.order));
            all.due.extend(orders);
        }
    }

    /// Something has become of elements of an array that are no instances: those that wait for any of its elements, or for
    /// all of it, are to be looked at. Costs a comparison with each instance that is waited for.
    pub(crate) fn wake_dependents_on_array(&mut self, array: Uuid) {
        let all = &mut self.dependents;
        let is_of_it = |other: &InstanceId| match *other {
            InstanceId::Uuid(other) => other == array || element_index(array, other).is_some(),
            _ => false,
        };
        let others = all.by_other.iter().filter(|(other, _)| is_of_it(other));
        let waiting = others.flat_map(|(_, waiting)| waiting);
        let orders = waiting.filter_map(|it| Some(all.waiting.get(it)?.order));
        all.due.extend(orders);
    }

    /// The next that is to be looked at.
    pub(crate) fn take_due_dependent(&mut self, now: Instant) -> Option<InstanceId> {
        let all = &mut self.dependents;
        if all.look_at.is_some_and(|at| at <= now) {
            all.look_at = Some(now + LOOK_EVERY);
            all.due.extend(all.by_order.keys());
        }
        let order = all.due.pop_first()?;
        all.by_order.get(&order).cloned()
    }

    /// When one is to be looked at.
    #[inline]
    pub(crate) fn dependents_due(&self, now: Instant) -> Option<Instant> {
        match self.dependents.due.is_empty() {
            true => self.dependents.look_at,
            false => Some(now),
        }
    }

    /// The first in order of arrival behind this one, and its number in it.
    pub(crate) fn next_dependent(&self, after: Option<u64>) -> Option<(u64, &InstanceId)> {
        let from = after.map_or(0, |after| after.saturating_add(1));
        let (order, instance) = self.dependents.by_order.range(from..).next()?;
        Some((*order, instance))
    }

    /// Whether all indexes have just those that wait for others.
    pub(super) fn are_dependents_consistent(&self) -> bool {
        let all = &self.dependents;
        let named = all.waiting.values().map(|it| it.left.len()).sum::<usize>();
        let operators = all.waiting.values().filter(|it| it.is_operators).count();
        let is_indexed = all.waiting.iter().all(|(instance, dependent)| {
            let is_found = |it: &Dependency| {
                let waiting = all.by_other.get(&it.other);
                waiting.is_some_and(|waiting| waiting.contains(instance))
            };
            all.by_order.get(&dependent.order) == Some(instance)
                && dependent.left.iter().all(is_found)
        });
        let is_waiting = |(other, waiting): (&InstanceId, &IndexSet<InstanceId>)| {
            !waiting.is_empty()
                && waiting.iter().all(|instance| {
                    let left = all.waiting.get(instance).map(|it| &it.left);
                    left.is_some_and(|left| left.iter().any(|it| it.other == *other))
                })
        };
        is_indexed
            && all.by_other.iter().all(is_waiting)
            && all.by_order.len() == all.waiting.len()
            && all.due.iter().all(|it| all.by_order.contains_key(it))
            && (all.named, all.of_operators) == (named, operators)
    }
}

impl Dependents {
    /// What one waits for, with the index of it.
    fn set_left(&mut self, instance: &InstanceId, left: Vec<Dependency>) {
        let Some(dependent) = self.waiting.get_mut(instance) else {
            return;
        };
        self.named = self.named + left.len() - dependent.left.len();
        for it in &dependent.left {
            change_or_drop(&mut self.by_other, &it.other, |waiting| {
                waiting.swap_remove(instance);
                !waiting.is_empty()
            });
        }
        for it in &left {
            let waiting = self.by_other.entry(it.other.clone()).or_default();
            waiting.insert(instance.clone());
        }
        dependent.left = left;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
    use sched_model::AfterEnd;

    use super::{Dependency, LOOK_EVERY, MAX_DEPENDENTS_OF_OPERATORS, Queue};
    use crate::api::ids::InstanceId;

    fn named(number: u64) -> InstanceId {
        InstanceId::new(&format!("i{number}"))
    }

    fn on(numbers: &[u64]) -> Vec<Dependency> {
        let dependency = |number: &u64| Dependency {
            other: named(*number),
            is_array: false,
            element: None,
            named: "".into(),
            end: AfterEnd::Ok,
        };
        numbers.iter().map(dependency).collect()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Depend(u64, bool, Vec<u64>),
        Left(u64, Vec<u64>),
        Leave(u64),
        Ended(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let others = || proptest::collection::vec(0..6_u64, 1..4);
        proptest::prop_oneof![
            (0..12_u64, any::<bool>(), others()).prop_map(|(a, b, c)| Step::Depend(a, b, c)),
            (0..12_u64, others()).prop_map(|(a, b)| Step::Left(a, b)),
            (0..12_u64).prop_map(Step::Leave),
            (0..6_u64).prop_map(Step::Ended),
        ]
    }

    proptest! {
        /// Whatever comes and goes, those that wait for an instance are found by it, and just those.
        #[test]
        fn who_waits_for_an_instance_is_found_by_it(
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let now = crate::simulated::start();
            let mut queue = Queue::default();
            let mut model = std::collections::BTreeMap::<u64, Vec<u64>>::new();
            for step in steps {
                match step {
                    Step::Depend(who, is_operators, others) => {
                        queue.depend(now, &named(who), (who, is_operators), on(&others)).unwrap();
                        model.insert(who, others);
                    }
                    Step::Left(who, others) => {
                        queue.set_dependencies(&named(who), on(&others));
                        model.entry(who).and_modify(|it| *it = others);
                    }
                    Step::Leave(who) => {
                        queue.depend_no_more(&named(who));
                        model.remove(&who);
                    }
                    Step::Ended(other) => {
                        queue.wake_dependents_of(&named(other));
                        let mut found = std::collections::BTreeSet::new();
                        while let Some(due) = queue.take_due_dependent(now) {
                            found.insert(due);
                        }
                        let waits = model.iter().filter(|(_, others)| others.contains(&other));
                        prop_assert_eq!(found, waits.map(|(who, _)| named(*who)).collect());
                    }
                }
                prop_assert!(queue.are_dependents_consistent());
                prop_assert_eq!(queue.dependents(), model.len());
            }
        }
    }

    #[test]
    fn all_are_looked_at_now_and_then_and_operators_leave_places() {
        let now = crate::simulated::start();
        let mut queue = Queue::default();
        for number in 0..MAX_DEPENDENTS_OF_OPERATORS as u64 {
            let place = (number, true);
            queue
                .depend(now, &named(number), place, on(&[number + 1]))
                .unwrap();
        }
        let last = MAX_DEPENDENTS_OF_OPERATORS as u64;
        assert!(
            queue
                .depend(now, &named(last), (last, true), on(&[1]))
                .is_err()
        );
        assert!(
            queue
                .depend(now, &named(last), (last, false), on(&[1]))
                .is_ok()
        );
        assert_eq!(queue.take_due_dependent(now), None);
        let later = now + LOOK_EVERY;
        assert_eq!(queue.dependents_due(now), Some(later));
        assert_eq!(queue.take_due_dependent(later), Some(named(0)));
        assert_eq!(queue.dependents_due(later), Some(later));
        let is_later = queue.dependents.look_at > Some(later + Duration::from_secs(1));
        assert!(is_later);
    }
}
