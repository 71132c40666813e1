//! A node lists a managed instance: what that means depends on what the instance waits for.

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::InstanceState;
use crate::instance::{LifecycleEvent, Placing, State};

impl Scheduler {
    /// A node lists a managed instance, for the first time or in another state than before. What that means depends on
    /// what the instance awaits: confirmation of its START, of a SUSPEND or RESUME, arrival of a move, the return of a
    /// lost node, or nothing, because it should be elsewhere. The ledger has the row already.
    pub(crate) fn listed(&mut self, key: NodeKey, instance: &InstanceId, reported: InstanceState) {
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        let is_suspended = reported == InstanceState::ExitPaused;
        match managed.state().clone() {
            // Its launcher is at it, and may yet fail.
            State::Placing(Placing { pending_on, .. })
                if reported == InstanceState::Pending && pending_on.is_given() => {}
            // Also where its node was not sent the START: it was there, or being started, when its room was claimed.
            State::Placing(Placing { node, .. }) if node == key => {
                let event = LifecycleEvent::Listed { node: key };
                if !self.turn(instance, event, &Cause::Plain, |_| {}) {
                    return;
                }
                if let Some(managed) = self.instances.get_mut(instance) {
                    managed.note_running();
                }
                self.wake_for_preemption(key);
                if is_suspended {
                    self.suspension_reported(key, instance, true);
                }
            }
            State::Suspending { node, .. } | State::Resuming { node, .. } if node == key => {
                self.suspension_reported(key, instance, is_suspended);
            }
            State::Running { node, .. } | State::Suspended { node, .. } if node == key => {
                self.suspension_reported(key, instance, is_suspended);
            }
            State::Migrating { to, .. } if to == key => self.arrived(key, instance),
            State::Lost { then, .. } => self.came_back(key, instance, then, is_suspended),
            state if state.node() != Some(key) => self.found_elsewhere(key, instance, &state),
            _ => {}
        }
    }
}
