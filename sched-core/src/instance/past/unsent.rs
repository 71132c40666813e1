//! Runs whose failure is still to be sent to a controller, and changes of runs by their number.

use super::Run;
use crate::instance::Instances;

impl Instances {
    /// Changes a run by its number, if it is remembered.
    pub(crate) fn amend_numbered_run(&mut self, number: u64, change: impl FnOnce(&mut Run)) {
        if let Some(at) = self.past.position(number) {
            self.past.change(at, change);
        }
        if self
            .past
            .get(number)
            .is_some_and(|run| run.unsent().is_none())
        {
            self.past.to_send.remove(&number);
        }
    }

    /// Has the failure that a run tells of, which no controller was sent yet, sent to the next one.
    pub(crate) fn send_failure_later(&mut self, number: u64) {
        if self
            .past
            .get(number)
            .is_some_and(|run| run.unsent().is_some())
        {
            self.past.to_send.insert(number);
        }
    }

    /// The numbers of runs whose failure is to be sent to the next controller, oldest first.
    pub(crate) fn failures_to_send(&self) -> impl Iterator<Item = u64> {
        self.past.to_send.iter().copied()
    }
}
