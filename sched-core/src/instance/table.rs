//! The table of all instances that the scheduler manages, and what is looked up in it: by when something is due, by the
//! node that is lost with them, and those on no node.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Instant;

use indexmap::map::{Entry, VacantEntry};
use indexmap::{IndexMap, IndexSet};
use sched_model::Uuid;

use super::history::Past;
use super::lifecycle::check;
use super::size::Size;
use super::{Event, Instance, State};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::phase::{IllegalTransition, Phase};
use crate::maps::Map;

/// All instances that are looked after.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    kept: Map<InstanceId, Box<Instance>>,
    /// When something is due about those of which something is.
    due: BTreeSet<(Instant, InstanceId)>,
    /// Those on no node.
    nowhere: BTreeSet<InstanceId>,
    /// Those whose nodes are lost, by node.
    lost: IndexMap<Uuid, IndexSet<InstanceId>>,
    /// What became of those that are gone, oldest first.
    past: Past,
    size: Size,
    /// Counts the changes of state of all, so that an epoch of one instance is none of a later one of the same name.
    epochs: u64,
}

impl Instances {
    /// Whether none is looked after.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether this one is looked after.
    pub(crate) fn contains(&self, instance: &InstanceId) -> bool {
        !self.kept.is_empty() && self.kept.contains_key(instance)
    }

    /// One that is looked after.
    pub(crate) fn get(&self, instance: &InstanceId) -> Option<&Instance> {
        if self.kept.is_empty() {
            return None;
        }
        self.kept.get(instance).map(|kept| &**kept)
    }

    /// A managed instance, to be changed; its state is changed by [`Instances::transition`] alone.
    pub(crate) fn get_mut(&mut self, instance: &InstanceId) -> Option<&mut Instance> {
        self.kept.get_mut(instance).map(|kept| &mut **kept)
    }

