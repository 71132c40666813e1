//! What survives the scheduler: changes are collected while one input is handled, handed out as one
//! [`Change`](super::record::Change) at its end, and what must not happen before it is on disk waits here for that.
//!
//! Without a state directory nothing is handed out and nothing waits. Files are not touched here.

use std::collections::VecDeque;

use indexmap::IndexSet;
use proto_frames::Uuid;

use super::Scheduler;
use super::action::Action;
use super::ids::InstanceId;
use super::record::{Change, RecordKey, Ticket};

/// What is to be done once something is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The instance's START is given to its node.
    Give,
    /// Those who follow it are told that it waits.
    TellWaiting,
    /// Its sender is told that it waits.
    TellQueued,
    /// Its move begins.
    Move,
}

/// What has changed and what waits for it to be on disk.
#[derive(Debug, Default)]
pub(super) struct Durable {
    is_on: bool,
    instances: IndexSet<InstanceId>,
    nodes: IndexSet<Uuid>,
    /// The latest change that was handed out.
    last: u64,
    /// The latest change that is on disk.
    committed: u64,
    waiting: VecDeque<Waiting>,
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
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// Whether something can be done now, or is to be handed out.
    pub(super) fn has_work(&self) -> bool {
        !self.instances.is_empty()
            || !self.nodes.is_empty()
            || self
                .waiting
                .front()
                .is_some_and(|first| first.ticket <= self.committed)
    }

    fn take_ready(&mut self) -> Option<Waiting> {
        let first = self.waiting.front()?;
        (first.ticket <= self.committed).then(|| self.waiting.pop_front())?
    }
}

impl Scheduler {
    /// Has an instance, as it is at the end of this input, put on disk, or what is there of it taken away.
    pub(super) fn remember(&mut self, instance: &InstanceId) {
        if self.durable.is_on {
            self.durable.instances.insert(instance.clone());
        }
    }

    /// Has what an operator decided about a node put on disk.
    pub(super) fn remember_node(&mut self, node: Uuid) {
        if self.durable.is_on {
            self.durable.nodes.insert(node);
        }
    }

    /// Does something about an instance, unless its state changes before, once all that changed so far is on disk.
    pub(super) fn after_commit(&mut self, instance: &InstanceId, next: Next) {
        let Some(kept) = self.instances.get(instance) else {
            return;
        };
        let durable = &mut self.durable;
        let has_changes = !durable.instances.is_empty() || !durable.nodes.is_empty();
        durable.waiting.push_back(Waiting {
            ticket: durable.last + u64::from(has_changes),
            instance: instance.clone(),
            epoch: kept.epoch,
            next,
        });
    }

    /// Everything up to this change is on disk.
    pub(super) fn committed(&mut self, ticket: Ticket) {
        self.durable.committed = self.durable.committed.max(ticket.0);
    }

    /// Does what waited for the disk and need wait no longer; whether there was anything.
    pub(super) fn go_on(&mut self) -> bool {
        let mut any = false;
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
            }
        }
        any
    }

    /// Hands out what has changed, as one change.
    pub(super) fn hand_out_changes(&mut self) {
        let instances = std::mem::take(&mut self.durable.instances);
        let nodes = std::mem::take(&mut self.durable.nodes);
        if instances.is_empty() && nodes.is_empty() {
            return;
        }
        let mut entries = Vec::with_capacity(instances.len() + nodes.len());
        for instance in instances {
            let record = self.instance_record(&instance);
            entries.push((RecordKey::Instance(instance.to_string().into()), record));
        }
        for node in nodes {
            entries.push((RecordKey::Node(node), self.node_record(node)));
        }
        self.durable.last += 1;
        let ticket = Ticket(self.durable.last);
        self.act(Action::Persist(Change { ticket, entries }));
    }
}
