//! How instances that are looked after end: by themselves, because they are deleted or were cut off, or because they had to
//! make way or move, which is not their end.

use proto_frames::payload::{CommandFailureReason, InstanceDeleted, StartFailureReason, Topic};
use proto_frames::{Frame, Kind};

use super::Scheduler;
use super::action::{Message, TargetedCommand};
use super::care::COMMAND_TIME;
use super::explain::Explanation;
use super::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
use super::input::Target;
use super::instances::{AfterLoss, Awaits, By, OnLoss, Placing, State, Then};
use super::placement::Refusal;

impl Scheduler {
    /// A launcher says that an instance that is looked after has ended on it; whether original controllers alone are to
    /// hear of it, because it is not its end.
    pub(super) fn kept_ended(&mut self, key: NodeKey, instance: &InstanceId) -> Heard {
        let Some(kept) = self.instances.get(instance) else {
            return Heard::Everybody;
        };
        match kept.state.clone() {
            State::Stopping { node, then, .. } if node == key => {
                self.release(key, instance);
                match then {
                    Then::End => {
                        self.let_go(instance, "stopped");
                        Heard::Everybody
                    }
                    Then::Wait(by) => {
                        self.victim_is_away(instance, &by);
                        Heard::Originals
                    }
                    Then::Again => {
                        self.seek(instance, "it has left its node");
                        Heard::Originals
                    }
                }
            }
            State::Migrating { from, .. } if from == key => self.has_left(key, instance),
            state if state.node() == Some(key) => {
                let told_to_stop = kept.told_to_stop;
                self.release(key, instance);
                if told_to_stop {
                    self.seek(instance, "its node has ended it after all");
                    return Heard::Originals;
                }
                self.let_go(instance, "ended");
                Heard::Everybody
            }
            State::Lost { node, then, .. } if node == self.nodes.node(key).uuid => {
                if kept.told_to_stop && then != AfterLoss::Delete {
                    self.seek(instance, "its node has ended it, as it was told");
                    return Heard::Originals;
                }
                self.let_go(instance, "ended");
                Heard::Everybody
            }
            _ => {
                // It is elsewhere, or is to be: this was a copy that should not have been.
                self.release(key, instance);
                Heard::Nobody
            }
        }
    }

    /// A launcher says that it stopped an instance because it was cut off for longer than its lease: it is placed again if
    /// its START said so.
    pub(super) fn kept_cut_off_there(&mut self, key: NodeKey, instance: &InstanceId) -> Heard {
        let Some(kept) = self.instances.get(instance) else {
            return Heard::Everybody;
        };
        let uuid = self.nodes.node(key).uuid;
        let is_here = match &kept.state {
            State::Running { node } | State::Suspended { node, .. } => *node == key,
            State::Placing(Placing { node, pending_on }) => {
                *node == key && *pending_on == Awaits::Node
            }
            State::Lost { node, then, .. } => *node == uuid && *then != AfterLoss::Delete,
            _ => false,
        };
        if !is_here || kept.on_loss != OnLoss::Restart {
            return self.kept_ended(key, instance);
        }
        self.queue.remove(instance);
        self.release(key, instance);
        self.seek(instance, "its node was cut off, and has stopped it");
        Heard::Originals
    }

    /// A node does not list an instance that is looked after any more, without having said that it ended.
    pub(super) fn kept_vanished(&mut self, key: NodeKey, instance: &InstanceId) {
        let Some(kept) = self.instances.get(instance) else {
            return;
        };
        match kept.state.clone() {
            State::Placing(Placing { node, .. }) if node == key => {
                let node = self.nodes.node(key);
                let (uuid, has_run) = (node.uuid, kept.has_run);
                if has_run || node.ledger.counts_starts() {
                    return self.seek(instance, "its node does not have it");
                }
                // An original launcher may yet begin it: nothing is started elsewhere that may run there.
                let why = Explanation::of(Refusal::Lost.detail());
                let reason = StartFailureReason::LaunchFailure;
                self.fail_kept(instance, reason, Some(uuid), why);
            }
            State::Stopping { .. } | State::Migrating { .. } => {
                self.kept_ended(key, instance);
            }
            state if state.node() == Some(key) && kept.told_to_stop => {
                self.seek(instance, "its node has ended it after all");
            }
            state if state.node() == Some(key) => self.let_go(instance, "its node lost it"),
            _ => {}
        }
    }

