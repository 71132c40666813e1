//! The table of all managed instances, with its indexes: by deadline, by lost node, and those on no node. The indexes
//! follow from the states, so nothing but [`Instances::on`], [`Vacant::insert`] and [`Instances::remove`] may change a
//! state; [`Instances::is_consistent`] recomputes them.
//!
//! Beside them it holds what is known of instances whether managed or not: runs that are over (`past`), outputs that
//! nodes keep (`outputs`), names (`names`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Instant;

use indexmap::map::{Entry, VacantEntry};
use indexmap::{IndexMap, IndexSet};
use sched_model::Uuid;

use super::names::Names;
use super::outputs::Outputs;
use super::past::{Past, Run};
use super::size::Size;
use super::{Effects, HistoryEvent, Instance, LifecycleEvent, State};
use crate::api::ids::InstanceId;
use crate::api::phase::{IllegalTransition, Phase};
use crate::cluster::query::Query;
use crate::maps::{Map, change_or_drop};

/// All instances that are managed.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    /// Boxed: an instance is large, and the table's places are moved when it grows.
    pub(super) managed: Map<InstanceId, Box<Instance>>,
    indexes: Indexes,
    /// What became of those that are gone, oldest first.
    pub(super) past: Past,
    /// Where nodes keep the output of runs.
    pub(super) outputs: Outputs,
    /// Names, programs and start times of instances, managed or not.
    pub(super) names: Names,
    /// Bytes that managed instances take, for the limit on new ones.
    size: Size,
    /// Counts the transitions of all instances. One counter for all, so that an epoch of an instance that is gone is
    /// none of a later instance with the same identifier.
    epochs: u64,
}

/// Managed instances by what their states say.
#[derive(Debug, Default, PartialEq)]
struct Indexes {
    /// The deadline of each state that has one, the earliest first.
    due: BTreeSet<(Instant, InstanceId)>,
    /// Those on no node, in order of identifiers: the order in which queries page through them.
    nowhere: BTreeSet<InstanceId>,
    /// Those whose node is lost, by node: asked when a node comes back.
    lost: IndexMap<Uuid, IndexSet<InstanceId>>,
}

/// Where in the indexes a state is; by default nowhere, as an instance that is not managed.
#[derive(Debug, Clone, Copy, Default)]
struct Indexed {
    due: Option<Instant>,
    is_nowhere: bool,
    lost: Option<Uuid>,
}

impl Indexed {
    fn of(state: &State) -> Self {
        Self {
            due: state.due(),
            is_nowhere: state.node().is_none(),
            lost: match state {
                State::Lost { node, .. } => Some(*node),
                _ => None,
            },
        }
    }
}

impl Indexes {
    /// Moves an instance.
    fn move_in(&mut self, instance: &InstanceId, from: Indexed, to: Indexed) {
        if let Some(due) = from.due {
            self.due.remove(&(due, instance.clone()));
        }
        if let Some(due) = to.due {
            // Also where it is the same moment: it may have been taken ([`Instances::take_due`]).
            self.due.insert((due, instance.clone()));
        }
        match (from.is_nowhere, to.is_nowhere) {
            (false, true) => _ = self.nowhere.insert(instance.clone()),
            (true, false) => _ = self.nowhere.remove(instance),
            _ => {}
        }
        if from.lost == to.lost {
            return;
        }
        if let Some(node) = from.lost {
            change_or_drop(&mut self.lost, &node, |instances| {
                instances.swap_remove(instance);
                !instances.is_empty()
            });
        }
        if let Some(node) = to.lost {
            self.lost.entry(node).or_default().insert(instance.clone());
        }
    }
}

impl Instances {
    /// Whether none is managed.
    pub(crate) fn is_empty(&self) -> bool {
        self.managed.is_empty()
    }

    /// Whether this one is managed.
    pub(crate) fn contains(&self, instance: &InstanceId) -> bool {
        !self.managed.is_empty() && self.managed.contains_key(instance)
    }

