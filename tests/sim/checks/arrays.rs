//! Arrays: never too many elements run, each ends once, and what the array says is what they did.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{ArrayState, ArrayView, InstanceView, QueryKind};

use super::Check;
use crate::facts::Fact;
use crate::names;
use crate::world::World;

/// What a scheduler without a disk had taken in is gone once it crashes.
#[derive(Default)]
pub(super) struct Arrays {
    books: BTreeMap<u32, Book>,
    elements: BTreeMap<u32, Element>,
}

#[derive(Debug, Default)]
struct Book {
    /// Whether the scheduler that runs has said that all have ended, and nothing was to run once more since.
    has_ended: bool,
    /// Whether it was deleted, or an element was, or run once more: then what became of an element is not for the ends of
    /// processes alone to say.
    is_changed: bool,
    /// Whether a scheduler without a disk has crashed that had it: to the next its elements are instances like others.
    is_foreign: bool,
}

/// One element.
#[derive(Debug, Default)]
struct Element {
    /// How its latest process ended; `None` = it runs, or none has begun.
    end: Option<End>,
    /// Whether its launcher has ordered it again and it has not begun since: where it cannot, it is not known how it ended.
    is_respawned: bool,
    /// Whether it was given to a machine after its end, as one that was cut off before it was started again, and has not begun
    /// there: what became of that is not known.
    is_placed_again: bool,
}

#[derive(Debug, Clone, Copy)]
struct End {
    machine: usize,
    code: i32,
    by_itself: bool,
    is_over_time: bool,
    /// Whether the scheduler was told.
    is_known: bool,
}

