//! Arrays: what each is, and how far each of its elements is. An element becomes an instance only when it is its turn; until
//! then it is a byte here.
//!
//! ```text
//!  Waiting ──▶ Live ──▶ Succeeded | Failed | NotStarted | Unknown | Deleted      (Waiting again: `rerun`)
//!              an instance: queued, or with a claim
//! ```
//!
//! An array is *ready* while an element waits here, none of its instances waits for a node, and fewer than `running_max` are
//! instances. So one of its instances that has not run yet stands in the queue, as the array's place in it, beside those
//! that full nodes have refused, and never more than `running_max` hold a claim: what lost its claim to a preemptor or a
//! drain waits for a node, and until it has one no other element begins.
//!
//! Which element is next, and what is written of it, is decided here; instances are made by `workflow::arrays`.

mod array;
mod progress;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use indexmap::IndexMap;
use sched_model::Uuid;
use sched_model::array::element_index;

use crate::api::array::ElementId;
use crate::api::ids::{InstanceId, SessionId};

pub(crate) use self::array::{Array, ElementState, NewArray, bytes_of};
pub(crate) use self::progress::{from_text, to_text};

/// Most arrays, with those that have ended and are remembered: each is a row of a list and two records on disk.
pub const MAX_ARRAYS: usize = 4096;

/// Most bytes of all arrays: their STARTs, their values, and a byte for each element. As much as may wait in batches.
pub const MAX_ARRAY_BYTES: usize = crate::pending::batches::MAX_BATCH_BYTES;

/// Most arrays of operators, so that controllers always find room.
pub const MAX_OPERATOR_ARRAYS: usize = MAX_ARRAYS / 4 * 3;

/// Most bytes of those.
pub const MAX_OPERATOR_ARRAY_BYTES: usize = MAX_ARRAY_BYTES / 4 * 3;

/// What is to be sent about an array once it is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrayNews {
    /// It was taken in, or an equal one is there, or some of it is to run once more: for who asked that.
    Accepted(SessionId),
    /// All of its elements have ended.
    Ended,
    /// It was deleted by this session.
    Deleted(SessionId),
}

/// Where an array stands among those that are ready: higher priority first, then earlier ones.
type Turn = (Reverse<u8>, u64, Uuid);

/// All arrays.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    /// In the order they came.
    all: IndexMap<Uuid, Array>,
    /// The number of the latest.
    numbers: u64,
    ready: BTreeSet<Turn>,
    /// The deadlines of those of which elements wait.
    deadlines: BTreeSet<(Instant, Uuid)>,
    bytes: usize,
    /// How many are operators', and their bytes.
    of_operators: (usize, usize),
    /// Elements whose instance is gone, with the number of the run that it left; how it ended is looked up at the end of the
    /// input, because the exit status is read last.
    gone: Vec<(ElementId, u64)>,
    /// What waits to be sent, with the change that has to be on disk.
    news: VecDeque<(u64, Uuid, ArrayNews)>,
}

/// Why an array cannot be taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    /// Whether those of operators are too many.
    pub(crate) of_operators: bool,
}

impl Arrays {
    /// An array.
    pub(crate) fn get(&self, id: Uuid) -> Option<&Array> {
        self.all.get(&id)
    }

    /// Whether it is the UUID of an array.
    pub(crate) fn has(&self, id: &InstanceId) -> bool {
        matches!(id, InstanceId::Uuid(uuid) if self.all.contains_key(uuid))
    }

