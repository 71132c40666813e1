//! How managed instances end: by themselves, because they are deleted, or because they were cut off; and how an end
//! that is none is told apart: that of a preempted or moving instance, which goes on elsewhere.
//!
//! Every report of an end from a node comes to [`Scheduler::ended`]: from InstanceStopped, InstanceDeleted,
//! StartFailure, DeleteFailure, a row of `ended` in STATS. The ledger says first which START of the node this end
//! belongs to; then the instance's state says what follows:
//!
//! ```text
//!  Stopping: delete        gone                      Placing, Running, ...: own end       gone
//!            preempted     queued again                                    told to stop   placed again
//!            moved         placed elsewhere          Lost                                  gone, or placed again
//!  Migrating               goes to the target        on another node                       this was a copy: ignored
//! ```
//!
//! Where the launcher reports that it had sent the instance no signal ([`Ended::ByItself`]), that is the instance's own end
//! in each of these states, and final: also while it waits to be started again, as long as no node was given that START.

use sched_model::{CommandFailureReason, LifecycleCommand, PhaseName};

use crate::Scheduler;
use crate::api::action::{Message, TargetedCommand};
use crate::api::cause::Cause;
use crate::api::command::Target;
use crate::api::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
use crate::api::parcel::Parcel;
use crate::api::sent::CommandName;
use crate::cluster::Cluster;
use crate::cluster::ledger::{Ended, Entry, EntryEnd, Remains};
use crate::effects::order::COMMAND_TIME;
use crate::instance::{
    AfterLoss, AfterStop, Instance, LifecycleEvent, Move, Placing, State, SuspendedBy,
};

impl Scheduler {
    /// A node reports that it does not have an instance: the one place where an entry in a ledger ends by a node's
    /// report. Returns who is to get that report.
    pub(crate) fn ended(&mut self, key: NodeKey, instance: &InstanceId, how: Ended) -> EndAudience {
        if self.sight().is_last_word(key, instance, how) {
            let audience = self.ended_before_next_run(key, instance);
            let goes_on = audience == EndAudience::Originals;
            self.instances.note_going_on(instance, how, goes_on);
            return audience;
        }
        let is_managed = self.instances.contains(instance);
        // That it is not there tells the sender of a START nothing about it, unlike every other word on an end.
        let unanswered = match how {
            Ended::NotThere => self.cluster.ledger(key).in_doubt(instance),
            Ended::Failed | Ended::Gone | Ended::ByItself | Ended::CutOff => None,
        };
        match self.cluster.end(key, instance, how) {
            EntryEnd::Unknown | EntryEnd::Over if is_managed => {
                let audience = self.managed_ended(key, instance, how, unanswered.is_some());
                let goes_on = audience == EndAudience::Originals;
                self.instances.note_going_on(instance, how, goes_on);
                audience
            }
            EntryEnd::Unknown | EntryEnd::Over => {
                let unanswered = unanswered.map(|start| {
                    let since = self.cluster.entry(key, instance).map(Entry::since);
                    (start, self.cluster.host(key), since)
                });
                self.cluster.release(key, instance);
                if let Some((start, place, since)) = unanswered {
                    self.fail_unconfirmed(instance, start, place, since);
                }
                EndAudience::All
            }
            EntryEnd::Open if is_managed => {
                let is_here = self.instances.get(instance).and_then(Instance::node) == Some(key);
                let audience = self.managed_is_started_again(key, instance, how);
                let goes_on = is_here && audience == EndAudience::Originals;
                self.instances.note_going_on(instance, how, goes_on);
                audience
            }
            // The end itself was reported before.
            EntryEnd::LateStop => EndAudience::NoOne,
            EntryEnd::Open | EntryEnd::Earlier => {
                let managed = self.instances.get(instance);
                let is_elsewhere = managed.and_then(Instance::node).is_some_and(|it| it != key);
                if is_elsewhere {
                    EndAudience::Originals
                } else {
                    EndAudience::All
                }
            }
        }
    }

    /// An instance that waits to be started again has ended by itself before: it is not started again, unless its START
    /// says so of this end.
    fn ended_before_next_run(&mut self, key: NodeKey, instance: &InstanceId) -> EndAudience {
        let node = self.cluster.uuid(key);
        if let Some(managed) = self.instances.get_mut(instance)
            && managed.goes_on_after(Ended::ByItself).is_some()
        {
            managed.note_run_over(node);
            self.journal.note_instance(instance);
            return EndAudience::Originals;
        }
        let claimed = self.instances.get(instance).and_then(Instance::node);
        if let Some(claimed) = claimed.filter(|claimed| *claimed != key) {
            self.cluster.release(claimed, instance);
        }
        self.end_for_good(key, instance, &Cause::Ended)
    }