    /// All of them, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        self.kept.iter().map(|(instance, kept)| (instance, &**kept))
    }

    /// The first on no node, in order of identifiers, or the one behind another.
    pub(crate) fn next_nowhere(
        &self,
        after: Option<&InstanceId>,
    ) -> Option<(&InstanceId, &Instance)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let instance = self.nowhere.range((from, Bound::Unbounded)).next()?;
        Some((instance, self.get(instance)?))
    }

    /// The place of an instance that is not managed yet; `None` if it is. There is no other way to put one in, so that
    /// none is ever put over another: its state, and what is due about it, would be lost while a node still has it.
    pub(crate) fn vacant(&mut self, instance: InstanceId) -> Option<Vacant<'_>> {
        let Self {
            kept,
            due,
            nowhere,
            lost,
            size,
            epochs,
            ..
        } = self;
        let Entry::Vacant(place) = kept.entry(instance) else {
            return None;
        };
        Some(Vacant {
            place,
            due,
            nowhere,
            lost,
            size,
            epochs,
        })
    }

    fn note_lost(&mut self, instance: &InstanceId, before: Option<Uuid>, after: Option<Uuid>) {
        if before == after {
            return;
        }
        if let Some(node) = before
            && let Some(instances) = self.lost.get_mut(&node)
        {
            instances.swap_remove(instance);
            if instances.is_empty() {
                self.lost.swap_remove(&node);
            }
        }
        if let Some(node) = after {
            self.lost.entry(node).or_default().insert(instance.clone());
        }
    }

    /// Those whose node is this one, which is lost, or was when they were heard of last.
    pub(crate) fn lost_with(&self, node: Uuid) -> Vec<InstanceId> {
        let lost = self.lost.get(&node).into_iter().flatten();
        lost.cloned().collect()
    }

    /// Changes the state of one, the only way to do so; `None` if it is not managed.
    ///
    /// # Errors
    /// The lifecycle has no such transition; nothing has changed.
    pub(crate) fn transition(
        &mut self,
        instance: &InstanceId,
        state: State,
    ) -> Result<Option<&mut Instance>, IllegalTransition> {
        let Some(kept) = self.kept.get_mut(instance) else {
            return Ok(None);
        };
        check(instance, kept.state.phase(), state.phase())?;
        let (before, after) = (kept.state.due(), state.due());
        let (place, is_moved) = (
            state.node(),
            kept.state.node().is_some() != state.node().is_some(),
        );
        let nodes = (lost_node(&kept.state), lost_node(&state));
        kept.state = state;
        self.epochs += 1;
        kept.epoch = self.epochs;
        self.size.count(kept);
        self.note_lost(instance, nodes.0, nodes.1);
        if let Some(due) = before {
            self.due.remove(&(due, instance.clone()));
        }
        if let Some(due) = after {
            // Also where it is the same moment: it may have been taken ([`Instances::take_due`]).
            self.due.insert((due, instance.clone()));
        }
        if is_moved {
            self.note_place(instance, place);
        }
        Ok(self.get_mut(instance))
    }

    fn note_place(&mut self, instance: &InstanceId, place: Option<NodeKey>) {
        if place.is_none() {
            self.nowhere.insert(instance.clone());
        } else {
            self.nowhere.remove(instance);
        }
    }

    /// No longer manages one; its history, with this last event, is kept for a while.
    ///
    /// # Errors
    /// The lifecycle does not end in its phase; nothing has changed.
    pub(crate) fn remove(
        &mut self,
        instance: &InstanceId,
        last: Event,
    ) -> Result<(), IllegalTransition> {
        if let Some(kept) = self.kept.get(instance) {
            check(instance, kept.state.phase(), Phase::Gone)?;
        }
        let Some(mut kept) = self.kept.swap_remove(instance) else {
            return Ok(());
        };
        kept.note(last);
        self.size.forget(&mut kept);
        self.nowhere.remove(instance);
        if let Some(due) = kept.state.due() {
            self.due.remove(&(due, instance.clone()));
        }
        self.note_lost(instance, lost_node(&kept.state), None);
        self.past
            .note(instance.clone(), std::mem::take(&mut kept.history));
        const SHRINK_ABOVE: usize = 4096;
        if self.kept.capacity() > SHRINK_ABOVE && self.kept.len() < self.kept.capacity() / 4 {
            self.kept.shrink_to(2 * self.kept.len());
        }
        Ok(())
    }

    /// What all take.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Those that are gone and remembered, and the bytes of what is said of them.
    pub(crate) fn past_size(&self) -> (usize, usize) {
        self.past.size()
    }

    /// Places in the table.
    pub(crate) fn capacity(&self) -> usize {
        self.kept.capacity() + self.lost.capacity()
    }

    /// When something is due next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes one about which something is due: each moment comes up once, whatever is done about it, so that nothing
    /// that is done in vain keeps the others from their turn. A moment that is not that of the instance's state is left
    /// out.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<InstanceId> {
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            let (due, instance) = self.due.pop_first()?;
            if self.get(&instance).and_then(|kept| kept.state.due()) == Some(due) {
                return Some(instance);
            }
        }
        None
    }

    /// What became of one, latest life last.
    pub(crate) fn history(&self, instance: &InstanceId) -> impl Iterator<Item = &Event> {
        let now = self.kept.get(instance).into_iter();
        self.past
            .of(instance)
            .chain(now.flat_map(|kept| kept.history.iter()))
    }

    /// Whether the times at which something is due, and who is on no node, are what the states say.
    pub(crate) fn is_consistent(&self) -> bool {
        let of = |(instance, kept): (&InstanceId, &Instance)| {
            Some((kept.state.due()?, instance.clone()))
        };
        let due: BTreeSet<_> = self.iter().filter_map(of).collect();
        let nowhere = self.kept.iter().filter(|(_, kept)| kept.node().is_none());
        let nowhere: BTreeSet<_> = nowhere.map(|(instance, _)| instance.clone()).collect();
        let lost = |(instance, kept): (&InstanceId, &Instance)| {
            let node = lost_node(&kept.state)?;
            Some((node, instance.clone()))
        };
        let lost: BTreeSet<_> = self.iter().filter_map(lost).collect();
        let listed = self.lost.iter();
        let listed = listed.flat_map(|(&node, all)| all.iter().map(move |it| (node, it.clone())));
        let counted: usize = self.iter().map(|(_, kept)| kept.counted).sum();
        counted == self.size.all()
            && due == self.due
            && nowhere == self.nowhere
            && lost == listed.collect()
    }
}

/// The place of an instance that is not managed.
pub(crate) struct Vacant<'a> {
    place: VacantEntry<'a, InstanceId, Box<Instance>>,
    due: &'a mut BTreeSet<(Instant, InstanceId)>,
    nowhere: &'a mut BTreeSet<InstanceId>,
    lost: &'a mut IndexMap<Uuid, IndexSet<InstanceId>>,
    size: &'a mut Size,
    epochs: &'a mut u64,
}

