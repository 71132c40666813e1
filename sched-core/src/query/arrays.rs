//! Rows of arrays, and what is recorded of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sched_model::scheduling::MAX_QUEUE;
use sched_model::{ArrayState, ArrayView, Query, Uuid};

use super::page::{Allowance, Page, limit, start_of};
use crate::api::ids::InstanceId;
use crate::api::record::{ArrayProgressRecord, ArrayRecord, Record};
use crate::api::start::PlacedStart;
use crate::arrays::{Array, ElementState, to_text};
use crate::sight::Sight;

impl<'a> Sight<'a> {
    /// The array of this UUID.
    pub(crate) fn array_of(&self, id: &InstanceId) -> Option<&'a Array> {
        match id {
            InstanceId::Uuid(uuid) => self.arrays.get(*uuid),
            InstanceId::Text(_) | InstanceId::DryRun(_) => None,
        }
    }

    /// Adds to the START of an array what the policy says for STARTs that do not say it; how long elements may wait to
    /// begin.
    pub(crate) fn complete_array(&self, start: &mut PlacedStart) -> Duration {
        let defaults = self.placement.policy().defaults();
        let (restart_on_loss, time_limit) = defaults.complete(&mut start.request);
        start.set_added(restart_on_loss, time_limit);
        let request = Arc::make_mut(&mut start.request);
        let scheduling = request.scheduling.get_or_insert_default();
        // Waiting is what an array is for.
        let waits = scheduling.queue.filter(|it| it.ms() > 0);
        let waits = *scheduling.queue.insert(waits.unwrap_or(MAX_QUEUE));
        Duration::from_millis(waits.ms())
    }

    /// Arrays that match a pattern, the latest first: whose UUID begins with it, or which are called so. The cursor is the
    /// number of the last one looked at.
    pub(super) fn query_arrays(&self, query: &Query, result: &mut Page) {
        let pattern = query.matching.as_deref().unwrap_or_default();
        let Some(before) = start_of::<u64>(query, result) else {
            return;
        };
        let mut allowance = Allowance::new(limit(query));
        let next = self.array_page(before, pattern, &mut allowance, &mut result.arrays);
        result.next = next.map(|next| next.to_string());
    }

    /// Adds the arrays that match a pattern, the latest first, behind this number, or from the latest where that is 0, as
    /// far as the allowance goes. Where the next page begins, if not all were looked at.
    pub(super) fn array_page(
        &self,
        before: u64,
        pattern: &str,
        allowance: &mut Allowance,
        rows: &mut Vec<ArrayView>,
    ) -> Option<u64> {
        let mut last = before;
        for array in self.arrays.latest_first(Some(before).filter(|it| *it > 0)) {
            if allowance.is_used_up() {
                return Some(last);
            }
            allowance.look();
            last = array.number();
            let is_wanted =
                array.name() == pattern || InstanceId::Uuid(array.id()).starts_with(pattern);
            if is_wanted {
                let view = self.array_view(array);
                allowance.take_row(view.indexes.len() + view.name.len());
                rows.push(view);
            }
        }
        None
    }

    /// The row of an array.
    pub(crate) fn array_view_of(&self, id: Uuid) -> Option<ArrayView> {
        self.arrays.get(id).map(|array| self.array_view(array))
    }

    fn array_view(&self, array: &Array) -> ArrayView {
        let count = |state| u64::from(array.count(state));
        let queued = array.queued() as u64;
        let running = count(ElementState::Live).saturating_sub(queued);
        let state = match array.ended_at() {
            Some(_) => ArrayState::Ended,
            None if running > 0 => ArrayState::Running,
            None => ArrayState::Waiting,
        };
        let tenant = array.start().request.tenant.as_ref();
        let waits = array.deadline().filter(|_| array.ended_at().is_none());
        ArrayView {
            array_uuid: array.id().to_string(),
            name: array.name().to_owned(),
            tenant: tenant.map(ToString::to_string).unwrap_or_default(),
            state,
            indexes: array.indexes().to_string(),
            elements: array.indexes().count().into(),
            waiting: count(ElementState::Waiting),
            queued,
            running,
            succeeded: count(ElementState::Succeeded),
            failed: count(ElementState::Failed),
            not_started: count(ElementState::NotStarted),
            unknown: count(ElementState::Unknown),
            deleted: count(ElementState::Deleted),
            running_max: array.running_max().map(u64::from),
            priority: array.priority().into(),
            submitted_at_ms: self.ms(array.arrived()),
            deadline_at_ms: waits.map(|at| self.ms(at)),
            ended_at_ms: array.ended_at().map(|at| self.ms(at)),
            queued_instance_uuid: array
                .first_queued()
                .map(|it| it.instance().to_string())
                .unwrap_or_default(),
        }
    }

    fn ms(&self, at: Instant) -> i64 {
        i64::try_from(self.clock.unix_ms(at)).unwrap_or(i64::MAX)
    }

    /// What is put on disk of an array; `None` if it is forgotten.
    pub(crate) fn array_record(&self, id: Uuid) -> Option<Record> {
        let array = self.arrays.get(id)?;
        let start = &array.start().parcel;
        Some(Record::Array(Box::new(ArrayRecord {
            payload: [&start.payload[..], array.values().text()].concat().into(),
            start_bytes: start.payload.len() as u64,
            sender: start.origin,
            indexes: array.indexes().to_string().into(),
            running_max: array.running_max(),
            priority: array.priority(),
            arrived_ms: self.clock.unix_ms(array.arrived()),
            is_operators: array.is_operators(),
        })))
    }

    /// What is put on disk of how far an array is.
    pub(crate) fn array_progress_record(&self, id: Uuid) -> Option<Record> {
        let array = self.arrays.get(id)?;
        Some(Record::ArrayProgress(ArrayProgressRecord {
            states: to_text(array.states()).into(),
            order: array.order(),
            deadline_ms: array.deadline().map(|at| self.clock.unix_ms(at)),
            ended_ms: array.ended_at().map(|at| self.clock.unix_ms(at)),
        }))
    }
}