    /// It has ended on the node where it is and was to stay: it is over, for this cause, or goes on for `why`. Returns who
    /// gets the report.
    fn ended_where_it_is(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        (why, has_failed): (Option<Cause>, bool),
        cause: &Cause,
    ) -> EndAudience {
        match why {
            Some(why) => {
                EndAudience::Originals.if_so(self.reschedule_after_its_end(key, instance, &why))
            }
            None if has_failed => {
                self.start_is_lost(key, instance);
                EndAudience::All
            }
            None => self.end_for_good(key, instance, cause),
        }
    }

    /// It has ended on its node for good. Returns who gets the report.
    fn end_for_good(&mut self, key: NodeKey, instance: &InstanceId, cause: &Cause) -> EndAudience {
        self.cluster.release(key, instance);
        self.end_managing(instance, cause);
        EndAudience::All
    }

    /// A launcher reports the end of a managed instance, and no START of it is on its way there. `is_open`: its START
    /// never arrived, so this is its outcome. Returns who gets the report.
    fn managed_ended(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        how: Ended,
        is_open: bool,
    ) -> EndAudience {
        let node = self.cluster.uuid(key);
        let Some(managed) = self.instances.get_mut(instance) else {
            return EndAudience::All;
        };
        managed.note_run_over(node);
        let why = managed.goes_on_after(how);
        // The START of what ran before has had its outcome.
        let has_failed = is_open && !managed.has_run();
        let is_own = how == Ended::ByItself;
        match managed.state().clone() {
            State::Stopping {
                node,
                then: AfterStop::Wait(_) | AfterStop::Again(_),
                ..
            } if node == key && is_own && why.is_none() => {
                self.ended_before_its_stop(key, instance)
            }
            State::Stopping { node, then, .. } if node == key => match then {
                AfterStop::End(_) if has_failed => {
                    self.start_is_lost(key, instance);
                    EndAudience::All
                }
                AfterStop::End(_) => {
                    let cause = match is_own && why.is_none() {
                        true => Cause::Ended,
                        false => self.cluster.cause_of_delete(key, instance),
                    };
                    self.end_for_good(key, instance, &cause)
                }
                AfterStop::Wait(by) => {
                    EndAudience::Originals.if_so(self.victim_has_ended(key, instance, &by))
                }
                AfterStop::Again(move_request) => {
                    let cause = &Cause::LeftNode;
                    let goes_on = self.release_and_reschedule(key, instance, cause);
                    if goes_on {
                        self.instances.note_demand(instance, move_request.demand);
                    }
                    EndAudience::Originals.if_so(goes_on)
                }
            },
            State::Migrating { from, to, how, .. } if from == key => {
                let goes_on = why.is_some() || how != Move::Claimed && !is_own;
                self.note_left((from, to, how), instance, goes_on)
            }
            state if state.node() == Some(key) => {
                let cause = self.cluster.cause_of_end(Some(key), how);
                self.ended_where_it_is(key, instance, (why, has_failed), &cause)
            }
            State::Lost { node, then, .. } if node == self.cluster.uuid(key) => {
                if let Some(why) = why.filter(|_| then != AfterLoss::Delete) {
                    self.reschedule(instance, &why);
                    return EndAudience::Originals;
                }
                self.end_managing(instance, &self.cluster.cause_of_end(Some(key), how));
                EndAudience::All
            }
            State::Migrating { from, to, .. } if to == key => {
                // This was a copy that should not have been: the room is still for the one that is to come.
                let demand = self.instances.move_request_of(instance).demand;
                let query = self.sight().query_on(from, instance, demand.as_ref());
                self.cluster.release(key, instance);
                self.cluster.claim_as(&query, key, self.now);
                EndAudience::NoOne
            }
            _ => {
                // It is elsewhere, or is to be: this was a copy that should not have been.
                self.cluster.release(key, instance);
                EndAudience::NoOne
            }
        }
    }

    /// An instance that was to be stopped, to be placed again, has ended by itself before its launcher stopped it. A
    /// preemptor has its room all the same; who asked for a move is notified that there was nothing to move.
    fn ended_before_its_stop(&mut self, key: NodeKey, instance: &InstanceId) -> EndAudience {
        let (move_request, reason) = (
            self.instances.move_request_of(instance),
            CommandFailureReason::WrongState,
        );
        let audience = self.end_for_good(key, instance, &Cause::Ended);
        if audience != EndAudience::NoOne {
            let cause = &Cause::EndedBeforeMove;
            self.notify_mover(move_request, instance, key, reason, cause);
        }
        audience
    }

