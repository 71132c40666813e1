//! StartFailure from a launcher. In this order: another node is tried if the node was only tried as a full one; a managed
//! instance goes on to its next attempt; else the failure is final, and forwarded.

use sched_model::{StartFailureReason, Topic};

use crate::Scheduler;
use crate::api::action::{Message, Notice};
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::parcel::Parcel;
use crate::api::text::ShortText;
use crate::cluster::ledger::{Ended, EntryEnd};
use crate::effects::failure::still_runs;
use crate::instance::tried::Tried;
use crate::instance::{Awaits, Instance, Placing, State};
use crate::peers::session::{LISTENER, Session};
use crate::placement::explain::Explanation;
use crate::workflow::managed::may_try_elsewhere;

impl Scheduler {
    /// StartFailure from a launcher. In this order: another node is tried if the node was only tried as a full one; a
    /// managed instance goes on to its next attempt; else the failure is final, and forwarded.
    pub(crate) fn start_failed(
        &mut self,
        id: SessionId,
        parcel: Parcel,
        instance: Option<InstanceId>,
        reason: &StartFailureReason,
        detail: &ShortText,
    ) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        self.counters.node_refusals.note(reason);
        // Original launchers do not name the instance of a START that they cannot read.
        let instance = instance.or_else(|| self.cluster.ledger(key).only_unconfirmed());
        if *reason == StartFailureReason::FullComputeNode
            && let Some(instance) = &instance
            && self.refused_as_full(key, instance)
        {
            return;
        }
        if let Some(instance) = instance.as_ref().filter(|it| self.instances.contains(it))
            && !still_runs(reason)
            && self.attempt_failed(key, instance, reason, detail)
        {
            return;
        }
        let ledger = self.cluster.ledger(key);
        let sender = instance
            .as_ref()
            .and_then(|instance| ledger.get(instance)?.asker());
        match &instance {
            Some(instance) if still_runs(reason) => self.cluster.confirm(key, instance),
            Some(instance) => {
                self.count_failure(key, instance, reason);
                let place = self.cluster.host(key);
                let before = self.sight().before_end(key, instance);
                self.ended(key, instance, Ended::Failed);
                // Where another START of it is under way, or it runs elsewhere, that decides what becomes of it.
                if before.is_known() && !self.sight().exists(instance) {
                    let why = match detail.is_empty() {
                        true => Cause::NotStarted(place.0, reason.clone(), ShortText::default()),
                        false => Cause::from(&**detail),
                    };
                    self.start_is_over(instance, place, before, (reason.clone(), &why));
                }
            }
            None => self.notice(Notice::UnmatchedFailure(self.cluster.uuid(key))),
        }
        if *reason == StartFailureReason::FullComputeNode {
            self.cluster.note_full_again(key);
        }
        self.counters.failures.note(reason);
        if let Some(sender) = sender {
            self.copy_to_operator(sender, Topic::Failures, &parcel);
        }
        if still_runs(reason) {
            return self.forward_already_there(id, sender, &parcel);
        }
        self.broadcast(Topic::Failures, id, parcel);
    }

    /// Forwards a StartFailure that only says that the instance is there already. Other operators do not get it: for
    /// them nothing has failed, and they may have started the instance and wait for its end.
    fn forward_already_there(&mut self, id: SessionId, sender: Option<SessionId>, parcel: &Parcel) {
        let sender = sender.and_then(|sender| self.peers.get(sender));
        let sender = sender.map(Session::uuid);
        self.broadcast_as(Topic::Failures, id, |session| {
            let is_other = session.role().intersects(LISTENER) && Some(session.uuid()) != sender;
            (!is_other).then(|| Message::Forward(parcel.clone()))
        });
    }

    /// A launcher reports that it could not start a managed instance. The next node is tried if the reason may be the
    /// node's and attempts are left, if the node is full and the START may wait for room, or if the instance ran before;
    /// otherwise the START has failed for good. Returns whether the report answered a START of this instance on this
    /// node: if not, it is dealt with as any other report.
    fn attempt_failed(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        reason: &StartFailureReason,
        text: &ShortText,
    ) -> bool {
        match self.instances.get(instance).map(Instance::state) {
            Some(State::Placing(Placing {
                node,
                pending_on: Awaits::Node { .. },
                ..
            })) if *node == key => {}
            _ => return false,
        }
        if self.cluster.end(key, instance, Ended::Failed) != EntryEnd::Over {
            // It answers an earlier START of the same instance; the outcome of the latest is still to come.
            return true;
        }
        self.cluster.release(key, instance);
        if *reason == StartFailureReason::FullComputeNode {
            self.cluster.note_full_again(key);
        }
        let uuid = self.cluster.uuid(key);
        let Some(managed) = self.instances.get_mut(instance) else {
            return true;
        };
        managed.note_not_run(uuid);
        managed.note_refusal(Tried {
            node: uuid,
            reason: reason.clone(),
            detail: text.clone(),
        });
        // An instance that ran before is never given up because of the nodes it was sent to, and one that may wait for
        // room not because a node had less than it said.
        let goes_on = managed.has_run()
            || *reason == StartFailureReason::FullComputeNode && managed.may_wait(self.now)
            || may_try_elsewhere(reason) && managed.has_attempts_left(self.now);
        self.count_failure(key, instance, reason);
        let cause = Cause::NotStarted(uuid, reason.clone(), text.clone());
        if goes_on {
            self.reschedule(instance, &cause);
        } else {
            let said = if text.is_empty() {
                cause
            } else {
                Cause::from(&**text)
            };
            let why = Explanation::of(said);
            self.fail_managed(instance, reason.clone(), Some(uuid), why);
        }
        true
    }
}