    /// One that is managed.
    pub(crate) fn get(&self, instance: &InstanceId) -> Option<&Instance> {
        if self.managed.is_empty() {
            return None;
        }
        self.managed.get(instance).map(|managed| &**managed)
    }

    /// The search for an instance as its START asks, without the nodes that could not start it and restricted to the
    /// node it is pinned to. `None` without its START.
    pub(crate) fn query_of(&self, instance: &InstanceId) -> Option<Query> {
        let managed = self.get(instance)?;
        let tried = managed.tried().iter().map(|tried| tried.node);
        let query = Query::of(managed.request()?).avoiding(tried);
        Some(query.pinned(managed.pinned()))
    }

    /// A managed instance, to be changed in all but its state.
    pub(crate) fn get_mut(&mut self, instance: &InstanceId) -> Option<&mut Instance> {
        self.managed.get_mut(instance).map(|managed| &mut **managed)
    }

    /// All of them. The order depends on earlier removals: it is the same in each run with the same inputs, but says
    /// nothing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        self.managed
            .iter()
            .map(|(instance, managed)| (instance, &**managed))
    }

    /// The first on no node behind `after` in order of identifiers: one step of a query's walk, which may go on in a
    /// later input.
    pub(crate) fn next_nowhere(
        &self,
        after: Option<&InstanceId>,
    ) -> Option<(&InstanceId, &Instance)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let instance = self
            .indexes
            .nowhere
            .range((from, Bound::Unbounded))
            .next()?;
        Some((instance, self.get(instance)?))
    }

    /// The vacant place of an instance that is not managed yet; `None` if it is. There is no other way to add one, so
    /// none is ever added over another, whose state and deadlines would be lost while a node still has it.
    pub(crate) fn vacant(&mut self, instance: InstanceId) -> Option<Vacant<'_>> {
        let Entry::Vacant(place) = self.managed.entry(instance) else {
            return None;
        };
        Some(Vacant {
            place,
            indexes: &mut self.indexes,
            size: &mut self.size,
            epochs: &mut self.epochs,
        })
    }

    /// How many are lost with a node.
    pub(crate) fn lost_count(&self, node: Uuid) -> usize {
        self.indexes.lost.get(&node).map_or(0, IndexSet::len)
    }

    /// Instances whose state says that they are lost with this node. The node itself may be back already, as long as
    /// its STATS has not come.
    pub(crate) fn lost_with(&self, node: Uuid) -> Vec<InstanceId> {
        let lost = self.indexes.lost.get(&node).into_iter().flatten();
        lost.cloned().collect()
    }

    /// The state that an event leads an instance to, and what follows for others; `None` if it is not managed.
    ///
    /// # Errors
    /// The lifecycle does not have the event in this phase.
    pub(crate) fn next(
        &self,
        instance: &InstanceId,
        event: LifecycleEvent,
    ) -> Result<Option<(State, Effects)>, IllegalTransition> {
        let Some(managed) = self.get(instance) else {
            return Ok(None);
        };
        let name = event.name();
        let refused = || IllegalTransition {
            instance: instance.clone(),
            phase: managed.state.phase(),
            event: name,
        };
        managed.state.on(event).map(Some).ok_or_else(refused)
    }

    /// An instance enters the state that [`Instances::next`] gave: the only way to change it. Does nothing if it is not
    /// managed. Logarithmic in the number of instances with a deadline.
    pub(crate) fn enter(&mut self, instance: &InstanceId, state: State) {
        let Some(managed) = self.managed.get_mut(instance) else {
            return;
        };
        let (from, to) = (Indexed::of(&managed.state), Indexed::of(&state));
        // The state first, then the indexes that follow from it.
        managed.state = state;
        self.epochs += 1;
        managed.epoch = self.epochs;
        self.size.count(managed);
        self.indexes.move_in(instance, from, to);
    }

    /// No longer manages an instance, in whatever phase it is. Its history, with this last event, becomes a run that is
    /// over. Does nothing if it is not managed.
    pub(crate) fn remove(&mut self, instance: &InstanceId, last: HistoryEvent) {
        let Some(mut managed) = self.managed.swap_remove(instance) else {
            return;
        };
        let at = last.at;
        managed.note(last);
        self.size.forget(&mut managed);
        let from = Indexed::of(&managed.state);
        self.indexes.move_in(instance, from, Indexed::default());
        let history = std::mem::take(&mut managed.history);
        let numbers = std::mem::take(&mut managed.runs);
        let index = managed.element().map(|element| element.index);
        let run = Run::managed(instance.clone(), numbers, at, history).of_element(index);
        self.note_run(run);
        // A burst of instances does not hold its memory for good; below this it is not worth the copy.
        const SHRINK_ABOVE: usize = 4096;
        if self.managed.capacity() > SHRINK_ABOVE
            && self.managed.len() < self.managed.capacity() / 4
        {
            self.managed.shrink_to(2 * self.managed.len());
        }
    }

    /// What all managed instances take.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Allocated places, for [`crate::Footprint`].
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn capacity(&self) -> usize {
        self.managed.capacity() + self.indexes.lost.capacity()
    }

    /// The earliest deadline of any state.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.indexes.due.first().map(|(due, _)| *due)
    }

    /// Takes one instance whose deadline is over. Each deadline is returned once, whatever the caller does about it:
    /// one that cannot be dealt with is not returned again and again while others wait. Entries that are no longer the
    /// state's deadline are skipped.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<InstanceId> {
        while self.indexes.due.first().is_some_and(|(due, _)| *due <= now) {
            let (due, instance) = self.indexes.due.pop_first()?;
            if self.get(&instance).and_then(|managed| managed.state.due()) == Some(due) {
                return Some(instance);
            }
        }
        None
    }

    /// The events of all remembered runs of an instance, the earliest first, then those of the present one. With the
    /// last event of each run that is over comes that run, which says how it ended.
    pub(crate) fn history(
        &self,
        instance: &InstanceId,
    ) -> impl Iterator<Item = (Cow<'_, HistoryEvent>, Option<&Run>)> {
        let now = self.managed.get(instance).into_iter();
        let now = now.flat_map(|managed| managed.history.iter());
        let now = now.map(|event| (Cow::Borrowed(event), None));
        self.past_events(instance).chain(now)
    }

    /// Puts an instance into a state without any check, to test what is refused in it. The indexes are left wrong.
    #[cfg(test)]
    pub(crate) fn force(&mut self, instance: &InstanceId, state: State) {
        if let Some(managed) = self.managed.get_mut(instance) {
            managed.state = state;
        }
    }

    /// Whether all indexes and the counted bytes are what the states say; asked by `Scheduler::invariants` in tests.
    pub(crate) fn is_consistent(&self) -> bool {
        let (mut indexes, mut counted) = (Indexes::default(), 0);
        for (instance, managed) in self.iter() {
            indexes.move_in(instance, Indexed::default(), Indexed::of(&managed.state));
            counted += managed.counted;
        }
        counted == self.size.all() && indexes == self.indexes
    }
}

/// The place of an instance that is not managed, with the parts of the table that change with it.
pub(crate) struct Vacant<'a> {
    place: VacantEntry<'a, InstanceId, Box<Instance>>,
    indexes: &'a mut Indexes,
    size: &'a mut Size,
    epochs: &'a mut u64,
}

impl Vacant<'_> {
    /// Manages it from now on, because of this event.
    ///
    /// # Errors
    /// No lifecycle begins with that event; it is not managed.
    pub(crate) fn insert(
        self,
        event: LifecycleEvent,
        mut managed: Instance,
    ) -> Result<(), IllegalTransition> {
        let refused = IllegalTransition {
            instance: self.place.key().clone(),
            phase: Phase::New,
            event: event.name(),
        };
        managed.state = State::first(event).ok_or(refused)?;
        *self.epochs += 1;
        managed.epoch = *self.epochs;
        self.size.count(&mut managed);
        let instance = self.place.key();
        let to = Indexed::of(&managed.state);
        self.indexes.move_in(instance, Indexed::default(), to);
        self.place.insert(Box::new(managed));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
