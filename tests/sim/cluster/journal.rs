//! What a leader writes to the records in etcd: changes of its core, all that wait at once, one write at a time; and the
//! list of nodes.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ciao_scheduler::cluster::{Records, Written};
use ciao_scheduler::server::{Entries, sim_support};
use sched_core::{Change, KnownNode, Record, RecordKey, Ticket};

use super::calls::Calls;

/// Pause after a write that has failed, the first time and the longest: as of the store's own thread.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Writes of one leader.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) records: Rc<Records<Calls, Calls>>,
    /// Not there while something is written.
    pub(crate) written: Option<Written>,
    /// To be written, with what is being written.
    batch: BTreeMap<RecordKey, Option<Record>>,
    ticket: Ticket,
    /// Came since.
    later: Vec<Change>,
    nodes: Option<Vec<KnownNode>>,
    /// Why the last write has failed.
    pub(crate) refused: Option<String>,
    pause: Duration,
    is_pausing: bool,
}

/// The next write.
pub(crate) enum Next {
    Batch(Entries),
    Nodes(String),
}

impl Journal {
    pub(crate) fn new(records: Rc<Records<Calls, Calls>>, written: Written) -> Self {
        Self {
            records,
            written: Some(written),
            batch: BTreeMap::new(),
            ticket: Ticket::default(),
            later: Vec::new(),
            nodes: None,
            refused: None,
            pause: FIRST_PAUSE,
            is_pausing: false,
        }
    }

    pub(crate) fn push(&mut self, change: Change) {
        self.later.push(change);
    }

    pub(crate) fn remember_nodes(&mut self, nodes: Vec<KnownNode>) {
        self.nodes = Some(nodes);
    }

    /// A list that was not written is to be, unless there is a later one.
    pub(crate) fn keep_nodes(&mut self, nodes: Vec<KnownNode>) {
        self.nodes.get_or_insert(nodes);
    }

    /// What is to be written now, if anything is, and what has the state of it.
    pub(crate) fn next(&mut self) -> Option<(Next, Written)> {
        if self.is_pausing || self.written.is_none() {
            return None;
        }
        for change in self.later.drain(..) {
            self.ticket = change.ticket;
            self.batch.extend(change.entries);
        }
        let next = match self.nodes.take_if(|_| self.batch.is_empty()) {
            Some(nodes) => Next::Nodes(sim_support::list_of_nodes(&nodes)),
            None if self.batch.is_empty() => return None,
            None => Next::Batch(sim_support::entries(&self.batch)),
        };
        Some((next, self.written.take()?))
    }

    /// A batch is written: what it was, and the newest change in it.
    pub(crate) fn wrote(&mut self) -> (BTreeMap<RecordKey, Option<Record>>, Ticket) {
        self.pause = FIRST_PAUSE;
        (std::mem::take(&mut self.batch), self.ticket)
    }

    /// A batch was not written, or it is not known: how long to wait.
    pub(crate) fn failed(&mut self) -> Duration {
        self.is_pausing = true;
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }

    pub(crate) fn goes_on(&mut self) {
        self.is_pausing = false;
    }
}
