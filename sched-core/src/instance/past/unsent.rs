//! Runs whose failure is still to be sent to a controller, and changes of runs by their number.

use super::{Past, Run};

impl Past {
    /// Changes a run by its number, if it is remembered.
    pub(in crate::instance) fn amend_numbered(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Run),
    ) {
        if let Some(at) = self.position(number) {
            self.change(at, change);
        }
        if self.get(number).is_some_and(|run| run.unsent().is_none()) {
            self.to_send.remove(&number);
        }
    }

    /// Has the failure that a run tells of sent to the next controller.
    pub(in crate::instance) fn send_later(&mut self, number: u64) {
        if self.get(number).is_some_and(|run| run.unsent().is_some()) {
            self.to_send.insert(number);
        }
    }

    /// The numbers of runs whose failure is to be sent to the next controller, oldest first.
    pub(in crate::instance) fn to_send(&self) -> impl Iterator<Item = u64> {
        self.to_send.iter().copied()
    }
}
