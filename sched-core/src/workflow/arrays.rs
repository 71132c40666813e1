//! Arrays: taken in, their elements made instances one after the other, the ends of these counted, and run once more,
//! deleted or given up as a whole.
//!
//! An element becomes a managed instance that seeks a node, with the place in the queue that it had from the beginning. From
//! there on it is one like every other: it is placed, preempts, waits in the queue, is placed again. Its START leaves once its
//! record and how far its array is are on disk, which one change puts there; its end takes the record off and counts it, by
//! one change as well. So after a crash an element that has a record may run and is waited for as every managed instance is,
//! and one that has none never was anywhere, or has ended.

use std::time::{Duration, Instant};

use sched_model::scheduling::MAX_QUEUE;
use sched_model::{EndWhy, Indexes, InstanceDeleted, StartFailureReason, Topic, Uuid};

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::array::{ArrayStart, ElementId};
use crate::api::cause::Cause;
use crate::api::command::ArrayCommand;
use crate::api::declined::Refusal;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::start::PlacedStart;
use crate::arrays::{
    Array, ArrayNews, ElementState, MAX_ARRAY_BYTES, MAX_ARRAYS, MAX_OPERATOR_ARRAY_BYTES,
    MAX_OPERATOR_ARRAYS, NewArray, bytes_of,
};
use crate::instance::{DEFAULT_PRIORITY, Run};
use crate::peers::owner::Owner;
use crate::peers::session::Session;
use crate::placement::explain::Explanation;
use crate::query::known::Known;
use crate::sight::Sight;

/// Elements that become instances in one round of an input: bounds how long an array that finds an empty cluster delays
/// everything else. What is left is done in a tick that is due at once.
const ELEMENTS_PER_ROUND: usize = 64;

impl Scheduler {
    /// StartArray.
    pub(crate) fn array(&mut self, id: SessionId, command: ArrayCommand, origin: Uuid) {
        match command {
            ArrayCommand::Start(new) => self.start_array(id, *new, origin),
            ArrayCommand::Rerun(array) => self.rerun_array(id, &array),
        }
    }

    /// Takes an array in, or answers that it is there.
    fn start_array(&mut self, id: SessionId, new: ArrayStart, origin: Uuid) {
        let ArrayStart {
            id: array,
            indexes,
            running_max,
            start,
            values,
        } = new;
        let mut start = PlacedStart {
            sender: id,
            request: start.request,
            parcel: start.parcel,
            changes: None,
        };
        start.parcel.origin = origin;
        if let Some(there) = self.arrays.get(array) {
            let is_same = there.start().parcel.payload == start.parcel.payload
                && *there.indexes() == indexes
                && there.running_max() == running_max
                && *there.values() == values;
            return match is_same {
                true => self.answer_array(id, array),
                false => self.refuse_array(&start, Refusal::OtherArray),
            };
        }
        if let Some(problem) = self.problem_of_array(&start, &indexes) {
            return self.refuse_array(&start, problem);
        }
        let waits = self.sight().complete_array(&mut start);
        let asked = start.request.scheduling.as_deref();
        let priority = asked.and_then(|asked| asked.priority);
        let new = NewArray {
            priority: priority
                .and_then(|it| u8::try_from(it).ok())
                .unwrap_or(DEFAULT_PRIORITY),
            is_operators: self.peers.owner(id) != Owner::Controllers,
            arrived: self.now,
            deadline: self.now.checked_add(waits),
            indexes,
            running_max,
            start,
            values,
        };
        self.take_in(id, array, new);
    }

