//! How instances that are managed end: by themselves, because they are deleted or were cut off, or because they had to
//! leave or move, which is not their end.

use sched_model::{CommandFailureReason, InstanceDeleted, LifeCommand, StartFailureReason, Topic};

use crate::Scheduler;
use crate::api::action::{Message, TargetedCommand};
use crate::api::cause::Cause;
use crate::api::command::Target;
use crate::api::declined::Refusal;
use crate::api::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
use crate::api::parcel::Parcel;
use crate::api::phase::EventKind;
use crate::api::sent::CommandName;
use crate::cluster::ledger::{Ended, Entry, EntryEnd};
use crate::instance::{AfterLoss, By, Instance, LifecycleEvent, Placing, State, Then};
use crate::placement::explain::Explanation;
use crate::workflow::care::COMMAND_TIME;

impl Scheduler {
    /// A node says that it does not have an instance: the one place where an entry ends by what a node says. Who hears of
    /// it.
    pub(crate) fn ended(&mut self, key: NodeKey, instance: &InstanceId, how: Ended) -> Heard {
        let is_kept = self.instances.contains(instance);
        // That it is not there tells the sender of a START nothing about it, unlike every other word on an end.
        let unanswered = match how {
            Ended::NotThere => self.cluster.nodes().node(key).ledger().in_doubt(instance),
            Ended::Failed | Ended::Gone | Ended::CutOff => None,
        };
        match self.end_entry(key, instance, how) {
            EntryEnd::Unknown | EntryEnd::Over if is_kept => {
                self.kept_ended(key, instance, how, unanswered.is_some())
            }
            EntryEnd::Unknown | EntryEnd::Over => {
                self.release(key, instance);
                if let Some(start) = unanswered {
                    self.fail_unconfirmed(instance, start);
                }
                Heard::Everybody
            }
            EntryEnd::Open if is_kept => self.kept_is_started_again(key, instance, how),
            EntryEnd::Open | EntryEnd::Earlier => {
                let kept = self.instances.get(instance);
                let is_elsewhere = kept.and_then(Instance::node).is_some_and(|it| it != key);
                if is_elsewhere {
                    Heard::Originals
                } else {
                    Heard::Everybody
                }
            }
        }
    }

    /// A node says that an instance has ended which goes on elsewhere. Original controllers know no word for that: they
    /// call an instance that has stopped `exited`, and start a CNCI again at once, beside the one that is on its way. So
    /// they are told only once it is on no node and waits; of what moves, the STATS of its next node tell them. Of network
    /// workloads, which CNCIs are, they are not told at all.
    pub(crate) fn pause_told(&mut self, from: SessionId, parcel: Parcel, instance: &InstanceId) {
        let Some(kept) = self.instances.get_mut(instance) else {
            return;
        };
        if !kept.state().is_waiting() {
            kept.note_pause_unsaid();
        } else if !kept.is_network_workload() {
            self.tell_originals(Some(from), || Message::Forward(parcel.clone()));
        }
    }

    /// Tells original controllers that an instance has stopped which went on elsewhere before, and waits now.
    pub(crate) fn tell_unsaid_pause(&mut self, instance: &InstanceId) {
        let kept = self.instances.get(instance);
        if kept.is_none_or(Instance::is_network_workload) {
            return;
        }
        self.tell_originals(None, || Message::InstanceStopped(instance.clone()));
    }

    /// Counts the STARTs of an instance that are on their way to a node which says that it does not have it, and says
    /// whether its entry is over. Releasing it is the caller's.
    pub(crate) fn end_entry(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        how: Ended,
    ) -> EntryEnd {
        self.cluster.end(key, instance, how)
    }

    /// A launcher says that a managed instance has ended on it, while the outcome of its START `is_open`
    /// because it never arrived, or not; whether original controllers alone are to hear of it, because it is not its end.
    fn kept_ended(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        how: Ended,
        is_open: bool,
    ) -> Heard {
        let Some(kept) = self.instances.get(instance) else {
            return Heard::Everybody;
        };
        let why = kept.goes_on_after(how);
        // The START of what ran before has had its outcome.
        let has_failed = is_open && !kept.has_run();
        match kept.state().clone() {
            State::Stopping { node, then, .. } if node == key => {
                if !self.may(instance, then.event()) {
                    return Heard::NoOne;
                }
                self.release(key, instance);
                match then {
                    Then::End(_) if has_failed => {
                        self.start_is_lost(key, instance);
                        Heard::Everybody
                    }
                    Then::End(_) => {
                        self.end_managing(instance, &Cause::Stopped);
                        Heard::Everybody
                    }
                    Then::Wait(by) => {
                        self.victim_is_away(instance, &by);
                        Heard::Originals
                    }
                    Then::Again(errand) => {
                        self.note_demand(instance, errand.demand);
                        self.seek(instance, &Cause::LeftNode);
                        Heard::Originals
                    }
                }
            }
            State::Migrating { from, to, how, .. } if from == key => {
                self.note_left((from, to, how), instance, why.is_some())
            }
            state if state.node() == Some(key) => {
                let event = match why {
                    Some(_) => EventKind::Sought,
                    None => EventKind::Ended,
                };
                if !self.may(instance, event) {
                    return Heard::NoOne;
                }
                self.release(key, instance);
                let Some(why) = why else {
                    if has_failed {
                        self.start_is_lost(key, instance);
                    } else {
                        self.end_managing(instance, &Cause::Ended);
                    }
                    return Heard::Everybody;
                };
                self.seek_after_its_end(key, instance, &why);
                Heard::Originals
            }
            State::Lost { node, then, .. } if node == self.cluster.nodes().node(key).uuid() => {
                if let Some(why) = why.filter(|_| then != AfterLoss::Delete) {
                    self.seek(instance, &why);
                    return Heard::Originals;
                }
                self.end_managing(instance, &Cause::Ended);
                Heard::Everybody
            }
            _ => {
                // It is elsewhere, or is to be: this was a copy that should not have been.
                self.release(key, instance);
                Heard::NoOne
            }
        }
    }

