//! What survives the scheduler: changes are collected while one input is handled, handed out as one
//! [`Change`](crate::api::record::Change) at its end, and what must not happen before it is on disk waits here for that.
//!
//! Without a state directory nothing is handed out and nothing waits. Files are not touched here.

use std::collections::VecDeque;

use indexmap::{IndexMap, IndexSet};
use proto_frames::Uuid;

use crate::Scheduler;
use crate::api::action::{Action, Notice};
use crate::api::disk::DiskSilence;
use crate::api::ids::InstanceId;
use crate::api::record::{BindingRecord, Change, Record, RecordKey, Ticket};
use crate::journal::disk::Disk;
use crate::workflow::ends::Acknowledgement;

/// What is to be done once something is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The instance's START is given to its node.
    Give,
    /// Those who follow it are told that it waits.
    TellWaiting,
    /// Its sender is told that it waits.
    TellQueued,
    /// Its move begins.
    Move,
    /// Its launcher is told that it has to make way.
    MakeWay,
}

/// What has changed and what waits for it to be on disk.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    is_on: bool,
    instances: IndexSet<InstanceId>,
    nodes: IndexSet<Uuid>,
    bindings: IndexSet<Uuid>,
    /// The latest change that was handed out.
    last: u64,
    /// The latest change that is on disk.
    committed: u64,
    waiting: VecDeque<Waiting>,
    /// What nodes are to be told of their ends, one for each node at most.
    acknowledgements: VecDeque<Acknowledgement>,
    /// Instances of which something may be on disk, with the latest change that put it there.
    recorded: IndexMap<InstanceId, u64>,
    /// Instances that were taken off the disk by changes that may not be there yet.
    removals: VecDeque<(u64, InstanceId)>,
    /// How the disk is.
    pub(crate) disk: Disk,
}

/// Something that waits for a change to be on disk.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    instance: InstanceId,
    /// The instance's state that this is about.
    epoch: u64,
    next: Next,
}

impl Durable {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// Whether anything outlives the process.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether something can be done now, or is to be handed out.
    pub(crate) fn has_work(&self) -> bool {
        self.has_changes()
            || self
                .waiting
                .front()
                .is_some_and(|first| first.ticket <= self.committed)
            || self.has_recorded()
            || self.has_failures()
    }

    /// Whether a failure can be told that waited to be on disk.
    pub(crate) fn has_failures(&self) -> bool {
        self.disk.has_failures(self.committed)
    }

    /// Things that wait for the disk.
    pub(crate) fn waiting_for_disk(&self) -> usize {
        self.waiting.len()
    }

    /// Records that are to be taken off the disk, as far as that is not certain.
    pub(crate) fn unsettled(&self) -> usize {
        self.removals.len()
    }

    /// Whether what is known of an instance is not on disk.
    pub(crate) fn is_unwritten(&self, instance: &InstanceId) -> bool {
        let put = self.recorded.get(instance);
        put.is_some_and(|&ticket| ticket > self.committed)
    }

    /// The change with which all that has changed so far is on disk.
    pub(crate) fn ticket(&self) -> u64 {
        self.last + u64::from(self.has_changes())
    }

    /// Has a node told of its ends once that is on disk. Tickets never go back.
    pub(crate) fn acknowledge(&mut self, acknowledgement: Acknowledgement) {
        self.acknowledgements.push_back(acknowledgement);
    }

    /// What can be told by now.
    pub(crate) fn take_recorded(&mut self) -> Option<Acknowledgement> {
        self.has_recorded()
            .then(|| self.acknowledgements.pop_front())?
    }

    fn has_recorded(&self) -> bool {
        let first = self.acknowledgements.front();
        first.is_some_and(|first| first.ticket <= self.committed)
    }

    /// Whether something may be on disk of an instance. What is known of it now is not what a crash would leave then, until
    /// that is on disk as well.
    pub(crate) fn is_recorded(&self, instance: &InstanceId) -> bool {
        self.is_on && self.recorded.contains_key(instance)
    }

    /// Notes that something of an instance was found on disk.
    pub(crate) fn note_found(&mut self, instance: &InstanceId) {
        if self.is_on {
            self.recorded.insert(instance.clone(), self.last);
        }
    }

    /// Notes that a record of an instance is put on disk, or taken off it, by this change.
    fn note_change(&mut self, ticket: u64, instance: &InstanceId, is_put: bool) {
        if is_put {
            self.recorded.insert(instance.clone(), ticket);
        } else if self.recorded.contains_key(instance) {
            self.removals.push_back((ticket, instance.clone()));
        }
    }

    /// Forgets what is off the disk for certain.
    fn settle_removals(&mut self) {
        while let Some((ticket, instance)) = self.removals.front()
            && *ticket <= self.committed
        {
            if self.recorded.get(instance).is_some_and(|put| put < ticket) {
                self.recorded.swap_remove(instance);
            }
            self.removals.pop_front();
        }
    }

