//! One array: what it is, and how far each of its elements is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use sched_model::{Indexes, Uuid};

use crate::api::array::{ElementId, ElementStart, Values};
use crate::api::ids::SessionId;
use crate::api::start::{PlacedStart, StartChanges};

/// How far an element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum ElementState {
    /// No instance yet.
    Waiting,
    /// An instance exists.
    Live,
    /// It has ended with exit status 0.
    Succeeded,
    /// It has ended otherwise.
    Failed,
    /// Its START failed, or its time to wait was over.
    NotStarted,
    /// How it ended is not known.
    Unknown,
    /// It was deleted.
    Deleted,
}

impl ElementState {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Live,
        Self::Succeeded,
        Self::Failed,
        Self::NotStarted,
        Self::Unknown,
        Self::Deleted,
    ];

    /// Whether it has ended.
    pub(crate) fn is_over(self) -> bool {
        !matches!(self, Self::Waiting | Self::Live)
    }
}

/// What an array is made of.
#[derive(Debug)]
pub(crate) struct NewArray {
    pub(crate) indexes: Indexes,
    pub(crate) running_max: Option<u32>,
    /// The START of each, its instance the array's UUID.
    pub(crate) start: PlacedStart,
    pub(crate) values: Values,
    pub(crate) priority: u8,
    pub(crate) is_operators: bool,
    pub(crate) arrived: Instant,
    /// Until when elements may wait to begin.
    pub(crate) deadline: Option<Instant>,
}

/// One array.
#[derive(Debug)]
pub(crate) struct Array {
    id: Uuid,
    new: NewArray,
    /// The place in the queue of its first element; those of the others follow.
    order: u64,
    /// One for each position.
    states: Vec<ElementState>,
    counts: [u32; ElementState::ALL.len()],
    /// No position before this one is `Waiting`.
    next: u32,
    /// Indexes of live elements that wait for a node: very few.
    queued: BTreeSet<u32>,
    ended_at: Option<Instant>,
    /// Its number among all: later ones have higher numbers.
    number: u64,
}

impl Array {
    /// One of which nothing has begun.
    pub(crate) fn new(id: Uuid, order: u64, new: NewArray) -> Self {
        let count = new.indexes.count();
        let mut counts = [0; ElementState::ALL.len()];
        counts[ElementState::Waiting as usize] = count;
        Self {
            id,
            order,
            states: vec![ElementState::Waiting; count as usize],
            counts,
            next: 0,
            queued: BTreeSet::new(),
            ended_at: None,
            number: 0,
            new,
        }
    }

    /// The array.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Its number among all: later ones have higher numbers.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    /// What it is called; empty for nothing.
    pub(crate) fn name(&self) -> &str {
        let scheduling = self.new.start.request.scheduling.as_deref();
        scheduling.map_or("", |it| &it.name)
    }

    /// The START of each element, as the array's.
    pub(crate) fn start(&self) -> &PlacedStart {
        &self.new.start
    }

    /// Has another session notified of what becomes of its elements.
    pub(crate) fn set_sender(&mut self, sender: SessionId) {
        self.new.start.sender = sender;
    }

    /// The indexes of its elements.
    pub(crate) fn indexes(&self) -> &Indexes {
        &self.new.indexes
    }

    /// The values of its elements.
    pub(crate) fn values(&self) -> &Values {
        &self.new.values
    }

    /// How many may hold a claim at the same time.
    pub(crate) fn running_max(&self) -> Option<u32> {
        self.new.running_max
    }

    /// Its priority.
    pub(crate) fn priority(&self) -> u8 {
        self.new.priority
    }

    /// Whether an operator sent it.
    pub(crate) fn is_operators(&self) -> bool {
        self.new.is_operators
    }

    /// When it came.
    pub(crate) fn arrived(&self) -> Instant {
        self.new.arrived
    }

