//! Managed instances as records on disk, and how they are restored after a restart.
//!
//! What was on a node, or on its way to one, counts as lost with that node until it reports. Then: what its STATS list
//! goes on; what they do not list is placed again or gone; what its launcher has promised to stop is placed again once
//! the fencing deadline is over. So nothing runs twice, and nothing that was acknowledged is lost.
//!
//! A record has fewer states than the core ([`Life`]): only what a restarted scheduler can act on. What was known of
//! others' commands (who asked, which victims) is not kept.

use std::sync::Arc;
use std::time::Duration;

use sched_model::{AfterEnd, OnNodeLoss, Span, StartFailureReason, Uuid};

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::array::{ElementId, Values};
use crate::api::cause::Cause;
use crate::api::config::LOST_TIME;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::record;
use crate::api::record::{
    AfterRecord, ArrayProgressRecord, ArrayRecord, InstanceRecord, Life, Record, RecordKey,
    Restored,
};
use crate::api::start::{PlacedStart, RestoredStart};
use crate::api::text::ShortText;
use crate::arrays::{Array, ElementState, NewArray, from_text};
use crate::instance::tried::Tried;
use crate::instance::{
    AfterLoss, Before, Instance, LateEffects, LifecycleEvent, Loss, OnLoss, RestoredPast,
    RunNumbers, SuspendedBy, Terms, Transit,
};
use crate::queue::Dependency;
use crate::sight::Sight;
use crate::workflow::node_loss::fencing_time;

impl Scheduler {
    /// Restores what the process before this one has recorded. Instances are taken in by their order of arrival,
    /// whatever order the store has them in.
    pub(crate) fn restore(&mut self, mut restored: Vec<Restored>) {
        // Earlier ones first, whatever order the store has them in.
        restored.sort_by_key(|restored| match (&restored.record, &restored.key) {
            (Record::Instance(record), _) => (0, record.order, record.arrived_ms),
            // In order of their numbers, each is put behind those before it at once.
            (Record::Run(_), RecordKey::Run(number)) => (0, 0, *number),
            // Before the instances that are their elements.
            (Record::Array(record), _) => (-2, 0, record.arrived_ms),
            (Record::ArrayProgress(_), _) => (-1, 0, 0),
            // After the runs: what has ended is claimed no longer.
            (Record::Claims(_), _) => (1, 0, 0),
            _ => (0, 0, 0),
        });
        let begun = restored
            .iter()
            .filter_map(|it| begun_by_ms(&it.record))
            .min();
        let mut count = 0;
        for Restored { key, record, start } in restored {
            match (key, record) {
                (RecordKey::Instance(name), Record::Instance(record)) => {
                    count += 1;
                    let instance = InstanceId::new(&name);
                    self.journal.note_found(&instance);
                    self.restore_instance(&instance, *record, start);
                }
                (RecordKey::Node(uuid), Record::Node(record)) => {
                    self.restore_node_record(uuid, record);
                }
                (RecordKey::Binding(uuid), Record::Binding(_)) => {
                    self.peers.restore_binding(uuid);
                }
                (RecordKey::Claims(uuid), Record::Claims(record)) => {
                    self.restore_claims(uuid, record);
                }
                (RecordKey::Run(number), Record::Run(record)) => self.restore_run(number, *record),
                (RecordKey::Array(array), Record::Array(record)) => {
                    self.restore_array(array, &record, start);
                }
                (RecordKey::ArrayProgress(array), Record::ArrayProgress(record)) => {
                    self.restore_array_progress(array, &record);
                }
                _ => {}
            }
        }
        self.end_unknown_elements();
        if count > 0 {
            self.notice(Notice::Restored(count));
        }
        let since = begun.map_or(self.clock.started(), |unix_ms| {
            self.clock.instant_of(unix_ms)
        });
        self.instances
            .begin_history(since.min(self.clock.started()), self.clock.started());
        self.restore_gaps();
        self.forget_old_claims();
    }

