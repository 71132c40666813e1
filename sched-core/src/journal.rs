//! What must be on disk before what. Changes are collected while one input is handled and handed out as one [`Change`] at
//! its end; what must not happen before a change is on disk waits here for that.
//!
//! [`Journal`] knows which instances, nodes, bindings and claims have changed, not what they are: records are made
//! where the data is, and what waited is done by the caller. Without a state directory nothing is handed out
//! and nothing waits. Files are not touched here.

mod claims;
pub(crate) mod disk;
pub(crate) mod ends;
mod progress;
mod recorded;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use indexmap::IndexSet;
use sched_model::Uuid;

use crate::api::ids::InstanceId;
use crate::journal::claims::Claims;
pub(crate) use crate::journal::claims::LostPlain;
use crate::journal::disk::Disk;
use crate::journal::ends::Ends;
pub(crate) use crate::journal::progress::Name;
use crate::journal::recorded::Recorded;

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
    /// Arrays that are new or forgotten.
    arrays: IndexSet<Uuid>,
    /// Arrays that have come further.
    progress: IndexSet<Uuid>,
    claims: Claims,
    /// The latest change that was handed out.
    last: u64,
    /// The latest change that is on disk.
    committed: u64,
    waiting: VecDeque<(u64, Ready)>,
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

impl Journal {
    /// A journal without changes; one that is not on keeps nothing. `patience`: how long a disk may take.
    pub(crate) fn new(is_on: bool, patience: Duration) -> Self {
        let mut journal = Self {
            is_on,
            ..Self::default()
        };
        journal.disk.patience = patience;
        journal
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

    /// Has an array put on disk, or what is there of it taken away.
    pub(crate) fn note_array(&mut self, array: Uuid) {
        if self.is_on {
            self.arrays.insert(array);
            self.progress.insert(array);
        }
    }

    /// Has it put on disk how far an array is.
    pub(crate) fn note_array_progress(&mut self, array: Uuid) {
        if self.is_on {
            self.progress.insert(array);
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

    /// The change with which all that changed so far will be on disk. Tickets never go back.
    pub(crate) fn ticket(&self) -> u64 {
        self.last + u64::from(self.has_changes())
    }

    /// Whether this change is on disk, as far as anything is to be.
    pub(crate) fn is_on_disk(&self, ticket: u64) -> bool {
        !self.is_on || ticket <= self.committed
    }

    /// Has something done about an instance once all that changed so far is on disk.
    pub(crate) fn wait(&mut self, instance: &InstanceId, epoch: u64, next: Next) {
        let ticket = self.ticket();
        let ready = Ready {
            instance: instance.clone(),
            epoch,
            next,
        };
        self.waiting.push_back((ticket, ready));
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

    fn has_changes(&self) -> bool {
        !self.instances.is_empty()
            || !self.nodes.is_empty()
            || !self.bindings.is_empty()
            || !self.runs.is_empty()
            || !self.progress.is_empty()
    }
}