    /// An instance that is managed has ended, and a START of it is on its way to its node: what becomes of it is what
    /// becomes of that. What its launcher was told of it beside comes after that START.
    fn kept_is_started_again(&mut self, key: NodeKey, instance: &InstanceId, how: Ended) -> Heard {
        let Some(kept) = self.instances.get(instance) else {
            return Heard::Everybody;
        };
        let goes_on = kept.goes_on_after(how).is_some();
        match kept.state().clone() {
            State::Running { .. }
            | State::Suspended { .. }
            | State::Resuming { .. }
            | State::Updating { .. }
            | State::Suspending {
                by: By::Command, ..
            } if kept.node() == Some(key) => {
                if !self.may(instance, EventKind::StartedAgain) {
                    return Heard::NoOne;
                }
                self.give_up_command(key, instance);
                if let Some(kept) = self.instances.get_mut(instance) {
                    if !goes_on {
                        kept.note_own_end();
                    }
                    kept.forget_refusals();
                }
                let cause = &Cause::StartedAgain;
                self.turn(instance, LifecycleEvent::StartedAgain, cause);
            }
            // They end when their launcher has done, or could not do, what it was told.
            State::Stopping { .. } | State::Migrating { .. } | State::Suspending { .. } => {
                if let Some(kept) = self.instances.get_mut(instance)
                    && goes_on
                {
                    kept.set_told_to_stop(true);
                }
                self.journal.note_instance(instance);
            }
            state if state.node() == Some(key) => {}
            _ => return Heard::Originals,
        }
        if goes_on {
            Heard::Originals
        } else {
            Heard::Everybody
        }
    }

    /// An instance has left its node by an end that is not its own, and is placed again; who waits for its room has it.
    fn seek_after_its_end(&mut self, key: NodeKey, instance: &InstanceId, cause: &Cause) {
        self.queue.remove(instance);
        self.give_up_command(key, instance);
        self.seek(instance, cause);
        self.note_out_of_the_way(instance);
    }

    /// What a launcher was told of an instance comes to nothing, because it has ended: who asked for it is told.
    fn give_up_command(&mut self, key: NodeKey, instance: &InstanceId) {
        let command = match self.state_of(instance) {
            Some(State::Suspending { .. }) => LifeCommand::Suspend,
            Some(State::Resuming { .. }) => LifeCommand::Resume,
            Some(State::Updating { change, .. }) => {
                self.settle_demand(key, instance, &change.before);
                LifeCommand::Update
            }
            _ => return,
        };
        let reason = CommandFailureReason::Failed;
        let asker = self.asker_of(instance);
        let cause = &Cause::EndedOnNode;
        self.tell_asker(asker, instance, key, command, reason, cause);
    }

    /// A START never arrived, and its instance, which is on no node, is not to be placed again.
    fn start_is_lost(&mut self, key: NodeKey, instance: &InstanceId) {
        let uuid = self.cluster.nodes().node(key).uuid();
        let why = Explanation::of(Refusal::Lost.into());
        let reason = StartFailureReason::LaunchFailure;
        self.fail_kept(instance, reason, Some(uuid), why);
    }

    /// A node does not list a managed instance any more, without having said that it ended; the outcome of its
    /// START `is_open`, or not.
    pub(crate) fn kept_vanished(&mut self, key: NodeKey, instance: &InstanceId, is_open: bool) {
        let Some(kept) = self.instances.get(instance) else {
            return;
        };
        match kept.state().clone() {
            State::Placing(Placing { node, .. }) if node == key => {
                let ledger = self.cluster.nodes().node(key).ledger();
                if kept.has_run() || ledger.counts_starts() {
                    return self.seek(instance, &Cause::NodeWithoutIt);
                }
                // An original launcher may yet begin it: nothing is started elsewhere that may run there.
                self.start_is_lost(key, instance);
            }
            State::Stopping { .. } | State::Migrating { .. } => {
                self.kept_ended(key, instance, Ended::NotThere, is_open);
            }
            state if state.node() == Some(key) && kept.state().is_told_to_stop() => {
                self.seek_after_its_end(key, instance, &Cause::EndedAfterAll);
            }
            state if state.node() == Some(key) => self.end_managing(instance, &Cause::LostByNode),
            _ => {}
        }
    }