    /// Restores one instance: to its batch, to the queue, or as lost with its node.
    fn restore_instance(
        &mut self,
        instance: &InstanceId,
        record: InstanceRecord,
        start: Option<Box<RestoredStart>>,
    ) {
        let element = self.element_of(&record);
        let start = start.map(|start| placed(*start));
        let start = start.or_else(|| self.start_of_element(element?));
        let start = start.map(|start| completed(start, &record));
        if record.batch.is_some() {
            if let Some(node) = record.node {
                self.recovery.note_had(instance.clone(), node);
            }
            if let Some(start) = start {
                self.join_batch(self.now, record.batch_operator.into(), Box::new(start));
            }
            return;
        }
        if let Some(start) = &start {
            self.note_name(&start.request);
        }
        let loss = self.sight().loss_by_restart(&record, start.as_ref());
        let waits = loss.is_none();
        let managed = self
            .sight()
            .instance_from_record(&record, start.map(Box::new), waits);
        let before = match loss {
            Some(loss) => Before::Lost(loss),
            None => Before::Waited {
                pinned: pinned(&record),
            },
        };
        self.queue.note_order(record.order);
        let Some(place) = self.instances.vacant(instance.clone()) else {
            return;
        };
        if let Err(illegal) = place.insert(LifecycleEvent::Restored(before), managed) {
            return self.note_illegal(illegal);
        }
        if let Some(element) = element {
            self.restore_element(element, waits);
        }
        if !waits {
            return;
        }
        let Some(query) = self.instances.query_of(instance) else {
            return self.end_managing(instance, &Cause::StartUnreadable);
        };
        if record.after.is_empty() {
            return self.enqueue_unlimited(instance, &query);
        }
        let left = record.after.iter().map(dependency_of).collect();
        let place = (record.order, record.is_operators);
        self.queue.depend_unlimited(self.now, instance, place, left);
    }
}

/// Arrays, which are taken in before everything else: the records of their elements have no START of their own.
impl Scheduler {
    /// Restores an array of which nothing is known to have begun; how far it is comes behind it.
    fn restore_array(&mut self, id: Uuid, record: &ArrayRecord, start: Option<Box<RestoredStart>>) {
        let (Some(start), Ok(indexes)) = (start, record.indexes.parse()) else {
            // What is there of it is of no use to anybody. Its elements that are instances stay as long as they run.
            self.journal.note_array(id);
            return;
        };
        let at = usize::try_from(record.start_bytes).unwrap_or(usize::MAX);
        let values = record.payload.slice(at.min(record.payload.len())..);
        let mut start = PlacedStart {
            sender: SessionId(0),
            request: start.request,
            parcel: start.parcel,
            changes: None,
        };
        self.sight().complete_array(&mut start);
        let new = NewArray {
            indexes,
            running_max: record.running_max,
            priority: record.priority,
            is_operators: record.is_operators,
            arrived: self.clock.instant_of(record.arrived_ms),
            deadline: None,
            values: Values::of_lines(values).unwrap_or_default(),
            start,
        };
        self.arrays.insert(Array::new(id, 0, new));
    }

    /// Restores how far an array was.
    fn restore_array_progress(&mut self, id: Uuid, record: &ArrayProgressRecord) {
        let Some(array) = self.arrays.get(id) else {
            self.journal.note_array_progress(id);
            return;
        };
        let count = array.indexes().count();
        let states = from_text(&record.states, count);
        // What cannot be read may have run: none of it is started again.
        let states = states.unwrap_or_else(|| vec![ElementState::Unknown; count as usize]);
        let at = |ms: Option<u64>| ms.map(|ms| self.clock.instant_of(ms));
        let moments = [at(record.deadline_ms), at(record.ended_ms)];
        self.arrays
            .change(id, |it| it.restore(states, record.order, moments));
        self.queue.note_order(record.order + u64::from(count));
    }

    /// The element that a recorded instance is, if its array is there.
    fn element_of(&self, record: &InstanceRecord) -> Option<ElementId> {
        let (array, index) = (record.array?, record.index?);
        let is_there = self.arrays.get(array)?.state(index).is_some();
        is_there.then_some(ElementId { array, index })
    }

    /// The START of an element.
    fn start_of_element(&self, element: ElementId) -> Option<PlacedStart> {
        let array = self.arrays.get(element.array)?;
        Some(array.start_of(element))
    }

    /// An element was an instance, which is restored, and waits for a node or not.
    fn restore_element(&mut self, element: ElementId, waits: bool) {
        self.arrays.change(element.array, |it| {
            it.set(element.index, ElementState::Live);
        });
        self.arrays.set_queued(element, waits);
    }

