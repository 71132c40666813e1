//! Failures of STARTs that were acknowledged as recorded: each is sent to a controller at least once, whatever happens to
//! the scheduler meanwhile.
//!
//! 1. The START fails: one change takes its record off the disk, and puts a run there that says why it failed and that
//!    no controller was sent that yet. Nothing is sent before that is on disk: after a crash, the START would be tried,
//!    and would fail, a second time.
//! 2. It is on disk: the failure is sent, and the run's record no longer says that it is to be.
//! 3. After a crash in between, or if there was no controller, it is sent to the controllers that connect next. Whose
//!    START it was is not known then, so all of them get it. One that has died with the scheduler may get it twice.
//!
//! What was never acknowledged is not among these: its sender has no word that it would be remembered.

use sched_model::StartFailure;
use sched_model::query::MAX_LIMIT;

use crate::Scheduler;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::input::Backlog;
use crate::instance::UnsentFailure;

impl Scheduler {
    /// Sends failures whose records have been deleted; whether there was any. Where there is no one to send one to, it
    /// is sent to the next controller.
    pub(crate) fn notify_recorded_failures(&mut self) -> bool {
        let mut any = false;
        while let Some((sender, failure, run)) = self.journal.take_failure() {
            any = true;
            let Some(number) = run else {
                self.notify_failure_now(sender, failure);
                continue;
            };
            self.note_failure(&failure);
            if self.send_failure(sender, &failure) {
                self.set_unsent(number, None);
            } else {
                self.instances.send_failure_later(number);
            }
        }
        any
    }

    /// A failure was not written to its controller, and there is no other: the next one is sent it.
    pub(crate) fn failure_not_written(&mut self, failure: &StartFailure) {
        let instance = InstanceId::new(&failure.instance_uuid);
        let last = self.instances.last_run_of(&instance);
        let is_it = last.is_some_and(|run| run.failed() == Some(&failure.reason));
        if !self.config.durable || !is_it || self.sight().exists(&instance) {
            return;
        }
        if let Some(number) = self.instances.number_of_last_run(&instance) {
            let unsent = UnsentFailure {
                is_restart: failure.restart,
            };
            self.set_unsent(number, Some(unsent));
            self.instances.send_failure_later(number);
        }
    }

    /// A controller is sent a failure that it missed, in place of the one that its run's record still asks for.
    pub(crate) fn failure_is_sent(&mut self, failure: &StartFailure) {
        let instance = InstanceId::new(&failure.instance_uuid);
        let last = self.instances.last_run_of(&instance);
        if last.is_some_and(|run| run.unsent().is_some() && run.failed() == Some(&failure.reason))
            && let Some(number) = self.instances.number_of_last_run(&instance)
        {
            self.set_unsent(number, None);
        }
    }

    /// Whether there are failures to be sent, and a master whose queue is short and which was sent its snapshot, with the
    /// failures that it missed.
    pub(crate) fn has_failures_to_send(&self) -> bool {
        // First what is so as a rule: this is asked after each input.
        if self.instances.failures_to_send().next().is_none() {
            return false;
        }
        let master = self
            .peers
            .master()
            .and_then(|master| self.peers.get(master));
        master.is_some_and(|session| session.backlog() == Backlog::Clear) && !self.sync.is_open()
    }

    /// Sends the controllers failures of which none was sent before; as many as a page of a snapshot has rows, the rest
    /// in a tick that is due at once. A failure to start an instance that exists by now, or that ran since, is left
    /// out.
    pub(crate) fn send_unsent_failures(&mut self) {
        if !self.has_failures_to_send() {
            return;
        }
        let numbers: Vec<u64> = self
            .instances
            .failures_to_send()
            .take(MAX_LIMIT as usize)
            .collect();
        for number in numbers {
            if let Some(failure) = self.sight().unsent_failure(number) {
                self.send_failure(SessionId(0), &failure);
            }
            self.set_unsent(number, None);
        }
    }
}