    /// A managed instance has ended while a resent START is on its way to its node: it becomes what that START makes of
    /// it. Commands that were under way for the run that ended have failed.
    fn managed_is_started_again(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        how: Ended,
    ) -> EndAudience {
        let Some(managed) = self.instances.get(instance) else {
            return EndAudience::All;
        };
        let goes_on = managed.goes_on_after(how).is_some();
        match managed.state().clone() {
            State::Running { .. }
            | State::Suspended { .. }
            | State::Resuming { .. }
            | State::Updating { .. }
            | State::Suspending {
                by: SuspendedBy::Command,
                ..
            } if managed.node() == Some(key) => {
                let given_up = self.instances.command_under_way(instance);
                let (event, cause) = (LifecycleEvent::StartedAgain, &Cause::StartedAgain);
                let change = self.instances.changing(instance);
                let goes_on_here = self.turn(instance, event, cause, |cluster| {
                    if let Some((_, change)) = change {
                        cluster.settle_demand(key, instance, &change.before);
                    }
                });
                if !goes_on_here {
                    return EndAudience::NoOne;
                }
                self.notify_given_up(key, instance, given_up);
                if let Some(managed) = self.instances.get_mut(instance) {
                    if !goes_on {
                        managed.note_own_end();
                    }
                    managed.forget_refusals();
                }
            }
            // They end when their launcher has carried out the command, or could not.
            State::Stopping { .. } | State::Migrating { .. } | State::Suspending { .. } => {
                if let Some(managed) = self.instances.get_mut(instance)
                    && goes_on
                {
                    managed.set_stop_sent(true);
                }
                self.journal.note_instance(instance);
            }
            state if state.node() == Some(key) => {}
            _ => return EndAudience::Originals,
        }
        if goes_on {
            EndAudience::Originals
        } else {
            EndAudience::All
        }
    }

    /// An instance was ended by its launcher and is placed again, if it may; a preemptor that waited for its room has it.
    fn reschedule_after_its_end(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        cause: &Cause,
    ) -> bool {
        let given_up = self.instances.command_under_way(instance);
        if !self.release_and_reschedule(key, instance, cause) {
            return false;
        }
        self.leave_queue(instance);
        self.notify_given_up(key, instance, given_up);
        self.note_out_of_the_way(instance);
        true
    }

    /// A SUSPEND, RESUME or UPDATE that was under way cannot be carried out any more, because the instance has ended: its
    /// asker is notified.
    fn notify_given_up(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        given_up: Option<(LifecycleCommand, Option<SessionId>)>,
    ) {
        if let Some((command, asker)) = given_up {
            let reason = CommandFailureReason::Failed;
            let cause = &Cause::EndedOnNode;
            self.notify_asker(asker, instance, key, command, reason, cause);
        }
    }

    /// A node does not list a managed instance any more and has not reported its end. `is_open`: its START has had no
    /// outcome yet.
    pub(crate) fn managed_vanished(&mut self, key: NodeKey, instance: &InstanceId, is_open: bool) {
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        match managed.state().clone() {
            State::Placing(Placing { node, .. }) if node == key => {
                let ledger = self.cluster.ledger(key);
                if managed.has_run() || ledger.counts_starts() {
                    return self.reschedule(instance, &Cause::NodeWithoutIt);
                }
                // An original launcher may yet begin it: nothing is started elsewhere that may run there.
                self.start_is_lost(key, instance);
            }
            State::Stopping { .. } | State::Migrating { .. } => {
                self.managed_ended(key, instance, Ended::NotThere, is_open);
            }
            state if state.node() == Some(key) && managed.state().is_stop_sent() => {
                self.reschedule_after_its_end(key, instance, &Cause::EndedAfterAll);
            }
            state if state.node() == Some(key) => self.end_managing(instance, &Cause::LostByNode),
            _ => {}
        }
    }

