//! The table of all instances that the scheduler manages, and what is looked up in it: by when something is due, by the
//! node that is lost with them, and those on no node.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Instant;

use indexmap::map::{Entry, VacantEntry};
use indexmap::{IndexMap, IndexSet};
use proto_frames::Uuid;

use super::history::Past;
use super::size::Size;
use super::{Event, Instance, State};
use crate::api::ids::{InstanceId, NodeKey};
use crate::instance::dues::Dues;
use crate::maps::Map;

/// All instances that are looked after.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    kept: Map<InstanceId, Box<Instance>>,
    /// When something is due about those of which something is.
    due: BTreeSet<(Instant, InstanceId)>,
    /// Those on no node.
    nowhere: BTreeSet<InstanceId>,
    /// Those that wait although nodes refused them, and when those nodes may be asked again.
    again: Dues,
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

    /// One that is looked after, to be changed; its state is changed by [`Instances::turn`] alone.
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

    /// Changes the state of one.
    pub(crate) fn turn(&mut self, instance: &InstanceId, state: State) -> Option<&mut Instance> {
        let kept = self.kept.get_mut(instance)?;
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
        self.get_mut(instance)
    }

    fn note_place(&mut self, instance: &InstanceId, place: Option<NodeKey>) {
        if place.is_none() {
            self.nowhere.insert(instance.clone());
        } else {
            self.nowhere.remove(instance);
        }
    }

    /// No longer looks after one; its history is kept for a while.
    pub(crate) fn remove(&mut self, instance: &InstanceId) -> Option<Box<Instance>> {
        let mut kept = self.kept.swap_remove(instance)?;
        self.size.forget(&mut kept);
        self.nowhere.remove(instance);
        self.again.forget(instance);
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
        Some(kept)
    }

    /// What all take.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Those that are gone and remembered, and the bytes of what is said of them.
    pub(crate) fn past_size(&self) -> (usize, usize) {
        self.past.size()
    }

    /// Those that are to be tried again at some time.
    pub(crate) fn to_try_again(&self) -> usize {
        self.again.len()
    }

    /// Places in the table.
    pub(crate) fn capacity(&self) -> usize {
        self.kept.capacity() + self.lost.capacity()
    }

    /// When something is due next.
    pub(crate) fn due(&self) -> Option<Instant> {
        let due = self.due.first().map(|(due, _)| *due);
        due.into_iter().chain(self.again.first()).min()
    }

    /// Has the nodes that refused one asked again from this moment on, if it still waits then.
    pub(crate) fn ask_again(&mut self, instance: &InstanceId, at: Instant) {
        self.again.set(instance, at);
    }

    /// One whose nodes may be asked again.
    pub(crate) fn take_again(&mut self, now: Instant) -> Option<InstanceId> {
        self.again.take(now)
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
    pub(crate) fn insert(self, mut kept: Instance) {
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
    use crate::instance::AfterLoss;

    fn lost(until: Instant) -> Instance {
        let node = Uuid::from_u128(1);
        let then = AfterLoss::Restart;
        Instance::adopted(State::Lost { node, until, then }, node, 0, until)
    }

    /// Any moment will do.
    fn some_moment() -> Instant {
        let clock: fn() -> Instant = Instant::now;
        clock()
    }

    #[test]
    fn one_that_is_managed_has_no_vacant_place() {
        let (mut instances, now) = (Instances::default(), some_moment());
        let name = InstanceId::new("a");
        let place = instances.vacant(name.clone());
        place.expect("nobody has it").insert(lost(now));
        assert!(instances.vacant(name).is_none());
        assert!(instances.is_consistent());
    }

    #[test]
    fn what_is_due_comes_up_once_whatever_is_done_about_it_and_what_is_stale_does_not() {
        let (mut instances, now) = (Instances::default(), some_moment());
        let later = now + Duration::from_secs(1);
        for (name, due) in [("a", now), ("b", now)] {
            let place = instances.vacant(InstanceId::new(name));
            place.expect("nobody has it").insert(lost(due));
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
        instances.turn(&due[0], state);
        assert_eq!(instances.take_due(later), Some(due[0].clone()));
    }
}
