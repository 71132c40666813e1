//! A disk for the world: what the core had put there, which of it is there for good, and what a crash leaves.

use std::collections::{BTreeMap, VecDeque};

use proto_frames::Kind;
use sched_core::{
    Cause, Change, InstanceId, Record, RecordKey, Restored, RestoredStart, StartRequest, Ticket,
};

use crate::support::sending::parcel;

/// What is on disk.
#[derive(Debug, Default)]
pub(crate) struct Store {
    records: BTreeMap<RecordKey, Record>,
    /// Handed out and not on disk.
    pending: VecDeque<Change>,
    /// Whether commits wait until the test lets them.
    is_slow: bool,
    done: VecDeque<Ticket>,
}

impl Store {
    /// From now on nothing is on disk before [`Store::commit`].
    pub(crate) fn be_slow(&mut self) {
        self.is_slow = true;
    }

    /// From now on everything is on disk at once, what waited for it too.
    pub(crate) fn be_fast(&mut self) {
        self.is_slow = false;
        self.commit();
    }

    pub(crate) fn take(&mut self, change: Change) {
        self.pending.push_back(change);
        if !self.is_slow {
            self.commit();
        }
    }

    /// Puts all that waits on disk.
    pub(crate) fn commit(&mut self) {
        for change in self.pending.drain(..) {
            for (key, record) in change.entries {
                match record {
                    Some(record) => self.records.insert(key, record),
                    None => self.records.remove(&key),
                };
            }
            self.done.push_back(change.ticket);
        }
    }

    /// A commit that the core is to be told of.
    pub(crate) fn next_commit(&mut self) -> Option<Ticket> {
        self.done.pop_front()
    }

    /// Whether all that was handed out is on disk.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether there is a record of an instance.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.records.contains_key(&RecordKey::Instance(name.into()))
    }

    /// Replaces the detail of every event in the histories of instances.
    pub(crate) fn set_details(&mut self, detail: &str) {
        for record in self.records.values_mut() {
            if let Record::Instance(record) = record {
                record
                    .history
                    .iter_mut()
                    .for_each(|it| it.detail = detail.into());
            }
        }
    }

    /// How many records there are of anything that is not over.
    pub(crate) fn len(&self) -> usize {
        let is_run = |key: &&RecordKey| matches!(key, RecordKey::Run(_));
        self.records.keys().filter(|key| !is_run(key)).count()
    }

    /// How the runs of an instance ended that are over: exit status, and how often it had been retried.
    pub(crate) fn runs_of(&self, name: &str) -> Vec<(Option<i64>, u32)> {
        let runs = self.records.values().filter_map(|record| match record {
            Record::Run(run) if &*run.instance == name => Some((run.exit_code, run.retries)),
            _ => None,
        });
        runs.collect()
    }

    /// Why the latest run of an instance that is over is over, and who asked for that.
    pub(crate) fn last_end_of(&self, name: &str) -> Option<(Option<Cause>, Option<String>)> {
        let runs = self.records.values().filter_map(|record| match record {
            Record::Run(run) if &*run.instance == name => Some(run),
            _ => None,
        });
        let run = runs.max_by_key(|run| run.run)?;
        let last = run.history.last().map(|event| event.cause.clone());
        Some((last, run.by.as_deref().map(str::to_owned)))
    }

    /// What a crash leaves; `request` says what the payload of an instance's START asks for.
    pub(crate) fn crash(
        &mut self,
        request: impl Fn(&InstanceId) -> Option<StartRequest>,
    ) -> Vec<Restored> {
        self.pending.clear();
        self.done.clear();
        let restored = |(key, record): (&RecordKey, &Record)| {
            let start = match (key, record) {
                (RecordKey::Instance(name), Record::Instance(record)) => {
                    let request = request(&InstanceId::new(name));
                    request
                        .zip(record.payload.clone())
                        .map(|(request, payload)| {
                            let parcel = parcel(Kind::START, record.sender, payload);
                            Box::new(RestoredStart {
                                request: request.into(),
                                parcel,
                            })
                        })
                }
                (RecordKey::Array(uuid), Record::Array(record)) => {
                    let payload = record.payload.slice(..record.start_bytes as usize);
                    request(&InstanceId::Uuid(*uuid)).map(|request| {
                        let parcel = parcel(Kind::START, record.sender, payload);
                        Box::new(RestoredStart {
                            request: request.into(),
                            parcel,
                        })
                    })
                }
                _ => None,
            };
            Restored {
                key: key.clone(),
                record: record.clone(),
                start,
            }
        };
        self.records.iter().map(restored).collect()
    }
}