    /// DELETE of a managed instance. On no node, it is deleted here; on a lost node, as soon as that is back; otherwise
    /// the command goes to the node that has it, whichever it names.
    pub(crate) fn delete_managed(&mut self, id: SessionId, parcel: Parcel, target: &Target) {
        let instance = target.instance.clone();
        let Some(managed) = self.instances.get(&instance) else {
            return;
        };
        match managed.state().clone() {
            State::Seeking { .. } | State::Waiting { .. } => self.deleted_here(id, &instance),
            State::Placing(Placing {
                node, pending_on, ..
            }) if !pending_on.is_given() => {
                self.cluster.release(node, &instance);
                self.deleted_here(id, &instance);
            }
            State::Lost { until, node, .. } => {
                let event = LifecycleEvent::Deleted { due: until };
                let cause = &Cause::DeletedLost;
                self.transition(&instance, event, cause);
                // It is not deleted yet.
                self.copy_state(id, &instance, PhaseName::Lost, Some(node), cause);
            }
            State::Migrating { from, .. } => {
                let reason = CommandFailureReason::WrongState;
                self.undo_move(&instance, reason, &Cause::BeingDeleted);
                self.delete_on(id, parcel, from, target);
            }
            State::Placing(Placing { node, .. })
            | State::Running { node, .. }
            | State::Suspending { node, .. }
            | State::Suspended { node, .. }
            | State::Resuming { node, .. }
            | State::Updating { node, .. }
            | State::Stopping { node, .. } => self.delete_on(id, parcel, node, target),
        }
    }

    /// Forwards a DELETE to the node that has the instance. If its START is still in that node's queue, the launcher
    /// gets both in order.
    fn delete_on(&mut self, id: SessionId, parcel: Parcel, key: NodeKey, named: &Target) {
        let instance = &named.instance;
        let node = self.cluster.node(key);
        let (uuid, session) = (node.uuid(), node.session());
        let target = Target {
            instance: instance.clone(),
            node: uuid.to_string().into(),
        };
        let Some(session) = session else {
            return self.delete_on_lost(id, key, instance);
        };
        if !self.expect_answer(id, CommandName::Delete, instance) {
            return;
        }
        let due = self.now + COMMAND_TIME;
        let event = LifecycleEvent::Deleted { due };
        let claims = |cluster: &mut Cluster| cluster.ledger_mut(key).stop_sent(instance);
        if !self.turn(instance, event, &Cause::Deleted, claims) {
            return;
        }
        let command = TargetedCommand {
            sender: id,
            target,
            volume: None,
            parcel,
            is_readdressed: canonical_uuid(&named.node) != Some(uuid),
        };
        self.send(session, Message::Targeted(Box::new(command)));
    }

    /// A DELETE for a node that is lost and not given up yet: the instance is to be stopped there, as if its launcher had
    /// not carried out the DELETE before the loss. It is sent the DELETE when it is back.
    fn delete_on_lost(&mut self, id: SessionId, key: NodeKey, instance: &InstanceId) {
        let node = self.cluster.uuid(key);
        // The node is given up before that.
        let due = self.now + self.config.in_doubt_time + COMMAND_TIME;
        let cause = &Cause::DeletedLost;
        let claims = |cluster: &mut Cluster| cluster.ledger_mut(key).stop_is_lost(instance);
        if !self.turn(instance, LifecycleEvent::Deleted { due }, cause, claims) {
            return;
        }
        // It stops once its node is back: until then it is lost.
        self.notify_state(instance, PhaseName::Lost, Some(node), cause);
        self.copy_state(id, instance, PhaseName::Lost, Some(node), cause);
    }

    /// Deletes a managed instance on the scheduler's own account, as part of something that was deleted: as DELETE of it
    /// ([`Scheduler::delete_managed`]), but that no one waits for an answer about it.
    pub(crate) fn delete_here(&mut self, instance: &InstanceId) {
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        match managed.state().clone() {
            State::Seeking { .. } | State::Waiting { .. } => {
                self.end_managing(instance, &Cause::Deleted);
            }
            State::Placing(Placing {
                node, pending_on, ..
            }) if !pending_on.is_given() => {
                self.cluster.release(node, instance);
                self.end_managing(instance, &Cause::Deleted);
            }
            State::Lost { until, .. } => {
                let event = LifecycleEvent::Deleted { due: until };
                self.transition(instance, event, &Cause::DeletedLost);
            }
            State::Migrating { from, .. } => {
                let reason = CommandFailureReason::WrongState;
                self.undo_move(instance, reason, &Cause::BeingDeleted);
                self.end_on(from, instance);
            }
            State::Placing(Placing { node, .. })
            | State::Running { node, .. }
            | State::Suspending { node, .. }
            | State::Suspended { node, .. }
            | State::Resuming { node, .. }
            | State::Updating { node, .. }
            | State::Stopping { node, .. } => self.end_on(node, instance),
        }
    }