    /// DELETE of an instance that is managed: it goes to the node that has it, whichever the command names.
    pub(crate) fn delete_kept(&mut self, id: SessionId, parcel: Parcel, target: &Target) {
        let instance = target.instance.clone();
        let Some(kept) = self.instances.get(&instance) else {
            return;
        };
        match kept.state().clone() {
            State::Seeking { .. } | State::Waiting { .. } => self.deleted_here(id, &instance),
            State::Placing(Placing {
                node, pending_on, ..
            }) if !pending_on.is_given() => {
                if !self.may(&instance, EventKind::Ended) {
                    return;
                }
                self.release(node, &instance);
                self.deleted_here(id, &instance);
            }
            State::Lost { until, .. } => {
                let event = LifecycleEvent::Deleted { due: until };
                self.turn(&instance, event, &Cause::DeletedLost);
                self.tell_deleted(id, &instance);
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

    /// Carries a DELETE to the node that has the instance. If its START is still on its way, the node deals with both
    /// in order.
    fn delete_on(&mut self, id: SessionId, parcel: Parcel, key: NodeKey, named: &Target) {
        let instance = &named.instance;
        let node = self.cluster.nodes().node(key);
        let (uuid, session) = (node.uuid(), node.session());
        let target = Target {
            instance: instance.clone(),
            node: uuid.to_string().into(),
        };
        let Some(session) = session else {
            return self.no_such_instance(id, &target, None);
        };
        if !self.may(instance, EventKind::Deleted)
            || !self.expect_answer(id, CommandName::Delete, instance)
        {
            return;
        }
        let due = self.now + COMMAND_TIME;
        self.turn(instance, LifecycleEvent::Deleted { due }, &Cause::Deleted);
        self.cluster.ledger_mut(key).stop_sent(instance);
        let command = TargetedCommand {
            sender: id,
            target,
            volume: None,
            parcel,
            is_readdressed: canonical_uuid(&named.node) != Some(uuid),
        };
        self.send(session, Message::Targeted(Box::new(command)));
    }

    /// An instance that is on no node is deleted here.
    fn deleted_here(&mut self, id: SessionId, instance: &InstanceId) {
        self.end_managing(instance, &Cause::Deleted);
        self.tell_deleted(id, instance);
    }

    /// A launcher has not said that it stopped an instance: no one knows, and STATS will tell.
    pub(crate) fn stop_is_late(&mut self, key: NodeKey, instance: &InstanceId) {
        let Some(State::Stopping { then, .. }) =
            self.instances.get(instance).map(|it| it.state().clone())
        else {
            return;
        };
        let cause = &Cause::NotStoppedInTime;
        if self.take_up_update(instance, cause) {
            return;
        }
        let kept = self.instances.get(instance);
        let by = kept.and_then(|kept| kept.state().suspended_by().cloned());
        let by = by.unwrap_or(By::Command);
        let errand = self.errand_of(instance);
        let entry = self.cluster.nodes().node(key).ledger().get(instance);
        // While it is not on disk that it is to stop, its launcher is not told.
        let may_stop = entry.is_some_and(Entry::may_stop);
        let was_told = may_stop || !self.journal.is_unwritten(instance);
        self.rolled_back(key, instance, by, cause);
        self.tell_mover(errand, instance, key, CommandFailureReason::Timeout, cause);
        match then {
            Then::Wait(_) | Then::Again(_) if was_told => {
                // Its launcher may yet come to it: that is not its end.
                if let Some(kept) = self.instances.get_mut(instance) {
                    kept.set_told_to_stop(true);
                }
            }
            Then::Wait(_) | Then::Again(_) | Then::End(_) => {}
        }
        self.note_not_stopped(instance);
    }

    /// Tells whom it concerns that an instance which was on no node is deleted: in the words a launcher would use.
    pub(crate) fn tell_deleted(&mut self, id: SessionId, instance: &InstanceId) {
        let message = || {
            Message::InstanceDeleted(InstanceDeleted {
                instance_uuid: instance.to_string(),
                ..InstanceDeleted::default()
            })
        };
        self.tell_controllers(Topic::Instances, |_| Some(message()));
        let sender_alone = self.peers.outside_audience(id, &Topic::Instances);
        if sender_alone.is_some() {
            self.send(id, message());
        }
    }
}

/// Who hears of what a launcher says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Everybody whom it concerns.
    Everybody,
    /// Original controllers, as far as they understand it ([`Scheduler::pause_told`]): others are told of the instance's
    /// state.
    Originals,
    /// No one: it changes nothing for them.
    NoOne,
}