    /// Elements of which it is recorded that they were instances, and no more, have ended nobody knows how: they are not
    /// started again. Called once all is restored.
    fn end_unknown_elements(&mut self) {
        let arrays = self.arrays.latest_first(None);
        let live = arrays.flat_map(Array::live);
        let is_gone = |it: &ElementId| !self.instances.contains(&it.instance());
        let gone: Vec<ElementId> = live.filter(is_gone).collect();
        for element in gone {
            let now = self.now;
            self.arrays.change(element.array, |it| {
                it.set(element.index, ElementState::Unknown);
                it.end_if_over(now);
            });
            self.journal.note_array_progress(element.array);
        }
    }
}

impl Sight<'_> {
    /// An instance with its terms and past as recorded. The state is set by the caller's event.
    fn instance_from_record(
        &self,
        record: &InstanceRecord,
        start: Option<Box<PlacedStart>>,
        waits: bool,
    ) -> Instance {
        let start = start.map(|mut start| {
            if let Some(demand) = &record.updated {
                start.set_demand(demand.clone());
            }
            if let Some(used) = record.time_used_ms {
                start.set_time_used(used);
            }
            start
        });
        let mut waits_until = record.deadline_ms.map(|at| self.clock.instant_of(at));
        if waits && !record.has_run && waits_until.is_none() && record.after.is_empty() {
            // No one was told that it waits: it has as long as nodes have to come back.
            waits_until = Some(self.now + self.config.recovery_window);
        }
        let terms = Terms {
            start,
            priority: Some(record.priority),
            waits_until,
            max_attempts: record.max_attempts,
            relocates: record.relocate,
            on_loss: match record.restart_on_loss {
                true => OnLoss::Restart,
                false => OnLoss::Report,
            },
            is_operators: record.is_operators,
        };
        let past = RestoredPast {
            tried: record.tried.iter().map(attempt_of).collect(),
            has_run: record.has_run,
            last_node: record.node,
            runs: runs_of(record),
            lease: record.lease_ms.map(Duration::from_millis),
            retries: record.retries,
            history: record.history.iter().map(|it| self.event_of(it)).collect(),
        };
        let arrived = self.clock.instant_of(record.arrived_ms);
        Instance::started(terms, record.order, arrived).with_past(past)
    }

    /// The loss that a recorded instance starts with; `None` if it waited and is to be queued. What becomes of it if
    /// its node does not come back follows from what was recorded: deleted, restarted under a fencing deadline, placed
    /// again because its START or a stop was under way, or forgotten.
    fn loss_by_restart(
        &self,
        record: &InstanceRecord,
        start: Option<&PlacedStart>,
    ) -> Option<Loss> {
        let node = record.node.filter(|_| record.life != Life::Waiting)?;
        let lease = record.lease_ms.filter(|_| record.restart_on_loss);
        let fencing_deadline = lease.map(|lease| fencing_time(Duration::from_millis(lease)));
        let (then, time) = match (record.life, fencing_deadline) {
            _ if record.is_deleted => (AfterLoss::Delete, fencing_deadline.unwrap_or(LOST_TIME)),
            (_, Some(fencing_deadline)) if has_retry(record, start) => {
                (AfterLoss::Restart, fencing_deadline)
            }
            (Life::Placing, _) if record.array.is_some() => (AfterLoss::Replace, LOST_TIME),
            // Of a move it is not known whether its node was told to stop it.
            (Life::Placing, _) => {
                let time = self.config.recovery_window.max(self.config.in_doubt_time);
                (AfterLoss::Replace, time)
            }
            (Life::Migrating | Life::Stopping, _) => (AfterLoss::Replace, LOST_TIME),
            _ if record.told_to_stop => (AfterLoss::Replace, LOST_TIME),
            _ => (AfterLoss::Forget, LOST_TIME),
        };
        Some(Loss {
            node,
            until: self.now + time,
            then,
            // No one knows how far it was.
            bound_for: record.target.filter(|_| record.life == Life::Migrating),
            late: late_of(record),
            transit: Transit {
                pinned: pinned(record),
                is_stop_unannounced: false,
            },
        })
    }
}

