//! What comes after others is placed once these have ended as it asks, fails once that cannot come any more, and does not
//! wait for ever.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{AfterEnd, PhaseName, QueryKind};

use super::Check;
use crate::facts::Fact;
use crate::names;
use crate::observer::is_after_others;
use crate::world::World;

/// What an instance comes after counts once it has ended as asked, since its START came: that it is started again then
/// changes nothing. Of an instance that ends as a command asks, or with its machine, it is left open what that comes to: it
/// has no success.
#[derive(Default)]
pub(super) struct After {
    books: BTreeMap<u32, Book>,
    /// Those that were placed, or waited for room, since their START was taken in: they come after no one any more.
    placed: BTreeSet<u32>,
    /// Those that have failed since their START was taken in: a failure that was not told is told again to others, when what
    /// they came after may have ended.
    failed: BTreeSet<u32>,
    /// Facts seen so far.
    seen: u64,
    /// After how many facts the START of an instance came that does not live.
    since: BTreeMap<u32, u64>,
    /// Whether a scheduler without a disk has crashed, which knew what others had come to.
    has_forgotten: bool,
}

/// What another may wait for.
#[derive(Debug, Default)]
struct Book {
    /// Whether it has ended with success, since it began last; `None` = it has not ended.
    is_ok: Option<bool>,
    /// Whether the scheduler has heard of that.
    is_known: bool,
    /// How the scheduler says it is, as long as it manages it.
    state: Option<PhaseName>,
    /// Whether a START or a DELETE of it came since it began last, or it ended with its machine: what it came to is open.
    is_open: bool,
    machine: usize,
    /// After how many facts it had last ended with success, without success, in any way.
    met: [u64; ENDS.len()],
}

const ENDS: [AfterEnd; 3] = [AfterEnd::Ok, AfterEnd::Failed, AfterEnd::Any];

impl Book {
    /// Whether it has ended so, as far as anybody can say, and is not to begin again.
    fn has_ended(&self, end: &AfterEnd) -> bool {
        let is_as_asked = match end {
            AfterEnd::Ok | AfterEnd::Other(_) => self.is_ok == Some(true),
            AfterEnd::Failed => self.is_ok == Some(false),
            AfterEnd::Any => self.is_ok.is_some(),
        };
        (is_as_asked || self.is_open) && self.state.is_none()
    }
}

impl Check for After {
    fn name(&self) -> &'static str {
        "what comes after others is placed when these have ended as it asks"
    }

    fn see(&mut self, fact: &Fact, world: &World) -> Result<(), String> {
        self.note_ends(fact);
        match *fact {
            Fact::Taken { instance, .. } => self.taken(instance),
            Fact::DeleteTaken { instance } => self.book(instance).is_open = true,
            Fact::ArrayStarted { array }
            | Fact::ArrayRerun { array }
            | Fact::ArrayDeleted { array } => self.array_changes(array),
            Fact::Began { instance, machine } => {
                let book = self.book(instance);
                (book.is_ok, book.is_known, book.is_open) = (None, false, false);
                book.machine = machine;
            }
            Fact::Ended {
                instance,
                machine,
                code,
                by_itself,
                is_over_time,
                ..
            } => {
                // One whose time is over while it waits to be started again has ended for that.
                let asked = world.scheduling_of(instance);
                let may_end_waiting =
                    asked.is_some_and(|it| it.time_limit.is_some() && it.restart.is_some());
                let book = self.book(instance);
                if book.machine == machine {
                    book.is_ok = Some(code == 0 && by_itself && !is_over_time);
                    book.is_known = false;
                    book.is_open |= !by_itself || may_end_waiting;
                }
            }
            // Where it cannot be started again, or its time is over before, it has ended for that.
            Fact::Respawned { instance, .. } => {
                let book = self.book(instance);
                (book.is_ok, book.is_open) = (None, true);
            }
            Fact::Gone { instance, machine } => {
                let book = self.book(instance);
                book.is_known |= book.machine == machine;
            }
            Fact::Failed { instance, .. } => {
                let book = self.book(instance);
                (book.is_ok, book.is_known, book.is_open) = (Some(false), true, true);
            }
            Fact::Turned {
                instance,
                ref state,
            } => self.book(instance).state = Some(state.clone()).filter(|it| !is_gone(it)),
            Fact::SchedulerCrashed { is_durable } => {
                self.has_forgotten |= !is_durable;
                for book in self.books.values_mut() {
                    (book.state, book.is_known) = (None, false);
                }
            }
            // From then on it waits for nothing else, whatever becomes of these.
            Fact::Queued {
                instance,
                is_after: false,
            }
            | Fact::Placed { instance, .. }
                if self.placed.insert(instance) =>
            {
                return self.is_placed(instance, world);
            }
            Fact::DependencyFailed {
                instance,
                ref detail,
            } if self.failed.insert(instance) => return self.fails(instance, detail, world),
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let queue = world.ask(&QueryKind::Queue).instances;
        let live = world.ask(&QueryKind::Instances).instances;
        let live: BTreeSet<&String> = live.iter().map(|it| &it.instance_uuid).collect();
        for row in &queue {
            let Some(instance) = names::instance_of(&row.instance_uuid) else {
                continue;
            };
            let others = others(instance, world);
            let waits = is_after_others(&row.waits_for);
            let lives = others.iter().any(|(other, _)| live.contains(other));
            if waits && !lives {
                return Err(format!("{instance} waits for {others:?}: {row:?}"));
            }
        }
        Ok(())
    }
}

