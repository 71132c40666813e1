//! The core's side of the disk: which records are handed out at the end of an input. What waits for what is the
//! `journal`'s, and is done by `dispatch::disk`; the records themselves are built in `records`, `drain`, `runs` and
//! `remembered`.
//!
//! The way of a change: a workflow notes what has changed (`journal.note_…`) and what is to follow
//! ([`Scheduler::after_commit`]); at the end of the input all changed records leave as one `Action::Persist` with a
//! ticket; the server's store writes them and hands in `Input::Committed` with the ticket; [`Scheduler::run_committed`]
//! then does what waited.

use crate::Scheduler;
use crate::api::action::Action;
use crate::api::record::{BindingRecord, Record, RecordKey};
use crate::journal::Name;

impl Scheduler {
    /// Hands out all records that have changed as one action. Each is built now, from the state at the end of the
    /// input, so that several changes of one instance make one record; `None` deletes it.
    pub(crate) fn hand_out_changes(&mut self) {
        let cluster = &self.cluster;
        let claims_on = |uuid| {
            let key = cluster.by_uuid(uuid);
            key.map_or(0, |key| cluster.ledger(key).len())
        };
        let Some(changed) = self.journal.take_changed(self.now, claims_on) else {
            return;
        };
        let mut entries = Vec::with_capacity(changed.size_hint().0);
        for name in changed {
            entries.push(match name {
                Name::Instance(instance) => {
                    let record = self.sight().instance_record(&instance);
                    self.journal.note_record(&instance, record.as_ref());
                    (RecordKey::Instance(instance.to_string().into()), record)
                }
                Name::Node(node) => (RecordKey::Node(node), self.sight().node_record(node)),
                Name::Binding(uuid) => {
                    let since_ms = self.clock.unix_ms(self.now);
                    let record = Record::Binding(BindingRecord { since_ms });
                    (RecordKey::Binding(uuid), Some(record))
                }
                Name::Run(number) => (RecordKey::Run(number), self.sight().run_record(number)),
                Name::Claims(node) => (RecordKey::Claims(node), self.sight().claims_record(node)),
                Name::Array(array) => (RecordKey::Array(array), self.sight().array_record(array)),
                Name::ArrayProgress(array) => {
                    let record = self.sight().array_progress_record(array);
                    (RecordKey::ArrayProgress(array), record)
                }
            });
        }
        let change = self.journal.hand_out(self.now, entries);
        self.act(Action::Persist(change));
    }
}
