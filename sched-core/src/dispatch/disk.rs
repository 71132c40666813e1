//! The disk reports: a change is written, writes fail or are slow, or are possible again; and what has waited for a change
//! to be written is done.

use std::time::Instant;

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::disk::{DiskSilence, DiskState};
use crate::api::record::Ticket;
use crate::journal::Next;

impl Scheduler {
    /// The disk does not take writes any more, or does again.
    pub(crate) fn disk_is(&mut self, state: DiskState) {
        self.journal.disk_is(self.now, state);
        if !self.journal.is_in_trouble() {
            self.disk_is_back();
        } else if self.journal.is_leaving() {
            self.fail_unwritten();
        }
    }

    /// Deals with what has waited for the disk too long: the disk counts as silent, and up to `most` STARTs of each
    /// kind fail.
    pub(crate) fn disk_due(&mut self, now: Instant, most: usize) {
        self.forget_old_claims();
        self.forget_brief();
        if let Some(time) = self.journal.note_silence(now) {
            self.notice(Notice::Disk(DiskSilence::Begun(time)));
        }
        for _ in 0..most {
            let Some(start) = self.pending.take_late(now) else {
                break;
            };
            self.fail_unrecorded(&start);
        }
        for _ in 0..most {
            let Some(start) = self.journal.take_late_unwritten(now) else {
                break;
            };
            self.look_at_unwritten(start);
        }
    }

    /// Every change up to this ticket is on disk. If the disk was taken for dead, it is back.
    pub(crate) fn committed(&mut self, ticket: Ticket) {
        if self.journal.committed(self.now, ticket) {
            self.notice(Notice::Disk(DiskSilence::Over));
            self.disk_is_back();
        }
    }

    /// Does what waited for the disk and need wait no longer: acknowledgements to launchers, failures of STARTs, and
    /// the next steps of instances; whether there was anything.
    pub(crate) fn run_committed(&mut self) -> bool {
        let mut any = self.acknowledge_recorded() | self.notify_recorded_failures();
        while let Some(ready) = self.journal.take_ready() {
            any = true;
            let instance = ready.instance();
            let managed = self.instances.get(instance);
            match managed.and_then(|managed| ready.next_in(managed.epoch())) {
                Some(Next::Give) => self.give(instance),
                Some(Next::NotifyWaiting) => self.notify_waiting(instance),
                Some(Next::NotifyQueued) => self.notify_queued(instance),
                Some(Next::Move) => self.begin_move(instance),
                Some(Next::Preempt) => self.begin_preempting(instance),
                None => {}
            }
        }
        any
    }
}
