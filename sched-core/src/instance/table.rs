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

use super::lifecycle::check;
use super::names::{InstanceInfo, KnownInfo, Names};
use super::outputs::{Output, Outputs};
use super::past::{Past, Run};
use super::size::Size;
use super::{Effects, HistoryEvent, Instance, LifecycleEvent, State};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::phase::{EventKind, IllegalTransition, Phase};
use crate::api::rules::TenantId;
use crate::cluster::query::Query;
use crate::maps::Map;

/// All instances that are managed.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    /// Boxed: an instance is large, and the table's places are moved when it grows.
    managed: Map<InstanceId, Box<Instance>>,
    /// The deadline of each state that has one, the earliest first.
    due: BTreeSet<(Instant, InstanceId)>,
    /// Those on no node, in order of identifiers: the order in which queries page through them.
    nowhere: BTreeSet<InstanceId>,
    /// Those whose node is lost, by node: asked when a node comes back.
    lost: IndexMap<Uuid, IndexSet<InstanceId>>,
    /// What became of those that are gone, oldest first.
    past: Past,
    /// Where nodes keep the output of runs.
    outputs: Outputs,
    /// Names, programs and start times of instances, managed or not.
    names: Names,
    /// Bytes that managed instances take, for the limit on new ones.
    size: Size,
    /// Counts the transitions of all instances. One counter for all, so that an epoch of an instance that is gone is
    /// none of a later instance with the same identifier.
    epochs: u64,
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
        let instance = self.nowhere.range((from, Bound::Unbounded)).next()?;
        Some((instance, self.get(instance)?))
    }

    /// The vacant place of an instance that is not managed yet; `None` if it is. There is no other way to add one, so
    /// none is ever added over another, whose state and deadlines would be lost while a node still has it.
    pub(crate) fn vacant(&mut self, instance: InstanceId) -> Option<Vacant<'_>> {
        let Self {
            managed,
            due,
            nowhere,
            lost,
            size,
            epochs,
            ..
        } = self;
        let Entry::Vacant(place) = managed.entry(instance) else {
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

    /// Moves an instance in the index by lost node.
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

    /// How many are lost with a node.
    pub(crate) fn lost_count(&self, node: Uuid) -> usize {
        self.lost.get(&node).map_or(0, IndexSet::len)
    }

    /// Instances whose state says that they are lost with this node. The node itself may be back already, as long as
    /// its STATS has not come.
    pub(crate) fn lost_with(&self, node: Uuid) -> Vec<InstanceId> {
        let lost = self.lost.get(&node).into_iter().flatten();
        lost.cloned().collect()
    }

    /// Checks that an event may happen to an instance now. A workflow that does more than the transition asks this
    /// first, so that nothing is done where the event is refused. For an instance that is not managed the answer is
    /// yes, because [`Instances::on`] then does nothing.
    ///
    /// # Errors
    /// The event and the phase that does not have it.
    pub(crate) fn may(
        &self,
        instance: &InstanceId,
        event: EventKind,
    ) -> Result<(), IllegalTransition> {
        match self.get(instance) {
            Some(managed) => check(instance, managed.state.phase(), event),
            None => Ok(()),
        }
    }

    /// Applies an event to an instance: the only way to change its state. Returns what follows for others, or `None` if
    /// it is not managed. Logarithmic in the number of instances with a deadline.
    ///
    /// # Errors
    /// The lifecycle does not have the event in this phase; nothing has been changed.
    pub(crate) fn on(
        &mut self,
        instance: &InstanceId,
        event: LifecycleEvent,
    ) -> Result<Option<Effects>, IllegalTransition> {
        let Some(managed) = self.managed.get_mut(instance) else {
            return Ok(None);
        };
        let (phase, kind) = (managed.state.phase(), event.kind());
        let refused = || IllegalTransition {
            instance: instance.clone(),
            phase,
            event: kind,
        };
        let state = managed.state.on(event).ok_or_else(refused)?;
        let effects = Effects::of(&managed.state, &state);
        let (before, after) = (managed.state.due(), state.due());
        let (place, is_moved) = (
            state.node(),
            managed.state.node().is_some() != state.node().is_some(),
        );
        let nodes = (lost_node(&managed.state), lost_node(&state));
        // The state first, then the indexes that follow from it.
        managed.state = state;
        self.epochs += 1;
        managed.epoch = self.epochs;
        self.size.count(managed);
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
        Ok(Some(effects))
    }

    /// Adds an instance to those on no node, or takes it out.
    fn note_place(&mut self, instance: &InstanceId, place: Option<NodeKey>) {
        if place.is_none() {
            self.nowhere.insert(instance.clone());
        } else {
            self.nowhere.remove(instance);
        }
    }

    /// No longer manages an instance. Its history, with this last event, becomes a run that is over. Does nothing if it
    /// is not managed.
    ///
    /// # Errors
    /// The lifecycle may not end in this phase; it is still managed.
    pub(crate) fn remove(
        &mut self,
        instance: &InstanceId,
        last: HistoryEvent,
    ) -> Result<(), IllegalTransition> {
        self.may(instance, LifecycleEvent::Ended.kind())?;
        let Some(mut managed) = self.managed.swap_remove(instance) else {
            return Ok(());
        };
        let at = last.at;
        managed.note(last);
        self.size.forget(&mut managed);
        self.nowhere.remove(instance);
        if let Some(due) = managed.state.due() {
            self.due.remove(&(due, instance.clone()));
        }
        self.note_lost(instance, lost_node(&managed.state), None);
        let history = std::mem::take(&mut managed.history);
        let numbers = std::mem::take(&mut managed.runs);
        let run = Run::managed(instance.clone(), numbers, at, history);
        self.note_run(run);
        // A burst of instances does not hold its memory for good; below this it is not worth the copy.
        const SHRINK_ABOVE: usize = 4096;
        if self.managed.capacity() > SHRINK_ABOVE
            && self.managed.len() < self.managed.capacity() / 4
        {
            self.managed.shrink_to(2 * self.managed.len());
        }
        Ok(())
    }

    /// What all managed instances take.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// The number of remembered runs, and the bytes that they take.
    pub(crate) fn past_size(&self) -> (usize, usize) {
        self.past.size()
    }

    /// Allocated places, for [`crate::Footprint`].
    pub(crate) fn capacity(&self) -> usize {
        self.managed.capacity() + self.lost.capacity()
    }

    /// The earliest deadline of any state.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes one instance whose deadline is over. Each deadline is returned once, whatever the caller does about it:
    /// one that cannot be dealt with is not returned again and again while others wait. Entries that are no longer the
    /// state's deadline are skipped.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<InstanceId> {
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            let (due, instance) = self.due.pop_first()?;
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
        self.past.of(instance).chain(now)
    }

    /// The latest run of an instance that is over and remembered.
    pub(crate) fn last_run_of(&self, instance: &InstanceId) -> Option<&Run> {
        self.past.last_of(instance)
    }

    /// Whether a run that is over is the latest one of its instance that is remembered.
    pub(crate) fn is_last_run(&self, run: &Run) -> bool {
        self.past.is_last(run)
    }

    /// Changes the latest run of an instance if `wants` says so; whether it does.
    pub(crate) fn amend_last_run(
        &mut self,
        instance: &InstanceId,
        wants: impl FnOnce(&Run) -> bool,
        change: impl FnOnce(&mut Run),
    ) -> bool {
        self.past.amend_last(instance, wants, change)
    }

    /// The number of the latest run of an instance that is over and remembered.
    pub(crate) fn number_of_last_run(&self, instance: &InstanceId) -> Option<u64> {
        self.past.number_of_last(instance)
    }

    /// Changes a run by its number, if it is remembered.
    pub(crate) fn amend_numbered_run(&mut self, number: u64, change: impl FnOnce(&mut Run)) {
        self.past.amend_numbered(number, change);
    }

    /// Has the failure that a run tells of, which no controller was sent yet, sent to the next one.
    pub(crate) fn send_failure_later(&mut self, number: u64) {
        self.past.send_later(number);
    }

    /// The numbers of runs whose failure is to be sent to the next controller, oldest first.
    pub(crate) fn failures_to_send(&self) -> impl Iterator<Item = u64> {
        self.past.to_send()
    }

    /// Notes a run that is over, with what its instance is called and runs.
    pub(crate) fn note_run(&mut self, run: Run) {
        let run = self.with_its_name(run);
        self.past.note(run);
    }

    /// A run with what is known of its instance now: that is forgotten before the run is.
    fn with_its_name(&self, run: Run) -> Run {
        match self.names.get(run.instance()) {
            Some(about) => run.known_as(about),
            None => run,
        }
    }

    /// Takes in a run from before a restart, under the number it had.
    pub(crate) fn restore_run(&mut self, number: u64, run: Run) {
        self.past.restore(number, run);
    }

    /// All runs from before a restart are taken in: no end since `since` is missing but those that were forgotten.
    pub(crate) fn begin_history(&mut self, since: Instant, now: Instant) {
        self.past.begin(since, now);
    }

    /// Ends before this moment were told to another scheduler.
    pub(crate) fn note_gap(&mut self, until: Instant) {
        self.past.note_gap(until);
    }

    /// Every end after this moment is remembered; `None` where that is not known.
    pub(crate) fn history_complete_since(&self) -> Option<Instant> {
        self.past.complete_since()
    }

    /// The number of the latest run that is over. A caller notes it before an end is dealt with, to find with
    /// [`Instances::amend_run`] the run that the end has made.
    pub(crate) fn last_run(&self) -> u64 {
        self.past.last()
    }

    /// Changes the latest run of an instance, if that run has a higher number than `number`; whether there is one.
    pub(crate) fn amend_run(
        &mut self,
        number: u64,
        instance: &InstanceId,
        change: impl FnOnce(&mut Run),
    ) -> bool {
        self.past.amend(number, instance, change)
    }

    /// Notes what an instance is called, what it runs or since when.
    pub(crate) fn note_about(&mut self, instance: &InstanceId, about: InstanceInfo) {
        self.names.note(instance, about);
    }

    /// Name, program and start time of an instance, whether or not it still exists.
    pub(crate) fn about(&self, instance: &InstanceId) -> Option<KnownInfo<'_>> {
        self.names.get(instance)
    }

    /// Instances, living or not, that are called as members of a set are. Walks over all names.
    pub(crate) fn named_like_set(&self, set: &str) -> impl Iterator<Item = &InstanceId> {
        self.names.named_like_set(set)
    }

    /// The instance of a tenant that had this name last. It may be gone: the caller has to check.
    pub(crate) fn called(&self, tenant: &Option<TenantId>, name: &str) -> Option<&InstanceId> {
        self.names.instance_named(tenant, name)
    }

    /// Whether it is time to drop the names of instances that are gone.
    pub(crate) fn has_old_names(&self) -> bool {
        self.names.is_to_prune()
    }

    /// Drops the names of instances that are gone: neither managed here nor placed, as `is_placed` says.
    pub(crate) fn forget_old_names(&mut self, is_placed: impl Fn(&InstanceId) -> bool) {
        let managed = &self.managed;
        self.names
            .prune(|instance| managed.contains_key(instance) || is_placed(instance));
    }

    /// Instances of which it is known what they are.
    pub(crate) fn named_count(&self) -> usize {
        self.names.len()
    }

    /// Whether the run of an instance is known that ended on a node by this number.
    pub(crate) fn knows_run(&self, instance: &InstanceId, node: Uuid, end: u64) -> bool {
        self.past.knows(instance, node, end)
    }

    /// Whether the latest run of an instance ended on this node, by that node's own word.
    pub(crate) fn has_ended_on(&self, instance: &InstanceId, node: Uuid) -> bool {
        self.past.has_ended_on(instance, node)
    }

    /// The same of a run that ended at this moment or later.
    pub(crate) fn has_ended_on_since(
        &self,
        instance: &InstanceId,
        node: Uuid,
        since: Instant,
    ) -> bool {
        let last = self.past.last_of(instance);
        last.is_some_and(|run| run.ended() >= since) && self.has_ended_on(instance, node)
    }

    /// Notes a run that only its node remembered, if there is room beside those known here.
    pub(crate) fn learn_run(&mut self, now: Instant, run: Run) {
        let run = self.with_its_name(run);
        self.past.learn(now, run);
    }

    /// Notes where a node keeps the output of a run, or that it does so no longer.
    pub(crate) fn note_output(&mut self, output: Output) {
        self.outputs.note(output);
    }

    /// Drops what a node was known to keep, because it is about to report all of it again.
    pub(crate) fn forget_outputs(&mut self, node: Uuid) {
        self.outputs.forget(node);
    }

    /// What nodes keep of an instance's runs.
    pub(crate) fn outputs(&self, instance: &InstanceId) -> impl Iterator<Item = &Output> {
        self.outputs.of(instance)
    }

    /// The runs of which nodes keep something.
    pub(crate) fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// One run that is over.
    pub(crate) fn run(&self, number: u64) -> Option<&Run> {
        self.past.get(number)
    }

    /// How many runs were forgotten so far.
    pub(crate) fn runs_forgotten(&self) -> u64 {
        self.past.forgotten()
    }

    /// Runs of one instance that are over, after the one with this number, oldest first.
    pub(crate) fn runs_of_after(&self, instance: &InstanceId, number: u64) -> Vec<(u64, &Run)> {
        self.past.runs_of_after(instance, number)
    }

    /// Runs that are over, after the one with this number, oldest first.
    pub(crate) fn runs_after(&self, number: u64) -> impl Iterator<Item = (u64, &Run)> {
        self.past.iter_after(number)
    }

    /// Takes the number of a run whose record has to be written again; in no particular order, and perhaps one twice.
    pub(crate) fn next_changed_run(&mut self) -> Option<u64> {
        self.past.next_changed()
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
        let of = |(instance, managed): (&InstanceId, &Instance)| {
            Some((managed.state.due()?, instance.clone()))
        };
        let due: BTreeSet<_> = self.iter().filter_map(of).collect();
        let nowhere = self
            .managed
            .iter()
            .filter(|(_, managed)| managed.node().is_none());
        let nowhere: BTreeSet<_> = nowhere.map(|(instance, _)| instance.clone()).collect();
        let lost = |(instance, managed): (&InstanceId, &Instance)| {
            let node = lost_node(&managed.state)?;
            Some((node, instance.clone()))
        };
        let lost: BTreeSet<_> = self.iter().filter_map(lost).collect();
        let listed = self.lost.iter();
        let listed = listed.flat_map(|(&node, all)| all.iter().map(move |it| (node, it.clone())));
        let counted: usize = self.iter().map(|(_, managed)| managed.counted).sum();
        counted == self.size.all()
            && due == self.due
            && nowhere == self.nowhere
            && lost == listed.collect()
    }
}

/// The place of an instance that is not managed, with the parts of the table that its first state goes into.
pub(crate) struct Vacant<'a> {
    place: VacantEntry<'a, InstanceId, Box<Instance>>,
    due: &'a mut BTreeSet<(Instant, InstanceId)>,
    nowhere: &'a mut BTreeSet<InstanceId>,
    lost: &'a mut IndexMap<Uuid, IndexSet<InstanceId>>,
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
            event: event.kind(),
        };
        managed.state = State::first(event).ok_or(refused)?;
        *self.epochs += 1;
        managed.epoch = *self.epochs;
        self.size.count(&mut managed);
        let instance = self.place.key();
        if managed.state.node().is_none() {
            self.nowhere.insert(instance.clone());
        }
        if let Some(due) = managed.state.due() {
            self.due.insert((due, instance.clone()));
        }
        if let Some(node) = lost_node(&managed.state) {
            let lost = self.lost.entry(node).or_default();
            lost.insert(instance.clone());
        }
        self.place.insert(Box::new(managed));
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
mod tests;
