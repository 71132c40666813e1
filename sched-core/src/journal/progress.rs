//! What is handed out to be put on disk, what has come to be there, and what can be done because of it.

use std::time::Instant;

use sched_model::Uuid;

use super::{Journal, Ready};
use crate::api::ids::InstanceId;
use crate::api::record::{Change, Record, RecordKey, Ticket};
use crate::timers::earlier;

/// Which record has changed.
#[derive(Debug)]
pub(crate) enum Name {
    /// An instance's.
    Instance(InstanceId),
    /// What an operator decided about a node, or which of its ends are dealt with.
    Node(Uuid),
    /// That a UUID is bound.
    Binding(Uuid),
    /// A run of an instance that is over.
    Run(u64),
    /// The claims on a node.
    Claims(Uuid),
    /// An array.
    Array(Uuid),
    /// How far an array is.
    ArrayProgress(Uuid),
}

impl Journal {
    /// Whether something can be done now, or is to be handed out.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        self.has_changes()
            || self.are_claims_due(now)
            || self.is_ready()
            || self.has_acknowledgement()
            || self.has_failure()
    }

    /// When there is something to do because time has passed.
    pub(crate) fn due(&self) -> Option<Instant> {
        if !self.is_on {
            // No disk keeps anything waiting; claims of lost nodes are forgotten in time all the same.
            return self.claims.due();
        }
        earlier(self.disk.due(), self.claims.due())
    }

    /// The names of all records that changed since the last call and are to be handed out now, if any; the iterator knows
    /// their number. `claims_on` = how many claims there are on a node.
    pub(crate) fn take_changed<F: Fn(Uuid) -> usize>(
        &mut self,
        now: Instant,
        claims_on: F,
    ) -> Option<impl Iterator<Item = Name> + use<F>> {
        let claims = match self.are_claims_due(now) {
            true => self.claims.take_changed(now, self.is_leaving, claims_on),
            false => Vec::new(),
        };
        if !self.has_changes() && claims.is_empty() {
            return None;
        }
        let instances = std::mem::take(&mut self.instances).into_iter();
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        let bindings = std::mem::take(&mut self.bindings).into_iter();
        let runs = std::mem::take(&mut self.runs).into_iter();
        let names = instances.map(Name::Instance).chain(nodes.map(Name::Node));
        let names = names.chain(bindings.map(Name::Binding));
        let names = names.chain(runs.map(Name::Run));
        let arrays = std::mem::take(&mut self.arrays).into_iter();
        let progress = std::mem::take(&mut self.progress).into_iter();
        let names = names.chain(arrays.map(Name::Array));
        let names = names.chain(progress.map(Name::ArrayProgress));
        Some(names.chain(claims.into_iter().map(Name::Claims)))
    }

    /// Notes whether the next change puts a record of an instance on disk or takes it off.
    pub(crate) fn note_record(&mut self, instance: &InstanceId, record: Option<&Record>) {
        let ticket = self.last + 1;
        match record {
            Some(_) => self.recorded.note_put(instance, ticket),
            None => self.recorded.note_removed(instance, ticket),
        }
    }

    /// These records as the next change, which is waited for from now on.
    pub(crate) fn hand_out(
        &mut self,
        now: Instant,
        entries: Vec<(RecordKey, Option<Record>)>,
    ) -> Change {
        self.last += 1;
        self.disk.waits(now);
        Change {
            ticket: Ticket(self.last),
            entries,
        }
    }

    /// Everything up to this change is on disk; whether a disk that had been silent answers again.
    pub(crate) fn committed(&mut self, now: Instant, ticket: Ticket) -> bool {
        self.committed = self.committed.max(ticket.0);
        self.recorded.settle(self.committed);
        self.disk
            .progressed(now, self.committed, self.committed < self.last)
    }

    /// The next of what can be done by now.
    pub(crate) fn take_ready(&mut self) -> Option<Ready> {
        let first = self.is_ready().then(|| self.waiting.pop_front())?;
        first.map(|(_, ready)| ready)
    }

    fn is_ready(&self) -> bool {
        let first = self.waiting.front();
        first.is_some_and(|(ticket, _)| *ticket <= self.committed)
    }

    /// STARTs that are not on disk, failures of such as still are, and records to be taken off it.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn unwritten(&self) -> usize {
        self.disk.unwritten() + self.recorded.removals()
    }
}
