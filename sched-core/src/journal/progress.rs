//! What is handed out to be put on disk, what has come to be there, and what can be done because of it.

use std::collections::BTreeSet;
use std::time::Instant;

use indexmap::IndexSet;
use sched_model::Uuid;

use super::{Journal, Ready};
use crate::api::ids::InstanceId;
use crate::api::record::{Change, Record, RecordKey, Ticket};
use crate::timers::earlier;

/// What has changed since the change before.
#[derive(Debug)]
pub(crate) struct Changed {
    instances: IndexSet<InstanceId>,
    /// What an operator decided about them, or which of their ends are dealt with.
    nodes: IndexSet<Uuid>,
    bindings: IndexSet<Uuid>,
    /// Runs of instances that are over.
    runs: BTreeSet<u64>,
    /// Nodes with other claims.
    claims: Vec<Uuid>,
}

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
}

impl Changed {
    /// The names of all records that changed: instances', nodes', bindings', runs', and those of claims on nodes.
    pub(crate) fn keys(self) -> impl Iterator<Item = Name> {
        let instances = self.instances.into_iter().map(Name::Instance);
        let nodes = self.nodes.into_iter().map(Name::Node);
        let bindings = self.bindings.into_iter().map(Name::Binding);
        let runs = self.runs.into_iter().map(Name::Run);
        let claims = self.claims.into_iter().map(Name::Claims);
        instances
            .chain(nodes)
            .chain(bindings)
            .chain(runs)
            .chain(claims)
    }

    /// How many records that makes.
    pub(crate) fn len(&self) -> usize {
        self.instances.len()
            + self.nodes.len()
            + self.bindings.len()
            + self.runs.len()
            + self.claims.len()
    }
}

impl Journal {
    /// Whether something can be done now, or is to be handed out.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        self.has_changes()
            || self.are_claims_due(now)
            || self
                .waiting
                .front()
                .is_some_and(|first| first.ticket <= self.committed)
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

    /// What is to be handed out now, if anything. `claims_on` = how many claims there are on a node.
    pub(crate) fn take_changed(
        &mut self,
        now: Instant,
        claims_on: impl Fn(Uuid) -> usize,
    ) -> Option<Changed> {
        let claims = if self.are_claims_due(now) {
            self.claims.take_changed(now, self.is_leaving, claims_on)
        } else {
            Vec::new()
        };
        if !self.has_changes() && claims.is_empty() {
            return None;
        }
        Some(Changed {
            instances: std::mem::take(&mut self.instances),
            nodes: std::mem::take(&mut self.nodes),
            bindings: std::mem::take(&mut self.bindings),
            runs: std::mem::take(&mut self.runs),
            claims,
        })
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
        let first = self.waiting.front()?;
        let waiting = (first.ticket <= self.committed).then(|| self.waiting.pop_front())?;
        waiting.map(|waiting| waiting.ready)
    }

    /// STARTs that are not on disk, failures of such as still are, and records to be taken off it.
    pub(crate) fn unwritten(&self) -> usize {
        self.disk.unwritten() + self.recorded.removals()
    }
}
