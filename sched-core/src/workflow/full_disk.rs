//! A disk that takes no writes, or is too slow: what needs it fails within [`crate::DISK_PATIENCE`], everything else
//! goes on.
//!
//! ```text
//!  a START that must survive a restart     held until the disk is back, else StartFailure not_recorded
//!  a plain START                           placed as ever
//!  accepted, not on disk, not at a node    fails in the same way
//!  accepted and on disk                    waits for the disk; nothing is stopped for it meanwhile
//!  a command whose outcome is recorded     refused (native peers), carried out (original peers)
//! ```
//!
//! So no client is told that something was accepted which a restart would forget, and nothing that was acknowledged is
//! given up.

use sched_model::{EvacuateMode, StartFailureReason};

use crate::Scheduler;
use crate::api::command::Command;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::refused::RefusalCause;
use crate::api::start::PlacedStart;
use crate::instance::{Placing, State};
use crate::journal::disk::Unwritten;
use crate::pending::Waits;
use crate::placement::explain::Explanation;
use crate::query::known::Known;
use crate::sight::Sight;

impl Scheduler {
    /// Holds a START that needs a disk which takes no writes; gives it back if it does not need it. One that cannot be
    /// held, because there are too many or the scheduler leaves, fails at once.
    pub(crate) fn hold_for_disk(&mut self, start: Box<PlacedStart>) -> Option<Box<PlacedStart>> {
        if !self.journal.is_in_trouble() || !self.sight().needs_disk(&start) {
            return Some(start);
        }
        let instance = &start.request.instance;
        // Of a batch: the START that waits there came first, and this one takes its place.
        if self.pending.batch_of(instance).is_some() {
            return Some(start);
        }
        // The newer one takes its place, also where no more may wait.
        self.pending.take(instance);
        let held = if self.journal.is_leaving() {
            Err(start)
        } else {
            let until = self.now + self.journal.patience();
            self.pending.hold_for_disk(until, start)
        };
        if let Err(start) = held {
            self.fail_unrecorded(&start);
        }
        None
    }

    /// Fails a START that was accepted and is not on disk in time, unless its node has it by now: then it is looked at
    /// again later, since the node may still refuse it.
    pub(crate) fn look_at_unwritten(&mut self, start: Unwritten) {
        let instance = &start.instance;
        let managed = self.instances.get(instance);
        let Some(managed) =
            managed.filter(|managed| managed.arrived() == start.arrived && !managed.has_run())
        else {
            return;
        };
        if self.journal.is_on_disk(start.ticket) {
            return;
        }
        match managed.state() {
            State::Waiting { .. } => {}
            State::Placing(Placing {
                node, pending_on, ..
            }) if !pending_on.is_given() => {
                let node = *node;
                self.cluster.release(node, instance);
            }
            // Its node may yet refuse it.
            State::Placing(_) => return self.journal.look_later(self.now, start),
            _ => return,
        }
        let why = Explanation::of(self.journal.trouble_cause());
        self.fail_managed(instance, StartFailureReason::NotRecorded, None, why);
    }

    /// Fails all STARTs that are not on disk, because the scheduler leaves and would not know them when it is back.
    pub(crate) fn fail_unwritten(&mut self) {
        for start in self.pending.take_for_disk() {
            self.fail_unrecorded(&start);
        }
        for start in self.journal.take_unwritten() {
            self.look_at_unwritten(start);
        }
        self.fail_unwritten_batches(&self.journal.trouble_cause());
    }

    /// Fails a START because it could not be recorded. This reason is a word of this project; original peers get the
    /// cause as text.
    pub(crate) fn fail_unrecorded(&mut self, start: &PlacedStart) {
        let why = Explanation::of(self.journal.trouble_cause());
        self.fail_with(start, StartFailureReason::NotRecorded, why);
    }

    /// Refuses a command whose outcome would have to survive a restart while nothing can be written; whether it did.
    /// The original protocol has no such refusal, so commands of original peers are carried out.
    pub(crate) fn refuse_if_unwritable(&mut self, id: SessionId, command: &Command) -> bool {
        let is_refused = self.journal.is_in_trouble()
            && self.peers.is_native(id)
            && self.sight().is_to_be_written(command);
        if is_refused {
            let instance = match command {
                Command::Delete(target) | Command::Stop(target) | Command::Forget(target) => {
                    Some(target.instance.clone())
                }
                Command::Migrate(it) => Some(InstanceId::new(&it.instance_uuid)),
                Command::Update(it) => Some(InstanceId::new(&it.instance_uuid)),
                _ => None,
            };
            let cause = RefusalCause::NotRecorded(Box::new(self.journal.trouble_cause()));
            self.refuse(id, command.name().into(), cause, instance.as_ref());
        }
        is_refused
    }
}

impl Sight<'_> {
    /// Whether a START would have to survive a restart, or would make a record on disk untrue, or an earlier one of its
    /// instance waits for the disk. A dry run does not, nor does a START of an instance that exists.
    fn needs_disk(&self, start: &PlacedStart) -> bool {
        let request = &start.request;
        let asked = request.scheduling.as_deref();
        if asked.is_some_and(|asked| asked.dry_run) {
            return false;
        }
        if let Some(Waits::Disk(_)) = self.pending.waits(&request.instance) {
            return true;
        }
        if self.known(&request.instance) != Known::Nowhere {
            return false;
        }
        request.asks_to_be_managed()
            || asked.is_some_and(|asked| asked.batch.is_some())
            || self.journal.is_recorded(&request.instance)
            || (self.journal.is_crowded() && self.placement.manages(request))
    }

    /// Whether the outcome of a command would have to survive a restart.
    fn is_to_be_written(&self, command: &Command) -> bool {
        match command {
            Command::Delete(target) | Command::Stop(target) | Command::Forget(target) => {
                self.is_here_alone(&target.instance) || self.array_of(&target.instance).is_some()
            }
            Command::Migrate(_) | Command::Update(_) | Command::Restore(_) | Command::Array(_) => {
                true
            }
            Command::Evacuate(it) => match it.mode {
                EvacuateMode::Cordon
                | EvacuateMode::Relocate
                | EvacuateMode::Abort
                | EvacuateMode::Forget => true,
                EvacuateMode::Check | EvacuateMode::Other(_) => false,
            },
            _ => false,
        }
    }

    /// Whether an instance is known to the scheduler and to no node, and on disk: it would be back after a restart.
    fn is_here_alone(&self, instance: &InstanceId) -> bool {
        let managed = self.instances.get(instance);
        self.journal.is_recorded(instance)
            && managed.is_some_and(|managed| {
                let state = managed.state();
                state.is_not_given() || matches!(state, State::Lost { .. })
            })
    }
}
