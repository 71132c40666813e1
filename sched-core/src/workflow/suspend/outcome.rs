//! What follows a SUSPEND or RESUME: the launcher's answer, in an event or in STATS, and what is done if none comes in
//! time.
//!
//! What counts is what the launcher reports, not what it was sent: each method compares the report with the state the
//! instance is in, and a report that fits no command under way is taken as a change from outside. vcpus follow the same
//! rule: they are claimed while the instance runs or may be resumed, and free while it is certainly suspended.

use sched_model::{CommandFailureReason, LifecycleCommand};

use super::RESUME_AGAIN_AFTER;
use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::Capabilities;
use crate::cluster::ledger::{Entry, Suspension};
use crate::effects::order::suspension;
use crate::instance::{LifecycleEvent, State, SuspendedBy};
use crate::timers::Timer;

impl Scheduler {
    /// A launcher reports whether an instance is suspended.
    ///
    /// ```text
    ///                reported suspended                 reported running
    ///  Suspending    done                               (still under way)
    ///  Resuming      failed: stays suspended            done
    ///  Running       suspended from outside             -
    ///  Suspended     its vcpus are free again           resumed from outside
    /// ```
    pub(crate) fn suspension_reported(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        is_suspended: bool,
    ) {
        let Some(state) = self
            .instances
            .state_of(instance)
            .filter(|it| it.node() == Some(key))
        else {
            return;
        };
        let entry = self.cluster.entry(key, instance);
        if is_suspended && entry.is_some_and(Entry::is_resume_sent) {
            // The launcher said this before it had carried out the RESUME that it was sent.
            return;
        }
        match (state, is_suspended) {
            (State::Suspending { by, .. }, true) => {
                self.note_suspended(key, instance, by, &Cause::Plain)
            }
            (State::Resuming { .. }, false) => {
                self.runs_again(key, instance, LifecycleEvent::Runs, &Cause::Plain)
            }
            (State::Resuming { by, asker, .. }, true) => {
                let cause = &Cause::CutOffBeforeResumed;
                let (command, reason) = (LifecycleCommand::Resume, CommandFailureReason::Failed);
                self.stays_suspended(key, instance, by, cause);
                self.notify_asker(asker, instance, key, command, reason, cause);
            }
            (State::Running { .. }, true) if self.cluster.node(key).can(Capabilities::SUSPEND) => {
                // It may have been told to by a command that seemed to have no effect.
                let by = self.instances.get(instance);
                let by = by.and_then(|managed| managed.state().suspended_by().cloned());
                self.note_suspended(
                    key,
                    instance,
                    by.unwrap_or(SuspendedBy::Command),
                    &Cause::NotFromHere,
                );
            }
            (State::Suspended { .. }, false) => {
                self.runs_again(key, instance, LifecycleEvent::Runs, &Cause::NotFromHere);
            }
            // A RESUME was under way that might have been carried out.
            (State::Suspended { by, .. }, true) => {
                let mut ledger = self.cluster.ledger_mut(key);
                ledger.note_suspended(instance, suspension(&by));
                drop(ledger);
                if by != SuspendedBy::Command && !self.queue.contains(instance) {
                    self.wait_for_resume(instance, key);
                }
            }
            // It is thawed so that it can stop, and until then it has what it has.
            (State::Stopping { .. } | State::Migrating { .. }, false) => {
                let mut ledger = self.cluster.ledger_mut(key);
                ledger.set_suspended(instance, Suspension::None);
            }
            _ => {}
        }
    }

    /// An instance is suspended. If it was for a preemptor, it waits to be resumed, and the preemptor has one victim
    /// less to wait for.
    fn note_suspended(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        by: SuspendedBy,
        cause: &Cause,
    ) {
        let (is_preempted, cause) = match &by {
            SuspendedBy::Preemptor(by) => (true, &Cause::LeftFor(by.clone())),
            SuspendedBy::Command => (false, cause),
        };
        let suspension = suspension(&by);
        let event = LifecycleEvent::IsSuspended { by };
        let is_suspended = self.turn(instance, event, cause, |cluster| {
            let mut ledger = cluster.ledger_mut(key);
            ledger.note_suspended(instance, suspension);
        });
        if is_suspended && is_preempted {
            self.wait_for_resume(instance, key);
            self.note_out_of_the_way(instance);
        }
    }

    /// An instance runs, because of this event: its vcpus are claimed, and it may be preempted again, which is offered
    /// to those that wait.
    pub(crate) fn runs_again(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        event: LifecycleEvent,
        cause: &Cause,
    ) {
        let runs = self.turn(instance, event, cause, |cluster| {
            let mut ledger = cluster.ledger_mut(key);
            ledger.set_suspended(instance, Suspension::None);
        });
        if runs {
            self.wake_for_preemption(key);
        }
    }

    /// An instance that was to be resumed was not. If it was suspended for a preemptor, it is tried again after a
    /// pause.
    pub(crate) fn stays_suspended(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        by: SuspendedBy,
        cause: &Cause,
    ) {
        let (is_evicted, suspension) = (by != SuspendedBy::Command, suspension(&by));
        let suspended = Some(by);
        let event = LifecycleEvent::Reverted { suspended };
        let stays = self.turn(instance, event, cause, |cluster| {
            let mut ledger = cluster.ledger_mut(key);
            ledger.note_suspended(instance, suspension);
        });
        if stays && is_evicted {
            // It is not put back into the queue at once: it would be tried again as fast as its launcher answers.
            let due = self.now + RESUME_AGAIN_AFTER;
            self.timers.set(Timer::LookAgain(instance.clone()), due);
        }
    }

    /// A launcher has not answered a SUSPEND or RESUME in time: who asked is notified, and the instance counts as what
    /// its node reported last.
    pub(crate) fn suspension_late(&mut self, instance: &InstanceId) {
        let cause = &Cause::NotDoneInTime;
        let reason = CommandFailureReason::Timeout;
        match self.instances.state_of(instance) {
            Some(State::Suspending {
                node, by, asker, ..
            }) => {
                self.notify_asker(
                    asker,
                    instance,
                    node,
                    LifecycleCommand::Suspend,
                    reason,
                    cause,
                );
                self.rolled_back(node, instance, by.clone(), cause);
                if let SuspendedBy::Preemptor(preemptor) = &by {
                    self.victim_stays(preemptor, instance);
                    // Its launcher may still carry the SUSPEND out.
                    let state = self.instances.state_of(instance);
                    if matches!(state, Some(State::Running { .. }))
                        && self.cluster.session(node).is_some()
                    {
                        self.order_resume(node, instance, by, None, &Cause::RoomNotNeeded);
                    }
                }
            }
            Some(State::Resuming {
                node, by, asker, ..
            }) => {
                self.notify_asker(
                    asker,
                    instance,
                    node,
                    LifecycleCommand::Resume,
                    reason,
                    cause,
                );
                self.rolled_back(node, instance, by, cause);
            }
            _ => {}
        }
    }

    /// A command had no effect that was reported: the instance is what its node reported last. Its vcpus stay claimed
    /// where the launcher may still resume it.
    pub(crate) fn rolled_back(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        by: SuspendedBy,
        cause: &Cause,
    ) {
        let entry = self.cluster.entry(key, instance);
        if entry.is_some_and(Entry::is_held_back) {
            self.stays_suspended(key, instance, by, cause);
        } else {
            self.runs_again(
                key,
                instance,
                LifecycleEvent::Reverted { suspended: None },
                cause,
            );
        }
    }
}