    /// Has the launcher of its node end an instance and leave nothing of it; of a node that is lost, once it is back.
    fn end_on(&mut self, key: NodeKey, instance: &InstanceId) {
        let is_lost = self.cluster.session(key).is_none();
        let due = self.now + COMMAND_TIME;
        let (due, cause) = match is_lost {
            true => (due + self.config.in_doubt_time, &Cause::DeletedLost),
            false => (due, &Cause::Deleted),
        };
        if self.turn(instance, LifecycleEvent::Deleted { due }, cause, |_| {}) {
            self.cluster
                .ledger_mut(key)
                .set_remains(instance, Remains::Nothing);
            self.order_end(key, instance, Remains::Nothing);
        }
    }

    /// An instance that is on no node is deleted here.
    fn deleted_here(&mut self, id: SessionId, instance: &InstanceId) {
        self.end_managing(instance, &Cause::Deleted);
        self.notify_deleted(id, instance);
    }

    /// A launcher has not reported in time that it stopped an instance. The instance counts as what its node reported
    /// last; if it ends after all, that is the stop's late effect.
    pub(crate) fn stop_is_late(&mut self, key: NodeKey, instance: &InstanceId) {
        let Some(State::Stopping { then, .. }) = self.instances.state_of(instance) else {
            return;
        };
        let cause = &Cause::NotStoppedInTime;
        if self.take_up_update(instance, cause) {
            return;
        }
        let managed = self.instances.get(instance);
        let by = managed.and_then(|managed| managed.state().suspended_by().cloned());
        let by = by.unwrap_or(SuspendedBy::Command);
        let move_request = self.instances.move_request_of(instance);
        let entry = self.cluster.entry(key, instance);
        // While it is not on disk that it is to stop, its launcher is not told.
        let may_stop = entry.is_some_and(Entry::may_stop);
        let was_told = may_stop || !self.journal.is_unwritten(instance);
        self.rolled_back(key, instance, by, cause);
        self.notify_mover(
            move_request,
            instance,
            key,
            CommandFailureReason::Timeout,
            cause,
        );
        match then {
            AfterStop::Wait(_) | AfterStop::Again(_) if was_told => {
                // Its launcher may still carry it out: an end is not its own then.
                if let Some(managed) = self.instances.get_mut(instance) {
                    managed.set_stop_sent(true);
                }
            }
            AfterStop::Wait(_) | AfterStop::Again(_) | AfterStop::End(_) => {}
        }
        self.note_not_stopped(instance);
    }

    /// A node that was cut off reports again: what it was to stop and still lists is to be stopped as before. Its launcher
    /// may never have read the command, or was restarted before it carried it out.
    pub(crate) fn send_stops_again(&mut self, key: NodeKey) {
        if !self.cluster.ledger_mut(key).take_lost_stops() {
            return;
        }
        let deletes = self.cluster.ledger_mut(key).take_lost_deletes();
        for (instance, remains) in deletes {
            // Copies of what is elsewhere are stopped as they are found.
            if self.cluster.placement(&instance) == Some(key) {
                self.order_end(key, &instance, remains);
            }
        }
        for instance in self.cluster.managed_on(key) {
            if !self.cluster.ledger_mut(key).take_lost_stop(&instance) {
                continue;
            }
            let entry = self.cluster.entry(key, &instance);
            let remains = entry.map(Entry::remains).unwrap_or_default();
            match self.instances.state_of(&instance) {
                Some(State::Stopping { node, then, .. }) if node == key => {
                    let remains = match then {
                        AfterStop::End(_) => remains,
                        AfterStop::Wait(_) | AfterStop::Again(_) => Remains::ForRestart,
                    };
                    self.order_end(key, &instance, remains);
                }
                Some(State::Migrating {
                    from,
                    how: Move::Cold,
                    ..
                }) if from == key => self.order_stop(key, &instance),
                _ => {}
            }
        }
    }
}

/// Who gets a launcher's report of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndAudience {
    /// Everybody whom it concerns.
    All,
    /// Original controllers, as far as they can make sense of it ([`Scheduler::announce_stop`]): native peers get
    /// InstanceState events instead.
    Originals,
    /// No one: the instance is elsewhere, and nothing has changed for clients.
    NoOne,
}

impl EndAudience {
    /// This where the end has changed what it was to change, no one where that was refused.
    fn if_so(self, has_changed: bool) -> Self {
        match has_changed {
            true => self,
            false => Self::NoOne,
        }
    }
}
