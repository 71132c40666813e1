//! What is done once something is on disk, and what has changed as records at the end of an input.

use crate::Scheduler;
use crate::api::action::{Action, Notice};
use crate::api::disk::DiskSilence;
use crate::api::ids::InstanceId;
use crate::api::record::{BindingRecord, Record, RecordKey, Ticket};
use crate::journal::Next;

impl Scheduler {
    /// Does something about an instance, unless its state changes before, once all that changed so far is on disk.
    pub(crate) fn after_commit(&mut self, instance: &InstanceId, next: Next) {
        if let Some(kept) = self.instances.get(instance) {
            self.journal.wait(instance, kept.epoch(), next);
        }
    }

    /// Everything up to this change is on disk.
    pub(crate) fn committed(&mut self, ticket: Ticket) {
        if self.journal.committed(self.now, ticket) {
            self.notice(Notice::Disk(DiskSilence::Over));
            self.disk_is_back();
        }
    }

    /// Does what waited for the disk and need wait no longer; whether there was anything.
    pub(crate) fn go_on(&mut self) -> bool {
        let mut any = self.acknowledge_recorded() | self.tell_recorded_failures();
        while let Some(ready) = self.journal.take_ready() {
            any = true;
            let is_current = self
                .instances
                .get(&ready.instance)
                .is_some_and(|kept| kept.epoch() == ready.epoch);
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
        let nodes = self.cluster.nodes();
        let claims_on = |uuid| {
            let key = nodes.by_uuid(uuid);
            key.map_or(0, |key| nodes.node(key).ledger().len())
        };
        let Some(changed) = self.journal.take_changed(self.now, claims_on) else {
            return;
        };
        let mut entries = Vec::with_capacity(changed.len());
        for instance in changed.instances {
            let record = self.instance_record(&instance);
            self.journal.note_record(&instance, record.as_ref());
            entries.push((RecordKey::Instance(instance.to_string().into()), record));
        }
        for node in changed.nodes {
            entries.push((RecordKey::Node(node), self.node_record(node)));
        }
        for uuid in changed.bindings {
            let since_ms = self.unix_ms(self.now);
            let record = Record::Binding(BindingRecord { since_ms });
            entries.push((RecordKey::Binding(uuid), Some(record)));
        }
        for number in changed.runs {
            entries.push((RecordKey::Run(number), self.run_record(number)));
        }
        for node in changed.claims {
            entries.push((RecordKey::Claims(node), self.claims_record(node)));
        }
        let change = self.journal.hand_out(self.now, entries);
        self.act(Action::Persist(change));
    }
}