    /// DELETE of an instance that is looked after: it goes to the node that has it, whichever the command names.
    pub(super) fn delete_kept(&mut self, id: SessionId, frame: Frame, target: &Target) {
        let instance = target.instance.clone();
        let Some(kept) = self.instances.get(&instance) else {
            return;
        };
        match kept.state.clone() {
            State::Waiting => self.deleted_here(id, &frame, &instance),
            State::Placing(Placing { node, pending_on }) if pending_on != Awaits::Node => {
                self.release(node, &instance);
                self.deleted_here(id, &frame, &instance);
            }
            State::Lost { node, until, .. } => {
                let then = AfterLoss::Delete;
                let state = State::Lost { node, until, then };
                self.turn(&instance, state, "deleted while its node is lost");
                self.tell_deleted(id, &frame, &instance);
            }
            State::Migrating { from, .. } => {
                let reason = CommandFailureReason::WrongState;
                self.undo_move(&instance, reason, "it is being deleted");
                self.delete_on(id, frame, from, target);
            }
            State::Placing(Placing { node, .. })
            | State::Running { node }
            | State::Suspending { node, .. }
            | State::Suspended { node, .. }
            | State::Resuming { node, .. }
            | State::Updating { node, .. }
            | State::Stopping { node, .. } => self.delete_on(id, frame, node, target),
        }
    }

    /// Carries a DELETE to the node that has the instance. If its START is still on its way, the node deals with both
    /// in order.
    fn delete_on(&mut self, id: SessionId, frame: Frame, key: NodeKey, named: &Target) {
        let instance = &named.instance;
        let node = self.nodes.node(key);
        let (uuid, session) = (node.uuid, node.session());
        let target = Target {
            instance: instance.clone(),
            node: uuid.to_string().into(),
        };
        let Some(session) = session else {
            return self.no_such_instance(id, frame.kind, &target, None);
        };
        let due = self.now + COMMAND_TIME;
        let state = State::Stopping {
            node: key,
            then: Then::End,
            due,
        };
        self.turn(instance, state, "deleted");
        self.expect_answer(id, frame.kind, instance);
        let command = TargetedCommand {
            sender: id,
            target,
            volume: None,
            frame,
            is_readdressed: canonical_uuid(&named.node) != Some(uuid),
        };
        self.send(session, Message::Targeted(Box::new(command)));
    }

    /// An instance that is on no node is deleted here.
    fn deleted_here(&mut self, id: SessionId, frame: &Frame, instance: &InstanceId) {
        self.let_go(instance, "deleted");
        self.tell_deleted(id, frame, instance);
    }

    /// A launcher has not said that it stopped an instance: nobody knows, and STATS will tell.
    pub(super) fn stop_is_late(&mut self, key: NodeKey, instance: &InstanceId) {
        let Some(State::Stopping { then, .. }) =
            self.instances.get(instance).map(|it| it.state.clone())
        else {
            return;
        };
        let kept = self.instances.get(instance);
        let by = kept.and_then(|kept| kept.suspended_by.clone());
        let by = by.unwrap_or(By::Command);
        self.rolled_back(key, instance, by, "it did not stop in time");
        match then {
            Then::Wait(preemptor) => self.victim_stays(&preemptor, instance),
            Then::Again => {
                if let Some(kept) = self.instances.get_mut(instance) {
                    kept.told_to_stop = true;
                }
            }
            Then::End => {}
        }
    }

    /// Tells whom it concerns that an instance which was on no node is deleted: in the words a launcher would use.
    fn tell_deleted(&mut self, id: SessionId, frame: &Frame, instance: &InstanceId) {
        let message = || {
            Message::InstanceDeleted(InstanceDeleted {
                instance_uuid: instance.to_string(),
                exit_code: None,
            })
        };
        debug_assert_eq!(frame.kind, Kind::DELETE);
        self.tell_controllers(Topic::Instances, |_| Some(message()));
        let hears = self.controllers.contains(&id)
            || self
                .sessions
                .get(&id)
                .is_none_or(|session| session.topics.contains(&Topic::Instances));
        if !hears {
            self.send(id, message());
        }
    }
}

/// Who hears of what a launcher says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Everybody whom it concerns.
    Everybody,
    /// Original controllers: others are told of the instance's state.
    Originals,
    /// Nobody: it changes nothing for them.
    Nobody,
}