    /// The element that an instance is, of an array that is here.
    pub(crate) fn element(&self, instance: &InstanceId) -> Option<ElementId> {
        let &InstanceId::Uuid(uuid) = instance else {
            return None;
        };
        self.all.values().find_map(|array| {
            let index = element_index(array.id(), uuid)?;
            array.state(index).map(|_| array.element(index))
        })
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many there are.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Their bytes.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All, the latest first, from the one before this number.
    pub(crate) fn latest_first(&self, before: Option<u64>) -> impl Iterator<Item = &Array> {
        let arrays = self.all.values().rev();
        arrays.skip_while(move |array| before.is_some_and(|before| array.number() >= before))
    }

    /// Whether one more of so many bytes may be taken in, if those are forgotten that [`Arrays::to_forget`] names.
    pub(crate) fn may_add(&self, bytes: usize, is_operators: bool) -> Result<(), TooMany> {
        let ended = self.all.values().filter(|it| it.ended_at().is_some());
        let (count, held) = ended.clone().fold((0, 0), |(count, held), array| {
            (count + 1, held + array.bytes())
        });
        if self.all.len() - count >= MAX_ARRAYS || self.bytes - held + bytes > MAX_ARRAY_BYTES {
            return Err(TooMany {
                of_operators: false,
            });
        }
        let own = ended.filter(|it| it.is_operators());
        let (count, held) = own.fold((0, 0), |(count, held), array| {
            (count + 1, held + array.bytes())
        });
        let is_full = self.of_operators.0 - count >= MAX_OPERATOR_ARRAYS
            || self.of_operators.1 - held + bytes > MAX_OPERATOR_ARRAY_BYTES;
        match is_operators && is_full {
            true => Err(TooMany { of_operators: true }),
            false => Ok(()),
        }
    }

    /// An array that has ended and is to be forgotten, the oldest first, so that one of so many bytes may be taken in.
    pub(crate) fn to_forget(&self, bytes: usize, is_operators: bool) -> Option<Uuid> {
        let is_full = self.all.len() >= MAX_ARRAYS || self.bytes + bytes > MAX_ARRAY_BYTES;
        let is_own_full = is_operators
            && (self.of_operators.0 >= MAX_OPERATOR_ARRAYS
                || self.of_operators.1 + bytes > MAX_OPERATOR_ARRAY_BYTES);
        let ended = || self.all.values().filter(|it| it.ended_at().is_some());
        let first = match (is_full, is_own_full) {
            (true, _) => ended().next(),
            (false, true) => ended().find(|it| it.is_operators()),
            (false, false) => None,
        };
        first.map(Array::id)
    }

    /// Takes an array in that is not there yet.
    pub(crate) fn insert(&mut self, mut array: Array) {
        self.numbers += 1;
        array.set_number(self.numbers);
        self.bytes += array.bytes();
        if array.is_operators() {
            self.of_operators.0 += 1;
            self.of_operators.1 += array.bytes();
        }
        let id = array.id();
        self.all.insert(id, array);
        self.follow(id);
    }

    /// Forgets an array.
    pub(crate) fn remove(&mut self, id: Uuid) {
        self.leave(id);
        let Some(array) = self.all.shift_remove(&id) else {
            return;
        };
        self.bytes -= array.bytes();
        if array.is_operators() {
            self.of_operators.0 -= 1;
            self.of_operators.1 -= array.bytes();
        }
    }

    /// Whether the next element of some array may become an instance, as far as the arrays are concerned.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The array whose next element it is the turn of.
    pub(crate) fn next_ready(&self) -> Option<Uuid> {
        self.ready.first().map(|(.., id)| *id)
    }

    /// Changes an array; what follows from that for its turn is seen to.
    pub(crate) fn change<T>(
        &mut self,
        id: Uuid,
        change: impl FnOnce(&mut Array) -> T,
    ) -> Option<T> {
        self.leave(id);
        let changed = self.all.get_mut(&id).map(change);
        self.follow(id);
        changed
    }

    /// Notes whether the instance of an element waits for a node; whether that is news.
    pub(crate) fn set_queued(&mut self, element: ElementId, is_queued: bool) {
        let array = self.all.get(&element.array);
        if array.is_some_and(|it| it.is_queued(element.index) != is_queued) {
            self.change(element.array, |it| it.set_queued(element.index, is_queued));
        }
    }

    /// The instance of an element is gone, and has left this run.
    pub(crate) fn note_gone(&mut self, element: ElementId, run: u64) {
        self.set_queued(element, false);
        self.gone.push((element, run));
    }

    /// Elements whose instance is gone, each with its run.
    pub(crate) fn take_gone(&mut self) -> Vec<(ElementId, u64)> {
        std::mem::take(&mut self.gone)
    }

    /// An array of which the time to wait is over and elements wait.
    pub(crate) fn take_late(&mut self, now: Instant) -> Option<Uuid> {
        let (due, id) = *self.deadlines.first()?;
        (due <= now).then_some(id)
    }

    /// When that is the case next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Has something sent once this change is on disk.
    pub(crate) fn note_news(&mut self, ticket: u64, id: Uuid, news: ArrayNews) {
        self.news.push_back((ticket, id, news));
    }

    /// Whether something is to be settled or sent.
    pub(crate) fn has_work(&self, is_on_disk: impl Fn(u64) -> bool) -> bool {
        !self.gone.is_empty()
            || self
                .news
                .front()
                .is_some_and(|(ticket, ..)| is_on_disk(*ticket))
    }

    /// What may be sent.
    pub(crate) fn take_news(
        &mut self,
        is_on_disk: impl Fn(u64) -> bool,
    ) -> Option<(Uuid, ArrayNews)> {
        let is_ready = self
            .news
            .front()
            .is_some_and(|(ticket, ..)| is_on_disk(*ticket));
        let (_, id, news) = is_ready.then(|| self.news.pop_front())??;
        Some((id, news))
    }

    fn leave(&mut self, id: Uuid) {
        if let Some(array) = self.all.get(&id) {
            self.ready.remove(&turn(array));
            if let Some(deadline) = array.deadline() {
                self.deadlines.remove(&(deadline, id));
            }
        }
    }

    fn follow(&mut self, id: Uuid) {
        let Some(array) = self.all.get(&id) else {
            return;
        };
        if array.is_ready() {
            self.ready.insert(turn(array));
        }
        if let Some(deadline) = array
            .deadline()
            .filter(|_| array.count(ElementState::Waiting) > 0)
        {
            self.deadlines.insert((deadline, id));
        }
    }

    /// Whether counts, turns and deadlines are what the arrays say.
    pub(crate) fn is_consistent(&self) -> bool {
        let all = || self.all.values();
        let own = || all().filter(|it| it.is_operators());
        let ready: BTreeSet<Turn> = all().filter(|it| it.is_ready()).map(turn).collect();
        let waiting = all().filter(|it| it.count(ElementState::Waiting) > 0);
        let deadlines = waiting.filter_map(|it| Some((it.deadline()?, it.id())));
        all().all(Array::is_consistent)
            && self.bytes == all().map(Array::bytes).sum::<usize>()
            && self.of_operators == (own().count(), own().map(Array::bytes).sum())
            && self.ready == ready
            && self.deadlines == deadlines.collect()
    }
}

fn turn(array: &Array) -> Turn {
    (Reverse(array.priority()), array.order(), array.id())
}