    fn has_changes(&self) -> bool {
        !self.instances.is_empty() || !self.nodes.is_empty() || !self.bindings.is_empty()
    }

    fn take_ready(&mut self) -> Option<Waiting> {
        let first = self.waiting.front()?;
        (first.ticket <= self.committed).then(|| self.waiting.pop_front())?
    }
}

impl Scheduler {
    /// Has an instance, as it is at the end of this input, put on disk, or what is there of it taken away.
    pub(crate) fn remember(&mut self, instance: &InstanceId) {
        if self.durable.is_on {
            self.durable.instances.insert(instance.clone());
        }
    }

    /// Has what an operator decided about a node put on disk.
    pub(crate) fn remember_node(&mut self, node: Uuid) {
        if self.durable.is_on {
            self.durable.nodes.insert(node);
        }
    }

    /// Has it put on disk that a UUID is bound. Nobody waits for that: until it is on disk, what a crash undoes is that
    /// one claim.
    pub(crate) fn remember_binding(&mut self, uuid: Uuid) {
        if self.durable.is_on {
            self.durable.bindings.insert(uuid);
        }
    }

    /// Does something about an instance, unless its state changes before, once all that changed so far is on disk.
    pub(crate) fn after_commit(&mut self, instance: &InstanceId, next: Next) {
        let Some(kept) = self.instances.get(instance) else {
            return;
        };
        let epoch = kept.epoch;
        let ticket = self.next_ticket();
        self.durable.waiting.push_back(Waiting {
            ticket,
            instance: instance.clone(),
            epoch,
            next,
        });
    }

    /// The change with which all that changed so far will be on disk.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.durable.last + u64::from(self.durable.has_changes())
    }

    /// Whether this change is on disk, as far as anything is to be.
    pub(crate) fn is_on_disk(&self, ticket: u64) -> bool {
        !self.durable.is_on || ticket <= self.durable.committed
    }

    /// Everything up to this change is on disk.
    pub(crate) fn committed(&mut self, ticket: Ticket) {
        self.durable.committed = self.durable.committed.max(ticket.0);
        self.durable.settle_removals();
        let (committed, last) = (self.durable.committed, self.durable.last);
        let disk = &mut self.durable.disk;
        if disk.progressed(self.now, committed, committed < last) {
            self.notice(Notice::Disk(DiskSilence::Over));
            self.disk_is_back();
        }
    }

    /// Notes a START that is kept from this input on.
    pub(crate) fn note_kept(&mut self, instance: &InstanceId) {
        if self.durable.is_on {
            let ticket = self.durable.last + 1;
            self.durable.disk.note_kept(self.now, ticket, instance);
        }
    }

    /// Does what waited for the disk and need wait no longer; whether there was anything.
    pub(crate) fn go_on(&mut self) -> bool {
        let mut any = self.acknowledge_recorded() | self.tell_recorded_failures();
        while let Some(ready) = self.durable.take_ready() {
            any = true;
            let is_current = self
                .instances
                .get(&ready.instance)
                .is_some_and(|kept| kept.epoch == ready.epoch);
            if !is_current {
                continue;
            }
            match ready.next {
                Next::Give => self.give(&ready.instance),
                Next::TellWaiting => self.tell_waiting(&ready.instance),
                Next::TellQueued => self.tell_queued(&ready.instance),
                Next::Move => self.begin_move(&ready.instance),
                Next::MakeWay => self.make_way(&ready.instance),
            }
        }
        any
    }

    /// Hands out what has changed, as one change.
    pub(crate) fn hand_out_changes(&mut self) {
        let claims = self.take_changed_claims();
        if !self.durable.has_changes() && claims.is_empty() {
            return;
        }
        let instances = std::mem::take(&mut self.durable.instances);
        let nodes = std::mem::take(&mut self.durable.nodes);
        let bindings = std::mem::take(&mut self.durable.bindings);
        let mut entries =
            Vec::with_capacity(instances.len() + nodes.len() + bindings.len() + claims.len());
        let ticket = self.durable.last + 1;
        for instance in instances {
            let record = self.instance_record(&instance);
            self.durable
                .note_change(ticket, &instance, record.is_some());
            entries.push((RecordKey::Instance(instance.to_string().into()), record));
        }
        for node in nodes {
            entries.push((RecordKey::Node(node), self.node_record(node)));
        }
        for uuid in bindings {
            let since_ms = self.unix_ms(self.now);
            let record = Record::Binding(BindingRecord { since_ms });
            entries.push((RecordKey::Binding(uuid), Some(record)));
        }
        for node in claims {
            entries.push((RecordKey::Claims(node), self.claims_record(node)));
        }
        self.durable.last = ticket;
        self.durable.disk.waits(self.now);
        let ticket = Ticket(ticket);
        self.act(Action::Persist(Change { ticket, entries }));
    }
}