    /// What is wrong with an array, by its START.
    fn problem_of_array(&self, start: &PlacedStart, indexes: &Indexes) -> Option<Refusal> {
        let is_native = || self.peers.is_native(start.sender);
        if let Err(problem) = self.placement.check(&start.request, is_native) {
            return Some(problem);
        }
        let asked = start.request.scheduling.as_deref();
        if asked.is_some_and(|asked| asked.dry_run) {
            return Some(Refusal::NotInArray("start.scheduling.dry_run"));
        }
        if asked.is_some_and(|asked| asked.batch.is_some()) {
            return Some(Refusal::NotInArray("start.scheduling.batch"));
        }
        if self
            .sight()
            .array_comes_after_itself(&start.request, indexes)
        {
            return Some(Refusal::ArrayAfterItself);
        }
        if self.sight().exists(&start.request.instance) {
            return Some(Refusal::OtherStart);
        }
        self.sight().has_array_name(start)
    }

    fn take_in(&mut self, id: SessionId, array: Uuid, new: NewArray) {
        let bytes = bytes_of(&new);
        if let Err(too_many) = self.arrays.may_add(bytes, new.is_operators) {
            let (arrays, bytes) = match too_many.of_operators {
                true => (MAX_OPERATOR_ARRAYS, MAX_OPERATOR_ARRAY_BYTES),
                false => (MAX_ARRAYS, MAX_ARRAY_BYTES),
            };
            let refusal = Refusal::TooManyArrays {
                of_operators: too_many.of_operators,
                arrays,
                bytes,
            };
            let reason = StartFailureReason::FullCloud;
            return self.fail_with(&new.start, reason, Explanation::of(refusal.into()));
        }
        while let Some(old) = self.arrays.to_forget(bytes, new.is_operators) {
            self.forget_array(old);
        }
        let count = new.indexes.count();
        let order = self.queue.next_orders(count);
        self.arrays.insert(Array::new(array, order, new));
        self.journal.note_array(array);
        self.answer_array(id, array);
    }

    /// Runs once more what did not succeed of an array.
    fn rerun_array(&mut self, id: SessionId, array: &InstanceId) {
        let Some(found) = self.sight().array_of(array) else {
            let reason = StartFailureReason::InvalidData;
            let why = Explanation::of(Refusal::NoSuchArray.into());
            return self.answer_start(id, array, reason, false, why);
        };
        let (array, count) = (found.id(), found.indexes().count());
        let asked = found.start().request.scheduling.as_deref();
        let waits = asked.and_then(|asked| asked.queue).unwrap_or(MAX_QUEUE);
        let deadline = self.now.checked_add(Duration::from_millis(waits.ms()));
        let order = self.queue.next_orders(count);
        self.arrays.change(array, |it| {
            it.set_sender(id);
            it.rerun(order, deadline)
        });
        self.journal.note_array_progress(array);
        self.answer_array(id, array);
    }

    /// DELETE of an array: no further element begins, and those that are instances are deleted. One that has ended is
    /// forgotten.
    pub(crate) fn delete_array(&mut self, id: SessionId, array: &InstanceId) {
        let Some(found) = self.sight().array_of(array) else {
            return;
        };
        let (array, has_ended) = (found.id(), found.ended_at().is_some());
        let live: Vec<ElementId> = found.live().collect();
        let who = self.peers.get(id).map(Session::who);
        let dropped = |it: &mut Array| it.drop_waiting(ElementState::Deleted);
        if self.arrays.change(array, dropped) == Some(true) {
            self.queue.wake_dependents_on_array(array);
        }
        for element in live {
            let instance = element.instance();
            if let Some(who) = &who {
                self.instances.note_ended_by(&instance, who.clone());
            }
            self.delete_here(&instance);
        }
        if has_ended {
            self.forget_array(array);
        } else {
            self.journal.note_array_progress(array);
            self.note_array_end(array);
        }
        let ticket = self.journal.ticket();
        self.arrays.note_news(ticket, array, ArrayNews::Deleted(id));
    }

    fn forget_array(&mut self, array: Uuid) {
        self.arrays.remove(array);
        self.journal.note_array(array);
        self.queue.wake_dependents_on_array(array);
    }

