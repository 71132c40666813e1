//! Lost nodes stay known: listed until they return or an operator forgets them, over restarts of the scheduler as well.

use std::time::Instant;

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::action::{Action, Notice};
use crate::api::cause::Cause;
use crate::api::config::LOST_TIME;
use crate::api::ids::{NodeKey, SessionId, canonical_uuid};
use crate::api::input::Departure;
use crate::api::known_node::KnownNode;
use crate::api::refused::RefusalCause;
use crate::api::sent::CommandName;
use crate::cluster::node::{Node, Presence};
use crate::instance::{AfterLoss, State};
use crate::peers::session::Session;

impl Scheduler {
    /// All nodes known: connected, lost, and expected back after a restart, in no particular order.
    #[must_use]
    pub fn known_nodes(&self) -> Vec<KnownNode> {
        let present = self.cluster.nodes_from(0);
        let present = present.map(|(_, node)| KnownNode {
            instances: 0,
            ..known(node)
        });
        let absent = self.cluster.absent().iter_from(Uuid::nil()).cloned();
        present.chain(absent).collect()
    }

    /// Takes over the nodes that the process before this one knew, from the state directory.
    pub(crate) fn restore_known_nodes(&mut self, nodes: Vec<KnownNode>) {
        for node in nodes {
            self.cluster.note_absent(node);
        }
    }

    /// Logs the end of a node's connection: that it left in order, or that it is lost.
    pub(crate) fn note_departure(&mut self, key: NodeKey, session: &Session, departure: Departure) {
        match departure {
            Departure::Closed => self.notice(Notice::Left(session.uuid(), session.role())),
            Departure::Broken => {
                let node = known(self.cluster.node(key));
                self.notice(Notice::NodeLost(Box::new(node)));
            }
        }
    }

    /// A lost node leaves the store because its in-doubt time is over. It stays in lists as absent, unless its launcher
    /// left in order, or it has never reported what it has, and nothing was on it: then it is forgotten. One that was
    /// lost soon after it was first known, with nothing on it, is forgotten [`LOST_TIME`] later.
    pub(crate) fn remember_lost(&mut self, node: &Node) {
        let uuid = node.uuid();
        let managed = self.instances.lost_count(uuid);
        let has_nothing = node.ledger().len() == 0 && managed == 0;
        let has_said_nothing = node.report().is_none() && node.first_known().is_some();
        if has_nothing && (node.departure() == Departure::Closed || has_said_nothing) {
            self.node_is_gone(uuid);
            return;
        }
        let Presence::Lost(since) = node.presence() else {
            return;
        };
        let first_known = node.first_known();
        let is_new = first_known.is_some_and(|first| since < first + LOST_TIME);
        let known = KnownNode {
            lost_since_ms: Some(self.clock.unix_ms(since)),
            instances: (node.ledger().len() + managed) as u64,
            is_brief: has_nothing && is_new && !self.cluster.is_cordoned(uuid),
            ..known(node)
        };
        self.notice(Notice::NodeGivenUp(Box::new(known.clone())));
        self.note_absent(known);
    }

    /// The recovery window is over: nodes that were expected back after the restart and have not come count as lost
    /// from this moment on.
    pub(crate) fn lose_expected_nodes(&mut self) {
        let expected: Vec<KnownNode> = self
            .cluster
            .absent()
            .iter_from(Uuid::nil())
            .filter(|node| node.lost_since_ms.is_none())
            .cloned()
            .collect();
        for node in expected {
            self.notice(Notice::NodeNotBack(Box::new(node.clone())));
            self.note_absent(KnownNode {
                lost_since_ms: Some(self.clock.unix_ms(self.now)),
                ..node
            });
        }
    }

    /// When the next of the lost nodes is to be forgotten that were known only briefly.
    pub(crate) fn brief_due(&self) -> Option<Instant> {
        let since_ms = self.cluster.absent().first_brief()?;
        Some(self.clock.instant_of(since_ms) + LOST_TIME)
    }

    /// Forgets lost nodes that were known only briefly, once their time is over.
    pub(crate) fn forget_brief(&mut self) {
        while self.brief_due().is_some_and(|due| due <= self.now)
            && let Some(node) = self.cluster.forget_first_brief()
        {
            self.uncordon(node.uuid);
            self.node_is_gone(node.uuid);
            self.notice(Notice::NodeForgotten(Box::new(node)));
            self.act(Action::RememberNodes);
        }
    }

    /// Puts a node among the absent ones, and logs the one that was forgotten to make room.
    fn note_absent(&mut self, node: KnownNode) {
        if let Some(forgotten) = self.cluster.note_absent(node) {
            self.node_is_gone(forgotten.uuid);
            self.notice(Notice::NodeForgotten(Box::new(forgotten)));
        }
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

/// What is remembered of a node beyond its connection.
fn known(node: &Node) -> KnownNode {
    KnownNode {
        uuid: node.uuid(),
        roles: node.roles(),
        hostname: node.hostname().into(),
        address: node.address(),
        instances: node.ledger().len() as u64,
        lost_since_ms: None,
        is_brief: false,
    }
}