impl Check for Arrays {
    fn name(&self) -> &'static str {
        "arrays are what their elements do"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match *fact {
            Fact::ArrayTold { array, ref view } => return self.told(array, view),
            Fact::ArrayStarted { array } => {
                let again = self.books.contains_key(&array);
                self.books.entry(array).or_default().is_changed |= again;
            }
            Fact::ArrayRerun { array } => {
                let book = self.books.entry(array).or_default();
                (book.has_ended, book.is_changed) = (false, true);
            }
            Fact::ArrayDeleted { array } => {
                self.books.entry(array).or_default().is_changed = true;
            }
            Fact::DeleteTaken { instance } => {
                if let Some((array, _)) = names::element_of(instance) {
                    self.books.entry(array).or_default().is_changed = true;
                }
            }
            Fact::SchedulerCrashed { is_durable } => {
                // It may have told an end that is not on disk.
                for book in self.books.values_mut() {
                    book.has_ended = false;
                }
                if !is_durable {
                    // What becomes of them is for the next that starts them to say.
                    let books = self.books.values_mut();
                    books.for_each(|book| (book.is_changed, book.is_foreign) = (true, true));
                }
            }
            Fact::Began { instance, .. } if names::element_of(instance).is_some() => {
                let element = self.elements.entry(instance).or_default();
                *element = Element::default();
            }
            Fact::Ended {
                instance,
                machine,
                code,
                by_itself,
                is_over_time,
                ..
            } if names::element_of(instance).is_some() => {
                self.elements.entry(instance).or_default().end = Some(End {
                    machine,
                    code,
                    by_itself,
                    is_over_time,
                    is_known: false,
                });
            }
            Fact::Respawned { instance, .. } if names::element_of(instance).is_some() => {
                self.elements.entry(instance).or_default().is_respawned = true;
            }
            Fact::Placed { instance, .. } => {
                if let Some(element) = self.elements.get_mut(&instance) {
                    element.is_placed_again = element.end.is_some();
                }
            }
            Fact::Gone { instance, machine } => {
                if let Some(element) = self.elements.get_mut(&instance)
                    && let Some(end) = &mut element.end
                {
                    end.is_known |= end.machine == machine;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn after_step(&mut self, world: &World) -> Result<(), String> {
        let mut run: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for instance in world.machines.iter().flat_map(|it| it.processes.keys()) {
            if let Some((array, index)) = names::element_of(*instance) {
                run.entry(array).or_default().insert(index);
            }
        }
        for (array, indexes) in run {
            if self.books.get(&array).is_some_and(|it| it.is_foreign) {
                continue;
            }
            let most = world.arrays.get(&array).and_then(|it| it.running_max);
            if most.is_some_and(|most| indexes.len() > most as usize) {
                return Err(format!(
                    "{indexes:?} of array {array} run, of which {most:?} may"
                ));
            }
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let rows = world.ask(&QueryKind::Instances).instances;
        // What a liar lists is an instance of another's, whatever it is called.
        let is_of_liar = |row: &&InstanceView| {
            !row.node_uuid.is_empty() && names::machine_of(&row.node_uuid).is_none()
        };
        let live: BTreeSet<u32> = rows
            .iter()
            .filter(|row| !is_of_liar(row))
            .filter_map(|row| names::instance_of(&row.instance_uuid))
            .collect();
        for view in world.ask(&QueryKind::Arrays).arrays {
            if let Some(array) = names::array_of(&view.array_uuid) {
                self.is_as_told((array, &view), &live, world)?;
            }
        }
        Ok(())
    }
}

impl Arrays {
    fn told(&mut self, array: u32, view: &ArrayView) -> Result<(), String> {
        let book = self.books.entry(array).or_default();
        let counted = view.waiting + view.queued + view.running + view.ended();
        if counted != view.elements {
            return Err(format!("{counted} elements in array {array}: {view:?}"));
        }
        let open = view.waiting + view.queued + view.running;
        let has_ended = view.state == ArrayState::Ended;
        if has_ended != (open == 0) {
            return Err(format!("array {array} has ended, or not: {view:?}"));
        }
        book.has_ended |= has_ended;
        Ok(())
    }

    /// Whether the counts of an array are what became of its elements.
    fn is_as_told(
        &mut self,
        (array, view): (u32, &ArrayView),
        live: &BTreeSet<u32>,
        world: &World,
    ) -> Result<(), String> {
        self.told(array, view)?;
        let of_it = |it: &u32| names::element_of(*it).is_some_and(|it| it.0 == array);
        let living = live.iter().filter(|it| of_it(it)).count() as u64;
        let is_foreign = self.books.get(&array).is_some_and(|it| it.is_foreign);
        if view.queued + view.running != living && !is_foreign {
            return Err(format!("{living} elements of array {array} live: {view:?}"));
        }
        let is_changed = self.books.entry(array).or_default().is_changed;
        let is_open = |(it, element): (&u32, &Element)| {
            of_it(it) && (element.is_respawned || element.is_placed_again)
        };
        // One whose time is over while it waits to be started again has ended for that, whatever its processes did.
        let scheduling = world
            .arrays
            .get(&array)
            .and_then(|it| it.start.scheduling.as_ref());
        let may_end_waiting =
            scheduling.is_some_and(|it| it.time_limit.is_some() && it.restart.is_some());
        if is_changed || may_end_waiting || self.elements.iter().any(is_open) {
            return Ok(());
        }
        let elements = self.elements.iter();
        let ends: Vec<(u32, End)> = elements
            .filter(|(it, _)| of_it(it) && !live.contains(it))
            .filter_map(|(it, element)| Some((*it, element.end?)))
            .collect();
        // What ended as it was asked to, and was not placed again, has some exit status all the same.
        let own = ends
            .iter()
            .filter(|(_, end)| end.by_itself || end.is_over_time);
        let open = (ends.len() - own.clone().count()) as u64;
        let has_success = |end: &End| end.code == 0 && !end.is_over_time;
        let succeeded = own.clone().filter(|(_, end)| has_success(end)).count() as u64;
        let failed = own.filter(|(_, end)| !has_success(end)).count() as u64;
        let is_right = |said: u64, did: u64| (did..=did + open).contains(&said);
        if !is_right(view.succeeded, succeeded) || !is_right(view.failed, failed) {
            return Err(format!(
                "{succeeded} of array {array} have succeeded and {failed} failed: {view:?}, {ends:?}"
            ));
        }
        Ok(())
    }
}
