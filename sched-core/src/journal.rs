//! What must be on disk before what. Changes are collected while one input is handled and handed out as one [`Change`] at
//! its end; what must not happen before a change is on disk waits here for that.
//!
//! [`Journal`] knows which instances, nodes, bindings and claims have changed, not what they are: records are made
//! where the data is, and what waited is done by the caller. Without a state directory nothing is handed out
//! and nothing waits. Files are not touched here.

mod claims;
pub(crate) mod disk;
pub(crate) mod ends;
mod recorded;

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use indexmap::IndexSet;
use sched_model::Uuid;

use crate::api::ids::InstanceId;
use crate::api::record::{Change, Record, RecordKey, Ticket};
use crate::journal::claims::Claims;
pub(crate) use crate::journal::claims::LostPlain;
use crate::journal::disk::Disk;
use crate::journal::ends::Ends;
use crate::journal::recorded::Recorded;
use crate::timers::earlier;

/// What has changed, what waits for it to be on disk, and how the disk is.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    is_on: bool,
    /// Whether the scheduler is about to end: what would be done later is done at once.
    is_leaving: bool,
    instances: IndexSet<InstanceId>,
    nodes: IndexSet<Uuid>,
    bindings: IndexSet<Uuid>,
    /// Runs of instances that are over, by number.
    runs: BTreeSet<u64>,
    claims: Claims,
    /// The latest change that was handed out.
    last: u64,
    /// The latest change that is on disk.
    committed: u64,
    waiting: VecDeque<Waiting>,
    ends: Ends,
    recorded: Recorded,
    disk: Disk,
}

/// What is to be done once something is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The instance's START is given to its node.
    Give,
    /// Those who follow it are told that it waits.
    NotifyWaiting,
    /// Its sender is told that it waits.
    NotifyQueued,
    /// Its move begins.
    Move,
    /// Its launcher is told to suspend or stop it: it is preempted.
    Preempt,
}

/// Something that waited for the disk and need wait no longer.
#[derive(Debug)]
pub(crate) struct Ready {
    instance: InstanceId,
    /// The instance's state that this is about.
    epoch: u64,
    next: Next,
}

/// Something that waits for a change to be on disk.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    ready: Ready,
}

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

impl Ready {
    /// The instance it is about.
    pub(crate) fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// What to do, if the instance's state is still the one that it waited in.
    pub(crate) fn next_in(&self, epoch: u64) -> Option<Next> {
        (self.epoch == epoch).then_some(self.next)
    }
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
    /// A journal without changes; one that is not on keeps nothing.
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// Has an instance, as it is at the end of this input, put on disk, or what is there of it taken away.
    pub(crate) fn note_instance(&mut self, instance: &InstanceId) {
        if self.is_on {
            self.instances.insert(instance.clone());
        }
    }

    /// Has what is kept of a node put on disk.
    pub(crate) fn note_node(&mut self, node: Uuid) {
        if self.is_on {
            self.nodes.insert(node);
        }
    }

    /// Has it put on disk that a UUID is bound. Nothing waits for that: until it is on disk, what a crash undoes is that
    /// one claim.
    pub(crate) fn note_binding(&mut self, uuid: Uuid) {
        if self.is_on {
            self.bindings.insert(uuid);
        }
    }

    /// Has it put on disk how a run of an instance ended, or what is there of it taken away.
    pub(crate) fn note_run(&mut self, number: u64) {
        if self.is_on {
            self.runs.insert(number);
        }
    }

    /// Notes that something of an instance was found on disk.
    pub(crate) fn note_found(&mut self, instance: &InstanceId) {
        if self.is_on {
            self.recorded.note_put(instance, self.last);
        }
    }

    /// The scheduler is about to end.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Whether it is: nothing is let wait any more that would not outlive it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

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

    /// The change with which all that changed so far will be on disk. Tickets never go back.
    pub(crate) fn ticket(&self) -> u64 {
        self.last + u64::from(self.has_changes())
    }

    /// Whether this change is on disk, as far as anything is to be.
    pub(crate) fn is_on_disk(&self, ticket: u64) -> bool {
        !self.is_on || ticket <= self.committed
    }

    /// Everything up to this change is on disk; whether a disk that had been silent answers again.
    pub(crate) fn committed(&mut self, now: Instant, ticket: Ticket) -> bool {
        self.committed = self.committed.max(ticket.0);
        self.recorded.settle(self.committed);
        self.disk
            .progressed(now, self.committed, self.committed < self.last)
    }

    /// Has something done about an instance once all that changed so far is on disk.
    pub(crate) fn wait(&mut self, instance: &InstanceId, epoch: u64, next: Next) {
        let ticket = self.ticket();
        let ready = Ready {
            instance: instance.clone(),
            epoch,
            next,
        };
        self.waiting.push_back(Waiting { ticket, ready });
    }

    /// The next of what can be done by now.
    pub(crate) fn take_ready(&mut self) -> Option<Ready> {
        let first = self.waiting.front()?;
        let waiting = (first.ticket <= self.committed).then(|| self.waiting.pop_front())?;
        waiting.map(|waiting| waiting.ready)
    }

    /// Whether something may be on disk of an instance. What is known of it now is not what a crash would leave then, until
    /// that is on disk as well.
    pub(crate) fn is_recorded(&self, instance: &InstanceId) -> bool {
        self.is_on && self.recorded.put_with(instance).is_some()
    }

    /// Whether what is known of an instance is not on disk.
    pub(crate) fn is_unwritten(&self, instance: &InstanceId) -> bool {
        let put = self.recorded.put_with(instance);
        put.is_some_and(|ticket| ticket > self.committed)
    }

    /// STARTs that are not on disk, failures of such as still are, and records to be taken off it.
    pub(crate) fn unwritten(&self) -> usize {
        self.disk.unwritten() + self.recorded.removals()
    }

    fn has_changes(&self) -> bool {
        !self.instances.is_empty()
            || !self.nodes.is_empty()
            || !self.bindings.is_empty()
            || !self.runs.is_empty()
    }
}
