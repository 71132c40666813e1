//! The scheduler's disk: what it was asked to keep, and what of that had been written when it crashed.
//!
//! Everything is written in the order in which it was given, one or several at a time, and takes its time. A crash loses
//! what was not written yet, and sometimes only that anybody was told of it.
//!
//! For some time it may take no writes, and say so or not. What came meanwhile is one transaction then.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use ciao_scheduler::server::sim_support;
use fastrand::Rng;
use sched_core::{Change, KnownNode, Record, RecordKey, Restored, RestoredStart, Ticket};

/// What is kept.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    nodes: Vec<KnownNode>,
    records: BTreeMap<RecordKey, Record>,
    /// Given, and not written.
    pending: VecDeque<Write>,
    trouble: Option<Trouble>,
}

/// A time in which nothing is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) until: Instant,
    /// Whether the scheduler is told of it when it tries to write.
    pub(crate) is_said: bool,
    /// Whether it was.
    pub(crate) was_said: bool,
}

/// Something to be written.
#[derive(Debug)]
enum Write {
    Nodes(Vec<KnownNode>),
    Change(Change),
}

impl Disk {
    pub(crate) fn remember_nodes(&mut self, nodes: Vec<KnownNode>) {
        self.pending.push_back(Write::Nodes(nodes));
    }

    pub(crate) fn persist(&mut self, change: Change) {
        self.pending.push_back(Write::Change(change));
    }

    /// From now on nothing is written for some time.
    pub(crate) fn fails(&mut self, trouble: Trouble) {
        self.trouble.get_or_insert(trouble);
    }

    /// What keeps it from writing, or did until now.
    pub(crate) fn trouble(&mut self) -> Option<&mut Trouble> {
        self.trouble.as_mut()
    }

    /// Writes some of what waits, at least one; the last change that is written now.
    pub(crate) fn write(&mut self, chance: &mut Rng) -> Option<Ticket> {
        let waiting = self.pending.len();
        let was_in_trouble = self.trouble.take().is_some();
        let count = if waiting > 1 && !was_in_trouble {
            chance.usize(1..=waiting)
        } else {
            waiting
        };
        let written: Vec<Write> = self.pending.drain(..count).collect();
        let mut last = None;
        for write in written {
            match write {
                Write::Nodes(nodes) => self.nodes = nodes,
                Write::Change(change) => {
                    last = Some(change.ticket);
                    self.apply(change);
                }
            }
        }
        last
    }

    /// What is kept elsewhere: all of it.
    pub(crate) fn holds(&mut self, nodes: Vec<KnownNode>, records: Vec<(RecordKey, Record)>) {
        self.nodes = nodes;
        self.records = records.into_iter().collect();
    }

    /// What is kept elsewhere: these are written.
    pub(crate) fn wrote(&mut self, batch: BTreeMap<RecordKey, Option<Record>>) {
        let entries = batch.into_iter().collect();
        let ticket = Ticket::default();
        self.apply(Change { ticket, entries });
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// The scheduler crashes: some of what waited may have been written all the same.
    pub(crate) fn crash(&mut self, chance: &mut Rng) {
        match &mut self.trouble {
            Some(trouble) => trouble.was_said = false,
            None if chance.bool() => {
                let _ = self.write(chance);
            }
            None => {}
        }
        self.pending.clear();
    }

    pub(crate) fn nodes(&self) -> Vec<KnownNode> {
        self.nodes.clone()
    }

    /// What the next scheduler finds, payloads understood as its server does.
    pub(crate) fn restored(&self) -> Vec<Restored> {
        let records = self.records.iter();
        records
            .map(|(key, record)| Restored {
                key: key.clone(),
                record: record.clone(),
                start: start(record),
            })
            .collect()
    }

    /// Records that are kept.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&RecordKey, &Record)> {
        self.records.iter()
    }

    fn apply(&mut self, change: Change) {
        for (key, record) in change.entries {
            match record {
                Some(record) => self.records.insert(key, record),
                None => self.records.remove(&key),
            };
        }
    }
}

fn start(record: &Record) -> Option<Box<RestoredStart>> {
    let (payload, sender) = match record {
        Record::Instance(instance) => (instance.payload.clone()?, instance.sender),
        Record::Array(array) => {
            let end = array.start_bytes as usize;
            (array.payload.slice(..end), array.sender)
        }
        _ => return None,
    };
    sim_support::kept(payload, sender).map(Box::new)
}
