//! A lost node is given up once its time is over, or is forgotten by command: what was on it is lost with it.

use crate::Scheduler;
use crate::api::action::{Action, Notice};
use crate::api::cause::Cause;
use crate::api::ids::{NodeKey, SessionId, canonical_uuid};
use crate::api::refused::RefusalCause;
use crate::api::sent::CommandName;
use crate::instance::{AfterLoss, State};
use crate::query::records::is_lost_with;
use crate::timers::Timer;

impl Scheduler {
    /// Gives up a lost node once its in-doubt time is over: a drain of it ends, managed instances on it are placed
    /// again or reported, its claims are released, and STARTs in doubt on it have failed. Returns how many those were.
    /// From here on its key is not valid. Does nothing if the node is back.
    pub(crate) fn give_up(&mut self, key: NodeKey) -> usize {
        let cluster = &self.cluster;
        if !cluster.contains(key) || cluster.session(key).is_some() {
            return 0;
        }
        self.drained_node_is_lost(key);
        self.managed_given_up(key);
        self.timers.cancel(&Timer::GiveUp(key));
        self.timers.cancel(&Timer::Lease(key));
        let ledger = self.cluster.ledger(key);
        let claims = self
            .sight()
            .claims_of(ledger, is_lost_with(&self.cluster, key));
        let Some(node) = self.cluster.remove_node(key) else {
            return 0;
        };
        self.remember_lost(&node);
        self.remember_claims(&node, claims);
        for (instance, entry) in node.ledger().entries_from(0) {
            self.pending.note_lost(instance);
            if let Some(start) = entry.unconfirmed() {
                let place = (node.uuid(), node.hostname_text());
                self.fail_unconfirmed(instance, start, place, Some(entry.since()));
            }
        }
        self.act(Action::RememberNodes);
        node.ledger().unconfirmed()
    }

    /// EVACUATE with `mode: forget`: a node that is not connected is removed from lists, and the recovery window does
    /// not wait for it any more. Its cordon, drain and remembered claims end, and what was lost with it is final, in
    /// the order of the queue.
    ///
    /// Instances that are to be restarted after its fencing deadline still wait for that: forgetting a node does not
    /// prove that it runs nothing. Refused for a node that is connected or not known.
    pub(crate) fn forget_node(&mut self, id: SessionId, name: &str) {
        let uuid = canonical_uuid(name);
        let key = uuid.and_then(|uuid| self.cluster.by_uuid(uuid));
        if let Some(key) = key {
            if self.cluster.session(key).is_some() {
                let cause = RefusalCause::NodeConnected(name.into());
                return self.refuse(id, CommandName::Evacuate.into(), cause, None);
            }
            self.give_up(key);
        }
        let forgotten = uuid.and_then(|uuid| self.cluster.forget_absent(uuid));
        let Some(uuid) = uuid.filter(|_| key.is_some() || forgotten.is_some()) else {
            let cause = RefusalCause::NodeNotKnown(name.into());
            return self.refuse(id, CommandName::Evacuate.into(), cause, None);
        };
        if self.recovery.note_back(uuid, self.now) {
            self.set_recovery_timer();
        }
        self.uncordon(uuid);
        self.node_is_gone(uuid);
        if let Some(claims) = self.journal.take_claims(uuid, self.now) {
            self.lost_are_over(uuid, &claims, &Cause::Forgotten);
        }
        let mut lost = self.instances.lost_with(uuid);
        self.sight().put_in_order(&mut lost, |instance| instance);
        for instance in lost {
            let state = self.instances.get(&instance).map(|managed| managed.state());
            match state {
                Some(State::Lost { then, .. }) if *then != AfterLoss::Restart => {
                    let then = *then;
                    self.loss_is_final(&instance, uuid, then);
                }
                _ => {}
            }
        }
        let node = forgotten.unwrap_or_else(|| uuid.into());
        self.notice(Notice::NodeForgotten(Box::new(node)));
        self.act(Action::RememberNodes);
    }
}