    /// Makes the next elements of arrays instances, as many as find a node at once, and one more of each array, which waits
    /// for one; whether there was any.
    pub(crate) fn start_elements(&mut self) -> bool {
        let mut any = false;
        for _ in 0..ELEMENTS_PER_ROUND {
            if !self.may_start_elements() {
                break;
            }
            let Some(array) = self.arrays.next_ready() else {
                break;
            };
            any = true;
            if let Some(Some((element, start))) = self.arrays.change(array, Array::take_next) {
                self.journal.note_array_progress(array);
                self.start_element(element, Box::new(start));
                // It may have failed at once, as all others of it would.
                self.settle_gone();
            }
        }
        any
    }

    /// Whether elements may become instances now: not while nodes are still coming back after a restart, nor while nothing
    /// can be recorded.
    fn may_start_elements(&self) -> bool {
        self.arrays.has_ready()
            && !self.recovery.is_open()
            && !self.journal.is_in_trouble()
            && !self.journal.is_leaving()
            && self.instances.size().has_room(0, false)
    }

    /// Whether there is something to do about arrays now.
    pub(crate) fn has_array_work(&self) -> bool {
        !self.arrays.is_empty()
            && (self.may_start_elements()
                || self
                    .arrays
                    .has_work(|ticket| self.journal.is_on_disk(ticket)))
    }

    fn start_element(&mut self, element: ElementId, start: Box<PlacedStart>) {
        if self.sight().known(&start.request.instance) != Known::Nowhere {
            // Its UUID is that of an instance that was not started from here: it may well be this element.
            return self.end_element(element, ElementState::Unknown);
        }
        let Some(new) = self.admit_start(start) else {
            return self.end_element(element, ElementState::NotStarted);
        };
        if self.sight().comes_after_others(new.request()) {
            // It is the first, which waits for all.
            return self.without_room(new);
        }
        let Some(instance) = self.keep(new) else {
            return self.end_element(element, ElementState::Unknown);
        };
        self.queue.add_to_collected(&instance, &Cause::Plain);
        self.place_collected();
    }

    /// Counts the ends of elements, and sends what is on disk by now; whether there was any of that.
    pub(crate) fn settle_elements(&mut self) -> bool {
        let mut any = self.settle_gone();
        while let Some((array, news)) = self.arrays.take_news(|it| self.journal.is_on_disk(it)) {
            any = true;
            self.notify_array(array, news);
        }
        any
    }

    fn settle_gone(&mut self) -> bool {
        let gone = self.arrays.take_gone();
        let any = !gone.is_empty();
        for (element, run) in gone {
            let run = self.instances.run(run);
            let run = run.filter(|run| *run.instance() == element.instance());
            let outcome = run.map_or(ElementState::Unknown, outcome);
            let is_for_all = run.is_some_and(is_of_shape);
            self.end_element(element, outcome);
            if is_for_all {
                // The others are no different.
                self.drop_waiting(element.array);
            }
        }
        any
    }