fn is_gone(state: &PhaseName) -> bool {
    *state == PhaseName::Gone
}

/// What an instance comes after.
fn others(instance: u32, world: &World) -> Vec<(String, AfterEnd)> {
    let scheduling = world.scheduling_of(instance);
    let after = scheduling.map_or(&[][..], |it| &it.after);
    let pairs = after.iter().map(|it| (it.instance.clone(), it.end.clone()));
    pairs.collect()
}

impl After {
    fn book(&mut self, instance: u32) -> &mut Book {
        self.books.entry(instance).or_default()
    }

    /// A START of it is taken in: one that does not live comes after others once more.
    fn taken(&mut self, instance: u32) {
        let seen = self.seen;
        self.failed.remove(&instance);
        let book = self.book(instance);
        book.is_open = true;
        if book.state.is_none() {
            self.placed.remove(&instance);
            self.since.insert(instance, seen);
        }
    }

    /// Before something happens to an instance: how it has ended until then.
    fn note_ends(&mut self, fact: &Fact) {
        self.seen += 1;
        let seen = self.seen;
        let (Fact::Taken { instance, .. }
        | Fact::Began { instance, .. }
        | Fact::Respawned { instance, .. }
        | Fact::Ended { instance, .. }
        | Fact::Failed { instance, .. }
        | Fact::Turned { instance, .. }) = *fact
        else {
            return;
        };
        let book = self.book(instance);
        for (at, end) in ENDS.iter().enumerate() {
            if book.has_ended(end) {
                book.met[at] = seen;
            }
        }
    }

    /// An array is started, run once more or deleted: what its elements came to is open, and those that live stay what they
    /// are.
    fn array_changes(&mut self, array: u32) {
        let of_it = |it: &u32| names::element_of(*it).is_some_and(|it| it.0 == array);
        let books = &self.books;
        let lives = |it: &u32| books.get(it).is_some_and(|it| it.state.is_some());
        self.placed.retain(|it| !of_it(it) || lives(it));
        let books = self.books.iter_mut().filter(|(it, _)| of_it(it));
        books.for_each(|(_, book)| book.is_open = true);
    }

    /// Of what a liar has told of its word may count, once it was gone.
    fn is_excused(&self, other: &str, world: &World) -> bool {
        let listed = names::instance_of(other);
        let listing = world.lies.listed.iter().map(|(_, instance)| instance);
        let mut lies = listing.chain(world.lies.about.values());
        self.has_forgotten || lies.any(|instance| Some(*instance) == listed)
    }

    fn is_placed(&self, instance: u32, world: &World) -> Result<(), String> {
        for (other, end) in others(instance, world) {
            let book = names::instance_of(&other).and_then(|it| self.books.get(&it));
            let Some(book) = book.filter(|_| !self.is_excused(&other, world)) else {
                continue;
            };
            let at = ENDS.iter().position(|it| *it == end).unwrap_or_default();
            let since = self.since.get(&instance).copied().unwrap_or_default();
            if !book.has_ended(&end) && book.met[at] <= since {
                let all = others(instance, world);
                return Err(format!(
                    "{instance} is placed, which comes after {other} as {end:?} of {all:?}: {book:?}"
                ));
            }
        }
        Ok(())
    }

    fn fails(&self, instance: u32, detail: &str, world: &World) -> Result<(), String> {
        let others = others(instance, world);
        let is_met = |(other, end): &(String, AfterEnd)| {
            let book = names::instance_of(other).and_then(|it| self.books.get(&it));
            book.is_some_and(|book| {
                let is_sure = book.is_known && !book.is_open && book.state.is_none();
                is_sure && end.admits(book.is_ok)
            })
        };
        let named: Vec<_> = others.iter().filter(|it| detail.contains(&it.0)).collect();
        if named.is_empty() {
            return Err(format!("{instance} fails, and no one is named: {detail}"));
        }
        let is_excused = named.iter().any(|it| self.is_excused(&it.0, world));
        if named.iter().all(|it| is_met(it)) && !is_excused {
            return Err(format!("{instance} fails, and {named:?} have ended so"));
        }
        Ok(())
    }
}