    /// Until when its elements may wait to begin.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.new.deadline
    }

    /// The place in the queue of its first element.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    /// The place in the queue of an element.
    pub(crate) fn order_of(&self, index: u32) -> u64 {
        let position = self.new.indexes.position(index).unwrap_or_default();
        self.order + u64::from(position)
    }

    /// When the last of its elements ended; `None` = not yet.
    pub(crate) fn ended_at(&self) -> Option<Instant> {
        self.ended_at
    }

    /// How many elements are so.
    pub(crate) fn count(&self, state: ElementState) -> u32 {
        self.counts[state as usize]
    }

    /// How many are instances that wait for a node.
    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// One of these.
    pub(crate) fn first_queued(&self) -> Option<ElementId> {
        let index = *self.queued.first()?;
        Some(self.element(index))
    }

    /// Whether the instance of an element waits for a node.
    pub(crate) fn is_queued(&self, index: u32) -> bool {
        self.queued.contains(&index)
    }

    pub(super) fn set_queued(&mut self, index: u32, is_queued: bool) {
        if is_queued {
            self.queued.insert(index);
        } else {
            self.queued.remove(&index);
        }
    }

    /// How far an element is; `None` if the array has none with this index.
    pub(crate) fn state(&self, index: u32) -> Option<ElementState> {
        let position = self.new.indexes.position(index)?;
        self.states.get(position as usize).copied()
    }

    /// The states of all, in the order of their indexes.
    pub(crate) fn states(&self) -> &[ElementState] {
        &self.states
    }

    /// Which element has this index.
    pub(crate) fn element(&self, index: u32) -> ElementId {
        ElementId {
            array: self.id,
            index,
        }
    }

    /// Elements that are instances.
    pub(crate) fn live(&self) -> impl Iterator<Item = ElementId> {
        self.in_state(ElementState::Live)
    }

    fn in_state(&self, wanted: ElementState) -> impl Iterator<Item = ElementId> {
        let states = self.states.iter().enumerate();
        let found = states.filter(move |(_, state)| **state == wanted);
        let index = |(position, _)| self.new.indexes.at(position as u32);
        found.filter_map(index).map(|index| self.element(index))
    }

    /// Its bytes, for the limits.
    pub(crate) fn bytes(&self) -> usize {
        bytes_of(&self.new)
    }

    /// Whether its next element may become an instance.
    pub(crate) fn is_ready(&self) -> bool {
        let live = self.count(ElementState::Live);
        self.count(ElementState::Waiting) > 0
            && self.queued.is_empty()
            && self.new.running_max.is_none_or(|most| live < most)
    }

    /// The next element that waits, which is live from now on, and its START.
    pub(crate) fn take_next(&mut self) -> Option<(ElementId, PlacedStart)> {
        let first = self.next as usize;
        let waiting = self.states[first..].iter();
        let offset = waiting
            .take_while(|state| **state != ElementState::Waiting)
            .count();
        let position = first + offset;
        let index = self.new.indexes.at(u32::try_from(position).ok()?)?;
        self.set(index, ElementState::Live);
        self.next = position as u32 + 1;
        let element = self.element(index);
        Some((element, self.start_of(element)))
    }

    /// The START of an element: that of the array with its instance, its name, and what its launcher is to make of the
    /// text.
    pub(crate) fn start_of(&self, element: ElementId) -> PlacedStart {
        let mut start = self.new.start.clone();
        let position = self.new.indexes.position(element.index).unwrap_or_default();
        let is = ElementStart {
            id: element,
            array_name: self.name().into(),
            count: self.new.indexes.count(),
            value: self.new.values.at(position),
        };
        let request = Arc::make_mut(&mut start.request);
        request.instance = element.instance();
        // The text that its launcher gets is made from the array's: nothing is to be compared with that.
        request.content = None;
        if let Some(scheduling) = &mut request.scheduling {
            scheduling.name = is.name();
        }
        let changes: &mut StartChanges = start.changes.get_or_insert_default();
        changes.element = Some(Arc::new(is));
        start
    }

    /// Sets how far an element is.
    pub(crate) fn set(&mut self, index: u32, state: ElementState) {
        let Some(position) = self.new.indexes.position(index) else {
            return;
        };
        let Some(held) = self.states.get_mut(position as usize) else {
            return;
        };
        self.counts[*held as usize] -= 1;
        self.counts[state as usize] += 1;
        *held = state;
        if state == ElementState::Waiting {
            self.next = self.next.min(position);
        }
        if state != ElementState::Live {
            self.queued.remove(&index);
        }
    }

    /// Sets all that wait to another state; whether any did.
    pub(crate) fn drop_waiting(&mut self, state: ElementState) -> bool {
        let waiting: Vec<u32> = self
            .in_state(ElementState::Waiting)
            .map(|it| it.index)
            .collect();
        waiting.iter().for_each(|index| self.set(*index, state));
        !waiting.is_empty()
    }

    /// Has all that ended without success wait again, at these places in the queue and until then; how many that are.
    pub(crate) fn rerun(&mut self, order: u64, deadline: Option<Instant>) -> u32 {
        let is_again = |state: ElementState| state.is_over() && state != ElementState::Succeeded;
        let states = self.states.iter().enumerate();
        let again: Vec<u32> = states
            .filter(|(_, state)| is_again(**state))
            .filter_map(|(position, _)| self.new.indexes.at(position as u32))
            .collect();
        if !again.is_empty() {
            again
                .iter()
                .for_each(|index| self.set(*index, ElementState::Waiting));
            (self.order, self.new.deadline, self.ended_at) = (order, deadline, None);
        }
        again.len() as u32
    }

    /// Whether all have ended and that was not noted; it is from now on.
    pub(crate) fn end_if_over(&mut self, now: Instant) -> bool {
        let open = self.count(ElementState::Waiting) + self.count(ElementState::Live);
        let has_ended = open == 0 && self.ended_at.is_none();
        if has_ended {
            self.ended_at = Some(now);
        }
        has_ended
    }

    /// How far it was when that was recorded: the states of its elements, as many as it has.
    pub(crate) fn restore(
        &mut self,
        states: Vec<ElementState>,
        order: u64,
        [deadline, ended_at]: [Option<Instant>; 2],
    ) {
        if states.len() == self.states.len() {
            self.counts = counts_of(&states);
            self.states = states;
        }
        self.order = order;
        (self.new.deadline, self.ended_at) = (deadline, ended_at);
    }

    pub(super) fn is_consistent(&self) -> bool {
        let first = self
            .states
            .iter()
            .position(|it| *it == ElementState::Waiting);
        let is_live = |index: &u32| self.state(*index) == Some(ElementState::Live);
        self.counts == counts_of(&self.states)
            && first.is_none_or(|first| first >= self.next as usize)
            && self.queued.iter().all(is_live)
            && self.states.len() == self.new.indexes.count() as usize
    }
}

/// The bytes of an array, for the limits: its START, its values, and one for each element.
pub(crate) fn bytes_of(new: &NewArray) -> usize {
    let texts: [&Bytes; 2] = [&new.start.parcel.payload, new.values.text()];
    texts.iter().map(|text| text.len()).sum::<usize>() + new.indexes.count() as usize
}

fn counts_of(states: &[ElementState]) -> [u32; ElementState::ALL.len()] {
    let mut counts = [0; ElementState::ALL.len()];
    states.iter().for_each(|state| counts[*state as usize] += 1);
    counts
}