    /// The time to wait is over for up to so many arrays: what waits of them does not begin.
    pub(crate) fn end_late_arrays(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            let Some(array) = self.arrays.take_late(now) else {
                return;
            };
            self.drop_waiting(array);
        }
    }

    fn drop_waiting(&mut self, array: Uuid) {
        let dropped = |it: &mut Array| it.drop_waiting(ElementState::NotStarted);
        if self.arrays.change(array, dropped) == Some(true) {
            self.queue.wake_dependents_on_array(array);
            self.journal.note_array_progress(array);
            self.note_array_end(array);
        }
    }

    fn end_element(&mut self, element: ElementId, state: ElementState) {
        let array = element.array;
        self.arrays.change(array, |it| it.set(element.index, state));
        self.queue.wake_dependents_of(&element.instance());
        self.journal.note_array_progress(array);
        self.note_array_end(array);
    }

    fn note_array_end(&mut self, array: Uuid) {
        let now = self.now;
        if self.arrays.change(array, |it| it.end_if_over(now)) == Some(true) {
            let ticket = self.journal.ticket();
            self.arrays.note_news(ticket, array, ArrayNews::Ended);
            self.queue.wake_dependents_of(&InstanceId::Uuid(array));
        }
    }

    /// Answers who asked for an array once that is on disk.
    fn answer_array(&mut self, id: SessionId, array: Uuid) {
        let ticket = self.journal.ticket();
        let news = ArrayNews::Accepted(id);
        self.arrays.note_news(ticket, array, news);
    }

    fn refuse_array(&mut self, start: &PlacedStart, problem: Refusal) {
        let reason = match problem {
            Refusal::OtherArray | Refusal::OtherStart => StartFailureReason::InstanceExists,
            _ => StartFailureReason::InvalidData,
        };
        self.fail_with(start, reason, Explanation::of(problem.into()));
    }

    /// Sends native controllers, subscribers and who asked, each once, how far an array is, or that it was deleted.
    fn notify_array(&mut self, array: Uuid, news: ArrayNews) {
        let sender = self.arrays.get(array).map(|it| it.start().sender);
        let (asker, event): (_, Box<dyn Fn() -> Message>) = match news {
            ArrayNews::Deleted(id) => {
                let deleted = InstanceDeleted {
                    instance_uuid: array.to_string(),
                    ..InstanceDeleted::default()
                };
                let event = move || Message::InstanceDeleted(deleted.clone());
                (Some(id), Box::new(event))
            }
            ArrayNews::Accepted(_) | ArrayNews::Ended => {
                let Some(view) = self.sight().array_view_of(array) else {
                    return;
                };
                let asker = match news {
                    ArrayNews::Accepted(id) => Some(id),
                    _ => sender,
                };
                let event = move || Message::ArrayState(Box::new(view.clone()));
                (asker, Box::new(event))
            }
        };
        self.notify_controllers(Topic::Instances, |session| session.is_native().then(&event));
        let outside = |id: &SessionId| {
            let alone = self.peers.outside_audience(*id, &Topic::Instances);
            alone.is_some_and(Session::is_native)
        };
        if let Some(asker) = asker.filter(outside) {
            self.send(asker, event());
        }
    }
}

impl Sight<'_> {
    /// Why the name of a new array is not to be had.
    fn has_array_name(&self, start: &PlacedStart) -> Option<Refusal> {
        let name = &*start.request.scheduling.as_ref()?.name;
        let has_it = |it: &&Array| {
            it.ended_at().is_none()
                && it.name() == name
                && it.start().request.tenant == start.request.tenant
        };
        let mut arrays = self.arrays.latest_first(None);
        let other = (!name.is_empty()).then(|| arrays.find(has_it))??;
        Some(Refusal::ArrayNameTaken {
            name: name.into(),
            other: other.id(),
        })
    }
}

/// How an element ended whose instance left this run.
fn outcome(run: &Run) -> ElementState {
    if run.failed().is_some() {
        return ElementState::NotStarted;
    }
    let why = run.facts().map(|facts| &facts.why);
    if let Some(EndWhy::TimeLimit | EndWhy::Oom) = why {
        return ElementState::Failed;
    }
    match (run.cause(), run.exit_code()) {
        (
            Some(
                Cause::Deleted
                | Cause::BeingDeleted
                | Cause::DeletedWhileLost
                | Cause::DeletedLost
                | Cause::Stopped
                | Cause::StopsIt,
            ),
            _,
        ) => ElementState::Deleted,
        (_, Some(0)) => ElementState::Succeeded,
        (_, Some(_)) => ElementState::Failed,
        (_, None) => ElementState::Unknown,
    }
}

/// Whether the START of an element failed for what all elements of its array ask for: no node could be found for it, or
/// what it was to come after did not end so.
fn is_of_shape(run: &Run) -> bool {
    let reasons = [
        StartFailureReason::DependencyFailed,
        StartFailureReason::FullCloud,
        StartFailureReason::NoComputeNodes,
        StartFailureReason::NoNetworkNodes,
        StartFailureReason::QueueTimeout,
    ];
    run.node().is_none() && run.failed().is_some_and(|it| reasons.contains(it))
}