impl Vacant<'_> {
    /// Manages it from now on.
    ///
    /// # Errors
    /// The lifecycle does not begin in its phase; it is not managed.
    pub(crate) fn insert(self, mut kept: Instance) -> Result<(), IllegalTransition> {
        check(self.place.key(), Phase::New, kept.state.phase())?;
        *self.epochs += 1;
        kept.epoch = *self.epochs;
        self.size.count(&mut kept);
        let instance = self.place.key();
        if kept.state.node().is_none() {
            self.nowhere.insert(instance.clone());
        }
        if let Some(due) = kept.state.due() {
            self.due.insert((due, instance.clone()));
        }
        if let Some(node) = lost_node(&kept.state) {
            let lost = self.lost.entry(node).or_default();
            lost.insert(instance.clone());
        }
        self.place.insert(Box::new(kept));
        Ok(())
    }
}

/// The node that is lost with an instance.
fn lost_node(state: &State) -> Option<Uuid> {
    match state {
        State::Lost { node, .. } => Some(*node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::cause::Cause;
    use crate::instance::lifecycle::TRANSITIONS;
    use crate::instance::{AfterLoss, Awaits, By, Move, Placing, Then};

    fn lost(until: Instant) -> Instance {
        let node = Uuid::from_u128(1);
        let then = AfterLoss::Restart;
        Instance::adopted(State::Lost { node, until, then }, node, 0, until)
    }

    /// A state of this phase; `None` for the two that have none.
    fn state_in(phase: Phase, due: Instant) -> Option<State> {
        let (node, uuid) = (NodeKey(0), Uuid::from_u128(1));
        let by = By::Command;
        let placing = |pending_on| State::Placing(Placing { node, pending_on });
        let stopping = |then| State::Stopping { node, then, due };
        let moving = |how| State::Migrating {
            from: node,
            to: node,
            how,
            due,
        };
        let lost = |then| State::Lost {
            node: uuid,
            until: due,
            then,
        };
        Some(match phase {
            Phase::New | Phase::Gone => return None,
            Phase::Waiting => State::Waiting,
            Phase::Claimed => placing(Awaits::Commit),
            Phase::Preempting => placing(Awaits::Victims(BTreeSet::new(), due)),
            Phase::Starting => placing(Awaits::Node),
            Phase::Running => State::Running { node },
            Phase::Updating => {
                let before = Box::default();
                State::Updating { node, before, due }
            }
            Phase::Suspending => State::Suspending { node, by, due },
            Phase::Suspended => State::Suspended { node, by },
            Phase::Resuming => State::Resuming { node, by, due },
            Phase::Preempted => stopping(Then::Wait(InstanceId::new("b"))),
            Phase::Relocating => stopping(Then::Again),
            Phase::Deleting => stopping(Then::End),
            Phase::MoveClaimed => moving(Move::Claimed),
            Phase::MoveStopping => moving(Move::Cold),
            Phase::Shipping => moving(Move::Shipped),
            Phase::Lost => lost(AfterLoss::Forget),
            Phase::LostDeleted => lost(AfterLoss::Delete),
        })
    }

    fn gone(at: Instant) -> Event {
        Event {
            at,
            what: sched_model::LifeState::Gone,
            node: None,
            cause: Cause::Plain,
        }
    }

    /// A table with one instance, which was put into this state past all checks.
    fn table_with(name: &InstanceId, state: Option<State>, now: Instant) -> Instances {
        let mut instances = Instances::default();
        if let Some(state) = state {
            let waiting = Instance::new(State::Waiting, 0, now);
            let place = instances.vacant(name.clone()).expect("none has it");
            place.insert(waiting).expect("it may wait at first");
            let kept = instances.get_mut(name).expect("it is managed");
            kept.state = state;
        }
        instances
    }

    #[test]
    fn every_transition_is_done_if_it_is_in_the_table_of_the_lifecycle_and_else_changes_nothing() {
        let (now, name) = (some_moment(), InstanceId::new("a"));
        let mut legal = 0;
        for from in Phase::ALL {
            for to in Phase::ALL {
                let mut instances = table_with(&name, state_in(from, now), now);
                let done = match (from, state_in(to, now)) {
                    (Phase::New, Some(state)) => {
                        let place = instances.vacant(name.clone()).expect("none has it");
                        place.insert(Instance::new(state, 0, now))
                    }
                    (_, None) if to == Phase::Gone && from != Phase::New && from != Phase::Gone => {
                        instances.remove(&name, gone(now))
                    }
                    (Phase::Gone, _) | (_, None) => {
                        assert!(!from.may_become(to), "{from} to {to} is no transition");
                        continue;
                    }
                    (_, Some(state)) => instances.transition(&name, state).map(|_| ()),
                };
                let found = instances.get(&name).map(|kept| kept.state.phase());
                let outside = |phase| [Phase::New, Phase::Gone].contains(&phase);
                let expected = match (from.may_become(to), from, to) {
                    (true, _, phase) | (false, phase, _) => Some(phase).filter(|it| !outside(*it)),
                };
                assert_eq!(found, expected, "{from} to {to}");
                let instance = name.clone();
                let refused = IllegalTransition { instance, from, to };
                let expected = from.may_become(to).then_some(()).ok_or(refused);
                assert_eq!(done, expected, "{from} to {to}");
                legal += usize::from(done.is_ok());
            }
        }
        let all: usize = Phase::ALL
            .map(|phase| phase.transitions().len())
            .iter()
            .sum();
        assert_eq!(legal, all);
    }

    #[test]
    fn each_phase_has_one_row_in_the_table_of_the_lifecycle_and_names_each_transition_once() {
        let rows: Vec<Phase> = TRANSITIONS.iter().map(|(from, _)| *from).collect();
        assert_eq!(rows, Phase::ALL);
        for (from, row) in TRANSITIONS {
            let to: Vec<Phase> = row.iter().map(|(to, _)| *to).collect();
            assert!(to.is_sorted_by(|one, next| one < next), "{from}: {to:?}");
        }
    }

    /// Any moment will do.
    fn some_moment() -> Instant {
        let clock: fn() -> Instant = Instant::now;
        clock()
    }

    #[test]
    fn no_state_of_an_instance_has_the_number_of_one_of_an_earlier_instance_of_its_name() {
        let (now, name) = (some_moment(), InstanceId::new("a"));
        let mut instances = Instances::default();
        let mut epochs = BTreeSet::new();
        for _ in 0..2 {
            let place = instances.vacant(name.clone()).expect("none has it");
            let waiting = Instance::new(State::Waiting, 0, now);
            place.insert(waiting).expect("it may wait at first");
            epochs.extend(instances.get(&name).map(|kept| kept.epoch));
            let claimed = state_in(Phase::Claimed, now).expect("it is a state");
            let kept = instances.transition(&name, claimed);
            epochs.extend(kept.expect("there is room").map(|kept| kept.epoch));
            instances.remove(&name, gone(now)).expect("it is deleted");
        }
        assert_eq!(epochs.len(), 4);
    }

    #[test]
    fn one_that_is_managed_has_no_vacant_place() {
        let (mut instances, now) = (Instances::default(), some_moment());
        let name = InstanceId::new("a");
        let place = instances.vacant(name.clone());
        let place = place.expect("none has it");
        place.insert(lost(now)).expect("it may be lost at first");
        assert!(instances.vacant(name).is_none());
        assert!(instances.is_consistent());
    }

    #[test]
    fn what_is_due_comes_up_once_whatever_is_done_about_it_and_what_is_stale_does_not() {
        let (mut instances, now) = (Instances::default(), some_moment());
        let later = now + Duration::from_secs(1);
        for (name, due) in [("a", now), ("b", now)] {
            let place = instances.vacant(InstanceId::new(name));
            let place = place.expect("none has it");
            place.insert(lost(due)).expect("it may be lost at first");
        }
        // One that no state has.
        instances.due.insert((now, InstanceId::new("a stale one")));
        let mut due: Vec<_> = std::iter::from_fn(|| instances.take_due(now)).collect();
        due.sort();
        assert_eq!(due, [InstanceId::new("a"), InstanceId::new("b")]);
        assert_eq!(instances.due(), None);
        // The same moment again, for what was put off.
        let Some(state) = instances.get(&due[0]).map(|kept| kept.state.clone()) else {
            panic!("it is managed");
        };
        let done = instances.transition(&due[0], state);
        assert!(done.is_ok_and(|kept| kept.is_some()));
        assert_eq!(instances.take_due(later), Some(due[0].clone()));
    }
}