/// A moment in unix milliseconds at which the store was written, as this record in it proves: since then each instance
/// that is kept is in the store until its end is.
fn begun_by_ms(record: &Record) -> Option<u64> {
    match record {
        Record::Instance(record) => Some(record.arrived_ms),
        // Later events may be of a node's clock; an arrival is not.
        Record::Run(record) if record.history.len() > 1 => {
            record.history.first().map(|it| it.at_ms)
        }
        Record::Array(record) => Some(record.arrived_ms),
        Record::Run(_)
        | Record::Node(_)
        | Record::Binding(_)
        | Record::Claims(_)
        | Record::ArrayProgress(_) => None,
    }
}

/// The runs of a recorded instance. Records of earlier versions do not number them: one that was on a node has run there.
fn runs_of(record: &InstanceRecord) -> RunNumbers {
    if record.runs > 0 {
        let earlier = record.earlier_runs.clone();
        return RunNumbers::restored(record.runs, record.ran_on, earlier);
    }
    let node = record.node.filter(|_| record.has_run);
    RunNumbers::restored(u32::from(node.is_some()), node, Vec::new())
}

/// Whether an instance whose node is lost may go on elsewhere, by the limit that its START sets.
fn has_retry(record: &InstanceRecord, start: Option<&PlacedStart>) -> bool {
    let scheduling = start.and_then(|start| start.request.scheduling.as_deref());
    let retry = scheduling.and_then(|it| it.retry.as_ref());
    let limit = retry.filter(|it| it.covers_node_failure());
    limit.is_none_or(|it| record.retries < it.most())
}

/// A START with what the policy added to it when it came.
fn completed(mut start: PlacedStart, record: &InstanceRecord) -> PlacedStart {
    let asks = start.request.scheduling.as_ref();
    let restarts = asks.is_some_and(|it| it.restarts_on_node_loss());
    let restart_on_loss = record.restart_on_loss && !restarts;
    let time_limit = record.time_limit_ms.map(Span::from_ms);
    if restart_on_loss || time_limit.is_some() {
        let request = Arc::make_mut(&mut start.request);
        let scheduling = request.scheduling.get_or_insert_default();
        if restart_on_loss {
            scheduling.on_node_loss = OnNodeLoss::Restart;
        }
        scheduling.time_limit = scheduling.time_limit.or(time_limit);
        start.set_added(restart_on_loss, time_limit);
    }
    start
}

/// A restored START as the core handles it.
fn placed(start: RestoredStart) -> PlacedStart {
    PlacedStart {
        // Its sender has a new connection, if any: all controllers are told.
        sender: SessionId(0),
        request: start.request,
        parcel: start.parcel,
        changes: None,
    }
}

/// What it waits for to end, from its record.
fn dependency_of(record: &AfterRecord) -> Dependency {
    Dependency {
        other: InstanceId::new(&record.instance),
        is_array: record.is_array,
        element: None,
        named: match &*record.named {
            "" => record.instance.clone(),
            named => named.into(),
        },
        end: AfterEnd::from(&*record.end),
    }
}

/// A refusal from its record.
fn attempt_of(record: &record::Attempt) -> Tried {
    Tried {
        node: record.node,
        reason: StartFailureReason::from(&*record.reason),
        detail: ShortText::new(&record.detail),
    }
}

/// The node that an instance is pinned to. `target` has two meanings in a record: for one that waits or is being placed
/// it is that node, for one that moves the target.
fn pinned(record: &InstanceRecord) -> Option<Uuid> {
    let is_pin = matches!(record.life, Life::Waiting | Life::Placing);
    record.target.filter(|_| is_pin)
}

/// Commands that the launcher of its node had been sent and may still carry out. Whose preemption suspended it is not
/// recorded, so an empty preemptor stands for it.
fn late_of(record: &InstanceRecord) -> LateEffects {
    let suspended_by = match record.life {
        Life::Suspended | Life::Resuming | Life::Suspending if record.by_operator => {
            Some(SuspendedBy::Command)
        }
        Life::Suspended | Life::Resuming | Life::Suspending => {
            Some(SuspendedBy::Preemptor(InstanceId::new("")))
        }
        _ => None,
    };
    let is_stop_sent = record.told_to_stop
        || match record.life {
            Life::Migrating => true,
            Life::Stopping => !record.is_deleted,
            _ => false,
        };
    LateEffects {
        suspended_by,
        is_stop_sent,
    }
}
